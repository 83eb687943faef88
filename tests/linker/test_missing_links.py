"""Files of missing links: an interrupted run goes on, and nothing half-written is left."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fewlink.core.errors import FewlinkError, InputError
from fewlink.linker.missing_links import HEADS_AT_ONCE, check_out, complete_heads, finish, part_of

FACTS = {"relation": "r", "top": 3}
HEADS = list(range(2 * HEADS_AT_ONCE + 5))


def rows_of(heads: np.ndarray) -> list[list[int]]:
    return [[int(head), int(head) + 1] for head in heads]


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    out, calls = tmp_path / "links.tsv", list[int]()

    def answer(heads: np.ndarray) -> list[list[int]]:
        calls.append(len(heads))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return rows_of(heads)

    with pytest.raises(KeyboardInterrupt):
        list(complete_heads(HEADS, answer, FACTS, out))
    assert not out.exists() and part_of(out).exists()
    done: list[int] = []
    batches = list(complete_heads(HEADS, answer, FACTS, out, done.append))
    assert [row for batch in batches for row in batch] == rows_of(np.array(HEADS))
    assert calls == [HEADS_AT_ONCE, HEADS_AT_ONCE, HEADS_AT_ONCE, 5]  # the first batch is not asked again
    assert done == [HEADS_AT_ONCE, 2 * HEADS_AT_ONCE, len(HEADS)]
    finish(out, "whole\n")
    assert out.read_text() == "whole\n" and not part_of(out).exists()


def test_half_a_line_of_a_killed_run_is_dropped(tmp_path: Path) -> None:
    out = tmp_path / "links.tsv"
    next(complete_heads(HEADS, rows_of, FACTS, out))
    with part_of(out).open("ab") as file:
        file.write(b"[[1, ")
    batches = list(complete_heads(HEADS, rows_of, FACTS, out))
    assert [row for batch in batches for row in batch] == rows_of(np.array(HEADS))
    lines = part_of(out).read_text().splitlines()
    assert json.loads(lines[0])["relation"] == "r" and len(lines) == 1 + len(batches)
    assert [json.loads(line)["rows"] for line in lines[1:]] == batches  # it can be interrupted again


def test_each_batch_is_on_the_disk_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, synced, sync = tmp_path / "links.tsv", list[int](), os.fsync

    def watched(handle: int) -> None:
        synced.append(part_of(out).read_bytes().count(b"\n") if part_of(out).exists() else 0)
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    for number, _ in enumerate(complete_heads(HEADS, rows_of, FACTS, out), 1):
        assert synced[-1] == 1 + number


def test_what_was_found_is_kept_until_the_whole_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "links.tsv"
    list(complete_heads(HEADS, rows_of, FACTS, out))
    (tmp_path / ".links.tsv.new").write_text("in the way")
    monkeypatch.setattr("fewlink.core.storage._remove", lambda path: None)
    with pytest.raises(FewlinkError, match="cannot be written"):
        finish(out, "whole\n")
    assert not out.exists() and part_of(out).exists()


def test_other_choices_or_a_damaged_file_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "links.tsv"
    next(complete_heads(HEADS, rows_of, FACTS, out))
    with pytest.raises(InputError, match=r"begun with other choices \(top\)"):
        next(complete_heads(HEADS, rows_of, {**FACTS, "top": 4}, out))
    part_of(out).write_text("nonsense\n")
    with pytest.raises(InputError, match="damaged: remove it"):
        next(complete_heads(HEADS, rows_of, FACTS, out))


def test_what_an_interrupted_run_has_kept_is_checked(tmp_path: Path) -> None:
    out = tmp_path / "links.tsv"
    list(complete_heads(HEADS, rows_of, FACTS, out))
    first, *batches = whole = part_of(out).read_bytes().splitlines(keepends=True)
    for lines, problem in (
        ([first, batches[0].replace(b"[3, 4]", b"[3, 5]"), *batches[1:]], r"part:2: was changed or damaged since"),
        ([first, *batches[1:]], "part:2: is not the batch of heads that belongs here: remove it to begin again"),
    ):
        part_of(out).write_bytes(b"".join(lines))
        with pytest.raises(InputError, match=problem):
            next(complete_heads(HEADS, rows_of, FACTS, out))
    rows = [
        json.dumps(json.loads(line)["rows"]).encode() + b"\n" for line in whole[1:2]
    ]  # as earlier versions kept them
    part_of(out).write_bytes(b"".join([first, *rows]))
    assert [row for batch in complete_heads(HEADS, rows_of, FACTS, out) for row in batch] == rows_of(np.array(HEADS))


def test_a_finished_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "links.tsv").write_text("x")
    with pytest.raises(InputError, match="exists already"):
        check_out(tmp_path / "links.tsv")
    with pytest.raises(InputError, match="exists already"):
        next(complete_heads(HEADS, rows_of, FACTS, tmp_path / "links.tsv"))
    with pytest.raises(InputError, match="folder does not exist"):
        check_out(tmp_path / "none" / "links.tsv")


def test_without_a_file_nothing_is_kept() -> None:
    assert sum(len(batch) for batch in complete_heads(HEADS, rows_of, FACTS)) == len(HEADS)
