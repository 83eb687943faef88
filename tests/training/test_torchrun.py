"""`torchrun -m fewlink train` with TRAIL: one of two processes is killed, and the run ends as if it had not been."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.training.runs import saved, timeless

pytestmark = pytest.mark.long
# With the store of torchrun's first attempt, a process of the second may read the address of one that is gone.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
SETTINGS = ["steps=9", "evaluate_every=3", "relations=2", "queries=4", "candidates=20", "most_references=32"]
SETTINGS += ["width=8", "layers=2", "relation_layers=1"]

# The command, in which the second process is killed in step 5 if the file "alive" is there; it removes the file.
SCRIPT = """
import os, signal, sys
from pathlib import Path
from fewlink.__main__ import main
from fewlink.models.trail.learn import TrailLearner

alive, whole = Path(__file__).with_name("alive"), TrailLearner.step

def step(self, number, batch):
    if number == 5 and os.environ["RANK"] == "1" and alive.exists():
        alive.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, number, batch)

TrailLearner.step = step
main()
"""


def train(place: Path, run: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`train umls` in two processes of torchrun."""
    (place / "script.py").write_text(SCRIPT)
    words = ["--standalone", "--nproc-per-node", "2", *options, str(place / "script.py"), "train", "umls"]
    words += ["--out", str(place / run), *(word for setting in SETTINGS for word in ("--set", setting))]
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words],
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_run_goes_on_after_a_process_is_killed(tmp_path: Path) -> None:
    alive = tmp_path / "alive"

    def train_on(run: str, *options: str) -> None:
        done = train(tmp_path, run, *options)
        assert done.returncode == 0 and not alive.exists(), done.stderr[-9000:]

    train_on("whole")
    alive.touch()
    assert train(tmp_path, "again").returncode != 0
    assert [line["step"] for line in timeless(tmp_path / "again")] == [3]
    train_on("again")  # the same command
    alive.touch()
    train_on("restarted", "--max-restarts", "1")
    for run in ("again", "restarted"):
        assert timeless(tmp_path / run) == timeless(tmp_path / "whole")
        assert saved(tmp_path / run) == saved(tmp_path / "whole")
