"""TRIX as a scorer, with published weights, and tuned into run folders."""

from __future__ import annotations

import functools
import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import Fewlink
from tests.models.trail.cases import random_graph
from tests.models.trail.test_learn import brief, question
from tests.models.trix.test_network import SMALL, network_of
from tests.models.ultra.test_family import by_network, question_of
from tests.models.ultra.test_family import weights_file as ultra_file

from fewlink.evaluation import Protocol, evaluate
from fewlink.models import checkpoint_models
from fewlink.models.contract import Question
from fewlink.models.family import NoVectors
from fewlink.models.published import PUBLISHED, model_of
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trix.family import FAMILY
from fewlink.models.trix.network import TrixShape
from fewlink.models.trix.settings import TrixSettings
from fewlink.models.ultra.learner import PublishedLearner
from fewlink.models.ultra.scorer import PublishedScorer
from fewlink.training import RunConfig, open_run
from fewlink.training.trainer import train_run

KEPT = tempfile.TemporaryDirectory()
SHAPE = TrixShape(width=16, layers=4, first_layers=2, relation_layers=3)
TINY: dict[str, Any] = {"steps": 4, "evaluate_every": 2, "relations": 2, "queries": 4, "candidates": 20, **vars(SMALL)}


@functools.cache
def weights_file() -> Path:
    path = Path(KEPT.name) / "entity_prediction.pth"
    torch.save({"model": network_of().state_dict()}, path)
    return path


def tiny(**changes: Any) -> TrixSettings:
    return TrixSettings(**{**TINY, "start": str(weights_file()), **changes})


def scorer_of(seed: int) -> PublishedScorer:
    graph = random_graph(seed, relations=4, triples=60, entities=25)
    return PublishedScorer("trix", network_of(SHAPE, seed), ReadGraph.of(graph))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shots", [1, 3])
def test_scores_are_those_of_the_network(seed: int, shots: int) -> None:
    scorer, asked = scorer_of(seed), question_of(seed, shots)
    torch.testing.assert_close(scorer(asked), by_network(scorer, asked), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("two_threads")
def test_other_references_other_heads_and_copies() -> None:
    scorer, first, second = scorer_of(1), question_of(1), question_of(2)
    expected = [by_network(scorer, asked) for asked in (first, second, first)]
    for asked, scores in zip((first, second, first), expected, strict=True):
        torch.testing.assert_close(scorer(asked), scores, rtol=1e-4, atol=1e-4)
    copy = pickle.loads(pickle.dumps(scorer))  # noqa: S301
    assert torch.equal(copy(first), scorer(first))
    one = Question("new", first.references, first.heads[1:2], first.candidates)
    torch.testing.assert_close(scorer(one)[0], scorer(first)[1], rtol=1e-4, atol=1e-4)


# Published weights


def test_weights_of_a_file_are_a_scorer_whose_record_names_them() -> None:
    prepared = checkpoint_models()["trix"].from_checkpoint("trix", brief(), weights_file(), "cpu")
    assert prepared.scorer.name == "trix-entity-prediction"
    assert prepared.config == {"checkpoint": FAMILY.read(weights_file()).facts}
    own = PublishedScorer("trix", network_of(), ReadGraph.of(brief().known_graph, names=False))
    assert torch.equal(prepared.scorer(question(brief())), own(question(brief())))


def test_a_file_tells_whose_weights_it_has() -> None:
    assert {*PUBLISHED} == {*checkpoint_models()}
    assert model_of(weights_file()) == "trix" and model_of(ultra_file()) == "ultra"


def test_the_command_evaluates_weights_of_a_file(fewlink: Fewlink) -> None:
    words = ("evaluate", "umls", "--scorer", "trix", "--checkpoint", weights_file(), "--results", "r", "--json")
    done = fewlink(*words)
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["model"] == "trix-entity-prediction"
    assert record["config"]["checkpoint"]["file"] == "entity_prediction.pth"
    assert Path("r/umls/trix-entity-prediction.jsonl").exists()


def test_weights_of_another_model_are_refused(fewlink: Fewlink) -> None:
    done = fewlink("evaluate", "umls", "--scorer", "trix", "--checkpoint", ultra_file())
    assert done.code == 2 and "TRIX" in done.err and ultra_file().name in done.err


# Runs


def test_a_run_begins_with_the_given_weights_and_learns() -> None:
    learner = FAMILY.learner(brief(), NoVectors(), tiny(), [0])
    begin = {name: value[0].clone() for name, value in learner.weights.items()}
    expected = network_of().state_dict()
    assert begin.keys() == expected.keys() and all(torch.equal(begin[name], expected[name]) for name in expected)
    losses = learner.run_steps(0, 2).losses["loss"]
    assert losses.shape == (2, 1) and torch.isfinite(losses).all()
    same = {name for name, value in learner.weights.items() if torch.equal(value[0], begin[name])}
    assert same <= {"entity_model.mlp.2.bias", *(name for name in expected if name.startswith("entity_model_mini.mlp"))}


def test_the_loss_falls_on_the_same_episodes() -> None:
    learner = FAMILY.learner(brief(), NoVectors(), tiny(learning_rate=0.01, steps=60), [0])
    assert isinstance(learner, PublishedLearner)
    batch = learner.episodes[0]
    losses = [float(learner.step(step, batch)) for step in range(12)]
    assert losses[-1] < losses[0] - 0.1


def test_a_run_opens_as_the_scorer_that_was_evaluated(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = train_run(brief(), NoVectors(), tiny(), run)
    assert RunConfig.read(run).parts["start"] == FAMILY.read(weights_file()).facts
    scorer = open_run(run, brief())
    found = evaluate(brief(), scorer, Protocol("dev", 3, "full")).metrics()["micro"]
    assert scorer.name == "trix" and found == result.best
    assert load_file(run / "best" / "weights.safetensors").keys() == network_of().state_dict().keys()


def test_memory_grows_with_what_is_kept() -> None:
    graph = brief().known_graph
    answering, training = (FAMILY.memory(graph, NoVectors(), tiny(), training=on) for on in (False, True))
    assert training["states"] > answering["states"] > 0
    assert FAMILY.memory(graph, NoVectors(), tiny(device="cuda"))["states"] >= answering["states"]
