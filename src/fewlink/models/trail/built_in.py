"""The files of TRAIL that come with fewlink, read and compared with their checksums."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from fewlink.core.errors import InputError, reading

CHECKSUMS = {  # sha256
    "attack.names.safetensors": "cd059eb42ded1e240a247da13503e078823e89a1a97073533a4e238e0323a6b9",
    "trail.safetensors": "2955f7f1dade0e72db3a7869683200dd5859817aae3841ef164adb2c4f9f34cd",
    "words.npz": "ea5be79e239e3b4e2fedb6a5c52e3e59171eb878e624ada9a88dae0ca65821f0",
}


def built_in_file(name: str) -> bytes:
    """The content of a file; raises if it has changed."""
    with reading(name, "install fewlink again"):
        content = (files("fewlink") / "builtin" / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != CHECKSUMS[name]:
        raise InputError(name, "is damaged (it has another checksum): install fewlink again")
    return content
