"""Learning, episodes and settings of GANA; its runs are tested with those of MetaR."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.metar.test_learner import GANA as TINY
from tests.models.metar.test_learner import brief
from tests.training.runs import quick, umls, vectors

from fewlink.core.errors import FewlinkError
from fewlink.models.embeddings import Embeddings
from fewlink.models.gana.family import FAMILY, assemble
from fewlink.models.gana.model import GANA
from fewlink.models.gana.settings import GANASettings
from fewlink.models.metar.learner import MetaLearner
from fewlink.training.trainer import train_run

__all__ = ["quick"]


def tiny(**changes: Any) -> GANASettings:
    return GANASettings(**{**TINY, **changes})


def learner(settings: GANASettings) -> MetaLearner:
    return FAMILY.learner(umls(), vectors(), settings, [settings.seed])


def test_what_learns() -> None:
    """All but the vectors that the aggregator reads; those of distances by their own rate."""
    for rate in (0.0, 1e-2):
        made = learner(tiny(embedding_rate=rate, scale=0.0))
        before = {name: value.clone() for name, value in made.weights.items()}
        made.run_steps(0, 2)
        assert ("entities" in before) == (rate > 0)
        assert all(not torch.equal(before[name], value) for name, value in made.weights.items())
        assert isinstance(made.model, GANA)
        assert torch.equal(made.model.around.entities, vectors().entities)


def test_episodes_of_the_background_hide_their_own_relation() -> None:
    made = learner(tiny())
    assert isinstance(made.model, GANA)
    owners = made.model.task_relations[made.sampler.contrasted(torch.arange(400)).tasks]
    drawn = made.sampler.contrasted(torch.arange(400))
    edges = {tuple(triple) for triple in umls().graph.triples().tolist()}
    trained = {tuple(pair) for task in umls().split("train") for pair in task.pairs.tolist()}
    for owner, pairs in zip(owners.tolist(), drawn.references.tolist(), strict=True):
        if owner < 0:
            assert {tuple(pair) for pair in pairs} <= trained
        else:
            assert all((head, owner, tail) in edges for head, tail in pairs)
    assert (owners < 0).any() and (owners >= 0).any()


def test_the_settings_reach_the_model() -> None:
    model = assemble(umls().graph, vectors(), tiny(beta=0.25, margin=2.0, dropout=0.1, scale=3.0))
    assert (model.beta, model.margin, model.aggregator.dropout.p) == (0.25, 2.0, 0.1)
    assert (model.relation_learner.lstm.hidden_size, model.relation_learner.lstm.num_layers) == (6, 2)
    assert model.around.neighbours.slots == 5
    for table in (model.entities, model.around.entities):
        assert table.norm(dim=1).mean().item() == pytest.approx(3.0)
    factor = model.entities[0, 0] / vectors().entities[0, 0]
    torch.testing.assert_close(model.around.relations[0], vectors().relations[0] * factor.item())


def test_settings_and_vectors_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for name, value in (("layers", 0), ("dropout", 1.0)):
        with pytest.raises(FewlinkError, match=name):
            tiny(**{name: value})
    square = Embeddings(torch.randn(len(umls().graph.entities), 4), torch.randn(len(vectors().relations), 16), "rescal")
    with pytest.raises(FewlinkError, match="rescal"):
        train_run(brief(), square, tiny(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
