"""Predictions as a table: rows, dicts, JSON, TSV, pandas, repr and HTML."""

from __future__ import annotations

import builtins
import json
from typing import Any

import pytest

from fewlink.core.errors import MissingExtra
from fewlink.linker import Explanation, Prediction, Predictions
from fewlink.linker.names import Entity
from fewlink.linker.reasons import ReasonPath, ReasonStep
from fewlink.linker.trust import TrustNote

ROWS = [
    Prediction("Q1", "Oslo", 1.0, "Q2", "a\tb", 3.25, 0.5, False),
    Prediction("Q1", "Oslo", 2.5, "Q3", "<script>", 2.0, None, True),
    Prediction("Q9", "Rome", 1.0, "Q4", "日本", -1.0, 0.25, False),
]


def test_it_is_an_immutable_sequence() -> None:
    table = Predictions(ROWS, ["a note"])
    assert len(table) == 3 and list(table) == ROWS and table[0] is ROWS[0] and list(table[1:]) == ROWS[1:]
    assert table == Predictions(ROWS, ["a note"]) and table != Predictions(ROWS)
    with pytest.raises(AttributeError):
        table.notes = ()
    with pytest.raises(AttributeError):
        table[0].rank = 3  # type: ignore[misc]


def test_dicts_and_json_have_all_fields() -> None:
    first, second, _ = json.loads(Predictions(ROWS).to_json())
    assert first == {
        **{"head": "Q1", "head_name": "Oslo", "rank": 1, "tail": "Q2", "tail_name": "a\tb", "score": 3.25},
        **{"probability": 0.5, "base_probability": None, "known": False, "in_set": None, "reasons": None},
    }
    assert second["rank"] == 2.5 and second["probability"] is None and second["known"] is True


def test_a_tab_in_a_name_is_escaped() -> None:
    lines = Predictions(ROWS).to_tsv().splitlines()
    assert lines[0].split("\t") == ["head", "head_name", "rank", "tail", "tail_name", "score", "probability", "known"]
    assert lines[1].split("\t") == ["Q1", "Oslo", "1", "Q2", "a\\tb", "3.25", "0.5", "no"]
    assert lines[2].split("\t")[2] == "2.5" and lines[2].endswith("\t\tyes")
    assert {len(line.split("\t")) for line in lines} == {8}


def test_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    frame = Predictions(ROWS).to_pandas()
    assert list(frame["rank"]) == [1.0, 2.5, 1.0] and len(Predictions([]).to_pandas().columns) == 10
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name == "pandas":
            raise ImportError
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match="the extra 'pandas'"):
        Predictions(ROWS).to_pandas()


def test_repr() -> None:
    text = repr(Predictions(ROWS, ["a note"]))
    assert text.splitlines()[0].split() == ["head", "rank", "tail", "score", "probability", "known"]
    assert "a\\tb" in text and "2.5" in text and text.endswith("a note")
    assert repr(Predictions([], ["nothing is left"])) == "nothing found\nnothing is left"
    assert "… and 40 more" in repr(Predictions(ROWS * 20))


def test_html_has_the_rows_the_notes_and_the_reasons_and_is_safe_with_any_name() -> None:
    evil = '<script>alert("1")</script>&\x00\u202e'
    ann, place, italy = (Entity(name, name) for name in ("Ann", evil, "Italy"))
    steps = (ReasonStep("Ann", "born in", evil, True), ReasonStep(evil, "in", "Italy", True))
    reasons = Explanation(ann, italy, 3.0, {}, (ReasonPath(steps, (ann, place, italy), 1.5),))
    row = Prediction(evil, evil, 1.0, "Q2", "two", 1.0, 0.5, False, reasons)
    page = Predictions([row], ["a note"], TrustNote(False, True, evil))._repr_html_()
    assert "<script" not in page and "\x00" not in page and "&lt;script&gt;" in page
    assert "a note" in page and "0.500" in page and "—born in→" in page
    assert "… and 40 more" in Predictions(ROWS * 20)._repr_html_()
