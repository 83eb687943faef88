"""Meta-training is Algorithm 1, learns, stops early, continues to the bit, and refuses what is not its run."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from conftest import benchmark_of
from fewlink.embeddings import Embeddings
from fewlink.errors import FewlinkError, InputError
from fewlink.evaluation import Protocol, evaluate
from fewlink.models import MODELS, FewShotModel, build
from fewlink.scorers import learning_free
from fewlink.storage import open_folder
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.tasks.episodes import EpisodeSampler
from fewlink.training import RunConfig, TrainingSettings, is_run, open_run, train
from fewlink.training import run as run_room
from fewlink.training.checkpoints import FORMAT, only_one
from fewlink.training.run import assemble, keep_lines
from fewlink.training.trainer import Trainer


@functools.cache
def umls() -> Benchmark:
    return open_benchmark("umls")


@functools.cache
def vectors(seed: int = 0, dim: int = 8) -> Embeddings:
    """Random vectors: enough for everything but quality."""
    graph, random = umls().graph, torch.Generator().manual_seed(seed)
    sizes = (len(graph.entities), dim), (2 * len(graph.relations), dim)
    return Embeddings(*(torch.randn(size, generator=random) for size in sizes), "transe")


SMALL: dict[str, Any] = {"batch": 8, "steps": 6, "evaluate_every": 2, "neighbours": 4}


def small(**changes: Any) -> TrainingSettings:
    return TrainingSettings(**{**SMALL, **changes})


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Small products are quicker on one thread, above all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def timeless(run: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k not in ("seconds", "steps_per_second")} for line in lines_of(run)]


def saved(run: Path) -> list[bytes]:
    """Everything of a run that must not depend on how often it was stopped."""
    files = ("last/weights", "last/optimizer", "best/weights")
    return [(run / f"{file}.safetensors").read_bytes() for file in files]


@pytest.mark.parametrize("loss", ["hinge", "softmax"])
def test_steps_equal_a_literal_algorithm_1(loss: str) -> None:
    settings = small(loss=loss, negatives=2, decay_every=2, reconstruction=0.1, clip=0.5, margin=1.0)
    trainer = Trainer(umls(), vectors(), settings)
    trainer.model.double(), trainer.surroundings.double()  # Adam blows up the rounding of gradients that are zero
    for step in range(4):
        trainer.step(step, *trainer.lesson(trainer.sampler(step)))

    model, around = assemble(umls().graph, vectors(), settings, "cpu")
    model.double(), around.double()
    adam = torch.optim.Adam(model.parameters(), 1e-3)
    sampler = EpisodeSampler(umls().tasks["train"], len(umls().graph.entities), shots=3, batch=8, negatives=2)
    for step in range(4):
        episode = sampler(step)
        references = torch.tensor(episode.references.tolist())[None]
        total = torch.zeros((), dtype=torch.float64)
        for (head, tail), polluted in zip(episode.queries.tolist(), episode.negatives.tolist(), strict=True):
            true, *false = (
                model(references, torch.tensor([[[head, t]]]), around)[0].squeeze() for t in (tail, *polluted)
            )
            if loss == "hinge":
                total = total + sum(torch.relu(1.0 + f - true) for f in false) / (8 * 2)
            else:
                total = total - torch.stack([true, *false]).log_softmax(0)[0] / 8
        total = total + 0.1 * model(references, references, around)[1].squeeze()
        adam.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        adam.param_groups[0]["lr"] = 1e-3 * 0.25 ** (step // 2)
        adam.step()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], value, rtol=1e-6, atol=1e-8)


def test_it_learns_and_the_best_checkpoint_gives_its_figures(tmp_path: Path) -> None:
    settings = small(steps=150, evaluate_every=50, batch=32, negatives=4, loss="softmax", learning_rate=5e-3)
    result = train(umls(), vectors(dim=16), settings, tmp_path / "run")
    protocol = Protocol("dev", 3, "full")
    chance = evaluate(umls(), learning_free("random", umls().graph), protocol).metrics()["micro"]["mrr"]
    assert result.best["mrr"] > 1.5 * chance
    scorer = open_run(tmp_path / "run", umls())
    assert scorer.name == "fsrl"
    assert evaluate(umls(), scorer, protocol).metrics()["micro"] == result.best
    lines = lines_of(tmp_path / "run")
    assert [line["step"] for line in lines] == [50, 100, 150]
    assert max(lines, key=lambda line: line["dev"]["mrr"])["step"] == result.best_step
    assert lines[-1]["rank_loss"] < lines[0]["rank_loss"]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_and_is_opened_again(name: str, tmp_path: Path) -> None:
    settings = small(model=name, steps=2, evaluate_candidates="paper", matching_steps=1)
    result = train(umls(), vectors(), settings, tmp_path / "run")
    found = evaluate(umls(), open_run(tmp_path / "run", umls()), Protocol("dev", 3, "paper")).metrics()["micro"]
    assert found == result.best
    assert (lines_of(tmp_path / "run")[0]["reconstruction_loss"] > 0) == (name in RECONSTRUCTING)


RECONSTRUCTING = ("fsrl", "fsrl-as1", "fsrl-as2b", "fsrl-as3")


def test_a_continued_run_equals_an_undisturbed_one(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    train(umls(), vectors(), small(), tmp_path / "whole")
    train(umls(), vectors(), small(steps=2), tmp_path / "parts")
    train(umls(), vectors(), small(steps=4), tmp_path / "parts")
    train(umls(), vectors(), small(), tmp_path / "parts", on_event=events.append)
    assert saved(tmp_path / "whole") == saved(tmp_path / "parts")
    assert timeless(tmp_path / "whole") == timeless(tmp_path / "parts")
    assert [(e["event"], e["step"], e["steps"]) for e in events] == [("continued", 4, 6), ("evaluated", 6, 6)]
    assert RunConfig.read(tmp_path / "parts").settings.steps == 6
    before = saved(tmp_path / "parts")
    again = train(umls(), vectors(), small(), tmp_path / "parts")
    assert again.step == 6 and saved(tmp_path / "parts") == before and len(lines_of(tmp_path / "parts")) == 3


def test_sums_over_threads_have_one_order() -> None:
    torch.set_num_threads(2)
    ends = []
    for _ in range(3):
        trainer = Trainer(umls(), vectors(dim=80), TrainingSettings(neighbours=8))  # gathers large enough to be split
        with trainer.exactly():
            trainer.step(0, *trainer.lesson(trainer.sampler(0)))
        ends.append(trainer.model.state_dict())
    for name, value in ends[0].items():
        assert all(torch.equal(value, end[name]) for end in ends[1:]), name


class Dropping(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.dropout = inner, nn.Dropout(0.5)

    def forward(self, references: torch.Tensor) -> Any:
        return self.inner(self.dropout(references))


def test_dropout_is_a_function_of_seed_and_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dropping(name: str, dim: int, *, steps: int) -> FewShotModel:
        model = build(name, dim, steps=steps)
        model.aggregator = Dropping(model.aggregator)
        return model

    monkeypatch.setattr(run_room, "build", dropping)
    torch.manual_seed(1)
    train(umls(), vectors(), small(), tmp_path / "whole")
    torch.manual_seed(2)
    before = torch.get_rng_state()
    train(umls(), vectors(), small(steps=2), tmp_path / "parts")
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.are_deterministic_algorithms_enabled()
    train(umls(), vectors(), small(), tmp_path / "parts")
    assert saved(tmp_path / "whole") == saved(tmp_path / "parts")


def test_it_stops_without_a_better_evaluation_and_stays_stopped(tmp_path: Path) -> None:
    settings = small(learning_rate=1e-12, steps=100, patience=3)  # ranks never change
    result = train(umls(), vectors(), settings, tmp_path)
    assert (result.step, result.best_step, result.stopped) == (8, 2, "patience")
    assert open_folder(tmp_path / "best", FORMAT)["step"] == 2
    assert open_folder(tmp_path / "last", FORMAT)["step"] == 8
    assert train(umls(), vectors(), settings, tmp_path).step == 8


def test_the_last_evaluation_is_at_the_last_step(tmp_path: Path) -> None:
    train(umls(), vectors(), small(steps=5), tmp_path)
    assert [line["step"] for line in lines_of(tmp_path)] == [2, 4, 5]


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Trainer.step

    def poisoned(self: Trainer, number: int, *lesson: torch.Tensor) -> Any:
        if number == 4:
            next(iter(self.parameters.values())).data.fill_(float("inf"))
        return whole(self, number, *lesson)

    monkeypatch.setattr(Trainer, "step", poisoned)
    with pytest.raises(FewlinkError, match=r"the loss is (nan|inf) in step 5: .* the last checkpoint is whole"):
        train(umls(), vectors(), small(), tmp_path / "run")
    assert [line["step"] for line in lines_of(tmp_path / "run")] == [2, 4]
    open_run(tmp_path / "run", umls())
    monkeypatch.undo()
    train(umls(), vectors(), small(), tmp_path / "run")
    train(umls(), vectors(), small(), tmp_path / "whole")
    assert saved(tmp_path / "run") == saved(tmp_path / "whole")


def test_parameters_that_are_no_numbers_stop_before_they_are_ranked(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match=r"(in|after) step \d: train with a smaller learning_rate"):
        train(umls(), vectors(), small(learning_rate=1e38), tmp_path / "run")
    assert not (tmp_path / "run" / "last").exists()
    with pytest.raises(InputError, match="has no checkpoint yet"):
        open_run(tmp_path / "run", umls())


def test_a_line_names_its_phases(tmp_path: Path) -> None:
    train(umls(), vectors(), small(steps=2), tmp_path)
    (line,) = lines_of(tmp_path)
    assert set(line["seconds"]) == {"sampling", "step", "evaluation", "saving"}
    assert all(seconds > 0 for seconds in line["seconds"].values()) and line["steps_per_second"] > 0
    assert line["loss"] == pytest.approx(line["rank_loss"] + 1e-4 * line["reconstruction_loss"])


def test_another_run_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(umls(), vectors(), small(steps=4), run)
    before = saved(run)
    fold = umls().with_fold(0, 3)
    for benchmark, table, settings, message in (
        (umls(), vectors(), small(steps=4, batch=9), "trained with batch = 8, and 9 is asked for"),
        (umls(), vectors(), small(steps=4, seed=1), "trained with seed = 0"),
        (umls(), vectors(), small(steps=2), "trained for 4 steps, and 2 are asked for"),
        (umls(), vectors(seed=1), small(steps=4), "other embeddings"),
        (fold, vectors(), small(steps=4), "other benchmark"),
    ):
        with pytest.raises(FewlinkError, match=message):
            train(benchmark, table, settings, run)
    assert saved(run) == before and RunConfig.read(run).settings == small(steps=4)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    with pytest.raises(FewlinkError, match="is not a training run"):
        train(umls(), vectors(), small(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    assert not is_run(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        open_run(tmp_path, umls())


def test_vectors_that_lie_in_the_folder_are_used_and_never_replaced(tmp_path: Path) -> None:
    vectors(seed=1).save(tmp_path / "embeddings", umls().graph.fingerprint, graph="mine")
    before = {path: path.read_bytes() for path in (tmp_path / "embeddings").iterdir()}
    with pytest.raises(FewlinkError, match="holds other embeddings and is not a training run"):
        train(umls(), vectors(), small(), tmp_path)
    train(umls(), vectors(seed=1), small(steps=1), tmp_path)
    assert {path: path.read_bytes() for path in (tmp_path / "embeddings").iterdir()} == before


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with only_one(tmp_path), pytest.raises(FewlinkError, match="being trained by another process"):
        train(umls(), vectors(), small(), tmp_path)
    train(umls(), vectors(), small(steps=1), tmp_path)


def test_the_scorer_belongs_to_its_graph(tmp_path: Path) -> None:
    from conftest import id_graph

    train(umls(), vectors(), small(steps=1), tmp_path)
    assert is_run(tmp_path)
    other = benchmark_of(id_graph([(0, 0, 1)]))
    with pytest.raises(InputError, match=r"trained on the graph of umls \(123 entities\), which is not that of small"):
        open_run(tmp_path, other)


def test_what_cannot_be_evaluated_or_sampled_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    tasks = umls().tasks
    without = Benchmark("umls", umls().graph, {**tasks, "dev": []})
    for benchmark, settings, message in (
        (without, small(), "no dev relations"),
        (umls(), small(shots=60), "too few for 60 references"),
        (Benchmark("umls", umls().graph, {**tasks, "train": []}), small(), "no training relations"),
    ):
        with pytest.raises(FewlinkError, match=message):
            train(benchmark, vectors(), settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_lines_are_cut_back_and_made_good(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "a": 1}\n{"step": 4, "a": 2}\n{"step": 6, "a": 3}\n{"step": 8, "a"')
    keep_lines(tmp_path, {"step": 4, "a": 0})
    assert lines_of(tmp_path) == [{"step": 2, "a": 1}, {"step": 4, "a": 2}]
    path.write_text('{"step": 2, "a": 1}\n{"ste')
    keep_lines(tmp_path, {"step": 4, "a": 0})
    assert lines_of(tmp_path) == [{"step": 2, "a": 1}, {"step": 4, "a": 0}]
    keep_lines(tmp_path, {})
    assert lines_of(tmp_path) == []


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    train(umls(), vectors(), small(steps=2), tmp_path)
    weights = tmp_path / "last" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    for attempt in (lambda: train(umls(), vectors(), small(), tmp_path), lambda: open_run(tmp_path, umls())):
        with pytest.raises(InputError, match="changed or damaged"):
            attempt()


def test_episodes_are_laid_out_query_by_query() -> None:
    trainer = Trainer(umls(), vectors(), small(negatives=3))
    episode = trainer.sampler(0)
    references, pairs = trainer.lesson(episode)
    assert references.shape == (1, 3, 2) and pairs.shape == (1, 8 + 8 * 3, 2)
    assert np.array_equal(pairs[0, :8], episode.queries)
    for q in range(8):
        rows = pairs[0, 8 + 3 * q : 8 + 3 * q + 3]
        assert set(rows[:, 0].tolist()) == {int(episode.queries[q, 0])}
        assert rows[:, 1].tolist() == episode.negatives[q].tolist()
