from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.conftest import RECORD_KEYS, benchmark_of, graph_of, task_of

from fewlink.base.errors import InputError
from fewlink.baselines.learning_free import learning_free
from fewlink.evaluation import METRICS, Protocol, evaluate
from fewlink.evaluation.records import Record, command_line, make_record, read_records


def record(config: dict[str, Any] | None = None, seed: int = 0, **protocol: Any) -> Record:
    benchmark = benchmark_of(graph_of("a r b", "b r c"), test=[task_of([(0, 1), (1, 2), (2, 0)], range=[0, 1, 2])])
    evaluation = evaluate(
        benchmark, learning_free("popularity", benchmark.graph), Protocol(shots=1, seed=seed, **protocol)
    )
    return make_record(
        evaluation, benchmark="small", data_sha256=benchmark.fingerprint, model="popularity", config=config
    )


def test_a_record_holds_everything_needed_to_repeat_it() -> None:
    made = record({"layers": 2}).model_dump()
    assert list(made) == RECORD_KEYS
    assert (made["shots"], made["candidates"], made["references"], made["queries"]) == (1, "full", "first", 2)
    assert set(made["metrics"]) == {"micro", "macro"}
    assert set(made["metrics"]["micro"]) == set(METRICS) == {"mrr", "hits@1", "hits@5", "hits@10", "mr", "amri"}
    assert set(made["relations"]["task"]) == {"queries", "candidates", *METRICS}
    assert made["relations"]["task"]["candidates"] == 3
    assert len(made["data_sha256"]) == 64
    assert made["hardware"]
    assert made["seconds"] >= 0


def test_a_record_is_read_back_as_it_was(tmp_path: Path) -> None:
    made = record({"deep": {"list": [1, 2.5, None, "é"]}})
    path = made.save(tmp_path / "results")
    assert read_records(tmp_path / "results") == [made]
    assert list(json.loads(path.read_text())) == RECORD_KEYS


def test_the_same_measurement_has_the_same_file_name() -> None:
    again = record().model_copy(update={"seconds": 9.0, "hardware": "another machine", "command": "another"})
    assert record().file_name == again.file_name


def test_different_measurements_have_different_file_names() -> None:
    made = [
        record(),
        record({"layers": 2}),
        record({"layers": 3}),
        record(seed=1),
        record(draw=1),
        record(draw=2),
        record(candidates="open"),
        record().model_copy(update={"benchmark": "other"}),
        record().model_copy(update={"model": "other"}),
        record().model_copy(update={"split": "dev"}),
        record().model_copy(update={"shots": 5}),
        record().model_copy(update={"data_sha256": "0" * 64}),
    ]
    assert len({r.file_name for r in made}) == len(made)


def test_a_repeated_measurement_replaces_the_first(tmp_path: Path) -> None:
    record().save(tmp_path)
    record().model_copy(update={"seconds": 9.0}).save(tmp_path)
    assert [r.seconds for r in read_records(tmp_path)] == [9.0]


@pytest.mark.parametrize("name", ["a/b", "../up", "ü b"])
def test_any_name_of_a_benchmark_makes_a_file_in_the_folder(tmp_path: Path, name: str) -> None:
    path = record().model_copy(update={"benchmark": name}).save(tmp_path / "results")
    assert path.parent == tmp_path / "results"
    assert [r.benchmark for r in read_records(tmp_path / "results")] == [name]


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="extra"):
        Record(**record().model_dump(), extra=1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", r"bad.json:1: is not JSON"),
        ("[]", r"bad.json: is not a result record"),
        ("{}", r"bad.json: is not a result record \(benchmark: Field required\)"),
        ('{"unknown": 1}', r"bad.json: is not a result record"),
    ],
)
def test_a_file_that_is_no_record_is_named(tmp_path: Path, content: str, problem: str) -> None:
    record().save(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "bad.json").write_text(content)
    with pytest.raises(InputError, match=problem):
        read_records(tmp_path)


def test_a_field_that_is_unknown_or_wrong_is_named(tmp_path: Path) -> None:
    path = record().save(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "typo": 1}))
    with pytest.raises(InputError, match=r"is not a result record \(typo: Extra inputs are not permitted\)"):
        read_records(tmp_path)
    path.write_text(json.dumps({**record().model_dump(), "shots": "three"}))
    with pytest.raises(InputError, match=r"\(shots: "):
        read_records(tmp_path)


@pytest.mark.parametrize("program", ["/usr/bin/fewlink", "/somewhere/fewlink/__main__.py"])
def test_the_command_is_one_a_user_can_type(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program, "evaluate", "my bench", "-k", "3"])
    assert command_line() in ("fewlink evaluate 'my bench' -k 3", "python -m fewlink evaluate 'my bench' -k 3")
