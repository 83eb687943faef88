"""Synthetic benchmarks: exact sizes, reproducible, shaped like real ones, and learnable."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fewlink
from fewlink.core.errors import FewlinkError
from fewlink.graph import Graph
from fewlink.tasks import SPLITS, Benchmark, open_benchmark
from fewlink.tasks.catalogue import CATALOGUE
from fewlink.tasks.nell_layout import read_layout
from synthetic import LIKE, generate, shape_of
from synthetic.graph import BITS, generate_graph

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


def test_a_folder_like_wiki_one_has_no_types_in_its_names(folders: dict[str, Path]) -> None:
    """As in Wiki-One; the ranges come from the file, and the types are in a file of their own."""
    benchmark, remarks = read_layout(folders["wiki-one"])
    assert [r.split(":")[0] for r in remarks] == ["rel2candidates.json"]
    assert benchmark.graph.types is None
    rows = [line.split("\t") for line in (folders["wiki-one"] / "entity2type.tsv").read_text().splitlines()]
    assert {name for name, _ in rows} == set(benchmark.graph.entities)


@pytest.mark.parametrize("like", LIKE)
def test_the_default_size_is_the_published_one(like: str) -> None:
    shape, entry = shape_of(like), CATALOGUE[like]
    assert (shape.entities, shape.triples, shape.relations, tuple(shape.tasks.values())) == entry.counts
    assert shape.pairs == (50, 500)


@pytest.mark.parametrize("like", LIKE)
def test_the_smallest_and_the_densest_graph_are_generated(like: str, tmp_path: Path) -> None:
    for entities, triples in ((500, 2000), (2000, 2000), (500, 10_000)):
        generate(tmp_path / f"{triples}-{entities}", like, entities, triples)
        benchmark = open_benchmark(tmp_path / f"{triples}-{entities}")
        assert (len(benchmark.graph.entities), benchmark.graph.triple_count) == (entities, triples)
        sizes = [len(t.pairs) for tasks in benchmark.tasks.values() for t in tasks]
        assert triples // 200 <= min(sizes) <= max(sizes) <= triples // 50


# reproducible


def test_the_same_arguments_give_the_same_files(folders: dict[str, Path], tmp_path: Path) -> None:
    generate(tmp_path / "again", "nell-one", ENTITIES, TRIPLES, seed=1)
    generate(tmp_path / "other", "nell-one", ENTITIES, TRIPLES, seed=2)
    again, other = contents(tmp_path / "again"), contents(tmp_path / "other")
    assert again == contents(folders["nell-one"])
    assert all(again[file] != other[file] for file in FILES if not file.endswith("2ids"))


# shaped like real ones


@pytest.mark.parametrize("like", LIKE)
def test_distributions_have_heavy_tails(benchmarks: dict[str, Benchmark], like: str) -> None:
    graph = benchmarks[like].graph
    sizes = np.bincount(graph.triples()[:, 1])
    assert sizes.max() > 20 * np.median(sizes)
    degrees = np.sort(graph.degrees)[::-1]
    assert degrees[: ENTITIES // 100].sum() > 0.15 * degrees.sum()
    assert np.median(degrees) <= degrees.mean() / 1.5


def test_neighbours_predict_the_code_of_an_entity() -> None:
    """Embeddings can learn this: most neighbours have the right value of the first two bits."""
    graph = generate_graph(5000, 15_000, types=30, relations=100, seed=0)
    population, ends = graph.population, np.concatenate(graph.pairs)
    both = np.concatenate([ends, ends[:, ::-1]])
    first = population.codes >> (BITS - 2)
    votes = np.bincount(both[:, 0] * 4 + first[both[:, 1]], minlength=4 * 5000).reshape(-1, 4)
    ordered = population.bits[population.types] >= 2
    assert (votes.argmax(1) == first)[ordered].mean() > 0.5


@pytest.mark.parametrize("like", LIKE)
def test_rules_solve_planted_tasks_better_than_popularity(benchmarks: dict[str, Benchmark], like: str) -> None:
    protocol, mrr = fewlink.Protocol(split="test", shots=3, candidates="full"), {}
    for name in ("rules", "popularity"):
        scorer = fewlink.learning_free(name, benchmarks[like].graph)
        mrr[name] = fewlink.evaluate(benchmarks[like], scorer, protocol).metrics()["micro"]["mrr"]
    assert mrr["rules"] > 1.4 * mrr["popularity"]
    assert mrr["rules"] > 0.25


def ends_of(graph: Graph, head: int, path: list[int]) -> set[int]:
    """The entities in which walks along the relations of a path end."""
    ends = {head}
    for relation in path:
        at, _ = graph.edges_of(np.array(sorted(ends), np.int64))
        ends = set(graph.tail_ids[at][graph.relation_ids[at] == relation].tolist())
    return ends


@pytest.mark.parametrize("like", LIKE)
def test_planted_json_describes_the_tasks(
    benchmarks: dict[str, Benchmark], folders: dict[str, Path], like: str
) -> None:
    benchmark = benchmarks[like]
    planted = json.loads((folders[like] / "planted.json").read_text())
    rules, names = planted["tasks"], list(benchmark.graph.relations)
    assert [n for n in rules if rules[n]["split"] == "dev"] == [t.name for t in benchmark.split("dev")]
    assert {rule["kind"] for rule in rules.values()} == {"path", "codes", "popularity"}
    assert set(planted["background"]) == set(names)
    signed, seen = [*names, *(f"{n}_inv" for n in names)], set()
    for task in (t for tasks in benchmark.tasks.values() for t in tasks):
        path = [signed.index(r) for r in rules[task.name].get("path", [])]
        if len(path) not in (1, 2):
            continue
        seen.add(len(path))
        joined = sum(tail in ends_of(benchmark.graph, head, path) for head, tail in task.pairs.tolist())
        assert joined >= len(task.pairs) - rules[task.name]["of which noise"] >= 0.7 * len(task.pairs)
    assert seen == {1, 2}


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


def test_an_existing_folder_is_an_error_and_stays_the_same(folders: dict[str, Path]) -> None:
    before = contents(folders["nell-one"])
    with pytest.raises(FewlinkError, match="exists"):
        generate(folders["nell-one"], "nell-one", ENTITIES, TRIPLES)
    assert contents(folders["nell-one"]) == before
