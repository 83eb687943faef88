"""Models that others have put on the Hugging Face hub: `hub:owner/name`, fetched once and kept."""

from __future__ import annotations

import re
from pathlib import Path

from fewlink.base.errors import FewlinkError, MissingExtra

PREFIX = "hub:"
NAME = re.compile(r"[\w.-]+/[\w.-]+")


def fetched(which: str | Path) -> Path:
    """The folder of a model: itself, or where the hub's copy of `hub:owner/name` is kept."""
    if not str(which).startswith(PREFIX):
        return Path(which)
    name = str(which).removeprefix(PREFIX)
    if not NAME.fullmatch(name):
        raise FewlinkError(f"'{which}' is not of the form {PREFIX}owner/name")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingExtra("a model of the hub", "hub") from None
    try:
        return Path(snapshot_download(name))
    except Exception as error:  # of many kinds: no network, no such model, no permission
        told = " ".join(str(error).split())
        raise FewlinkError(f"{name} cannot be fetched from the hub ({type(error).__name__}: {told})") from None
