"""Small graphs, tasks and files that several tests share."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st

from fewlink import cli
from fewlink.graph import CompileReport, Graph, Vocabulary, compile_graph
from fewlink.tasks import Benchmark, Task

settings.register_profile("fewlink", deadline=30_000, max_examples=50)  # milliseconds: a hang fails, a slow machine not
settings.load_profile("fewlink")

# Tests run side by side, and start processes of their own: with one thread each they do not wait for one another.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

ENTITIES, RELATIONS = 8, 3


@contextmanager
def quickly() -> Iterator[None]:
    """Small products are quicker on one thread, whatever a test has set; and no test loses power."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield
    torch.set_num_threads(before)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """What is done in several threads is done in two."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


id_triples = st.lists(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)),
    min_size=1,
    max_size=24,
    unique=True,
)


def graph_of(*rows: str) -> Graph:
    """A graph from texts such as `a likes b`, ids by first appearance."""
    triples = [row.split() for row in rows]
    entities = list(dict.fromkeys(name for h, _, t in triples for name in (h, t)))
    relations = list(dict.fromkeys(r for _, r, _ in triples))
    ids = [(entities.index(h), relations.index(r), entities.index(t)) for h, r, t in triples]
    return Graph.of(Vocabulary.of(entities), Vocabulary.of(relations), np.array(ids, np.int32).reshape(-1, 3))


def id_graph(triples: Sequence[tuple[int, int, int]], entities: int = ENTITIES, relations: int = RELATIONS) -> Graph:
    """A graph from ids; entity 3 is called e3 and relation 1 r1."""
    names = [Vocabulary.of(f"{letter}{i}" for i in range(n)) for letter, n in (("e", entities), ("r", relations))]
    return Graph.of(*names, np.array(triples, np.int32).reshape(-1, 3))


def named(graph: Graph) -> list[tuple[str, str, str]]:
    """The triples of a graph as names, in file order."""
    return [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.triples()]


def compiled(content: bytes, name: str = "graph.tsv", **options: Any) -> tuple[Graph, CompileReport]:
    """What a file of this name and content compiles to."""
    report = CompileReport()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        path.write_bytes(content)
        return compile_graph([path], report=report, **options), report


def task_of(
    pairs: Sequence[tuple[int, int]],
    range: Sequence[int],
    known: Sequence[tuple[int, int]] = (),
    name: str = "task",
) -> Task:
    """A task; its pairs are known answers as well."""
    every = np.array(sorted({*pairs, *known}), np.int32).reshape(-1, 2)
    return Task(name, np.array(pairs, np.int32).reshape(-1, 2), every, np.array(sorted(range), np.int32))


def benchmark_of(graph: Graph, **tasks: Sequence[Task]) -> Benchmark:
    """A benchmark with these tasks, no task in the splits that are not named."""
    return Benchmark("small", graph, {split: tasks.get(split, []) for split in ("train", "dev", "test")})


RECORD_KEYS = [  # what a result record holds, in order
    *("benchmark", "model", "split", "shots", "candidates", "references", "seed", "queries", "metrics", "relations"),
    *("command", "config", "examples", "version", "data_sha256", "hardware", "seconds"),
]

LAYOUT: dict[str, Any] = {
    "path_graph": "ann\tlives_in\toslo\nbob\tlives_in\trome\noslo\tcapital_of\tnorway\nrome\tcapital_of\titaly\n",
    "train_tasks.json": {"born_in": [["ann", "born_in", "rome"], ["bob", "born_in", "oslo"]]},
    "dev_tasks.json": {"likes": [["ann", "likes", "bob"], ["bob", "likes", "ann"]]},
    "test_tasks.json": {"visited": [["ann", "visited", "oslo"], ["ann", "visited", "rome"], ["cy", "visited", "oslo"]]},
}


def write_layout(folder: Path, files: Mapping[str, Any] | None = None) -> Path:
    """A small benchmark in the NELL-One layout, with these files added or replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {**LAYOUT, **(files or {})}.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def town_lines(tasks: int = 6) -> list[tuple[str, str, str]]:
    """People live in towns, towns are in lands; relations to carve follow from where people live."""
    random = np.random.default_rng(0)
    people, towns, lands = 60, 8, 4
    home = random.integers(0, towns, people)
    lines = [(f"p{p}", "lives in", f"t{home[p]}") for p in range(people)]
    lines += [(f"p{p}", "knows", f"p{q}") for p in range(people) for q in random.choice(people, 3, replace=False)]
    lines += [(f"p{p}", "likes", f"t{random.integers(0, towns)}") for p in range(people)]
    lines += [(f"t{t}", "is in", f"l{t % lands}") for t in range(towns)]
    for task in range(tasks):
        for p in random.choice(people, 22, replace=False):
            tail = f"l{(home[p] + task) % lands}" if task % 2 else f"t{(home[p] + task) % towns}"
            lines.append((f"p{p}", f"task {task}", tail))
    return list(dict.fromkeys(lines))


def written(lines: Sequence[Sequence[str]], path: Path) -> Path:
    """A file of these lines, their columns separated by tabs."""
    path.write_text("".join("\t".join(line) + "\n" for line in lines))
    return path


QUICK_FIT = ("steps=4", "relations=1", "queries=2", "candidates=16")  # settings of TRAIL with which a fit is quick


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Fewlink = Callable[..., Answer]


@pytest.fixture
def fewlink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fewlink:
    """Run the command in an empty folder, in this process, and catch what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEWLINK_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["fewlink", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist of the repository."""
    for needed in ("hatchling", "hatch_fancy_pypi_readme"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"needs {needed}, which builds packages")
    folder = tmp_path_factory.mktemp("built")
    root = Path(__file__).resolve().parent.parent
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=root, check=True)
    return folder
