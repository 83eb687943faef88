"""`fewlink models` and `fewlink recipes`: what can be trained, of which parts, and with which settings."""

from __future__ import annotations

import typer


def models(
    settings: bool = typer.Option(False, "--settings", help="Show what `fewlink train --set` can change instead."),
    model: str = typer.Option("fsrl", help="With --settings: the model whose settings are shown."),
    json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """List all models by family, with the parts of each and the equations the parts implement.

    Example: `fewlink models`
    """
    from fewlink.cli import show
    from fewlink.training import families

    if settings:
        _settings(model, json)
        return
    if json:
        show.as_json(
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
        show.table(["model", *kinds, "what it is"], rows, title=family.name)
        if texts := family.part_texts():
            show.table(["part", "what it computes"], list(map(list, texts.items())))


def _cell(part: object) -> str:
    return ", ".join(part) if isinstance(part, list) else str(part)


def _settings(model: str, json: bool) -> None:
    """The settings of training with their defaults and what they mean, as their class documents them."""
    import re

    from fewlink.cli import show
    from fewlink.training import trained_family

    kind = trained_family(model).settings
    texts = dict(re.findall(r"^    (\w+) {2,}(.+)$", kind.__doc__ or "", re.MULTILINE))
    rows = [[name, value, texts.get(name, "")] for name, value in kind(model=model).as_dict().items()]  # type: ignore[call-arg]
    if json:
        show.as_json([dict(zip(("name", "default", "about"), row, strict=True)) for row in rows])
        return
    show.table(["setting", "default", "what it is"], [[name, str(value), about] for name, value, about in rows])


def recipes(json: bool = typer.Option(False, "--json", help="Print JSON, with all settings.")) -> None:
    """List the recipes for embeddings and for few-shot models.

    Example: `fewlink recipes`
    """
    from fewlink.base.recipes import measured, model_of, recipe_texts
    from fewlink.cli import show
    from fewlink.training import family_of

    models = {name: model_of(name) for name in recipe_texts()}
    found = [family_of(model).recipe(model, name) for name, model in models.items()]
    reached = measured()
    if json:
        rows = [
            {"name": r.name, "about": r.about, "chosen": r.chosen, "measured": reached.get(r.name, {})}
            | {"settings": r.settings.as_dict(), "vectors": r.vectors}
            for r in found
        ]
        show.as_json(rows)
        return
    for r in found:
        print(f"{r.name}\n  {r.about}\n  chosen: {r.chosen}")
        for what, figure in reached.get(r.name, {}).items():
            print(f"  {what}: {figure}")
