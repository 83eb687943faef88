"""`fewlink recipes`: the named settings, how they were chosen and what they reached."""

from __future__ import annotations

import typer


def recipes(json: bool = typer.Option(False, "--json", help="Print JSON, with all settings.")) -> None:
    """List the recipes for embeddings.

    Example: `fewlink recipes`
    """
    from fewlink.cli import show
    from fewlink.embeddings.recipes import measured, recipe, recipe_texts

    found = [recipe(name) for name in recipe_texts()]
    reached = measured()
    if json:
        rows = [
            {"name": r.name, "about": r.about, "chosen": r.chosen, "measured": reached.get(r.name, {})}
            | {"settings": r.settings.as_dict()}
            for r in found
        ]
        show.as_json(rows)
        return
    for r in found:
        print(f"{r.name}\n  {r.about}\n  chosen: {r.chosen}")
        for what, figure in reached.get(r.name, {}).items():
            print(f"  {what}: {figure}")
