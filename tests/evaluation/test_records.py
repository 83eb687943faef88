from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RECORD_KEYS, benchmark_of, graph_of, task_of

from fewlink.core.errors import InputError
from fewlink.evaluation import METRICS, Protocol, evaluate
from fewlink.evaluation.records import DifferentFigures, Record, RecordStore, make_record, read_records
from fewlink.models.baselines import learning_free


def record(config: dict[str, Any] | None = None, seed: int = 0, **protocol: Any) -> Record:
    task = task_of([(0, 1), (1, 2), (2, 0)], range=[0, 1, 2])
    benchmark = benchmark_of(graph_of("a r b", "b r c"), dev=[task], test=[task])
    evaluation = evaluate(
        benchmark, learning_free("popularity", benchmark.graph), Protocol(shots=1, seed=seed, **protocol)
    )
    return make_record(
        evaluation, benchmark="small", data_sha256=benchmark.fingerprint, model="popularity", config=config
    )


def test_a_record_holds_everything_needed_to_repeat_it() -> None:
    fields = record({"layers": 2}).model_dump()
    assert list(fields) == RECORD_KEYS
    assert (fields["shots"], fields["candidates"], fields["references"], fields["queries"]) == (1, "full", "first", 2)
    assert set(fields["metrics"]) == {"micro", "macro"}
    assert set(fields["metrics"]["micro"]) == set(METRICS) == {"mrr", "hits@1", "hits@5", "hits@10", "mr", "amri"}
    assert set(fields["relations"]["task"]) == {"queries", "candidates", *METRICS}
    assert fields["relations"]["task"]["candidates"] == 3
    assert len(fields["data_sha256"]) == 64
    assert fields["hardware"]
    assert fields["seconds"] >= 0


def stored(folder: Path, *records: Record) -> Path:
    """A store of these records, all of one model; the file they are in."""
    return [RecordStore(folder).add(one) for one in records][-1]


def test_a_record_is_read_back_as_it_was(tmp_path: Path) -> None:
    one = record({"deep": {"list": [1, 2.5, None, "é\u2028"]}})
    path = stored(tmp_path / "results", one)
    assert path == tmp_path / "results" / "small" / "popularity.jsonl"
    assert read_records(tmp_path / "results") == [one]
    assert list(json.loads(path.read_bytes())) == [*RECORD_KEYS, "sha256"]


def test_a_file_has_one_sorted_line_for_each_record(tmp_path: Path) -> None:
    records = [record(seed=2), record(split="dev"), record({"layers": 3}), record({"layers": 2}), record(seed=1)]
    one, other = (stored(tmp_path / name, *order) for name, order in (("a", records), ("b", records[::-1])))
    assert one.read_bytes() == other.read_bytes()
    lines = [json.loads(line) for line in one.read_text().splitlines()]
    assert [(r["split"], r["seed"], r["config"].get("layers")) for r in lines] == [
        ("dev", 0, None), ("test", 0, 2), ("test", 0, 3), ("test", 1, None), ("test", 2, None),
    ]  # fmt: skip


def test_different_measurements_have_different_keys() -> None:
    records = [
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
    assert len({r.key for r in records}) == len(records)


def test_a_repeated_measurement_is_stored_once(tmp_path: Path) -> None:
    path = stored(tmp_path, record(), record(seed=1))
    before = path.read_bytes()
    assert stored(tmp_path, record().model_copy(update={"seconds": 9.0})) == path
    assert path.read_bytes() == before


def test_other_figures_are_refused_unless_they_replace(tmp_path: Path) -> None:
    path = stored(tmp_path, record(), record(seed=1))
    before, other = path.read_bytes(), record().model_copy(update={"queries": 7})
    with pytest.raises(DifferentFigures, match=r"popularity.jsonl .*--replace"):
        RecordStore(tmp_path).add(other)
    assert path.read_bytes() == before
    RecordStore(tmp_path).add(other, replace=True)
    assert [(r.seed, r.queries) for r in read_records(tmp_path)] == [(0, 7), (1, 2)]


ADD = """
import sys
from pathlib import Path
from fewlink.evaluation.records import Record, RecordStore
record = Record.model_validate_json(sys.stdin.read())
for seed in range(int(sys.argv[2]), int(sys.argv[2]) + 10):
    RecordStore(Path(sys.argv[1])).add(record.model_copy(update={"seed": seed}))
"""


def test_processes_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ADD, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(first)], stdin=subprocess.PIPE, text=True) for first in (0, 10)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(record().model_dump_json())
        process.stdin.close()
    while any(process.poll() is None for process in processes):
        read_records(tmp_path)  # never half a line
    assert [process.returncode for process in processes] == [0, 0]
    assert [r.seed for r in read_records(tmp_path)] == list(range(20))


