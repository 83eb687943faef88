"""The device that a model computes on: the names of devices, and making one the current one."""

from __future__ import annotations

import re

from fewlink.core.errors import FewlinkError

DEVICES = "cpu, cuda or cuda:N"


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
