"""Two processes of torchrun are one: in what they rank, in what they train, and in how they fail."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.training.runs import lines_of, saved, small, timeless, umls, vectors
from tests.training.runs import quick as quick

from fewlink.evaluation import Evaluation, Protocol, evaluate
from fewlink.models.baselines import learning_free
from fewlink.models.fsrl.scorer import FewShotScorer, initial_model, inputs_of
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.tasks import Benchmark
from fewlink.training import RunConfig
from fewlink.training.trainer import train_run

pytestmark = pytest.mark.slow

# Everything two processes are asked for, in one launch: starting them costs more than their work.
SCRIPT = """
import json, os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
os.fsync = lambda handle: None
from fewlink.core import distributed
from fewlink.core.errors import FewlinkError
from fewlink.training import trainer
from fewlink.training.trainer import train_run
from tests.training.runs import small, umls, vectors
from tests.training.test_processes import evaluations, ranks_of, shared

place, told = Path(sys.argv[1]), {}
exact = vectors(dtype=torch.float64)

def refused(settings, run):
    try:
        train_run(umls(), exact, settings, place / run)
    except FewlinkError as error:
        return [type(error).__name__, str(error)]

with distributed.processes("cpu") as device:
    assert device == "cpu" and distributed.count() == 2
    rank = distributed.rank()
    told["ranks"] = {name: ranks_of(found) for name, found in evaluations().items()}
    told["gathered"] = distributed.gathered(rank)
    for changes, run in shared():
        told[run] = train_run(umls(), exact, small(relations=2, **changes), place / run).best
    told["uneven"] = refused(small(relations=1), "uneven")
    for run in ("file", "precious", "damaged", "other"):
        told[run] = refused(small(relations=2), run)
    (place / f"told-{rank}.json").write_text(json.dumps(told))

    def full(*arguments):
        raise OSError("no space left on device")

    trainer.save_last = full  # only the first process saves; the second waits for it in the next step
    train_run(umls(), exact, small(relations=2), place / "full")
"""


def evaluations() -> dict[str, Evaluation]:
    """A model and a scorer without learning, on dev and on relations of one query: some shards of those are empty."""
    graph, tasks = umls().graph, umls().tasks["dev"]
    few = Benchmark("few", graph, {"dev": [dataclasses.replace(task, pairs=task.pairs[:4]) for task in tasks]})
    model = initial_model(vectors().dim, small())
    around = inputs_of(graph, vectors(), small())
    scorers = [FewShotScorer("fsrl", model.float(), around), learning_free("popularity", graph)]
    return {
        f"{scorer.name}, {benchmark.name}, {candidates}": evaluate(benchmark, scorer, Protocol("dev", 3, candidates))
        for scorer in scorers
        for benchmark in (umls(), few)
        for candidates in ("full", "paper")
    }


def ranks_of(evaluation: Evaluation) -> list[Any]:
    columns = [[t.relation, t.queries.tolist(), t.ranks.tolist(), t.candidates.tolist()] for t in evaluation.tasks]
    return [columns, evaluation.metrics(), evaluation.relations()]


def shared() -> list[tuple[dict[str, Any], str]]:
    """What both processes train, run by run, with two relations a step."""
    return [
        ({"clip": 0.5, "embedding_rate": 0.01, "steps": 4}, "whole"),
        ({"clip": 0.5, "embedding_rate": 0.01, "steps": 2}, "from-two"),  # the test goes on with it
        ({"clip": 0.5, "embedding_rate": 0.01, "steps": 4}, "from-one"),  # the test began it
        ({"dropout": 0.3, "steps": 4}, "dropping"),
        ({"dropout": 0.3, "steps": 2}, "dropping-parts"),
        ({"dropout": 0.3, "steps": 4}, "dropping-parts"),
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where two processes have done all of SCRIPT, and one process what it is compared with."""
    place = tmp_path_factory.mktemp("processes")
    (place / "script.py").write_text(SCRIPT)
    (place / "file").write_text("not a folder")
    (place / "precious").mkdir()
    (place / "precious" / "mine.txt").write_text("keep me")
    torch.set_default_dtype(torch.float64)
    try:
        train_alone(place / "alone", steps=4)
        train_alone(place / "from-one", steps=2)
        shutil.copytree(place / "from-one", place / "other")
        shutil.copytree(place / "from-one", place / "damaged")
        (place / "damaged" / "config.json").write_text("{")
        launch(place)
        yield place
    finally:
        torch.set_default_dtype(torch.float32)