@pytest.mark.parametrize("name", ["a/b", "../up", "..", "ü b", "fsrl.maps", "long" * 100])
def test_any_name_of_a_benchmark_or_model_makes_a_file_in_the_folder(tmp_path: Path, name: str) -> None:
    one = record().model_copy(update={"benchmark": name, "model": name})
    path = stored(tmp_path / "results", one)
    assert path.resolve().parent.parent == tmp_path.resolve() / "results"
    assert read_records(tmp_path / "results") == [one]


def test_the_folder_of_a_benchmark_is_a_store_too(tmp_path: Path) -> None:
    path = stored(tmp_path, record())
    assert stored(tmp_path / "small", record(), record(seed=1)) == path
    assert [r.seed for r in read_records(tmp_path)] == [0, 1]


def without_checksum(line: bytes) -> bytes:
    content = json.loads(line)
    del content["sha256"]
    return json.dumps(content).encode()


def test_a_changed_figure_is_noticed(tmp_path: Path) -> None:
    path = stored(tmp_path, record(), record(seed=1))
    first, second = path.read_bytes().splitlines()
    path.write_bytes(first + b"\n" + second.replace(b'"mrr": 0.4', b'"mrr": 0.5', 1))
    with pytest.raises(InputError, match=r"popularity\.jsonl:2: "):
        read_records(tmp_path)
    with pytest.raises(InputError, match=r"popularity\.jsonl:2: "):
        stored(tmp_path, record(seed=2))


@pytest.mark.parametrize(
    ("change", "token"),
    [
        (lambda line: line[: len(line) // 2], "JSON"),
        (lambda line: b"\xff" + line, "JSON"),
        (lambda line: b"[]", "result record"),
        (lambda line: b"{}", "benchmark"),
        (lambda line: line.replace(b'"shots": 1', b'"shots": "one"'), "shots"),
        (lambda line: line.replace(b'"seed": 1', b'"seed": 0'), "earlier line"),
        (lambda line: line.replace(b'"seed"', b'"sede"'), "seed"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, change: Callable[[bytes], bytes], token: str) -> None:
    path = stored(tmp_path, record(), record(seed=1))
    first, second = map(without_checksum, path.read_bytes().splitlines())
    path.write_bytes(first + b"\n\n" + change(second))
    with pytest.raises(InputError, match=f"popularity.jsonl:3: .*{token}"):
        read_records(tmp_path)
    with pytest.raises(InputError, match=token):
        stored(tmp_path, record(seed=2))


def test_a_store_that_is_the_working_folder_is_the_benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").mkdir()
    monkeypatch.chdir(tmp_path / "small")
    assert stored(Path("."), record()) == Path("popularity.jsonl")


def test_a_record_without_a_checksum_is_read_and_gets_one_with_the_next(tmp_path: Path) -> None:
    path = stored(tmp_path, record())
    path.write_bytes(without_checksum(path.read_bytes()) + b"\n")
    assert [r.seed for r in read_records(tmp_path)] == [0]
    stored(tmp_path, record(seed=1))
    assert all("sha256" in json.loads(line) for line in path.read_text().splitlines())
