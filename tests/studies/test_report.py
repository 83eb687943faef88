from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fewlink.core.errors import FewlinkError, InputError
from fewlink.evaluation.curves import CurvePoint, LearningCurve
from fewlink.evaluation.records import Record, RecordStore
from fewlink.studies.charts import COLOURS, BarChart, LineChart
from fewlink.studies.report import page, write_report
from fewlink.studies.sections import (
    MAX_LINES,
    Section,
    StoredResults,
    best_model,
    main_protocol,
    model_styles,
    sections_of,
)

HOSTILE = '<script>alert("1")</script>'
VOID = {"meta", "link", "input", "img", "br", "hr"}


def row(mrr: float) -> dict[str, int | float]:
    return {"mrr": mrr, "hits@1": mrr / 2, "hits@5": mrr, "hits@10": mrr, "mr": 1.0, "amri": 0.0}


def record(model: str = "rules", mrr: float = 0.3, **more: Any) -> Record:
    fields: dict[str, Any] = {
        "benchmark": "small", "model": model, "split": "test", "shots": 3, "candidates": "full",
        "references": "first", "seed": 0, "queries": 12, "metrics": {"micro": row(mrr), "macro": row(mrr)},
        "relations": {name: {"queries": 6, "candidates": 50, **row(mrr)} for name in ("likes", "visits")},
        "command": f"fewlink evaluate small --scorer {model}", "version": "0", "data_sha256": "0" * 64,
        "hardware": "abacus", "seconds": 1.0,
    }  # fmt: skip
    return Record(**{**fields, **more})


def many() -> list[Record]:
    records = [record("rules", 0.3), record("rules", 0.2, shots=1), record("rules", split="dev")]
    records += [record("fsrl-as1", 0.2)]
    records += [record("fsrl", value, seed=seed) for seed, value in enumerate((0.35, 0.45))]
    records += [record("rules", 0.1, references="draw-1"), record("rules", 0.4, candidates="paper")]
    return [*records, record("complex", 0.5, benchmark="plain", shots=0, references="none", candidates="all")]


def store(folder: Path, records: list[Record]) -> Path:
    for one in records:
        RecordStore(folder).add(one)
    return folder


def pair_map(**more: Any) -> dict[str, Any]:
    points = [[0.0, 0.0, "positive"], [1.0, 1.0, "negative"]]
    scores = {"silhouette": 0.25, "silhouette_of_map": 0.5}
    facts = {"command": "fewlink study embedding", "version": "0", "data_sha256": "0" * 64}
    return {"benchmark": "small", "model": "fsrl", "relation": "likes", "seed": 0, "shots": 3, **scores,
            "points": points, **facts, **more}  # fmt: skip


def point(step: int, dev: float, test: float) -> CurvePoint:
    figures = dict.fromkeys(("hits@1", "hits@5", "hits@10"), 0.5)
    return CurvePoint(step=step, dev={"mrr": dev, **figures}, test={"mrr": test, **figures})


def curve(**more: Any) -> LearningCurve:
    facts = {"command": "fewlink study selection", "version": "0", "data_sha256": "0" * 64, "hardware": "a machine"}
    return LearningCurve.model_construct(benchmark="small", model="fsrl", seed=0, shots=3, candidates="paper",
                                         settings={}, **facts, **more)  # fmt: skip


