"""The command line: output, stored files and error messages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.conftest import RECORD_KEYS, Answer, Fewlink, write_layout

from fewlink import __version__, cli, graph
from fewlink.evaluation.records import Record, RecordStore, read_records
from fewlink.models.trail.shipped import shipped
from fewlink.tasks import nell_layout, open_benchmark


def error_line(answer: Answer) -> str:
    """The one-line error message of a command."""
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    return answer.err


def commands() -> list[tuple[str, ...]]:
    """The words of every command; those in a group begin with the group's name."""
    words: list[tuple[str, ...]] = []
    for name, command in typer.main.get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        words += [(name, inside) for inside in getattr(command, "commands", {})] or [(name,)]
    return words


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(cli.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def test_help_loads_nothing_heavy() -> None:
    answer = python("-X", "importtime", "-m", "fewlink", "--help")
    assert answer.returncode == 0
    assert "few" in answer.stdout
    loaded = {line.rsplit("|", 1)[-1].strip() for line in answer.stderr.splitlines()}
    assert "fewlink.cli" in loaded
    assert not loaded & {"torch", "numpy", "pyarrow", "pydantic", "pandas"}


MISTAKES = [
    "ask nofile.tsv",
    "ask nofile.tsv --reference a=>b --head c",
    "ask umls --reference a,b --head c",
    "ask umls --reference a=>b --head c --names nofile",
    "predict nofile --reference a=>b --head c",
    "serve nofile.tsv",
    "serve umls --device gpu",
    "train nosuch --out r",
    "train umls",
    "train umls --model nosuch --out r",
    "train --resume nosuch",
    "fit nofile.tsv --out r",
    "card nosuch",
    "evaluate nosuch",
    "evaluate umls --scorer rulez",
    "evaluate umls --scorer nofile.py:make",
    "compare rules popularity --results nosuch",
    "compare rules popularity --results . --metric mr",
    "study nosuch",
    "study overall nosuch",
    "results nosuch",
    "results .",
    "report nosuch",
    "models --model nosuch",
    "pretrain nosuch --out r",
    "pretrain umls --model nosuch --out r",
    "tune nosuch --out r",
    "links nofile.tsv --valid nofile.tsv",
    "embeddings import nosuch nosuch --out r",
    "embeddings export nosuch nosuch --out r",
    "data info nosuch",
    "data check nofile.parquet",
    "data carve nofile.tsv --out r",
    "data append nosuch nofile.tsv",
    "data compile nosuch --out r",
    "data check attack",
    "data carve attack --out r",
    "fit attack --out r",
    "mcp umls --names nofile",
]


def test_mistakes_are_reported_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    """Importing torch takes seconds; the commands run in one process, which must not have it in the end."""
    program = f"""
import os, sys
os.chdir({str(tmp_path)!r})
from fewlink import cli
for line in {MISTAKES!r}:
    sys.argv = ["fewlink", *line.split()]
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code
    assert code == 2, (line, code)
    assert not sys.modules.keys() & {{"torch", "fastapi"}}, line
"""
    answer = python("-c", program)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.count("error: ") == len(MISTAKES)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk_is_one_line() -> None:
    source = str(Path(cli.__file__).parents[2])
    with open("/dev/full", "w") as full:
        answer = subprocess.run(
            [sys.executable, "-m", "fewlink", "version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source},
            check=False,
        )
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: No space left on device") and answer.stderr.count("\n") == 1


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_help_page_fits_80_columns_and_shows_an_example(
    command: tuple[str, ...], fewlink: Fewlink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    answer = fewlink(*command, "--help")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    assert f"Example: fewlink {' '.join(command)}" in re.sub(r"[\s│]+", " ", answer.out)
    assert "--quiet" in answer.out
    assert not re.findall(r"--[\w-]*…|\t|\[\[|<(?:bool|str|int|float|path)", answer.out)


def test_help_lists_every_command_once_in_one_line_under_a_heading(
    fewlink: Fewlink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    page = fewlink("--help").out
    headings = re.findall(r"╭─ (.+?) ─+╮", page)
    assert headings == ["Options", *cli.COMMANDS, "About fewlink"]
    _, _, lists = page.partition(f"╭─ {headings[1]} ")
    listed = re.findall(r"^│ (\S+) +\S", lists, re.MULTILINE)
    names = [name for group in cli.COMMANDS.values() for name, _, _ in group]
    assert listed == [*names, "version"] and {*listed} == {words[0] for words in commands()}
    assert not re.findall(r"^│   ", lists, re.MULTILINE)  # no line goes on in the next


def test_check_reads_no_model(fewlink: Fewlink, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_model(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("fewlink.linker.saving.shipped_scorer", no_model)
    monkeypatch.setattr("fewlink.linker.saving.open_scorer", no_model)
    answer = fewlink("check", "umls", "--relation", "isa", "--top", 3)
    assert answer.code == 0 and "oddness" in answer.out
    assert "bench" in error_line(fewlink("check", "umls", "--bench", "umls"))


def test_version_as_a_command_and_as_an_option(fewlink: Fewlink) -> None:
    assert fewlink("version").out == f"fewlink {__version__}\n"
    assert fewlink("--version") == fewlink("version")
    assert "torch" in fewlink("version", "--env").out


def test_evaluate_stores_a_record_and_prints_it(fewlink: Fewlink, tmp_path: Path) -> None:
    answer = fewlink("evaluate", "umls", "--scorer", "popularity", "--split", "test", "--shots", 5, "--json")
    assert (answer.code, answer.err) == (0, "")
    record = json.loads(answer.out)
    assert list(record) == RECORD_KEYS
    assert (record["benchmark"], record["model"], record["split"], record["shots"]) == ("umls", "popularity", "test", 5)
    assert (record["candidates"], record["references"], record["seed"]) == ("full", "first", 0)
    assert record["queries"] == sum(r["queries"] for r in record["relations"].values())
    assert record["command"] == "fewlink evaluate umls --scorer popularity --split test --shots 5 --json"
    assert [r.model_dump() for r in read_records(tmp_path / "fewlink-results")] == [record]


def test_evaluate_prints_a_table_with_every_relation(fewlink: Fewlink) -> None:
    answer = fewlink("evaluate", "umls", "--scorer", "popularity", "--results", "here")
    assert answer.code == 0
    assert "MRR" in answer.out
    assert "popularity" in answer.out
    assert answer.out.endswith("stored in here/umls/popularity.jsonl\n")
    for relation in read_records(Path("here"))[0].relations:
        assert relation in answer.out


def test_shipped_weights_are_named_in_the_record(fewlink: Fewlink) -> None:
    words = ("evaluate", "umls", "--scorer", "trail", "--scorer", "rules", "--shots", 1, "--shots", 3, "--json")
    records = json.loads(fewlink(*words).out)
    assert [(r["model"], r["shots"]) for r in records] == [
        ("trail-built-in", 1),
        ("trail-built-in", 3),
        ("rules", 1),
        ("rules", 3),
    ]
    assert records[0]["config"] == {"weights": shipped().facts} and len(shipped().facts["sha256"]) == 64


def test_each_draw_has_a_record(fewlink: Fewlink) -> None:
    answer = fewlink("evaluate", "umls", "--scorer", "popularity", "--draws", 3, "--seed", 7, "--json")
    records = json.loads(answer.out)
    assert [r["references"] for r in records] == ["draw-1", "draw-2", "draw-3"]
    assert {r["seed"] for r in records} == {7}
    assert len(read_records(Path("fewlink-results"))) == 3
    assert len({r["metrics"]["micro"]["mrr"] for r in records}) > 1


def test_repeating_a_command_stores_its_record_once(fewlink: Fewlink) -> None:
    first, second = (json.loads(fewlink("evaluate", "umls", "--json").out) for _ in range(2))
    assert len(read_records(Path("fewlink-results"))) == 1
    assert first["metrics"] == second["metrics"]


def test_other_figures_are_shown_and_replace_a_record_on_demand(fewlink: Fewlink) -> None:
    words = ("evaluate", "umls", "--scorer", "popularity", "--results", "kept")
    fewlink(*words)
    (record,) = read_records(Path("kept"))
    RecordStore(Path("kept")).add(record.model_copy(update={"queries": 1}), replace=True)
    answer = fewlink(*words)
    assert answer.code == 2 and "popularity" in answer.out
    assert "--replace" in answer.err
    assert read_records(Path("kept"))[0].queries == 1
    assert fewlink(*words, "--replace").code == 0
    assert read_records(Path("kept"))[0].queries == record.queries


def test_records_of_a_clone_are_read_but_not_written_by_default(fewlink: Fewlink, tmp_path: Path) -> None:
    fewlink("evaluate", "umls", "--scorer", "random", "--results", "results")
    assert "random" in fewlink("results").out
    fewlink("evaluate", "umls", "--scorer", "popularity")
    assert [r.model for r in read_records(tmp_path / "results")] == ["random"]
    shown = fewlink("results").out
    assert "popularity" in shown and "random" not in shown


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("evaluate umls --scorer rulez", "'rules'"),
        ("evaluate umls --scorer trail --set steps=3", "trail"),
        ("evaluate umls --split tets", "'test'"),
        ("evaluate umls --candidates ful", "'full'"),
        ("evaluate umlz", "'umls'"),
        ("evaluate umls --shots 0", "shots"),
        ("evaluate umls --shots 900", "900"),
        ("evaluate umls --draws -1", "draws"),
        ("evaluate umls --engine processes:0", "processes:0"),
        ("evaluate umls --scorer popularity --results /dev/null/x", "/dev/null/x"),
        ("evaluate attack --scorer rules", "attack-few"),
        ("data info nowhere", "'nowhere'"),
        ("data get nell", "'nell-one'"),
        ("data get umls", "umls"),
        ("data get attack --from nell.tar.gz", "--from"),
        ("data get nell-one --out here", "--out"),
        ("data check nothing.tsv", "nothing.tsv"),
        ("data check .", "."),
        ("data check attack", "fewlink data get attack --out"),
        ("data carve attack --out r", "fewlink data get attack --out"),
        ("data carve nothing.tsv --out new", "nothing.tsv"),
        ("data compile nosuch --out r", "nosuch"),
        ("fit attack --out r", "fewlink data get attack --out"),
        ("mcp umls --names nofile", "nofile"),
        ("results", "results"),
    ],
)
def test_a_user_error_is_one_line_that_names_the_mistake(arguments: str, named: str, fewlink: Fewlink) -> None:
    assert named in error_line(fewlink(*arguments.split()))


def test_an_argument_that_is_not_valid_text_causes_no_traceback(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path / "r") + b"\xff")
    answer = python("-m", "fewlink", "evaluate", "umls", "--scorer", "popularity", "--results", folder)
    assert "Traceback" not in answer.stderr


def test_data_list_shows_the_catalogue(fewlink: Fewlink) -> None:
    shown = fewlink("data", "list").out
    assert all(name in shown for name in ("umls", "nell-one", "wiki-one"))
    rows = {row["name"]: row for row in json.loads(fewlink("data", "list", "--json").out)}
    assert rows["umls"]["here"] is True
    assert rows["nell-one"]["here"] is False
    assert rows["nell-one"]["from"].startswith("https://")


@pytest.mark.parametrize("memory", ["1K", "4GB"])
def test_data_compile_writes_a_graph(fewlink: Fewlink, tmp_path: Path, memory: str) -> None:
    (tmp_path / "graph.tsv").write_text("".join(f"e{i}\tr{i % 3}\te{i * i % 70}\n" for i in range(100)))
    answer = fewlink("data", "compile", "graph.tsv", "--out", "compiled", "--memory", memory)
    assert answer.code == 0 and "100" in answer.out and not list(tmp_path.glob(".compiled*.work"))
    fewlink("ask", "compiled", "--reference", "e1 => e4", "--head", "e2", "--json")
    assert "compiled: " in error_line(fewlink("data", "compile", "graph.tsv", "--out", "compiled"))
    assert "--memory is 'much'" in error_line(fewlink("data", "compile", "graph.tsv", "--out", "a", "--memory", "much"))


def test_data_compile_writes_a_benchmark(fewlink: Fewlink, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "tiny")
    answer = fewlink("data", "compile", layout, "--out", "compiled")
    assert answer.code == 0 and "compiled" in answer.out
    counts = [json.loads(fewlink("data", "info", place, "--json").out)["counts"] for place in (layout, "compiled")]
    assert counts[0] == counts[1]
    assert "compiled: " in error_line(fewlink("data", "compile", layout, "--out", "compiled"))
    assert str(tmp_path) in error_line(fewlink("data", "compile", tmp_path, "--out", "other"))
    assert not (tmp_path / "other").exists()


def test_data_info_counts_entities_triples_and_tasks(fewlink: Fewlink, tmp_path: Path) -> None:
    facts = json.loads(fewlink("data", "info", write_layout(tmp_path / "tiny"), "--json").out)
    assert facts["counts"] == {
        "entities": 7,
        "background triples": 4,
        "background relations": 2,
        "entity types": 0,
        "train tasks": 1,
        "dev tasks": 1,
        "test tasks": 1,
        "train pairs": 2,
        "dev pairs": 2,
        "test pairs": 3,
    }
    assert facts["tasks"][-1] == {"split": "test", "relation": "visited", "pairs": 3, "candidates": 2}
    assert "visited" in fewlink("data", "info", tmp_path / "tiny").out


def test_data_get_from_an_archive_makes_the_benchmark_available_by_name(fewlink: Fewlink, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "mine.tar.gz", "w:gz") as tar:
        tar.add(write_layout(tmp_path / "tiny"), arcname="nell")
    answer = fewlink("data", "get", "nell-one", "--from", tmp_path / "mine.tar.gz")
    assert answer.code == 0
    assert answer.err.startswith("note: ")  # the figures are not those of the published files
    assert str(tmp_path / "home" / "nell-one") in answer.out
    assert fewlink("evaluate", "nell-one", "--split", "test", "--shots", 1).code == 0


def test_data_check_reports_counts_and_problems(fewlink: Fewlink, tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("a\tr\tb\na\tr\tb\nb\tq\tb\nbad line\n")
    answer = fewlink("data", "check", "g.tsv", "--smallest", 1, "--largest", 9)
    assert answer.code == 0
    assert "r, q" in answer.out and "g.tsv:4: " in answer.out and "'b'" in answer.out
    report = json.loads(fewlink("data", "check", "g.tsv", "--json").out)
    assert report["counts"]["duplicate triples"] == 1


@pytest.mark.parametrize("name", ["[/x]", "a[bold]b", "x:dog:y", "[link=http://x]y"])
def test_names_are_printed_without_markup(name: str, fewlink: Fewlink, tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text(f"a\t{name}\tb\n")
    answer = fewlink("data", "check", "g.tsv")
    assert answer.code == 0
    assert name in answer.out


def test_data_carve_writes_a_benchmark_that_can_be_evaluated(fewlink: Fewlink, tmp_path: Path) -> None:
    rows = [f"p{i}\tin\tc{i % 4}" for i in range(40)]
    rows += [f"p{i}\tr{k}\tp{(i + k + 1) % 40}" for k in range(5) for i in range(10 + k)]
    (tmp_path / "g.tsv").write_text("\n".join([*rows, "bad line", rows[0]]))
    carve = ("data", "carve", "g.tsv", "--out", "mine", "--smallest", 5, "--largest", 20)
    assert "g.tsv:101: " in error_line(fewlink(*carve))
    answer = fewlink(*carve, "--on-error", "skip")
    assert answer.code == 0
    assert answer.err.count("note: 1 ") == 2  # a bad line and a duplicate triple
    record = json.loads(fewlink("evaluate", "mine", "--split", "test", "--json").out)
    before = (tmp_path / "mine" / "manifest.json").read_bytes()
    assert "mine: " in error_line(fewlink(*carve, "--on-error", "skip", "--seed", 1))
    assert (tmp_path / "mine" / "manifest.json").read_bytes() == before
    assert fewlink(*carve, "--on-error", "skip", "--seed", 1, "--replace").code == 0
    assert (tmp_path / "mine" / "manifest.json").read_bytes() != before
    assert record["benchmark"] == "mine"
    assert record["queries"] > 0
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("irreplaceable")
    assert "thesis" in error_line(fewlink(*carve[:4], "thesis", *carve[5:], "--on-error", "skip"))


def test_results_are_filtered_and_averaged(fewlink: Fewlink) -> None:
    fewlink("evaluate", "umls", "--scorer", "popularity", "--draws", 2)
    fewlink("evaluate", "umls", "--scorer", "popularity", "--split", "test", "--shots", 5)
    fewlink("evaluate", "umls", "--scorer", "random", "--candidates", "open")

    def listed(*filters: object) -> list[dict[str, object]]:
        return json.loads(fewlink("results", "--json", *filters).out)

    assert len(listed()) == 4
    assert len(listed("--model", "popularity")) == 3
    assert [r["shots"] for r in listed("--split", "test")] == [5]
    assert [r["model"] for r in listed("--candidates", "open")] == ["random"]
    assert [r["references"] for r in listed("--references", "draw-2")] == ["draw-2"]
    assert listed("--shots", 3, "--benchmark", "other") == []
    table = fewlink("results", "--model", "popularity", "--split", "dev").out
    assert "2 draws" in table
    assert "±" in table
    assert fewlink("results", "--each", "--model", "popularity", "--split", "dev").out.count("popularity") == 2
    Path("notes.txt").touch()
    Path("empty").mkdir()
    for words, named in {
        ("--benchmark", "other"): "'other'",
        ("--model", "populrity"): "'popularity'",
        ("--model", "random", "--split", "test"): "filters",
        ("results-of-nobody",): "results-of-nobody",
        ("notes.txt",): "notes.txt",
        ("empty",): "empty",
    }.items():
        assert named in error_line(fewlink("results", *words))


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_no_number_is_broken_across_lines(columns: int, fewlink: Fewlink, monkeypatch: pytest.MonkeyPatch) -> None:
    for model, split in (("popularity", "dev"), ("reference-tails", "dev"), ("random", "test")):
        fewlink("evaluate", "umls", "--scorer", model, "--split", split, "--draws", 2)
    fewlink("evaluate", "umls", "--scorer", "popularity", "--shots", 1, "--candidates", "open")

    def words(text: str) -> list[str]:
        return re.sub(r"\x1b\[[\d;]*m", "", text).split()

    figures = {word for word in words(fewlink("results").out) if re.fullmatch(r"-?\d?\.\d{3}(±\.\d{3})?", word)}
    assert any("±" in figure for figure in figures)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # as on a terminal of this width
    narrow = fewlink("results").out
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in narrow.splitlines()) <= columns
    missing = figures - {*words(narrow)}
    assert len(missing) <= (4 if columns == 80 else 0)  # at 80 columns there is no AMRI
    assert {"popularity", "reference-tails", "random"} <= {*words(narrow)}


def test_results_of_different_settings_are_not_averaged(fewlink: Fewlink, tmp_path: Path) -> None:
    fewlink("evaluate", "umls", "--scorer", "popularity")
    store = RecordStore(tmp_path / "fewlink-results")
    for layers in (1, 2):
        store.add(Record(**{**store.records[0].model_dump(), "model": "deep", "config": {"layers": layers}}))
    assert fewlink("results").out.count("deep") == 2


def test_a_record_in_two_files_is_shown_once(fewlink: Fewlink, tmp_path: Path) -> None:
    fewlink("evaluate", "umls", "--scorer", "popularity")
    once = fewlink("results").out
    (record,) = read_records(tmp_path / "fewlink-results")
    RecordStore(tmp_path / "fewlink-results" / "copy").add(record)
    assert fewlink("results").out == once and "±" not in once


def test_a_benchmark_that_another_process_makes_meanwhile_is_not_replaced(
    fewlink: Fewlink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = write_layout(tmp_path / "tiny")
    rows = [f"p{i}\tin\tc{i % 4}\n" for i in range(40)]
    rows += [f"p{i}\tr{k}\tp{(i + k + 1) % 40}\n" for k in range(5) for i in range(10 + k)]
    (tmp_path / "g.tsv").write_text("".join(rows))

    def after(read: Callable[..., Any], place: str) -> Callable[..., Any]:
        def read_then_save(*words: Any, **options: Any) -> Any:
            result = read(*words, **options)
            open_benchmark("umls").save(tmp_path / place)
            return result

        return read_then_save

    monkeypatch.setattr("fewlink.tasks.nell_layout.read_layout", after(nell_layout.read_layout, "a"))
    monkeypatch.setattr("fewlink.graph.compile_graph", after(graph.compile_graph, "b"))
    assert "a: " in error_line(fewlink("data", "compile", layout, "--out", "a"))
    carve = ("data", "carve", "g.tsv", "--out", "b", "--smallest", 5, "--largest", 20)
    assert "b: " in error_line(fewlink(*carve))
    for place in ("a", "b"):
        assert open_benchmark(tmp_path / place).name == "umls"
    assert fewlink(*carve, "--replace").code == 0 and open_benchmark(tmp_path / "b").name == "b"
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("option", ["--results", "--work", "--out"])
@pytest.mark.parametrize("more", ["--show", "--todo", "--tiny"])
def test_a_study_in_the_place_of_a_file_is_one_line(fewlink: Fewlink, tmp_path: Path, option: str, more: str) -> None:
    (tmp_path / "letter").write_text("dear")
    words = ("study", "overall", "--tiny", option, "letter", *([] if more == "--tiny" else [more]))
    error = error_line(fewlink(*words))
    assert "letter" in error and option in error


def test_an_interrupt_while_the_command_is_imported_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fewlink.__main__ import main

    class Interrupted:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "fewlink.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "fewlink.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupted, *sys.meta_path])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130 and capsys.readouterr().err == "stopped\n"
