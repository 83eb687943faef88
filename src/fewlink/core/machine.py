"""The machine: its devices, their free memory before long work starts, and what it and the command are called."""

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

DEVICES = "cpu, cuda or cuda:N"
PROGRAM = 4e8  # bytes that Python and torch themselves occupy
CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")

MMAP_THRESHOLD = -3  # as numbered in malloc.h
TRIM_THRESHOLD = -1  # likewise
MAX_HEAP_ARRAY_BYTES = 32 << 20  # the largest value that glibc accepts
MAX_KEPT_BYTES = 512 << 20  # of freed memory, which the next step uses again

Parts = Mapping[str, float]  # the bytes that each purpose needs


def is_device(name: str) -> bool:
    """Whether a device name is valid, on this machine or another."""
    return re.fullmatch(r"cpu|cuda(:(0|[1-9][0-9]*))?", name) is not None


def use_device(device: str) -> str:
    """Make a device the current one and return its name. Raise if it is unknown or the machine lacks it."""
    import torch

    if not is_device(device):
        raise FewlinkError(f"unknown device '{device}': use {DEVICES}")
    kind, _, index = device.partition(":")
    if kind == "cuda":
        if int(index or 0) >= torch.cuda.device_count():
            available = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "no GPU"
            raise FewlinkError(f"device '{device}' is not available, because torch finds {available}: use cpu")
        torch.cuda.set_device(device if index else torch.cuda.current_device())
    return device


def hardware() -> str:
    """The name of the GPU, or of the processor and its number of cores."""
    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"{_processor()}, {os.cpu_count()} cores"


def command_line() -> str:
    """The running command as a user would type it."""
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
    """Raise if a device has less free memory than the work needs."""
    need = sum(parts.values())
    free = free_bytes(device)
    where = "memory" if device == "cpu" else f"memory of {device}"
    if free is not None and need > free:
        largest = sorted(parts, key=lambda purpose: -parts[purpose])[:3]
        purposes = ", ".join(f"{_size(parts[purpose])} for {purpose}" for purpose in largest)
        raise FewlinkError(
            f"{work} needs about {_size(need)} of {where}, but only {_size(free)} is free ({purposes})"
            + (f": {advice}" if advice else "")
        )


def free_bytes(device: str = "cpu") -> int | None:
    """The free bytes on a device, within the container's limit if there is one; None if unknown."""
    if device != "cpu":
        import torch

        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch reuses it
        return int(torch.cuda.mem_get_info(torch.device(device))[0]) + cached
    known = [free for free in (_free_on_machine(), _free_in_container()) if free is not None]
    return min(known) if known else None


def size_in_bytes(text: str, what: str) -> int:
    """A number of bytes, such as 50G or 4GB; `what` names it in the error."""
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)B?", text.strip().upper())
    if match is None or not int(match[1]):
        raise FewlinkError(f"{what} is '{text}': set it to a number of bytes, such as 50G")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2]]


def keep_freed() -> None:
    """Make the C library, if it is glibc, keep freed memory for the next allocation.

    By default it returns a step's large arrays to the system, which maps them again, page by page, in the next step.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, MAX_HEAP_ARRAY_BYTES)
        library.mallopt(TRIM_THRESHOLD, MAX_KEPT_BYTES)


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
    """The free bytes within a control group's limit. Cached file pages can be reclaimed, so they count as free."""
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return None if limit == "max" else max(0, int(limit) - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
