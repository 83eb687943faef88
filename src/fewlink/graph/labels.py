"""Readable names of entities and relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fewlink.graph.side_files import read_pairs_table
from fewlink.graph.vocabulary import (
    Vocabulary,
    local_name,
)


def labels_from(
    entities: Vocabulary,
    relations: Vocabulary,
    paths: Sequence[Path],
    given: Mapping[bytes, tuple[int, bytes]] | None = None,
) -> Vocabulary | None:
    """Readable names from side files, else those that RDF gives or the ends of its addresses; None without any."""
    if not paths and given is None:
        return None
    texts = {row[0]: row[1] for path in paths for row in read_pairs_table(path)}
    if given is None:
        return labels_of(entities, relations, texts)
    return Vocabulary.of(
        texts.get(name) or readable_name(name.encode(), given)
        for vocabulary in (entities, relations)
        for name in vocabulary
    )


def labels_of(entities: Vocabulary, relations: Vocabulary, texts: Mapping[str, str]) -> Vocabulary:
    """Readable names by id; what has none keeps its id."""
    return Vocabulary.of(texts.get(name, name) for vocabulary in (entities, relations) for name in vocabulary)


def readable_name(name: bytes, given: Mapping[bytes, tuple[int, bytes]]) -> bytes:
    """The label of an RDF resource, or the end of its address."""
    return given[name][1] if name in given else local_name(name)
