"""Weights and optimizer states as dictionaries of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn
from torch.optim import Optimizer

from fewlink.core.errors import InputError


def moments_of(module: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state of each parameter, as `PARAMETER.ENTRY`."""
    return {
        f"{name}.{entry}": value
        for name, parameter in module.named_parameters()
        for entry, value in optimizer.state[parameter].items()
    }


def restore_moments(module: nn.Module, optimizer: Optimizer, moments: Mapping[str, Tensor]) -> None:
    """Restore the state of an optimizer from `moments_of`."""
    steps_on_device = bool(optimizer.defaults.get("capturable"))  # captured steps are counted on the device
    for name, parameter in module.named_parameters():
        state = {}
        for key, value in moments.items():
            owner, _, entry = key.rpartition(".")
            if owner == name:
                on_cpu = entry == "step" and not steps_on_device
                state[entry] = value.clone() if on_cpu else value.to(parameter.device)
        if state:
            optimizer.state[parameter] = state


def check_weights(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], run: Path) -> None:
    """Raise if the weights of a checkpoint do not have the names and shapes of the model's."""
    expected_shapes = {name: tuple(weight.shape) for name, weight in expected.items()}
    shapes = {name: tuple(weight.shape) for name, weight in found.items()}
    if shapes != expected_shapes:
        differing = [n for n in sorted({*shapes, *expected_shapes}) if shapes.get(n) != expected_shapes.get(n)]
        some = f"{differing[0]} and {len(differing) - 1} more" if len(differing) > 1 else differing[0]
        problem = f"has weights of another version of its model ({some}), which this version cannot read"
        raise InputError(run, f"{problem}: train or fit again in another folder")
