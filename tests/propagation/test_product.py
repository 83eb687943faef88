"""The relational product, its transpose and its sums by relation against loops over edges; its gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ENTITIES, RELATIONS, id_graph, id_triples
from torch import Tensor

from fewlink.graph import Graph
from fewlink.propagation import product as module
from fewlink.propagation.edges import EdgeTable, Segments
from fewlink.propagation.product import (
    Norms,
    kernels_for,
    relation_sums,
    relational_product,
    row_sums,
    transposed_product,
    without_kernels,
)

both_norms = pytest.mark.parametrize("norms", list(Norms))
Edge = tuple[int, int, int]


def edges_of(graph: Graph) -> list[Edge]:
    """Every triple and its inverse."""
    triples, count = [tuple(map(int, row)) for row in graph.triples()], len(graph.relations)
    return [*triples, *((t, r + count, h) for h, r, t in triples)]


def constants(edges: list[Edge], edge: Edge, width: int, norms: Norms) -> list[float]:
    """c of one edge, column by column."""
    head, relation, tail = edge
    out = 1 / sum(h == head and r == relation for h, r, _ in edges)
    into = 1 / sum(t == tail and r == relation for _, r, t in edges)
    blocks = [1.0] if norms is Norms.ONE else [out, into, math.sqrt(out * into), 1.0][: norms.value]
    return [blocks[i * norms.value // width] for i in range(width)]


def states(seed: int, nodes: int, tasks: int = 2, queries: int = 3, width: int = 8) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, tasks, queries, width, generator=draw, dtype=torch.float64)


def weights(seed: int, relations: int, tasks: int = 2, width: int = 8) -> Tensor:
    return states(seed, tasks, 1, 2 * relations, width)[:, 0]


def by_loops(graph: Graph, x: Tensor, w: Tensor, norms: Norms, *, transposed: bool = False) -> Tensor:
    edges, out = edges_of(graph), torch.zeros_like(x)
    for h, r, t in edges:
        c = torch.tensor(constants(edges, (h, r, t), x.shape[-1], norms), dtype=x.dtype)
        source, target = (t, h) if transposed else (h, t)
        for task in range(x.shape[1]):
            for query in range(x.shape[2]):
                out[target, task, query] += c * w[task, r] * x[source, task, query]
    return out


def sums_by_loops(graph: Graph, x: Tensor, y: Tensor, norms: Norms) -> Tensor:
    edges = edges_of(graph)
    out = torch.zeros(x.shape[1], 2 * len(graph.relations), x.shape[-1], dtype=x.dtype)
    for h, r, t in edges:
        c = torch.tensor(constants(edges, (h, r, t), x.shape[-1], norms), dtype=x.dtype)
        for task in range(x.shape[1]):
            for query in range(x.shape[2]):
                out[task, r] += c * x[h, task, query] * y[t, task, query]
    return out


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@given(id_triples, st.sampled_from(list(Norms)), st.integers(0, 3))
def test_products_are_sums_over_edges(triples: list[Edge], norms: Norms, seed: int) -> None:
    graph = id_graph(triples)
    table, x, w = EdgeTable.of(graph), states(seed, ENTITIES), weights(seed + 9, RELATIONS)
    close(relational_product(x, w, table, norms), by_loops(graph, x, w, norms))
    close(transposed_product(x, w, table, norms), by_loops(graph, x, w, norms, transposed=True))
    y = states(seed + 5, ENTITIES)
    found = relation_sums(x, y, table, norms)
    assert found.shape == (2, 2 * RELATIONS, 8)
    close(found, sums_by_loops(graph, x, y, norms), 1e-5)


def test_a_product_worked_out_by_hand() -> None:
    """0 –r→ 1, 0 –r→ 2, 3 –r→ 2: node 2 has two heads, node 0 two tails."""
    table = EdgeTable.of(id_graph([(0, 0, 1), (0, 0, 2), (3, 0, 2)], 5, 1))
    x = torch.zeros(5, 1, 1, 4)
    x[0], x[3] = 1, 10
    w = torch.stack([torch.ones(4), torch.zeros(4)])[None]  # nothing along the inverse
    out = relational_product(x, w, table)[:, 0, 0]
    root = 0.5**0.5
    expected = [[0] * 4, [0.5, 1, root, 1], [10.5, 5.5, 0.5 + 10 * root, 11], [0] * 4, [0] * 4]
    torch.testing.assert_close(out, torch.tensor(expected))
    two = relational_product(x[..., :2].contiguous(), w[..., :2].contiguous(), table, Norms.TWO)[:, 0, 0]
    torch.testing.assert_close(two, torch.tensor([row[:2] for row in expected]))
    one = relational_product(x[..., :3].contiguous(), w[..., :3].contiguous(), table, Norms.ONE)[:, 0, 0]
    torch.testing.assert_close(one, torch.tensor([[float(row[3])] * 3 for row in expected]))


@both_norms
def test_gradients(norms: Norms) -> None:
    """The product is linear in both arguments, so wide steps are exact; sums by relation are added up in float32."""
    graph = id_graph([(0, 0, 1), (0, 0, 2), (1, 1, 1), (3, 0, 2), (2, 1, 0)], 5, 2)
    table, x, w = EdgeTable.of(graph), states(0, 5, 2, 2, 4), weights(1, 2, 2, 4)
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: relational_product(x, w, table, norms), (x,), eps=1e-2, atol=1e-8)
    w.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda w: relational_product(x.detach(), w, table, norms), (w,), eps=1e-2, atol=1e-5, rtol=1e-5, nondet_tol=0
    )


@given(id_triples, st.sampled_from(list(Norms)))
def test_the_gradient_by_states_is_the_transposed_product(triples: list[Edge], norms: Norms) -> None:
    """⟨y, P x⟩ = ⟨Pᵀ y, x⟩, and both are the sums by relation times the weights."""
    table = EdgeTable.of(id_graph(triples))
    x, y, w = states(0, ENTITIES), states(1, ENTITIES), weights(2, RELATIONS)
    inner = float((y * relational_product(x, w, table, norms)).sum())
    assert inner == pytest.approx(float((x * transposed_product(y, w, table, norms)).sum()), rel=1e-6, abs=1e-6)
    assert inner == pytest.approx(float((w * relation_sums(x, y, table, norms)).sum()), rel=1e-4, abs=1e-4)


@both_norms
def test_zero_edges_give_zeros(norms: Norms) -> None:
    table = EdgeTable.of(id_graph([], 3, 2))
    x, w = states(0, 3).requires_grad_(), weights(0, 2).requires_grad_()
    out = relational_product(x, w, table, norms)
    assert table.edges == 0 and out.shape == x.shape and not out.any()
    out.sum().backward()
    assert not x.grad.any() and not w.grad.any()
    assert not relation_sums(x.detach(), x.detach(), table, norms).any()


def test_nodes_without_edges_get_zeros() -> None:
    table = EdgeTable.of(id_graph([(2, 0, 4)], 6, 1))
    out = relational_product(states(0, 6), weights(0, 1), table)
    assert out.abs().sum((1, 2, 3)).nonzero().flatten().tolist() == [2, 4]


def test_so_many_queries_that_few_edges_fit_a_block_give_the_same() -> None:
    draw = np.random.default_rng(0)
    graph = id_graph([tuple(row) for row in draw.integers(0, [20, 3, 20], (90, 3)).tolist()], 20, 3)
    table, x, w = EdgeTable.of(graph), states(0, 20), weights(0, 3)
    often = (1 << 18) // x[0].numel()
    wide = x.repeat(1, 1, often, 1)
    for product in (relational_product, transposed_product):
        few = product(x, w, table)
        torch.testing.assert_close(product(wide, w, table), few.repeat(1, 1, often, 1), rtol=1e-5, atol=1e-5)
    sums = relation_sums(wide, wide, table) / often
    torch.testing.assert_close(sums, relation_sums(x, x, table), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_type_of_states_is_kept(dtype: torch.dtype) -> None:
    graph = id_graph([(0, 0, 1), (0, 0, 2), (3, 0, 2)], 5, 1)
    x, w = states(0, 5).to(dtype), weights(0, 1).to(dtype)
    out = relational_product(x, w, EdgeTable.of(graph))
    expected = by_loops(graph, x.double(), w.double(), Norms.FOUR)
    assert out.dtype == dtype and relation_sums(x, x, EdgeTable.of(graph)).dtype == torch.float32
    close(out, expected, 1e-6 if dtype == torch.float32 else 0.03)


def test_no_kernels_on_the_cpu_and_none_where_they_are_switched_off() -> None:
    assert kernels_for(torch.zeros(1, 1, 1, 16)) is None
    with without_kernels(), without_kernels():
        assert kernels_for(torch.zeros(1, 1, 1, 16)) is None
    assert module._switch["kernels"]
    with pytest.raises(ValueError, match="inside"), without_kernels():
        raise ValueError("inside")
    assert module._switch["kernels"]


# Edges


@given(id_triples)
def test_a_table_holds_every_edge_in_each_order(triples: list[Edge]) -> None:
    graph = id_graph(triples)
    table, every = EdgeTable.of(graph), sorted(edges_of(graph))
    assert (table.nodes, table.relations, table.edges) == (ENTITIES, 2 * RELATIONS, len(every))
    by_tail, by_head, by_relation = table.by_tail, table.by_head, table.by_relation
    orders = {
        "by_tail": zip(by_tail.first.tolist(), by_tail.second.tolist(), by_tail.row.tolist(), strict=True),
        "by_head": zip(by_head.row.tolist(), by_head.second.tolist(), by_head.first.tolist(), strict=True),
        "by_relation": zip(
            by_relation.first.tolist(), by_relation.row.tolist(), by_relation.second.tolist(), strict=True
        ),
    }
    for name, found in orders.items():
        own, order = list(found), getattr(table, name)
        assert sorted(own) == every and order.row.tolist() == sorted(order.row.tolist())
        assert order.offsets.tolist() == [
            int(np.searchsorted(order.row.numpy(), row)) for row in range(len(order.offsets) - 1)
        ] + [len(every)]
        for i, edge in enumerate(own):
            fans = [float(order.fan_out[i]), float(order.fan_in[i])]
            assert fans == pytest.approx(constants(every, edge, 2, Norms.TWO))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.integers(1, 7), st.booleans())
def test_segments_cover_every_edge_once(counts: list[int], longest: int, all_partial: bool) -> None:
    offsets = np.append(0, np.cumsum(counts))
    segments = Segments.of(offsets, longest, all_partial=all_partial)
    rows, begins, ends, slots = (
        part.tolist() for part in (segments.rows, segments.begins, segments.ends, segments.slots)
    )
    covered = [(row, at) for row, begin, end in zip(rows, begins, ends, strict=True) for at in range(begin, end)]
    assert covered == [
        (row, at) for row, count in enumerate(counts) for at in range(offsets[row], offsets[row] + count)
    ]
    assert set(rows) == set(range(len(counts))) and all(e - b <= longest for b, e in zip(begins, ends, strict=True))
    long = [row for row in range(len(counts)) if all_partial or rows.count(row) > 1]
    assert segments.long_rows.tolist() == long
    used = [slot for slot in slots if slot >= 0]
    assert used == list(range(segments.partials))
    firsts = segments.firsts.tolist()
    for place, row in enumerate(long):
        own = [slot for slot, r in zip(slots, rows, strict=True) if r == row]
        assert own == list(range(firsts[place], firsts[place + 1]))


@given(id_triples, st.lists(st.integers(0, ENTITIES - 1), unique=True), st.lists(st.integers(0, ENTITIES - 1)))
def test_edges_of_some_rows_and_from_some_sources(triples: list[Edge], rows: list[int], sources: list[int]) -> None:
    """Sums over the edges of some rows are those of the product; others than `sources` send nothing."""
    table, x, w = EdgeTable.of(id_graph(triples)), states(0, ENTITIES)[:, 0], weights(1, RELATIONS)[0]
    x[[node for node in range(ENTITIES) if node not in sources]] = 0
    expected = relational_product(x[:, None].contiguous(), w[None], table)[rows, 0]
    some, _ = table.by_tail.row_edges(False).of(torch.tensor(rows, dtype=torch.long))
    kept = torch.isin(some.sources, torch.tensor(sources, dtype=torch.int32))
    for edges in (some, some.only(kept, some.sources)):
        found = torch.zeros_like(expected)
        for part, sums in row_sums(edges, x, w[:, None], Norms.FOUR):
            found[part] = sums
        torch.testing.assert_close(found, expected)
