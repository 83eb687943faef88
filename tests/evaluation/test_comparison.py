"""Two models query by query: differences by hand, intervals against a literal loop, and what is refused."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import benchmark_of, graph_of, task_of

from fewlink.core.errors import FewlinkError
from fewlink.evaluation import Protocol, compare, evaluate, paired_bootstrap
from fewlink.evaluation.records import QueryRanks, RecordStore, make_record, read_ranks
from fewlink.models.baselines import learning_free


def store(folder: Path, model: str, ranks: list[list[float]], *, seed: int = 0, data: str = "0") -> None:
    """A record of a model with these ranks of the relations' queries."""
    pairs = [[(i, (i + 1) % 9) for i in range(len(each) + 1)] for each in ranks]
    tasks = [task_of(each, range=range(9), name=f"r{number}") for number, each in enumerate(pairs)]
    benchmark = benchmark_of(graph_of(*(f"{a} r {b}" for a, b in zip("abcdefgh", "bcdefghi", strict=True))), test=tasks)
    evaluation = evaluate(benchmark, learning_free("popularity", benchmark.graph), Protocol(shots=1, seed=seed))
    measured = [replace(t, ranks=np.array(r, float)) for t, r in zip(evaluation.tasks, ranks, strict=True)]
    evaluation = replace(evaluation, tasks=measured)
    record = make_record(evaluation, benchmark="small", data_sha256=data * 64, model=model)
    RecordStore(folder).add(record, ranks=QueryRanks.of(evaluation))


def test_means_over_seeds_queries_and_relations_by_hand(tmp_path: Path) -> None:
    store(tmp_path, "a", [[1, 2], [4]])
    store(tmp_path, "a", [[2, 2], [2]], seed=1)
    store(tmp_path, "b", [[2, 2], [1]])
    found = compare(tmp_path, "a", "b", "small", shots=1)
    assert (found.queries, found.relations, found.seeds) == (3, 2, (2, 1))
    assert found.micro.first == pytest.approx((0.75 + 0.5 + 0.375) / 3)
    assert found.micro.second == pytest.approx(2 / 3)
    assert found.macro.first == pytest.approx((0.625 + 0.375) / 2)
    assert found.macro.second == pytest.approx(0.75)
    assert found.micro.difference == pytest.approx(found.micro.first - 2 / 3)
    assert (found.micro.low, found.micro.high) == pytest.approx((0.375 - 1, 0.125))  # one relation drawn twice
    assert found.micro.ahead == pytest.approx(0.25, abs=0.02)


def test_hits_are_compared_too(tmp_path: Path) -> None:
    store(tmp_path, "a", [[1, 2], [4]])
    store(tmp_path, "b", [[2, 2], [1]])
    found = compare(tmp_path, "a", "b", "small", shots=1, metric="hits@1")
    assert (found.micro.first, found.micro.second, found.macro.first) == pytest.approx((1 / 3, 1 / 3, 1 / 4))


def test_queries_are_drawn_where_there_is_one_relation(tmp_path: Path) -> None:
    store(tmp_path, "a", [[1, 2, 4, 1, 1]])
    store(tmp_path, "b", [[2, 2, 2, 2, 1]])
    found = compare(tmp_path, "a", "b", "small", shots=1)
    assert found.relations == 1
    assert found.micro == found.macro
    assert found.micro.low < found.micro.difference < found.micro.high


def test_a_model_does_not_differ_from_itself(tmp_path: Path) -> None:
    store(tmp_path, "a", [[1, 2], [4]])
    found = compare(tmp_path, "a", "a", "small", shots=1)
    assert found.micro[2:] == found.macro[2:] == (0, 0, 0, 0.5)


