"""TRAIL in run folders: trained, stopped, continued, opened and evaluated like every other model."""

from __future__ import annotations

import functools
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.runs import lines_of, quick, saved, small, timeless, umls, vectors
from typer.testing import CliRunner

from fewlink.base.errors import FewlinkError, InputError
from fewlink.cli import app
from fewlink.data import Benchmark
from fewlink.data.training_graph import known_graph
from fewlink.embeddings import Embeddings
from fewlink.evaluation import Protocol, evaluate
from fewlink.fewshot.model import FewShotSettings
from fewlink.trail_0_1.context import QueryHeads, TaskContext
from fewlink.trail_0_1.evidence.base import ColumnEvidence
from fewlink.trail_0_1.learner import (
    SCALE_EPISODES,
    Trail01Learner,
    Trail01Vectors,
    hard_negatives,
    pretrain_views,
    vector_settings,
)
from fewlink.trail_0_1.model import Trail01Settings, compositions
from fewlink.trail_0_1.scorer import Trail01Scorer
from fewlink.training import RunResult, open_run
from fewlink.training.family import trained_family
from fewlink.training.trainer import train_run

__all__ = ["quick"]
KEPT = tempfile.TemporaryDirectory()
TINY: dict[str, Any] = {"steps": 4, "evaluate_every": 2, "lessons": 1, "queries": 4, "candidates": 20, "hard": 5}


def tiny(**changes: Any) -> Trail01Settings:
    return Trail01Settings(**{**TINY, "views": 2, "relations": 2, "complex_epochs": 1, "transe_epochs": 1, **changes})


@functools.cache
def tables(seed: int = 0, views: int = 2) -> Trail01Vectors:
    """Random vectors that say they are of this benchmark."""
    graph, random = known_graph(umls()), torch.Generator().manual_seed(seed)

    def table(model: str) -> Embeddings:
        sizes = (len(graph.entities), 8), (2 * len(graph.relations), 8)
        facts = {"benchmark": umls().fingerprint}
        return Embeddings(*(torch.randn(size, generator=random) for size in sizes), model, facts=facts)

    pairs = [(table("complex"), table("transe")) for _ in range(1 + views)]
    return Trail01Vectors(pairs[0], tuple(pairs[1:]))


@functools.cache
def whole_run() -> tuple[Path, RunResult]:
    """A run that is never changed by a test."""
    run = Path(KEPT.name) / "whole"
    return run, train_run(umls(), tables(), tiny(), run)


@functools.cache
def learnt() -> Trail01Learner:
    """A learner after one step, which is only asked."""
    learner = Trail01Learner(umls(), tables(), tiny(), [0])
    learner.advance(0, 1)
    return learner


def test_a_run_that_was_stopped_ends_in_the_same_bytes(tmp_path: Path) -> None:
    whole_one, _ = whole_run()
    run = tmp_path / "parts"
    with pytest.MonkeyPatch.context() as patch:
        whole = Trail01Learner.step

        def stopped(self: Trail01Learner, number: int, lessons: Any) -> Any:
            if number == 3:
                raise KeyboardInterrupt
            return whole(self, number, lessons)

        patch.setattr(Trail01Learner, "step", stopped)
        with pytest.raises(KeyboardInterrupt):
            train_run(umls(), tables(), tiny(), run)
    assert lines_of(run)[-1]["step"] == 2
    train_run(umls(), tables(), tiny(), run)
    assert saved(run) == saved(whole_one) and timeless(run) == timeless(whole_one)


def test_a_run_opens_as_the_scorer_that_was_best() -> None:
    run, result = whole_run()
    scorer = open_run(run, umls())
    assert isinstance(scorer, Trail01Scorer) and scorer.name == "trail-0.1"
    assert evaluate(umls(), scorer, Protocol("dev")).metrics()["micro"]["mrr"] == result.best["mrr"]


@pytest.mark.parametrize("shots", [1, 2, 5, 20])
def test_any_number_of_references_will_do(shots: int) -> None:
    few = [replace(task, pairs=task.pairs[: shots + 4]) for task in umls().split("test")]
    benchmark = Benchmark("few", umls().graph, {**umls().tasks, "test": few})
    figures = evaluate(benchmark, learnt().scorer(0), Protocol("test", shots)).metrics()["micro"]
    assert 0 < figures["mrr"] <= 1


