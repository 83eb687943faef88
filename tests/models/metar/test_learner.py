"""MetaR in run folders and on the command line; its settings and episodes."""

from __future__ import annotations

import functools
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import Fewlink, written
from tests.training.runs import quick, umls, vectors

from fewlink.core.errors import FewlinkError
from fewlink.evaluation import Protocol, evaluate
from fewlink.models import trained_family
from fewlink.models.embeddings import Embeddings
from fewlink.models.family import NoVectors
from fewlink.models.metar.family import FAMILY
from fewlink.models.metar.learner import MetaRLearner, sampler
from fewlink.models.metar.scorer import MetaRScorer
from fewlink.models.metar.settings import IN_TRAIN, MODELS, MetaRSettings
from fewlink.tasks import Benchmark
from fewlink.tasks.append import append_triples
from fewlink.training import RunResult, open_run
from fewlink.training.trainer import train_run

__all__ = ["quick"]
KEPT = tempfile.TemporaryDirectory()
METAR: dict[str, Any] = {"steps": 6, "evaluate_every": 2, "relations": 8, "hidden_1": 12, "hidden_2": 6}


def tiny(model: str = "metar", **changes: Any) -> Any:
    return MetaRSettings(**{**METAR, "model": model, **changes})


@functools.cache
def brief() -> Benchmark:
    """UMLS with two dev relations of a few queries."""
    dev = [replace(task, pairs=task.pairs[:8]) for task in umls().split("dev")[:2]]
    return Benchmark("umls", umls().graph, {**umls().tasks, "dev": dev}, umls().source)


def learner(settings: Any, table: Embeddings | None = None) -> MetaRLearner:
    made = trained_family(settings.model).learner(umls(), table or vectors(), settings, [settings.seed])
    assert isinstance(made, MetaRLearner)
    return made


@functools.cache
def whole_run() -> tuple[Path, RunResult]:
    """A run that no test changes."""
    run = Path(KEPT.name) / "whole"
    return run, train_run(brief(), vectors(), tiny(), run)


def test_a_run_opens_as_the_scorer_that_was_evaluated() -> None:
    run, result = whole_run()
    scorer = open_run(run, brief())
    assert isinstance(scorer, MetaRScorer) and scorer.name == "metar"
    assert evaluate(brief(), scorer, Protocol("dev")).metrics()["micro"]["mrr"] == result.best["mrr"]


@pytest.mark.parametrize("model", [*MODELS])
def test_training_lowers_the_loss(model: str) -> None:
    settings = tiny(model, relations=64, dropout=0.0, learning_rate=0.01, scale=0.0)
    losses = learner(settings, vectors(dim=16)).run_steps(0, 60).losses["loss"]
    assert losses.shape == (60, 1)
    assert losses[-10:, 0].mean() < 0.8 * losses[:10, 0].mean()


def test_only_runs_with_fixed_vectors_read_entities_that_are_added_later(tmp_path: Path) -> None:
    lines = [("newcomer", umls().graph.relations[0], umls().graph.entities[0])]
    extended, _ = append_triples(brief(), [written(lines, tmp_path / "new.tsv")])
    with pytest.raises(FewlinkError, match="whole"):
        open_run(whole_run()[0], extended)
    train_run(brief(), vectors(), tiny(embedding_rate=0.0), tmp_path / "fixed")
    assert "entities" not in load_file(tmp_path / "fixed" / "last" / "weights.safetensors")
    scorer = open_run(tmp_path / "fixed", extended)
    assert len(scorer.model.entities) == len(umls().graph.entities) + 1  # type: ignore[attr-defined]
    assert np.isfinite(evaluate(extended, scorer, Protocol("dev")).metrics()["micro"]["mrr"])


def test_vectors_learn_by_their_own_rate() -> None:
    moved = []
    for rate in (0.0, 1e-3, 1e-2):
        made = learner(tiny(embedding_rate=rate, scale=0.0))
        assert ("entities" in made.weights) == (rate > 0)
        made.run_steps(0, 2)
        moved.append(float((made.model.entities.detach() - vectors().entities).abs().max()))
    assert moved[0] == 0 < moved[1] < moved[2]


def test_in_train_learns_from_the_background_too() -> None:
    train_pairs = {tuple(p) for task in umls().split("train") for p in task.pairs.tolist()}
    background = {(h, t) for h, _, t in umls().graph.triples().tolist()}
    hidden = {tuple(p) for name in ("dev", "test") for task in umls().split(name) for p in task.pairs.tolist()}
    for model, allowed in (("metar", train_pairs), (IN_TRAIN, train_pairs | background)):
        drawn = sampler(umls(), tiny(model)).contrasted(torch.arange(400))
        pairs = {tuple(p) for part in (drawn.references, drawn.queries) for p in part.flatten(0, 1).tolist()}
        assert pairs <= allowed and bool(pairs - train_pairs) == (model == IN_TRAIN)
        assert not pairs & (hidden - allowed)


def test_settings_that_make_no_sense_are_refused() -> None:
    for name, value in (("beta", -1.0), ("dropout", 1.0), ("start", "zero"), ("model", "metr")):
        with pytest.raises(FewlinkError, match=name):
            tiny(**{name: value})


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match="vectors"):
        train_run(brief(), NoVectors(), tiny(), tmp_path / "run")
    empty = Benchmark("none", umls().graph, {**umls().tasks, "train": []})
    with pytest.raises(FewlinkError, match="train relations"):
        FAMILY.check(empty, tiny())
    FAMILY.check(empty, tiny(IN_TRAIN))
    assert not (tmp_path / "run").exists()


def test_training_and_evaluating_from_the_command_line(fewlink: Fewlink) -> None:
    options = [f"--set={name}={value}" for name, value in METAR.items()]
    vectors().save(Path("vectors"), umls().graph.fingerprint, graph="umls")
    trained = fewlink("train", "umls", "--model", "metar", "--embeddings", "vectors", "--out", "run", *options)
    assert trained.code == 0, trained.err
    evaluated = fewlink("evaluate", "run", "--split", "dev", "--json", "--results", "records")
    assert evaluated.code == 0 and json.loads(evaluated.out)["model"] == "metar"
    settings = json.loads(fewlink("models", "metar", "--json").out)["settings"]
    assert {"beta", *METAR} <= {row["name"] for row in settings}
