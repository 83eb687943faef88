"""Reasons of TRAIL: scores without edges, marks or references as in a literal network, and the carrying paths."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import graph_of, id_graph
from tests.models.trail.cases import network_of
from torch import Tensor
from torch.nn.functional import layer_norm, relu

from fewlink.graph import Graph
from fewlink.models.contract import ExplainingScorer, Question, Reasons, best_tails
from fewlink.models.trail.explain import (
    EVIDENCE,
    MOST_HOPS,
    ExplainedPair,
    find_paths,
    removal_of,
)
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.network import HEAD, Shape, TrailNetwork
from fewlink.models.trail.propagate import EPS
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.shipped import shipped
from fewlink.tasks import open_benchmark

NOTHING = np.zeros(0, np.int64)


def scorer_on(graph: Graph, network: TrailNetwork | None = None) -> TrailScorer:
    return TrailScorer("trail", network or shipped().network(), ReadGraph.of(graph, names=False))


@functools.cache
def umls() -> TrailScorer:
    return scorer_on(open_benchmark("umls").known_graph)


def pair_of(scorer: TrailScorer, references: np.ndarray, head: int, tail: int) -> ExplainedPair:
    return scorer.pair(references, head, tail)


# Scores without some edges


def literal_score(
    pair: ExplainedPair,
    graph: Graph,
    references: list[tuple[int, int]],
    head: int,
    tail: int,
    removed: set[tuple[int, int, int]],
) -> float:
    """The definition as loops over edges; `removed` are edges in both directions."""
    network, encoded, count = pair.network, pair.encoded, len(graph.relations)
    width = network.shape.width
    edges = list(zip(graph.head_ids.tolist(), graph.relation_ids.tolist(), graph.tail_ids.tolist(), strict=True))
    edges += [(h, 2 * count, t) for h, t in references] + [(t, 2 * count + 1, h) for h, t in references]

    def constants(h: int, r: int, t: int) -> Tensor:
        out = 1 / sum(a == h and b == r for a, b, _ in edges)
        into = 1 / sum(c == t and b == r for _, b, c in edges)
        return torch.tensor([out, into, (out * into) ** 0.5, 1.0]).repeat_interleave(width // 4)

    marks = network.marks(encoded.task[0]).view(3, width)
    states = []
    for stream in (0, 1):
        x = [torch.zeros(width) for _ in graph.entities]
        begins = [(head, 0)] if stream == 0 else [(e, 1 + end) for end in (0, 1) for e in {p[end] for p in references}]
        for entity, mark in begins:
            x[entity] = x[entity] + marks[mark]
        weights = torch.cat([encoded.relations[stream, :, 0], encoded.new[stream, :, 0]], 1)
        for number, layer in enumerate(network.layers_of(stream)):
            sums = [torch.zeros(width) for _ in x]
            for h, r, t in edges:
                if (h, r, t) not in removed:
                    sums[t] = sums[t] + x[h] * weights[number, r] * constants(h, r, t)
            y = [a @ layer.from_state + s.asinh() @ layer.from_sums for a, s in zip(x, sums, strict=True)]
            x = [a + relu(layer_norm(b, (width,), eps=EPS) * layer.gain) for a, b in zip(x, y, strict=True)]
        states.append(x[tail])
    inner = network.of_state(torch.cat(states)) + network.of_task(encoded.task[0])
    return float(network.last(relu(inner)))


triples = st.tuples(st.integers(0, 7), st.integers(0, 2), st.integers(0, 7))
pairs = st.tuples(st.integers(0, 7), st.integers(0, 7))


@settings(max_examples=15)
@given(
    st.lists(triples, min_size=4, max_size=12, unique=True), st.lists(pairs, min_size=2, max_size=3, unique=True), pairs
)
def test_scores_without_edges_are_those_of_the_literal_network(
    edges: list[tuple[int, int, int]], references: list[tuple[int, int]], pair: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    network = TrailNetwork(Shape(8, 4, 1)).eval()
    graph, (head, tail) = id_graph(edges), pair
    scorer = scorer_on(graph, network)
    explained = pair_of(scorer, np.array(references), head, tail)
    (a, b), new = references[0], 2 * len(graph.relations)
    gone = [set(), {edge for h, r, t in edges[:2] for edge in ((h, r, t), (t, r + 3, h))}]
    gone.append({(a, new, b), (b, new + 1, a)})
    removals = [places(explained, removed) for removed in gone]
    scores = explained.scores(removals).tolist()
    with torch.no_grad():
        wanted = [literal_score(explained, graph, references, head, tail, removed) for removed in gone]
    assert scores == pytest.approx(wanted, abs=2e-4)
    asked = Question("", np.array(references), np.array([head]), np.array([tail]))
    assert scores[0] == pytest.approx(float(scorer(asked)[0, 0]), abs=2e-4)
    reasons = scorer.explain(np.array(references), head, tail)
    for k, lost in enumerate(reasons.references):
        others = np.array([other for at, other in enumerate(references) if at != k])
        left = scorer(Question("", others, asked.heads, asked.candidates))
        assert lost == pytest.approx(scores[0] - float(left), abs=2e-4)


def places(pair: ExplainedPair, edges: set[tuple[int, int, int]]) -> np.ndarray:
    """The places of edges in both directions."""
    return pair.both_ways(pair.places(*np.array(sorted(edges), np.int64).reshape(-1, 3).T))


def test_a_name_is_a_reason_only_if_it_resembles_the_tails() -> None:
    references = np.array([ids("ann", "italy"), ids("bob", "france")])
    (head, tail), vectors = ids("dan", "norway"), np.zeros((len(CITIES.entities), 3), np.float32)
    vectors[head], vectors[tail], vectors[references[0, 1]], vectors[references[1, 1]] = np.array(
        [[0.6, 0.8, 0], [1, 0, 0], [0.2, 0, 0.98], [0, 0, 1]]
    )
    scorer = scorer_on(CITIES, network_of(Shape(8, 3, 1), 1)).with_vectors(vectors)
    reasons = scorer.explain(references, head, tail)
    ((end, entity, added),) = reasons.names
    assert (end, entity) == ("head", head) and "names" in reasons.shares
    other = vectors.copy()
    other[head] = [0, 1, 0]
    other[references[0, 1]] = vectors[tail]
    ((end, entity, _),) = scorer.with_vectors(other).explain(references, head, tail).names
    assert (end, entity) == ("reference", references[0, 1])
    asked = Question("", references, np.array([head]), np.array([tail]))
    with_names = float(scorer(asked))
    pair = pair_of(scorer, references, head, tail)
    without = pair.cosines.clone()
    without[0] = 0
    with torch.no_grad():
        assert added == pytest.approx(with_names - float(pair.score(*pair.states, without)), abs=1e-4)


# Paths


def named(graph: Graph, reasons: Reasons) -> list[str]:
    """The paths as texts; inverse relations with a minus, references as `?`."""
    count, texts = len(graph.relations), []
    for (relations, _), entities in zip(reasons.paths, reasons.entities, strict=True):
        text = graph.entities[entities[0]]
        for relation, entity in zip(relations, entities[1:], strict=True):
            kind, forward = divmod(relation, count)
            name = ("?", "-?")[relation - 2 * count] if kind == 2 else "-" * kind + graph.relations[forward]
            text += f" {name} {graph.entities[entity]}"
        texts.append(text)
    return texts


CITIES = graph_of(
    *("ann born rome", "rome in italy", "bob born paris", "paris in france", "cid born bonn", "bonn in germany"),
    *("dan born oslo", "oslo in norway", "dan likes pizza", "ann likes pizza", "bob likes wine", "cid likes beer"),
    *("norway near sweden", "germany near france", "eve born kiel", "kiel in germany", "lone is_a planet"),
)

CITIES_ROWS = [(CITIES.entities[h], CITIES.relations[r], CITIES.entities[t]) for h, r, t in CITIES.triples().tolist()]


def ids(*names: str) -> list[int]:
    return [CITIES.entities.id(name) for name in names]


def explained(head: str, tail: str, *references: tuple[str, str], graph: Graph = CITIES, most: int = 5) -> Reasons:
    entity = graph.entities.id
    given = np.array([[entity(a), entity(b)] for a, b in references])
    return scorer_on(graph).explain(given, entity(head), entity(tail), most)


def test_the_path_that_joins_the_references_carries_the_score() -> None:
    reasons = explained("dan", "norway", ("ann", "italy"), ("bob", "france"))
    assert named(CITIES, reasons)[0] == "dan born oslo in norway"
    assert reasons.paths[0][1] > 1 and reasons.paths[0][1] == max(drop for _, drop in reasons.paths)
    assert (
        reasons.shares["head"] > 1
        and reasons.measured
        and set(reasons.shares) == {"head", "references"} < set(EVIDENCE)
    )
    assert reasons.graph is CITIES and len(reasons.references) == 2
    (first, *_) = explained("dan", "norway", ("ann", "italy"), ("bob", "france"), most=1).paths
    assert first == reasons.paths[0]


def test_a_path_may_lead_through_a_reference() -> None:
    reasons = explained("eve", "germany", ("ann", "italy"), ("cid", "germany"))
    assert named(CITIES, reasons)[0] == "eve born kiel in germany"
    starts = {entities[0] for entities in reasons.entities}
    assert starts <= set(ids("eve", "ann", "italy", "cid", "germany"))


def test_an_edge_between_head_and_tail_comes_first() -> None:
    graph = graph_of(*(f"{h} {r} {t}" for h, r, t in CITIES_ROWS), "dan visits norway", "norway hosts dan")
    reasons = explained("dan", "norway", ("ann", "italy"), ("bob", "france"), graph=graph)
    first, *others = named(graph, reasons)
    assert first in ("dan visits norway", "dan -hosts norway")
    assert any(path == "dan born oslo in norway" for path in others)


def test_what_does_not_reach_the_tail_gives_no_paths() -> None:
    reasons = explained("dan", "planet", ("ann", "italy"), ("bob", "france"))
    assert not reasons.paths and not reasons.entities
    assert list(reasons.shares.values()) == pytest.approx([0, 0], abs=1e-5) and np.isfinite(reasons.score)


def test_a_pair_is_not_its_own_reason() -> None:
    reasons = explained("ann", "italy", ("ann", "italy"), ("bob", "france"))
    assert "ann ? italy" not in named(CITIES, reasons) and "ann born rome in italy" in named(CITIES, reasons)


def test_of_paths_with_the_same_part_only_those_that_add_something_are_named() -> None:
    """Of many ways on from oslo, all lose about the same: the edge from dan to oslo is part of each."""
    rows = [f"{h} {r} {t}" for h, r, t in CITIES_ROWS]
    more = [row for x in range(5) for row in (f"oslo r{x} m{x}", f"m{x} s{x} norway")]
    graph = graph_of(*rows, *more)
    reasons = explained("dan", "norway", ("ann", "italy"), ("bob", "france"), graph=graph)
    assert named(graph, reasons)[0] == "dan born oslo in norway"
    begins = [entities[:2] for entities in reasons.entities]
    assert begins.count(tuple(ids("dan", "oslo"))) == 1


def test_one_reference_and_a_head_that_is_the_tail() -> None:
    reasons = explained("dan", "dan", ("ann", "italy"))
    assert reasons.references == [] and np.isfinite([reasons.score, *reasons.shares.values()]).all()
    assert all(len(set(entities)) == len(entities) > 1 for entities in reasons.entities)


def test_estimates_of_paths_are_close_to_a_small_change() -> None:
    """The parts of all walks are the gradient by the marks; on a chain there is one simple path and few other walks."""
    graph = graph_of("a r b", "b s c", "x r y", "y s z")
    scorer, entity = scorer_on(graph), graph.entities.id
    references = np.array([[entity("x"), entity("z")]])
    pair = pair_of(scorer, references, entity("a"), entity("c"))
    (path,) = find_paths(pair, HEAD)
    assert list(path.nodes) == [entity(name) for name in "abc"]
    assert path.part > 0
    whole, left = pair.scores([NOTHING, removal_of(pair, [path])]).tolist()
    assert whole > left


def test_paths_on_umls_are_simple_real_and_finite() -> None:
    scorer = umls()
    assert isinstance(scorer, ExplainingScorer)
    graph, benchmark = scorer.graph.graph, open_benchmark("umls")
    known = set(map(tuple, np.stack([graph.head_ids, graph.relation_ids, graph.tail_ids], 1).tolist()))
    seen = direct = 0
    for task in benchmark.split("test")[:4]:
        references, heads = np.asarray(task.pairs[:3]), np.unique(task.pairs[3:, 0])[:2]
        edges = known | {(h, 2 * len(graph.relations), t) for h, t in references.tolist()}
        edges |= {(t, 2 * len(graph.relations) + 1, h) for h, t in references.tolist()}
        question = Question(task.name, references, heads, np.asarray(task.range))
        for head, ((tail, score),) in zip(heads.tolist(), best_tails(scorer, question, 1), strict=True):
            reasons = scorer.explain(references, head, tail)
            assert reasons.score == pytest.approx(score, rel=1e-3)
            drops = [drop for _, drop in reasons.paths]
            assert np.isfinite([*reasons.shares.values(), *reasons.references, *drops]).all()
            assert len(reasons.paths) == len(reasons.entities) <= 5
            for (relations, _), entities in zip(reasons.paths, reasons.entities, strict=True):
                assert 1 <= len(relations) <= MOST_HOPS and len(entities) == len(relations) + 1
                assert len(set(entities)) == len(entities) and entities[-1] == tail
                assert entities[0] in {head, *references.flat} and head not in entities[1:-1]
                assert set(zip(entities, relations, entities[1:], strict=False)) <= edges
                seen += 1
            joined = any((head, r, tail) in known for r in range(2 * len(graph.relations)))
            if joined and head != tail:
                assert reasons.entities[0] == (head, tail)
                direct += 1
    assert seen > 20 and direct