class Page(HTMLParser):
    """Checks that elements are closed as they were opened; keeps headings, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open:
            self.said.append((self.open[-1], data.strip()))

    def of(self, tag: str) -> list[str]:
        return [text for where, text in self.said if where == tag]


def written(tmp_path: Path, records: list[Record]) -> str:
    write_report(store(tmp_path / "results", records), tmp_path / "report.html")
    return (tmp_path / "report.html").read_text("utf-8")


def test_the_page_has_a_section_for_each_kind_of_result(tmp_path: Path) -> None:
    store(tmp_path / "results", many())
    (tmp_path / "results" / "a.maps.jsonl").write_text(json.dumps(pair_map()) + "\n")
    RecordStore(tmp_path / "results").add(curve(points=[point(500, 0.2, 0.1), point(1000, 0.1, 0.4)]))
    parsed = Page(written(tmp_path, []))
    assert parsed.of("h2") == ["small", "plain", "About the figures"]
    sections = ["Overall", "By relation", "By number of references", "Other references", "Ablations", "Pair maps"]
    assert parsed.of("h3")[:8] == [*sections, "Selection on test", "Ordinary link prediction"]
    assert "fewlink study selection" in parsed.of("code")
    ids = [attributes["id"] for _, attributes in parsed.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    targets = [a["href"] for tag, a in parsed.tags if tag == "a" and a.get("href")]
    assert {t[1:] for t in targets if t} <= set(ids)
    assert sum(tag == "img" for tag, _ in parsed.tags) == 1 + 2 + 4 + 1 + 1


def test_the_opening_names_the_best_model_and_its_margin(tmp_path: Path) -> None:
    text = re.sub(r"<[^>]+>|\s+", " ", written(tmp_path, many())).replace("&nbsp;", " ")
    text = re.sub(r" +", " ", text)
    assert "On small (test, K = 3, full) the best model is fsrl , with an MRR of .400 ± .071 over 2 seeds." in text
    assert "It leads the best model of another family, rules (.300), by .100." in text


def test_a_margin_within_the_deviation_is_called_level() -> None:
    records = [record("rules", 0.39), *(record("fsrl", v, seed=s) for s, v in enumerate((0.35, 0.45)))]
    protocol = main_protocol(records)
    assert protocol
    best = best_model(records, protocol)
    assert best and (best.model, best.rival, best.margin, best.level) == ("fsrl", "rules", ".010", True)
    alone = best_model([record("fsrl", 0.5), record("fsrl-as1", 0.4)], protocol)
    assert alone and (alone.model, alone.rival) == ("fsrl", "")


@pytest.mark.parametrize(("whole", "ablation"), [("fsrl", "fsrl-as1"), ("trail-0.1", "trail-0.1-no-paths")])
def test_an_ablation_is_not_the_best_model_and_leads_no_family(whole: str, ablation: str) -> None:
    """Also of a model that only records know."""
    records = [record("rules", 0.3), record(whole, 0.5), record(ablation, 0.6)]
    protocol = main_protocol(records)
    assert protocol
    best = best_model(records, protocol)
    assert best and (best.model, best.rival, best.margin) == (whole, "rules", ".200")
    by_relation = next(s for s in sections_of(StoredResults(records), protocol, {}) if s.title == "By relation")
    chart = by_relation.charts[0]
    assert isinstance(chart, BarChart) and [*chart.rows["likes"]] == ["rules", whole]
    overall = next(s for s in sections_of(StoredResults(records), protocol, {}) if s.title == "Overall")
    assert [row[0] for row in overall.tables[0].rows if "**" in row[2]] == [whole]
    alone = best_model([record(ablation, 0.6)], protocol)
    assert alone and alone.model == ablation


def test_a_model_has_one_colour_in_all_charts_of_all_benchmarks() -> None:
    models = ("rules", "transe", "complex", "gmatching-maxp", "fsrl", "fsrl-tuned", "trail")
    records = [
        record(model, (0.2 + 0.05 * i if bench == "one" else 0.9 - 0.05 * i), benchmark=bench, shots=k)
        for bench in ("one", "two")
        for i, model in enumerate(models)
        for k in (1, 3)
    ]
    styles = model_styles([[r for r in records if r.benchmark == bench] for bench in ("one", "two")])
    assert {*styles} == {*models} and len({style % len(COLOURS) for style in styles.values()}) == len(models)


def test_a_record_that_is_in_two_files_counts_once(tmp_path: Path) -> None:
    results = store(tmp_path / "results", [record("rules"), record("fsrl", seed=0), record("fsrl", 0.4, seed=1)])
    store(results / "copy", [record("fsrl", seed=0)])
    text = re.sub(r"<[^>]+>", "", written(tmp_path, []))
    assert "3 records of 2 models" in text
    store(results / "other", [record("fsrl", 0.7, seed=0)])
    with pytest.raises(InputError, match=r"fsrl.jsonl:1"):
        written(tmp_path, [])


def test_the_page_has_a_table_of_contents(tmp_path: Path) -> None:
    parsed = Page(written(tmp_path, many()))
    links = {a["href"]: None for tag, a in parsed.tags if tag == "a" and a.get("class") != "skip"}
    assert "Contents" in parsed.of("p")
    assert [link for link in links if link in ("#b1", "#b1-overall", "#b1-ablations", "#b2", "#about")] == [
        *("#b1", "#b1-overall", "#b1-ablations", "#b2", "#about"),
    ]


def test_the_main_protocol_is_three_references_and_full_if_there_are_such_records() -> None:
    assert str(main_protocol([record(shots=1), record(shots=1, seed=1), record()])) == "test, K = 3, full"
    assert str(main_protocol([record(shots=5, candidates="open")])) == "test, K = 5, open"
    assert main_protocol([record(shots=0)]) is None


def test_the_page_is_self_contained(tmp_path: Path) -> None:
    text = written(tmp_path, many())
    assert not re.search(r"https?://|url\(|@import", text)
    assert all(a.get("alt") for tag, a in Page(text).tags if tag == "img")
    parsed = Page(text)
    assert not [
        tag for tag, a in parsed.tags if tag in ("link", "iframe") or not (a.get("src") or "data:").startswith("data:")
    ]
    assert [tag for tag, _ in parsed.tags].count("script") == 1


def test_every_variable_of_the_style_has_a_light_and_a_dark_value(tmp_path: Path) -> None:
    text = written(tmp_path, many())
    light, dark = (part.split("}")[0] for part in text.split(":root{")[1:3])
    assert "prefers-color-scheme:dark" in text and "@media print" in text
    used = set(re.findall(r"var\((--[\w-]+)\)", text)) - {"--serif", "--sans", "--mono"}
    for part in (light, dark):
        assert used <= set(re.findall(r"(--[\w-]+):", part))


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_has_enough_contrast(tmp_path: Path) -> None:
    for part in written(tmp_path, many()).split(":root{")[1:3]:
        colours = dict(re.findall(r"(--[\w-]+):(#[0-9a-f]{3,6})", part.split("}")[0]))
        for name in ("--ink", "--soft", "--accent", "--good", "--bad"):
            assert min(contrast(colours[name], colours[b]) for b in ("--paper", "--raised")) >= 4.5, name
        assert min(contrast(colours[n], colours["--wash"]) for n in ("--ink", "--soft")) >= 4.5
    assert all(contrast(colour, "#ffffff") >= 3 for colour in COLOURS)


def test_tables_have_captions_and_scopes(tmp_path: Path) -> None:
    parsed = Page(written(tmp_path, many()))
    tags = [tag for tag, _ in parsed.tags]
    assert tags.count("table") == tags.count("caption") > 5
    assert all(a.get("scope") in ("row", "col") for tag, a in parsed.tags if tag == "th")
    assert parsed.of("strong")


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    relations = {HOSTILE: record().relations["likes"], "visits": record().relations["likes"]}
    hostile = {"benchmark": HOSTILE, "model": HOSTILE, "command": HOSTILE, "hardware": HOSTILE, "relations": relations}
    example = dict.fromkeys(("relation", "head", "tail"), HOSTILE) | {"rank": 1, "best": [HOSTILE]}
    records = [record(**hostile, shots=k, examples=[example]) for k in (1, 3)]
    text = page(StoredResults(records), {})
    assert text.count("<script") == 1
    assert [tag for tag, _ in Page(text).tags].count("script") == 1
    assert HOSTILE in Page(text).of("h2") and HOSTILE in Page(text).of("mark")
    assert HOSTILE in Page(written(tmp_path, records)).of("code")


def test_examples_come_from_the_best_models_one_of_each_relation_first() -> None:
    def example(relation: str, rank: float) -> dict[str, Any]:
        return {"relation": relation, "head": "h", "tail": "t", "rank": rank, "best": ["t", "u"]}

    examples = [*(example("likes", 1) for _ in range(5)), example("visits", 1), example("likes", 1.5)]
    records = [record(examples=examples), record("fsrl", 0.5, examples=[example("likes", 7)]), record("random", 0.1)]
    protocol = main_protocol(records)
    assert protocol
    section = next(s for s in sections_of(StoredResults(records), protocol, {}) if s.title == "Examples")
    shown = [(e["model"], e["relation"], e["right"]) for e in section.examples]
    assert shown == [
        ("fsrl", "likes", False), ("rules", "likes", True), ("rules", "visits", True), ("rules", "likes", True),
        ("rules", "likes", True), ("rules", "likes", False),
    ]  # fmt: skip
    assert "✗ rank 1.5" in Page(page(StoredResults(records), {})).of("p")


def test_the_chart_by_references_prefers_models_measured_with_the_most_numbers() -> None:
    """FSRL and GMatching are the paper's comparison, and have the lowest figures here."""
    others = [
        "popularity",
        "reference-tails",
        "rules",
        "rescal",
        "transe",
        "distmult",
        "complex",
        "fsrl-tuned",
        "trail",
    ]
    records = [record(model, 0.5, shots=shots) for model in others for shots in (1, 3)]
    records += [record(model, 0.1, shots=shots) for model in ("fsrl", "gmatching-maxp") for shots in (1, 2, 3, 5)]
    protocol = main_protocol(records)
    assert protocol
    sections = sections_of(StoredResults(records), protocol, {})
    chart = next(s for s in sections if s.title == "By number of references").charts[0]
    assert isinstance(chart, LineChart)
    assert {"fsrl", "gmatching-maxp"} <= {*chart.series} and len(chart.series) == MAX_LINES