def settings_alone(steps: int) -> FewShotSettings:
    return small(relations=2, clip=0.5, embedding_rate=0.01, steps=steps)


def train_alone(run: Path, steps: int) -> None:
    train_run(umls(), vectors(dtype=torch.float64), settings_alone(steps), run)


def launch(place: Path) -> None:
    """Both processes end, by the deliberate error at their end, and nothing is left running after two minutes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--nproc-per-node", "2", "--master-port", str(port), str(place / "script.py"), str(place)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its processes
        output, _ = process.communicate(timeout=60)
        pytest.fail(f"the processes hang: {output[-3000:]}")
    assert (place / "told-0.json").exists() and (place / "told-1.json").exists(), output[-5000:]
    assert process.returncode != 0 and "no space left on device" in output, output[-5000:]


@pytest.fixture
def told(place: Path) -> list[dict[str, Any]]:
    return [json.loads((place / f"told-{rank}.json").read_text()) for rank in (0, 1)]


def close(run: Path, other: Path) -> None:
    expected = load_file(other / "last" / "weights.safetensors")
    found = load_file(run / "last" / "weights.safetensors")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-8, atol=1e-8)
    for mine, theirs in zip(lines_of(run), lines_of(other), strict=True):
        assert mine["step"] == theirs["step"] and mine["dev"] == pytest.approx(theirs["dev"], abs=1e-6)
        for loss in ("loss", "rank_loss", "reconstruction_loss"):
            assert mine[loss] == pytest.approx(theirs[loss], rel=1e-8)


def test_both_get_the_ranks_of_one_process(told: list[dict[str, Any]]) -> None:
    expected = {name: ranks_of(found) for name, found in evaluations().items()}
    assert told[0]["ranks"] == told[1]["ranks"] == json.loads(json.dumps(expected))
    assert told[0]["gathered"] == told[1]["gathered"] == [0, 1]
    for name, (relations, *_) in told[0]["ranks"].items():
        tasks = umls().tasks["dev"]
        for task, (_, queries, _, _) in zip(tasks, relations, strict=True):
            pairs = task.pairs[3:4] if "few" in name else task.pairs[3:]
            assert sorted(queries) == sorted(np.asarray(pairs).tolist())


def test_they_train_what_one_process_trains(place: Path, told: list[dict[str, Any]]) -> None:
    close(place / "whole", place / "alone")
    assert told[0]["whole"] == told[1]["whole"]
    assert RunConfig.read(place / "whole") == RunConfig.read(place / "alone")
    assert not [path for path in (place / "whole").iterdir() if path.name.startswith(".")]


def test_a_run_goes_from_one_process_to_two_and_back(place: Path) -> None:
    close(place / "from-one", place / "alone")
    train_alone(place / "from-two", steps=4)
    close(place / "from-two", place / "alone")


def test_two_processes_continue_to_the_bit(place: Path) -> None:
    assert saved(place / "dropping") == saved(place / "dropping-parts")
    assert timeless(place / "dropping") == timeless(place / "dropping-parts")


def test_both_processes_raise_the_same_error(place: Path, told: list[dict[str, Any]]) -> None:
    for run, kind, token in (
        ("uneven", "FewlinkError", "relations=2"),
        ("file", "FewlinkError", str(place / "file")),
        ("precious", "FewlinkError", str(place / "precious")),
        ("damaged", "InputError", str(place / "damaged" / "config.json")),
        ("other", "FewlinkError", str(place / "other")),
    ):
        assert told[0][run] == told[1][run] and told[0][run][0] == kind and token in told[0][run][1]
    assert not (place / "uneven").exists()
    assert [path.name for path in (place / "precious").iterdir()] == ["mine.txt"]
