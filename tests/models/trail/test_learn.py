"""TRAIL in run folders: trained, stopped, continued, opened on any graph, and trained by several processes."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import Fewlink, benchmark_of, id_graph, task_of, town_lines, written
from tests.training.runs import lines_of, quick, saved, timeless, umls, vectors

from fewlink.core.errors import FewlinkError
from fewlink.evaluation import Protocol, evaluate
from fewlink.graph import Graph
from fewlink.models import trained_family
from fewlink.models.contract import Question
from fewlink.models.family import NoVectors, RunState
from fewlink.models.trail.family import FAMILY, graphs_of
from fewlink.models.trail.learn import RAW, Batch, TrailLearner
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.settings import TrailSettings
from fewlink.tasks import Benchmark
from fewlink.tasks.append import append_triples
from fewlink.training import RunConfig, RunResult, open_run
from fewlink.training.trainer import train_run
from folds import fold_benchmark

__all__ = ["quick"]
KEPT = tempfile.TemporaryDirectory()
TINY: dict[str, Any] = {"steps": 4, "evaluate_every": 2, "relations": 2, "queries": 4, "candidates": 20}
TINY |= {"most_references": 32, "width": 8, "layers": 2, "relation_layers": 1}


def tiny(**changes: Any) -> TrailSettings:
    return TrailSettings(**{**TINY, **changes})


@functools.cache
def brief() -> Benchmark:
    """UMLS with two dev relations of a few queries."""
    dev = [replace(task, pairs=task.pairs[:8]) for task in umls().split("dev")[:2]]
    return Benchmark("umls", umls().graph, {**umls().tasks, "dev": dev}, umls().source)


def train(settings: TrailSettings, run: Path, benchmark: Benchmark | None = None) -> RunResult:
    return train_run(benchmark or brief(), NoVectors(), settings, run)


def learner_of(**changes: Any) -> TrailLearner:
    return TrailLearner([umls().known_graph], tiny(**changes))


@functools.cache
def whole_run() -> tuple[Path, RunResult]:
    """A run that is never changed by a test."""
    run = Path(KEPT.name) / "whole"
    return run, train(tiny(), run)


def question(benchmark: Benchmark, heads: slice = slice(3, 6)) -> Question:
    task = benchmark.split("dev")[0]
    return Question(task.name, task.pairs[:3], task.pairs[heads, 0], task.range)


# Run folders


def test_a_run_that_was_stopped_ends_in_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_one, _ = whole_run()
    run, whole = tmp_path / "parts", TrailLearner.step

    def stopped(self: TrailLearner, number: int, batch: Batch) -> Any:
        if number == 3:
            raise KeyboardInterrupt
        return whole(self, number, batch)

    with monkeypatch.context() as patch:
        patch.setattr(TrailLearner, "step", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(), run)
    assert lines_of(run)[-1]["step"] == 2
    train(tiny(), run)
    assert saved(run) == saved(whole_one) and timeless(run) == timeless(whole_one)


def test_a_state_goes_on_elsewhere_to_the_bit() -> None:
    first, second = learner_of(), learner_of(seed=1)
    first.run_steps(0, 2)
    second.settings, second.episodes = first.settings, first.episodes
    second.load_state([RunState(*({k: v.clone() for k, v in tensors.items()} for tensors in first.state(0)))])
    losses = [learner.run_steps(2, 2).losses["loss"] for learner in (first, second)]
    assert torch.equal(*losses)
    for mine, other in zip(first.state(0), second.state(0), strict=True):
        assert mine.keys() == other.keys() and all(torch.equal(mine[name], other[name]) for name in mine)


def test_a_run_holds_no_vectors_and_its_last_weights_are_its_best() -> None:
    run, result = whole_run()
    assert not (run / "embeddings").exists() and RunConfig.read(run).embeddings == {
        "model": "none",
        "dim": 0,
        "sha256": "",
    }
    assert (result.step, result.best_step, result.stopped) == (4, 4, "steps")
    assert result.best == lines_of(run)[-1]["dev"]
    best, last = (load_file(run / name / "weights.safetensors") for name in ("best", "last"))
    assert all(torch.equal(best[name], last[name]) for name in last)


def test_the_last_weights_are_best_however_dev_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    falling = iter([0.9, 0.5])
    true = evaluate

    class Worse:
        def __init__(self, *arguments: Any) -> None:
            self.real = true(*arguments)

        def metrics(self) -> dict[str, dict[str, float]]:
            found = self.real.metrics()
            return {**found, "micro": {**found["micro"], "mrr": next(falling)}}

    monkeypatch.setattr("fewlink.training.trainer.evaluate", Worse)
    result = train(tiny(patience=1), tmp_path / "run")
    assert (result.step, result.best_step, result.best["mrr"], result.stopped) == (4, 4, 0.5, "steps")


def test_a_run_opens_as_the_scorer_that_was_evaluated() -> None:
    run, result = whole_run()
    scorer = open_run(run, brief())
    assert isinstance(scorer, TrailScorer) and scorer.name == "trail"
    assert evaluate(brief(), scorer, Protocol("dev")).metrics()["micro"]["mrr"] == result.best["mrr"]


@functools.cache
def town() -> Benchmark:
    """A graph that has nothing in common with UMLS."""
    lines = [line for line in town_lines() if not line[1].startswith("task")]
    entities = sorted({name for h, _, t in town_lines() for name in (h, t)})
    relations = sorted({r for _, r, _ in lines})
    graph = id_graph(
        [(entities.index(h), relations.index(r), entities.index(t)) for h, r, t in lines], len(entities), len(relations)
    )
    pairs = [(entities.index(h), entities.index(t)) for h, r, t in town_lines() if r == "task 1"]
    return benchmark_of(graph, dev=[task_of(pairs, range(len(entities)), name="task 1")])


def test_a_run_opens_on_any_graph() -> None:
    run, _ = whole_run()
    scores = open_run(run, town())(question(town()))
    assert scores.shape == (3, len(town().graph.entities)) and torch.isfinite(torch.as_tensor(scores)).all()
    assert evaluate(town(), open_run(run, town()), Protocol("dev")).metrics()["micro"]["mrr"] > 0


def test_a_run_opens_on_a_graph_that_triples_were_appended_to(tmp_path: Path) -> None:
    run, _ = whole_run()
    old, name = umls().graph, umls().graph.entities[0]
    lines = [("newcomer", old.relations[0], name), ("newcomer", "new relation", old.entities[1])]
    extended, report = append_triples(brief(), [written(lines, tmp_path / "new.tsv")])
    assert (report.entities, report.relations) == (1, 1) and old.fingerprint in extended.extended_from
    asked = replace(question(extended), candidates=np.array([0, 1, len(old.entities)], np.int32))
    found = torch.as_tensor(open_run(run, extended)(asked))
    assert found.shape == (3, 3) and torch.isfinite(found).all()


def test_vectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match="trail"):
        train_run(brief(), vectors(), tiny(), tmp_path / "run")
    with pytest.raises(FewlinkError, match="vectors"):
        train_run(brief(), NoVectors(), trained_family("fsrl").settings(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("shots", [1, 2, 16, 40])
def test_any_number_of_references_will_do(shots: int) -> None:
    task = umls().split("test")[0]
    few = replace(task, pairs=task.pairs[: shots + 2])
    benchmark = Benchmark("few", umls().graph, {**umls().tasks, "test": [few]})
    assert 0 < evaluate(benchmark, learner_of().scorer(0), Protocol("test", shots)).metrics()["micro"]["mrr"] <= 1


def test_a_score_does_not_depend_on_the_rest_of_the_question() -> None:
    scorer, asked = learner_of().scorer(0), question(umls(), slice(3, 12))
    whole = scorer(asked)
    for row in (0, 4, 8):
        part = Question("", asked.references, asked.heads[row : row + 1], asked.candidates[5:9])
        torch.testing.assert_close(scorer(part), whole[row : row + 1, 5:9], rtol=1e-5, atol=1e-6)
    again = Question("", asked.references[::-1], asked.heads[::-1], asked.candidates[::-1])
    torch.testing.assert_close(scorer(again), whole.flip(0, 1), rtol=1e-4, atol=1e-5)
    assert not whole.requires_grad


# Learning


def test_seeds_differ_and_a_seed_does_not() -> None:
    losses = [learner_of(seed=seed).run_steps(0, 2).losses["loss"] for seed in (0, 0, 1)]
    assert losses[0].shape == (2, 1)
    assert torch.equal(losses[0], losses[1]) and not torch.equal(losses[0], losses[2])


def test_training_lowers_the_loss() -> None:
    learner = learner_of(steps=30, learning_rate=0.01)
    losses = learner.run_steps(0, 30).losses["loss"][:, 0]
    assert losses[-10:].mean() < losses[:10].mean() - 0.2


def test_the_loss_is_that_of_the_softmax_over_candidates_that_count() -> None:
    learner = learner_of()
    batch = learner.episodes[0]
    with torch.no_grad():
        scores, loss = learner.network(learner.graphs[0], batch.tasks).double(), learner.loss(batch)
    total = 0.0
    for task in range(2):
        for query in range(4):
            rivals = [
                float(s) for s, out in zip(scores[task, query], batch.excluded[task, query], strict=True) if not out
            ]
            total += np.log(np.exp(rivals).sum()) - float(scores[task, query, batch.answers[task, query]])
    assert float(loss) == pytest.approx(total / 8, rel=1e-5)


def test_weights_are_averaged_by_hand() -> None:
    learner = learner_of(average=0.6)
    mean = {name: value.clone() for name, value in learner.network.state_dict().items()}
    for step in range(3):
        learner.step(step, learner.episodes[step])
        keep = min(0.6, (step + 1) / (step + 10))
        mean = {n: keep * mean[n] + (1 - keep) * value for n, value in learner.network.state_dict().items()}
    for name, value in learner.weights.items():
        torch.testing.assert_close(value[0], mean[name], rtol=1e-6, atol=1e-7)
    state, moments = learner.state(0)
    torch.testing.assert_close(state, mean, rtol=1e-6, atol=1e-7)
    for name, value in learner.network.state_dict().items():
        assert torch.equal(moments[RAW + name], value) and not torch.equal(value, state[name])
    answering = learner.scorer(0).network.state_dict()
    assert all(torch.equal(answering[name], state[name]) for name in state)


def test_the_rate_rises_and_falls() -> None:
    rates = [tiny(steps=200).decay_at(step) for step in range(200)]
    assert rates[0] == pytest.approx(0.1, rel=1e-3) and max(rates) == pytest.approx(rates[9], rel=1e-3)
    assert rates[:10] == sorted(rates[:10]) and rates[9:] == sorted(rates[9:], reverse=True) and rates[-1] < 1e-3
    learner = learner_of(learning_rate=0.02)
    learner.step(3, learner.episodes[3])
    assert learner.optimizer.param_groups[0]["lr"] == pytest.approx(0.02 * tiny().decay_at(3))


def test_gradients_are_clipped() -> None:
    learner = learner_of(clip=1e-3)
    learner.move(learner.episodes[0])
    norms = [p.grad.norm() for p in learner.network.parameters() if p.grad is not None]
    assert float(torch.stack(norms).norm()) == pytest.approx(1e-3, rel=1e-3)


def test_a_start_is_where_training_begins() -> None:
    given = {name: value + 1 for name, value in learner_of().network.state_dict().items()}
    learner = TrailLearner([umls().known_graph], tiny(), given)
    assert all(torch.equal(learner.weights[name][0], value) for name, value in given.items())


# Several graphs


@functools.cache
def second_graph() -> str:
    folder = Path(KEPT.name) / "second"
    fold_benchmark(umls(), 0).save(folder)
    return str(folder)


def test_episodes_come_from_all_graphs(tmp_path: Path) -> None:
    settings = tiny(also=second_graph())
    graphs = graphs_of(brief(), settings)
    assert [graph.fingerprint for graph in graphs] == [
        brief().known_graph.fingerprint,
        fold_benchmark(umls(), 0).known_graph.fingerprint,
    ]
    learner = TrailLearner(graphs, settings)
    assert {learner.episodes[step].graph for step in range(20)} == {0, 1}
    train(settings, tmp_path / "run")
    assert torch.isfinite(torch.as_tensor(open_run(tmp_path / "run", brief())(question(brief())))).all()
    with pytest.raises(FewlinkError, match="trained with also = "):
        train(tiny(), tmp_path / "run")


# What is refused


def test_a_graph_without_relations_to_learn_from_is_named(tmp_path: Path) -> None:
    ring = id_graph([(h, 0, (h + 1) % 20) for h in range(20)], 20, 1)
    dev = [task_of([(h, (h + 2) % 20) for h in range(10)], range(20))]
    poor = benchmark_of(ring, dev=dev)
    with pytest.raises(FewlinkError, match="small"):
        train(tiny(), tmp_path / "run", poor)
    Benchmark("poor", ring, {"train": [], "dev": dev, "test": []}).save(tmp_path / "poor")
    with pytest.raises(FewlinkError, match="poor"):
        train(tiny(also=str(tmp_path / "poor")), tmp_path / "run")
    with pytest.raises(FewlinkError, match="nowhere"):
        train(tiny(also="nowhere"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 12},
        {"width": 0},
        {"layers": 0},
        {"relation_layers": -1},
        {"average": 1.0},
        {"learning_rate": 0.0},
        {"clip": 0.0},
        {"candidates": 7, "queries": 4},
        {"evaluate_candidates": "open"},
        {"device": "tpu"},
        {"steps": 2.5},
    ],
)
def test_settings_are_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(FewlinkError, match=next(iter(changes))):
        tiny(**changes)


def test_as_few_candidates_as_allowed_will_do() -> None:
    assert torch.isfinite(learner_of(queries=4, candidates=8).run_steps(0, 3).losses["loss"]).all()
    assert torch.isfinite(learner_of(relation_layers=0).run_steps(0, 1).losses["loss"]).all()


def test_every_setting_is_described() -> None:
    assert all(field.description for field in TrailSettings.model_fields.values())


def test_memory_grows_with_the_graph_and_with_what_is_kept_for_gradients() -> None:
    def bytes_of(graph: Graph, **more: Any) -> float:
        return sum(FAMILY.memory(graph, NoVectors(), tiny(), **more).values())

    assert bytes_of(umls().graph) < bytes_of(umls().graph, training=True)
    assert bytes_of(town().graph) < bytes_of(umls().graph)


def test_trail_from_the_command_line(fewlink: Fewlink) -> None:
    words = [f"--set={name}={value}" for name, value in TINY.items()]
    done = fewlink("train", "umls", "--model", "trail", "--out", "run", *words, "--json")
    assert done.code == 0, done.err
    told = fewlink("evaluate", "run", "--json", "--results", "r")
    assert told.code == 0 and json.loads(told.out)["model"] == "trail"


# Several processes

SMOOTH = functools.partial(torch.optim.AdamW, eps=1e-5)  # does not blow up the rounding of a gradient that is 0
SCRIPT = """
import os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
os.fsync = lambda handle: None
from fewlink.core import distributed
from tests.models.trail.test_learn import SMOOTH, tiny, train