def test_other_settings_or_data_under_the_same_name_get_a_number(tmp_path: Path) -> None:
    records = [record(config={"dim": 1}), record(config={"dim": 2}), record(data_sha256="1" * 64)]
    parsed = Page(written(tmp_path, records))
    assert parsed.of("h2") == ["small", "small (2)", "About the figures"]
    assert "rules (2)" in parsed.of("th")


def test_commands_are_shown_once(tmp_path: Path) -> None:
    parsed = Page(written(tmp_path, many()))
    commands = [text for text in parsed.of("code") if text.startswith("fewlink")]
    assert sorted(commands) == sorted({r.command for r in many()})
    assert parsed.of("summary")[-1] == "All 4 commands"


def test_published_figures_stand_beside_the_paper_protocol(tmp_path: Path) -> None:
    figures = {"rules": {"test": {"mrr": 0.123, "hits@1": 0.1, "hits@5": 0.2, "hits@10": 0.3}}}
    parsed = Page(page(StoredResults(many()), {"small": figures}))
    assert "rules, as published" in parsed.of("em") and ".123" in parsed.of("em")


def test_the_same_records_give_the_same_page() -> None:
    assert page(StoredResults(many()), {}) == page(StoredResults(many()), {})


def test_records_of_dev_alone_make_a_page() -> None:
    parsed = Page(page(StoredResults([record(split="dev")]), {}))
    assert any("no few-shot evaluation on test" in text for text in parsed.of("p"))
    assert "dev, K = 3, full" in parsed.of("caption")


