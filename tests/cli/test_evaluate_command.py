"""`fewlink evaluate`, also with scorers of one's own, and `fewlink compare`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import RECORD_KEYS, Fewlink

from fewlink.evaluation.records import RecordStore, read_records
from fewlink.models.trail.shipped import shipped

OWN = """
import numpy as np

class Own:
    name = "{name}"

    def __init__(self, benchmark, seed):
        self.degrees = benchmark.graph.degrees

    def __call__(self, question):
        scores = -self.degrees[question.candidates].astype(float)
        return np.broadcast_to(scores, (len(question.heads), len(question.candidates)))

def nothing(benchmark, seed):
    return 3
"""


@pytest.fixture(autouse=True)
def modules_and_paths_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in ("own", "my_model"):
        sys.modules.pop(name, None)


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


@pytest.fixture
def measured(fewlink: Fewlink) -> Fewlink:
    """Records of two models, with ranks."""
    for split in ("dev", "test"):
        fewlink("evaluate", "umls", "--scorer", "rules", "--scorer", "popularity", "--split", split, "-k", 1, "-k", 3)
    return fewlink


def test_compare_prints_means_difference_and_interval(measured: Fewlink) -> None:
    out = measured("compare", "rules", "popularity", "--benchmark", "umls").out
    assert "umls, test, 6 relations: MRR" in out
    assert "95 % interval" in out and "rules ahead" in out
    row = next(line for line in out.splitlines() if "micro" in line).split()
    assert row[:3] == ["3", "full", "709"]
    assert row[6].startswith("+0.") and row[8] == "to"
    assert "rules 1, popularity 1" in out


def test_compare_as_json(measured: Fewlink) -> None:
    found = json.loads(
        measured("compare", "rules", "popularity", "--benchmark", "umls", "--metric", "hits@10", "--json").out
    )
    assert (found["models"], found["metric"]) == (["rules", "popularity"], "hits@10")
    assert found["micro"]["low"] <= found["micro"]["difference"] <= found["micro"]["high"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("rulez popularity --benchmark umls", "'rules'"),
        ("rules popularity --benchmark umlz", "'umls'"),
        ("rules popularity -k 2 --benchmark umls", "2-shot"),
        ("rules popularity --metric mr --benchmark umls", "'mr'"),
        ("rules popularity --results empty --benchmark umls", "empty"),
    ],
)
def test_mistakes_are_one_line(arguments: str, problem: str, measured: Fewlink) -> None:
    Path("empty").mkdir()
    answer = measured("compare", *arguments.split())
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert problem in answer.err


@pytest.mark.parametrize("where", ["own", "own.py", "./own.py"])
def test_a_scorer_of_ones_own_is_evaluated_and_compared(where: str, fewlink: Fewlink) -> None:
    Path("own.py").write_text(OWN.format(name="unpopular"))
    answer = fewlink("evaluate", "umls", "--scorer", f"{where}:Own", "--scorer", "popularity", "--split", "test")
    assert answer.code == 0, answer.err
    (record,) = [r for r in RecordStore(Path("fewlink-results")).records if r.model == "unpopular"]
    assert record.config == {"scorer": "own:Own"}
    assert "unpopular ahead" in fewlink("compare", "unpopular", "popularity", "--benchmark", "umls").out


@pytest.mark.parametrize(
    ("scorer", "problem"),
    [
        ("own:Onw", "'Own'"),
        ("owm:Own", "'owm'"),
        ("owm.py:Own", "owm.py"),
        ("own:Own", "'rules'"),
        ("own:nothing", "int"),
    ],
)
def test_mistakes_in_ones_own_scorer_are_one_line(scorer: str, problem: str, fewlink: Fewlink) -> None:
    Path("own.py").write_text(OWN.format(name="rules"))
    answer = fewlink("evaluate", "umls", "--scorer", scorer)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert problem in answer.err


def test_the_example_of_the_leaderboard_runs(fewlink: Fewlink, request: pytest.FixtureRequest) -> None:
    docs = request.config.rootpath / "docs"
    tutorial = (docs / "tutorials" / "own-model.md").read_text("utf-8")
    code = re.findall(r'```python title="my_model.py"\n(.+?)```', tutorial, re.DOTALL)
    Path("my_model.py").write_text(code[0])
    page = (docs / "leaderboard.md").read_text("utf-8")
    (commands,) = re.findall(r"```sh\n(fewlink evaluate umls .+?)```", page, re.DOTALL)
    fewlink("evaluate", "umls", "--scorer", "rules", "--split", "test", "--results", "results")
    for command in commands.replace("\\\n", " ").strip().split("\n"):
        answer = fewlink(*command.split()[1:])
        assert answer.code == 0, answer.err
    assert "adamic-adar ahead" in answer.out
