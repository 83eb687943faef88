"""Readable names of entities and relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fewlink.graph.side_files import read_pairs_table
from fewlink.graph.vocabulary import Vocabulary, local_name


def labels_from(
    entities: Vocabulary,
    relations: Vocabulary,
    paths: Sequence[Path],
    rdf_labels: Mapping[bytes, tuple[int, bytes]] | None = None,
) -> Vocabulary | None:
    """Readable names from side files, or else from RDF labels or the ends of IRIs; None without files and RDF."""
    if not paths and rdf_labels is None:
        return None
    texts = {row[0]: row[1] for path in paths for row in read_pairs_table(path)}
    if rdf_labels is None:
        return labels_of(entities, relations, texts)
    return Vocabulary.of(
        texts.get(name) or readable_name(name.encode(), rdf_labels)
        for vocabulary in (entities, relations)
        for name in vocabulary
    )


def labels_of(entities: Vocabulary, relations: Vocabulary, texts: Mapping[str, str]) -> Vocabulary:
    """Readable names by id; an entity or relation without one keeps its id."""
    return Vocabulary.of(texts.get(name, name) for vocabulary in (entities, relations) for name in vocabulary)


def readable_name(name: bytes, rdf_labels: Mapping[bytes, tuple[int, bytes]]) -> bytes:
    """The label of an RDF resource, or else the end of its IRI."""
    return rdf_labels[name][1] if name in rdf_labels else local_name(name)
