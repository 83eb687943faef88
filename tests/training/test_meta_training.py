"""Meta-training is Algorithm 1, learns, stops early, and each of its settings does what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.training.runs import assembled, doubled, lines_of, saved, small, timeless, umls, vectors
from tests.training.runs import quick as quick
from torch import nn

from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.files import open_folder
from fewlink.evaluation import Protocol, evaluate
from fewlink.models.baselines import learning_free
from fewlink.models.checkpoints import FORMAT, load_best, load_state
from fewlink.models.fsrl.learner import FewShotLearner
from fewlink.models.fsrl.model import COMPOSITIONS
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.tasks.episodes import EpisodeSampler
from fewlink.training import open_run
from fewlink.training.trainer import Trainer, train_run

DEV = Protocol("dev", 3, "full")
RECONSTRUCTING = ("fsrl", "fsrl-as1", "fsrl-as2b", "fsrl-as3", "fsrl-released", "fsrl-tuned")


@pytest.mark.parametrize(
    ("loss", "relations", "rate"), [("hinge", 1, 0.0), ("softmax", 1, 0.0), ("hinge", 3, 0.0), ("softmax", 2, 0.01)]
)
def test_steps_equal_a_literal_algorithm_1(loss: str, relations: int, rate: float) -> None:
    """Step s averages over the episodes s·R to s·R + R - 1."""
    changes: dict[str, Any] = {"loss": loss, "relations": relations, "embedding_rate": rate, "negatives": 2}
    changes |= {"decay_every": 1, "decays": 2, "reconstruction": 0.1, "clip": 0.5, "margin": 1.0, "temperature": 2.0}
    settings = small(**changes)
    trainer = doubled(settings, 0)
    losses = trainer.learner.learn(0, trainer.learner.ids(0, 4))[..., 0]  # (steps, 3)

    model, around = assembled(settings)
    model.double(), around.double()
    tables = [around.entities.requires_grad_(), around.relations.requires_grad_()] if rate else []
    adam = torch.optim.Adam([{"params": [*model.parameters()], "lr": 1e-3}, {"params": tables, "lr": rate}])
    sampler = EpisodeSampler(umls().tasks["train"], len(umls().graph.entities), shots=3, batch=8, negatives=2)
    everyone = torch.arange(len(umls().graph.entities))
    for step in range(4):
        rank, restored = torch.zeros(2, dtype=torch.float64)
        for number in range(step * relations, (step + 1) * relations):
            _, references, queries, negatives = (part[0] for part in sampler(torch.tensor([number])))
            for (head, tail), polluted in zip(queries[0].tolist(), negatives[0].tolist(), strict=True):
                true, *false = (
                    model(everyone, references, torch.tensor([[[head, t]]]), around)[0].squeeze() / 2.0
                    for t in (tail, *polluted)
                )
                if loss == "hinge":
                    rank = rank + sum(torch.relu(1.0 + f - true) for f in false) / (relations * 8 * 2)
                else:
                    rank = rank - torch.stack([true, *false]).log_softmax(0)[0] / (relations * 8)
            restored = restored + model(everyone, references, references, around)[1].squeeze() / relations
        total = rank + 0.1 * restored
        torch.testing.assert_close(losses[step], torch.stack([total, rank, restored]).detach(), rtol=1e-6, atol=1e-8)
        adam.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_([*model.parameters(), *tables], 0.5)
        for group, first in zip(adam.param_groups, (1e-3, rate), strict=True):
            group["lr"] = first * 0.25 ** min(step, 2)
        adam.step()
    expected = model.state_dict() | {f"around.{n}": t for n, t in zip(("entities", "relations"), tables, strict=False)}
    found, _ = trainer.learner.state(0)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value.detach(), rtol=1e-6, atol=1e-8)


def test_it_learns_and_the_best_checkpoint_gives_its_figures(tmp_path: Path) -> None:
    settings = small(steps=150, evaluate_every=50, batch=32, negatives=4, loss="softmax", learning_rate=5e-3)
    result = train_run(umls(), vectors(dim=16), settings, tmp_path / "run")
    chance = evaluate(umls(), learning_free("random", umls().graph), DEV).metrics()["micro"]["mrr"]
    assert result.best["mrr"] > 1.5 * chance
    scorer = open_run(tmp_path / "run", umls())
    assert scorer.name == "fsrl"
    assert evaluate(umls(), scorer, DEV).metrics()["micro"] == result.best
    lines = lines_of(tmp_path / "run")
    assert [line["step"] for line in lines] == [50, 100, 150]
    assert max(lines, key=lambda line: line["dev"]["mrr"])["step"] == result.best_step
    assert lines[-1]["rank_loss"] < lines[0]["rank_loss"]


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_every_model_trains_and_is_opened_again(name: str, tmp_path: Path) -> None:
    settings = small(model=name, steps=2, evaluate_candidates="paper", matching_steps=1)
    result = train_run(umls(), vectors(), settings, tmp_path / "run")
    found = evaluate(umls(), open_run(tmp_path / "run", umls()), Protocol("dev", 3, "paper")).metrics()["micro"]
    assert found == result.best
    assert (lines_of(tmp_path / "run")[0]["reconstruction_loss"] > 0) == (name in RECONSTRUCTING)


@pytest.mark.parametrize("rate", [0.0, 0.01])
def test_sums_over_threads_have_one_order(rate: float, tmp_path: Path, two_threads: None) -> None:
    settings = FewShotSettings(model="fsrl-as3", neighbours=8, negatives=8, steps=2, embedding_rate=rate)
    ends = []
    for attempt in range(3):
        train_run(umls(), vectors(dim=80), settings, tmp_path / str(attempt))  # gathers large enough to be split
        ends.append(saved(tmp_path / str(attempt)))
    assert ends[0] == ends[1] == ends[2]


def test_it_stops_without_a_better_evaluation_and_stays_stopped(tmp_path: Path) -> None:
    settings = small(learning_rate=1e-12, steps=100, patience=3)  # ranks never change
    result = train_run(umls(), vectors(), settings, tmp_path)
    assert (result.step, result.best_step, result.stopped) == (8, 2, "patience")
    assert open_folder(tmp_path / "best", FORMAT)["step"] == 2
    assert open_folder(tmp_path / "last", FORMAT)["step"] == 8
    assert train_run(umls(), vectors(), settings, tmp_path).step == 8


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FewShotLearner.step

    def poisoned(self: FewShotLearner, number: int, batch: Any) -> Any:
        if number == 4:
            next(iter(self.weights.values())).data.fill_(float("inf"))
        return whole(self, number, batch)

    monkeypatch.setattr(FewShotLearner, "step", poisoned)
    with pytest.raises(FewlinkError, match="step 5 of seed 0"):
        train_run(umls(), vectors(), small(), tmp_path / "run")
    assert [line["step"] for line in lines_of(tmp_path / "run")] == [2, 4]
    open_run(tmp_path / "run", umls())
    monkeypatch.undo()
    train_run(umls(), vectors(), small(), tmp_path / "run")
    train_run(umls(), vectors(), small(), tmp_path / "whole")
    assert saved(tmp_path / "run") == saved(tmp_path / "whole")


def test_parameters_that_are_no_numbers_stop_before_they_are_ranked(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match=r"step \d of seed 0"):
        train_run(umls(), vectors(), small(learning_rate=1e38), tmp_path / "run")
    assert not (tmp_path / "run" / "last").exists()
    with pytest.raises(InputError) as error:
        open_run(tmp_path / "run", umls())
    assert error.value.path == tmp_path / "run"


@pytest.mark.parametrize("number", [1, 3, 5])
def test_training_is_saved_between_evaluations_and_continues_from_there(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, run_steps, taken = small(evaluate_every=4, steps=8), FewShotLearner.run_steps, list[int]()

    def stopped(self: FewShotLearner, first: int, count: int) -> Any:
        taken.append(first)
        if first == number and len(taken) == number + 1:
            raise KeyboardInterrupt
        return run_steps(self, first, count)

    monkeypatch.setattr(FewShotLearner, "run_steps", stopped)
    with pytest.raises(KeyboardInterrupt):
        train_run(umls(), vectors(), settings, tmp_path / "parts", save_every=0.0)
    state = load_state(tmp_path / "parts")
    assert state.step == number and state.since["step"] == number // 4 * 4 and not state.is_best
    assert load_best(tmp_path / "parts")[1] == (4 if number > 4 else number)
    open_run(tmp_path / "parts", umls())
    train_run(umls(), vectors(), settings, tmp_path / "parts", save_every=0.0)
    assert taken == [*range(number + 1), *range(number, 8)]
    monkeypatch.undo()
    train_run(umls(), vectors(), settings, tmp_path / "whole")
    assert saved(tmp_path / "parts") == saved(tmp_path / "whole")
    assert timeless(tmp_path / "parts") == timeless(tmp_path / "whole")
    assert not load_state(tmp_path / "parts").since


def test_a_line_names_its_phases(tmp_path: Path) -> None:
    train_run(umls(), vectors(), small(steps=2), tmp_path)
    (line,) = lines_of(tmp_path)
    assert set(line["seconds"]) == {"sampling", "step", "evaluation", "saving"}
    assert all(seconds > 0 for seconds in line["seconds"].values()) and line["steps_per_second"] > 0
    assert line["loss"] == pytest.approx(line["rank_loss"] + 1e-4 * line["reconstruction_loss"])
    assert line["side_by_side"] == 1


def test_the_rate_decays_so_many_times_at_most(tmp_path: Path) -> None:
    train_run(umls(), vectors(), small(decay_every=2, decays=1, decay=0.5, learning_rate=0.01), tmp_path)
    assert [line["learning_rate"] for line in lines_of(tmp_path)] == pytest.approx([0.01, 0.005, 0.005])


def test_pretrained_vectors_are_trained_where_they_have_a_rate(tmp_path: Path) -> None:
    settings = small(embedding_rate=0.05)
    given = [table.clone() for table in (vectors().entities, vectors().relations)]
    result = train_run(umls(), vectors(), settings, tmp_path / "moved")
    assert torch.equal(vectors().entities, given[0]) and torch.equal(vectors().relations, given[1])
    before = saved(tmp_path / "moved"), (tmp_path / "moved/embeddings/weights.safetensors").read_bytes()
    weights = load_file(tmp_path / "moved" / "best" / "weights.safetensors")
    scorer = open_run(tmp_path / "moved", umls())
    for name, start in (("entities", vectors().entities), ("relations", vectors().relations)):
        moved = weights[f"around.{name}"]
        assert (moved - start).abs().max() > 0.05 and torch.equal(getattr(scorer.around, name), moved)
    assert evaluate(umls(), scorer, DEV).metrics()["micro"] == result.best
    assert before == (saved(tmp_path / "moved"), (tmp_path / "moved/embeddings/weights.safetensors").read_bytes())

    train_run(umls(), vectors(), small(), tmp_path / "still")
    names = load_file(tmp_path / "still" / "best" / "weights.safetensors")
    assert not [name for name in names if name.startswith("around.")]
    assert torch.equal(open_run(tmp_path / "still", umls()).around.entities, given[0])


def test_vectors_are_standardised_where_asked(tmp_path: Path) -> None:
    plain, settings = small(steps=2), small(steps=2, standardise=True)
    around = Trainer(umls(), vectors(), settings, [0]).learner.module.around
    for table in (around.entities, around.relations):
        torch.testing.assert_close(table.mean(1), torch.zeros(len(table)), atol=1e-5, rtol=0)
        torch.testing.assert_close(table.std(1, correction=0), torch.ones(len(table)), atol=0.01, rtol=0)
    result = train_run(umls(), vectors(), settings, tmp_path / "run")
    assert evaluate(umls(), open_run(tmp_path / "run", umls()), DEV).metrics()["micro"] == result.best
    assert result.best != train_run(umls(), vectors(), plain, tmp_path / "plain").best
    kept = load_file(tmp_path / "run" / "embeddings" / "weights.safetensors")
    assert torch.equal(kept["entities"], vectors().entities)


def test_relations_of_a_small_range_are_left_out(tmp_path: Path) -> None:
    tasks = [task for task in umls().tasks["train"] if len(task.range) >= 105]
    assert 0 < len(tasks) < len(umls().tasks["train"]) and min(len(task.range) for task in tasks) == 105
    sampler = EpisodeSampler(tasks, len(umls().graph.entities), shots=3, batch=8)
    numbers = torch.arange(20)
    found = Trainer(umls(), vectors(), small(smallest_range=105), [0]).learner.sampler(numbers)
    assert all(torch.equal(a, b) for a, b in zip(found, sampler(numbers), strict=True))
    with pytest.raises(FewlinkError, match="smallest_range"):
        train_run(umls(), vectors(), small(smallest_range=1000), tmp_path / "run")
    assert not (tmp_path / "run").exists()
