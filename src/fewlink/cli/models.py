"""`fewlink models`: the few-shot models and the parts they are composed of."""

from __future__ import annotations

import typer


def models(
    settings: bool = typer.Option(False, "--settings", help="Show what `fewlink train --set` can change instead."),
    model: str = typer.Option("fsrl", help="With --settings: the model whose settings are shown."),
    json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """List the few-shot models, with the parts of each and the equations the parts implement.

    Example: `fewlink models`
    """
    from fewlink.cli import show
    from fewlink.models import MODELS, TRAILS

    if settings:
        _settings(model, json)
        return
    kinds = ("encoder", "pairs", "aggregator", "matcher")
    if json:
        composed = [
            {"name": n, "about": m.about, **{k: getattr(m, k).__name__ for k in kinds}} for n, m in MODELS.items()
        ]
        show.as_json([*composed, *({"name": n, "about": t.about, "evidence": t.kinds} for n, t in TRAILS.items())])
        return
    show.table(["model", *kinds], [[n, *(getattr(m, k).__name__ for k in kinds)] for n, m in MODELS.items()])
    parts = dict.fromkeys(getattr(m, kind) for kind in kinds for m in MODELS.values())
    show.table(["part", "what it computes"], [[p.__name__, (p.__doc__ or "").splitlines()[0]] for p in parts])

    show.table(["model", "evidence", "what it is"], [[n, ", ".join(t.kinds), t.about] for n, t in TRAILS.items()])


def _settings(model: str, json: bool) -> None:
    """The settings of training with their defaults and what they mean, as their class documents them."""
    import re

    from fewlink.cli import show
    from fewlink.training import settings_of

    kind = settings_of(model)
    told = dict(re.findall(r"^    (\w+) {2,}(.+)$", kind.__doc__ or "", re.MULTILINE))
    rows = [[name, value, told.get(name, "")] for name, value in kind(model=model).as_dict().items()]
    if json:
        show.as_json([dict(zip(("name", "default", "about"), row, strict=True)) for row in rows])
        return
    show.table(["setting", "default", "what it is"], [[name, str(value), about] for name, value, about in rows])
