from __future__ import annotations

import errno
import io
import json
import os
import pickle
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fewlink.core.errors import (
    CLONE,
    FewlinkError,
    InputError,
    MissingExtra,
    UnknownName,
    json_shown,
    shown,
    table_cell,
    writing,
)
from fewlink.core.progress import progress

INSTALL = "pip install -c constraints.txt -e '.[rdf]'"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("a.tsv", "has 2 columns", 3), "a.tsv:3: has 2 columns"),
        (InputError("a.tsv", "cannot be read"), "a.tsv: cannot be read"),
        (MissingExtra("tuning", "rdf"), f"tuning needs the extra 'rdf': in {CLONE}, {INSTALL}"),
        (UnknownName("unknown task 'x'"), "unknown task 'x'"),
    ],
)
def test_an_error_survives_pickling(error: FewlinkError, message: str) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is type(error)
    assert str(again) == str(error) == message
    assert vars(again) == vars(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text, Ελλάδα, 漢字, 👩‍🚀", "plain text, Ελλάδα, 漢字, 👩‍🚀"),
        ("\x1b]52;c;eA==\x07", "\\x1b]52;c;eA==\\x07"),
        ("a\tb\nc\rd\x00\x7f\x9b", "a\\tb\\nc\\rd\\x00\\x7f\\x9b"),
        ("left‮thgir⁦x", "left\\u202ethgir\\u2066x"),
        ("a\u200fb\u061cc\u200e", "a\\u200fb\\u061cc\\u200e"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_control_characters_are_shown_escaped(text: str, expected: str) -> None:
    assert shown(text) == expected == str(FewlinkError(text))
    assert str(InputError(text, text)) == f"{expected}: {expected}"
    assert shown(shown(text)) == expected
    assert shown("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"


def test_escaped_json_has_the_same_value() -> None:
    value = {"a\x1b\x9b‮\n\ud83d": ["\x7f", "é"]}
    text = json_shown(json.dumps(value, indent=1, ensure_ascii=False))
    assert json.loads(text) == value
    assert shown(text, lines=True) == text


@pytest.mark.parametrize(
    ("text", "cell", "exact"),
    [
        ("=1+1", "'=1+1", "=1+1"),
        ("@a", "'@a", "@a"),
        ("＝1", "'＝1", "＝1"),
        ("＋1", "'＋1", "＋1"),
        ("－1", "'－1", "－1"),
        ("＠a", "'＠a", "＠a"),
        ("a\tb\\n", "a\\tb\\\\n", "a\\tb\\\\n"),
        ("-\x1b", "'-\\x1b", "-\\x1b"),
        ("a=1", "a=1", "a=1"),
        ("'=1", "'=1", "'=1"),
    ],
)
def test_cells_of_tables(text: str, cell: str, exact: str) -> None:
    assert table_cell(text) == cell
    assert table_cell(text, exact=True) == exact


def test_a_title_of_progress_is_not_read_as_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("reading [/red]\x1b.tsv", 1.0) as advance:
        advance(1.0, "[/bold]\x1b")
    assert "\x1b.tsv" not in sys.stderr.getvalue()  # type: ignore[attr-defined]


def test_what_writing_raises_names_the_file_and_the_reason(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match=r"a\.bin .*No space left on device"), writing("a.bin"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FewlinkError, match=r"b\.bin"), writing("b.bin"):
        save_file({"a": torch.ones(1)}, tmp_path / "absent" / "b.bin")
    with pytest.raises(ZeroDivisionError), writing("a.bin"):  # a bug stays one
        _ = 1 / 0
