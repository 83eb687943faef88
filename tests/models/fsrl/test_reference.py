"""The reference on its own: it reads the graph that the fast model reads, learns, and ranks."""

from __future__ import annotations

import itertools

import torch
from tests.models.fsrl.oracle import background_of
from tests.training.runs import umls, vectors

from fewlink.evaluation import Protocol, evaluate
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.reference import FSRL, Background, ReferenceScorer, train


def test_it_reads_the_neighbours_of_the_fast_model() -> None:
    fast = background_of(Neighbourhood.of(umls().graph, vectors(), max_neighbours=10))
    assert all(torch.equal(a, b) for a, b in zip(Background.of(umls().graph, vectors(), 10), fast, strict=True))


def test_training_lowers_the_loss() -> None:
    torch.manual_seed(0)
    background, model = Background.of(umls().graph, vectors(dim=32)), FSRL(32)
    losses = list(itertools.islice(train(model, background, umls().split("train")[:1], B=32), 40))
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


def test_the_evaluator_ranks_with_it() -> None:
    torch.manual_seed(0)
    scorer = ReferenceScorer(FSRL(vectors().dim), Background.of(umls().graph, vectors()))
    assert 0 < evaluate(umls(), scorer, Protocol("dev")).metrics()["micro"]["mrr"] < 1
