"""TRAIL mixed with an embedding model: the equation term by term, new and small relations, folders, reasons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.models.trail.cases import random_graph
from tests.models.trail.test_scorer import SHAPE, network_of

from fewlink.core.errors import FewlinkError
from fewlink.graph import Graph
from fewlink.models.contract import (
    ExplainingGraphScorer,
    ExplainingScorer,
    Question,
    Recalibration,
    RelationScorer,
    capabilities,
)
from fewlink.models.embeddings import Embeddings
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.mixture import MixedRelationScorer, MixedScorer, Mixture
from fewlink.models.trail.scorer import TrailScorer

ENTITIES, RELATIONS, DIM = 25, 4, 6


def case(seed: int = 0, weight: float = 1.5, fewest: int = 1) -> tuple[Graph, MixedScorer]:
    graph = random_graph(seed, relations=RELATIONS, triples=60, entities=ENTITIES)
    random = torch.Generator().manual_seed(seed)
    sizes = (ENTITIES, DIM), (2 * RELATIONS, DIM)
    vectors = Embeddings(*(torch.randn(size, generator=random) for size in sizes), "complex")
    trail = TrailScorer("trail", network_of(SHAPE, seed), ReadGraph.of(graph))
    return graph, MixedScorer(trail, Mixture(vectors, weight, fewest), graph)


def question_of(graph: Graph, relation: int, inverse: bool = False) -> Question:
    pairs = graph.triples()[graph.triples()[:, 1] == relation][:, [0, 2]]
    pairs = np.ascontiguousarray(pairs[:, ::-1] if inverse else pairs)
    return Question(graph.relations[relation], pairs, np.array([3, 7, 3]), np.array([0, 2, 3, 11, 24]))


def complex_score(vectors: Embeddings, head: int, relation: int, tail: int) -> float:
    """Re Σ h · r · conj(t), with the real parts of all numbers before the imaginary ones."""
    h, r, t = (
        torch.complex(*row.double().chunk(2))
        for row in (vectors.entities[head], vectors.relations[relation], vectors.entities[tail])
    )
    return float((h * r * t.conj()).sum().real)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("relation", range(RELATIONS))
def test_a_score_is_trails_and_what_the_embedding_model_adds_to_the_mean(relation: int, inverse: bool) -> None:
    graph, scorer = case(relation)
    question, vectors = question_of(graph, relation, inverse), scorer.mixture.embeddings
    model = scorer.without(graph.relations[relation])
    assert isinstance(model, MixedRelationScorer) and isinstance(model, RelationScorer)
    found = (model.inverted() if inverse else model)(question)
    row = relation + RELATIONS * inverse
    for h, head in enumerate(question.heads.tolist()):
        everyone = [complex_score(vectors, head, row, tail) for tail in range(ENTITIES)]
        for c, tail in enumerate(question.candidates.tolist()):
            alone = float(scorer.trail.without(graph.relations[relation])(question)[h, c])
            expected = alone + 1.5 * (everyone[tail] - np.mean(everyone))
            assert float(found[h, c]) == pytest.approx(expected, abs=1e-4)


def test_new_and_small_relations_are_answered_by_trail_alone() -> None:
    graph, scorer = case(fewest=1000)
    question = replace(question_of(graph, 1), relation="new")
    torch.testing.assert_close(scorer(question), scorer.trail(question))
    small = scorer.without(graph.relations[1])
    assert isinstance(small, TrailScorer)
    torch.testing.assert_close(small(question), scorer.trail.without(graph.relations[1])(question))
    counts = np.bincount(graph.triples()[:, 1])
    mixture = replace(scorer.mixture, fewest=int(counts.max()))
    mixed = [mixture.relation(graph, name) is not None for name in graph.relations]
    assert mixed == (counts == counts.max()).tolist() and mixture.relation(graph, "no such relation") is None


def test_the_model_without_its_embedding_model_can_hold_out_references() -> None:
    graph, scorer = case()
    model = scorer.without(graph.relations[0])
    assert isinstance(model, MixedRelationScorer)
    assert model.untrained() is model.trail and model.inverted().untrained() is model.trail
    question = question_of(graph, 0)
    torch.testing.assert_close(model.inverted().inverted()(question), model(question))


def test_entities_and_relations_that_came_later_are_left_to_trail() -> None:
    graph, scorer = case()
    known = scorer.mixture
    fewer = replace(known, embeddings=replace(known.embeddings, entities=known.embeddings.entities[:20]))
    heads, candidates = np.array([3, 22]), np.array([0, 5, 24])
    added = fewer.scores(1, heads, candidates)
    assert added[0, :2].abs().min() > 0 and not added[1].any() and not added[:, 2].any()
    one = replace(known, embeddings=replace(known.embeddings, relations=known.embeddings.relations[:2]))
    assert one.relation(graph, graph.relations[0]) == 0 and one.relation(graph, graph.relations[1]) is None


def test_a_mixture_is_saved_and_opened(tmp_path: Path) -> None:
    _, scorer = case()
    half = replace(scorer.mixture.embeddings.half_precision(), settings={"seed": 3})
    mixture = Mixture(half, 0.5, 120, Recalibration(0.2, 0.9, 0.07))
    mixture.save(tmp_path / "m", "abc", graph="g")
    opened = Mixture.open(tmp_path / "m")
    assert (opened.weight, opened.fewest, opened.recalibration) == (0.5, 120, Recalibration(0.2, 0.9, 0.07))
    assert opened.digest() == mixture.digest() and opened.embeddings.settings == {"seed": 3}
    assert torch.equal(opened.scores(1, np.arange(4), np.arange(9)), mixture.scores(1, np.arange(4), np.arange(9)))
    half.save(tmp_path / "vectors", "abc")
    with pytest.raises(FewlinkError, match="vectors"):
        Mixture.open(tmp_path / "vectors")


def test_reasons_add_the_embedding_model_to_those_of_trail() -> None:
    graph, scorer = case()
    model, question = scorer.without(graph.relations[2]), question_of(graph, 2)
    assert isinstance(scorer, ExplainingGraphScorer) and isinstance(model, ExplainingScorer)
    reasons, alone = (
        each.explain(question.references, 3, 11) for each in (model, scorer.trail.without(graph.relations[2]))
    )
    added = reasons.shares["embedding"]
    assert reasons.score == pytest.approx(float(model(question)[0, 3]), abs=1e-4)
    assert reasons.score == pytest.approx(alone.score + added) and added
    assert {**reasons.shares, "embedding": 0} == {**alone.shares, "embedding": 0}
    assert "embedding model" in capabilities(model).evidence["embedding"]
    assert scorer.explain(question.references, 3, 11) == scorer.trail.explain(question.references, 3, 11)


def test_a_recalibration_moves_log_odds() -> None:
    given = np.array([0.0, 0.2, 0.5, 0.9, 1.0])
    np.testing.assert_allclose(Recalibration()(given), given, atol=1e-8)
    found = Recalibration(np.log(2), 1.0)(given)
    np.testing.assert_allclose(found, [0, 1 / 3, 2 / 3, 18 / 19, 1], atol=1e-8)
    sharper = Recalibration(0.0, 2.0)(given)
    np.testing.assert_allclose(sharper[1:4], [1 / 17, 0.5, 81 / 82])
    assert (np.diff(Recalibration(-1.0, 0.3)(given)[1:]) > 0).all()
