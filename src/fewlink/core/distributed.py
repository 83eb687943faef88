"""The processes of a `torchrun` job: their ranks, shared values and averaged gradients.

torchrun watches the processes and ends all of them when one fails. Without torchrun there is one process, and every
function here does nothing or returns its argument.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.machine import use_device

TIMEOUT = timedelta(days=7)  # how long the other processes wait while the first pretrains or evaluates

A = TypeVar("A")
T = TypeVar("T")

_alone = False  # True while this process works and the others wait for it


@contextlib.contextmanager
def processes(device: str = "cpu") -> Iterator[str]:
    """Join the processes that torchrun started, if any, and yield this process's device."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield use_device(device)
        return
    device = use_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device.startswith("cuda") else device)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=TIMEOUT)
    yield device  # after an error this process exits without waiting, and torchrun ends the others
    dist.destroy_process_group()


def count() -> int:
    """The number of processes."""
    return dist.get_world_size() if dist.is_initialized() and not _alone else 1


def rank() -> int:
    """The rank of this process, counted from 0."""
    return dist.get_rank() if dist.is_initialized() and not _alone else 0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Treat this process as the only one inside the block: it works while the others wait."""
    global _alone
    before = _alone
    _alone = True
    try:
        yield
    finally:
        _alone = before


def gathered(value: T) -> list[T]:
    """Collect a value from each process; every process returns all of them, ordered by rank."""
    if count() == 1:
        return [value]
    values: list[T | None] = [None] * count()
    dist.all_gather_object(values, value)
    return values  # type: ignore[return-value]


def shared(work: Callable[[A], T], batches: Sequence[A]) -> Iterator[T]:
    """The results of all batches, in their order; each process does its share of them."""
    own = {number: work(batches[number]) for number in range(rank(), len(batches), count())}
    found: dict[int, T] = {}
    for share in gathered(own):
        found |= share
    return (found[number] for number in range(len(batches)))


def from_first(make: Callable[[], T]) -> T:
    """Call `make` in the first process only, and return its value, or raise its error, in every process."""
    if count() == 1:
        return make()
    result: list[tuple[T | None, FewlinkError | None] | None] = [None]
    if rank() == 0:
        try:
            with alone():
                result = [(make(), None)]
        except FewlinkError as error:
            result = [(None, error)]
    dist.broadcast_object_list(result)
    assert result[0] is not None
    value, problem = result[0]
    if problem is not None:
        raise problem
    return value  # type: ignore[return-value]


def average_(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its mean over all processes, in one exchange."""
    if count() == 1 or not tensors:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat)
    flat /= count()  # dividing the tensors instead would go wrong if two of them share memory
    for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))
