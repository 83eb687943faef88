"""Few-shot tasks planted in a synthetic graph: each follows a rule, with some noise.

- path: r(x, z) holds if a path of one, two or three relations or inverses leads from x to z;
- codes: r joins entities of two types by a map of their hidden codes, which no background relation needs to have;
- popularity: the tails of r are the popular entities of a type, whatever the head.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fewlink.core.progress import progress
from fewlink.core.seeds import generator
from synthetic.graph import FLAT, SMALLEST_CELL, STEEP, CodeMap, GeneratedGraph

# the kinds of a split's tasks, in turn; a number is the length of a path
KINDS = (2, 1, "codes", 2, 3, "codes", 2, 1, "popularity", 2)
NOISE = 0.3  # share of the pairs of a task that follow no rule
HOLDS = 0.8  # probability that a pair joined by a path is in the task
WALKS = 8  # random walks from each head
MAX_MEAN_TAILS = 4  # of a head
MAX_PAIRS_PER_TAIL = 8  # on average: with fewer distinct tails, popularity would solve the task
MAX_CANDIDATES = 20_000
MIN_ENTITIES_PER_CANDIDATE = 4
MAX_OTHER_TYPES = 2  # further types of the tails of noise
SMALLEST_TYPE = 4 * SMALLEST_CELL  # fewest entities of a type for codes and popularity
HEADS_SKEW = 5
CODES_SKEW = 9  # skews of heads and of tails with the right code, in a task of codes
TRIES = 200  # paths tried for one task


@dataclass(frozen=True, eq=False)
class PlantedTask:
    """A task: `pairs` (n, 2) int64, distinct, in random order; `rule` describes the planted rule in plain values."""

    pairs: np.ndarray
    rule: dict[str, Any]


@dataclass
class Planter:
    """Plants one task after another; no path is planted twice."""

    graph: GeneratedGraph
    seed: int
    used: set[tuple[int, ...]] = field(default_factory=set)

    def plant(self, number: int, kind: int | str, size: int) -> PlantedTask:
        """Plant a task of exactly `size` pairs. If no path of the wanted length is suitable, it is a task of codes."""
        rng = generator(self.seed, "generate", "task", number)
        ruled = size - int(NOISE * size)
        planted = self._path(rng, kind, ruled) if isinstance(kind, int) else None
        if planted is None:
            planted = self._popularity(rng, ruled) if kind == "popularity" else self._codes(rng, ruled)
        by_rule, rule = planted
        pairs = self._with_noise(rng, by_rule, size)
        return PlantedTask(rng.permutation(pairs), {**rule, "pairs": size, "of which noise": size - len(by_rule)})

    @property
    def largest_range(self) -> int:
        """The largest number of candidates of a task."""
        return min(MAX_CANDIDATES, len(self.graph.population.types) // MIN_ENTITIES_PER_CANDIDATE)

    def range_size(self, types: np.ndarray) -> int:
        """The number of entities of these types."""
        return int(self.graph.population.sizes[types].sum())

    def _path(self, rng: np.random.Generator, hops: int, size: int) -> tuple[np.ndarray, dict[str, Any]] | None:
        """The pairs that a new random path joins, and its rule; None if none of the tried paths joins enough."""
        types = self.graph.population.types
        for _ in range(TRIES):
            path = self._random_path(rng, hops, size)
            if path is None or path in self.used:
                continue
            pairs = self._joined(rng, path, size)
            heads, tails = (len(np.unique(column)) for column in pairs.T)
            few = len(pairs) < size or tails * MAX_PAIRS_PER_TAIL < size
            if (
                few
                or size > MAX_MEAN_TAILS * heads
                or self.range_size(np.unique(types[pairs[:, 1]])) > self.largest_range
            ):
                continue
            self.used.add(path)
            return pairs, {"kind": "path", "path": list(path)}
        return None

    def _random_path(self, rng: np.random.Generator, hops: int, size: int) -> tuple[int, ...] | None:
        """Draw relations (r + R is the inverse of r) each of which starts at a type where the one before ends."""
        count = len(self.graph.relations)
        begins, ends = self._sides
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
        """Whether each relation, inverses included, starts at a type, and whether it ends there: two (2R, types)."""
        heads, tails = np.zeros((2, len(self.graph.relations), len(self.graph.population.sizes)), bool)
        for number, relation in enumerate(self.graph.relations):
            heads[number, relation.sides[0]] = tails[number, relation.sides[1]] = True
        return np.concatenate([heads, tails]), np.concatenate([tails, heads])

    def _joined(self, rng: np.random.Generator, path: tuple[int, ...], size: int) -> np.ndarray:
        """Find at most `size` pairs that the path joins, by random walks, grouped by head: (n, 2)."""
        starts = self.graph.ends(path[0])[:, 0]
        heads = rng.permutation(np.unique(rng.choice(starts, 4 * size)))
        rows = np.repeat(np.arange(len(heads)), WALKS)
        at = heads[rows]
        for relation in path:
            ends = self.graph.ends(relation)
            begin, end = (np.searchsorted(ends[:, 0], at, side) for side in ("left", "right"))
            alive = begin < end
            rows = rows[alive]
            begin = begin[alive]
            end = end[alive]
            at = ends[begin + (rng.random(len(begin)) * (end - begin)).astype(np.int64), 1]
        pairs = np.unique(np.stack([rows, at], 1), axis=0)
        pairs[:, 0] = heads[pairs[:, 0]]
        pairs = pairs[(pairs[:, 0] != pairs[:, 1]) & (rng.random(len(pairs)) < HOLDS)]
        return np.asarray(pairs[:size])

    def _codes(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, dict[str, Any]]:
        population = self.graph.population
        codes = CodeMap.draw(rng)
        types = np.array([self._draw_type(rng), self._draw_type(rng)])
        pairs = np.zeros((0, 2), np.int64)
        for _ in range(4):  # pairs still missing become noise
            heads = population.draw_any(rng, types[:1], size, HEADS_SKEW)
            tails = population.draw(rng, types[1:].repeat(size), codes(population.codes[heads]), CODES_SKEW)
            pairs = _distinct(np.concatenate([pairs, np.stack([heads, tails], 1)]))[:size]
        return pairs, {"kind": "codes", "types": types.tolist(), "signs": codes.signs, "swap": codes.swap}

    def _popularity(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, dict[str, Any]]:
        population = self.graph.population
        types = np.array([self._draw_type(rng), self._draw_type(rng)])
        pairs = np.zeros((0, 2), np.int64)
        for _ in range(4):
            both = [population.draw_any(rng, types[i : i + 1], size, skew) for i, skew in enumerate((FLAT, STEEP))]
            pairs = _distinct(np.concatenate([pairs, np.stack(both, 1)]))[:size]
        return pairs, {"kind": "popularity", "types": types.tolist()}

    def _draw_type(self, rng: np.random.Generator) -> int:
        sizes = self.graph.population.sizes
        suitable = np.flatnonzero((sizes >= SMALLEST_TYPE) & (sizes <= self.largest_range))
        largest = np.where(sizes <= self.largest_range, sizes, 0).argmax()
        return int(rng.choice(suitable) if len(suitable) else largest)

    def _with_noise(self, rng: np.random.Generator, pairs: np.ndarray, size: int) -> np.ndarray:
        """Add random pairs up to `size`, of entities with the types of the rule and a few others."""
        population = self.graph.population
        heads, tails = (np.unique(population.types[column]) for column in pairs.T)
        more = np.union1d(tails, rng.integers(len(population.sizes), size=int(rng.integers(MAX_OTHER_TYPES + 1))))
        if self.range_size(more) <= self.largest_range:
            tails = more
        while len(pairs) < size:
            count = 2 * (size - len(pairs)) + 8
            drawn = [population.draw_any(rng, types, count, FLAT) for types in (heads, tails)]
            pairs = _distinct(np.concatenate([pairs, np.stack(drawn, 1)]))[:size]
            heads = np.arange(len(population.sizes))  # small types may have no further pairs
        return pairs


def plant_tasks(
    graph: GeneratedGraph, counts: dict[str, int], sizes: tuple[int, int], seed: int
) -> dict[str, list[PlantedTask]]:
    """Plant the tasks of each split, each with sizes[0] to sizes[1] pairs."""
    planter = Planter(graph, seed)
    smallest, largest = sizes
    tasks: dict[str, list[PlantedTask]] = {split: [] for split in counts}
    with progress("planting tasks", sum(counts.values())) as advance:
        for split, count in counts.items():
            for place in range(count):
                number = sum(map(len, tasks.values()))
                draw = generator(seed, "generate", "task size", number).random()
                size = smallest + int(
                    (largest - smallest + 1) * draw * draw * np.sqrt(draw)
                )  # distributed as in NELL-One
                tasks[split].append(planter.plant(number, KINDS[place % len(KINDS)], size))
                advance(number + 1)
    return tasks


def _distinct(pairs: np.ndarray) -> np.ndarray:
    """The pairs without duplicates and self-loops, in their order."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return np.asarray(pairs[np.sort(np.unique(pairs, axis=0, return_index=True)[1])])
