"""How much memory long work needs, told before it begins, and refused where there is not so much."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from fewlink.base.errors import FewlinkError

TOLD_FROM = 1 << 30  # bytes from which a need is worth a line
PROGRAM = 4e8  # what Python and torch take before anything is done
CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # as malloc.h numbers them
KEPT_ARRAY, KEPT = 32 << 20, 512 << 20  # bytes: the largest that glibc takes, and of all that is free

Parts = Mapping[str, float]  # bytes by what they are for


def ensure(what: str, parts: Parts, device: str = "cpu", advice: str = "") -> None:
    """Say what `what` needs in all, or refuse it where less is free on the device."""
    need, free = sum(parts.values()), free_bytes(device)
    where = "memory" if device == "cpu" else f"memory of {device}"
    if free is not None and need > free:
        largest = sorted(parts, key=lambda part: -parts[part])[:3]
        told = ", ".join(f"{_size(parts[part])} for {part}" for part in largest)
        raise FewlinkError(
            f"{what} needs about {_size(need)} of {where} and {_size(free)} are free ({told})"
            + (f": {advice}" if advice else "")
        )
    if need >= TOLD_FROM:
        beside = f", {_size(free)} are free" if free is not None else ""
        print(f"{what} needs about {_size(need)} of {where}{beside}", file=sys.stderr, flush=True)


def free_bytes(device: str = "cpu") -> int | None:
    """Bytes that can still be had on a device, within the limit of a container; None where nobody says."""
    if device != "cpu":
        import torch

        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for what comes next
        return int(torch.cuda.mem_get_info(torch.device(device))[0]) + kept
    known = [found for found in (_of_machine(), _of_container()) if found is not None]
    return min(known) if known else None


def keep_freed() -> None:
    """Have the C library keep what a program frees for what it takes next, where it listens.

    Otherwise a step's large arrays go back to the system and come again, page by page, in the next step.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option, size in ((MMAP_THRESHOLD, KEPT_ARRAY), (TRIM_THRESHOLD, KEPT)):
            library.mallopt(option, size)


def _of_machine() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _of_container() -> int | None:
    """What a control group leaves; pages of files that it could give back count as free."""
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
        told = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return None if limit == "max" else max(0, int(limit) - used + int(told.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
