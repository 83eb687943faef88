"""GANA's equations: by hand, against a literal version with its gradients; and the scorer's contract."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.conftest import id_graph
from tests.models.gana import literal
from torch import Tensor

from fewlink.models.contract import Question
from fewlink.models.embeddings import Embeddings
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.gana.model import GANA, gradient_metas, project
from fewlink.models.gana.scorer import GANAScorer
from fewlink.models.metar.model import gradient_meta

DIM, SHOTS, FALSE, QUERIES, BATCH, ENTITIES = 4, 3, 2, 3, 4, 12
EDGES = [(h, h % 3, 5 + (3 * h) % 6) for h in range(6)] + [(6, 1, 7), (2, 2, 9)]  # entity 11 has none
GRAPH = id_graph(EDGES, ENTITIES, 3)
REFERENCES = np.array([[0, 6], [1, 7], [2, 8]], np.int32)
NEIGHBOURS = [
    [(r, t) for h, r, t in EDGES if h == e] + [(r + 3, h) for h, r, t in EDGES if t == e] for e in range(ENTITIES)
]


def model_of(
    beta: float = 0.3, *, layers: int = 2, tuned: bool = True, dropout: float = 0.0, tasks: Tensor | None = None
) -> GANA:
    torch.manual_seed(0)
    vectors = Embeddings(torch.randn(ENTITIES, DIM), torch.randn(6, DIM), "transe")
    around = Neighbourhood.of(GRAPH, vectors, max_neighbours=10)
    model = GANA(
        around, hidden=5, layers=layers, margin=1.0, beta=beta, dropout=dropout, tuned=tuned, task_relations=tasks
    )
    torch.nn.init.normal_(model.aggregator.projection.bias, std=0.3)
    return model.double()


def episodes() -> tuple[Tensor, ...]:
    """Ids of references, their false tails, queries and theirs."""
    random = torch.Generator().manual_seed(1)
    sizes = (BATCH, SHOTS, 2), (BATCH, SHOTS, FALSE), (BATCH, QUERIES, 2), (BATCH, QUERIES, FALSE)
    return tuple(torch.randint(ENTITIES, size, generator=random) for size in sizes)


def literal_loss(model: GANA, ids: tuple[Tensor, ...]) -> Tensor:
    losses = []
    for references, false, queries, query_false in zip(*(part.tolist() for part in ids), strict=True):
        at = literal.moved(model, references, false, NEIGHBOURS)
        losses.append(literal.query_loss(model, queries, query_false, at))
    return torch.stack(losses).mean()


# By hand


def test_a_projection_by_hand() -> None:
    normal = torch.tensor([0.6, 0.8])
    assert project(torch.tensor([5.0, 0.0]), normal).tolist() == pytest.approx([5 - 3 * 0.6, -3 * 0.8])


def test_the_gradients_of_the_step_by_hand() -> None:
    # w = (1, 0) takes the first coordinate away: the true tail is 4 from the head, the false ones 1 and 9
    relation, normal = torch.zeros(2), torch.tensor([1.0, 0.0])
    pairs = torch.tensor([[[0.0, 0.0], [3.0, 4.0]]])
    false = torch.tensor([[[7.0, 1.0], [2.0, 9.0]]])
    by_relation, by_normal = gradient_metas(relation, normal, pairs, false, 1.0)
    # half the loss, of the first false tail: p = −½ (0, 1) at δ = −(3, 4), and +½ (0, 1) at δ = −(7, 1)
    assert by_relation.tolist() == [0.0, 0.0]
    # −(w·p) δ − (w·δ) p = 3 p + 7 p'
    assert by_normal.tolist() == pytest.approx([0.0, -1.5 + 3.5])


def test_an_entity_without_neighbours_keeps_its_vector() -> None:
    model = model_of()
    assert not NEIGHBOURS[11] and NEIGHBOURS[0]
    found = model.aggregator(torch.tensor([0, 11]), model.around)
    torch.testing.assert_close(found[1], model.around.entities[11])
    assert not torch.allclose(found[0], model.around.entities[0])


# Against the literal version


@pytest.mark.parametrize("layers", [1, 2])
def test_the_loss_and_its_gradients_equal_the_literal_version(layers: int) -> None:
    model, ids = model_of(layers=layers), episodes()
    losses = model(*ids), literal_loss(model, ids)
    torch.testing.assert_close(*losses)
    mine, other = (torch.autograd.grad(loss, [*model.parameters()]) for loss in losses)
    for name, a, b in zip(dict(model.named_parameters()), mine, other, strict=True):
        assert b.abs().sum() > 0, name
        torch.testing.assert_close(a, b)


def test_learning_goes_through_the_step() -> None:
    model, ids = model_of(), episodes()
    with_step = torch.autograd.grad(model(*ids), [*model.parameters()])
    model.beta = 0.0
    without = torch.autograd.grad(model(*ids), [*model.parameters()])
    assert not any(torch.allclose(a, b) for a, b in zip(with_step, without, strict=True))


def test_the_gradient_by_the_relation_is_metars_on_the_hyperplane() -> None:
    model = model_of()
    references, false, *_ = episodes()
    pairs, wrong = model.entities[references], model.entities[false]
    relation, normal = torch.randn(BATCH, DIM).double(), torch.nn.functional.normalize(torch.randn(BATCH, DIM)).double()
    found, _ = gradient_metas(relation, normal, pairs, wrong, 1.0)
    on_plane = (project(part, normal[:, None, None]) for part in (pairs, wrong))
    torch.testing.assert_close(found, gradient_meta(relation, *on_plane, 1.0))


def test_the_normal_keeps_its_length() -> None:
    model = model_of(beta=2.0)
    references, false, *_ = episodes()
    _, normal = model.relation(references, false)
    torch.testing.assert_close(normal.norm(dim=-1), torch.ones(BATCH, dtype=torch.float64))
    assert not torch.allclose(normal[0], normal[1])


def test_edges_of_an_episodes_own_relation_are_not_read() -> None:
    """As if the graph had none of them; a task without a background relation reads all."""
    ids, tasks = episodes(), torch.tensor([0, 1, 0, 1])
    model = model_of(tasks=torch.tensor([1, -1]))
    kept = [[(r, e) for r, e in near if r % 3 != 1] for near in NEIGHBOURS]
    losses = []
    for task, references, false, queries, query_false in zip(
        tasks.tolist(), *(part.tolist() for part in ids), strict=True
    ):
        at = literal.moved(model, references, false, NEIGHBOURS if task else kept)
        losses.append(literal.query_loss(model, queries, query_false, at))
    torch.testing.assert_close(model(*ids, tasks), torch.stack(losses).mean())
    assert not torch.allclose(model(*ids, tasks), model(*ids))


# The scorer


def scorer_of(**options: float) -> GANAScorer:
    return GANAScorer("gana", model_of(dropout=0.5, **options), GRAPH, negatives=2, seed=0)  # type: ignore[arg-type]


def ask(scorer: GANAScorer, heads: list[int], candidates: list[int]) -> Tensor:
    return scorer(Question("r", REFERENCES, np.array(heads, np.int32), np.array(candidates, np.int32)))


def test_scores_are_distances_on_the_moved_hyperplane() -> None:
    scorer = scorer_of()
    model, table = scorer.model, scorer.model.entities
    relation, normal = literal.moved(model, REFERENCES.tolist(), scorer.false_tails(REFERENCES).tolist(), NEIGHBOURS)
    expected = [[-literal.distance(table[h], table[c], relation, normal).item() for c in (6, 9, 11)] for h in (3, 4)]
    torch.testing.assert_close(ask(scorer, [3, 4], [6, 9, 11]), torch.tensor(expected))


def test_scores_do_not_depend_on_what_else_is_asked() -> None:
    scorer = scorer_of()
    scorer.model.train()
    whole = ask(scorer, [3, 4, 5], [6, 7, 8, 9, 10, 11])
    torch.testing.assert_close(ask(scorer, [4], [9, 7]), whole[1:2, [3, 1]])
    assert torch.equal(ask(scorer, [3, 4, 5], [6, 7, 8, 9, 10, 11]), whole)  # no dropout
    assert scorer.model.training