torch.optim.AdamW = SMOOTH
with distributed.processes("cpu"):
    assert distributed.count() == 2
    train(tiny(), Path(sys.argv[1]) / "two")
    train(tiny(), Path(sys.argv[1]) / "begun")
"""


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path: Path) -> None:
    whole_one = tmp_path / "one"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "AdamW", SMOOTH)
        train(tiny(), whole_one)
        whole = TrailLearner.step

        def stopped(self: TrailLearner, number: int, batch: Batch) -> Any:
            if number == 3:
                raise KeyboardInterrupt
            return whole(self, number, batch)

        patch.setattr(TrailLearner, "step", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(), tmp_path / "begun")
    (tmp_path / "script.py").write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--nproc-per-node", "2", "--master-port", str(port), str(tmp_path / "script.py"), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = load_file(whole_one / "last" / "weights.safetensors")
    for run in ("two", "begun"):
        found = load_file(tmp_path / run / "last" / "weights.safetensors")
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-3, atol=2e-5)
        for mine, theirs in zip(lines_of(tmp_path / run), lines_of(whole_one), strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)


def test_a_further_graph_that_has_changed_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "more.tsv"
    rows = [f"a{i}\tr{i % 2}\ta{(i * 7 + 3) % 30}" for i in range(30)]
    rows += [f"a{i}\ts\ta{(i * 11 + 5) % 30}" for i in range(30)]
    place.write_text("\n".join(rows) + "\n")
    train(tiny(also=str(place)), tmp_path / "run")
    place.write_text("\n".join(rows[1:]) + "\n")
    with pytest.raises(FewlinkError, match="trained with graphs "):
        train(tiny(also=str(place)), tmp_path / "run", dataclasses.replace(brief()))  # opened again


def test_steps_read_graphs_by_their_shares() -> None:
    graph = umls().known_graph
    learner = TrailLearner([graph, graph], tiny(), shares=[0.0, 1.0])
    assert {learner.episodes[step].graph for step in range(5)} == {1}