def test_an_empty_section_is_left_out() -> None:
    protocol = main_protocol([record()])
    assert protocol
    sections: list[Section] = sections_of(StoredResults([record()]), protocol, {})
    assert [s.title for s in sections] == ["Overall", "By relation"]


def test_a_report_that_fails_keeps_the_existing_page(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("before")
    store(tmp_path / "results", many())
    (tmp_path / "results" / "bad.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"bad\.jsonl.*benchmark"):
        write_report(tmp_path / "results", out)
    assert out.read_text() == "before"
    assert {p.name for p in tmp_path.iterdir()} == {"report.html", "results"}


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [
        ("a.maps.jsonl", {"points": []}, "benchmark"),
        ("a.maps.jsonl", pair_map(points=[[float("nan"), 0, "positive"]]), "points.0.0"),
        ("a.curves.jsonl", {"stations": []}, "benchmark"),
        ("a.curves.jsonl", curve(points=[]).model_dump(), "points"),
        ("a.jsonl", record(metrics={}).model_dump(), "micro"),
        ("a.jsonl", record(mrr=float("nan")).model_dump(), "micro"),
    ],
)
def test_a_file_that_cannot_be_shown_is_named(tmp_path: Path, name: str, content: Any, field: str) -> None:
    store(tmp_path, [record()])
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=field) as error:
        write_report(tmp_path, tmp_path / "report.html")
    assert (error.value.path, error.value.line) == (tmp_path / name, 1)


def test_the_error_names_a_folder_or_page_that_cannot_be_used(tmp_path: Path) -> None:
    folder = store(tmp_path / "results", [record()])
    (tmp_path / "empty").mkdir()
    for source, out, problem in [
        (tmp_path / "absent", tmp_path / "r.html", "absent"),
        (tmp_path / "empty", tmp_path / "r.html", "empty"),
        (folder, tmp_path / "empty", "empty"),
        (folder, tmp_path / "absent" / "r.html", "absent"),
    ]:
        with pytest.raises(FewlinkError, match=problem):
            write_report(source, out)
    assert not (tmp_path / "r.html").exists()
