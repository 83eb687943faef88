"""ULTRA as a scorer, with published weights, and tuned into run folders."""

from __future__ import annotations

import functools
import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import Fewlink
from tests.models.trail.cases import random_graph
from tests.models.trail.test_learn import brief, question
from tests.models.ultra.test_network import SMALL, network_of
from tests.training.runs import lines_of, saved, timeless

from fewlink.core.errors import FewlinkError, InputError
from fewlink.evaluation import Protocol, evaluate
from fewlink.models import checkpoint_models
from fewlink.models.contract import Question
from fewlink.models.family import NoVectors
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.learn import Batch
from fewlink.models.ultra.family import FAMILY
from fewlink.models.ultra.learner import PublishedLearner
from fewlink.models.ultra.network import PublishedTasks, UltraShape
from fewlink.models.ultra.scorer import PublishedScorer
from fewlink.models.ultra.settings import UltraSettings
from fewlink.training import RunConfig, RunResult, open_run
from fewlink.training.trainer import train_run

KEPT = tempfile.TemporaryDirectory()
SHAPE = UltraShape(width=16, layers=4, relation_layers=2)
TINY: dict[str, Any] = {"steps": 4, "evaluate_every": 2, "relations": 2, "queries": 4, "candidates": 20, **vars(SMALL)}


@functools.cache
def weights_file() -> Path:
    path = Path(KEPT.name) / "ultra_tiny.pth"
    torch.save(network_of().state_dict(), path)
    return path


def tiny(**changes: Any) -> UltraSettings:
    return UltraSettings(**{**TINY, "start": str(weights_file()), **changes})


def train(settings: UltraSettings, run: Path) -> RunResult:
    return train_run(brief(), NoVectors(), settings, run)


# The scorer


def scorer_of(seed: int) -> PublishedScorer:
    graph = random_graph(seed, relations=4, triples=60, entities=25)
    return PublishedScorer("ultra", network_of(SHAPE, seed), ReadGraph.of(graph))


def question_of(seed: int, shots: int = 3) -> Question:
    rng = np.random.default_rng(seed)
    references = rng.integers(0, 25, (shots, 2)).astype(np.int32)
    heads, candidates = (rng.permutation(25)[:n].astype(np.int32) for n in (4, 11))
    return Question("new", references, heads, candidates)


def by_network(scorer: PublishedScorer, question: Question) -> torch.Tensor:
    """All heads and candidates through the network's own `forward`."""
    references, heads, candidates = (
        torch.from_numpy(a.astype(np.int64))[None] for a in (question.references, question.heads, question.candidates)
    )
    visible, weights = torch.ones(1, scorer.graph.relations), torch.ones(1, references.shape[1])
    with torch.no_grad():
        return scorer.network(scorer.graph, PublishedTasks(references, weights, visible, heads, candidates))[0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shots", [1, 3])
def test_scores_are_those_of_the_network(seed: int, shots: int) -> None:
    scorer, asked = scorer_of(seed), question_of(seed, shots)
    torch.testing.assert_close(scorer(asked), by_network(scorer, asked), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("two_threads")
def test_other_references_other_heads_and_copies() -> None:
    scorer, first, second = scorer_of(1), question_of(1), question_of(2)
    expected = [by_network(scorer, asked) for asked in (first, second, first)]
    for asked, scores in zip((first, second, first), expected, strict=True):
        torch.testing.assert_close(scorer(asked), scores, rtol=1e-4, atol=1e-5)
    copy = pickle.loads(pickle.dumps(scorer))  # noqa: S301
    assert torch.equal(copy(first), scorer(first))
    one = Question("new", first.references, first.heads[1:2], first.candidates)
    torch.testing.assert_close(scorer(one)[0], scorer(first)[1], rtol=1e-4, atol=1e-5)
    none = Question("new", first.references, first.heads[:0], first.candidates)
    assert scorer(none).shape == (0, len(first.candidates))


# Published weights


def test_weights_of_a_file_are_a_scorer_whose_record_names_them() -> None:
    prepared = checkpoint_models()["ultra"].from_checkpoint("ultra", brief(), weights_file(), "cpu")
    assert prepared.scorer.name == "ultra-tiny"
    assert prepared.config == {"checkpoint": FAMILY.read(weights_file()).facts}
    own = PublishedScorer("ultra", network_of(), ReadGraph.of(brief().known_graph, names=False))
    assert torch.equal(prepared.scorer(question(brief())), own(question(brief())))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("ultra_4g.pth", "ultra-4g"),
        ("a/Ultra 50g.safetensors", "ultra-50g"),
        ("best_weights.pth", "ultra-best-weights"),
    ],
)
def test_the_name_in_results_is_that_of_the_file(file: str, name: str) -> None:
    assert FAMILY.name_of(Path(file)) == name


