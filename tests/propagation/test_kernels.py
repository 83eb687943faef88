"""The Triton kernels against torch's operations: on a GPU, or in Triton's interpreter with TRITON_INTERPRET=1."""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import id_graph
from torch import Tensor

from fewlink.models.trail.propagate import Layer
from fewlink.propagation.edges import RELATION_SEGMENT, ROW_SEGMENT, EdgeTable
from fewlink.propagation.product import (
    ExtraEdges,
    Norms,
    kernels_for,
    relation_sums,
    relational_product,
    transposed_product,
    without_kernels,
)

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and not CUDA
DEVICE = "cuda" if CUDA else "cpu"
pytestmark = pytest.mark.skipif(
    not (CUDA or INTERPRETED) or importlib.util.find_spec("triton") is None, reason="no GPU, or no Triton"
)
NODES, RELATIONS = 40, 8
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2}

every_type = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float32", "bfloat16"])
every_width = pytest.mark.parametrize("width", [16, 32, 64])
every_count = pytest.mark.parametrize("queries", [1, 2, 8, 16])
both_norms = pytest.mark.parametrize("norms", list(Norms))


@functools.cache
def kernels() -> Any:
    return importlib.import_module("fewlink.propagation.kernels")


@functools.cache
def table() -> EdgeTable:
    """An entity and a relation with several segments, and an entity without edges."""
    draw = np.random.default_rng(0)
    rows = draw.integers(0, [NODES - 1, RELATIONS, NODES - 1], (300, 3)).tolist()
    rows += [(e, r, 0) for e in range(NODES - 1) for r in range(1, RELATIONS)]
    rows += [(h, 0, t) for h, t in draw.integers(0, NODES - 1, (900, 2)).tolist()]
    edges = EdgeTable.of(id_graph([tuple(row) for row in rows], NODES, RELATIONS)).to(DEVICE)
    assert edges.by_tail.offsets.diff().max() > 2 * ROW_SEGMENT and edges.by_tail.offsets.diff().min() == 0
    assert edges.by_relation.offsets.diff().max() > RELATION_SEGMENT
    return edges


