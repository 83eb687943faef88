"""GANA in run folders: trained, stopped, continued, opened, from the command line."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import written
from tests.models.metar.test_learner import brief
from tests.training.runs import lines_of, quick, saved, timeless, umls, vectors

from fewlink.core.errors import FewlinkError
from fewlink.data.append import append_triples
from fewlink.data.episodes import ContrastedEpisodes
from fewlink.embeddings import Embeddings
from fewlink.evaluation import Protocol, evaluate
from fewlink.models import trained_family
from fewlink.models.gana.family import FAMILY, assemble
from fewlink.models.gana.model import GANA
from fewlink.models.gana.scorer import GANAScorer
from fewlink.models.gana.settings import MODELS, GANASettings
from fewlink.models.metar.learner import MetaLearner
from fewlink.training import RunResult, open_run
from fewlink.training.trainer import train_run

__all__ = ["quick"]
KEPT = tempfile.TemporaryDirectory()
TINY: dict[str, Any] = {"steps": 6, "evaluate_every": 2, "relations": 8, "neighbours": 5, "hidden": 6, "layers": 2}


def tiny(**changes: Any) -> GANASettings:
    return GANASettings(**{**TINY, **changes})


def learner(settings: GANASettings, table: Embeddings | None = None) -> MetaLearner:
    return FAMILY.learner(umls(), table or vectors(), settings, [settings.seed])


@functools.cache
def whole_run() -> tuple[Path, RunResult]:
    """A run that is never changed by a test."""
    run = Path(KEPT.name) / "whole"
    return run, train_run(brief(), vectors(), tiny(), run)


def test_a_run_that_was_stopped_ends_in_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, whole = tmp_path / "parts", MetaLearner.step

    def stopped(self: MetaLearner, number: int, episodes: ContrastedEpisodes) -> Any:
        if number == 3:
            raise KeyboardInterrupt
        return whole(self, number, episodes)

    with monkeypatch.context() as patch:
        patch.setattr(MetaLearner, "step", stopped)
        with pytest.raises(KeyboardInterrupt):
            train_run(brief(), vectors(), tiny(), run)
    assert lines_of(run)[-1]["step"] == 2
    train_run(brief(), vectors(), tiny(), run)
    assert saved(run) == saved(whole_run()[0]) and timeless(run) == timeless(whole_run()[0])


def test_a_run_opens_as_the_scorer_that_was_evaluated() -> None:
    run, result = whole_run()
    scorer = open_run(run, brief())
    assert isinstance(scorer, GANAScorer) and (scorer.name, scorer.seed) == ("gana", 0)
    assert evaluate(brief(), scorer, Protocol("dev")).metrics()["micro"]["mrr"] == result.best["mrr"]


def test_it_learns() -> None:
    settings = tiny(relations=64, dropout=0.0, learning_rate=0.01, scale=0.0)
    losses = learner(settings, vectors(dim=16)).run_steps(0, 60).losses["loss"]
    assert losses[-10:, 0].mean() < 0.8 * losses[:10, 0].mean()


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
    assert model.around.neighbours.most == 5
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


def test_vectors_that_were_not_tuned_serve_entities_that_come_later(tmp_path: Path) -> None:
    lines = [("newcomer", umls().graph.relations[0], umls().graph.entities[0])]
    extended, _ = append_triples(brief(), [written(lines, tmp_path / "new.tsv")])
    with pytest.raises(FewlinkError, match="whole"):
        open_run(whole_run()[0], extended)
    train_run(brief(), vectors(), tiny(embedding_rate=0.0), tmp_path / "fixed")
    scorer = open_run(tmp_path / "fixed", extended)
    assert isinstance(scorer, GANAScorer) and len(scorer.model.entities) == len(umls().graph.entities) + 1
    assert np.isfinite(evaluate(extended, scorer, Protocol("dev")).metrics()["micro"]["mrr"])


def test_memory_grows_with_what_is_trained() -> None:
    def need(training: bool, **changes: Any) -> float:
        return sum(FAMILY.memory(umls().graph, vectors(), tiny(**changes), training=training).values())

    assert need(False) < need(True, embedding_rate=0.0) < need(True) < need(True, relations=1024)


def test_the_model_has_a_recipe() -> None:
    (model,) = MODELS
    recipe = trained_family(model).recipe(model)
    assert recipe.settings.model == model and recipe.vectors.recipe == "transe" and recipe.about and recipe.chosen