def test_seeds_differ_and_a_seed_does_not() -> None:
    losses = [Trail01Learner(umls(), tables(), tiny(), [seed]).advance(0, 2)[0] for seed in (0, 0, 1)]
    assert torch.equal(losses[0], losses[1]) and not torch.equal(losses[0], losses[2])


def test_an_episode_comes_again_only_after_all_others() -> None:
    store = Trail01Learner(umls(), tables(), tiny(), [0]).episodes
    count = len(store.index)
    seen = [number for step in range(count) for number in store.numbers(step)]
    assert sorted(seen[:count]) == sorted(seen[count:]) == list(range(count)) and seen[:count] != seen[count:]


def test_an_episode_keeps_references_queries_and_other_answers_apart() -> None:
    store = Trail01Learner(umls(), tables(), tiny(queries=10), [0]).episodes
    for number in range(0, len(store.index), 7):
        view, task_number, _ = store.index[number]
        task, episode = store.views[view][1][task_number], store[number]
        asked = episode.inputs
        known = {(int(h), int(t)) for h, t in task.known}
        references = {(int(h), int(t)) for h, t in asked.references}
        heads, tails = asked.heads[episode.rows], asked.candidates[episode.columns]
        queries = set(zip(heads.tolist(), tails.tolist(), strict=True))
        assert references <= known and queries <= known and not references & queries
        for row, (head, tail) in enumerate(zip(heads.tolist(), tails.tolist(), strict=True)):
            others = {int(c) for c in asked.candidates[episode.excluded[row]]}
            assert others == {t for h, t in known if h == head and t != tail} & set(asked.candidates.tolist())


def test_an_episode_has_the_hardest_candidates() -> None:
    store = Trail01Learner(umls(), tables(), tiny(candidates=1, hard=1000), [0]).episodes
    for number in range(0, len(store.index), 9):
        view, task_number, _ = store.index[number]
        (graph, tasks), asked = store.views[view], store[number].inputs
        range_ = torch.from_numpy(tasks[task_number].range.astype("int64"))
        heads = QueryHeads(TaskContext(graph, asked.references), asked.heads)
        hardest = hard_negatives(heads, range_, store.composition.scoring)
        assert set(hardest.tolist()) <= set(asked.candidates.tolist())


def test_episodes_made_two_at_a_time_are_those_made_one_by_one(two_threads: None) -> None:
    together, alone = (Trail01Learner(umls(), tables(), tiny(), [0]).episodes for _ in range(2))
    numbers = range(0, len(together.index), 3)
    made = together.get(numbers)
    torch.set_num_threads(1)
    torch.testing.assert_close(made, alone.get(numbers), rtol=0, atol=0)


