"""The types of entities: from a file, from their names, from rdf:type, or from STIX."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fewlink.core.threads import distinct
from fewlink.graph.groups import Groups, offsets_of, spans
from fewlink.graph.vocabulary import Interner, Vocabulary, check_ids, check_offsets, load_array

CONVENTION_SHARE = 0.9  # names follow the convention if this share of them is concept:TYPE:name
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


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
