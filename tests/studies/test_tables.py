from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewlink.evaluation.ranks import QueryRanks
from fewlink.evaluation.records import Record, RecordStore
from fewlink.studies import tables
from fewlink.studies.tables import Table

METRICS = ("mrr", "hits@1", "hits@5", "hits@10")


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
        ([0.0], ".000"),
        ([0.0, 4.0], "2.000 ± 2.828"),
        ([-0.25], "-.250"),
        ([], ""),
    ],
)
def test_spread(values: list[float], expected: str) -> None:
    assert tables.spread(values) == expected


def test_models_are_ordered_by_family() -> None:
    names = ["zeta", "fsrl-as1", "fsrl", "alpha", "rules", "trail", "complex", "gmatching-max", "random"]
    known = ["random", "rules", "complex", "gmatching-max", "fsrl", "fsrl-as1", "trail"]
    assert tables.in_order(names) == [*known, "alpha", "zeta"]
    assert [tables.group_of(m) for m in ("fsrl-as1", "zeta")] == ["fsrl", "zeta"]


def test_markdown_of_a_table() -> None:
    table = Table("title", ["a", "b"], [["1", "x|y"], ["2", "two\nlines"]], note="A note.")
    assert table.markdown() == "| a | b |\n|---|---|\n| 1 | x\\|y |\n| 2 | two lines |\n\nA note.\n"
    assert Table("", ["a"], [["1"]]).markdown() == "| a |\n|---|\n| 1 |\n"


def test_overall_has_a_row_for_each_model_and_protocol() -> None:
    records = [
        *seeds("complex", 0.1, 0.3),
        record("complex", 0.3, candidates="paper"),
        record("rules", 0.15),
        record("rules", 0.1, split="dev"),
        record("rules", 0.9, shots=1),
        record("rules", 0.9, references="draw-1"),
    ]
    published = {"complex": {"test": dict.fromkeys(METRICS, 0.25)}, "transe": {"test": dict.fromkeys(METRICS, 0.9)}}
    test, dev = tables.overall(records, published)
    assert (test.title, dev.title) == ("test", "dev, full")
    assert list(test.columns) == ["model", "candidates", "seeds", "MRR", "Hits@10", "Hits@5", "Hits@1", "macro MRR"]
    assert [list(row) for row in test.rows] == [
        ["rules", "full", "1", ".150", ".450", ".300", ".150", ".075"],
        ["complex", "paper", "1", ".300", ".900", ".600", ".300", ".150"],
        ["complex", "full", "2", "**.200 ± .141**", "**.600 ± .424**", "**.400 ± .283**", "**.200 ± .141**",
         "**.100 ± .071**"],
        ["*complex, as published*", "*paper*", "", "*.250*", "*.250*", "*.250*", "*.250*", ""],
    ]  # fmt: skip
    assert [list(row) for row in dev.rows] == [["rules", "1", ".100", ".300", ".200", ".100", ".050"]]


def test_the_best_of_a_group_and_its_ties_are_marked() -> None:
    rows = [["a", "x", ".10"], ["b", "x", ".20 ± .10"], ["c", "x", ".20"], ["d", "y", ".05"], ["e", "x", "*.90*"]]
    marked = tables.emphasise([*rows, ["f", "x", ""]], [2], group=1)
    assert [row[2] for row in marked] == [".10", "**.20 ± .10**", "**.20**", ".05", "*.90*", ""]
    assert rows[1][2] == ".20 ± .10"


def test_in_short_has_a_column_for_each_protocol() -> None:
    records = [record("rules", 0.2, candidates=p) for p in ("open", "paper")] + [record("random", 0.1)]
    table = tables.in_short(records, head="small")
    assert list(table.columns) == ["small", "`paper`", "`full`", "`open`"]
    assert [list(row) for row in table.rows] == [["random", "", ".100", ""], ["rules", ".200", "", ".200"]]


