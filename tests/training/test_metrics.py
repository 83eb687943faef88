"""TensorBoard gets each line of a run by step where it is installed; without it nothing is written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.training.runs import lines_of, small, umls, vectors
from tests.training.runs import quick as quick

from fewlink.core.errors import FewlinkError
from fewlink.training.run import read_metrics
from fewlink.training.trainer import train_run

resource: Any = pytest.importorskip("resource") if sys.platform != "win32" else None


def test_the_curves_are_there_by_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train_run(umls(), vectors(), small(steps=2), tmp_path)
    train_run(umls(), vectors(), small(), tmp_path)  # continued: another file, the same curve
    assert len(list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))) == 2
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    for name in ("dev/mrr", "dev/hits@10"):
        curve = {line["step"]: line["dev"][name.removeprefix("dev/")] for line in lines_of(tmp_path)}
        assert {event.step: event.value for event in board.Scalars(name)} == pytest.approx(curve)
        assert len(board.Scalars(name)) == 3
    assert {"loss", "rank_loss", "learning_rate", "seconds/step"} <= set(board.Tags()["scalars"])
    assert "step" not in board.Tags()["scalars"]


@pytest.mark.skipif(resource is None, reason="the system has no such limits")
def test_a_run_continues_after_the_disk_was_full(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for most in (200, 3_000, 30_000):  # bytes of a file: the first vectors, or a checkpoint, cannot be written
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
        try:
            with pytest.raises(FewlinkError, match="File too large"):
                train_run(umls(), vectors(), small(), tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert train_run(umls(), vectors(), small(), tmp_path).step == 6


def test_lines_are_read_up_to_the_first_damaged_one(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text('{"step": 2}\n{"step": 4}\n{"st\n{"step": 8}\n')
    assert [line["step"] for line in read_metrics(tmp_path)] == [2, 4]
