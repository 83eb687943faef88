"""Synthetic benchmarks with the shape of NELL-One or Wiki-One, as folders of the NELL-One layout.

They serve to test sizes that no available data has. Each is a function of (like, entities, triples, seed).

An entity has a type and, within it, one of `GROUPS` groups. A relation joins two types: the group of a tail is that of
the head, shifted by a number of the relation, in most triples. The pairs of a task are joined by a relation, its
inverse or two relations of the background, but for some noise. Types, relations and degrees have heavy tails.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.errors import FewlinkError, choose
from fewlink.core.files import new_folder
from fewlink.core.seeds import generator
from fewlink.tasks.benchmark import SPLITS
from fewlink.tasks.catalogue import CATALOGUE

FORMAT = "fewlink-generated/1"
LIKE = ("nell-one", "wiki-one")
MIN_ENTITIES = 500
MIN_TRIPLES = 2000
MAX_TRIPLES_PER_ENTITY = 20
TYPES_PER_RELATION = 0.95  # in NELL-One
MIN_TYPES = 8
MIN_RELATIONS = 24
TASK_PAIRS = (50, 500)  # fewest and most pairs of a task
MIN_TRIPLES_PER_PAIR = (200, 50)  # in a graph of n triples they are at most n/200 and n/50
GROUPS = 8  # of entities of a type
FOLLOWS = 0.8  # probability that a triple follows the shift of its relation
NOISE = 0.3  # share of the pairs of a task that no path joins
SKEW = 3  # the entity at the share u of its type is drawn with u to this power: the first ones most often
SMALLEST_RANGE = 2 * GROUPS  # tails of a task
LARGEST_RANGE = 20_000
ENTITIES_PER_TAIL = 4  # the range of a task is at most a fourth of the entities
WALKS = 4  # pairs that are walked to for each pair of a task that a path joins
TRIES = 50  # paths tried for one task


@dataclass(frozen=True)
class Shape:
    """The sizes of a synthetic benchmark: `tasks` by split; `pairs`, the fewest and most of a task."""

    like: str
    entities: int
    triples: int
    relations: int
    types: int
    tasks: dict[str, int]
    pairs: tuple[int, int]


def shape_of(like: str, entities: int | None = None, triples: int | None = None) -> Shape:
    """The shape of a benchmark with these numbers of entities and triples, by default the published ones.

    If one number is None, it is in proportion to the other. A smaller graph has fewer relations, types and tasks.
    """
    counts = choose("benchmark to imitate", like, {name: CATALOGUE[name] for name in LIKE}).counts
    assert counts is not None
    published_entities, published_triples, published_relations, published_tasks = counts
    if entities is None:
        size = published_triples if triples is None else triples
        entities = max(size * published_entities // published_triples, MIN_ENTITIES)
    if triples is None:
        triples = max(entities * published_triples // published_entities, MIN_TRIPLES)
    if entities < MIN_ENTITIES:
        raise FewlinkError(f"{entities:,} entities are too few for a synthetic graph: use at least {MIN_ENTITIES}")
    least = max(entities, MIN_TRIPLES)
    most = MAX_TRIPLES_PER_ENTITY * entities
    if not least <= triples <= most:
        raise FewlinkError(
            f"a synthetic graph of {entities:,} entities cannot have {triples:,} triples: use {least:,} to {most:,}"
        )
    scale = min(1.0, math.cbrt(triples / published_triples))
    types = TYPES_PER_RELATION * published_relations * min(1.0, math.sqrt(entities / published_entities))
    smallest, largest = (
        min(pairs, triples // share) for pairs, share in zip(TASK_PAIRS, MIN_TRIPLES_PER_PAIR, strict=True)
    )
    return Shape(
        like,
        entities,
        triples,
        relations=max(round(published_relations * scale), MIN_RELATIONS),
        types=max(round(types), MIN_TYPES),
        tasks={split: max(round(n * scale), 1) for split, n in zip(SPLITS, published_tasks, strict=True)},
        pairs=(smallest, largest),
    )


class SyntheticGraph:
    """Entities, numbered type by type, and the triples of relations.

    Shapes: `types` (entities,); `starts` and `sizes` (types,), the first entity of each type and their number; `sides`
    (relations, 2), the types of heads and tails; `triples` (n, 3), distinct.
    """

    def __init__(self, shape: Shape, seed: int) -> None:
        rng = generator(seed, "generate", "graph")
        drawn = rng.choice(shape.types, shape.entities - SMALLEST_RANGE * shape.types, p=falling(shape.types))
        self.types = np.sort(np.concatenate([drawn, np.repeat(np.arange(shape.types), SMALLEST_RANGE)]))
        self.sizes = np.bincount(self.types)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.sides = rng.choice(shape.types, (shape.relations, 2), p=falling(shape.types))
        self.sides[: shape.types, 0] = np.arange(shape.types)  # each type has a relation
        self.shifts = rng.integers(GROUPS, size=shape.relations)
        self.triples = self._triples(shape, rng)

    def _triples(self, shape: Shape, rng: np.random.Generator) -> np.ndarray:
        """Distinct triples: one with each entity as its head, the others as they are drawn."""
        heads = np.arange(shape.entities)
        triples = self._with_tails(rng, heads, self.types)
        while len(triples) < shape.triples:
            relations = rng.choice(shape.relations, shape.triples, p=falling(shape.relations))
            heads = self.draw(rng, self.sides[relations, 0])
            both = np.concatenate([triples, self._with_tails(rng, heads, relations)])
            distinct = np.sort(np.unique(both, axis=0, return_index=True)[1])
            triples = both[distinct]
        return np.asarray(triples[: shape.triples])

    def draw(self, rng: np.random.Generator, types: np.ndarray) -> np.ndarray:
        """An entity of each of these types (n,), the first ones of a type most often."""
        return np.asarray(self.starts[types] + (rng.random(len(types)) ** SKEW * self.sizes[types]).astype(np.int64))

    def _with_tails(self, rng: np.random.Generator, heads: np.ndarray, relations: np.ndarray) -> np.ndarray:
        """Triples of heads and relations (n,), without those whose tail is the head."""
        types = self.sides[relations, 1]
        places = self.draw(rng, types) - self.starts[types]
        groups = (heads - self.starts[self.types[heads]] + self.shifts[relations]) % GROUPS
        shifted = np.minimum(places // GROUPS * GROUPS + groups, self.sizes[types] - 1)
        follows = rng.random(len(heads)) < FOLLOWS
        tails = self.starts[types] + np.where(follows, shifted, places)
        tails = np.where(
            tails == heads, self.starts[types] + (tails - self.starts[types] + 1) % self.sizes[types], tails
        )
        return np.stack([heads, relations, tails], 1)


def falling(count: int) -> np.ndarray:
    """Probabilities (count,) that fall as 1, 1/2, 1/3 and so on."""
    weights = 1 / np.arange(1, count + 1)
    return np.asarray(weights / weights.sum())


class TaskPlanter:
    """Draws the pairs of tasks: each follows a path of the graph, with some noise."""

    def __init__(self, graph: SyntheticGraph) -> None:
        self.graph = graph
        self.largest = min(LARGEST_RANGE, len(graph.types) // ENTITIES_PER_TAIL)
        forward = graph.triples[np.lexsort((graph.triples[:, 0], graph.triples[:, 1]))]
        ends = np.searchsorted(forward[:, 1], np.arange(len(graph.sides) + 1))
        pairs = [forward[begin:end][:, [0, 2]] for begin, end in itertools.pairwise(ends)]
        self.steps = [*pairs, *(own[np.argsort(own[:, 1], kind="stable")][:, ::-1] for own in pairs)]
        self.sides = np.concatenate([graph.sides, graph.sides[:, ::-1]])
        self.usable = [
            number
            for number, own in enumerate(self.steps)
            if len(own) and graph.sizes[self.sides[number, 1]] <= self.largest
        ]

    def pairs(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Distinct pairs (size, 2) without self-loops, in random order."""
        wanted = size - int(NOISE * size)
        joined = self._joined(rng, wanted)
        for _ in range(TRIES):
            if len(joined) == wanted:
                break
            joined = max(joined, self._joined(rng, wanted), key=len)
        tails = self.graph.types[joined[:1, 1]]
        heads = self.graph.types[joined[:1, 0]]
        found = joined
        while len(found) < size:
            count = 2 * size
            noise = [self.graph.draw(rng, types.repeat(count)) for types in (heads, tails)]
            found = distinct(np.concatenate([found, np.stack(noise, 1)]))[:size]
            heads = rng.integers(len(self.graph.sizes), size=1)  # small types may have no further pairs
        return np.asarray(rng.permutation(found))

    def _joined(self, rng: np.random.Generator, wanted: int) -> np.ndarray:
        """At most so many pairs that one or two steps of a random path join."""
        last = int(rng.choice(self.usable))
        pairs = self.steps[last]
        before = np.flatnonzero(self.sides[:, 1] == self.sides[last, 0])
        if len(before) and rng.random() < 0.5:
            first = self.steps[int(rng.choice(before))]
            first = first[rng.integers(len(first), size=WALKS * wanted)] if len(first) else first
            begins = np.searchsorted(pairs[:, 0], first[:, 1], "left")
            ends = np.searchsorted(pairs[:, 0], first[:, 1], "right")
            on = begins < ends
            at = begins[on] + (rng.random(on.sum()) * (ends - begins)[on]).astype(np.int64)
            pairs = np.stack([first[on, 0], pairs[at, 1]], 1)
        return distinct(rng.permutation(pairs)[: WALKS * wanted])[:wanted]


