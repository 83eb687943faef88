"""Evidence for pairs: counts by hand, and nothing of what the left-out triple says."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import graph_of
from tests.linker.graphs import people

from fewlink.graph import Graph
from fewlink.linker.evidence import COLUMNS, PathWorth, QueriedPairs, RelationEvidence


def evidence(graph: Graph, name: str) -> RelationEvidence:
    triples, number = graph.triples(), graph.relations.id(name)
    return RelationEvidence(graph, number, triples[triples[:, 1] == number][:, [0, 2]])


def ask(graph: Graph, head: str, tail: str, left_out: bool) -> QueriedPairs:
    ids = [graph.entities.id(head), graph.entities.id(tail)]
    return QueriedPairs(*(np.array([each], np.int64) for each in (*ids, *(ids if left_out else (-1, -1)))))


def test_a_triple_alone_says_nothing_for_itself() -> None:
    graph = graph_of("a has p", "b has q", "c has q", "b in x", "c in x")
    of, asked = evidence(graph, "has"), ask(graph, "a", "p", True)
    kinds, owners = of.paths(asked)
    worth = PathWorth.of(kinds, owners, np.array([True]), np.array([False]))
    columns = of.columns(asked, worth.columns(kinds, owners, 1))
    by_name = dict(zip(COLUMNS, columns[0], strict=True))
    assert len(kinds) == 0
    for name in ("tail by head: best", "head by tail: best", "log count of tail", "log count of head"):
        assert by_name[name] == 0, name
    assert by_name["log degree of head"] == by_name["log degree of tail"] == 0


def test_leaving_a_triple_out_is_as_if_it_were_not_there() -> None:
    whole = people()
    less = people(without="person0x0 speaks lang0")
    results = []
    for graph, left_out in ((whole, True), (less, False)):
        of, asked = evidence(graph, "speaks"), ask(graph, "person0x0", "lang0", left_out)
        kinds, _ = of.paths(asked)
        words = sorted(_words(graph, kind) for kind in kinds.tolist())
        results.append((words, of._by_partner(asked, of.relation, of._from_heads)[0].round(9).tolist()))
    assert results[0] == results[1]
    assert ("in", "language") not in results[0][0]  # that takes three steps


def _words(graph: Graph, kind: int) -> tuple[str, ...]:
    signed = 2 * len(graph.relations)
    steps = (kind,) if kind < signed else divmod(kind - signed, signed)
    return tuple(map(graph.relation_name, steps))


@pytest.mark.parametrize(("head", "tail"), [("b", "p"), ("a", "c")])
def test_no_path_goes_over_the_left_out_triple(head: str, tail: str) -> None:
    """Wrong pairs beside the triple (a, p) are asked about as if it were not there."""
    graph = graph_of("b knows a", "a has p", "p near c", "d has q")
    of, ids = evidence(graph, "has"), [graph.entities.id(name) for name in (head, tail, "a", "p")]
    for left_out, paths in ((False, 1), (True, 0)):
        asked = QueriedPairs(*(np.array([each], np.int64) for each in (*ids[:2], *(ids[2:] if left_out else (-1, -1)))))
        for forward in (True, False):
            assert sum(len(kinds) for kinds, _ in of._walked(asked, forward)) == paths, forward


def every_pair(graph: Graph, of: RelationEvidence) -> QueriedPairs:
    """Its own pairs, left out, and some others, from which one of its pairs is left out."""
    random = np.random.default_rng(0)
    others = random.integers(len(graph.entities), size=(60, 2))
    outs = of.pairs[random.integers(len(of.pairs), size=60)]
    return QueriedPairs.joined(QueriedPairs(*of.pairs.T, *of.pairs.T), QueriedPairs(*others.T, *outs.T))


def test_paths_are_the_same_from_either_end() -> None:
    graph = people("person0x0 knows person0x1", "lang0 near lang1", "person0x0 speaks lang1")
    for name in ("speaks", "lives", "knows"):
        of = evidence(graph, name)
        asked = every_pair(graph, of)
        walks = [of._walked(asked, forward) for forward in (True, False)]
        one, other = (
            {(k, o) for ks, os in walk for k, o in zip(ks.tolist(), os.tolist(), strict=True)} for walk in walks
        )
        kinds, owners = of.paths(asked)
        assert one == other == set(zip(kinds.tolist(), owners.tolist(), strict=True)) and len(one) == len(kinds)
