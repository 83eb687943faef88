"""Weights and optimizer states as dictionaries of tensors: saved, restored and checked against a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn
from torch.optim import Optimizer

from fewlink.core.errors import InputError


def moments_of(module: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state of each parameter, as `PARAMETER.ENTRY`."""
    return {
        f"{name}.{part}": value
        for name, parameter in module.named_parameters()
        for part, value in optimizer.state[parameter].items()
    }


def restore_moments(module: nn.Module, optimizer: Optimizer, moments: Mapping[str, Tensor]) -> None:
    """Restore the state of an optimizer that `moments_of` returned."""
    on_device = bool(optimizer.defaults.get("capturable"))  # a captured step counts on the device
    for name, parameter in module.named_parameters():
        own = {key.rpartition(".")[2]: value for key, value in moments.items() if key.rpartition(".")[0] == name}
        if own:
            optimizer.state[parameter] = {
                part: value.clone() if part == "step" and not on_device else value.to(parameter.device)
                for part, value in own.items()
            }


def check_weights(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], run: Path) -> None:
    """Raise if a checkpoint's weights have other names or shapes than the model's."""
    mine, theirs = ({name: tuple(w.shape) for name, w in weights.items()} for weights in (expected, found))
    if mine != theirs:
        names = ", ".join(name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name))
        raise InputError(run, f"holds weights of another version of its model ({names}): train again")