def distinct(pairs: np.ndarray) -> np.ndarray:
    """The pairs without duplicates and self-loops, in their order."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return np.asarray(pairs[np.sort(np.unique(pairs, axis=0, return_index=True)[1])])


def generate(
    out: Path, like: str, entities: int | None = None, triples: int | None = None, seed: int = 0
) -> dict[str, Any]:
    """Write a benchmark that imitates a published one to a new folder, atomically, and return its counts."""
    shape = shape_of(like, entities, triples)
    if os.path.lexists(out):
        raise FewlinkError(f"{out} exists: remove it or choose another folder")
    facts = {"like": like, "entities": shape.entities, "triples": shape.triples, "seed": seed}
    graph = SyntheticGraph(shape, seed)
    planter = TaskPlanter(graph)
    rng = generator(seed, "generate", "tasks")
    smallest, largest = shape.pairs
    counts = {"entities": shape.entities, "background triples": shape.triples, "entity types": shape.types}
    with new_folder(Path(out), FORMAT, facts) as folder:
        names, relations = names_of(shape, graph, seed)
        write_background(folder, shape, graph, names, relations[: shape.relations])
        task_names = iter(relations[shape.relations :])
        known: dict[str, list[str]] = {}
        ranges: dict[str, list[str]] = {}
        for split, count in shape.tasks.items():
            tasks: dict[str, list[list[str]]] = {}
            for name in (next(task_names) for _ in range(count)):
                size = smallest + int((largest - smallest + 1) * rng.random() ** 2.5)  # as in NELL-One: most are small
                pairs = planter.pairs(rng, size)
                tasks[name] = [[names[head], name, names[tail]] for head, tail in pairs.tolist()]
                for head, _, tail in tasks[name]:
                    known.setdefault(head + name, []).append(tail)
                of_tails = np.unique(graph.types[pairs[:, 1]])
                ranges[name] = sorted(names[entity] for entity in np.flatnonzero(np.isin(graph.types, of_tails)))
            write_json(folder / f"{split}_tasks.json", tasks)
            counts[f"{split} tasks"] = count
        write_json(folder / "e1rel_e2.json", known)
        write_json(folder / "rel2candidates.json", ranges)
    return counts


def names_of(shape: Shape, graph: SyntheticGraph, seed: int) -> tuple[list[str], list[str]]:
    """The names of entities, and of the relations of the background and of tasks.

    They are `concept:type:name` as in NELL-One, or Q and P with a number, without a type, as in Wiki-One.
    """
    rng = generator(seed, "generate", "names")
    numbers = rng.permutation(shape.entities).tolist()
    of_relations = rng.permutation(shape.relations + sum(shape.tasks.values())).tolist()
    if shape.like == "wiki-one":
        return [f"Q{number + 1}" for number in numbers], [f"P{number + 1}" for number in of_relations]
    entities = [f"concept:type{kind}:e{n}" for kind, n in zip(graph.types.tolist(), numbers, strict=True)]
    return entities, [f"concept:relation{number}" for number in of_relations]


def write_background(folder: Path, shape: Shape, graph: SyntheticGraph, names: list[str], relations: list[str]) -> None:
    """Write `path_graph`, `ent2ids`, `relation2ids` and, if names have no type, `entity2type.tsv`."""
    with (folder / "path_graph").open("w", encoding="utf-8") as file:
        file.writelines(f"{names[h]}\t{relations[r]}\t{names[t]}\n" for h, r, t in graph.triples.tolist())
    write_json(folder / "ent2ids", {name: number for number, name in enumerate(names)})
    both = [name + end for end in ("", "_inv") for name in relations]
    write_json(folder / "relation2ids", {name: number for number, name in enumerate(both)})
    if shape.like == "wiki-one":
        with (folder / "entity2type.tsv").open("w", encoding="utf-8") as file:
            file.writelines(f"{name}\ttype{kind}\n" for name, kind in zip(names, graph.types.tolist(), strict=True))


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), "utf-8")
