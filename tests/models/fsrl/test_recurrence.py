"""The step of an LSTM: torch's own cell, and the way to its GPU kernel with the kernel played by plain operations."""

from __future__ import annotations

import pytest
import torch
from tests.models.fsrl.oracle import close, normal
from torch import Tensor, nn
from torch.func import vmap

from fewlink.models.fsrl import recurrence
from fewlink.models.fsrl.recurrence import lstm_step

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def plain(gates: Tensor, more: Tensor | None, memory: Tensor | None) -> tuple[Tensor, Tensor]:
    i, f, g, o = (gates if more is None else gates + more).chunk(4, -1)
    kept = i.sigmoid() * g.tanh() + (0 if memory is None else f.sigmoid() * memory)
    return o.sigmoid() * kept.tanh(), kept


def test_it_is_the_step_of_torchs_cell() -> None:
    cell = nn.LSTMCell(3, 4).double()
    x, state, memory = normal(1, 5, 3), normal(2, 5, 4), normal(3, 5, 4)
    from_x = nn.functional.linear(x, cell.weight_ih, cell.bias_ih)
    from_state = nn.functional.linear(state, cell.weight_hh, cell.bias_hh)
    for found, expected in zip(lstm_step(from_x, from_state, memory), cell(x, (state, memory)), strict=True):
        close(found, expected)


def played_forward(gates: Tensor, more: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    assert gates.dim() == more.dim() == memory.dim() == 2  # as the kernel wants them
    state, kept = plain(gates, more, memory)
    return state, kept, gates + more


def played_backward(
    to_state: Tensor, to_kept: Tensor, memory: Tensor, kept: Tensor, workspace: Tensor, bias: bool
) -> tuple[Tensor, Tensor, None]:
    i, f, g, o = workspace.chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    to_kept = to_kept + to_state * o * (1 - kept.tanh() ** 2)
    inner = (to_kept * g, to_kept * memory, to_kept * i, to_state * kept.tanh())
    slopes = (i * (1 - i), f * (1 - f), 1 - g**2, o * (1 - o))
    return torch.cat([a * b for a, b in zip(inner, slopes, strict=True)], -1), to_kept * f, None


def gradients(outputs: tuple[Tensor, ...], leaves: list[Tensor]) -> tuple[Tensor, ...]:
    total = sum((o * normal(i, *o.shape)).sum() for i, o in enumerate(outputs))
    return torch.autograd.grad(total, leaves)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3)])
def test_the_way_to_the_kernel(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrence, "FORWARD", played_forward)
    monkeypatch.setattr(recurrence, "BACKWARD", played_backward)
    leaves = [normal(1, *shape, 8), normal(2, *shape, 8), normal(3, *shape, 2)]
    for leaf in leaves:
        leaf.requires_grad_()
    *found, _ = recurrence._Fused.apply(*leaves)
    expected = plain(*leaves)
    for a, b in zip((*found, *gradients(tuple(found), leaves)), (*expected, *gradients(expected, leaves)), strict=True):
        close(a, b)


def test_the_way_of_several_runs_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrence, "FORWARD", played_forward)
    monkeypatch.setattr(recurrence, "BACKWARD", played_backward)
    leaves = [normal(1, 3, 5, 8), normal(2, 5, 8), normal(3, 5, 3, 2)]  # of 3 runs; the second shared by all of them
    for leaf in leaves:
        leaf.requires_grad_()
    way = vmap(lambda a, b, c: recurrence._Fused.apply(a, b, c)[:2], in_dims=(0, None, 1))
    found, expected = way(*leaves), plain(leaves[0], leaves[1], leaves[2].movedim(1, 0))
    for a, b in zip((*found, *gradients(found, leaves)), (*expected, *gradients(expected, leaves)), strict=True):
        close(a, b)


@on_gpu
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_the_kernel_itself(parts: int) -> None:
    leaves = [normal(1, 3, 5, 8), normal(2, 3, 5, 8), normal(3, 3, 5, 2)][:parts]
    here = [leaf.requires_grad_() for leaf in leaves]
    there = [leaf.detach().cuda().requires_grad_() for leaf in leaves]
    given = [*here, None, None][:3], [*there, None, None][:3]
    expected, found = plain(*given[0]), lstm_step(*given[1])  # type: ignore[arg-type]
    weights = [normal(i, *e.shape) for i, e in enumerate(expected)]
    slopes = torch.autograd.grad(sum((e * w).sum() for e, w in zip(expected, weights, strict=True)), here)
    on_device = torch.autograd.grad(sum((f * w.cuda()).sum() for f, w in zip(found, weights, strict=True)), there)
    for a, b in zip((*found, *on_device), (*expected, *slopes), strict=True):
        close(a.cpu(), b)