def test_features_are_scaled_before_the_first_step() -> None:
    learner = learnt()
    steps = -(-min(SCALE_EPISODES, len(learner.episodes.index)) // 2)
    numbers = [number for step in range(steps) for number in learner.episodes.numbers(step)]
    for kind in ("bilinear", "translation", "profile"):
        part = learner.model.parts[kind]
        assert isinstance(part, ColumnEvidence)
        columns = torch.cat([learner.episodes[n].inputs.features[kind][0].float().flatten(0, 1) for n in numbers])
        torch.testing.assert_close(part.standard.mean, columns.mean(0), rtol=1e-3, atol=1e-3)


def test_training_lowers_the_loss() -> None:
    learner = Trail01Learner(umls(), tables(), tiny(steps=30, relations=4), [0])
    losses = learner.advance(0, 30)[0][:, 0, 0]
    assert losses[-5:].mean() < losses[:5].mean()


def test_vectors_of_another_benchmark_or_kind_are_refused(tmp_path: Path) -> None:
    other = Benchmark("other", umls().graph, {**umls().tasks, "train": umls().split("train")[:3]})
    with pytest.raises(FewlinkError, match="not trained on the views of other"):
        train_run(other, tables(), tiny(), tmp_path / "run")
    with pytest.raises(FewlinkError, match="vectors of the known graph and of each view"):
        train_run(umls(), vectors(), tiny(), tmp_path / "run")
    with pytest.raises(FewlinkError, match="one table of vectors"):
        train_run(umls(), tables(), small(), tmp_path / "run")


def test_a_run_is_for_the_relations_it_knows() -> None:
    run, _ = whole_run()
    other = Benchmark("other", umls().graph, {**umls().tasks, "train": umls().split("train")[:3]})
    with pytest.raises(InputError, match="train relations of umls"):
        open_run(run, other)


def test_vectors_of_views_are_trained_once_and_kept(tmp_path: Path) -> None:
    epochs: list[str] = []

    def told(title: str) -> Any:
        return lambda trace: epochs.append(title)

    made = pretrain_views(umls(), tiny(), out=tmp_path / "v", on_epoch=told)
    assert len(made.views) == 2 and len(epochs) == 6
    again = pretrain_views(umls(), tiny(), out=tmp_path / "v", on_epoch=told)
    assert len(epochs) == 6 and again.digest() == made.digest()
    with pytest.raises(FewlinkError, match="other settings"):
        pretrain_views(umls(), tiny(transe_epochs=2), out=tmp_path / "v")
    made.save(tmp_path / "copy", umls().graph.fingerprint)
    assert Trail01Vectors.open(tmp_path / "copy").digest() == made.digest()
    assert Trail01Vectors.open(tmp_path / "copy", for_training=False).views == ()


def test_vectors_of_another_number_of_views_are_not_taken(tmp_path: Path) -> None:
    """View 0 of one view hides other relations than view 0 of two: its vectors would have seen answers."""
    pretrain_views(umls(), tiny(views=2), out=tmp_path / "v")
    with pytest.raises(FewlinkError, match="other settings or of another benchmark"):
        pretrain_views(umls(), tiny(views=1), out=tmp_path / "v")
    with pytest.raises(FewlinkError, match="vectors of 2 views, not 3"):
        Trail01Learner(umls(), tables(), tiny(views=3), [0])


def test_settings_are_of_the_model() -> None:
    assert trained_family("trail-0.1").settings is trained_family("trail-0.1-no-paths").settings is Trail01Settings
    assert trained_family("fsrl").settings is FewShotSettings
    with pytest.raises(FewlinkError, match="did you mean"):
        trained_family("trial-0.1")
    assert vector_settings(tiny(), "transe").epochs == 1 and vector_settings(Trail01Settings(), "complex").epochs == 16
    rates = [Trail01Settings(steps=20).decay_at(step) for step in range(20)]
    assert rates[1] == 1 and rates[:2] == sorted(rates[:2]) and rates[1:] == sorted(rates[1:], reverse=True)
    with pytest.raises(FewlinkError, match="most_shots"):
        replace(tiny(), most_shots=0)


def test_trail_from_the_command_line(tmp_path: Path) -> None:
    wanted = {*TINY, "views", "relations", "complex_epochs", "transe_epochs"}
    run, more = str(tmp_path / "run"), [f"--set={k}={v}" for k, v in tiny().as_dict().items() if k in wanted]
    ask = CliRunner().invoke
    done = ask(app, ["train", "umls", "--model", "trail-0.1", "--out", run, *more, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    longer = ask(app, ["train", "--resume", run, "--set", "steps=4", "--set", "patience=11"], catch_exceptions=False)
    assert longer.exit_code == 0, longer.output
    told = ask(app, ["evaluate", run, "--json", "--results", str(tmp_path / "r")], catch_exceptions=False)
    assert json.loads(told.stdout)["model"] == "trail-0.1"


def test_every_composition_is_listed() -> None:
    told = CliRunner().invoke(app, ["models", "--json"])
    assert set(compositions()) <= {model["name"] for model in json.loads(told.stdout)}
    settings = CliRunner().invoke(app, ["models", "--settings", "--model", "trail-0.1", "--json"])
    assert {"views", "lessons"} <= {row["name"] for row in json.loads(settings.stdout) if row["about"]}
