"""Triton kernels of the relational sparse product and of the update of states. They run on a GPU only."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fewlink.propagation.edges import EdgeOrder, EdgeTable, Segments
from fewlink.propagation.product import ExtraEdges

PROGRAMS = 528  # of the kernels that loop over blocks: four on each of 132 multiprocessors


@triton.jit
def _edge_constants(out, into, column, WIDTH: tl.constexpr, BLOCKS: tl.constexpr):
    block = column // (WIDTH // BLOCKS)
    if BLOCKS == 1:
        constants = tl.where(block == 0, 1.0, out)
    elif BLOCKS == 2:
        constants = tl.where(block == 0, out, into)
    else:
        constants = tl.where(
            block == 0, out, tl.where(block == 1, into, tl.where(block == 2, tl.sqrt(out * into), 1.0))
        )
    return constants


@triton.jit
def _row_sums(
    x, w, first, second, fan_out, fan_in, rows, begins, ends, slots, base, out, partial, tasks, relations,
    QUERIES: tl.constexpr, WIDTH: tl.constexpr, BLOCKS: tl.constexpr, EDGES: tl.constexpr, BASE: tl.constexpr,
):  # fmt: skip
    segment = tl.program_id(0)
    task = tl.program_id(1)
    begin = tl.load(begins + segment)
    end = tl.load(ends + segment)
    column = tl.arange(0, WIDTH)[None, None, :]
    tile = tl.arange(0, QUERIES)[None, :, None] * WIDTH + column
    total = tl.zeros([EDGES, QUERIES, WIDTH], tl.float32)
    for at in range(begin, end, EDGES):
        edge = at + tl.arange(0, EDGES)
        there = edge < end
        source = tl.load(first + edge, mask=there, other=0).to(tl.int64)
        relation = tl.load(second + edge, mask=there, other=0).to(tl.int64)
        a = tl.load(fan_out + edge, mask=there, other=0.0)[:, None, None]
        b = tl.load(fan_in + edge, mask=there, other=0.0)[:, None, None]
        state = tl.load(
            x + ((source * tasks + task) * QUERIES * WIDTH)[:, None, None] + tile, mask=there[:, None, None], other=0.0
        ).to(tl.float32)
        weight = tl.load(
            w + ((task * relations + relation) * WIDTH)[:, None, None] + column, mask=there[:, None, None], other=0.0
        ).to(tl.float32)
        total += state * (weight * _edge_constants(a, b, column, WIDTH, BLOCKS))
    result = tl.sum(total, 0)
    flat = tl.arange(0, QUERIES)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    row = tl.load(rows + segment)
    slot = tl.load(slots + segment)
    if slot < 0:
        place = (row * tasks + task) * QUERIES * WIDTH + flat
        if BASE:
            result += tl.load(base + place).to(tl.float32)
        tl.store(out + place, result.to(out.dtype.element_ty))
    else:
        tl.store(partial + (slot * tasks + task) * QUERIES * WIDTH + flat, result)


@triton.jit
def _relation_sums(
    x, y, first, second, fan_out, fan_in, begins, ends, partial, tasks,
    QUERIES: tl.constexpr, WIDTH: tl.constexpr, BLOCKS: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    segment = tl.program_id(0).to(tl.int64)
    task = tl.program_id(1)
    begin = tl.load(begins + segment)
    end = tl.load(ends + segment)
    column = tl.arange(0, WIDTH)[None, None, :]
    tile = tl.arange(0, QUERIES)[None, :, None] * WIDTH + column
    total = tl.zeros([EDGES, QUERIES, WIDTH], tl.float32)
    for at in range(begin, end, EDGES):
        edge = at + tl.arange(0, EDGES)
        there = edge < end
        head = tl.load(first + edge, mask=there, other=0).to(tl.int64)
        tail = tl.load(second + edge, mask=there, other=0).to(tl.int64)
        a = tl.load(fan_out + edge, mask=there, other=0.0)[:, None, None]
        b = tl.load(fan_in + edge, mask=there, other=0.0)[:, None, None]
        at_head = ((head * tasks + task) * QUERIES * WIDTH)[:, None, None] + tile
        at_tail = ((tail * tasks + task) * QUERIES * WIDTH)[:, None, None] + tile
        left = tl.load(x + at_head, mask=there[:, None, None], other=0.0).to(tl.float32)
        right = tl.load(y + at_tail, mask=there[:, None, None], other=0.0).to(tl.float32)
        total += left * right * _edge_constants(a, b, column, WIDTH, BLOCKS)
    result = tl.sum(tl.sum(total, 0), 0)
    tl.store(partial + (segment * tasks + task) * WIDTH + tl.arange(0, WIDTH), result)


@triton.jit
def _add_partials(partial, firsts, rows, base, out, numbers, BLOCK: tl.constexpr, BASE: tl.constexpr):
    which = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(firsts + which)
    end = tl.load(firsts + which + 1)
    total = tl.zeros([BLOCK], tl.float32)
    for at in range(begin, end):
        total += tl.load(partial + at * numbers + column, mask=column < numbers, other=0.0)
    row = tl.load(rows + which)
    if BASE:
        total += tl.load(base + row * numbers + column, mask=column < numbers, other=0.0).to(tl.float32)
    tl.store(out + row * numbers + column, total.to(out.dtype.element_ty), mask=column < numbers)


def row_sums(order: EdgeOrder, x: Tensor, w: Tensor, rows: int, blocks: int, base: Tensor | None = None) -> Tensor:
    """out[row] = base[row] + Σ c ⊙ w[second] ⊙ x[first]: (rows, tasks, queries, width)."""
    x = x.contiguous()
    w = w.contiguous()
    _, tasks, queries, width = x.shape
    segments = order.segments
    out = x.new_empty(rows, tasks, queries, width)
    partial = x.new_empty(max(1, segments.partials), tasks, queries, width, dtype=torch.float32)
    _row_sums[(len(segments.rows), tasks)](
        x, w, order.first, order.second, order.fan_out, order.fan_in,
        segments.rows, segments.begins, segments.ends, segments.slots,
        x if base is None else base, out, partial, tasks, w.shape[1],
        QUERIES=queries, WIDTH=width, BLOCKS=blocks, EDGES=max(1, 512 // (queries * width)),
        BASE=base is not None, num_warps=1,
    )  # fmt: skip
    _reduce(partial, segments, out, tasks * queries * width, base)
    return out


def relation_sums(order: EdgeOrder, x: Tensor, y: Tensor, relations: int, blocks: int) -> Tensor:
    """Σ over the edges of each relation and all queries of c ⊙ x[first] ⊙ y[second]: (tasks, relations, width)."""
    x = x.contiguous()
    y = y.contiguous()
    _, tasks, queries, width = x.shape
    segments = order.segments
    partial = x.new_empty(len(segments.rows), tasks, width, dtype=torch.float32)
    _relation_sums[(len(segments.rows), tasks)](
        x, y, order.first, order.second, order.fan_out, order.fan_in, segments.begins, segments.ends, partial, tasks,
        QUERIES=queries, WIDTH=width, BLOCKS=blocks, EDGES=max(1, 4096 // (queries * width)), num_warps=4,
    )  # fmt: skip
    out = x.new_empty(relations, tasks, width, dtype=torch.float32)
    _reduce(partial, segments, out, tasks * width)
    return out.transpose(0, 1)


def _reduce(partial: Tensor, segments: Segments, out: Tensor, numbers: int, base: Tensor | None = None) -> None:
    if len(segments.long_rows):
        block = min(1024, triton.next_power_of_2(numbers))
        grid = (len(segments.long_rows), triton.cdiv(numbers, block))
        given = (out, False) if base is None else (base, True)
        _add_partials[grid](
            partial, segments.firsts, segments.long_rows, given[0], out, numbers, BLOCK=block, BASE=given[1]
        )


@triton.jit
def _asinh(v):
    size = tl.abs(v)
    return tl.where(v < 0, -1.0, 1.0) * tl.log(size + tl.sqrt(size * size + 1.0))


@triton.jit
def _normed(state, sums, from_state, from_sums, EXACT: tl.constexpr, EPS: tl.constexpr, WIDTH: tl.constexpr):
    squashed = _asinh(sums.to(tl.float32)).to(state.dtype)
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    y = tl.dot(squashed, from_sums, input_precision=precision) + tl.dot(state, from_state, input_precision=precision)
    y -= (tl.sum(y, 1) / WIDTH)[:, None]
    scale = 1 / tl.sqrt(tl.sum(y * y, 1) / WIDTH + EPS)
    return squashed, y * scale[:, None], scale


@triton.jit
def _update(
    x, s, from_state, from_sums, gain, out, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, EXACT: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    at = row[:, None] * WIDTH + column[None, :]
    there = (row < rows)[:, None]
    square = column[:, None] * WIDTH + column[None, :]
    state = tl.load(x + at, mask=there, other=0.0)
    sums = tl.load(s + at, mask=there, other=0.0)
    _, y, _ = _normed(state, sums, tl.load(from_state + square), tl.load(from_sums + square), EXACT, EPS, WIDTH)
    moved = state.to(tl.float32) + tl.maximum(y * tl.load(gain + column)[None, :], 0.0)
    tl.store(out + at, moved.to(out.dtype.element_ty), mask=there)


@triton.jit
def _update_gradients(
    x, s, from_state, from_sums, gain, grad, by_x, by_s, by_state, by_sums, by_gain, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, EXACT: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    square = column[:, None] * WIDTH + column[None, :]
    weight_state = tl.load(from_state + square)
    weight_sums = tl.load(from_sums + square)
    gains = tl.load(gain + column).to(tl.float32)
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    total_state = tl.zeros([WIDTH, WIDTH], tl.float32)
    total_sums = tl.zeros([WIDTH, WIDTH], tl.float32)
    total_gain = tl.zeros([WIDTH], tl.float32)
    for block in range(program, tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        at = row[:, None] * WIDTH + column[None, :]
        there = (row < rows)[:, None]
        state = tl.load(x + at, mask=there, other=0.0)
        sums = tl.load(s + at, mask=there, other=0.0)
        g = tl.load(grad + at, mask=there, other=0.0).to(tl.float32)
        squashed, y, scale = _normed(state, sums, weight_state, weight_sums, EXACT, EPS, WIDTH)
        passed = tl.where(y * gains[None, :] > 0, g, 0.0)
        total_gain += tl.sum(passed * y, 0)
        inner = passed * gains[None, :]
        inner -= (tl.sum(inner, 1) / WIDTH)[:, None] + y * (tl.sum(inner * y, 1) / WIDTH)[:, None]
        inner = (inner * scale[:, None]).to(state.dtype)
        total_state += tl.dot(tl.trans(state), inner, input_precision=precision)
        total_sums += tl.dot(tl.trans(squashed), inner, input_precision=precision)
        back_state = g + tl.dot(inner, tl.trans(weight_state), input_precision=precision)
        wide = sums.to(tl.float32)
        back_sums = tl.dot(inner, tl.trans(weight_sums), input_precision=precision) / tl.sqrt(wide * wide + 1.0)
        tl.store(by_x + at, back_state.to(by_x.dtype.element_ty), mask=there)
        tl.store(by_s + at, back_sums.to(by_s.dtype.element_ty), mask=there)
    tl.store(by_state + program * WIDTH * WIDTH + square, total_state)
    tl.store(by_sums + program * WIDTH * WIDTH + square, total_sums)
    tl.store(by_gain + program * WIDTH + column, total_gain)


ROWS = 64  # of states that one program updates
EPS = 1e-5  # added to the variance, as in torch's LayerNorm


def update(x: Tensor, s: Tensor, from_state: Tensor, from_sums: Tensor, gain: Tensor) -> Tensor:
    """x + ReLU(gain ⊙ norm(x · A + asinh(s) · B)), rows of the last dimension normalised to mean 0 and variance 1."""
    out = torch.empty_like(x)
    width = x.shape[-1]
    rows = x.numel() // width
    exact = x.dtype == torch.float32
    _update[(triton.cdiv(rows, ROWS),)](
        x, s, from_state, from_sums, gain, out, rows, WIDTH=width, ROWS=ROWS, EXACT=exact, EPS=EPS
    )
    return out


def update_gradients(
    x: Tensor, s: Tensor, from_state: Tensor, from_sums: Tensor, gain: Tensor, grad: Tensor
) -> tuple[Tensor, ...]:
    """The gradients of `update` by each of its arguments."""
    width = x.shape[-1]
    exact = x.dtype == torch.float32
    rows = x.numel() // width
    programs = min(PROGRAMS, triton.cdiv(rows, ROWS))
    by_x = torch.empty_like(x)
    by_s = torch.empty_like(s)
    by_state, by_sums = gain.new_empty(2, programs, width, width)
    by_gain = gain.new_empty(programs, width)
    _update_gradients[(programs,)](
        x, s, from_state, from_sums, gain, grad, by_x, by_s, by_state, by_sums, by_gain, rows,
        WIDTH=width, ROWS=ROWS, EXACT=exact, EPS=EPS,
    )  # fmt: skip
    return by_x, by_s, by_state.sum(0), by_sums.sum(0), by_gain.sum(0)


class PropagationLayer(torch.autograd.Function):
    """A layer of propagation: the product over the edges and over `extra` ones with weights (n, width), and the
    update."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, weights: Tensor, from_state: Tensor, from_sums: Tensor, gain: Tensor,
        extra: ExtraEdges, edges: EdgeTable, blocks: int,
    ) -> Tensor:  # fmt: skip
        x = x.contiguous()
        w = w.contiguous()
        a, b = (weight.to(x.dtype).contiguous() for weight in (from_state, from_sums))
        sums = extra.add_(row_sums(edges.by_tail, x, w, edges.nodes, blocks), x, weights)
        ctx.save_for_backward(x, w, sums, weights, a, b, gain)
        ctx.extra = extra
        ctx.edges = edges
        ctx.blocks = blocks
        return update(x, sums, a, b, gain)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w, sums, weights, a, b, gain = ctx.saved_tensors
        extra = ctx.extra
        edges = ctx.edges
        blocks = ctx.blocks
        by_x, by_sums, by_a, by_b, by_gain = update_gradients(x, sums, a, b, gain, grad.contiguous())
        by_x = extra.add_(
            row_sums(edges.by_head, by_sums, w, edges.nodes, blocks, by_x), by_sums, weights, transposed=True
        )
        left, arrived = (
            states.flatten(0, 1)[extra.rows[ends]].float()
            for states, ends in ((x, extra.sources), (by_sums, extra.targets))
        )
        by_weights = (left * arrived).sum(1).to(weights.dtype)
        by_w = relation_sums(edges.by_relation, x, by_sums, edges.relations, blocks).to(w.dtype)
        return by_x, by_w, by_weights, by_a, by_b, by_gain, None, None, None
