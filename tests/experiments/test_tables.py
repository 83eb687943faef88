"""Tables of records: their rows, what is bold, and how figures are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ablation
import by_relation
import leaderboard
import overall
import shots
from common import Table, emphasise, in_order, line_chart, scatter_chart, spread
from fewlink.evaluation.records import QueryRanks, Record, RecordStore


def row(mrr: float) -> dict[str, int | float]:
    """Hits@1 is the MRR, Hits@5 twice and Hits@10 three times that."""
    return {"mrr": mrr, "hits@1": mrr, "hits@5": 2 * mrr, "hits@10": 3 * mrr, "mr": 1.0, "amri": 0.0}


def record(model: str, mrr: float, **more: Any) -> Record:
    fields: dict[str, Any] = {
        "benchmark": "small", "model": model, "split": "test", "shots": 3, "candidates": "full",
        "references": "first", "seed": 0, "queries": 1234, "metrics": {"micro": row(mrr), "macro": row(mrr / 2)},
        "relations": {"r": {"queries": 10, "candidates": 5000, **row(mrr)}}, "command": f"fewlink evaluate {model}",
        "version": "0", "data_sha256": "0" * 64, "hardware": "abacus", "seconds": 1.0,
    }  # fmt: skip
    return Record(**{**fields, **more})


def seeds(model: str, *values: float, **more: Any) -> list[Record]:
    return [record(model, value, seed=seed, **more) for seed, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.312], ".312"),
        ([0.3, 0.3], ".300"),
        ([0.1, 0.3], ".200 ± .141"),
        ([1.0], "1.000"),
        ([-0.25], "-.250"),
        ([], ""),
    ],
)
def test_a_mean_and_its_deviation(values: list[float], expected: str) -> None:
    assert spread(values) == expected


def test_models_are_ordered_by_family() -> None:
    known = ["random", "rules", "complex", "gmatching-max", "fsrl", "fsrl-as1", "trail"]
    assert in_order(["zeta", *reversed(known), "alpha"]) == [*known, "alpha", "zeta"]


def test_markdown_of_a_table() -> None:
    table = Table("title", ["a", "b"], [["1", "x|y"], ["2", "two\nlines"]], note="A note.")
    assert table.markdown() == "| a | b |\n|---|---|\n| 1 | x\\|y |\n| 2 | two lines |\n\nA note.\n"


def test_overall_has_a_row_for_each_model_and_protocol_and_published_figures() -> None:
    records = [
        *seeds("complex", 0.1, 0.3),
        record("complex", 0.3, candidates="paper"),
        record("rules", 0.15),
        record("rules", 0.1, split="dev"),
        record("rules", 0.9, shots=1),
        record("rules", 0.9, references="draw-1"),
    ]
    test, dev = overall.tables(records, benchmark="nell-one")
    assert (test.title, dev.title) == ("test", "dev, full")
    assert [list(row) for row in test.rows] == [
        ["rules", "full", "1", ".150", ".450", ".300", ".150", ".075"],
        ["complex", "paper", "1", ".300", ".900", ".600", ".300", ".150"],
        ["complex", "full", "2", "**.200 ± .141**", "**.600 ± .424**", "**.400 ± .283**", "**.200 ± .141**",
         "**.100 ± .071**"],
        ["*complex, as published*", "*paper*", "", "*.185*", "*.273*", "*.223*", "*.129*", ""],
    ]  # fmt: skip
    assert [list(row) for row in dev.rows] == [["rules", "1", ".100", ".300", ".200", ".100", ".050"]]
    assert overall.tables([]) == []


def test_the_best_of_a_group_and_its_ties_are_marked() -> None:
    rows = [["a", "x", ".10"], ["b", "x", ".20 ± .10"], ["c", "x", ".20"], ["d", "y", ".05"], ["e", "x", "*.90*"]]
    marked = emphasise([*rows, ["f", "x", ""]], [2], group=1)
    assert [row[2] for row in marked] == [".10", "**.20 ± .10**", "**.20**", ".05", "*.90*", ""]


def test_by_relation_has_a_row_for_each_relation_and_model() -> None:
    records = [*seeds("complex", 0.1, 0.3), record("rules", 0.1), record("random", 0.1)]
    table = by_relation.table(records, ["rules", "complex"])
    assert [list(row)[:5] for row in table.rows] == [
        ["r", "10", "5,000", "rules", ".100"],
        ["r", "10", "5,000", "complex", "**.200 ± .141**"],
    ]
    assert len(by_relation.published_table().rows) == 22


def test_an_ablation_shows_the_change_of_mrr() -> None:
    others = [record("fsrl-as1", 0.25), record("fsrl-as3", 0.3001), record("fsrl-tuned", 0.9)]
    table = ablation.table([*seeds("fsrl", 0.3, 0.3), *others])
    changes = [(row[0], row[2], row[-1]) for row in table.rows]
    assert changes == [("fsrl", "2", ""), ("fsrl-as1", "1", "−.050"), ("fsrl-as3", "1", ".000")]


def test_by_shots_omits_models_with_one_number_of_references() -> None:
    table = shots.table([record("rules", k / 10, shots=k) for k in (5, 1)] + [record("fsrl", 0.9, shots=1)])
    assert list(table.columns) == ["model", "K = 1", "K = 5"]
    assert [list(row) for row in table.rows] == [["rules", ".100", ".500"]]


def test_a_leaderboard_is_sorted_and_has_differences_to_the_best_with_ranks(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)

    def add(one: Record, ranks: bool = True) -> None:
        values = np.full(10, 1 / one.metrics["micro"]["mrr"])
        store.add(one, ranks=QueryRanks(("r",), np.array([10]), values, "same") if ranks else None)

    add(record("weak", 0.1))
    for one in seeds("strong", 0.5, 0.25):
        add(one)
    add(record("strongest", 1.0), ranks=False)
    add(record("strong", 0.2, shots=5, candidates="open"))
    add(record("two-shot", 0.9, shots=2))
    add(record("weak", 0.5, split="dev"))
    add(record("weak", 0.5, benchmark="other"))
    table = leaderboard.table(store, "small")
    assert table.columns[-1] == "difference to strong"
    assert [(row[0], row[2], row[9], row[10], row[11]) for row in table.rows] == [
        ("strongest", "**1.000**", "", "1", "–"),
        ("strong", ".375 ± .177", ".200", "1–2", "best with ranks"),
        ("weak", ".100", "", "1", "−.275 (−.275 to −.275)"),
    ]
    assert [row[0] for row in leaderboard.table(store, "small", ["weak"]).rows] == ["weak"]


def test_charts_are_svg_files_with_their_names_as_text_and_always_the_same() -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    lines = shots.lines([record("rules", k / 10, shots=k) for k in (1, 3, 5)], ["rules", "fsrl"])
    chart = line_chart("A title", lines, "references", "MRR")
    assert "A title" in chart and ">rules<" in chart and chart == line_chart("A title", lines, "references", "MRR")
    assert ">positive (1)<" in scatter_chart("map", [(0.0, 1.0, "positive"), (1.0, 0.0, "negative")])
