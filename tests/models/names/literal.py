"""Literal slow twins: likeness of names, the columns, and the combined score, with dicts and loops."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

from fewlink.models.names.columns import EULER, FEW
from fewlink.models.names.gate import POWER, Gate


def words(name: str) -> list[str]:
    """Lower-case runs of letters and digits without accents."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c)).lower()
    return "".join(c if c.isalnum() else " " for c in plain).split()


def grams(name: str) -> set[str]:
    """All 3- and 4-grams of each word with a space before and after it."""
    padded = [f" {word} " for word in words(name)]
    return {text[i : i + n] for text in padded for n in (3, 4) for i in range(len(text) - n + 1)}


class Likeness:
    """TF-IDF vectors as dicts."""

    def __init__(self, names: Sequence[str]) -> None:
        sets = [grams(name) for name in names]
        every = set().union(*sets)
        self.rarity = {g: math.log((1 + len(names)) / (1 + sum(g in s for s in sets))) for g in every}
        self.vectors = [{g: self.rarity[g] for g in s} for s in sets]

    def product(self, a: int, b: int) -> float:
        return sum(weight * self.vectors[b].get(gram, 0.0) for gram, weight in self.vectors[a].items())

    def length(self, a: int) -> float:
        return math.sqrt(self.product(a, a))

    def like(self, a: int, b: int) -> float:
        lengths = self.length(a) * self.length(b)
        return self.product(a, b) / lengths if lengths else 0.0

    def columns(self, references: Sequence[tuple[int, int]], head: int, tail: int) -> list[float]:
        product = self.product(head, tail)
        in_head = product / self.length(tail) ** 2 if product else 0.0
        has_head = product / self.length(head) ** 2 if product else 0.0
        return [self.like(head, tail), in_head, has_head, max(self.like(t, tail) for _, t in references)]

    def gates(self, references: Sequence[tuple[int, int]], peers: Sequence[int]) -> tuple[float, float]:
        by_head, by_tails = 0.0, 0.0
        for place, (head, tail) in enumerate(references):
            same = {t for h, t in references if h == head}
            rivals = [e for e in peers if e != head and e not in same]
            by_head += found(self.like(head, tail), [self.like(head, e) for e in rivals])
            others = [t for i, (_, t) in enumerate(references) if i != place]
            if others:
                near = {e: max(self.like(t, e) for t in others) for e in [tail, *rivals]}
                by_tails += found(near[tail], [near[e] for e in rivals if e not in others])
        many = len(peers) / (len(peers) + FEW) / (len(references) + 1)
        return many * by_head, many * by_tails

    def score(
        self,
        gate: Gate,
        plain: float,
        references: Sequence[tuple[int, int]],
        peers: Sequence[int],
        pair: tuple[int, int],
    ) -> float:
        r, s = self.gates(references, peers)
        *of_head, of_tail = self.columns(references, *pair)
        *w, v = gate.weights.tolist()
        return plain + r**POWER * sum(a * b for a, b in zip(w, of_head, strict=True)) + s**POWER * v * of_tail


def found(own: float, rivals: Sequence[float]) -> float:
    """The reciprocal rank, 0 as by chance and 1 for the first."""
    if not rivals:
        return 0.0
    near = [abs(each - own) < 1e-5 for each in rivals]
    rank = 1 + sum(e > own and not n for e, n in zip(rivals, near, strict=True)) + sum(near) / 2
    count = len(rivals) + 1
    chance = (math.log(count) + EULER + 1 / (2 * count)) / count
    return max(0.0, (1 / rank - chance) / (1 - chance))
