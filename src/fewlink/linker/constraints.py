"""What is known of a relation beyond its pairs: whether a head has one tail, pairs hold both ways, and so on.

Constraints rule out tails; they never change a score. By default only one is used: a head is not its own tail, unless a
reference says so. Others are given by name, or read off the known pairs with "auto".
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fewlink.core.errors import FewlinkError, choose
from fewlink.graph import Graph
from fewlink.linker.names import Names
from fewlink.linker.query import References

if TYPE_CHECKING:
    from fewlink.linker.ranking import RankedPairs

KINDS = {
    "irreflexive": "a head is not its own tail",
    "functional": "a head has at most one tail",
    "inverse-functional": "a tail has at most one head",
    "symmetric": "pairs hold both ways",
    "types": "tails have a type that all tails of the references have",
}
MIRRORED = {"functional": "inverse-functional", "inverse-functional": "functional"}  # read from tail to head
WORDS = {"auto": "read off the known pairs", "none": "no constraint"}
MIN_PAIRS_FOR_AUTO = 10  # known pairs from which "auto" infers constraints other than irreflexive
ConstraintChoice = str | Iterable[str] | None


def check_kinds(choice: ConstraintChoice) -> tuple[str, ...]:
    """The names of a choice; raises for an unknown one, and for "none" beside others."""
    kinds = (choice,) if isinstance(choice, str) else tuple(choice or ())
    for kind in kinds:
        choose("constraint", kind, {**KINDS, **WORDS})
    if "none" in kinds and len(set(kinds)) > 1:
        raise FewlinkError("constraint 'none' excludes all others: leave it out, or give no other")
    return kinds


@dataclass(frozen=True)
class Constraints:
    """The constraints of one query. `read` are those read off the known pairs, `given` those that the user named;
    `too_few`: whether more would have been read off if more pairs were known."""

    graph: Graph
    references: References
    read: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()
    too_few: bool = False

    @classmethod
    def of(cls, choice: ConstraintChoice, graph: Graph, references: References) -> Constraints:
        """None: irreflexive if no known pair is reflexive; "none": none; "auto": all that the known pairs keep to.

        Names of constraints are used besides irreflexive; raises if a known pair contradicts one of them.
        """
        kinds = check_kinds(choice)
        every = cls(graph, references)
        if kinds == ("none",):
            return every
        given = frozenset(every.mirrored(kind) for kind in kinds) & frozenset(KINDS)
        for kind in sorted(given):
            if problem := every._problem(kind):
                named = every.mirrored(kind)
                raise FewlinkError(f"constraint '{named}' ({every.words(named)}) does not hold here: {problem}")
        enough = "auto" in kinds and len(every.known) >= MIN_PAIRS_FOR_AUTO
        wanted = KINDS if enough else ["irreflexive"]
        read = frozenset(kind for kind in wanted if kind not in given and every._holds(kind))
        return cls(graph, references, read, given, too_few="auto" in kinds and not enough)

    def mirrored(self, kind: str) -> str:
        """The kind as the user names it, and back: another one for some kinds if heads are asked for."""
        return MIRRORED.get(kind, kind) if self.references.inverse else kind

    def words(self, kind: str) -> str:
        """What a kind, as the user names it, says."""
        return KINDS[kind].replace("tails", "heads") if kind == "types" and self.references.inverse else KINDS[kind]

    @property
    def kinds(self) -> frozenset[str]:
        return self.read | self.given

    @functools.cached_property
    def known(self) -> np.ndarray:
        """The distinct known pairs (n, 2): the references and the pairs of the named relation."""
        relation, pairs = self.references.relation, self.references.ids
        return np.unique(pairs if relation is None else np.concatenate([pairs, relation.pairs()]), axis=0)

    def _problem(self, kind: str) -> str:
        """Why the known pairs do not keep to a constraint; empty if they do."""
        heads, tails = self.known.T
        names = Names(self.graph)
        if kind == "irreflexive" and (heads == tails).any():
            return f"{names.quoted(int(heads[heads == tails][0]))} is its own tail"
        for one, column, others, what in (
            ("functional", heads, tails, "tails"),
            ("inverse-functional", tails, heads, "heads"),
        ):
            values, counts = np.unique(column, return_counts=True)
            if kind == one and (counts > 1).any():
                several = int(values[counts > 1][0])
                first, second = others[column == several][:2].tolist()
                what = {"heads": "tails", "tails": "heads"}[what] if self.references.inverse else what
                return f"{names.quoted(several)} has the {what} {names.quoted(first)} and {names.quoted(second)}"
        if kind == "types" and not len(self._typed):
            return (
                "the graph has no types" if self.graph.types is None else f"the references' {self._end}s share no type"
            )
        return ""

    def _holds(self, kind: str) -> bool:
        """Whether all known pairs keep to a constraint."""
        if kind == "symmetric":
            return {(h, t) for h, t in self.known.tolist()} == {(t, h) for h, t in self.known.tolist()}
        return not self._problem(kind) and (kind != "types" or bool(np.isin(self.known[:, 1], self._typed).all()))

    @functools.cached_property
    def _typed(self) -> np.ndarray:
        """The entities that have a type which all tails of the references have: (n,), sorted."""
        types, tails = self.graph.types, np.unique(self.references.ids[:, 1])
        if types is None:
            return np.zeros(0, np.int32)
        shared = set(types.of_entities(tails[:1]).tolist())
        for tail in tails[1:]:
            shared &= set(types.of_entities(np.array([tail])).tolist())
        return types.members(np.array(sorted(shared), np.int64))

    @property
    def _end(self) -> str:
        """The end of a pair that is asked for."""
        return "head" if self.references.inverse else "tail"

    def open_heads(self, heads: np.ndarray) -> np.ndarray:
        """Those of the heads (h,) that may have another tail."""
        return heads[~np.isin(heads, self.known[:, 0])] if "functional" in self.kinds else heads

    def allowed(self, head: int, candidates: np.ndarray) -> np.ndarray:
        """Whether each candidate (c,) may be a tail of a head: (c,) bool. Its known tails may, rejected ones not."""
        kinds, (heads, tails) = self.kinds, self.known.T
        may = np.ones(len(candidates), bool)
        if "irreflexive" in kinds:
            may &= candidates != head
        if "functional" in kinds and (heads == head).any():
            may[:] = False
        if "inverse-functional" in kinds:
            may &= ~np.isin(candidates, tails)
        if "symmetric" in kinds:
            may &= ~np.isin(candidates, heads[tails == head])
        if "types" in kinds:
            may &= np.isin(candidates, self._typed)
        may |= np.isin(candidates, tails[heads == head])
        return np.asarray(may & self.references.may_be_tails(head, candidates))

    @property
    def between_pairs(self) -> bool:
        """Whether one predicted pair can rule out another."""
        return bool(self.kinds & {"functional", "inverse-functional", "symmetric"})

    def settle(self, pairs: RankedPairs, key: np.ndarray, k: int, overall: bool) -> RankedPairs:
        """Ranked pairs without those that better ones rule out, in the same order; `key` (n,): better is larger.

        Pairs are chosen one by one, the best first. If `overall`, the result are the chosen pairs; else each head keeps
        its list, without tails that are chosen for another head. At most k pairs, or k of each head, are left.
        """
        kinds = self.kinds
        heads, tails = pairs.heads.tolist(), pairs.tails.tolist()
        by_head: dict[int, int] = {}
        by_tail: dict[int, int] = {}
        chosen: set[tuple[int, int]] = set()
        kept = np.zeros(len(pairs), bool)
        one_tail, one_head = "functional" in kinds or not overall, "inverse-functional" in kinds
        for place in np.argsort(-key, kind="stable").tolist():
            head, tail = heads[place], tails[place]
            if pairs.known[place]:
                kept[place] = True
                continue
            twice = "symmetric" in kinds and overall and (tail, head) in chosen
            if (one_tail and head in by_head) or (one_head and tail in by_tail) or twice:
                continue
            by_head[head], by_tail[tail], kept[place] = tail, head, True
            chosen.add((head, tail))
        if not overall:
            free = [not one_head or by_tail.get(t, h) == h for h, t in zip(heads, tails, strict=True)]
            kept |= np.array(free, bool)
        places = np.flatnonzero(kept)
        if overall:
            return pairs.take(places[:k])
        owners = pairs.heads[places]
        begins = np.flatnonzero(np.diff(owners, prepend=-1))  # the rows of a head are consecutive
        within = np.arange(len(owners)) - np.repeat(begins, np.diff(begins, append=len(owners)))
        return pairs.take(places[within < k])

    def notes(self, heads: np.ndarray, candidates: np.ndarray) -> list[str]:
        """Notes for the author of the query: the constraints that were used, and heads that were skipped."""
        read = self.read if np.isin(heads, candidates).any() else self.read - {"irreflexive"}
        source = "references" if self.references.relation is None else "known pairs"
        parts = [
            f"{self.words(kind)} ({kind}, {'given' if self.mirrored(kind) in self.given else f'read off the {source}'})"
            for kind in KINDS
            if self.mirrored(kind) in self.given | read
        ]
        notes = [f"constraints: {'; '.join(parts)}"] if parts else []
        if self.too_few:
            notes.append(
                f"auto infers constraints from {MIN_PAIRS_FOR_AUTO} known pairs or more: {len(self.known)} are known"
            )
        closed = np.setdiff1d(heads, self.open_heads(heads))
        if len(closed):
            names = Names(self.graph)
            shown = ", ".join(names.quoted(int(head)) for head in closed[:3]) + (", …" if len(closed) > 3 else "")
            notes.append(f"skipped, because a {self._end} is known already: {shown}")
        return notes