def drawn(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Equal within a share of the largest number."""
    assert torch.isfinite(found).all()
    scale = float(expected.float().abs().max())
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=TOLERANCE[dtype] * scale)


@every_type
@every_width
@every_count
@both_norms
def test_products(dtype: torch.dtype, width: int, queries: int, norms: Norms) -> None:
    x, y = drawn(0, NODES, 2, queries, width, dtype=dtype), drawn(1, NODES, 2, queries, width, dtype=dtype)
    w = drawn(2, 2, 2 * RELATIONS, width, dtype=dtype)
    edges, blocks = table(), norms.value
    with without_kernels():
        forward = relational_product(x.float(), w.float(), edges, norms)
        back = transposed_product(x.float(), w.float(), edges, norms)
        sums = relation_sums(x.float(), y.float(), edges, norms)
    found = kernels().row_sums(edges.by_tail, x, w, NODES, blocks)
    assert found.dtype == dtype
    close(found, forward, dtype)
    close(kernels().row_sums(edges.by_head, x, w, NODES, blocks), back, dtype)
    close(kernels().row_sums(edges.by_head, x, w, NODES, blocks, y), back + y.float(), dtype)
    found = kernels().relation_sums(edges.by_relation, x, y, 2 * RELATIONS, blocks)
    assert found.dtype == torch.float32
    close(found, sums, torch.float32)


@pytest.mark.parametrize("tasks", [1, 3])
def test_zero_edges(tasks: int) -> None:
    edges = EdgeTable.of(id_graph([], 5, 1)).to(DEVICE)
    x, w = drawn(0, 5, tasks, 2, 16), drawn(1, tasks, 2, 16)
    assert not kernels().row_sums(edges.by_tail, x, w, 5, 4).any()
    assert not kernels().relation_sums(edges.by_relation, x, x, 2, 4).any()


def layer_inputs(queries: int, width: int, dtype: torch.dtype, tasks: int = 2) -> list[Any]:
    """States, weights, edges beside those of the graph (some repeated, some of weight 0) and their weights."""
    ends = torch.tensor([[3, 5, 5, 0, NODES * tasks - 1, 7], [5, 3, 9, 0, 4, 7]], device=DEVICE)
    rows, places = ends.unique(return_inverse=True)
    over = drawn(5, 6, width)
    over[3] = 0
    x = drawn(3, NODES, tasks, queries, width)
    x[NODES - 3 :] = 0
    w = drawn(4, tasks, 2 * RELATIONS, width) / 4
    return [x.to(dtype), w.to(dtype), ExtraEdges(rows, *places), over.to(dtype)]


def through(layer: Layer, inputs: list[Any], fused: bool) -> tuple[Tensor, list[Tensor]]:
    """The states after a layer, and the gradients of a weighted sum of them."""
    x, w, over = (part.detach().clone().requires_grad_() for part in (inputs[0], inputs[1], inputs[3]))
    layer.zero_grad()
    if fused:
        own = layer.from_state, layer.from_sums, layer.gain
        out = kernels().PropagationLayer.apply(x, w, over, *own, inputs[2], table(), Norms.FOUR.value)
    else:
        with without_kernels():
            out = layer(x, w, inputs[2], over, table())
    (out.float() * drawn(6, *out.shape)).sum().backward()
    return out.detach(), [p.grad for p in (x, w, over, layer.from_state, layer.from_sums, layer.gain)]


@every_type
@every_width
@every_count
def test_a_fused_layer_is_the_plain_one(dtype: torch.dtype, width: int, queries: int) -> None:
    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("the interpreter has no products of matrices in bfloat16")
    torch.manual_seed(0)
    layer = Layer(width).to(DEVICE)
    layer.gain.data = drawn(7, width) + 1
    inputs = layer_inputs(queries, width, dtype)
    exact = [part if isinstance(part, tuple) else part.float() for part in inputs]
    (found, slopes), (_, plain), (expected, best) = (
        through(layer, own, fused=fused) for own, fused in ((inputs, True), (inputs, False), (exact, False))
    )
    assert found.dtype == dtype and not found[NODES - 1].any()
    close(found, expected, dtype)
    for mine, other, true in zip(slopes, plain, best, strict=True):
        errors = [float((slope.float() - true).norm() / true.norm()) for slope in (mine, other)]
        few = mine.shape == inputs[3].shape  # six edges: a ReLU that rounding switches counts for much
        rounding = (0.05 if few else 0.02) if dtype == torch.bfloat16 else 0
        assert torch.isfinite(mine).all() and errors[0] < 1e-4 + 1.5 * errors[1] + rounding


@pytest.mark.skipif(not CUDA, reason="no GPU")
def test_kernels_are_used_on_a_gpu_unless_they_are_switched_off() -> None:
    x = torch.zeros(1, 1, 1, 16, device=DEVICE)
    assert kernels_for(x) is kernels()
    with without_kernels():
        assert kernels_for(x) is None


@pytest.mark.skipif(not CUDA, reason="no GPU")
@every_type
def test_gradients_of_a_product_on_a_gpu(dtype: torch.dtype) -> None:
    found = []
    for fused in (True, False):
        kind = dtype if fused else torch.float32
        x, w = drawn(0, NODES, 2, 8, 32, dtype=dtype).to(kind), drawn(1, 2, 2 * RELATIONS, 32, dtype=dtype).to(kind)
        x.requires_grad_()
        w.requires_grad_()
        if fused:
            relational_product(x, w, table()).float().square().sum().backward()
        else:
            with without_kernels():
                relational_product(x, w, table()).square().sum().backward()
        found.append((x.grad, w.grad))
    for mine, plain in zip(*found, strict=True):
        close(mine, plain, dtype)
