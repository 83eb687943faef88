"""A synthetic background graph: typed entities with hidden codes, and relations between types that depend on codes.

The sizes of types and relations, and the popularity of entities, are fitted to NELL-One. Triples are computed from
random bits by operations with exactly one IEEE 754 result (no power, exponential or matrix product), so that every
machine generates the same graph.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from fewlink.core.errors import FewlinkError
from fewlink.core.memo import Memo
from fewlink.core.progress import progress
from fewlink.core.seeds import generator

BITS = 4  # of the code of an entity
SMALLEST_CELL = 12  # fewest entities of a type with the same code
FLIPPED = 4  # a bit of the expected code is wrong in one of 2⁴ draws
ALIKE = 0.7  # share of relations whose heads and tails have equal codes
HUBS = 0.3  # share of draws by popularity alone
STEEP = 15
FLAT = 2  # skews: the entity at rank size · u^skew is drawn, u uniform
SKEWS = ((FLAT, FLAT), (FLAT, STEEP), (STEEP, FLAT), (STEEP, STEEP))  # of heads and tails
CHANCES = (0.15, 0.22, 0.27, 0.36)
ROOM = {FLAT: 1, STEEP: 8}  # triples of a relation for each possible entity on that side
TYPE_FALL = 2
RELATION_FALL = 4  # how fast sizes fall from the largest to the smallest
FEWEST = 10  # entities of a type or triples of a relation
REPEATING = 0.9  # share of the relations with odd numbers that repeat pairs of the one before
REPEATED = 0.8  # share of repeated pairs in such a relation, besides its first edges
INVERTED = 0.75  # share of such relations that repeat the inverse pairs
ROUNDS = 60  # of drawing new pairs, at most


@dataclass(frozen=True)
class CodeMap:
    """The code that a relation expects of a tail: the head's code with some signs flipped and perhaps two bits swapped.

    For codes of ±1 this is a bilinear form: x W y with a signed permutation W is largest for the expected y.
    """

    signs: int
    swap: bool

    @classmethod
    def draw(cls, rng: np.random.Generator) -> CodeMap:
        """Draw the identity or a random map."""
        signs = int(rng.integers(1 << BITS))
        swap = bool(rng.integers(2))
        alike = rng.random() < ALIKE
        return cls(0, False) if alike else cls(signs, swap)

    def __call__(self, codes: np.ndarray, back: bool = False) -> np.ndarray:
        """The codes (n,) uint8 of tails for those of heads or, with `back`, of heads for those of tails."""
        signs = np.uint8(self.signs)
        return self._swapped(codes ^ signs) if back else self._swapped(codes) ^ signs

    def _swapped(self, codes: np.ndarray) -> np.ndarray:
        if not self.swap:
            return codes
        first, second, one = (np.uint8(1 << bit) for bit in (BITS - 1, BITS - 2, 0))
        swapped = (codes & first) >> one | (codes & second) << one
        return np.asarray(codes & ~(first | second) | swapped)


@dataclass(frozen=True, eq=False)
class Population:
    """The entities, ordered by type, then code, then popularity.

    Shapes: `sizes`, `starts`, `bits` (types,) int64, where `bits` is the number of leading code bits by which the
    entities of a type are ordered; `types` (entities,) int32; `codes` (entities,) uint8.
    """

    sizes: np.ndarray
    starts: np.ndarray
    bits: np.ndarray
    types: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, entities: int, types: int, seed: int) -> Population:
        """Make a population; the entities of small types are ordered by fewer bits of their codes."""
        rng = generator(seed, "generate", "population")
        sizes = rng.permutation(falling_sizes(entities, types, TYPE_FALL))
        starts = np.cumsum(sizes) - sizes
        bits = np.array([min(max(int(s) // SMALLEST_CELL, 1).bit_length() - 1, BITS) for s in sizes])
        of = np.repeat(np.arange(types, dtype=np.int32), sizes)
        place = np.arange(entities) - starts[of]
        known = (((place + 1) << bits[of]) - 1) // sizes[of]  # the cell, as in `draw`, that contains the place
        free = rng.integers(1 << BITS, size=entities)
        codes = (known << (BITS - bits[of])) | (free >> bits[of])
        return cls(sizes, starts, bits, of, codes.astype(np.uint8))

    def draw_types(self, rng: np.random.Generator, types: np.ndarray, count: int) -> np.ndarray:
        """Draw types (count,) in proportion to their sizes."""
        ends = np.cumsum(self.sizes[types])
        return types[np.searchsorted(ends, rng.integers(ends[-1], size=count), "right")]

    def draw(self, rng: np.random.Generator, types: np.ndarray, codes: np.ndarray, skew: int) -> np.ndarray:
        """Draw an entity for each type (n,) and code (n,): (n,) int64."""
        size = self.sizes[types]
        bits = self.bits[types]
        cell = codes.astype(np.int64) >> (BITS - bits)
        low = size * cell >> bits
        high = size * (cell + 1) >> bits
        return np.asarray(self.starts[types] + low + _skewed(rng, high - low, skew))

    def draw_any(self, rng: np.random.Generator, types: np.ndarray, count: int, skew: int) -> np.ndarray:
        """Draw entities (count,) of these types with any code."""
        codes = rng.integers(1 << BITS, size=count, dtype=np.uint8)
        return self.draw(rng, self.draw_types(rng, types, count), self._with_hubs(rng, codes), skew)

    def draw_partners(self, rng: np.random.Generator, types: np.ndarray, expected: np.ndarray, skew: int) -> np.ndarray:
        """Draw an entity of these types for each expected code (n,); most have that code."""
        noise = np.bitwise_and.reduce(rng.integers(1 << BITS, size=(FLIPPED, len(expected)), dtype=np.uint8))
        codes = self._with_hubs(rng, expected ^ noise)
        return self.draw(rng, self.draw_types(rng, types, len(codes)), codes, skew)

    def _with_hubs(self, rng: np.random.Generator, codes: np.ndarray) -> np.ndarray:
        hubs = _skewed(rng, np.full(len(codes), 1 << BITS), STEEP)
        return np.where(rng.random(len(codes)) < HUBS, hubs, codes).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class RelationPlan:
    """How to generate a relation: the types and skew of each side, the number of triples, and the codes."""

    sides: tuple[np.ndarray, np.ndarray]
    size: int
    skews: tuple[int, int]
    codes: CodeMap
    repeats: int | None = None  # a relation whose pairs it partly repeats
    inverted: bool = False


@dataclass(frozen=True, eq=False)
class GeneratedGraph(Memo):
    """`pairs[r]` (n, 2) int64 are the heads and tails of relation r, distinct, sorted."""

    population: Population
    relations: list[RelationPlan]
    pairs: list[np.ndarray]

    def ends(self, relation: int) -> np.ndarray:
        """The pairs of a relation, sorted by head: (n, 2); relation r + R is the inverse of r."""
        count = len(self.relations)
        return self.pairs[relation] if relation < count else self.once(_inverse_pairs, relation - count)


def _inverse_pairs(graph: GeneratedGraph, relation: int) -> np.ndarray:
    pairs = graph.pairs[relation][:, ::-1]
    return pairs[np.argsort(pairs[:, 0], kind="stable")]


def falling_sizes(total: int, count: int, fall: int) -> np.ndarray:
    """`count` decreasing sizes that sum to `total`: a minimum plus a share of (1 - ρ)^fall / √ρ at rank ρ."""
    minimum = min(FEWEST, total // (4 * count))
    rank = (np.arange(count) + 0.5) / count
    share = functools.reduce(np.multiply, [1 - rank] * fall) / np.sqrt(rank)
    sizes = minimum + np.floor(share * ((total - minimum * count) / math.fsum(share))).astype(np.int64)
    sizes[np.arange(total - sizes.sum()) % count] += 1
    return sizes


def generate_graph(entities: int, triples: int, types: int, relations: int, seed: int) -> GeneratedGraph:
    """A graph of exactly these sizes; all triples are distinct, and every entity is in one."""
    population = Population.of(entities, types, seed)
    plan = _plan(population, falling_sizes(triples, relations, RELATION_FALL), seed)
    firsts = _first_edges(population, plan, seed)
    sizes = _distributed(triples, np.array([len(f) for f in firsts]), np.array([r.size for r in plan]))
    pairs: list[np.ndarray] = []
    with progress("drawing triples", triples) as advance:
        for number, (relation, first, size) in enumerate(zip(plan, firsts, sizes.tolist(), strict=True)):
            rng = generator(seed, "generate", "relation", number)
            repeated = pairs[relation.repeats] if relation.repeats is not None else None
            pairs.append(_pairs(population, relation, first, size, repeated, rng))
            advance(sum(map(len, pairs)))
    return GeneratedGraph(population, plan, pairs)


def _plan(population: Population, sizes: np.ndarray, seed: int) -> list[RelationPlan]:
    """Plan relations by decreasing size. Each side takes the types with the fewest triples for their size so far."""
    rng = generator(seed, "generate", "relations")
    used = np.zeros(len(population.sizes))
    plan: list[RelationPlan] = []
    for number, size in enumerate(sizes.tolist()):
        skews = SKEWS[rng.choice(len(SKEWS), p=CHANCES)]
        codes = CodeMap.draw(rng)
        draw, inverted = rng.random(2)
        if number % 2 and draw < REPEATING:
            heads, tails = plan[-1].sides
            head_skew, tail_skew = plan[-1].skews
            back = bool(inverted < INVERTED)
            if back:
                heads, tails = tails, heads
                head_skew, tail_skew = tail_skew, head_skew
            plan.append(RelationPlan((heads, tails), size, (head_skew, tail_skew), codes, number - 1, back))
        else:
            least = 2 * math.isqrt(size) + 2  # gives at least four times as many possible pairs
            heads, tails = (_draw_side(population, used, max(size // ROOM[skew], least), rng) for skew in skews)
            plan.append(RelationPlan((heads, tails), size, skews, codes))
        for side in plan[-1].sides:
            used[side] += size / population.sizes[side].sum()
    return plan


def _draw_side(population: Population, used: np.ndarray, members: int, rng: np.random.Generator) -> np.ndarray:
    """Draw types that together have at least this number of members: (types of this side,)."""
    order = rng.permutation(len(used))
    order = order[np.argsort(used[order], kind="stable")]
    count = int(np.searchsorted(np.cumsum(population.sizes[order]), members)) + 1
    return np.sort(order[:count])


def _first_edges(population: Population, plan: list[RelationPlan], seed: int) -> list[np.ndarray]:
    """Draw one pair for every entity, as head or tail of a relation with its type: (n, 2) for each relation."""
    rng = generator(seed, "generate", "first edges")
    sides = [(r, side) for r in range(len(plan)) for side in (0, 1)]
    sides_of_type: list[list[int]] = [[] for _ in population.sizes]
    for number, (r, side) in enumerate(sides):
        for kind in plan[r].sides[side].tolist():
            sides_of_type[kind].append(number)
    chosen = np.empty(len(population.types), np.int32)
    for kind, (start, size) in enumerate(zip(population.starts, population.sizes, strict=True)):
        possible = np.array(sides_of_type[kind])
        ends = np.cumsum([plan[sides[n][0]].size for n in possible])
        chosen[start : start + size] = possible[np.searchsorted(ends, rng.integers(ends[-1], size=size), "right")]
    order = np.argsort(chosen, kind="stable")
    of_side = np.split(order, np.searchsorted(chosen[order], np.arange(1, len(sides))))
    firsts = []
    for r, relation in enumerate(plan):
        heads = of_side[2 * r]
        tails = of_side[2 * r + 1]
        forward = np.stack([heads, _other_ends(population, relation, heads, 1, rng)], 1)
        back = np.stack([_other_ends(population, relation, tails, 0, rng), tails], 1)
        firsts.append(np.concatenate([forward, back]))
    return firsts


def _other_ends(
    population: Population, relation: RelationPlan, entities: np.ndarray, side: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw entities for this side (0: heads, 1: tails) to link with entities of the other, without self-loops."""
    ends = entities
    for _ in range(ROUNDS):
        loops = np.flatnonzero(ends == entities)
        if not len(loops):
            break
        expected = relation.codes(population.codes[entities[loops]], back=side == 0)
        ends = ends.copy()
        ends[loops] = population.draw_partners(rng, relation.sides[side], expected, relation.skews[side])
    return np.where(ends == entities, (entities + 1) % len(population.types), ends)


