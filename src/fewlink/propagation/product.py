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
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from fewlink.propagation.edges import EdgeOrder, EdgeTable, RowEdges, counts_before

NUMBERS_AT_ONCE = 1 << 19  # of a block of messages, which a processor's cache holds
SIDE_BY_SIDE = 128  # numbers of a node's states, up to which tasks are added up together


class Norms(enum.Enum):
    """The constants of an edge in equal blocks of the width.

    FOUR: 1 / fan-out, 1 / fan-in, 1 / √(fan-out · fan-in) and 1; TWO: 1 / fan-out and 1 / fan-in; ONE: 1.
    """

    FOUR = 4
    TWO = 2
    ONE = 1


POWERS = {  # of the fan-out and of the fan-in, in each block of the width
    Norms.FOUR: ((1, 0), (0, 1), (0.5, 0.5), (0, 0)),
    Norms.TWO: ((1, 0), (0, 1)),
    Norms.ONE: ((0, 0),),
}
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
    """The module of Triton kernels for states (nodes, tasks, queries, width) on a GPU, or None.

    They need powers of two: any number of queries, and a width of at least 16.
    """
    queries, width = x.shape[2:]
    fits = width >= 16 and not (width & (width - 1) or queries & (queries - 1))
    if not (x.is_cuda and fits and _switch["kernels"] and importlib.util.find_spec("triton")):
        return None
    return importlib.import_module("fewlink.propagation.kernels")


def relational_product(x: Tensor, w: Tensor, edges: EdgeTable, norms: Norms = Norms.FOUR) -> Tensor:
    """The product (nodes, tasks, queries, width), differentiable by x and w; `w` has the type of `x`."""
    out: Tensor = _Product.apply(x, w, edges, norms)  # type: ignore[no-untyped-call]
    return out


def transposed_product(x: Tensor, w: Tensor, edges: EdgeTable, norms: Norms = Norms.FOUR) -> Tensor:
    """The product over transposed edges: out[h] sums over edges (h, r, t) of x[t]; without gradients."""
    return _sums(edges, x, w, norms, transposed=True)


def relation_sums(x: Tensor, y: Tensor, edges: EdgeTable, norms: Norms = Norms.FOUR) -> Tensor:
    """For each relation the sum over its edges (h, r, t) and all queries of c ⊙ x[h] ⊙ y[t], without gradients.

    Shape (tasks, relations, width), float32.
    """
    if (kernels := kernels_for(x)) is not None:
        return kernels.relation_sums(edges.by_relation, x, y, edges.relations, norms.value)  # type: ignore[no-any-return]
    order = edges.by_relation
    _, tasks, _, width = x.shape
    kept = _rows_with_states(x).index_select(0, order.first) & _rows_with_states(y).index_select(0, order.second)
    at = kept.nonzero().squeeze(1)
    offsets = counts_before(kept)[order.offsets]
    products = x.new_empty(len(at), tasks, width)
    for part in _parts(len(at), x):
        both = _rows(x, order.first[at[part]]) * _rows(y, order.second[at[part]])  # (e, tasks, queries, width)
        torch.mul(both.sum(2), constants(order, at[part], width, norms)[:, None].to(x.dtype), out=products[part])
    sums = bag_sums(torch.arange(len(at), dtype=torch.int32, device=x.device), products.flatten(1), offsets)
    return sums.view(-1, tasks, width).transpose(0, 1).to(torch.promote_types(x.dtype, torch.float32))


def constants(order: EdgeOrder, part: slice | Tensor, width: int, norms: Norms) -> Tensor:
    """The constants of some edges (e, width)."""
    return edge_constants(order.fan_out[part], order.fan_in[part], width, norms)


