"""Predictions as a table: rows, dicts, JSON, TSV, pandas, repr and HTML."""

from __future__ import annotations

import builtins
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.linker.markup import Markup

from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.linker import Explanation, Prediction, Predictions
from fewlink.linker.answer_sets import AnswerSet
from fewlink.linker.explanation import Path as GraphPath
from fewlink.linker.explanation import Reference, Step
from fewlink.linker.names import Entity
from fewlink.linker.predictions import TrustNote

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


def test_the_rows_of_a_head() -> None:
    table = Predictions(ROWS)
    assert len(table.for_head("Q1")) == 2 and len(table.for_head("Rome")) == 1
    with pytest.raises(FewlinkError, match="'Paris'"):
        table.for_head("Paris")


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
    assert repr(Predictions([], ["nothing is left"])) == "no predictions\nnothing is left"
    assert "… and 40 more" in repr(Predictions(ROWS * 20))


EVIL = '<script>alert("1")</script>&\x00\u202e'


def entity(name: str) -> Entity:
    return Entity(f"id of {name}", name)


def explained(name: str = "Rome") -> Explanation:
    """Why Ann → Italy, over a place of this name."""
    ann, rome, italy = map(entity, ("Ann", name, "Italy"))
    path = GraphPath((Step("born in", False), Step(name, True)), 1.5, (ann, rome, italy), 1)
    reference = Reference(entity("Bob"), entity("Spain"), 0.5)
    more = {"evidence": {"head": "paths from the head"}, "measured": True, "given": 1, "compared": 1}
    return Explanation(ann, italy, 3.0, {"head": 2.0, "references": -0.5}, (path,), (reference,), (), **more)


def test_html_has_names_ids_bars_and_notes() -> None:
    trust = TrustNote(False, True, "its references are found")
    markup = Markup(Predictions(ROWS, ["a note"], trust)._repr_html_())
    assert markup.text.startswith("its references are found head rank tail probability score known")
    assert "Oslo Q1 1 a b Q2 50 % 3.25 2.5 <script> Q3 2.00 yes Rome Q9" in markup.text
    assert markup.text.endswith("a note") and markup.text.count("Oslo") == 1  # a head with two tails is named once
    bars = [attributes["style"] for tag, attributes in markup.tags if tag == "i"]
    assert bars == ["left:0.0%;width:50.0%", "left:0.0%;width:25.0%"]
    assert "… and 40 more" in Markup(Predictions(ROWS * 20)._repr_html_()).text
    assert Markup(Predictions([], ["nothing is left"])._repr_html_()).text == "no predictions nothing is left"


def test_html_leaves_out_empty_columns_and_turns_with_the_question() -> None:
    plain = [replace(ROWS[0], probability=None)]
    assert Markup(Predictions(plain)._repr_html_()).text.startswith("head rank tail score Oslo Q1 1 a b")
    assert Markup(Predictions(plain, inverse=True)._repr_html_()).text.startswith("tail rank head score a b Q2 1 Oslo")


def test_rows_are_in_the_answer_set_by_their_rank_unless_they_are_known() -> None:
    rows = [replace(ROWS[0], rank=rank, known=known) for rank, known in ((1.0, True), (1.0, False), (2.0, False))]
    rows += [replace(ROWS[0], rank=2.5), ROWS[2]]
    sets = [AnswerSet("Q1", "Oslo", 2, 0.9, False, "one of the first 2 tails is right in 9 of 10 such questions")]
    assert [row.in_set for row in Predictions(rows).with_sets(sets)] == [False, True, True, False, None]
    turned = Predictions([replace(row, head="Q7", tail=row.head) for row in rows], inverse=True).with_sets(sets)
    assert [row.in_set for row in turned] == [False, True, True, False, None]


def test_html_marks_the_answer_set() -> None:
    sets = [AnswerSet("Q1", "Oslo", 1, 0.9, False, "the first tail is right in 9 of 10 such questions")]
    page = Predictions(ROWS[:2]).with_sets(sets)._repr_html_()
    cells = [attributes.get("class", "") for tag, attributes in Markup(page).tags if tag == "td"]
    assert sum("fl-set" in kind for kind in cells) == 1 and "A bar beside the rank" in page
    assert "A bar beside" not in Predictions(ROWS[:2])._repr_html_()


def test_html_has_the_reasons_below_each_row() -> None:
    rows = [replace(row, reasons=explained()) for row in ROWS[:2]]
    page = Predictions(rows)._repr_html_()
    markup = Markup(page)
    assert markup.count("details") == markup.count("svg") == 2 and "your example is joined in the same way" in page
    assert not any("open" in attributes for _, attributes in markup.tags)
    assert [dict(a) for tag, a in Markup(rows[0]._repr_html_()).tags if tag == "details"] == [{"open": ""}]
    assert {a.get("rowspan") for tag, a in markup.tags if tag == "th" and "rowspan" in a} == {"4"}


def test_html_is_safe_with_any_name() -> None:
    row = Prediction(EVIL, EVIL, 1.0, EVIL, EVIL + "2", 1.0, 0.5, False, explained(EVIL))
    trust = TrustNote(False, True, EVIL)
    for page in (Predictions([row], [EVIL], trust)._repr_html_(), row._repr_html_(), explained(EVIL)._repr_html_()):
        assert "<script" not in page and '<script>alert("1")</script>&' in Markup(page).text


def test_the_stored_look() -> None:
    """`tests/fixtures/predictions.html` was looked at in a browser, light and dark: look again if it changes."""
    sets = [AnswerSet("Q1", "Oslo", 1, 0.9, False, "the first tail is right in 9 of 10 such questions")]
    rows = [replace(ROWS[0], reasons=explained()), *ROWS[1:]]
    table = Predictions(rows, ["a note"], TrustNote(False, True, "its references are found")).with_sets(sets)
    page = f"<!doctype html>\n<meta charset=utf-8>\n{table._repr_html_()}\n{explained()._repr_html_()}\n"
    stored = Path(__file__).parent.parent / "fixtures" / "predictions.html"
    assert page.replace(">", ">\n") == stored.read_text("utf-8").replace(">", ">\n")
