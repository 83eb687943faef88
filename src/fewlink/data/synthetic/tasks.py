"""Few-shot tasks that can be learnt, planted in a generated graph: each follows a rule, but for some noise.

- a path of one, two or three relations, some of them turned: r(x, z) holds where the background leads from x to z;
- codes: r joins entities of two types by a map of their hidden codes that no background relation need have;
- popularity: the tails of r are the popular entities of a type, whoever the head is.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fewlink.base.progress import progress
from fewlink.base.seeds import generator
from fewlink.data.synthetic.graph import FLAT, SMALLEST_CELL, STEEP, CodeMap, GeneratedGraph

KINDS = (2, 1, "codes", 2, 3, "codes", 2, 1, "popularity", 2)  # of a split's tasks in turn; a number is of hops
NOISE = 0.3  # share of a task's pairs that follow no rule
HOLDS = 0.8  # chance that a rule holds where it could
WALKS = 8  # from each head: tails that it finds at most
MOST_TAILS = 4  # of a head, on average
FEWEST_TAILS = 8  # a task of n pairs has n/8 different tails or more, or its answers would be the popular ones
LARGEST_RANGE, RANGE_SHARE = 20_000, 4  # tails that compete: so many, and so much of the graph's entities (a quarter)
OTHER_TYPES = 2  # types beside the rule's own that noise takes tails from, at most
SMALLEST_TYPE = 4 * SMALLEST_CELL  # entities of a type that codes and popularity choose among
HEADS_SKEW, CODES_SKEW = 5, 9  # how much a task of codes prefers popular heads, and popular tails of the right code
TRIES = 200  # paths looked at for one task


@dataclass(frozen=True, eq=False)
class PlantedTask:
    """`pairs` (n, 2) int64, distinct, in a random order; `rule`, what was planted, of plain values."""

    pairs: np.ndarray
    rule: dict[str, Any]


@dataclass
class Planter:
    """Plants tasks one after the other; no path is planted twice."""

    graph: GeneratedGraph
    seed: int
    used: set[tuple[int, ...]] = field(default_factory=set)

    def plant(self, number: int, kind: int | str, size: int) -> PlantedTask:
        """A task of exactly so many pairs. Where no path of that length serves, codes take its place."""
        rng = generator(self.seed, "generate", "task", number)
        ruled = size - int(NOISE * size)
        found = self._path(rng, kind, ruled) if isinstance(kind, int) else None
        if found is None:
            found = self._popularity(rng, ruled) if kind == "popularity" else self._codes(rng, ruled)
        pairs, rule = found
        pairs = self._with_noise(rng, pairs, size)
        return PlantedTask(rng.permutation(pairs), {**rule, "pairs": size, "of which noise": size - len(found[0])})

    @property
    def widest(self) -> int:
        """The most tails that may compete."""
        return min(LARGEST_RANGE, len(self.graph.population.types) // RANGE_SHARE)

    def range_size(self, types: np.ndarray) -> int:
        return int(self.graph.population.sizes[types].sum())

    def _path(self, rng: np.random.Generator, hops: int, size: int) -> tuple[np.ndarray, dict[str, Any]] | None:
        """The pairs that a new random path joins, and its rule; None when there is none with enough of them."""
        types = self.graph.population.types
        for _ in range(TRIES):
            path = self._random_path(rng, hops, size)
            if path is None or path in self.used:
                continue
            pairs = self._joined(rng, path, size)
            heads, tails = (len(np.unique(column)) for column in pairs.T)
            few = len(pairs) < size or tails * FEWEST_TAILS < size
            if few or size > MOST_TAILS * heads or self.range_size(np.unique(types[pairs[:, 1]])) > self.widest:
                continue
            self.used.add(path)
            return pairs, {"kind": "path", "path": list(path)}
        return None

    def _random_path(self, rng: np.random.Generator, hops: int, size: int) -> tuple[int, ...] | None:
        """Relations (r + R is the turned r), each beginning at types where the one before ends."""
        count, (begins, ends) = len(self.graph.relations), self._sides
        large = np.flatnonzero(np.tile([len(p) >= size for p in self.graph.pairs], 2))
        if not len(large):
            return None
        path = [int(rng.choice(large))]
        while len(path) < hops:
            follow = (begins & ends[path[-1]]).any(1)
            follow[[path[-1] % count, path[-1] % count + count]] = False
            if not follow.any():
                return None
            path.append(int(rng.choice(np.flatnonzero(follow))))
        return tuple(path)

    @functools.cached_property
    def _sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Whether a relation, or a turned one, begins at a type, and whether it ends there: (2R, types) bool each."""
        heads, tails = np.zeros((2, len(self.graph.relations), len(self.graph.population.sizes)), bool)
        for number, relation in enumerate(self.graph.relations):
            heads[number, relation.sides[0]] = tails[number, relation.sides[1]] = True
        return np.concatenate([heads, tails]), np.concatenate([tails, heads])

    def _joined(self, rng: np.random.Generator, path: tuple[int, ...], size: int) -> np.ndarray:
        """At most `size` pairs that the path joins, found by random walks, whole heads together: (n, 2)."""
        starts = self.graph.ends(path[0])[:, 0]
        heads = rng.permutation(np.unique(rng.choice(starts, 4 * size)))
        rows = np.repeat(np.arange(len(heads)), WALKS)
        at = heads[rows]
        for relation in path:
            ends = self.graph.ends(relation)
            begin, end = (np.searchsorted(ends[:, 0], at, side) for side in ("left", "right"))
            alive = begin < end
            rows, begin, end = rows[alive], begin[alive], end[alive]
            at = ends[begin + (rng.random(len(begin)) * (end - begin)).astype(np.int64), 1]
        pairs = np.unique(np.stack([rows, at], 1), axis=0)
        pairs[:, 0] = heads[pairs[:, 0]]
        pairs = pairs[(pairs[:, 0] != pairs[:, 1]) & (rng.random(len(pairs)) < HOLDS)]
        return np.asarray(pairs[:size])

    def _codes(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, dict[str, Any]]:
        population, codes = self.graph.population, CodeMap.draw(rng)
        types = np.array([self._some_type(rng), self._some_type(rng)])
        pairs = np.zeros((0, 2), np.int64)
        for _ in range(4):  # what is missing then is noise
            heads = population.anyone(rng, types[:1], size, HEADS_SKEW)
            tails = population.draw(rng, types[1:].repeat(size), codes(population.codes[heads]), CODES_SKEW)
            pairs = _distinct(np.concatenate([pairs, np.stack([heads, tails], 1)]))[:size]
        return pairs, {"kind": "codes", "types": types.tolist(), "signs": codes.signs, "swap": codes.swap}

    def _popularity(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, dict[str, Any]]:
        population = self.graph.population
        types = np.array([self._some_type(rng), self._some_type(rng)])
        pairs = np.zeros((0, 2), np.int64)
        for _ in range(4):
            both = [population.anyone(rng, types[i : i + 1], size, skew) for i, skew in enumerate((FLAT, STEEP))]
            pairs = _distinct(np.concatenate([pairs, np.stack(both, 1)]))[:size]
        return pairs, {"kind": "popularity", "types": types.tolist()}

    def _some_type(self, rng: np.random.Generator) -> int:
        sizes = self.graph.population.sizes
        good = np.flatnonzero((sizes >= SMALLEST_TYPE) & (sizes <= self.widest))
        return int(rng.choice(good)) if len(good) else int(np.where(sizes <= self.widest, sizes, 0).argmax())

    def _with_noise(self, rng: np.random.Generator, pairs: np.ndarray, size: int) -> np.ndarray:
        """Pairs that follow no rule added until there are `size`: heads and tails of the rule's types, and others."""
        population = self.graph.population
        heads, tails = (np.unique(population.types[column]) for column in pairs.T)
        more = np.union1d(tails, rng.integers(len(population.sizes), size=int(rng.integers(OTHER_TYPES + 1))))
        if self.range_size(more) <= self.widest:
            tails = more
        while len(pairs) < size:
            count = 2 * (size - len(pairs)) + 8
            drawn = [population.anyone(rng, types, count, FLAT) for types in (heads, tails)]
            pairs = _distinct(np.concatenate([pairs, np.stack(drawn, 1)]))[:size]
            heads = np.arange(len(population.sizes))  # small types may have no more pairs
        return pairs


def plant_tasks(
    graph: GeneratedGraph, counts: dict[str, int], sizes: tuple[int, int], seed: int
) -> dict[str, list[PlantedTask]]:
    """So many tasks for each split, each with at least sizes[0] and at most sizes[1] pairs."""
    planter, smallest, largest = Planter(graph, seed), *sizes
    made: dict[str, list[PlantedTask]] = {split: [] for split in counts}
    with progress("planting tasks", sum(counts.values())) as advance:
        for split, count in counts.items():
            for place in range(count):
                number = sum(map(len, made.values()))
                draw = generator(seed, "generate", "task size", number).random()
                size = smallest + int((largest - smallest + 1) * draw * draw * np.sqrt(draw))  # as in NELL-One
                made[split].append(planter.plant(number, KINDS[place % len(KINDS)], size))
                advance(number + 1)
    return made


def _distinct(pairs: np.ndarray) -> np.ndarray:
    """The pairs without repetitions and without an entity joined to itself, in their order."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return np.asarray(pairs[np.sort(np.unique(pairs, axis=0, return_index=True)[1])])
