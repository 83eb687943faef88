"""A background graph out of nothing: typed entities with hidden codes, and relations that join types by their codes.

Sizes of types and relations, and how often an end repeats, were fitted to NELL-One. Only operations that IEEE 754
rounds in one way (no power, exponential or matrix product) come between the random bits and the triples, so that every
machine draws the same graph.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from fewlink.base.errors import FewlinkError
from fewlink.base.progress import progress
from fewlink.base.seeds import generator

BITS = 4  # of an entity's code
SMALLEST_CELL = 12  # entities of a type with the same code, at least
FLIPPED = 4  # a bit of the code that a relation expects is wrong once in 2⁴ draws
ALIKE = 0.7  # share of the relations that join like with like: the expected code is the other end's own
HUBS = 0.3  # draws that go by popularity alone
STEEP, FLAT = 15, 2  # skews: an end is the one at rank size · u^skew, u uniform
SKEWS = ((FLAT, FLAT), (FLAT, STEEP), (STEEP, FLAT), (STEEP, STEEP))  # of heads and tails
CHANCES = (0.15, 0.22, 0.27, 0.36)
ROOM = {FLAT: 1, STEEP: 8}  # triples of a relation for each entity that can be on that side
TYPE_FALL, RELATION_FALL = 2, 4  # how fast sizes fall from the largest to the smallest
FEWEST = 10  # entities of a type, triples of a relation
ECHOES = 0.9  # share of the relations at odd places that repeat pairs of the next larger one
REPEATED = 0.8  # share of such a relation's free pairs
TURNED = 0.75  # share of such relations that repeat them turned
PATIENCE = 60  # rounds of drawing pairs that are not there yet


@dataclass(frozen=True)
class CodeMap:
    """What a relation expects of a tail: the head's code with some signs changed and, perhaps, two bits exchanged.

    As codes of ±1 this is a bilinear form: x W y with a signed permutation W is greatest for the expected y.
    """

    signs: int
    swap: bool

    @classmethod
    def draw(cls, rng: np.random.Generator) -> CodeMap:
        """Equality, or any map."""
        signs, swap, alike = int(rng.integers(1 << BITS)), bool(rng.integers(2)), rng.random() < ALIKE
        return cls(0, False) if alike else cls(signs, swap)

    def __call__(self, codes: np.ndarray, back: bool = False) -> np.ndarray:
        """The codes of tails for those of heads, or `back`: (n,) uint8 both."""
        signs = np.uint8(self.signs)
        return self._exchanged(codes ^ signs) if back else self._exchanged(codes) ^ signs

    def _exchanged(self, codes: np.ndarray) -> np.ndarray:
        if not self.swap:
            return codes
        first, second, one = (np.uint8(1 << place) for place in (BITS - 1, BITS - 2, 0))
        exchanged = (codes & first) >> one | (codes & second) << one
        return np.asarray(codes & ~(first | second) | exchanged)


@dataclass(frozen=True, eq=False)
class Population:
    """The entities: those of a type stand together, in it those of a code, among them the most popular first.

    Shapes: `sizes`, `starts`, `bits` (types,) int64, `bits` being how much of the code tells the members of a type
    apart; `types` (entities,) int32; `codes` (entities,) uint8.
    """

    sizes: np.ndarray
    starts: np.ndarray
    bits: np.ndarray
    types: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, entities: int, types: int, seed: int) -> Population:
        rng = generator(seed, "generate", "population")
        sizes = rng.permutation(falling_sizes(entities, types, TYPE_FALL))
        starts = np.cumsum(sizes) - sizes
        bits = np.array([min(max(int(s) // SMALLEST_CELL, 1).bit_length() - 1, BITS) for s in sizes])
        of = np.repeat(np.arange(types, dtype=np.int32), sizes)
        place = np.arange(entities) - starts[of]
        known = (((place + 1) << bits[of]) - 1) // sizes[of]  # the cell whose span, as in `draw`, holds the place
        free = rng.integers(1 << BITS, size=entities)
        codes = (known << (BITS - bits[of])) | (free >> bits[of])
        return cls(sizes, starts, bits, of, codes.astype(np.uint8))

    def some_types(self, rng: np.random.Generator, types: np.ndarray, count: int) -> np.ndarray:
        """Types (count,) out of these, by their sizes."""
        ends = np.cumsum(self.sizes[types])
        return types[np.searchsorted(ends, rng.integers(ends[-1], size=count), "right")]

    def draw(self, rng: np.random.Generator, types: np.ndarray, codes: np.ndarray, skew: int) -> np.ndarray:
        """An entity of each type and code: (n,), (n,) to (n,) int64."""
        size, bits = self.sizes[types], self.bits[types]
        cell = codes.astype(np.int64) >> (BITS - bits)
        low, high = size * cell >> bits, size * (cell + 1) >> bits
        return np.asarray(self.starts[types] + low + _skewed(rng, high - low, skew))

    def anyone(self, rng: np.random.Generator, types: np.ndarray, count: int, skew: int) -> np.ndarray:
        """Entities (count,) of these types, whatever their codes."""
        codes = rng.integers(1 << BITS, size=count, dtype=np.uint8)
        return self.draw(rng, self.some_types(rng, types, count), self._with_hubs(rng, codes), skew)

    def partners(self, rng: np.random.Generator, types: np.ndarray, expected: np.ndarray, skew: int) -> np.ndarray:
        """Entities of these types, one for each expected code (n,), most with that code."""
        noise = np.bitwise_and.reduce(rng.integers(1 << BITS, size=(FLIPPED, len(expected)), dtype=np.uint8))
        codes = self._with_hubs(rng, expected ^ noise)
        return self.draw(rng, self.some_types(rng, types, len(codes)), codes, skew)

    def _with_hubs(self, rng: np.random.Generator, codes: np.ndarray) -> np.ndarray:
        hubs = _skewed(rng, np.full(len(codes), 1 << BITS), STEEP)
        return np.where(rng.random(len(codes)) < HUBS, hubs, codes).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Relation:
    """Types of the heads and of the tails, as arrays; how popular ones are preferred on each side; codes it joins."""

    sides: tuple[np.ndarray, np.ndarray]
    size: int
    skews: tuple[int, int]
    codes: CodeMap
    echoes: int | None = None  # the relation whose pairs it repeats in part
    turned: bool = False


@dataclass(frozen=True, eq=False)
class GeneratedGraph:
    """`pairs[r]` (n, 2) int64 are the heads and tails of relation r, distinct, sorted."""

    population: Population
    relations: list[Relation]
    pairs: list[np.ndarray]

    @functools.cached_property
    def turned(self) -> dict[int, np.ndarray]:
        """Turned pairs, sorted, of the relations that were asked for so far."""
        return {}

    def ends(self, relation: int) -> np.ndarray:
        """The pairs of a relation, those of r + R being the turned ones of r: (n, 2), sorted."""
        if relation < len(self.relations):
            return self.pairs[relation]
        relation -= len(self.relations)
        if relation not in self.turned:
            back = self.pairs[relation][:, ::-1]
            self.turned[relation] = back[np.argsort(back[:, 0], kind="stable")]
        return self.turned[relation]


def falling_sizes(total: int, count: int, fall: int) -> np.ndarray:
    """`count` sizes, the largest first, that sum to `total`: a few, plus a share of (1 - ρ)^fall / √ρ at rank ρ."""
    few = min(FEWEST, total // (4 * count))
    rank = (np.arange(count) + 0.5) / count
    share = functools.reduce(np.multiply, [1 - rank] * fall) / np.sqrt(rank)
    sizes = few + np.floor(share * ((total - few * count) / math.fsum(share))).astype(np.int64)
    sizes[np.arange(total - sizes.sum()) % count] += 1
    return sizes


def generate_graph(entities: int, triples: int, types: int, relations: int, seed: int) -> GeneratedGraph:
    """Exactly so many triples, none twice; every entity is in one."""
    population = Population.of(entities, types, seed)
    plan = _plan(population, falling_sizes(triples, relations, RELATION_FALL), seed)
    firsts = _first_edges(population, plan, seed)
    sizes = _shared_out(triples, np.array([len(f) for f in firsts]), np.array([r.size for r in plan]))
    pairs: list[np.ndarray] = []
    with progress("drawing triples", triples) as advance:
        for number, (relation, first, size) in enumerate(zip(plan, firsts, sizes.tolist(), strict=True)):
            rng = generator(seed, "generate", "relation", number)
            repeated = pairs[relation.echoes] if relation.echoes is not None else None
            pairs.append(_pairs(population, relation, first, size, repeated, rng))
            advance(sum(map(len, pairs)))
    return GeneratedGraph(population, plan, pairs)


def _plan(population: Population, sizes: np.ndarray, seed: int) -> list[Relation]:
    """Relations, the largest first. Each side takes the types that have been served least for their size."""
    rng = generator(seed, "generate", "relations")
    served = np.zeros(len(population.sizes))
    plan: list[Relation] = []
    for number, size in enumerate(sizes.tolist()):
        skews, codes, (draw, turned) = SKEWS[rng.choice(len(SKEWS), p=CHANCES)], CodeMap.draw(rng), rng.random(2)
        if number % 2 and draw < ECHOES:
            (heads, tails), (before, behind) = plan[-1].sides, plan[-1].skews
            if back := bool(turned < TURNED):
                heads, tails, before, behind = tails, heads, behind, before
            plan.append(Relation((heads, tails), size, (before, behind), codes, number - 1, back))
        else:
            least = 2 * math.isqrt(size) + 2  # room for four times the pairs
            heads, tails = (_side(population, served, max(size // ROOM[skew], least), rng) for skew in skews)
            plan.append(Relation((heads, tails), size, skews, codes))
        for side in plan[-1].sides:
            served[side] += size / population.sizes[side].sum()
    return plan


def _side(population: Population, served: np.ndarray, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Types with so many members together: (types of this side,)."""
    order = rng.permutation(len(served))
    order = order[np.argsort(served[order], kind="stable")]
    count = int(np.searchsorted(np.cumsum(population.sizes[order]), wanted)) + 1
    return np.sort(order[:count])


