"""How long the parts of a request take (new references, heads, trust, reasons), from the times of earlier ones."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from fewlink.linker import Linker
from fewlink.linker.query import References
from fewlink.scorers import capabilities
from fewlink.server.cost import CostModel

RECENT = 16  # sets of references that scorers remember
TRIED = 3  # references that are held out to measure trust
EDGE, PAIR = 2e-7, 2e-8  # seconds until times are known: of an edge that is read, and of a candidate and a reference
NAME, ENTITY = 2e-5, 1e-6  # likewise: of a name that is found, and of an entity that is compared
LIKENESS = "likeness"  # a kind of preparation
FIRST = 8  # heads that are ranked together before their cost is known
MOST_EDGES = 1_500_000  # that are read for one head


class Estimates:
    """Seconds of work on one linker. Thread-safe.

    The size of a ranking is the number of candidates times that of the references, rejected pairs included. What
    follows from references is computed once and then remembered for a while: it is a cost of its own.
    """

    def __init__(self, linker: Linker) -> None:
        self.linker, self.costs = linker, CostModel()
        self._recent: OrderedDict[Hashable, None] = OrderedDict()
        self._lock = threading.Lock()

    def size(self, references: References, candidates: int) -> int:
        """The size of a ranking of so many candidates."""
        return candidates * (self._read(references) + len(references.rejected) + 1)

    def head(self, size: int) -> float:
        """Ranking the candidates of one head."""
        edges = min(2 * self.linker.graph.triple_count, MOST_EDGES)
        return self.costs.unit("head", size, EDGE * edges + PAIR * size)

    def heads_in(self, seconds: float, size: int, most: int) -> int:
        """How many heads can be ranked in so many seconds: at least one, and few as long as nothing was measured."""
        most = most if self.costs.knows("head") else min(most, FIRST)
        return max(1, min(most, int(seconds / max(self.head(size), 1e-9))))

    def references(self, references: References) -> float:
        """Reading references, if they are new."""
        return 0.0 if self.is_recent(("rank", references.pairs)) else self._reading(references)

    def trust(self, references: References, size: int) -> float:
        """Holding out references, if they are new."""
        if self.linker.calibration is None or self.is_recent(("trust", references.pairs)):
            return 0.0
        tried = min(len(references.pairs), TRIED)
        return self.costs.unit("trust", size, tried * (self._reading(references) + self.head(size)))

    def explanation(self, references: References, rows: int = 1, *, shared: bool = False) -> float:
        """Explaining so many pairs: the first one leaves out each reference in turn, unless `shared` with another."""
        read = self._read(references)
        known = shared or self.is_recent(("explain", references.pairs))
        first = 0.0 if known else read * self._reading(references)
        one = self.costs.unit("explain", read, 5 * self.head(self.size(references, 1)))
        return self.costs.unit("first explanation", read, first) * bool(first) + rows * one

    def preparation(self, kind: str, names: int, key: Hashable = None) -> float:
        """What precedes the answer: finding so many names and, for `likeness`, ordering all entities by likeness.

        `key` says what is remembered for a while: it takes nothing again.
        """
        if key is not None and self.is_recent(("prepare", kind, key)):
            return 0.0
        first = NAME * names + (ENTITY * len(self.linker.graph.entities) if kind == LIKENESS else 0.0)
        return self.costs.unit(f"prepare {kind}", names, first)

    def observe_preparation(self, kind: str, names: int, key: Hashable, seconds: float) -> None:
        if key is None or not self.is_recent(("prepare", kind, key), use=True):
            self.costs.observe(f"prepare {kind}", names, 1, seconds)

    def observe_ranking(self, references: References, size: int, heads: int, seconds: float) -> None:
        """So many heads were ranked; with new references, what is more than usual is for these."""
        if self.is_recent(("rank", references.pairs), use=True):
            self.costs.observe("head", size, heads, seconds)
        else:
            self.costs.observe("references", self._read(references), 1, seconds - heads * self.head(size))

    def observe_trust(self, references: References, size: int, seconds: float) -> None:
        if not self.is_recent(("trust", references.pairs), use=True):
            self.costs.observe("trust", size, 1, seconds)

    def observe_explanation(self, references: References, seconds: float) -> None:
        read = self._read(references)
        if self.is_recent(("explain", references.pairs), use=True):
            self.costs.observe("explain", read, 1, seconds)
        else:
            self.costs.observe("first explanation", read, 1, seconds)

    def is_recent(self, key: Hashable, use: bool = False) -> bool:
        """Whether something was used recently; with `use`, it is used again."""
        with self._lock:
            known = key in self._recent
            if use:
                self._recent[key] = None
                self._recent.move_to_end(key)
                while len(self._recent) > 3 * RECENT:
                    self._recent.popitem(last=False)
            return known

    def _read(self, references: References) -> int:
        """How many references the scorer reads."""
        return capabilities(self.linker.scorer).references_read(len(references.pairs))

    def _reading(self, references: References) -> float:
        edges = min(2 * self.linker.graph.triple_count, MOST_EDGES)
        return self.costs.unit("references", self._read(references), 4 * EDGE * edges)