def test_the_interval_is_that_of_a_literal_loop() -> None:
    draw = np.random.default_rng(0)
    counts = np.array([3, 40, 1, 12, 7, 90])
    first, second = draw.random(counts.sum()), draw.random(counts.sum()) * 0.9
    micro, macro = paired_bootstrap(first, second, counts)
    parts = list(zip(*(np.split(v, np.cumsum(counts)[:-1]) for v in (first, second)), strict=True))
    resampled = []
    for _ in range(4000):
        drawn = [parts[i] for i in draw.integers(0, len(parts), len(parts))]
        one, other = (np.concatenate(values) for values in zip(*drawn, strict=True))
        of_relations = np.mean([a.mean() - b.mean() for a, b in drawn])
        resampled.append((one.mean() - other.mean(), of_relations))
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    for found, column in ((micro, 0), (macro, 1)):
        assert found.low == pytest.approx(low[column], abs=0.02)
        assert found.high == pytest.approx(high[column], abs=0.02)
        assert found.ahead == pytest.approx(np.mean(np.array(resampled)[:, column] > 0), abs=0.03)


def test_ten_thousand_resamples_take_well_under_a_second() -> None:
    counts = np.full(60, 200)
    values = np.random.default_rng(0).random(counts.sum())
    start = time.monotonic()
    paired_bootstrap(values, values / 2, counts)
    assert time.monotonic() - start < 1


def test_the_same_comparison_has_the_same_interval(tmp_path: Path) -> None:
    store(tmp_path, "a", [[1, 2], [4]])
    store(tmp_path, "b", [[2, 2], [1]])
    assert compare(tmp_path, "a", "b", "small", shots=1) == compare(str(tmp_path), "a", "b", "small", shots=1)


def test_other_queries_are_refused(tmp_path: Path) -> None:
    store(tmp_path, "a", [[1, 2], [4]])
    store(tmp_path, "b", [[1], [4, 2]])
    store(tmp_path, "c", [[1, 2], [4]], data="1")
    for other in ("b", "c"):
        with pytest.raises(FewlinkError, match=f"a and {other}.*small"):
            compare(tmp_path, "a", other, "small", shots=1)


def test_missing_ranks_name_the_command_that_makes_them(tmp_path: Path) -> None:
    store(tmp_path, "a", [[1, 2], [4]])
    store(tmp_path, "b", [[1, 2], [4]])
    (tmp_path / "small" / "b.ranks.npz").unlink()
    (record,) = [r for r in RecordStore(tmp_path).records if r.model == "b"]
    with pytest.raises(FewlinkError, match=r"b on small \(test, 1-shot, full\)") as error:
        compare(tmp_path, "a", "b", "small", shots=1)
    assert str(error.value).endswith(record.command)


def test_unknown_names_and_protocols_are_refused(tmp_path: Path) -> None:
    store(tmp_path, "alpha", [[1, 2], [4]])
    with pytest.raises(FewlinkError, match="'alpha'"):
        compare(tmp_path, "alpa", "alpha", "small")
    with pytest.raises(FewlinkError, match="'small'"):
        compare(tmp_path, "alpha", "alpha", "smal")
    with pytest.raises(FewlinkError, match=r"alpha on small \(test, 3-shot, full\)"):
        compare(tmp_path, "alpha", "alpha", "small")
    with pytest.raises(FewlinkError, match="metric 'mr'"):
        compare(tmp_path, "alpha", "alpha", "small", metric="mr")
    with pytest.raises(FewlinkError, match="resamples"):
        compare(tmp_path, "alpha", "alpha", "small", shots=1, resamples=0)


def test_ranks_of_different_settings_are_refused(tmp_path: Path) -> None:
    store(tmp_path, "a", [[1, 2], [4]])
    ((file, record),) = RecordStore(tmp_path).places
    other = record.model_copy(update={"config": {"layers": 2}})
    RecordStore(tmp_path).add(other, ranks=read_ranks(file, record))
    with pytest.raises(FewlinkError, match=r"a on small .*2 different settings"):
        compare(tmp_path, "a", "a", "small", shots=1)
