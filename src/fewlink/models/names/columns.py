"""The evidence of the names of head, candidates and references, as a few numbers for each candidate.

Nothing depends on the other candidates of a question: ranks are among the entities like the references' tails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fewlink.core.metrics import realistic_rank
from fewlink.data.candidates import likely_tails
from fewlink.graph import Graph
from fewlink.models.names.likeness import GramIndex, TextVectors

OF_HEAD = ("like head", "in head", "has head")  # columns that compare a candidate's name with the head's
COLUMNS = (*OF_HEAD, "like a tail")  # the last one compares it with those of the references' tails
FEW = 100  # peers at which a rank counts half as much as with very many
EULER = 0.5772  # the mean reciprocal rank of n in random order is about (ln n + EULER + 1 / 2n) / n


class ReferenceNames(NamedTuple):
    """The evidence in the names of references.

    `by_head`: how well the tails are found among their peers, the entities like them, by likeness to their heads;
    `by_tails`: how well by likeness to the other tails. Both are means of reciprocal ranks, 0 where they are as by
    chance, and drawn towards 0 where references or peers are few. `like_tail` (E,) float32: the likeness of each entity
    to the most similar of the tails; None if it does not matter, since `by_tails` is 0. It is of the `covered` names
    that the index had then.
    """

    by_head: float
    by_tails: float
    like_tail: np.ndarray | None
    covered: int = 0


@dataclass(frozen=True)
class NameColumns:
    """The columns of pairs on one graph; with vectors of `text`, the higher of the two likenesses counts."""

    index: GramIndex
    graph: Graph
    text: TextVectors | None = None

    def references(self, pairs: np.ndarray) -> ReferenceNames:
        """The evidence in the names of references (K, 2)."""
        peers = likely_tails(self.graph, np.unique(pairs[:, 1]))
        self.index.cover(np.union1d(peers, pairs[:, 1]))
        covered = self.index.number  # another thread may add names from here on
        rivals = [
            peers[(peers != head) & ~np.isin(peers, pairs[pairs[:, 0] == head, 1])] for head in pairs[:, 0].tolist()
        ]
        by_head, by_tails = 0.0, 0.0
        best, second = np.zeros((2, self.index.count), np.float32)  # over the tails
        nearest = np.zeros(self.index.count, np.int32)  # the place of the tail that `best` comes from
        for place, (head, tail) in enumerate(pairs.tolist()):
            like = self.likeness(head)
            by_head += above_chance(like[rivals[place]], like[tail])
            like = self.likeness(tail).astype(np.float32)
            nearest[like > best] = place
            second = np.maximum(second, np.minimum(best, like))
            best = np.maximum(best, like)
        for place, tail in enumerate(pairs[:, 1].tolist() if len(pairs) > 1 else []):
            own = second[tail] if nearest[tail] == place else best[tail]
            others = np.setdiff1d(rivals[place], pairs[:, 1])
            by_tails += above_chance(np.where(nearest[others] == place, second[others], best[others]), own)
        many = len(peers) / (len(peers) + FEW) / (len(pairs) + 1)
        return ReferenceNames(many * by_head, many * by_tails, best if by_tails else None, covered)

    def of(self, known: ReferenceNames, head: int, candidates: np.ndarray) -> np.ndarray:
        """The columns (C, COLUMNS) of one head's candidates (C,), which the index covers."""
        vector = self.index.vector(self.index.name(head))
        products = self.index.products(vector)
        shared, lengths = products[candidates], self.index.lengths[candidates].astype(np.float64)
        like = np.divide(shared, lengths * vector.length, out=np.zeros(len(shared)), where=shared > 0)
        if self.text is not None:
            like = np.maximum(like, self.text.likeness(head)[candidates])
        columns = {
            "like head": like,
            "in head": np.divide(shared, lengths**2, out=np.zeros(len(shared)), where=shared > 0),
            "has head": np.divide(shared, vector.length**2, out=np.zeros(len(shared)), where=shared > 0),
            "like a tail": np.zeros(len(shared)) if known.like_tail is None else known.like_tail[candidates],
        }
        return np.stack([columns[name] for name in COLUMNS], 1)

    def likeness(self, entity: int) -> np.ndarray:
        """The likeness of an entity's name to all names: (E,)."""
        like = self.index.likeness(self.index.vector(self.index.name(entity)))
        return like if self.text is None else np.maximum(like, self.text.likeness(entity))


def above_chance(rivals: np.ndarray, own: float) -> float:
    """The reciprocal rank among rivals, ties at their mean: 0 if it is what chance gives or less, 1 if it is first."""
    if not len(rivals):
        return 0.0
    count = len(rivals) + 1
    chance = (np.log(count) + EULER + 0.5 / count) / count
    reciprocal = 1 / realistic_rank((rivals > own).sum(), (rivals == own).sum())
    return float(max(0.0, (reciprocal - chance) / (1 - chance)))