def _distributed(triples: int, first: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sizes that sum to `triples`, close to the planned ones and at least the number of first edges."""
    room = np.maximum(sizes - first, 0)
    free = triples - int(first.sum())
    more = room * free // max(int(room.sum()), 1)
    more[np.arange(free - int(more.sum())) % len(more)] += 1
    return np.asarray(first + more)


def _pairs(
    population: Population,
    relation: RelationPlan,
    first: np.ndarray,
    size: int,
    repeated: np.ndarray | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw exactly `size` distinct pairs, including the first edges: (size, 2), sorted."""
    entities = len(population.types)
    keys = np.unique(first[:, 0] * entities + first[:, 1])
    if repeated is not None:
        some = rng.permutation(repeated)[: int(REPEATED * (size - len(keys)))]
        heads, tails = some[:, ::-1].T if relation.inverted else some.T
        keys = np.union1d(keys, heads * entities + tails)
    for round_ in range(ROUNDS):
        missing = size - len(keys)
        if not missing:
            return np.stack([keys // entities, keys % entities], 1)
        skews = relation.skews if round_ < ROUNDS // 3 else (1, 1)  # uniform in the last rounds
        heads = population.draw_any(rng, relation.sides[0], missing + missing // 4 + 8, skews[0])
        expected = relation.codes(population.codes[heads])
        tails = population.draw_partners(rng, relation.sides[1], expected, skews[1])
        drawn, at = np.unique((heads * entities + tails)[heads != tails], return_index=True)
        fresh = ~np.isin(drawn, keys, assume_unique=True)
        keys = np.union1d(keys, drawn[fresh][np.argsort(at[fresh], kind="stable")[:missing]])
    raise FewlinkError(
        f"{entities:,} entities are too few for this number of triples: use more entities or fewer triples"
    )


def _skewed(rng: np.random.Generator, sizes: np.ndarray, skew: int) -> np.ndarray:
    """An index below each size, at size · u^skew: (n,) int64."""
    draw = rng.random(len(sizes))
    power: np.ndarray = functools.reduce(np.multiply, [draw] * skew)
    return np.asarray((power * sizes).astype(np.int64))
