"""What is stored survives reads, writes and fsyncs that fail, a full disk, and power that fails between writes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from tests import disk_faults

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"),
]


@pytest.mark.parametrize("work", disk_faults.WORKS)
def test_no_fault_of_the_disk_loses_or_mixes_what_was_stored(work: str, tmp_path: Path) -> None:
    found = disk_faults.outcomes(work, 12, tmp_path)
    assert {kind: sum(counts.values()) for kind, counts in found.items()} == dict.fromkeys(found, 12)
    assert {outcome for counts in found.values() for outcome in counts} <= {"done", "refused", "lost power"}
    assert found["half is written"] == {"done": 12}
    for kind in ("a read fails", "a write fails", "the disk is full", "fsync fails"):
        assert found[kind]["refused"] >= 3, kind
    assert found["the power fails"]["lost power"] >= 8
