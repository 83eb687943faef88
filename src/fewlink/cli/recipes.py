"""`fewlink recipes`: the named settings, how they were chosen and what they reached."""

from __future__ import annotations

import typer


def recipes(json: bool = typer.Option(False, "--json", help="Print JSON, with all settings.")) -> None:
    """List the recipes for embeddings and for few-shot models.

    Example: `fewlink recipes`
    """
    from fewlink.cli import show
    from fewlink.embeddings import INTERACTIONS, EmbeddingSettings
    from fewlink.recipes import measured, model_of, recipe, recipe_texts
    from fewlink.training import settings_of

    models = {name: model_of(name) for name in recipe_texts()}
    kinds = {name: EmbeddingSettings if m in INTERACTIONS else settings_of(m) for name, m in models.items()}
    found = [recipe(name, kind) for name, kind in kinds.items()]
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