def _first_edges(population: Population, plan: list[Relation], seed: int) -> list[np.ndarray]:
    """One pair for every entity, as head or tail of a relation that takes its type: (n, 2) for each relation."""
    rng = generator(seed, "generate", "first edges")
    sides = [(r, way) for r in range(len(plan)) for way in (0, 1)]
    open_to: list[list[int]] = [[] for _ in population.sizes]
    for number, (r, way) in enumerate(sides):
        for kind in plan[r].sides[way].tolist():
            open_to[kind].append(number)
    chosen = np.empty(len(population.types), np.int32)
    for kind, (start, size) in enumerate(zip(population.starts, population.sizes, strict=True)):
        mine = np.array(open_to[kind])
        ends = np.cumsum([plan[sides[n][0]].size for n in mine])
        chosen[start : start + size] = mine[np.searchsorted(ends, rng.integers(ends[-1], size=size), "right")]
    order = np.argsort(chosen, kind="stable")
    of_side = np.split(order, np.searchsorted(chosen[order], np.arange(1, len(sides))))
    firsts = []
    for r, relation in enumerate(plan):
        heads, tails = of_side[2 * r], of_side[2 * r + 1]
        forth = np.stack([heads, _others(population, relation, heads, 1, rng)], 1)
        back = np.stack([_others(population, relation, tails, 0, rng), tails], 1)
        firsts.append(np.concatenate([forth, back]))
    return firsts


