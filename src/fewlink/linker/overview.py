"""What the relations of a graph look like: how many pairs each has, one of them, and how complete it seems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fewlink.data import Benchmark
from fewlink.graph import Graph
from fewlink.graph.types import RDF_TYPE
from fewlink.linker.query import Relation

KIND_SHARE = 0.8  # of a relation's heads that belong to their kind
MAX_COMPARED_HEADS = 20_000  # of a relation, to find their kind
MAX_COMPARED_PAIRS = 1_000  # of a relation, to choose an example from


@dataclass(frozen=True)
class Kind:
    """The kind of a relation's heads, its number of members, and how many of them have a tail."""

    name: str
    members: int
    with_tail: int


@dataclass(frozen=True)
class RelationFacts:
    """A relation with its number of pairs and heads, a pair of ids as an example, and the kind of its heads if any.

    `split` is that of a task relation, whose pairs are not in the graph.
    """

    relation: Relation
    pairs: int
    heads: int
    example: tuple[int, int]
    kind: Kind | None
    split: str | None = None


def overview(benchmark: Benchmark) -> list[RelationFacts]:
    """The relations of a graph, then the task relations of a benchmark; those without pairs are left out.

    The kind of a relation's heads is the smallest type that at least `KIND_SHARE` of them have. If there is none, it is
    the smallest group of heads, or of tails, of another relation that contains as many. An example is the pair whose
    ends have most edges, so that readers may know them.
    """
    return benchmark.once(_overview)


def _overview(benchmark: Benchmark) -> list[RelationFacts]:
    graph = benchmark.graph
    facts = [
        _facts(graph, Relation(graph.relations[number], graph, None, number)) for number in range(len(graph.relations))
    ]
    facts += [
        _facts(graph, Relation(task.name, graph, task, trained=split == "train"), split)
        for split, tasks in benchmark.tasks.items()
        for task in tasks
    ]
    return [one for one in facts if one is not None]


def _facts(graph: Graph, relation: Relation, split: str | None = None) -> RelationFacts | None:
    pairs = relation.pairs()
    if not len(pairs):
        return None
    heads = np.unique(pairs[:, 0])
    compared = pairs[:MAX_COMPARED_PAIRS]
    example = compared[np.argmax(graph.degrees[compared].min(axis=1))]
    return RelationFacts(
        relation, len(pairs), len(heads), (int(example[0]), int(example[1])), _kind(graph, relation, heads), split
    )


def _kind(graph: Graph, relation: Relation, heads: np.ndarray) -> Kind | None:
    """The kind of these heads (n,), sorted and distinct; None if nothing else is common to most of them."""
    compared = heads[:: -(-len(heads) // MAX_COMPARED_HEADS)]
    for groups in (_types(graph, compared), _slots(graph, relation, compared)):
        common = [(name, members) for name, members, shared in groups if shared >= KIND_SHARE * len(compared)]
        if common:
            name, members = min(common, key=lambda group: len(group[1]))
            return Kind(name, len(members), int(np.isin(members, heads).sum()))
    return None


Group = tuple[str, np.ndarray, int]  # a name, its members, and how many of the compared heads are among them


def _types(graph: Graph, heads: np.ndarray) -> Iterator[Group]:
    if graph.types is None:
        return
    groups = graph.types.groups
    for number in graph.types.of_entities(heads).tolist():
        yield graph.types.names[number], groups[number], int(np.isin(heads, groups[number]).sum())


def _slots(graph: Graph, relation: Relation, heads: np.ndarray) -> Iterator[Group]:
    edges, owners = graph.edges_of(heads)
    count = 2 * len(graph.relations)
    distinct = np.unique(owners.astype(np.int64) * count + graph.relation_ids[edges])
    shared = np.bincount(distinct % count, minlength=count)
    for slot in np.flatnonzero(shared).tolist():
        inverse, number = divmod(slot, len(graph.relations))
        if (number == relation.number and not inverse) or graph.relations[number] == RDF_TYPE:
            continue
        name = graph.relation_name(number)
        yield f"{'tails of' if inverse else 'entities with'} {name}", graph.slots[slot], int(shared[slot])
