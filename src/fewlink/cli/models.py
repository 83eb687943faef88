"""`fewlink models` and `fewlink recipes`: models with their parts, settings and recipes."""

from __future__ import annotations

import typer

from fewlink.cli import common


def models(
    settings: bool = typer.Option(False, "--settings", help="Show the settings that `fewlink train --set` can change."),
    model: str = typer.Option(None, help="Show the settings of this model; with --settings, by default fsrl's."),
    json: bool = common.JSON,
) -> None:
    """List all models by family, with their parts and the equations that the parts implement.

    Example: `fewlink models`
    """
    from fewlink.training import families

    if settings or model:
        _print_settings(model or "fsrl", json)
        return
    if json:
        common.print_json(
            [
                {"name": name, "family": family.name, "about": about, **family.parts(name)}
                for family in families().values()
                for name, about in family.models.items()
            ]
        )
        return
    for family in families().values():
        kinds = list(family.parts(next(iter(family.models))))
        rows = [[name, *map(_cell, family.parts(name).values()), about] for name, about in family.models.items()]
        common.print_table(["model", *kinds, "what it is"], rows, title=family.name)
        if texts := family.part_texts():
            common.print_table(["part", "what it computes"], list(map(list, texts.items())))


def _cell(part: object) -> str:
    return ", ".join(part) if isinstance(part, list) else str(part)


def _print_settings(model: str, json: bool) -> None:
    """The settings of a model with defaults and descriptions, read from the docstring of their class."""
    import re

    from fewlink.training import trained_family

    kind = trained_family(model).settings
    texts = dict(re.findall(r"^    (\w+) {2,}(.+)$", kind.__doc__ or "", re.MULTILINE))
    rows = [[name, value, texts.get(name, "")] for name, value in kind(model=model).as_dict().items()]  # type: ignore[call-arg]
    if json:
        common.print_json([dict(zip(("name", "default", "about"), row, strict=True)) for row in rows])
        return
    common.print_table(["setting", "default", "what it is"], [[name, str(value), about] for name, value, about in rows])


def recipes(json: bool = typer.Option(False, "--json", help="Print JSON, with all settings.")) -> None:
    """List the recipes of embeddings and few-shot models.

    Example: `fewlink recipes`
    """
    from fewlink.base.recipes import measured, model_of, recipe_texts
    from fewlink.training import family_of

    models = {name: model_of(name) for name in recipe_texts()}
    recipes = [family_of(model).recipe(model, name) for name, model in models.items()]
    figures = measured()
    if json:
        rows = [
            {"name": r.name, "about": r.about, "chosen": r.chosen, "measured": figures.get(r.name, {})}
            | {"settings": r.settings.as_dict(), "vectors": r.vectors}
            for r in recipes
        ]
        common.print_json(rows)
        return
    for r in recipes:
        print(f"{r.name}\n  {r.about}\n  chosen: {r.chosen}")
        for what, figure in figures.get(r.name, {}).items():
            print(f"  {what}: {figure}")
