"""What the relations of a graph look like: how many pairs each has, one of them, and how complete it seems."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from fewlink.linker.query import Relation
from fewlink.tasks import Benchmark
from fewlink.tasks.kinds import of_kind

MAX_COMPARED_PAIRS = 1_000  # of a relation, to choose an example from


@dataclass(frozen=True, eq=False)
class RelationFacts:
    """A relation with its number of pairs and heads. `split` is that of a task relation, not in the graph."""

    relation: Relation
    pairs: int
    heads: int
    split: str | None = None

    @functools.cached_property
    def of_kind(self) -> int:
        """The number of entities of the heads' kind, heads included: those that `Linker.complete` asks about."""
        return int(of_kind(self.relation.graph, self._head_ids, ignored=self.relation.number).sum())

    @property
    def lacking(self) -> int:
        """The number of entities of the heads' kind without a tail: 0 if the relation looks complete."""
        return self.of_kind - self.heads

    @functools.cached_property
    def type(self) -> str | None:
        """The type that most heads have; None if they have none."""
        table = self.relation.graph.types
        types = np.zeros(0, int) if table is None else table.all_of(self._head_ids)
        return table.names[int(np.bincount(types).argmax())] if table is not None and len(types) else None

    @functools.cached_property
    def example(self) -> tuple[int, int]:
        """The pair of ids whose ends have most edges, so that readers may know them."""
        pairs = self.relation.pairs()[:MAX_COMPARED_PAIRS]
        head, tail = pairs[np.argmax(self.relation.graph.degrees_of(pairs).min(axis=1))].tolist()
        return head, tail

    @property
    def _head_ids(self) -> np.ndarray:
        if self.relation.number >= 0:
            return self.relation.graph.slots[self.relation.number]
        return np.unique(self.relation.pairs()[:, 0])


def overview(benchmark: Benchmark) -> list[RelationFacts]:
    """The relations of a graph, then the task relations of a benchmark; those without pairs are left out."""
    return benchmark.once(_overview)


def _overview(benchmark: Benchmark) -> list[RelationFacts]:
    graph = benchmark.graph
    sizes = np.bincount(graph.relation_ids, minlength=len(graph.relations)).tolist()
    facts = [
        RelationFacts(Relation(name, graph, None, number), sizes[number], len(graph.slots[number]))
        for number, name in enumerate(graph.relations)
    ]
    for split, tasks in benchmark.tasks.items():
        for task in tasks:
            relation = Relation(task.name, graph, task, trained=split == "train")
            facts.append(RelationFacts(relation, len(task.pairs), len(np.unique(task.pairs[:, 0])), split))
    return [one for one in facts if one.pairs]
