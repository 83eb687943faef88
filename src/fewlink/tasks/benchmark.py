"""A few-shot benchmark: a background graph, and task relations that are not in it, split into train, dev and test."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.errors import FewlinkError, choose, reading
from fewlink.core.files import new_folder, read_folder
from fewlink.core.memo import Memo
from fewlink.core.seeds import generator
from fewlink.graph import Graph
from fewlink.graph.vocabulary import check_ids, check_offsets, load_array

FORMAT = "fewlink-benchmark/1"
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True, eq=False)
class Task:
    """A relation to predict from a few pairs.

    Shapes: `pairs` (n, 2) int32, distinct heads and tails in the benchmark's order; `known` (m, 2) int32, sorted, all
    pairs known to be true, including `pairs`; `range` (c,) int32, sorted, the tails that the type constraint allows.
    """

    name: str
    pairs: np.ndarray
    known: np.ndarray
    range: np.ndarray

    def split(self, shots: int, draw: int = 0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Split the pairs into references (shots, 2), the first ones or the `draw`-th random sample, and queries."""
        if shots < 1:
            raise FewlinkError(f"{self.name} has {shots} references: use at least 1")
        if shots >= len(self.pairs):
            raise FewlinkError(
                f"{self.name} has {len(self.pairs)} pairs, and {shots} references leave no query: use fewer"
            )
        if draw == 0:
            return self.pairs[:shots], self.pairs[shots:]
        chosen = np.zeros(len(self.pairs), bool)
        order = generator(seed, "references", self.name, draw).permutation(len(self.pairs))[:shots]
        chosen[order] = True
        return self.pairs[order], self.pairs[~chosen]

    @functools.cached_property
    def known_tails(self) -> dict[int, np.ndarray]:
        """The known tails of each head, sorted."""
        heads, begins = np.unique(self.known[:, 0], return_index=True)
        return dict(zip(heads.tolist(), np.split(self.known[:, 1], begins)[1:], strict=True))


@dataclass(frozen=True, eq=False)
class Benchmark(Memo):
    """A background graph with task relations: `tasks` maps train, dev and test to theirs.

    `source` is the name or path that the benchmark was opened from. `extended_from` are the fingerprints of the
    benchmarks and graphs that triples were appended to; ids stay the same. `literal_relations` are relations of a file
    of triples whose triples with literals were left out.
    """

    name: str
    graph: Graph
    tasks: Mapping[str, Sequence[Task]]
    source: str = ""
    extended_from: tuple[str, ...] = ()
    literal_relations: tuple[str, ...] = ()

    def split(self, name: str) -> Sequence[Task]:
        """The tasks of a split: train, dev or test."""
        return choose("split", name, self.tasks)

    def task(self, name: str) -> Task:
        """The task of a relation, in any split."""
        return choose("task relation", name, {t.name: t for tasks in self.tasks.values() for t in tasks})

    @functools.cached_property
    def known_graph(self) -> Graph:
        """The background with all pairs of the train relations, which a model may read to answer dev and test queries.

        Without train relations it is the background itself.
        """
        graph = self.graph
        if not self.tasks["train"]:
            return graph
        data = training_triples(self, with_train_tasks=True)
        return graph.with_relations(data.relations[len(graph.relations) :], data.triples[~data.background])

    @functools.cached_property
    def fingerprint(self) -> str:
        """The sha256 of the graph and all tasks, by which records identify their data."""
        digest = hashlib.sha256(self.graph.fingerprint.encode())
        for split in SPLITS:
            for task in self.tasks[split]:
                digest.update(f"{split}\0{task.name}\0".encode())
                for array in (task.pairs, task.known, task.range):
                    digest.update(np.ascontiguousarray(array, np.int32).data)
        return digest.hexdigest()

    def save(self, folder: Path) -> Path:
        """Write the benchmark as a folder of memory-mapped arrays, atomically."""
        listed = [(split, t) for split in SPLITS for t in self.tasks[split]]
        facts: dict[str, Any] = {
            "name": self.name,
            "tasks": [[split, t.name] for split, t in listed],
            "fingerprint": self.fingerprint,
        }
        if self.extended_from:
            facts["grown_from"] = list(self.extended_from)
        with new_folder(Path(folder), FORMAT, facts) as draft:
            self.graph.save(draft / "graph")
            for array in ("pairs", "known", "range"):
                columns = [getattr(task, array) for _, task in listed]
                whole = np.concatenate(columns or [np.zeros(0)]).astype(np.int32)
                np.save(draft / f"{array}.npy", whole, allow_pickle=False)
                ends = np.cumsum([len(column) for column in columns], dtype=np.int64)
                np.save(draft / f"{array}.ends.npy", ends, allow_pickle=False)
        return Path(folder)

    @classmethod
    def open(cls, folder: Path) -> Benchmark:
        """Open a compiled benchmark; its arrays are memory-mapped and read when used."""
        return read_folder(folder, FORMAT, cls._load)

    @classmethod
    def _load(cls, folder: Path, manifest: dict[str, Any]) -> Benchmark:
        graph = Graph.open(folder / "graph")
        columns = []
        with reading(folder, "make the folder again"):
            for array in ("pairs", "known", "range"):
                whole = load_array(folder / f"{array}.npy")
                ends = load_array(folder / f"{array}.ends.npy")
                check_offsets(ends, len(whole), array)
                check_ids(whole, len(graph.entities), array)
                if whole.size and whole.shape[1:] != (() if array == "range" else (2,)):
                    raise ValueError(f"{array} has the shape {whole.shape}")
                columns.append([whole[begin:end] for begin, end in itertools.pairwise([0, *ends.tolist()])])
            tasks: dict[str, list[Task]] = {split: [] for split in SPLITS}
            for (split, name), *arrays in zip(manifest["tasks"], *columns, strict=True):
                tasks[split].append(Task(str(name), *arrays))
            benchmark = cls(str(manifest["name"]), graph, tasks, extended_from=tuple(manifest.get("grown_from", ())))
            benchmark.__dict__["fingerprint"] = str(manifest["fingerprint"])
        return benchmark


@dataclass(frozen=True)
class TrainingTriples:
    """Triples to train on: those of the background, whose relations keep their ids, then those of tasks.

    Shapes: `triples` (n, 3) int32; `background` (n,) bool; `relations`, the name of each relation id.
    """

    triples: np.ndarray
    background: np.ndarray
    relations: list[str]


def training_triples(
    benchmark: Benchmark, *, with_train_tasks: bool = False, shots: int = 0, draw: int = 0, seed: int = 0
) -> TrainingTriples:
    """The background triples, optionally with the pairs of train relations and K references of dev and test relations.

    With `shots` 0, dev and test relations are left out. `draw` and `seed` choose the references as in evaluation.
    """
    graph = benchmark.graph
    blocks = [graph.triples()]
    names = list(graph.relations)
    for split in SPLITS:
        for task in benchmark.tasks[split]:
            if split == "train":
                pairs = task.pairs if with_train_tasks else task.pairs[:0]
            else:
                pairs = task.split(shots, draw, seed)[0] if shots else task.pairs[:0]
            if len(pairs):
                blocks.append(np.insert(pairs, 1, len(names), axis=1))
                names.append(task.name)
    triples = np.concatenate(blocks).astype(np.int32)
    return TrainingTriples(triples, np.arange(len(triples)) < graph.triple_count, names)


def sorted_pairs(pairs: np.ndarray) -> np.ndarray:
    """The distinct pairs (n, 2), sorted by head, then tail."""
    return np.unique(np.asarray(pairs, np.int32).reshape(-1, 2), axis=0)
