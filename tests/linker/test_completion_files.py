"""Files of missing links: an interrupted run goes on, and nothing half-written is left."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fewlink.core.errors import InputError
from fewlink.linker.complete import answer_batches, check_out, finish, unfinished
from fewlink.linker.query import HEADS_PER_BATCH

FACTS = {"relation": "r", "top": 3}
HEADS = list(range(2 * HEADS_PER_BATCH + 5))


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
        list(answer_batches(HEADS, answer, FACTS, out))
    assert not out.exists() and unfinished(out).exists()
    done: list[int] = []
    batches = list(answer_batches(HEADS, answer, FACTS, out, done.append))
    assert [row for batch in batches for row in batch] == rows_of(np.array(HEADS))
    assert calls == [HEADS_PER_BATCH, HEADS_PER_BATCH, HEADS_PER_BATCH, 5]  # the first batch is not asked again
    assert done == [HEADS_PER_BATCH, 2 * HEADS_PER_BATCH, len(HEADS)]
    finish(out, "whole\n")
    assert out.read_text() == "whole\n" and not unfinished(out).exists()


def test_half_a_line_of_a_killed_run_is_dropped(tmp_path: Path) -> None:
    out = tmp_path / "links.tsv"
    next(answer_batches(HEADS, rows_of, FACTS, out))
    with unfinished(out).open("ab") as file:
        file.write(b"[[1, ")
    batches = list(answer_batches(HEADS, rows_of, FACTS, out))
    assert [row for batch in batches for row in batch] == rows_of(np.array(HEADS))
    lines = unfinished(out).read_text().splitlines()
    assert json.loads(lines[0])["relation"] == "r" and len(lines) == 1 + len(batches)
    assert [json.loads(line)["rows"] for line in lines[1:]] == batches  # it can be interrupted again


def test_other_choices_or_a_damaged_file_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "links.tsv"
    next(answer_batches(HEADS, rows_of, FACTS, out))
    with pytest.raises(InputError, match=r"\(top\)"):
        next(answer_batches(HEADS, rows_of, {**FACTS, "top": 4}, out))
    unfinished(out).write_text("nonsense\n")
    with pytest.raises(InputError, match="damaged"):
        next(answer_batches(HEADS, rows_of, FACTS, out))


def test_what_an_interrupted_run_has_kept_is_checked(tmp_path: Path) -> None:
    out = tmp_path / "links.tsv"
    list(answer_batches(HEADS, rows_of, FACTS, out))
    first, *batches = unfinished(out).read_bytes().splitlines(keepends=True)
    unfinished(out).write_bytes(b"".join([first, batches[0].replace(b"[3, 4]", b"[3, 5]"), *batches[1:]]))
    with pytest.raises(InputError, match="part:2"):
        next(answer_batches(HEADS, rows_of, FACTS, out))
    unfinished(out).write_bytes(b"".join([first, *batches]))
    with pytest.raises(InputError, match="part"):
        next(answer_batches(HEADS[:HEADS_PER_BATCH], rows_of, FACTS, out))


def test_a_finished_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "links.tsv").write_text("x")
    with pytest.raises(InputError, match="exists already"):
        check_out(tmp_path / "links.tsv")
    with pytest.raises(InputError, match="exists already"):
        next(answer_batches(HEADS, rows_of, FACTS, tmp_path / "links.tsv"))
    with pytest.raises(InputError, match="folder does not exist"):
        check_out(tmp_path / "none" / "links.tsv")
    for name in ("links.xlsx", "ok.out", "links"):
        with pytest.raises(InputError, match=r"has an unknown suffix: use \.tsv, \.csv, \.jsonl, \.json, \.ndjson"):
            check_out(tmp_path / name)
