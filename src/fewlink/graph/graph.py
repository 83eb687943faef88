"""A knowledge graph as arrays: every edge and its inverse, sorted, in a memory-mapped folder."""

from __future__ import annotations

import functools
import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.base.memo import Memo
from fewlink.base.storage import new_folder, open_folder
from fewlink.graph.csr import Groups, offsets_of, spans
from fewlink.graph.types import TypeTable
from fewlink.graph.vocabulary import Vocabulary

FORMAT = "fewlink-graph/1"
EDGE_ARRAYS = ("offsets", "relation_ids", "tail_ids", "positions")


@dataclass(frozen=True, eq=False)
class Graph(Memo):
    """Entities, relations and edges; relation r + R is the inverse of relation r.

    Shapes: `offsets` (entities + 1,) int64; `relation_ids`, `tail_ids`, `positions` (2 · triples,) int32, the edges of
    entity e at `offsets[e]:offsets[e+1]`, sorted by relation, then tail; `positions` is the triple's place in its file.
    """

    entities: Vocabulary
    relations: Vocabulary
    offsets: np.ndarray
    relation_ids: np.ndarray
    tail_ids: np.ndarray
    positions: np.ndarray
    types: TypeTable | None = None
    labels: Vocabulary | None = None  # readable names of the entities, then of the relations

    @classmethod
    def of(cls, entities: Vocabulary, relations: Vocabulary, triples: np.ndarray, **more: Any) -> Graph:
        """From triples (n, 3) of ids in file order; of repeated ones the first stays."""
        edges = _sorted_edges(np.asarray(triples, np.int32), len(entities), len(relations))
        return cls(entities, relations, *edges, **more)

    @property
    def triple_count(self) -> int:
        return len(self.tail_ids) // 2

    @functools.cached_property
    def degrees(self) -> np.ndarray:
        """Edges of each entity, inverse ones included: (entities,)."""
        return np.diff(self.offsets)

    def edges_of(self, entities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions of all edges of these entities and, for each, the index of its entity in the argument."""
        entities = np.asarray(entities)
        return spans(self.offsets[entities], self.offsets[entities + 1])

    @functools.cached_property
    def head_ids(self) -> np.ndarray:
        """The head of each edge: (2 · triples,) int32."""
        return np.repeat(np.arange(len(self.entities), dtype=np.int32), self.degrees)

    @functools.cached_property
    def slots(self) -> Groups:
        """The entities that have each relation, inverse ones included: 2R groups."""
        begins = np.ones(len(self.head_ids), bool)
        begins[1:] = (np.diff(self.head_ids) != 0) | (np.diff(self.relation_ids) != 0)
        first = np.flatnonzero(begins)
        return Groups.of(self.relation_ids[first], self.head_ids[first], 2 * len(self.relations))

    def triples(self) -> np.ndarray:
        """The triples (n, 3) as heads, relations, tails in file order."""
        forward = np.flatnonzero(self.relation_ids < len(self.relations))
        forward = forward[np.argsort(self.positions[forward], kind="stable")]
        return np.stack([self.head_ids[forward], self.relation_ids[forward], self.tail_ids[forward]], 1)

    def find_edges(self, heads: np.ndarray, relations: np.ndarray, tails: np.ndarray) -> np.ndarray:
        """The position of each edge (inverse relations allowed), or -1 where the graph has none."""
        heads, relations, tails = np.broadcast_arrays(heads, relations, tails)
        low, high = self.offsets[heads], self.offsets[heads + 1]
        ends = high
        for _ in range(int((high - low).max(initial=0)).bit_length()):  # one bisection for all edges together
            middle = np.minimum((low + high) // 2, max(len(self.tail_ids) - 1, 0))
            relation, tail = self.relation_ids[middle], self.tail_ids[middle]
            below = (low < high) & ((relation < relations) | ((relation == relations) & (tail < tails)))
            low, high = np.where(below, middle + 1, low), np.where(below | (low >= high), high, middle)
        at = np.minimum(low, max(len(self.tail_ids) - 1, 0))
        if not len(self.tail_ids):
            return np.full(heads.shape, -1, np.int64)
        found = (low < ends) & (self.relation_ids[at] == relations) & (self.tail_ids[at] == tails)
        return np.where(found, at, -1)

    def name(self, entity: int) -> str:
        """The readable name of an entity."""
        return _readable(self.labels[entity] if self.labels else self.entities[entity])

    def relation_name(self, relation: int) -> str:
        """The readable name of a relation; inverse ones have a mark."""
        forward, inverse = relation % len(self.relations), relation >= len(self.relations)
        label = self.labels[len(self.entities) + forward] if self.labels else self.relations[forward]
        return _readable(label) + ("⁻¹" if inverse else "")

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of the names and edges: two graphs with the same one are the same graph with the same ids."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update(np.ascontiguousarray(vocabulary.ends).data)
            digest.update(np.ascontiguousarray(vocabulary.text).data)
        for array in (self.offsets, self.relation_ids, self.tail_ids):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def save(self, folder: Path) -> Path:
        """Write the graph as a folder, whole or not at all."""
        facts = {"entities": len(self.entities), "relations": len(self.relations), "triples": self.triple_count}
        with new_folder(Path(folder), FORMAT, {**facts, "fingerprint": self.fingerprint}) as beside:
            for array in EDGE_ARRAYS:
                np.save(beside / f"{array}.npy", getattr(self, array), allow_pickle=False)
            self.entities.save(beside, "entities")
            self.relations.save(beside, "relations")
            if self.types:
                self.types.save(beside)
            if self.labels:
                self.labels.save(beside, "labels")
        return Path(folder)

    @classmethod
    def open(cls, folder: Path, verify: bool | None = None) -> Graph:
        """Open a compiled graph; its arrays are memory-mapped, so size costs nothing until it is used."""
        folder = Path(folder)
        manifest = open_folder(folder, FORMAT, verify)
        edges = {a: np.load(folder / f"{a}.npy", mmap_mode="r", allow_pickle=False) for a in EDGE_ARRAYS}
        labels = Vocabulary.open(folder, "labels") if (folder / "labels.text.npy").exists() else None
        entities, relations = Vocabulary.open(folder, "entities"), Vocabulary.open(folder, "relations")
        graph = cls(entities, relations, **edges, types=TypeTable.open(folder), labels=labels)
        graph.__dict__["fingerprint"] = manifest["fingerprint"]
        return graph


def _sorted_edges(
    triples: np.ndarray, entities: int, relations: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, relations, tails and positions of all edges: of each entity first the forward ones, then the inverse."""
    heads, middles, tails = triples.T
    with ThreadPoolExecutor(2) as pool:
        ways = pool.map(_order, *zip((heads, middles, tails), (tails, middles, heads), strict=True))
        (forward, repeated), (inverse, _) = ways
    if len(repeated):
        return _sorted_edges(np.delete(triples, repeated, axis=0), entities, relations)
    out, back = offsets_of(heads, entities), offsets_of(tails, entities)
    relation_ids, tail_ids, positions = (np.empty(2 * len(triples), np.int32) for _ in range(3))
    at = np.arange(len(triples)) + back[heads[forward]]  # behind what earlier entities have the other way round
    relation_ids[at], tail_ids[at], positions[at] = middles[forward], tails[forward], forward
    at = np.arange(len(triples)) + out[tails[inverse] + 1]
    relation_ids[at], tail_ids[at], positions[at] = middles[inverse] + np.int32(relations), heads[inverse], inverse
    return out + back, relation_ids, tail_ids, positions


def _order(first: np.ndarray, second: np.ndarray, third: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The stable order by three columns of ids, and the rows that repeat an earlier one."""
    sizes = [int(column.max(initial=0)) + 1 for column in (first, second, third)]
    if math.prod(sizes) < 2**63:  # one 64-bit key sorts in a third of the time
        keys = ((first.astype(np.int64) * sizes[1] + second) * sizes[2] + third)[None]
        order = np.argsort(keys[0], kind="stable")
    else:
        keys = np.stack([first, second, third])
        order = np.lexsort((third, second, first))
    ordered = keys[:, order]
    return order, order[1:][(ordered[:, 1:] == ordered[:, :-1]).all(0)]


def _readable(name: str) -> str:
    """A name as people write it: without `concept:type:` and underscores."""
    if name.startswith("concept:"):
        name = name.rsplit(":", 1)[-1]
    return name.replace("_", " ").strip() or name
