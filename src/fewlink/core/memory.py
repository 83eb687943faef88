"""The machine and the command in words, and the memory that long work needs, checked before the work starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from fewlink.core.errors import FewlinkError
from fewlink.core.progress import tell

REPORTED_FROM = 1 << 30  # bytes: smaller needs are not printed
PROGRAM = 4e8  # bytes that Python and torch take by themselves
CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
UNPACKED = "FEWLINK_MAX_UNPACKED"

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # as numbered in malloc.h
LARGEST_ARRAY, MOST_FREE = 32 << 20, 512 << 20  # bytes: the most that glibc accepts, and all that may stay free

Parts = Mapping[str, float]  # bytes by purpose


def hardware() -> str:
    """The processor or the GPU, in words."""
    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"{_processor()}, {os.cpu_count()} cores"


def command_line() -> str:
    """The command as a user would type it."""
    program = Path(sys.argv[0]).name
    command = shlex.join(["fewlink" if program == "__main__.py" else program, *sys.argv[1:]])
    return command.encode("utf-8", "replace").decode()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def ensure(work: str, parts: Parts, device: str = "cpu", advice: str = "") -> None:
    """Print how much memory the work needs if that is much; raises if the device has less free."""
    need, free = sum(parts.values()), free_bytes(device)
    where = "memory" if device == "cpu" else f"memory of {device}"
    if free is not None and need > free:
        largest = sorted(parts, key=lambda part: -parts[part])[:3]
        purposes = ", ".join(f"{_size(parts[part])} for {part}" for part in largest)
        raise FewlinkError(
            f"{work} needs about {_size(need)} of {where} and {_size(free)} are free ({purposes})"
            + (f": {advice}" if advice else "")
        )
    if need >= REPORTED_FROM:
        available = f", {_size(free)} are free" if free is not None else ""
        tell(f"{work} needs about {_size(need)} of {where}{available}")


def free_bytes(device: str = "cpu") -> int | None:
    """Free bytes on a device, within the limit of a container; None if unknown."""
    if device != "cpu":
        import torch

        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch reuses it
        return int(torch.cuda.mem_get_info(torch.device(device))[0]) + cached
    known = [free for free in (_free_on_machine(), _free_in_container()) if free is not None]
    return min(known) if known else None


def most_unpacked() -> int | None:
    """The most bytes that a compressed file may unpack to, if the user has set them in $FEWLINK_MAX_UNPACKED."""
    text = os.environ.get(UNPACKED, "").strip()
    if not text:
        return None
    found = re.fullmatch(r"(\d{1,15})([KMGT]?)B?", text.upper())
    if found is None or not int(found[1]):
        raise FewlinkError(f"{UNPACKED} is '{text}': give a number of bytes, such as 50G")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[found[2]]


def keep_freed() -> None:
    """Tell the C library, where it supports this, to keep freed memory for the next allocation.

    Otherwise the large arrays of a step go back to the system and are mapped again, page by page, in the next step.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option, size in ((MMAP_THRESHOLD, LARGEST_ARRAY), (TRIM_THRESHOLD, MOST_FREE)):
            library.mallopt(option, size)


def _free_on_machine() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _free_in_container() -> int | None:
    """What the limit of a control group leaves; cached file pages, which can be reclaimed, count as free."""
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return None if limit == "max" else max(0, int(limit) - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