def test_the_command_evaluates_weights_of_a_file(fewlink: Fewlink) -> None:
    words = ("evaluate", "umls", "--scorer", "ultra", "--checkpoint", weights_file(), "--candidates", "full")
    done = fewlink(*words, "--candidates", "paper", "--results", "r", "--json")
    assert done.code == 0, done.err
    full, paper = json.loads(done.out)
    assert full["model"] == "ultra-tiny" and full["config"]["checkpoint"]["file"] == "ultra_tiny.pth"
    assert full["metrics"] == paper["metrics"]  # no relation of umls has more than 1000 candidates
    assert Path("r/umls/ultra-tiny.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("evaluate umls --scorer ultra", "--checkpoint"),
        ("evaluate umls --scorer ultra --checkpoint absent.pth", "absent.pth"),
        ("evaluate umls --scorer rules --checkpoint a.pth", "--checkpoint"),
        ("evaluate umls --scorer ultra --checkpoint a.pth --set steps=3", "ultra"),
        ("train umls --model fsrl --out run --checkpoint a.pth", "start"),
        ("train umls --model ultra --out run --checkpoint absent.pth", "absent.pth"),
    ],
)
def test_commands_that_do_not_fit_say_what_to_do(fewlink: Fewlink, words: str, told: str) -> None:
    Path("a.pth").touch()
    done = fewlink(*words.split())
    assert done.code == 2 and told in done.err


# Runs


@functools.cache
def whole_run() -> tuple[Path, RunResult]:
    run = Path(KEPT.name) / "whole"
    return run, train(tiny(), run)


def test_a_run_begins_with_the_given_weights_and_learns() -> None:
    learner = FAMILY.learner(brief(), NoVectors(), tiny(), [0])
    begin = {name: value[0].clone() for name, value in learner.weights.items()}
    expected = network_of().state_dict()
    assert begin.keys() == expected.keys() and all(torch.equal(begin[name], expected[name]) for name in expected)
    losses = learner.run_steps(0, 2).losses["loss"]
    assert losses.shape == (2, 1) and torch.isfinite(losses).all()
    moved = [name for name, value in learner.weights.items() if not torch.equal(value[0], begin[name])]
    assert {*expected} - {*moved} <= {"entity_model.mlp.2.bias"}  # added to all scores alike


def test_the_loss_falls_on_the_same_episodes() -> None:
    learner = FAMILY.learner(brief(), NoVectors(), tiny(learning_rate=0.01, steps=60), [0])
    assert isinstance(learner, PublishedLearner)
    batch = learner.episodes[0]
    losses = [float(learner.step(step, batch)) for step in range(12)]
    assert losses[-1] < losses[0] - 0.1


def test_a_run_that_was_stopped_ends_in_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_one, _ = whole_run()
    run, whole = tmp_path / "parts", PublishedLearner.step

    def stopped(self: PublishedLearner, number: int, batch: Batch) -> Any:
        if number == 3:
            raise KeyboardInterrupt
        return whole(self, number, batch)

    with monkeypatch.context() as patch:
        patch.setattr(PublishedLearner, "step", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(), run)
    assert lines_of(run)[-1]["step"] == 2
    train(tiny(), run)
    assert saved(run) == saved(whole_one) and timeless(run) == timeless(whole_one)


def test_a_run_opens_as_the_scorer_that_was_evaluated_without_its_first_weights(tmp_path: Path) -> None:
    file = tmp_path / "ultra_other.pth"
    file.write_bytes(weights_file().read_bytes())
    run = tmp_path / "run"
    result = train(tiny(start=str(file)), run)
    assert RunConfig.read(run).parts["start"] == FAMILY.read(file).facts
    file.unlink()
    scorer = open_run(run, brief())
    found = evaluate(brief(), scorer, Protocol("dev", 3, "full")).metrics()["micro"]
    assert scorer.name == "ultra" and found == result.best
    assert FAMILY.read(run / "best" / "weights.safetensors").shape == SMALL  # what others can start from
    own = load_file(run / "best" / "weights.safetensors")
    assert own.keys() == network_of().state_dict().keys()


def test_a_run_is_not_continued_with_other_first_weights(tmp_path: Path) -> None:
    file = tmp_path / "ultra_other.pth"
    file.write_bytes(weights_file().read_bytes())
    train(tiny(start=str(file)), tmp_path / "run")
    torch.save(network_of(seed=1).state_dict(), file)
    with pytest.raises(FewlinkError, match="start"):
        train(tiny(start=str(file), steps=6), tmp_path / "run")


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--set width=8 --set layers=3 --set relation_layers=2"):
        train(tiny(width=16), tmp_path / "run")


def test_ultra_can_be_trained_from_nothing(tmp_path: Path) -> None:
    result = train(tiny(start="", steps=2), tmp_path / "run")
    assert result.step == 2 and "start" not in RunConfig.read(tmp_path / "run").parts


def test_the_command_tunes_weights_of_a_file(fewlink: Fewlink) -> None:
    words = [f"--set={name}={value}" for name, value in TINY.items()]
    done = fewlink(
        "train", "umls", "--model", "ultra", "--checkpoint", weights_file(), "--out", "run", *words, "--json"
    )
    assert done.code == 0, done.err
    told = fewlink("evaluate", "run", "--json", "--results", "r")
    assert told.code == 0 and json.loads(told.out)["model"] == "ultra"


def test_memory_grows_with_what_is_kept() -> None:
    graph = brief().known_graph
    answering, training = (FAMILY.memory(graph, NoVectors(), tiny(), training=on) for on in (False, True))
    assert training["states"] > answering["states"] > 0
    assert FAMILY.memory(graph, NoVectors(), tiny(device="cuda"))["states"] > answering["states"]
