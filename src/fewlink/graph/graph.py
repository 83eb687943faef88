"""A knowledge graph as arrays that can be memory-mapped from a folder: sorted edges with their inverses, and types."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.errors import reading
from fewlink.core.files import new_folder, read_folder
from fewlink.core.memo import Memo
from fewlink.graph.counted import Counted, Edges, count, most_popular
from fewlink.graph.groups import Groups, offsets_of, spans
from fewlink.graph.name_index import NameIndex, Sorter, readable, write_index
from fewlink.graph.types import TypeTable
from fewlink.graph.vocabulary import Vocabulary, check_edges, check_mapped, expect_random_reads, load_array

FORMAT = "fewlink-graph/1"
EDGE_ARRAYS = ("offsets", "relation_ids", "tail_ids", "positions")
LARGE = 750_000  # triples above which a folder also stores what is counted of the graph, and the index of its names
INDEXES = ("index.names", "index.ids")
MANY_EDGES = 100_000  # of a component of a large graph; components with more are taken for one
FEW_EDGES = 1 << 12  # of an entity, up to which its relations are found by reading them all


@dataclass(frozen=True, eq=False)
class Graph(Memo):
    """Entities, relations and edges; relation r + R is the inverse of relation r.

    Shapes: `offsets` (entities + 1,) int64; `relation_ids`, `tail_ids`, `positions` (2 · triples,) int32, the edges of
    entity e at `offsets[e]:offsets[e+1]`, sorted by relation and tail; `positions` are the triples' places in the file.
    """

    entities: Vocabulary
    relations: Vocabulary
    offsets: np.ndarray
    relation_ids: np.ndarray
    tail_ids: np.ndarray
    positions: np.ndarray
    types: TypeTable | None = None
    labels: Vocabulary | None = None  # readable names of entities, then of relations
    counted: Counted | None = None  # if it was opened from the folder of a large graph
    index: tuple[NameIndex, NameIndex] | None = None  # of readable names, and of ids, likewise

    @classmethod
    def of(cls, entities: Vocabulary, relations: Vocabulary, triples: np.ndarray, **more: Any) -> Graph:
        """Make a graph from triples (n, 3) of ids in file order, leaving out repeated ones."""
        edges = _sorted_edges(np.asarray(triples, np.int32), len(entities), len(relations))
        return cls(entities, relations, *edges, **more)

    @property
    def triple_count(self) -> int:
        return len(self.tail_ids) // 2

    @functools.cached_property
    def degrees(self) -> np.ndarray:
        """The number of edges of each entity, inverse ones included: (entities,)."""
        return np.diff(self.offsets)

    def degrees_of(self, entities: np.ndarray | int, visible: np.ndarray | None = None) -> np.ndarray:
        """The number of edges of these entities (n,); unlike `degrees`, it reads nothing else.

        With `visible` (2R,), a bool for each relation and inverse, the edges of the others do not count. Of a large
        graph, only the entities that have such edges are read.
        """
        degrees = np.asarray(self.offsets[np.asarray(entities) + 1] - self.offsets[entities])
        if visible is None or visible.all():
            return degrees
        entities = np.asarray(entities)
        some = np.arange(len(entities)) if self.counted is None else self._having(entities, np.flatnonzero(~visible))
        _, counts, owners = self.slots_of(entities[some], visible)
        degrees[some] = np.bincount(owners, counts, len(some))
        return degrees

    def _having(self, entities: np.ndarray, relations: np.ndarray) -> np.ndarray:
        """The places of the entities (n,) that have one of these relations."""
        found = np.zeros(len(entities), bool)
        for relation in relations.tolist():
            owners = self.slots[relation]  # sorted
            wanted = entities.astype(owners.dtype)  # of another dtype, all owners would be copied
            at = np.searchsorted(owners, wanted)
            found[at < len(owners)] |= owners[at[at < len(owners)]] == wanted[at < len(owners)]
        return np.flatnonzero(found)

    @functools.cached_property
    def popular(self) -> np.ndarray:
        """The entities with most edges, sorted."""
        return self.counted.popular if self.counted else most_popular(self.offsets)

    def edges_of(self, entities: np.ndarray, visible: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The indices of all edges of these entities and, for each, the index of its entity in the argument.

        With `visible` (2R,), a bool for each relation and inverse, the edges of the others are left out.
        """
        entities = np.asarray(entities)
        if visible is not None and not visible.all():
            firsts, counts, owners = self.slots_of(entities, visible)
            at, slots = spans(firsts, firsts + counts)
            return at, owners[slots]
        return spans(self.offsets[entities], self.offsets[entities + 1])

    def between(self, head: int, tail: int, visible: np.ndarray | None = None) -> np.ndarray:
        """The relations, as they are and as inverses, of the edges from one entity to another."""
        at, _ = self.edges_of(np.array([head]), visible)
        return np.unique(self.relation_ids[at[self.tail_ids[at] == tail]])

    def joined(self, references: np.ndarray, heads: np.ndarray, visible: np.ndarray | None = None) -> np.ndarray:
        """Whether a path joins each head (n,) to an end of a reference (K, 2); references are edges of such paths.

        With `visible` (2R,), a bool for each relation and inverse, paths have edges of visible ones only.

        Not all edges of a large graph are read. There, components with over `MANY_EDGES` edges are taken for one.
        """
        if self.counted is None:
            reached = np.zeros(len(self.entities), bool)
            all_visible = visible is None or bool(visible.all())
            components = self.components if all_visible else self._components(visible)
            reached[components[references]] = True  # by the number of a component, which is an entity of it
            return np.asarray(reached[components[heads]])
        ends = np.unique(references)
        large = any(self._component(end, visible) is None for end in ends.tolist())
        found = {}
        for head in np.unique(heads).tolist():
            own = self._component(head, visible)
            found[head] = large if own is None else bool(np.isin(ends, own).any())
        return np.array([found[head] for head in heads.tolist()], bool)

    @functools.cached_property
    def components(self) -> np.ndarray:
        """The lowest entity (entities,) that a path joins each entity to."""
        return self._components(None)

    def _components(self, visible: np.ndarray | None) -> np.ndarray:
        heads = self.head_ids
        tails = self.tail_ids
        if visible is not None:
            kept = visible[self.relation_ids]
            heads = heads[kept]
            tails = tails[kept]
        lowest = np.arange(len(self.entities))
        begins = np.flatnonzero(np.diff(heads, prepend=-1))
        has_edges = heads[begins]
        while len(has_edges):
            before = lowest.copy()
            lowest[has_edges] = np.minimum(before[has_edges], np.minimum.reduceat(before[tails], begins))
            lowest = lowest[lowest]
            if np.array_equal(lowest, before):
                break
        return lowest

    def _component(self, entity: int, visible: np.ndarray | None) -> np.ndarray | None:
        """The entities that a path joins to one, sorted; None if they have over `MANY_EDGES` edges."""
        reached = new = np.array([entity])
        left = MANY_EDGES
        while len(new):
            left -= int(self.degrees_of(new, visible).sum())
            if left < 0:
                return None
            new = np.setdiff1d(self.tail_ids[self.edges_of(new, visible)[0]], reached)
            reached = np.union1d(reached, new)
        return reached

    def slots_of(
        self, entities: np.ndarray, visible: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The distinct relations of these entities, one entity after the other: the first edge of each, their number,
        and the index of the entity in the argument; (n,) each. Of an entity with many edges, few are read.

        With `visible` (2R,), a bool for each relation and inverse, the others are left out.
        """
        entities = np.asarray(entities)
        degrees = self.degrees_of(entities)
        few = np.flatnonzero(degrees <= FEW_EDGES)
        edges, of_edges = self.edges_of(entities[few])
        relations = self.relation_ids[edges]
        begins = np.ones(len(edges), bool)
        begins[1:] = (of_edges[1:] != of_edges[:-1]) | (relations[1:] != relations[:-1])
        at = np.flatnonzero(begins)
        firsts = [edges[at]]
        counts = [np.diff(at, append=len(edges))]
        owners = [few[of_edges[at]]]
        for place in np.flatnonzero(degrees > FEW_EDGES).tolist():
            own = self._runs(int(self.offsets[entities[place]]), int(self.offsets[entities[place] + 1]))
            firsts.append(own[:-1])
            counts.append(np.diff(own))
            owners.append(np.full(len(own) - 1, place))
        first, count, owner = (np.concatenate(columns) for columns in (firsts, counts, owners))
        order = np.argsort(owner, kind="stable")
        if visible is not None:
            order = order[visible[self.relation_ids[first[order]]]]
        return first[order], count[order], owner[order]

    def _runs(self, begin: int, end: int) -> np.ndarray:
        """Where the edges of each relation begin among those of an entity from `begin` to `end`, and the end."""
        relations = self.relation_ids[begin:end]
        runs = [0]
        while runs[-1] < len(relations):
            runs.append(int(np.searchsorted(relations, relations[runs[-1]], "right")))
        return begin + np.array(runs)

    def edges_with(self, relation: int) -> np.ndarray:
        """The edges of a relation, in order."""
        if self.counted is None:
            return np.flatnonzero(self.relation_ids == relation)
        firsts, counts, _ = self.slots_of(self.slots[relation])
        chosen = self.relation_ids[firsts] == relation
        return spans(firsts[chosen], firsts[chosen] + counts[chosen])[0]

    def heads_of(self, edges: np.ndarray) -> np.ndarray:
        """The head of each of these edges (n,) int32."""
        return (np.searchsorted(self.offsets, edges, "right") - 1).astype(np.int32)

    @functools.cached_property
    def relation_sizes(self) -> np.ndarray:
        """The number of edges of each relation, inverse ones included: (2R,)."""
        if self.counted:
            return self.counted.sizes
        return np.bincount(self.relation_ids, minlength=2 * len(self.relations))

    @functools.cached_property
    def head_ids(self) -> np.ndarray:
        """The head of each edge: (2 · triples,) int32."""
        return np.repeat(np.arange(len(self.entities), dtype=np.int32), self.degrees)

    @functools.cached_property
    def slot_starts(self) -> np.ndarray:
        """The first edge of each entity with each of its relations."""
        begins = np.ones(len(self.head_ids), bool)
        begins[1:] = (np.diff(self.head_ids) != 0) | (np.diff(self.relation_ids) != 0)
        return np.flatnonzero(begins)

    @functools.cached_property
    def slots(self) -> Groups:
        """The entities that have each relation, inverse ones included: 2R groups."""
        if self.counted:
            return self.counted.slots
        first = self.slot_starts
        return Groups.of(self.relation_ids[first], self.head_ids[first], 2 * len(self.relations))

    def triples(self) -> np.ndarray:
        """The triples (n, 3) of heads, relations and tails in file order. Computed once: do not change the array."""
        return self.once(_triples)

    def with_relations(self, names: Sequence[str], triples: np.ndarray) -> Graph:
        """The graph with new relations, whose ids follow the old ones, and their triples (n, 3)."""
        return Graph.of(
            self.entities,
            Vocabulary.of([*self.relations, *names]),
            np.concatenate([self.triples(), triples]),
            types=self.types,
            labels=Vocabulary.of([*self.labels, *names]) if self.labels else None,
        )

    def without(self, relations: np.ndarray) -> Graph:
        """The graph without the triples of these relations. All ids stay the same."""
        kept = ~np.isin(self.relation_ids, np.concatenate([relations, relations + len(self.relations)]))
        kept_triples = np.zeros(self.triple_count, bool)
        kept_triples[self.positions[kept]] = True
        return dataclasses.replace(
            self,
            offsets=np.append(0, np.cumsum(kept))[self.offsets],
            relation_ids=self.relation_ids[kept],
            tail_ids=self.tail_ids[kept],
            positions=(np.cumsum(kept_triples, dtype=np.int32) - 1)[self.positions[kept]],
            counted=None,
        )

    def renumbered(self, entities: np.ndarray, relations: np.ndarray) -> Graph:
        """The graph of these entities and relations, in ascending order; no triple may contain any other."""
        kept = (entities, relations, entities)
        columns = [np.searchsorted(ids, column) for ids, column in zip(kept, self.triples().T, strict=True)]
        return Graph.of(
            self.entities.take(entities),
            self.relations.take(relations),
            np.stack(columns, 1),
            types=self.types.take(entities) if self.types else None,
            labels=self.labels.take(np.append(entities, len(self.entities) + relations)) if self.labels else None,
        )

    def name(self, entity: int) -> str:
        """The readable name of an entity."""
        text = self.labels[entity] if self.labels else self.entities[entity]
        return readable(text) or text

    def relation_name(self, relation: int) -> str:
        """The readable name of a relation; the name of an inverse ends in ⁻¹."""
        forward = relation % len(self.relations)
        inverse = relation >= len(self.relations)
        label = self.labels[len(self.entities) + forward] if self.labels else self.relations[forward]
        return (readable(label) or label) + ("⁻¹" if inverse else "")

    @functools.cached_property
    def fingerprint(self) -> str:
        """The sha256 of names and edges. Graphs with the same fingerprint are equal, ids included."""
        digest = hashlib.sha256()
        names = [array for names in (self.entities, self.relations) for array in (names.ends, names.text)]
        for array in (*names, self.offsets, self.relation_ids, self.tail_ids):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def save(self, folder: Path, large: int = LARGE) -> Path:
        """Write the graph to a folder, atomically; with more than `large` triples, what is counted of it as well."""
        with new_folder(Path(folder), FORMAT, self.facts) as draft:
            for array in EDGE_ARRAYS:
                np.save(draft / f"{array}.npy", getattr(self, array), allow_pickle=False)
            self.entities.save(draft, "entities")
            self.relations.save(draft, "relations")
            if self.types:
                self.types.save(draft)
            if self.labels:
                self.labels.save(draft, "labels")
            if self.triple_count > large:
                self.write_counted(draft)
                self.write_indexes(draft)
                if self.types:
                    self.types.save_groups(draft)
        return Path(folder)

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest of a folder says about the graph."""
        facts = {"entities": len(self.entities), "relations": len(self.relations), "triples": self.triple_count}
        return {**facts, "fingerprint": self.fingerprint}

    def write_counted(self, folder: Path, **limits: int) -> None:
        """Write what is counted of the graph to a folder; the limits are those of `count`."""
        count(Edges(self.offsets, self.relation_ids, self.positions, len(self.relations)), folder, **limits)

    def write_indexes(self, folder: Path, sorter: Sorter | None = None) -> None:
        """Write the indexes of readable names and of ids to a folder."""
        names = self.labels or self.entities
        count = len(self.entities)
        write_index(names, count, folder, INDEXES[0], words=True, sorter=sorter)
        write_index(self.entities, count, folder, INDEXES[1], words=False, sorter=sorter)

    @classmethod
    def open(cls, folder: Path) -> Graph:
        """Open a compiled graph; its large arrays are memory-mapped and read when used."""
        return read_folder(folder, FORMAT, cls._load)

    def check_files(self) -> None:
        """Raise if a file that is memory-mapped was cut off since the graph was opened."""
        check_mapped(*self._stored(), *((self.counted.together,) if self.counted is not None else ()))

    def expect_questions(self) -> None:
        """Prepare what is memory-mapped for reading a little here and there, and not everything in order."""
        expect_random_reads(*self._stored())

    def _stored(self) -> Iterator[np.ndarray]:
        """The arrays that a folder of the graph has, but for the one that a question reads as a whole."""
        yield from (getattr(self, array) for array in EDGE_ARRAYS)
        for names in (self.entities, self.relations, self.labels, self.types.names if self.types else None):
            if names is not None:
                yield from (getattr(names, array) for array in Vocabulary.ARRAYS)
        if self.types is not None:
            yield from (self.types.offsets, self.types.types)
        if self.counted is not None:
            yield from (each for name, each in vars(self.counted).items() if name != "together")
        for index in self.index or ():
            yield from (getattr(index, array) for array in NameIndex.ARRAYS)

    @classmethod
    def _load(cls, folder: Path, manifest: dict[str, Any]) -> Graph:
        with reading(folder, "make the folder again"):
            edges = {array: load_array(folder / f"{array}.npy") for array in EDGE_ARRAYS}
            labels = Vocabulary.open(folder, "labels") if "labels.text.npy" in manifest["files"] else None
            entities = Vocabulary.open(folder, "entities")
            relations = Vocabulary.open(folder, "relations")
            types = TypeTable.open(folder, len(entities)) if "types.offsets.npy" in manifest["files"] else None
            check_edges(edges, len(entities), len(relations), labels)
            counted = None
            index = None
            if "counted.fans.npy" in manifest["files"]:
                counted = Counted.open(folder, len(entities), len(relations), len(edges["tail_ids"]))
                index = (NameIndex.open(folder, INDEXES[0]), NameIndex.open(folder, INDEXES[1]))
            graph = cls(entities, relations, **edges, types=types, labels=labels, counted=counted, index=index)
            graph.__dict__["fingerprint"] = str(manifest["fingerprint"])
        return graph


def _triples(graph: Graph) -> np.ndarray:
    forward = np.flatnonzero(graph.relation_ids < len(graph.relations))
    in_file_order = np.empty_like(forward)
    in_file_order[graph.positions[forward]] = forward
    return np.stack([ids[in_file_order] for ids in (graph.head_ids, graph.relation_ids, graph.tail_ids)], 1)


def _sorted_edges(
    triples: np.ndarray, entities: int, relations: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The offsets, relations, tails and positions of all edges; an entity's forward edges precede its inverse ones."""
    heads, middles, tails = triples.T
    with ThreadPoolExecutor(2) as pool:
        (forward, repeated), (inverse, _) = pool.map(_order, (heads, tails), (middles, middles), (tails, heads))
    if len(repeated):
        return _sorted_edges(np.delete(triples, repeated, axis=0), entities, relations)
    out = offsets_of(heads, entities)
    back = offsets_of(tails, entities)
    relation_ids, tail_ids, positions = (np.empty(2 * len(triples), np.int32) for _ in range(3))
    at = np.arange(len(triples)) + back[heads[forward]]  # after the inverse edges of earlier entities
    relation_ids[at] = middles[forward]
    tail_ids[at] = tails[forward]
    positions[at] = forward
    at = np.arange(len(triples)) + out[tails[inverse] + 1]
    relation_ids[at] = middles[inverse] + np.int32(relations)
    tail_ids[at] = heads[inverse]
    positions[at] = inverse
    return out + back, relation_ids, tail_ids, positions


def _order(first: np.ndarray, second: np.ndarray, third: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The stable sort order by three columns of ids, and the rows that repeat an earlier one."""
    sizes = [int(column.max(initial=0)) + 1 for column in (first, second, third)]
    if math.prod(sizes) < 2**63:  # sorting one 64-bit key takes a third of the time
        keys = ((first.astype(np.int64) * sizes[1] + second) * sizes[2] + third)[None]
        order = np.argsort(keys[0], kind="stable")
    else:
        keys = np.stack([first, second, third])
        order = np.lexsort((third, second, first))
    ordered = keys[:, order]
    return order, order[1:][(ordered[:, 1:] == ordered[:, :-1]).all(0)]
