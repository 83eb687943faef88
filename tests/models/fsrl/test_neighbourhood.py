"""What the models look at: vectors and neighbours of a graph, by hand."""

from __future__ import annotations

import pytest
import torch
from tests.conftest import graph_of, id_graph
from tests.models.fsrl.oracle import close, normal

from fewlink.core.errors import FewlinkError
from fewlink.models.embeddings import Embeddings
from fewlink.models.embeddings.table import check_fits
from fewlink.models.fsrl.neighbourhood import Neighbourhood

GRAPH = graph_of("a r b", "a q c", "b q c")  # a 0, b 1, c 2; r 0, q 1, their inverses 2 and 3


def around_of(s: Neighbourhood, entity: int) -> set[tuple[int, int]]:
    relations, others, present = s.neighbours_of(torch.tensor(entity))
    return set(zip(relations[present].tolist(), others[present].tolist(), strict=True))


def test_neighbours_and_vectors_by_hand() -> None:
    embeddings = Embeddings(normal(1, 3, 2), normal(2, 4, 2), "distmult")
    s = Neighbourhood.of(GRAPH, embeddings, max_neighbours=4)
    assert [around_of(s, e) for e in range(3)] == [{(0, 1), (1, 2)}, {(2, 0), (1, 2)}, {(3, 0), (3, 1)}]
    assert torch.equal(s.entities, embeddings.entities) and torch.equal(s.relations, embeddings.relations)
    relations, others, present = s.neighbours_of(torch.arange(3))
    assert present.shape == (3, 4) and not relations[~present].any() and not others[~present].any()
    assert (s.dim, len(s.entities)) == (2, 3)


def test_entities_without_edges_and_fewer_slots_than_edges() -> None:
    graph = id_graph([(0, 0, 1), (0, 1, 1), (0, 2, 1), (2, 0, 2)], entities=5)
    s = Neighbourhood.of(graph, Embeddings(normal(1, 5, 2), normal(2, 6, 2), "complex"), max_neighbours=2)
    assert s.neighbours_of(torch.arange(5))[2].sum(1).tolist() == [2, 2, 2, 0, 0]
    assert around_of(s, 2) == {(0, 2), (3, 2)}


def test_vectors_standardised_by_hand() -> None:
    # [1, 5]: mean 3, deviation 2 (of all, not of all but one); [4, 4]: no deviation; [−1, 0]: mean −½, deviation ½
    table = torch.tensor([[1.0, 5.0], [4.0, 4.0], [-1.0, 0.0]], dtype=torch.float64)
    standard = [[-2 / 2.001, 2 / 2.001], [0.0, 0.0], [-0.5 / 0.501, 0.5 / 0.501]]
    embeddings = Embeddings(table, table[[1, 0, 2, 0]], "complex")
    s = Neighbourhood.of(GRAPH, embeddings, standardise=True)
    close(s.entities, standard)
    close(s.relations, [standard[i] for i in (1, 0, 2, 0)])
    assert torch.equal(Neighbourhood.of(GRAPH, embeddings).entities, table)  # as they are unless asked for
    assert torch.equal(embeddings.entities, table)


@pytest.mark.parametrize(
    ("entities", "relations", "width", "named"),
    [(3, 4, 4, "rescal"), (2, 4, 2, "2 entities"), (4, 4, 2, "4 entities"), (3, 2, 2, "1 relations")],
)
def test_what_does_not_fit_is_refused(entities: int, relations: int, width: int, named: str) -> None:
    embeddings = Embeddings(normal(1, entities, 2), normal(2, relations, width), "rescal" if width == 4 else "distmult")
    with pytest.raises(FewlinkError, match=named):
        check_fits(embeddings, len(GRAPH.entities), len(GRAPH.relations))
    with pytest.raises(FewlinkError, match=named):
        Neighbourhood.of(GRAPH, embeddings)
