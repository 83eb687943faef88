"""The vectors of pairs that a scorer tells are those its scores come from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.trail_0_1.test_model import example, trail_of

from fewlink.data import open_benchmark
from fewlink.fewshot.learner import assemble
from fewlink.fewshot.model import FewShotScorer, FewShotSettings
from fewlink.scorers.base import Question
from fewlink.trail_0_1.scorer import Trail01Scorer

PAIRS = np.array([[4, 9], [3, 2], [4, 2], [7, 5]])
REFERENCES = np.array([[1, 2], [3, 4], [5, 1]])


@pytest.mark.parametrize("model", ["fsrl", "fsrl-as3", "gmatching-max", "fsrl-released"])
def test_a_few_shot_models_vectors_give_its_scores(model: str) -> None:
    from fewlink.embeddings import Embeddings

    graph, random = open_benchmark("umls").graph, torch.Generator().manual_seed(0)
    sizes = (len(graph.entities), 8), (2 * len(graph.relations), 8)
    vectors = Embeddings(*(torch.randn(size, generator=random) for size in sizes), "transe")
    scorer = FewShotScorer(model, *assemble(graph, vectors, FewShotSettings(model), "cpu"))
    found = torch.from_numpy(scorer.pair_vectors(REFERENCES, PAIRS))  # before any question was asked
    encoded = scorer.model.encode_all(scorer.around)
    summary = scorer.model.aggregator(scorer.model._pairs(encoded, torch.from_numpy(REFERENCES))).vectors
    scores = [float(scorer(Question("", REFERENCES, p[:1], p[1:]))) for p in PAIRS]
    np.testing.assert_allclose((found @ summary.T).amax(1).detach().numpy(), scores, rtol=1e-4, atol=1e-4)


def test_trails_vectors_are_the_evidence_that_is_weighed() -> None:
    known, asked = example(3)
    scorer = Trail01Scorer("trail-0.1", trail_of(), known)
    references = asked.references.numpy()
    found = torch.from_numpy(scorer.pair_vectors(references, PAIRS))
    assert found.shape == (len(PAIRS), sum(scorer.model.widths.values()))
    (one,) = scorer.inputs(asked.references, torch.tensor([4]), torch.tensor([9]))
    weighed = scorer.model.weighing(found, one.reliability)
    scores = [float(scorer(Question("", references, p[:1], p[1:]))) for p in PAIRS]
    np.testing.assert_allclose(weighed.detach().numpy(), scores, rtol=1e-4, atol=1e-5)
