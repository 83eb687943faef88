"""Entity types: their names, and the types of each entity as CSR arrays."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fewlink.base.errors import InputError
from fewlink.graph.csr import Groups, offsets_of, spans
from fewlink.graph.reading import read_pairs_table
from fewlink.graph.vocabulary import Interner, Vocabulary

CONVENTION_SHARE = 0.9  # share of names concept:TYPE:name from which the convention is applied


class TypeTable:
    """`types[offsets[e]:offsets[e+1]]` are the types of entity e."""

    def __init__(self, names: Vocabulary, offsets: np.ndarray, types: np.ndarray) -> None:
        self.names, self.offsets, self.types = names, offsets, types

    @classmethod
    def of(cls, names: Iterable[bytes], entities: np.ndarray, types: np.ndarray, count: int) -> TypeTable:
        both = np.unique(np.stack([entities, types], 1).astype(np.int32), axis=0)
        return cls(Vocabulary.of(names), offsets_of(both[:, 0], count), np.ascontiguousarray(both[:, 1]))

    def of_entities(self, entities: np.ndarray) -> np.ndarray:
        """The distinct types of these entities."""
        at, _ = spans(self.offsets[entities], self.offsets[np.asarray(entities) + 1])
        return np.unique(self.types[at])

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
        return np.unique(np.concatenate([np.zeros(0, np.int32), *(self.groups[kind] for kind in types)]))

    def take(self, entities: np.ndarray) -> TypeTable:
        """The same types for these entities, renumbered in this order."""
        at, owners = spans(self.offsets[entities], self.offsets[entities + 1])
        return TypeTable(self.names, offsets_of(owners, len(entities)), np.ascontiguousarray(self.types[at]))

    def save(self, folder: Path) -> None:
        self.names.save(folder, "types")
        np.save(folder / "types.offsets.npy", self.offsets, allow_pickle=False)
        np.save(folder / "types.members.npy", self.types, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path) -> TypeTable | None:
        if not (folder / "types.offsets.npy").exists():
            return None
        load = [np.load(folder / f"types.{a}.npy", mmap_mode="r", allow_pickle=False) for a in ("offsets", "members")]
        return cls(Vocabulary.open(folder, "types"), *load)


def types_from_file(path: Path, entities: Vocabulary) -> TypeTable:
    """From rows `entity<TAB>type[<TAB>readable type]`; entities that are not in the graph are skipped."""
    rows = ((entities.find(row[0]), row[2] if len(row) > 2 and row[2] else row[1]) for row in read_pairs_table(path))
    table = _table(((entity, kind) for entity, kind in rows if entity is not None), len(entities))
    if len(entities) and not len(table.types):
        raise InputError(
            path,
            f"names no entity of the graph, whose first is '{entities[0]}': does the file belong to another graph?",
        )
    return table


def types_from_names(entities: Vocabulary) -> TypeTable | None:
    """By the convention `concept:TYPE:name`, if nearly all names follow it; the others have no type."""
    sample = [entities[i] for i in range(0, len(entities), max(1, len(entities) // 1000))]
    if not sample or sum(_type_in(n) is not None for n in sample) < CONVENTION_SHARE * len(sample):
        return None
    kinds = enumerate(map(_type_in, entities))
    return _table(((entity, kind) for entity, kind in kinds if kind is not None), len(entities))


def _table(pairs: Iterable[tuple[int, str]], count: int) -> TypeTable:
    """The table of pairs (entity, type), for this number of entities."""
    names, owners, types = Interner(), [], []
    for entity, kind in pairs:
        owners.append(entity)
        types.append(names[kind.encode()])
    return TypeTable.of(names, np.array(owners, np.int32), np.array(types, np.int32), count)


def _type_in(name: str) -> str | None:
    parts = name.split(":", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "concept" and all(parts) else None
