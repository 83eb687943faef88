"""Several seeds at once are each seed alone: in their steps, in their checkpoints, and wherever they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.runs import doubled, everything, lines_of, saved, small, timeless, umls, vectors
from tests.training.runs import quick as quick

from fewlink.core.errors import FewlinkError
from fewlink.models.fsrl.model import COMPOSITIONS
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.training import RunConfig, train_runs
from fewlink.training import trainer as trainer_room
from fewlink.training.trainer import Trainer, train_run

SEEDS = (0, 1, 2)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def same_weights(three: Trainer, run: int, alone: Trainer) -> None:
    (found, moments), (expected, own_moments) = three.learner.state(run), alone.learner.state(0)
    assert found.keys() == expected.keys() and moments.keys() == own_moments.keys()
    for name, value in expected.items():
        close(found[name], value)


def settings_of(**changes: Any) -> FewShotSettings:
    return small(negatives=2, relations=2, clip=0.5, reconstruction=0.1, **changes)


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_steps_side_by_side_equal_each_seed_alone(name: str) -> None:
    settings = settings_of(model=name)
    three = doubled(settings, *SEEDS)
    losses = three.learner.learn(0, three.learner.ids(0, 4))  # (steps, 3, S)
    assert not torch.allclose(losses[..., 0], losses[..., 1])
    for run, seed in enumerate(SEEDS):
        alone = doubled(settings, seed)
        close(losses[..., run], alone.learner.learn(0, alone.learner.ids(0, 4))[..., 0])
        same_weights(three, run, alone)


@pytest.mark.parametrize("loss", ["hinge", "softmax"])
def test_shared_negatives_and_trained_vectors_side_by_side(loss: str) -> None:
    settings = settings_of(loss=loss, shared_negatives=True, embedding_rate=0.01, standardise=True, decay_every=2)
    three = doubled(settings, *SEEDS)
    losses = three.learner.learn(0, three.learner.ids(0, 4))
    for run, seed in enumerate(SEEDS):
        alone = doubled(settings, seed)
        close(losses[..., run], alone.learner.learn(0, alone.learner.ids(0, 4))[..., 0])
        same_weights(three, run, alone)
        assert three.evaluate(run) == pytest.approx(alone.evaluate(0), abs=1e-9)


def test_each_of_several_seeds_is_its_own_run(tmp_path: Path) -> None:
    """On the CPU to the byte, wherever each of them stood."""
    for seed in SEEDS:
        train_run(umls(), vectors(), small(seed=seed), tmp_path / f"alone-{seed}")
    train_run(umls(), vectors(), small(seed=2, steps=4), tmp_path / "begun-2")
    train_run(umls(), vectors(), small(seed=0), tmp_path / "begun-0")
    finished = everything(tmp_path / "begun-0" / "last")
    events: list[dict[str, Any]] = []
    for kind in ("new", "begun"):
        runs = {seed: tmp_path / f"{kind}-{seed}" for seed in SEEDS}
        results = train_runs(umls(), vectors(), small(seed=99), runs, on_event=events.append)
        assert [(result.run, result.step) for result in results] == [(run, 6) for run in runs.values()]
        for seed, run in runs.items():
            alone = tmp_path / f"alone-{seed}"
            assert saved(run) == saved(alone) and timeless(run) == timeless(alone)
            assert RunConfig.read(run) == RunConfig.read(alone)
    assert everything(tmp_path / "begun-0" / "last") == finished
    told = [(event["event"], event["seed"], event["step"]) for event in events]
    assert told[:9] == [("evaluated", seed, step) for seed in SEEDS for step in (2, 4, 6)]
    later = [*((1, step) for step in (2, 4, 6)), (2, 6)]
    assert told[9:] == [("continued", 0, 6), ("continued", 2, 4), *(("evaluated", *each) for each in later)]


def impatient(seed: int) -> Any:
    """An evaluation after which this seed has waited long enough, and no other."""
    whole = Trainer.evaluate

    def evaluate(self: Trainer, run: int) -> dict[str, float]:
        figures = whole(self, run)
        self.states[run].waited = self.settings.patience if self.seeds[run] == seed else 0
        return figures

    return evaluate


@pytest.mark.parametrize("grouped", [False, True])
def test_a_run_that_stopped_by_patience_is_left_alone(
    grouped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they train side by side, as on a GPU: the others go on without it."""
    next_group = trainer_room._next_group
    if grouped:
        monkeypatch.setattr(
            trainer_room, "_next_group", lambda s, settings: next_group(s, settings.replace(device="cuda"))
        )
    monkeypatch.setattr(Trainer, "evaluate", impatient(seed=1))
    runs = {seed: tmp_path / str(seed) for seed in SEEDS}
    results = train_runs(umls(), vectors(), small(steps=4), runs)
    assert [(result.step, result.stopped) for result in results] == [(4, "steps"), (2, "patience"), (4, "steps")]
    assert [line["side_by_side"] for line in lines_of(runs[0])] == ([3, 2] if grouped else [1, 1])
    stopped = {path: content for path, (_, content) in everything(runs[1]).items() if path.name != "config.json"}
    results = train_runs(umls(), vectors(), small(steps=6), runs)
    assert [(result.step, result.stopped) for result in results] == [(6, "steps"), (2, "patience"), (6, "steps")]
    assert stopped.items() <= {path: content for path, (_, content) in everything(runs[1]).items()}.items()


def test_two_seeds_do_not_share_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError):
        train_runs(umls(), vectors(), small(steps=2), {0: tmp_path / "run", 1: tmp_path / "run"})
