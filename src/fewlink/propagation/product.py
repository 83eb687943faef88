"""The relational sparse product and its gradients.

For states x (nodes, tasks, queries, width) and weights w (tasks, relations, width), the product is

    out[t] = sum over edges (h, r, t) of  c(h, r, t) ⊙ w[r] ⊙ x[h]

where c are constants of the edge that differ between blocks of the width: see `Norms`. Its gradient by x is the same
sum over the transposed edges; its gradient by w is `relation_sums`.
"""

from __future__ import annotations

import contextlib
import enum
import importlib.util
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fewlink.propagation.edges import EdgeOrder, EdgeTable

EDGES_AT_ONCE = 1 << 22  # numbers of a block of messages on the fallback


class Norms(enum.Enum):
    """The constants of an edge in equal blocks of the width.

    FOUR: 1 / fan-out, 1 / fan-in, 1 / √(fan-out · fan-in) and 1; TWO: 1 / fan-out and 1 / fan-in.
    """

    FOUR = 4
    TWO = 2


_switch = {"kernels": True}


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Use torch's operations on the GPU as well: to compare with, and to check the kernels."""
    before = _switch["kernels"]
    _switch["kernels"] = False
    try:
        yield
    finally:
        _switch["kernels"] = before


def kernels_for(x: Tensor) -> Any:
    """The module of Triton kernels for a tensor on a GPU, or None."""
    if not (x.is_cuda and _switch["kernels"] and importlib.util.find_spec("triton")):
        return None
    return importlib.import_module("fewlink.propagation.kernels")


def relational_product(x: Tensor, w: Tensor, edges: EdgeTable, norms: Norms = Norms.FOUR) -> Tensor:
    """The product (nodes, tasks, queries, width), differentiable by x and w; `w` has the type of `x`."""
    out: Tensor = _Product.apply(x, w, edges, norms)  # type: ignore[no-untyped-call]
    return out


def transposed_product(x: Tensor, w: Tensor, edges: EdgeTable, norms: Norms = Norms.FOUR) -> Tensor:
    """The product over transposed edges: out[h] sums over edges (h, r, t) of x[t]; without gradients."""
    return _sums(edges.by_head, x, w, edges.nodes, norms)


def relation_sums(x: Tensor, y: Tensor, edges: EdgeTable, norms: Norms = Norms.FOUR) -> Tensor:
    """For each relation the sum over its edges (h, r, t) and all queries of c ⊙ x[h] ⊙ y[t], without gradients.

    Shape (tasks, relations, width), float32.
    """
    if (kernels := kernels_for(x)) is not None:
        return kernels.relation_sums(edges.by_relation, x, y, edges.relations, norms.value)  # type: ignore[no-any-return]
    order, (_, tasks, _, width) = edges.by_relation, x.shape
    out = x.new_zeros(edges.relations, tasks, width, dtype=torch.float32)
    for part in _parts(order, x):
        both = x[order.first[part]] * y[order.second[part]]  # (e, tasks, queries, width)
        out.index_add_(0, order.row[part], both.float().sum(2) * constants(order, part, width, norms)[:, None])
    return out.transpose(0, 1)


def constants(order: EdgeOrder, part: slice, width: int, norms: Norms) -> Tensor:
    """The constants of some edges (e, width)."""
    fan_out, fan_in = order.fan_out[part], order.fan_in[part]
    blocks = [fan_out, fan_in]
    if norms is Norms.FOUR:
        blocks += [(fan_out * fan_in).sqrt(), torch.ones_like(fan_out)]
    return torch.stack(blocks, 1).repeat_interleave(width // len(blocks), 1)


def _sums(order: EdgeOrder, x: Tensor, w: Tensor, rows: int, norms: Norms) -> Tensor:
    """out[row] = Σ c ⊙ w[second] ⊙ x[first] over the edges of each row."""
    if (kernels := kernels_for(x)) is not None:
        return kernels.row_sums(order, x, w, rows, norms.value)  # type: ignore[no-any-return]
    out = x.new_zeros(rows, *x.shape[1:])
    by_relation = w.transpose(0, 1)  # (relations, tasks, width)
    for part in _parts(order, x):
        weights = by_relation[order.second[part]] * constants(order, part, x.shape[-1], norms)[:, None].to(x.dtype)
        out.index_add_(0, order.row[part], x[order.first[part]] * weights[:, :, None])
    return out


def _parts(order: EdgeOrder, x: Tensor) -> list[slice]:
    step = max(1, EDGES_AT_ONCE // max(1, x[0].numel()))
    return [slice(at, at + step) for at in range(0, len(order.row), step)]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, edges: EdgeTable, norms: Norms) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.edges, ctx.norms = edges, norms
        return _sums(edges.by_tail, x, w, edges.nodes, norms)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, w = ctx.saved_tensors
        grad = grad.contiguous()
        by_x = _sums(ctx.edges.by_head, grad, w, ctx.edges.nodes, ctx.norms) if ctx.needs_input_grad[0] else None
        by_w = relation_sums(x, grad, ctx.edges, ctx.norms).to(w.dtype) if ctx.needs_input_grad[1] else None
        return by_x, by_w, None, None
