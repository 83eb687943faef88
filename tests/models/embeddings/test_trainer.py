"""The trainer learns planted structure, is reproducible to the bit, resumes after SIGKILL and raises on NaN."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fewlink.core.errors import FewlinkError, InputError
from fewlink.models.embeddings import EmbeddingSettings
from fewlink.models.embeddings.trainer import train

ENTITIES = 100


def planted() -> np.ndarray:
    """Entities are the points of a 10 by 10 grid; each relation joins points at one fixed offset."""
    steps = enumerate(((1, 0), (0, 1), (1, 1), (2, 1)))
    return np.array(
        [[10 * x + y, r, 10 * (x + a) + y + b] for r, (a, b) in steps for x in range(10 - a) for y in range(10 - b)]
    )


SMALL: dict[str, Any] = {"dim": 16, "batch_size": 64, "negatives": 50, "epochs": 4, "n3": 0.01}


def small(**changes: Any) -> EmbeddingSettings:
    return EmbeddingSettings(**{**SMALL, **changes})


@pytest.mark.parametrize(
    "case",
    [
        {"model": "complex"},
        {"model": "complex", "regime": "one-vs-all"},
        {"model": "complex", "regime": "k-vs-all", "learning_rate": 0.3},
        {"model": "transe", "n3": 0.0},
        {"model": "rescal", "n3": 0.02},
        {"model": "transe", "norm": 1, "n3": 0.0},
    ],
    ids=str,
)
def test_planted_structure_is_learnt(case: dict[str, Any]) -> None:
    triples = planted()
    held = np.random.default_rng(0).permutation(len(triples)) < 30
    settings = small(dim=32, epochs=60, **{"n3": 0.01, **case})
    table = train(triples[~held], ENTITIES, 4, settings)
    heads, relations, tails = torch.from_numpy(triples[held]).T
    scores = table.score_all(heads, relations)
    ranks = 1 + (scores > scores.gather(1, tails[:, None])).sum(1)
    mrr = float((1 / ranks).mean())
    chance = sum(1 / rank for rank in range(1, ENTITIES + 1)) / ENTITIES
    assert mrr > 4 * chance, (mrr, chance)


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"regime": "one-vs-all", "schedule": "linear"},
        {"regime": "k-vs-all"},
        {"model": "rescal"},
    ],
    ids=str,
)
def test_a_resumed_run_equals_an_uninterrupted_run(case: dict[str, Any], tmp_path: Path) -> None:
    triples, settings = planted(), small(**case)
    whole = train(triples, ENTITIES, 4, settings)
    again = train(triples, ENTITIES, 4, settings)

    class Stop(Exception):
        pass

    def stop(trace: dict[str, Any]) -> None:
        raise Stop

    state = tmp_path / "state"
    for _ in range(4):
        with pytest.raises(Stop):
            train(triples, ENTITIES, 4, settings, resume=state, on_epoch=stop)
    resumed = train(triples, ENTITIES, 4, settings, resume=state, on_epoch=stop)
    for other in (again, resumed):
        assert torch.equal(whole.entities, other.entities)
        assert torch.equal(whole.relations, other.relations)


# One process loads torch and forks a child for each run; it has one thread, so that forking is safe.
RUNS = """
import json, multiprocessing, signal, sys, time
from pathlib import Path
import numpy as np, torch
from fewlink.models.embeddings import EmbeddingSettings
from fewlink.models.embeddings.trainer import train
torch.set_num_threads(1)
place = Path(sys.argv[1])
triples, settings = np.load(place / "triples.npy"), EmbeddingSettings(**json.loads(sys.argv[2]))

def run(name):
    table = train(triples, 100, 4, settings, resume=place / f"{name}.state")
    np.savez(place / f"{name}.npz", entities=table.entities.numpy(), relations=table.relations.numpy())

def start(name):
    child = multiprocessing.get_context("fork").Process(target=run, args=[name])
    child.start()
    return child

def written(state):
    try:
        return state.stat().st_mtime_ns
    except FileNotFoundError:  # it is being replaced
        return 0

def ended(child):
    child.join(120)
    return child.exitcode

assert ended(start("whole")) == 0
killed, state = 0, place / "killed.state"
for pause in (0.05, 0.2, 0.1):
    before, child = written(state), start("killed")
    while child.is_alive() and written(state) == before:
        time.sleep(0.005)
    time.sleep(pause)
    child.kill()
    killed += ended(child) == -signal.SIGKILL
assert killed >= 2, killed
assert ended(start("killed")) == 0
"""


@pytest.mark.slow
def test_a_run_killed_and_resumed_is_equal_to_the_bit(tmp_path: Path) -> None:
    np.save(tmp_path / "triples.npy", planted())
    settings = json.dumps({**SMALL, "epochs": 100, "dim": 64})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", RUNS, str(tmp_path), settings]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    whole, resumed = np.load(tmp_path / "whole.npz"), np.load(tmp_path / "killed.npz")
    for name in ("entities", "relations"):
        assert np.array_equal(whole[name], resumed[name])


def test_a_loss_that_is_not_finite_raises_and_leaves_the_last_state(tmp_path: Path) -> None:
    state = tmp_path / "state"
    triples = planted()
    train(triples, ENTITIES, 4, small(epochs=1), resume=state)
    good = (state / "weights.safetensors").read_bytes()
    with pytest.raises(FewlinkError, match=r"epoch 1, batch \d+.*learning_rate"):
        train(triples, ENTITIES, 4, small(learning_rate=1e25, epochs=3), resume=tmp_path / "bad")
    assert not (tmp_path / "bad").exists()
    assert (state / "weights.safetensors").read_bytes() == good


def test_other_settings_or_triples_raise(tmp_path: Path) -> None:
    state, triples = tmp_path / "state", planted()
    train(triples, ENTITIES, 4, small(epochs=1), resume=state)
    with pytest.raises(FewlinkError, match=r"dim = 16"):
        train(triples, ENTITIES, 4, small(dim=8), resume=state)
    with pytest.raises(FewlinkError, match="triples"):
        train(triples[1:], ENTITIES, 4, small(), resume=state)
    longer = train(triples, ENTITIES, 4, small(epochs=3), resume=state)
    assert torch.equal(longer.entities, train(triples, ENTITIES, 4, small(epochs=3)).entities)
    train(triples, ENTITIES, 4, small(epochs=1, schedule="linear"), resume=tmp_path / "falling")
    with pytest.raises(FewlinkError, match="epochs = 1"):
        train(triples, ENTITIES, 4, small(epochs=2, schedule="linear"), resume=tmp_path / "falling")


def test_a_damaged_state_raises(tmp_path: Path) -> None:
    state = tmp_path / "state"
    train(planted(), ENTITIES, 4, small(epochs=1), resume=state)
    weights = state / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 16
    weights.write_bytes(content)
    with pytest.raises(InputError, match=str(weights)):
        train(planted(), ENTITIES, 4, small(epochs=2), resume=state)


@pytest.mark.parametrize(
    ("triples", "message"),
    [
        (np.zeros((0, 3), dtype=int), "no triples"),
        (np.zeros((2, 2), dtype=int), "shape"),
        (np.array([[0, 4, 1]]), "relation ids run from 4 to 4"),
        (np.array([[0, 0, 100]]), "tail ids run from 100 to 100"),
    ],
)
def test_invalid_triples_raise(triples: np.ndarray, message: str) -> None:
    with pytest.raises(FewlinkError, match=message):
        train(triples, ENTITIES, 4, small())
