"""`fewlink models`: the few-shot models and the parts they are composed of."""

from __future__ import annotations

import typer


def models(json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """List the few-shot models, with the parts of each and the equations the parts implement.

    Example: `fewlink models`
    """
    from fewlink.cli import show
    from fewlink.models import MODELS

    kinds = ("encoder", "pairs", "aggregator", "matcher")
    if json:
        show.as_json(
            [{"name": n, "about": m.about, **{k: getattr(m, k).__name__ for k in kinds}} for n, m in MODELS.items()]
        )
        return
    show.table(["model", *kinds], [[n, *(getattr(m, k).__name__ for k in kinds)] for n, m in MODELS.items()])
    parts = dict.fromkeys(getattr(m, kind) for kind in kinds for m in MODELS.values())
    show.table(["part", "what it computes"], [[p.__name__, (p.__doc__ or "").splitlines()[0]] for p in parts])