def test_by_relation_has_a_row_for_each_relation_and_model() -> None:
    table = tables.by_relation(
        [*seeds("complex", 0.1, 0.3), record("rules", 0.1), record("random", 0.1)], ["rules", "complex"]
    )
    assert [list(row)[:5] for row in table.rows] == [
        ["r", "10", "5,000", "rules", ".100"],
        ["r", "10", "5,000", "complex", "**.200 ± .141**"],
    ]


def test_an_ablation_shows_the_change_of_mrr() -> None:
    records = [
        *seeds("fsrl", 0.3, 0.3),
        record("fsrl-as1", 0.25),
        record("fsrl-as3", 0.3001),
        record("fsrl-tuned", 0.9),
    ]
    table = tables.ablation(records, "fsrl")
    assert [(row[0], row[2], row[-1]) for row in table.rows] == [
        ("fsrl", "2", ""), ("fsrl-as1", "1", "−.050"), ("fsrl-as3", "1", ".000"),
    ]  # fmt: skip
    assert table.rows[1][1] == "mean of neighbours (AS1)"
    better = tables.ablation([record("fsrl", 0.3), record("fsrl-as3", 0.31)], "fsrl")
    assert [(row[0], row[-1]) for row in better.rows] == [("fsrl", ""), ("fsrl-as3", "+.010")]
    assert all(row[1] for row in better.rows)


def test_by_shots_omits_models_with_one_number_of_references() -> None:
    table = tables.by_shots([record("rules", k / 10, shots=k) for k in (5, 1)] + [record("fsrl", 0.9, shots=1)])
    assert (list(table.columns), [list(row) for row in table.rows]) == (
        ["model", "K = 1", "K = 5"],
        [["rules", ".100", ".500"]],
    )


def test_by_draws_only_counts_draws() -> None:
    records = [record("rules", 0.9), *(record("rules", v, references=f"draw-{n}") for n, v in enumerate((0.1, 0.3), 1))]
    table = tables.by_draws(records)
    assert [list(row) for row in table.rows] == [
        ["rules", "2", ".200 ± .141", ".600 ± .424", ".400 ± .283", ".200 ± .141"]
    ]


def test_no_records_give_no_rows() -> None:
    assert tables.overall([], {}) == []
    for table in (
        tables.in_short([]),
        tables.by_relation([], []),
        tables.ablation([], "fsrl"),
        tables.by_shots([]),
    ):
        assert not table.rows
    assert tables.links([record("complex", 0.5)]).rows[0][2] == "1,234"


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
    add(record("weak", 0.5, split="dev"))
    add(record("weak", 0.5, benchmark="other"))
    table = tables.leaderboard(store, "small")
    assert (table.columns[:3], table.columns[-2:]) == (
        ["model", "`full` 1", "`full` 3"],
        ["seeds", "difference to strong"],
    )
    assert [(row[0], row[2], row[9], row[10], row[11]) for row in table.rows] == [
        ("strongest", "**1.000**", "", "1", "–"),
        ("strong", ".375 ± .177", ".200", "1–2", "best with ranks"),
        ("weak", ".100", "", "1", "−.275 (−.275 to −.275)"),
    ]
    assert [row[0] for row in tables.leaderboard(store, "small", ["weak"]).rows] == ["weak"]


def test_a_model_with_other_settings_stands_beside_its_namesake_and_is_of_its_family() -> None:
    assert tables.in_order(["zeta", "trail (2)", "rules (2)", "trail", "rules"]) == [
        *("rules", "rules (2)", "trail", "trail (2)", "zeta")
    ]
    assert tables.group_of("complex (2)") == tables.group_of("complex")
    assert tables.group_of("trail (2)") == "trail"


def test_a_leaderboard_leaves_out_what_it_has_no_column_for(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    for each in (record("rules", 0.3), record("two-shot", 0.9, shots=2), record("links", 0.9, shots=0)):
        store.add(each)
    assert [row[0] for row in tables.leaderboard(store, "small").rows] == ["rules"]
