"""One process behaves as before; torchrun ends all processes when one fails; an error of the first is raised in all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fewlink.core import distributed
from fewlink.core.errors import FewlinkError

SCRIPT = """
import json, sys, time
from pathlib import Path
import torch
from fewlink.core import distributed
from fewlink.core.errors import FewlinkError

place = Path(sys.argv[1])
with distributed.processes("cpu") as device:
    rank, found = distributed.rank(), {"device": device, "count": distributed.count()}
    found["gathered"] = distributed.gathered(rank)
    found["first"] = distributed.from_first(lambda: [rank, distributed.count()])
    tensors = [torch.full((2,), float(rank)), torch.tensor(4.0 * rank)]
    distributed.average_(tensors)
    found["average"] = [tensors[0].tolist(), tensors[1].item()]

    def fails():
        raise FewlinkError("give a name")

    try:
        distributed.from_first(fails)
    except FewlinkError as error:
        found["error"] = str(error)
    (place / f"{rank}.json").write_text(json.dumps(found))
    if rank == 1:
        raise FewlinkError("only here")
    distributed.gathered(None)  # waits for a process that has failed
"""


def test_one_process_is_the_first_and_only_one() -> None:
    with distributed.processes("cpu") as device:
        assert device == "cpu"
        assert distributed.count() == 1 and distributed.rank() == 0
        assert distributed.gathered(3) == [3] and distributed.from_first(lambda: 4) == 4
        value = torch.tensor([1.0, 2.0])
        distributed.average_([value])
        assert value.tolist() == [1.0, 2.0]


def test_an_unknown_device_is_an_error_before_processes_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(FewlinkError, match="'tpu'"), distributed.processes("tpu"):
        pass


@pytest.mark.slow
def test_two_processes_share_values_and_one_that_fails_ends_both(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*words, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "only here" in done.stderr
    expected = {
        "device": "cpu",
        "count": 2,
        "gathered": [0, 1],
        "first": [0, 1],
        "average": [[0.5, 0.5], 2.0],
        "error": "give a name",
    }
    for rank in (0, 1):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == expected
