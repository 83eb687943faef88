"""SIGKILL at every file operation and at random moments: the run stays readable and ends in the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import benchmark_of, id_graph, task_of

pytestmark = pytest.mark.slow

# One process loads torch, and forks a child for each run that is to be killed; one thread, so that forking is safe.
CHILD = """
import json, os, random, shutil, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from fewlink.models.embeddings import Embeddings
from fewlink.core.errors import InputError
from fewlink.tasks import Benchmark
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.training import open_run
from fewlink.training import run as run_folders
from fewlink.training.trainer import train_run

run_folders.importlib.util.find_spec = lambda name: None  # a TensorBoard writer is a thread, which no fork takes along
os.fsync = lambda handle: None  # what a killed process has written is not lost

place = Path(sys.argv[3])
benchmark = Benchmark.open(place / "benchmark")
random_vectors = torch.Generator().manual_seed(0)
sizes = (len(benchmark.graph.entities), 8), (2 * len(benchmark.graph.relations), 8)
vectors = Embeddings(*(torch.randn(size, generator=random_vectors) for size in sizes), "transe")
wanted = json.loads(sys.argv[2])

def saved(run):
    files = ("last/weights", "last/optimizer", "best/weights")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [[line["step"], line["loss"], line["dev"]] for line in lines]
    hidden = [path.name for path in run.iterdir() if path.name.startswith(".")]
    return [(run / f"{file}.safetensors").read_bytes() for file in files], kept, hidden

def child(run, before=lambda: None):
    pid = os.fork()
    if not pid:
        code = 1
        try:
            before()
            train_run(benchmark, vectors, settings, run)
            code = 0
        finally:
            os._exit(code)
    return pid

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def read(run):
    try:
        open_run(run, benchmark)
        return "opened"
    except InputError as error:
        assert "has no checkpoint yet" in str(error) or not (run / "config.json").exists(), error
        return "empty"

def bests(lines):
    found = [line[2]["mrr"] for line in lines]
    return sum(mrr > max(found[:i], default=0) for i, mrr in enumerate(found))

for seed in range(50):  # one whose evaluations are the best so far as often as is wanted
    run = place / f"whole-{seed}"
    settings = FewShotSettings(seed=seed, **wanted["settings"])
    train_run(benchmark, vectors, settings, run)
    whole = saved(run)
    if wanted["bests"] in (None, bests(whole[1])):
        break
seen = {"opened": 0, "empty": 0, "bests": bests(whole[1])}

def every_operation():
    count = 0
    while True:
        count += 1
        run = place / "killed"
        shutil.rmtree(run, ignore_errors=True)

        def before(left=count):
            def deadly(operation):
                def wrapped(*arguments, **options):
                    nonlocal left
                    left -= 1
                    if not left:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return operation(*arguments, **options)
                return wrapped
            for name in ("mkdir", "rename", "replace", "rmdir"):
                setattr(os, name, deadly(getattr(os, name)))

        code = ended(child(run, before))
        if code == 0:
            return count - 1
        assert code == -signal.SIGKILL, code
        if run.exists():
            seen[read(run)] += 1
        train_run(benchmark, vectors, settings, run)
        assert saved(run) == whole, f"killed at operation {count}"

def random_moments():
    run, kills, moment = place / "random", 0, random.Random(0)
    for _ in range(200):
        pid = child(run)
        time.sleep(moment.uniform(0.001, 0.1))
        os.kill(pid, signal.SIGKILL)
        if ended(pid) == 0:
            break
        kills += 1
        if run.exists():
            seen[read(run)] += 1
    train_run(benchmark, vectors, settings, run)
    assert saved(run) == whole
    return kills

print(json.dumps({"kills": {"operations": every_operation, "moments": random_moments}[sys.argv[1]](), **seen}))
"""


def killed(way: str, place: Path, bests: int | None = None, **settings: Any) -> dict[str, int]:
    graph = id_graph([(e, e % 3, (5 * e + 1) % 24) for e in range(24)], entities=24)
    tasks = [task_of([(e, (e + shift) % 24) for e in range(12)], range(24), name=f"by{shift}") for shift in (1, 2, 3)]
    benchmark_of(graph, train=tasks[:2], dev=tasks[2:]).save(place / "benchmark")
    wanted = {"bests": bests, "settings": {"batch": 4, "neighbours": 4, **settings}}
    words = [way, json.dumps(wanted), str(place)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *words], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.long
def test_killed_at_every_file_operation(tmp_path: Path) -> None:
    """Of three evaluations two are the best so far: both checkpoints are made and replaced, and `best/` left alone."""
    found = killed("operations", tmp_path, bests=2, steps=3, evaluate_every=1, learning_rate=0.01)
    assert found["bests"] == 2
    assert found["kills"] > 25 and found["opened"] > 15 and found["empty"] > 5, found


@pytest.mark.long
def test_killed_at_random_moments(tmp_path: Path) -> None:
    found = killed("moments", tmp_path, steps=150, evaluate_every=2, patience=1000)
    assert found["kills"] >= 20, found
