"""What commands share that train or use what was trained: settings, devices, a run's benchmark, and progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

    from fewlink.embeddings import EmbeddingSettings


def chosen_settings(
    model: str, recipe: str | None, changes: Sequence[str], seed: int, device: str
) -> EmbeddingSettings:
    """The settings of the recipe (by default the one named after the model), with changes, a seed and a device."""
    import dataclasses

    from fewlink.base.errors import FewlinkError
    from fewlink.base.recipes import recipe as load
    from fewlink.base.resolver import choose
    from fewlink.embeddings import INTERACTIONS, EmbeddingSettings

    choose("embedding model", model, INTERACTIONS)
    refuse_own(changes)
    settings = load(recipe or model, EmbeddingSettings).settings
    if settings.model != model:
        raise FewlinkError(f"recipe '{recipe}' is for {settings.model}, not for {model}")
    return dataclasses.replace(settings, seed=seed, device=working_device(device)).adjusted(changes)


def working_device(device: str) -> str:
    """`auto` to the GPU where there is one; a device that is not there is an error."""
    import torch

    from fewlink.base.distributed import use_device

    return use_device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)


def refuse_own(changes: Sequence[str]) -> None:
    """An error for `--set seed=…` and `--set device=…`, which are options of their own."""
    from fewlink.base.errors import FewlinkError
    from fewlink.base.recipes import OWN

    for change in changes:
        if (name := change.partition("=")[0]) in OWN:
            raise FewlinkError(f"--set {change}: use --{name}")


def epoch_lines(title: str) -> Callable[[dict[str, Any]], None]:
    """A reporter for `train(on_epoch=…)`: a line an epoch with speed, held-out quality and time left."""
    begun, before = time.monotonic(), -1  # epochs that an earlier run had done

    def show(trace: dict[str, Any]) -> None:
        nonlocal before
        before = trace["epoch"] - 1 if before < 0 else before
        passed = (time.monotonic() - begun) / (trace["epoch"] - before)
        left = passed * (trace["epochs"] - trace["epoch"])
        held = f"  held-out MRR {trace['held_out_mrr']:.3f}" if trace["held_out_mrr"] is not None else ""
        print(
            f"{title}  epoch {trace['epoch']}/{trace['epochs']}  loss {trace['loss']:.4f}{held}"
            f"  {trace['triples_per_second']:,.0f} triples/s  {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )

    return show


def refuse_given(context: typer.Context, names: Sequence[str], why: str) -> None:
    """An error for the first of these options that was given, where it would be ignored."""
    from fewlink.base.errors import FewlinkError

    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise FewlinkError(f"--{'set' if name == 'change' else name} {why}")
