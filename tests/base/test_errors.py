from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fewlink.base.errors import FewlinkError, InputError, MissingExtra, UnknownName, reading, writing


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("a.tsv", "has 2 columns", 3), "a.tsv:3: has 2 columns"),
        (InputError("a.tsv", "cannot be read"), "a.tsv: cannot be read"),
        (MissingExtra("tuning", "hpo"), "tuning needs the extra 'hpo': pip install 'fewlink[hpo]'"),
        (UnknownName("unknown task 'x'"), "unknown task 'x'"),
    ],
)
def test_an_error_survives_pickling(error: FewlinkError, message: str) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is type(error)
    assert str(again) == str(error) == message
    assert vars(again) == vars(error)


def test_what_reading_raises_names_the_file() -> None:
    for error, message in (
        (KeyError("files"), "a.json: is damaged (KeyError: 'files'): make it again"),
        (ValueError("two\nlines"), "a.json: is damaged (ValueError: two lines): make it again"),
        (MemoryError(), "a.json: is damaged (MemoryError): make it again"),
        (PermissionError(errno.EACCES, "Permission denied"), "a.json: cannot be read (Permission denied)"),
        (InputError("b.json", "is not JSON"), "b.json: is not JSON"),
    ):
        with pytest.raises(InputError) as found, reading("a.json", "make it again"):
            raise error
        assert str(found.value) == message


def test_what_writing_raises_names_the_file_and_the_reason(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match=r"^a\.bin cannot be written \(No space left on device\)$"), writing("a.bin"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FewlinkError, match=r"^b\.bin cannot be written \(.+\)$"), writing("b.bin"):
        save_file({"a": torch.ones(1)}, tmp_path / "absent" / "b.bin")
    with pytest.raises(ZeroDivisionError), writing("a.bin"):  # a bug stays one
        _ = 1 / 0
