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
    results = []
    for graph, left_out in ((people(), True), (people(without="person0x0 speaks lang0"), False)):
        of = evidence(graph, "speaks")
        asked = ask(graph, "person0x0", "lang0", left_out)
        kinds, owners = of.paths(asked)
        worth = PathWorth.of(kinds, owners, np.array([True]), np.array([True]))
        columns = of.columns(asked, worth.columns(kinds, owners, 1))
        words = sorted(_words(graph, kind) for kind in kinds.tolist())
        results.append((words, columns[0, COLUMNS.index("tail by head: best")].round(9)))
    assert results[0] == results[1]
    assert ("in", "language") not in results[0][0]  # that takes three steps


def _words(graph: Graph, kind: int) -> tuple[str, ...]:
    signed = 2 * len(graph.relations)
    steps = (kind,) if kind < signed else divmod(kind - signed, signed)
    return tuple(map(graph.relation_name, steps))


@pytest.mark.parametrize(("head", "tail"), [("b", "p"), ("a", "c")])
@pytest.mark.parametrize(("left_out", "paths"), [(False, 1), (True, 0)])
def test_no_path_goes_over_the_left_out_triple(head: str, tail: str, left_out: bool, paths: int) -> None:
    """Wrong pairs beside the triple (a, p) are asked about as if it were not there."""
    graph = graph_of("b knows a", "a has p", "p near c", "d has q")
    ids = [graph.entities.id(name) for name in (head, tail, "a", "p")]
    asked = QueriedPairs(*(np.array([each], np.int64) for each in (*ids[:2], *(ids[2:] if left_out else (-1, -1)))))
    assert len(evidence(graph, "has").paths(asked)[0]) == paths