def edge_constants(fan_out: Tensor, fan_in: Tensor, width: int, norms: Norms) -> Tensor:
    """The constants (…, width) of edges, given one over their fan-out and fan-in (…)."""
    blocks = [fan_out**of_out * fan_in**of_in for of_out, of_in in POWERS[norms]]
    return torch.stack(blocks, -1).repeat_interleave(width // len(blocks), -1)


def widened(x: Tensor) -> Tensor:
    """Numbers with at least the precision of float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class ExtraEdges(NamedTuple):
    """Edges beside those of a graph, each of one task.

    Shapes: `rows` (r,) of states (nodes · tasks, queries, width), each once unless it is padding; `sources`, `targets`
    (m,), places in `rows`.
    """

    rows: Tensor
    sources: Tensor
    targets: Tensor

    def added(self, sums: Tensor, x: Tensor, weights: Tensor) -> Tensor:
        """sums[target] + weights ⊙ x[source] over these edges with weights (m, width), differentiable."""
        messages = x.flatten(0, 1)[self.rows[self.sources]] * weights[:, None].to(x.dtype)
        return sums.flatten(0, 1).index_add(0, self.rows[self.targets], messages).view_as(sums)

    def add_(self, sums: Tensor, x: Tensor, weights: Tensor, *, transposed: bool = False) -> Tensor:
        """Add the messages in place, without gradients; with `transposed`, from targets to sources.

        They are added up in float32 and then rounded to the type of the sums, because a row may have thousands.
        """
        sources, targets = (self.targets, self.sources) if transposed else (self.sources, self.targets)
        messages = widened(x.flatten(0, 1)[self.rows[sources]]) * widened(weights)[:, None]
        totals = messages.new_zeros(len(self.rows), *messages.shape[1:]).index_add_(0, targets, messages)
        sums.view(-1, *sums.shape[2:]).index_add_(0, self.rows, totals.to(sums.dtype))
        return sums


def _sums(edges: EdgeTable, x: Tensor, w: Tensor, norms: Norms, *, transposed: bool = False) -> Tensor:
    """out[t] = Σ c ⊙ w[r] ⊙ x[h] over the edges (h, r, t) of each tail or, transposed, of each head with x[t]."""
    order = edges.by_head if transposed else edges.by_tail
    if (kernels := kernels_for(x)) is not None:
        return kernels.row_sums(order, x, w, edges.nodes, norms.value)  # type: ignore[no-any-return]
    out = torch.empty_like(x)
    tasks = max(1, SIDE_BY_SIDE // max(1, x.shape[2] * x.shape[3]))
    for own, weights, found in zip(x.split(tasks, 1), w.split(tasks), out.split(tasks, 1), strict=True):
        row_edges = order.row_edges(transposed)
        if x.device.type == "cpu":  # a GPU would have to wait for the count
            kept = _rows_with_states(own).index_select(0, row_edges.sources)
            if 2 * int(kept.sum()) < len(kept):
                row_edges = row_edges.only(kept, row_edges.sources)
        of_columns = weights.transpose(0, 1).repeat_interleave(x.shape[2], 1)  # (relations, tasks · queries, width)
        for rows, sums in row_sums(row_edges, own.flatten(1, 2), of_columns, norms, transposed=transposed):
            found[rows] = sums.view(-1, *own.shape[1:])
    return out


def row_sums(
    edges: RowEdges, x: Tensor, w: Tensor, norms: Norms, *, transposed: bool = False
) -> Iterator[tuple[slice, Tensor]]:
    """The sums (rows, queries, width) of some rows after the others.

    Shapes: states x (nodes, queries, width), weights w (relations, queries, width) or (relations, 1, width).

    A constant is a power of the source's fan times a power of the row's. For each block of the width, states times the
    source's part are added up for each pair of a row and a relation, multiplied with the weights, and added up for each
    row times the row's part. `embedding_bag` reads each term and writes each sum once.
    """
    queries = x.shape[1]
    blocks = [block.flatten(1) for block in x.chunk(norms.value, -1)]
    weights = [block.expand(-1, queries, -1).flatten(1) for block in w.chunk(norms.value, -1)]
    powers = [(of_in, of_out) if transposed else (of_out, of_in) for of_out, of_in in POWERS[norms]]
    fans = [(edges.power("source_fans", source, x.dtype), edges.power("fans", row, x.dtype)) for source, row in powers]
    for chunk in edges.chunks(max(1, NUMBERS_AT_ONCE // max(1, blocks[0].shape[1]))):
        relations = edges.relations[chunk.pairs]
        pairs = torch.arange(len(relations), dtype=torch.int32, device=x.device)
        sums = []
        for block, own, (at_source, at_row) in zip(blocks, weights, fans, strict=True):
            of_pairs = bag_sums(edges.sources[chunk.edges], block, chunk.edge_offsets, at_source, chunk.edges)
            of_pairs.mul_(own.index_select(0, relations))
            sums.append(bag_sums(pairs, of_pairs, chunk.pair_offsets, at_row, chunk.pairs).unflatten(1, (queries, -1)))
        yield chunk.rows, sums[0] if len(sums) == 1 else torch.cat(sums, -1)


def bag_sums(
    indices: Tensor, rows: Tensor, offsets: Tensor, weights: Tensor | None = None, part: slice = slice(None)
) -> Tensor:
    """out[i] = Σ weights[part][j] · rows[indices[j]] over offsets[i] ≤ j < offsets[i + 1]."""
    own = None if weights is None else weights[part]
    return embedding_bag(
        indices, rows, offsets.to(indices.dtype), mode="sum", per_sample_weights=own, include_last_offset=True
    )


def _rows_with_states(x: Tensor) -> Tensor:
    """Whether each row of x (nodes, …) has a number other than zero: (nodes,)."""
    return x.flatten(1).any(1)


def _rows(x: Tensor, rows: Tensor) -> Tensor:
    return x.flatten(1).index_select(0, rows).view(-1, *x.shape[1:])


def _parts(edges: int, x: Tensor) -> list[slice]:
    step = max(1, NUMBERS_AT_ONCE // max(1, x[0].numel()))
    return [slice(at, at + step) for at in range(0, edges, step)]


class _Product(torch.autograd.Function):
    """`relational_product` with its gradients by states and weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, edges: EdgeTable, norms: Norms) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.edges = edges
        ctx.norms = norms
        return _sums(edges, x, w, norms)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, w = ctx.saved_tensors
        grad = grad.contiguous()
        by_x = _sums(ctx.edges, grad, w, ctx.norms, transposed=True) if ctx.needs_input_grad[0] else None
        by_w = relation_sums(x, grad, ctx.edges, ctx.norms).to(w.dtype) if ctx.needs_input_grad[1] else None
        return by_x, by_w, None, None


def asinh(x: Tensor) -> Tensor:
    """asinh of each number; several times as fast as torch's on a CPU."""
    out: Tensor = _Asinh.apply(x)  # type: ignore[no-untyped-call]
    return out


class _Asinh(torch.autograd.Function):
    """sign(x) · log(1 + |x| + x² / (1 + √(x² + 1))), with its gradient 1 / √(x² + 1)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        size = x.abs()
        square = x * x
        result: Tensor = size.addcdiv_(square, square.add(1).sqrt_().add_(1)).log1p_().copysign_(x)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        by_x: Tensor = grad / (x * x).add_(1).sqrt_()
        return by_x
