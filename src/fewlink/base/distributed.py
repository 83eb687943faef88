"""Several processes as one: started by torchrun, each knows its rank, and values and gradients pass between them.

In a process on its own every function here does nothing or gives back what it was given.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fewlink.base import watchdog
from fewlink.base.errors import FewlinkError
from fewlink.base.settings import DEVICES, is_device

T = TypeVar("T")

_alone = False  # while the first process works and the others wait for it


def use(device: str) -> str:
    """Make this device the current one; a name that is none, or one that is not there, is an error."""
    if not is_device(device):
        raise FewlinkError(f"device '{device}' is not {DEVICES}")
    kind, _, index = device.partition(":")
    if kind == "cuda":
        if int(index or 0) >= torch.cuda.device_count():
            there = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "no GPU"
            raise FewlinkError(f"device '{device}' is asked for and this machine has {there} torch can use: try cpu")
        torch.cuda.set_device(device if index else torch.cuda.current_device())
    return device


@contextlib.contextmanager
def processes(device: str = "cpu") -> Iterator[str]:
    """Join the processes torchrun started, if it did; gives this process's own device. When one is lost, all end."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield use(device)
        return
    if device.startswith("cuda"):
        device = use(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    line = watchdog.Lifeline()
    try:
        line = watchdog.tie()
        yield device
        gathered(None)  # who leaves early could not hear of one that is lost
        line.say(watchdog.GOODBYE)
    except BaseException as error:
        line.fail(error)
        raise
    finally:
        dist.destroy_process_group()  # this may wait for the others too
        line.close()


def count() -> int:
    """How many processes work together."""
    return dist.get_world_size() if dist.is_initialized() and not _alone else 1


def rank() -> int:
    """Which of them this one is."""
    return dist.get_rank() if dist.is_initialized() and not _alone else 0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Inside, this process counts as one on its own: it works while the others wait."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def gathered(value: T) -> list[T]:
    """The values of all processes, in the order of their ranks, in each of them."""
    if count() == 1:
        return [value]
    values: list[T | None] = [None] * count()
    dist.all_gather_object(values, value)
    return values  # type: ignore[return-value]


def from_first(make: Callable[[], T]) -> T:
    """What `make` gives in the first process, in each of them; an error there is an error everywhere."""
    if count() == 1:
        return make()
    answer: list[tuple[T | None, FewlinkError | None] | None] = [None]
    if rank() == 0:
        try:
            with alone():
                answer = [(make(), None)]
        except FewlinkError as error:
            answer = [(None, error)]
    dist.broadcast_object_list(answer)
    assert answer[0] is not None
    value, problem = answer[0]
    if problem is not None:
        raise problem
    return value  # type: ignore[return-value]


def everywhere(make: Callable[[], T]) -> T:
    """What `make` gives in this process, when it is done in all of them; an error in one is an error in each."""
    if count() == 1:
        return make()
    problem: FewlinkError | None = None
    try:
        value = make()
    except FewlinkError as error:
        problem = error
    for found in gathered(problem):
        if found is not None:
            raise found
    return value


def exchanged(rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
    """Send the first `sent[0]` rows to process 0, the next `sent[1]` to process 1, …; what came, in the same order.

    Shapes: rows (Σ sent, …) to (Σ received, …); `received[p]` is what process p sends here.
    """
    into = rows.new_empty(sum(received), *rows.shape[1:])
    dist.all_to_all_single(into, rows.contiguous(), list(received), list(sent))
    return into


def add_(tensors: Sequence[Tensor]) -> None:
    """Put the sum over all processes in the place of each tensor, in one exchange."""
    _reduce_(tensors, 1)


def average_(tensors: Sequence[Tensor]) -> None:
    """Put the mean over all processes in the place of each tensor, in one exchange."""
    _reduce_(tensors, count())


def _reduce_(tensors: Sequence[Tensor], divisor: int) -> None:
    if count() == 1 or not tensors:
        return
    flat = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat)
    if divisor > 1:  # here and not in each tensor: two of them may share their memory
        flat /= divisor
    for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))
