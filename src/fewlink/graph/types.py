"""The types of entities: from a file, from their names, from rdf:type, or from STIX."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fewlink.core.threads import distinct
from fewlink.graph.groups import Groups, offsets_of, spans
from fewlink.graph.side_files import read_pairs_table
from fewlink.graph.vocabulary import Interner, Vocabulary, check_ids, check_offsets, load_array

CONVENTION_SHARE = 0.9  # names follow the convention if this share of them is concept:TYPE:name
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
VOCABULARIES = (
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "http://www.w3.org/2000/01/rdf-schema#",
    "http://www.w3.org/2002/07/owl#",
    "http://www.w3.org/2004/02/skos/core#",
)


class TypeTable:
    """The types of each entity: those of entity e are `types[offsets[e]:offsets[e+1]]`."""

    def __init__(self, names: Vocabulary, offsets: np.ndarray, types: np.ndarray) -> None:
        self.names = names
        self.offsets = offsets
        self.types = types

    @classmethod
    def of(cls, names: Iterable[bytes], entities: np.ndarray, types: np.ndarray, count: int) -> TypeTable:
        """Make a table from entries (entity, type), for `count` entities; repeated entries count once."""
        entries = np.unique(np.stack([entities, types], 1).astype(np.int32), axis=0)
        return cls(Vocabulary.of(names), offsets_of(entries[:, 0], count), np.ascontiguousarray(entries[:, 1]))

    def of_entities(self, entities: np.ndarray) -> np.ndarray:
        """The distinct types of these entities."""
        return np.unique(self.all_of(entities))

    def all_of(self, entities: np.ndarray) -> np.ndarray:
        """The types of these entities, one entity after the other."""
        at, _ = spans(self.offsets[entities], self.offsets[np.asarray(entities) + 1])
        return np.asarray(self.types[at])

    def typed(self, entities: np.ndarray) -> np.ndarray:
        """Whether each of these entities has a type."""
        return np.asarray(self.offsets[entities + 1] > self.offsets[entities])

    @functools.cached_property
    def groups(self) -> Groups:
        """The entities of each type."""
        owners = np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), np.diff(self.offsets))
        return Groups.of(self.types, owners, len(self.names))

    def members(self, types: np.ndarray) -> np.ndarray:
        """The entities that have any of these types, sorted."""
        return distinct(np.concatenate([np.zeros(0, np.int32), *(self.groups[kind] for kind in types)]))

    def take(self, entities: np.ndarray) -> TypeTable:
        """The same types for these entities, renumbered in this order."""
        at, owners = spans(self.offsets[entities], self.offsets[entities + 1])
        return TypeTable(self.names, offsets_of(owners, len(entities)), np.ascontiguousarray(self.types[at]))

    def save(self, folder: Path) -> None:
        self.names.save(folder, "types")
        np.save(folder / "types.offsets.npy", self.offsets, allow_pickle=False)
        np.save(folder / "types.members.npy", self.types, allow_pickle=False)

    def save_groups(self, folder: Path) -> None:
        """Write the entities of each type, too, so that they need not be found again."""
        np.save(folder / "types.groups.offsets.npy", self.groups.offsets, allow_pickle=False)
        np.save(folder / "types.groups.members.npy", self.groups.members, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path, entities: int) -> TypeTable:
        names = Vocabulary.open(folder, "types")
        offsets = load_array(folder / "types.offsets.npy")
        members = load_array(folder / "types.members.npy")
        check_offsets(offsets, len(members), "types", entities + 1)
        check_ids(members, len(names), "types")
        table = cls(names, offsets, members)
        if (folder / "types.groups.offsets.npy").exists():
            groups = Groups(*(load_array(folder / f"types.groups.{array}.npy") for array in ("offsets", "members")))
            check_offsets(groups.offsets, len(groups.members), "types", len(names) + 1)
            check_ids(groups.members, entities, "types")
            table.groups = groups
        return table


def types_from_file(path: Path, entities: Vocabulary) -> TypeTable:
    """Read types from rows `entity<TAB>type[<TAB>readable type]`, skipping entities that are not in the graph."""
    rows = ((entities.find(row[0]), row[2] if len(row) > 2 and row[2] else row[1]) for row in read_pairs_table(path))
    return _table(((entity, kind) for entity, kind in rows if entity is not None), len(entities))


def types_from_names(entities: Vocabulary) -> TypeTable | None:
    """Types by the convention `concept:TYPE:name`; None unless nearly all names follow it."""
    sample = [entities[i] for i in range(0, len(entities), max(1, len(entities) // 1000))]
    if not sample or sum(_type_in(n) is not None for n in sample) < CONVENTION_SHARE * len(sample):
        return None
    kinds = enumerate(map(_type_in, entities))
    return _table(((entity, kind) for entity, kind in kinds if kind is not None), len(entities))


def _table(pairs: Iterable[tuple[int, str]], count: int) -> TypeTable:
    """Make a table from pairs (entity, type), for `count` entities."""
    names = Interner()
    owners = []
    types = []
    for entity, kind in pairs:
        owners.append(entity)
        types.append(names[kind.encode()])
    return TypeTable.of(names, np.array(owners, np.int32), np.array(types, np.int32), count)


def _type_in(name: str) -> str | None:
    parts = name.split(":", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "concept" and all(parts) else None


def types_from_triples(
    entities: Vocabulary, relations: Vocabulary, triples: np.ndarray, labels: Vocabulary | None
) -> TypeTable | None:
    """The types that triples (n, 3) with rdf:type state, by the names of their classes; None if there are none.

    Classes of RDF's own vocabularies (owl:Thing, skos:Concept, …) are ignored: they do not say what an entity is.
    """
    relation = relations.find(RDF_TYPE)
    if relation is None:
        return None
    rows = triples[triples[:, 1] == relation]
    classes, places = np.unique(rows[:, 2], return_inverse=True)
    found = class_names(entities, labels, classes)
    if found is None:
        return None
    names, numbers, kept = found
    chosen = kept[places]
    return TypeTable.of(names, rows[chosen, 0], numbers[places[chosen]], len(entities))


def class_names(
    entities: Vocabulary, labels: Vocabulary | None, classes: np.ndarray
) -> tuple[Interner, np.ndarray, np.ndarray] | None:
    """The names of types, the number of each class (n,), and whether it says what an entity is (n,); None if none does.

    Classes that share a readable name keep their ids.
    """
    ids = [entities[kind] for kind in classes.tolist()]
    kept = np.array([not name.startswith(VOCABULARIES) for name in ids], bool)
    if not kept.any():
        return None
    short = [labels[kind] for kind in classes.tolist()] if labels is not None else ids
    uses = Counter(short)
    interner = Interner()
    numbers = [interner[(text if uses[text] == 1 else name).encode()] for text, name in zip(short, ids, strict=True)]
    return interner, np.array(numbers, np.int32), kept


def described_types(entities: Vocabulary, descriptions: Mapping[bytes, tuple[bytes, bytes]]) -> TypeTable:
    """The types in descriptions (name and type by id); other entities have none."""
    kinds = Interner()
    described = ((entity, descriptions.get(name.encode(), (b"", b""))[1]) for entity, name in enumerate(entities))
    pairs = [(entity, kinds[kind]) for entity, kind in described if kind]
    owners, types = np.array(pairs, np.int32).reshape(-1, 2).T
    return TypeTable.of(kinds, owners, types, len(entities))
