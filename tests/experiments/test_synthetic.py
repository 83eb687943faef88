"""Synthetic benchmarks: exact sizes, reproducible, shaped like real ones, and learnable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fewlink
from fewlink.core.errors import FewlinkError
from fewlink.tasks import SPLITS, Benchmark, open_benchmark
from fewlink.tasks.catalogue import CATALOGUE
from fewlink.tasks.nell_layout import read_layout
from synthetic import LIKE, generate, shape_of

ENTITIES, TRIPLES = 3000, 12_000
FILES = ["path_graph", *(f"{s}_tasks.json" for s in SPLITS), "ent2ids", "relation2ids", "rel2candidates.json"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small benchmark like each of the published ones."""
    place = tmp_path_factory.mktemp("generated")
    for like in LIKE:
        generate(place / like, like, ENTITIES, TRIPLES, seed=1)
    return {like: place / like for like in LIKE}


@pytest.fixture(scope="module")
def benchmarks(folders: dict[str, Path]) -> dict[str, Benchmark]:
    return {like: open_benchmark(folder) for like, folder in folders.items()}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# sizes


@pytest.mark.parametrize("like", LIKE)
def test_counts_are_exact(benchmarks: dict[str, Benchmark], folders: dict[str, Path], like: str) -> None:
    graph, shape = benchmarks[like].graph, shape_of(like, ENTITIES, TRIPLES)
    assert (len(graph.entities), graph.triple_count) == (ENTITIES, TRIPLES)
    assert len(graph.relations) == shape.relations
    lines = (folders[like] / "path_graph").read_bytes().splitlines()
    assert len(lines) == len(set(lines)) == TRIPLES
    assert graph.degrees.min() > 0
    assert {split: len(tasks) for split, tasks in benchmarks[like].tasks.items()} == shape.tasks


@pytest.mark.parametrize("like", LIKE)
def test_tasks_have_the_sizes_of_the_papers_and_are_not_in_the_background(
    benchmarks: dict[str, Benchmark], like: str
) -> None:
    benchmark = benchmarks[like]
    for tasks in benchmark.tasks.values():
        for task in tasks:
            assert 50 <= len(task.pairs) <= TRIPLES // 50
            assert len(np.unique(task.pairs, axis=0)) == len(task.pairs) == len(task.known)
            assert (task.pairs[:, 0] != task.pairs[:, 1]).all()
            assert task.name not in benchmark.graph.relations
            assert len(task.range) > 10


def test_a_folder_like_nell_one_is_read_without_remarks(folders: dict[str, Path]) -> None:
    """The written ids, known answers and ranges equal those that the reader would rebuild."""
    benchmark, remarks = read_layout(folders["nell-one"])
    assert remarks == []
    assert benchmark.graph.types is not None
    assert len(benchmark.graph.types.names) == shape_of("nell-one", ENTITIES, TRIPLES).types


@pytest.mark.parametrize("like", LIKE)
def test_the_default_size_is_the_published_one(like: str) -> None:
    shape, entry = shape_of(like), CATALOGUE[like]
    assert (shape.entities, shape.triples, shape.relations, tuple(shape.tasks.values())) == entry.counts
    assert shape.pairs == (50, 500)


# reproducible


def test_the_same_arguments_give_the_same_files(folders: dict[str, Path], tmp_path: Path) -> None:
    generate(tmp_path / "again", "nell-one", ENTITIES, TRIPLES, seed=1)
    generate(tmp_path / "other", "nell-one", ENTITIES, TRIPLES, seed=2)
    again, other = contents(tmp_path / "again"), contents(tmp_path / "other")
    assert again == contents(folders["nell-one"])
    assert all(again[file] != other[file] for file in FILES if not file.endswith("2ids"))


# shaped like real ones


@pytest.mark.parametrize("like", LIKE)
def test_rules_solve_planted_tasks_better_than_popularity(benchmarks: dict[str, Benchmark], like: str) -> None:
    protocol, mrr = fewlink.Protocol(split="test", shots=3, candidates="full"), {}
    for name in ("rules", "popularity"):
        scorer = fewlink.learning_free(name, benchmarks[like].graph)
        mrr[name] = fewlink.evaluate(benchmarks[like], scorer, protocol).metrics()["micro"]["mrr"]
    assert mrr["rules"] > 1.4 * mrr["popularity"]
    assert mrr["rules"] > 0.25


# errors


@pytest.mark.parametrize(
    ("numbers", "tokens"),
    [
        ({"like": "nell-two"}, "'nell-two'.*'nell-one'"),
        ({"like": "nell-one", "entities": 499}, "499 .*500"),
        ({"like": "nell-one", "entities": 600, "triples": 1999}, "1,999 .*2,000 to 12,000"),
        ({"like": "wiki-one", "entities": 9000, "triples": 8999}, "8,999 .*9,000 to 180,000"),
        ({"like": "wiki-one", "entities": 500, "triples": 10_001}, "10,001 .*10,000"),
    ],
)
def test_impossible_sizes_are_an_error_that_states_the_limits(
    tmp_path: Path, numbers: dict[str, int], tokens: str
) -> None:
    with pytest.raises(FewlinkError, match=tokens):
        generate(tmp_path / "new", **numbers)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
