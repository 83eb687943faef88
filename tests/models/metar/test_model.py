"""MetaR's equations: against numbers by hand, a literal version, autograd; and the scorer's contract."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.conftest import id_graph
from tests.models.metar import literal
from torch import Tensor

from fewlink.models.contract import Question
from fewlink.models.metar.model import MetaR, RelationMeta, distances, gradient_meta, hinge
from fewlink.models.metar.scorer import MetaRScorer
from fewlink.models.metar.settings import MetaRSettings

DIM, SHOTS, FALSE, QUERIES, BATCH, ENTITIES = 4, 3, 2, 5, 6, 12


def model_of(beta: float = 0.3, *, tuned: bool = True, dropout: float = 0.0) -> MetaR:
    torch.manual_seed(0)
    entities = torch.randn(ENTITIES, DIM, dtype=torch.float64)
    model = MetaR(entities, (7, 5), margin=1.0, beta=beta, dropout=dropout, tuned=tuned)
    for layer in model.relation_meta.layers:
        torch.nn.init.normal_(layer.bias, std=0.3)
    return model.double()


def episodes() -> tuple[Tensor, ...]:
    """Ids of references, their false tails, queries and theirs."""
    random = torch.Generator().manual_seed(1)
    sizes = (BATCH, SHOTS, 2), (BATCH, SHOTS, FALSE), (BATCH, QUERIES, 2), (BATCH, QUERIES, FALSE)
    return tuple(torch.randint(ENTITIES, size, generator=random) for size in sizes)


def layers_of(meta: RelationMeta) -> list[literal.Layer]:
    return [(layer.weight.tolist(), layer.bias.tolist()) for layer in meta.layers]  # type: ignore[operator, union-attr]


def pairs_of(vectors: Tensor) -> list[literal.Pair]:
    return [(head, tail) for head, tail in vectors.tolist()]


# By hand


def test_the_loss_by_hand() -> None:
    pairs = torch.tensor([[[0.0, 0.0], [3.0, 4.0]]])  # (1, 2, d): h = (0, 0), t = (3, 4)
    false = torch.tensor([[[0.0, 1.0], [9.0, 0.0]]])  # (1, 2, d)
    true, wrong = distances(torch.zeros(2), pairs, false)
    assert true.tolist() == [5.0] and wrong.tolist() == [[1.0, 9.0]]
    assert hinge(true, wrong, 1.0).tolist() == [[5.0, 0.0]]
    # only the first false tail is too near: (1/2) (v/‖v‖ − v'/‖v'‖), v = −(3, 4), v' = −(0, 1)
    found = gradient_meta(torch.zeros(2), pairs, false, 1.0)
    torch.testing.assert_close(found, torch.tensor([-0.3, -0.4 + 0.5]))


# Against the literal version and autograd


def test_relation_meta_and_gradient_meta_equal_the_literal_version() -> None:
    model = model_of()
    references, false, *_ = episodes()
    pairs, wrong = model.entities[references].detach(), model.entities[false].detach()
    relations = model.relation_meta(pairs).detach()
    gradients = gradient_meta(relations, pairs, wrong, 1.0)
    for at in range(BATCH):
        own = pairs_of(pairs[at])
        expected = literal.relation_meta(own, layers_of(model.relation_meta))
        assert relations[at].tolist() == pytest.approx(expected, abs=1e-12)
        slope = literal.gradient(expected, own, wrong[at].tolist(), 1.0)
        assert gradients[at].tolist() == pytest.approx(slope, abs=1e-6)


def test_the_loss_of_queries_equals_the_literal_version() -> None:
    model = model_of()
    ids = episodes()
    references, false, queries, query_false = (model.entities[part].detach() for part in ids)
    losses = []
    for at in range(BATCH):
        own, wrong = pairs_of(references[at]), false[at].tolist()
        relation = literal.relation_meta(own, layers_of(model.relation_meta))
        slope = literal.gradient(relation, own, wrong, 1.0)
        moved = [r - model.beta * g for r, g in zip(relation, slope, strict=True)]
        losses.append(literal.query_loss(moved, pairs_of(queries[at]), query_false[at].tolist(), 1.0))
    assert model(*ids).item() == pytest.approx(sum(losses) / BATCH, abs=1e-6)


def test_a_distance_of_zero_has_a_gradient() -> None:
    pairs, false = torch.ones(1, 2, DIM), torch.ones(1, 1, DIM)
    relation = torch.zeros(DIM, requires_grad=True)
    gradient = gradient_meta(relation, pairs, false, 1.0)
    assert gradient.tolist() == [0.0] * DIM
    gradient.sum().backward()
    assert relation.grad is not None and torch.isfinite(relation.grad).all()


# The scorer


GRAPH = id_graph([(h, 0, 6 + h % 6) for h in range(6)] + [(6, 1, 7)], ENTITIES, 2)
REFERENCES = np.array([[0, 6], [1, 7], [2, 8]], np.int32)


def scorer_of(seed: int = 0, negatives: int = 2, beta: float = 0.3, dropout: float = 0.5) -> MetaRScorer:
    return MetaRScorer(model_of(beta, dropout=dropout), GRAPH, MetaRSettings(negatives=negatives, seed=seed))


def ask(scorer: MetaRScorer, heads: list[int], candidates: list[int], references: np.ndarray = REFERENCES) -> Tensor:
    return scorer(Question("r", references, np.array(heads, np.int32), np.array(candidates, np.int32)))


def test_scores_are_distances_from_the_moved_relation() -> None:
    scorer = scorer_of()
    scorer.model.eval()
    table = scorer.model.entities.detach()
    relation = scorer.relation(REFERENCES)
    expected = [[-float((table[h] + relation - table[c]).norm()) for c in (6, 9, 11)] for h in (3, 4)]
    found = ask(scorer, [3, 4], [6, 9, 11])
    torch.testing.assert_close(found, torch.tensor(expected))
    pairs, false = table[REFERENCES.astype(np.int64)], table[scorer.false_tails(REFERENCES)]
    scorer.model.eval()
    before = scorer.model.relation_meta(pairs)
    torch.testing.assert_close(relation, before - 0.3 * gradient_meta(before, pairs, false, 1.0))
    assert not torch.allclose(relation, before)


def test_scores_do_not_depend_on_what_else_is_asked_or_on_the_order_of_references() -> None:
    scorer = scorer_of()
    whole = ask(scorer, [3, 4, 5], [6, 7, 8, 9, 10, 11])
    torch.testing.assert_close(ask(scorer, [4], [9, 7]), whole[1:2, [3, 1]])
    torch.testing.assert_close(ask(scorer, [3, 4, 5], [6, 7, 8, 9, 10, 11], REFERENCES[::-1]), whole)
    assert torch.equal(ask(scorer, [3, 4, 5], [6, 7, 8, 9, 10, 11]), whole)  # no dropout


def test_a_seed_chooses_the_false_tails_of_references() -> None:
    tails = [scorer_of(seed, negatives=8).false_tails(REFERENCES) for seed in (0, 0, 1)]
    assert np.array_equal(tails[0], tails[1]) and not np.array_equal(tails[0], tails[2])
    for reference, drawn in zip(REFERENCES, tails[0], strict=True):
        assert {*drawn} <= {6, 7, 8, 9, 10, 11} - {reference[1]}  # of the same slot as the references' tails


def test_a_tail_alone_of_its_kind_has_other_entities_as_false_tails() -> None:
    graph = id_graph([(0, 0, 1), (2, 0, 1)], 4, 1)
    scorer = MetaRScorer(model_of(), graph, MetaRSettings(negatives=20))
    assert {*scorer.false_tails(np.array([[0, 1]], np.int32)).flatten()} == {0, 2, 3}
