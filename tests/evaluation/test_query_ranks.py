"""The ranks of queries beside their records: what is stored, when it is replaced, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import benchmark_of, graph_of, task_of

from fewlink.core.errors import InputError
from fewlink.evaluation import Evaluation, Protocol, evaluate
from fewlink.evaluation.records import QueryRanks, Record, RecordStore, make_record, ranks_file, read_ranks, write_ranks
from fewlink.models.baselines import learning_free
from fewlink.tasks import Benchmark


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    one = task_of([(0, 1), (1, 2), (2, 0)], name="one", range=[0, 1, 2])
    two = task_of([(2, 1), (1, 0), (0, 2), (0, 1)], name="two", range=[0, 1, 2])
    return benchmark_of(graph_of("a r b", "b r c"), dev=[one], test=[two, one])


def measured(benchmark: Benchmark, seed: int = 0, **protocol: Any) -> tuple[Record, Evaluation]:
    scorer = learning_free("popularity", benchmark.graph)
    evaluation = evaluate(benchmark, scorer, Protocol(shots=1, seed=seed, **protocol))
    facts = {"benchmark": "small", "data_sha256": benchmark.fingerprint, "model": "popularity"}
    return make_record(evaluation, **facts), evaluation


def changed(evaluation: Evaluation) -> tuple[Record, Evaluation]:
    """The same evaluation with every rank one worse, and its record."""
    worse = [replace(task, ranks=task.ranks + 1) for task in evaluation.tasks]
    evaluation = replace(evaluation, tasks=worse)
    return make_record(evaluation, benchmark="small", data_sha256="0" * 64, model="popularity"), evaluation


def test_ranks_are_in_the_order_of_relations_then_heads(benchmark: Benchmark) -> None:
    ranks = QueryRanks.of(measured(benchmark)[1])
    assert ranks.relations == ("two", "one")
    assert ranks.counts.tolist() == [3, 2]
    queries = np.concatenate([task.queries for task in measured(benchmark)[1].tasks])
    assert queries.tolist() == [[0, 2], [0, 1], [1, 0], [1, 2], [2, 0]]


def test_the_digest_tells_other_queries_and_another_order_apart(benchmark: Benchmark) -> None:
    evaluation = measured(benchmark)[1]
    two, one = evaluation.tasks
    others = [
        [one, two],
        [two, replace(one, queries=one.queries + 1)],
        [two, replace(one, queries=one.queries[::-1])],
        [two, replace(one, relation="One")],
        [replace(two, queries=two.queries[:, ::-1]), one],
    ]
    digests = {QueryRanks.of(replace(evaluation, tasks=tasks)).digest for tasks in (*others, evaluation.tasks)}
    assert len(digests) == 6
    assert QueryRanks.of(changed(evaluation)[1]).digest == QueryRanks.of(evaluation).digest  # whatever the ranks are


@pytest.mark.parametrize("most", [127.5, 128, 32_767.5, 40_000, 3_000_000_000])
def test_one_large_rank_among_small_ones_is_read_back(tmp_path: Path, benchmark: Benchmark, most: float) -> None:
    two, one = measured(benchmark)[1].tasks
    tasks = [replace(two, ranks=np.array([1.0, 1.5, most])), one]
    evaluation = replace(measured(benchmark)[1], tasks=tasks)
    record = make_record(evaluation, benchmark="small", data_sha256="0" * 64, model="popularity")
    ranks = read_ranks(RecordStore(tmp_path).add(record, ranks=QueryRanks.of(evaluation)), record)
    assert ranks is not None and ranks.ranks.tolist() == [1.0, 1.5, most, *one.ranks]


def test_ranks_are_read_back_as_they_were(tmp_path: Path, benchmark: Benchmark) -> None:
    record, evaluation = measured(benchmark)
    file = RecordStore(tmp_path).add(record, ranks=QueryRanks.of(evaluation))
    assert ranks_file(file) == tmp_path / "small" / "popularity.ranks.npz"
    ranks = read_ranks(file, record)
    assert ranks is not None
    assert ranks.ranks.tolist() == [rank for task in evaluation.tasks for rank in task.ranks]
    assert (ranks.relations, ranks.digest) == (tuple(record.relations), QueryRanks.of(evaluation).digest)
    assert RecordStore(tmp_path).places == [(file, record)]


def test_the_bytes_do_not_depend_on_the_order_of_storing(tmp_path: Path, benchmark: Benchmark) -> None:
    cells = [measured(benchmark, seed) for seed in range(3)]
    contents = []
    for name, order in (("a", cells), ("b", cells[::-1])):
        for record, evaluation in order:
            file = RecordStore(tmp_path / name).add(record, ranks=QueryRanks.of(evaluation))
        contents.append(ranks_file(file).read_bytes())
    assert contents[0] == contents[1]


def test_a_record_that_was_stored_without_ranks_gets_them(tmp_path: Path, benchmark: Benchmark) -> None:
    record, evaluation = measured(benchmark)
    file = RecordStore(tmp_path).add(record)
    assert read_ranks(file, record) is None
    before = file.read_bytes()
    RecordStore(tmp_path).add(record, ranks=QueryRanks.of(evaluation))
    assert file.read_bytes() == before
    assert read_ranks(file, record) is not None
    RecordStore(tmp_path).add(record)  # the same figures again, without ranks
    assert read_ranks(file, record) is not None


def test_ranks_are_replaced_with_their_record(tmp_path: Path, benchmark: Benchmark) -> None:
    record, evaluation = measured(benchmark)
    worse, of_worse = changed(evaluation)
    worse = worse.model_copy(update={"data_sha256": record.data_sha256})
    other, of_other = measured(benchmark, split="dev")
    store = RecordStore(tmp_path)
    file = store.add(record, ranks=QueryRanks.of(evaluation))
    store.add(other, ranks=QueryRanks.of(of_other))
    store.add(worse, ranks=QueryRanks.of(of_worse), replace=True)
    ranks = read_ranks(file, worse)
    assert ranks is not None
    assert ranks.ranks.tolist() == QueryRanks.of(of_worse).ranks.tolist()
    store.add(record, replace=True)
    assert read_ranks(file, record) is None
    assert read_ranks(file, other) is not None


def test_ranks_that_do_not_give_the_figures_are_refused(tmp_path: Path, benchmark: Benchmark) -> None:
    record, evaluation = measured(benchmark)
    file = RecordStore(tmp_path).add(record)
    write_ranks(file, record, QueryRanks.of(changed(evaluation)[1]))
    with pytest.raises(InputError, match=r"popularity\.ranks\.npz"):
        read_ranks(file, record)


def test_a_damaged_file_is_named(tmp_path: Path, benchmark: Benchmark) -> None:
    record, evaluation = measured(benchmark)
    file = RecordStore(tmp_path).add(record, ranks=QueryRanks.of(evaluation))
    content = ranks_file(file).read_bytes()
    for damaged in (b"", b"text", content[:-30], content[:60] + b"\0\0\0\0" + content[64:]):
        ranks_file(file).write_bytes(damaged)
        with pytest.raises(InputError, match=r"popularity\.ranks\.npz"):
            read_ranks(file, record)


def test_the_gains_of_a_metric(benchmark: Benchmark) -> None:
    ranks = QueryRanks(("one",), np.array([3]), np.array([1.0, 1.5, 8.0]), "")
    assert ranks.gains().tolist() == [1, 2 / 3, 0.125]
    assert ranks.gains("hits@1").tolist() == [1, 0, 0]
    assert ranks.gains("hits@10").tolist() == [1, 1, 1]


def test_the_stored_ranks_of_the_repository_give_its_figures() -> None:
    places = RecordStore(Path(__file__).parents[2] / "results").places
    found = {
        record.model for file, record in places if read_ranks(file, record) is not None
    }  # raises where they differ
    assert {"rules", "popularity"} <= found