def _others(
    population: Population, relation: Relation, given: np.ndarray, side: int, rng: np.random.Generator
) -> np.ndarray:
    """The ends on this side (0: heads, 1: tails) for given other ends, none of them equal to its other end."""
    ends = given
    for _ in range(PATIENCE):
        loops = np.flatnonzero(ends == given)
        if not len(loops):
            break
        expected = relation.codes(population.codes[given[loops]], back=side == 0)
        ends = ends.copy()
        ends[loops] = population.partners(rng, relation.sides[side], expected, relation.skews[side])
    return np.where(ends == given, (given + 1) % len(population.types), ends)


def _shared_out(triples: int, begun: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sizes that sum to `triples`, near the wanted ones and nowhere below what a relation has begun with."""
    room = np.maximum(sizes - begun, 0)
    free = triples - int(begun.sum())
    more = room * free // max(int(room.sum()), 1)
    more[np.arange(free - int(more.sum())) % len(more)] += 1
    return np.asarray(begun + more)


def _pairs(
    population: Population,
    relation: Relation,
    first: np.ndarray,
    size: int,
    repeated: np.ndarray | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """Exactly `size` distinct pairs, the first ones among them: (size, 2), sorted."""
    entities = len(population.types)
    keys = np.unique(first[:, 0] * entities + first[:, 1])
    if repeated is not None:
        some = rng.permutation(repeated)[: int(REPEATED * (size - len(keys)))]
        heads, tails = some[:, ::-1].T if relation.turned else some.T
        keys = np.union1d(keys, heads * entities + tails)
    for round_ in range(PATIENCE):
        missing = size - len(keys)
        if not missing:
            return np.stack([keys // entities, keys % entities], 1)
        skews = relation.skews if round_ < PATIENCE // 3 else (1, 1)  # all the same chance
        heads = population.anyone(rng, relation.sides[0], missing + missing // 4 + 8, skews[0])
        expected = relation.codes(population.codes[heads])
        tails = population.partners(rng, relation.sides[1], expected, skews[1])
        drawn, at = np.unique((heads * entities + tails)[heads != tails], return_index=True)
        fresh = ~np.isin(drawn, keys, assume_unique=True)
        keys = np.union1d(keys, drawn[fresh][np.argsort(at[fresh], kind="stable")[:missing]])
    raise FewlinkError(f"{entities:,} entities are too few for so many triples: ask for more entities or fewer triples")


def _skewed(rng: np.random.Generator, sizes: np.ndarray, skew: int) -> np.ndarray:
    """A place below each size, at size · u^skew: (n,) int64."""
    draw = rng.random(len(sizes))
    power: np.ndarray = functools.reduce(np.multiply, [draw] * skew)
    return np.asarray((power * sizes).astype(np.int64))
