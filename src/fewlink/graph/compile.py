"""Compile files of triples into a graph; describe a user's graph and report its possible problems."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.progress import progress
from fewlink.graph.formats import read_pairs_table, read_triples
from fewlink.graph.graph import Graph, TypeTable, spans, types_from_file, types_from_names
from fewlink.graph.reading import CompileReport
from fewlink.graph.vocabulary import Block, Interner, Vocabulary, local_name

SHOWN_RELATIONS = 20
SAMPLED_ROWS = 1000  # of a side file, to see whether they are triples
NEAR = 0.9  # share of common pairs from which two relations count as near-copies
EXAMPLES = 5
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
VOCABULARIES = (
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "http://www.w3.org/2000/01/rdf-schema#",
    "http://www.w3.org/2002/07/owl#",
    "http://www.w3.org/2004/02/skos/core#",
)


def check_on_error(on_error: str) -> bool:
    """Whether bad lines are skipped. Raises if `on_error` is neither `stop` nor `skip`."""
    if on_error not in ("stop", "skip"):
        raise FewlinkError(f"on-error is 'stop' or 'skip', not '{on_error}'")
    return on_error == "skip"


def compile_graph(
    paths: Path | str | Sequence[Path | str],
    *,
    types: Path | None = None,
    names: Path | None = None,
    on_error: str = "stop",
    report: CompileReport | None = None,
) -> Graph:
    """Read a triple file, or several, into one graph in memory.

    `types` is a file of `entity<TAB>type`, `names` one of `id<TAB>readable name` for entities and relations. Bad lines
    raise an error with file and line, or with `on_error="skip"` are counted in `report`.
    """
    files = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    report = report or CompileReport()
    graph = read_graph(files, types, names, check_on_error(on_error), report)
    if not graph.triple_count:
        raise report.no_triples(files)
    return graph


def read_graph(
    paths: Sequence[Path], types: Path | None, names: Path | None, skip: bool, report: CompileReport
) -> Graph:
    """The graph of these files; it may have no triples."""
    entities, relations = Interner(), Interner()
    triples = read_ids(paths, entities, relations, skip, report)
    entity_names, relation_names = Vocabulary.of(entities), Vocabulary.of(relations)
    del entities, relations
    check_side_files(entity_names, relation_names, types, names)
    labels = labels_from(entity_names, relation_names, [names] if names else [], report.labels)
    if types is not None:
        table: TypeTable | None = types_from_file(types, entity_names)
    else:
        table = types_from_triples(entity_names, relation_names, triples, labels) or types_from_names(entity_names)
    graph = Graph.of(entity_names, relation_names, triples, types=table, labels=labels)
    report.duplicates += len(triples) - graph.triple_count
    report.self_loops += int((graph.head_ids == graph.tail_ids).sum()) // 2
    return _described(graph, report.descriptions)


def _described(graph: Graph, descriptions: Mapping[bytes, tuple[bytes, bytes]]) -> Graph:
    """The graph with these names and types of entities, unless files gave others."""
    if not descriptions:
        return graph
    if graph.labels is None:
        ids = [name.encode() for name in graph.entities]
        labels = [descriptions.get(name, (b"", b""))[0] or name for name in ids]
        graph = dataclasses.replace(graph, labels=Vocabulary.of([*labels, *graph.relations]))
    if graph.types is None:
        graph = dataclasses.replace(graph, types=described_types(graph.entities, descriptions))
    return graph


def described_types(entities: Vocabulary, descriptions: Mapping[bytes, tuple[bytes, bytes]]) -> TypeTable:
    """The types of entities that descriptions (name and type by id) give; the others have none."""
    kinds = Interner()
    given = ((entity, descriptions.get(name.encode(), (b"", b""))[1]) for entity, name in enumerate(entities))
    pairs = [(entity, kinds[kind]) for entity, kind in given if kind]
    owners, types = np.array(pairs, np.int32).reshape(-1, 2).T
    return TypeTable.of(kinds, owners, types, len(entities))


def read_ids(
    paths: Sequence[Path], entities: Interner, relations: Interner, skip: bool, report: CompileReport
) -> np.ndarray:
    """The triples of these files (n, 3) as ids; new names get the next ids in order of appearance."""
    blocks = [np.zeros((3, 0), np.int32)]  # (3, n) ids each
    for path in paths:
        with progress(f"reading {path.name}", 1.0) as advance:
            for block in read_triples(path, skip=skip, report=report, advance=advance):
                ids = (_numbered(entities, block, 0, 2), _numbered(relations, block, 1))
                blocks.append(np.stack([ids[column % 2][block.codes[:, column]] for column in range(3)]))
    return np.concatenate(blocks, axis=1).T  # each column is contiguous


def read_names_of(path: Path) -> list[tuple[str, str, str]]:
    """The triples of a small file by name, in their order."""
    triples = []
    for block in read_triples(path, skip=False, report=CompileReport()):
        names = [name.decode() for name in block.names]
        triples += [(names[head], names[relation], names[tail]) for head, relation, tail in block.codes.tolist()]
    return triples


def _numbered(interner: Interner, block: Block, *columns: int) -> np.ndarray:
    """The ids of the names of a block in these columns, new ones in order of appearance: (names,) int32."""
    codes = block.codes[:, columns].ravel()
    first = np.full(len(block.names), -1)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # the first occurrence is written last
    present = np.flatnonzero(first >= 0)
    present = present[np.argsort(first[present], kind="stable")]
    ids = np.zeros(len(block.names), np.int32)
    ids[present] = interner.ids([block.names[i] for i in present.tolist()])
    return ids


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


def types_from_triples(
    entities: Vocabulary, relations: Vocabulary, triples: np.ndarray, labels: Vocabulary | None
) -> TypeTable | None:
    """The types that triples (n, 3) of rdf:type give, by the names of the classes; None if there are none.

    Classes of RDF's own vocabularies (owl:Thing, skos:Concept, …) say nothing of what an entity is.
    """
    relation = relations.find(RDF_TYPE)
    if relation is None:
        return None
    rows = triples[triples[:, 1] == relation]
    classes, places = np.unique(rows[:, 2], return_inverse=True)
    ids = [entities[kind] for kind in classes.tolist()]
    kept = np.array([not name.startswith(VOCABULARIES) for name in ids], bool)[places]
    if not kept.any():
        return None
    short = [labels[kind] for kind in classes.tolist()] if labels is not None else ids
    uses = Counter(short)  # classes that share a name are called by their ids
    interner = Interner()
    numbers = [interner[(text if uses[text] == 1 else name).encode()] for text, name in zip(short, ids, strict=True)]
    return TypeTable.of(interner, rows[kept, 0], np.array(numbers, np.int32)[places[kept]], len(entities))


def check_side_files(
    entities: Vocabulary, relations: Vocabulary, types: Path | None = None, names: Path | None = None
) -> None:
    """Raise if files of types or readable names hold triples, or nothing about the graph."""
    if types is not None:
        check_describes(types, entities, relations, "an entity, a tab and a type")
    if names is not None:
        check_describes(names, entities, relations, "an id, a tab and a readable name", of_relations=True)


def check_describes(
    path: Path, entities: Vocabulary, relations: Vocabulary, line: str, *, of_relations: bool = False
) -> None:
    """Raise if a side file of a graph (types, readable names) holds triples, or no row about the graph.

    `line` says in words what each line holds; `of_relations`, it may also describe a relation.
    """
    found, triples, rows = False, 0, 0
    for row in read_pairs_table(path):
        found = found or row[0] in entities or (of_relations and row[0] in relations)
        triples += len(row) == 3 and row[0] in entities and row[1] in relations and row[2] in entities
        rows += 1
        if rows >= SAMPLED_ROWS and found:
            break
    if triples > rows / 2:
        raise InputError(path, f"holds triples: each line must be {line}")
    if not found and len(entities):
        raise InputError(
            path,
            f"names no entity of the graph, whose first is '{entities[0]}': does the file belong to another graph?",
        )


def check_graph(
    path: Path, *, types: Path | None = None, names: Path | None = None, smallest: int = 50, largest: int = 500
) -> dict[str, Any]:
    """The description of a graph that `fewlink data check` prints; bad lines are counted.

    Raises if the file has no triples.
    """
    report = CompileReport()
    graph = read_graph([Path(path)], types, names, skip=True, report=report)
    if not graph.triple_count:
        raise report.no_triples([Path(path)])
    triples = graph.triples()
    sizes = np.bincount(triples[:, 1], minlength=len(graph.relations))
    order = np.argsort(-sizes, kind="stable")
    tasks = [graph.relations[r] for r in order if smallest <= sizes[r] <= largest]
    parts = _component_sizes(graph)
    counts = {
        "triples": graph.triple_count,
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        "entity types": len(graph.types.names) if graph.types else 0,
        **({"entities with a readable name": _named_count(graph)} if names else {}),
        "bad lines": report.skipped,
        "duplicate triples": report.duplicates,
        "self-loops": report.self_loops,
        "literals left out": report.literals,
        "connected parts": len(parts),
        "isolated entities": int((parts == 1).sum()),
        "entities with one edge": int((graph.degrees == 1).sum()),
        "relations with one triple": int((sizes == 1).sum()),
        "possible few-shot tasks": len(tasks),
    }
    relations = [
        {
            "relation": graph.relations[r],
            **({"name": graph.relation_name(r)} if names else {}),
            "triples": int(sizes[r]),
            **_end_counts(triples[triples[:, 1] == r]),
        }
        for r in order[:SHOWN_RELATIONS]
    ]
    return {
        "file": str(path),
        "counts": counts,
        "degrees": _degree_table(graph.degrees),
        "largest_relations": relations,
        "possible_tasks": tasks,
        "problems": _problems(graph, triples, report, len(tasks), smallest, largest),
    }


def _named_count(graph: Graph) -> int:
    """The number of entities whose readable name is not their id."""
    return sum(label != name for name, label in zip(graph.entities, graph.labels or (), strict=False))


def _end_counts(triples: np.ndarray) -> dict[str, int]:
    return {"heads": len(np.unique(triples[:, 0])), "tails": len(np.unique(triples[:, 2]))}


def _degree_table(degrees: np.ndarray) -> list[dict[str, Any]]:
    limits = [0, 1, 2, 3, 5, 10, 30, 100, 1000, 10_000, int(1e18)]
    rows = []
    for low, high in itertools.pairwise(limits):
        if count := int(((degrees >= low) & (degrees < high)).sum()):
            label = str(low) if high == low + 1 else f"{low:,} and more" if high > 1e17 else f"{low:,} to {high - 1:,}"
            rows.append({"degree": label, "entities": count})
    return rows


def _component_sizes(graph: Graph) -> np.ndarray:
    """The sizes of the connected components: each component joins its smallest neighbour until none is left.

    A component that none joins in one round joins another in the next, so their number halves every two rounds.
    """
    label = np.arange(len(graph.entities))
    while True:
        heads, tails = label[graph.head_ids], label[graph.tail_ids]
        if np.array_equal(heads, tails):
            return np.unique(label, return_counts=True)[1]
        np.minimum.at(label, heads, tails)
        while not np.array_equal(label, label[label]):
            label = label[label]


def _problems(
    graph: Graph, triples: np.ndarray, report: CompileReport, tasks: int, smallest: int, largest: int
) -> list[str]:
    problems = [*report.headers, *(f"{report.skipped:,} bad lines, the first: {p}" for p in report.problems[:1])]
    problems += [f"also: {p}" for p in report.problems[1:]]
    if report.duplicates:
        problems.append(f"{report.duplicates:,} duplicate triples; compiling leaves them out")
    if report.self_loops:
        example = graph.entities[int(triples[triples[:, 0] == triples[:, 2]][0, 0])]
        problems.append(f"{report.self_loops:,} self-loops, such as on '{example}'")
    if both := [name for name in graph.relations if name in graph.entities]:
        problems.append(
            f"{len(both):,} names are both an entity and a relation ({_some(both)}): is the order of columns right?"
        )
    names = itertools.chain(graph.entities, graph.relations)
    if padded := [name for name in names if name != name.strip()]:
        problems.append(
            f"{len(padded):,} names begin or end with white space ({_some(padded)}): they differ from those without it"
        )
    problems += _near_copies(graph, triples)
    if tasks < 3:
        problems.append(
            f"only {tasks} relations have {smallest} to {largest} triples; carving needs 3: try other limits"
        )
    if len(graph.relations) == 1:
        problems.append("only one relation: there would be no background")
    return problems


def _near_copies(graph: Graph, triples: np.ndarray) -> list[str]:
    """Relations with nearly the pairs of another one or their inverses: answers would leak through them."""
    sizes = np.bincount(triples[:, 1], minlength=len(graph.relations))
    triples = triples[sizes[triples[:, 1]] >= EXAMPLES].astype(np.int64)
    heads, relations, tails = triples[np.lexsort((triples[:, 2], triples[:, 0]))].T  # by pair
    pairs = heads * len(graph.entities) + tails
    near_copies = []
    for how, others in (("a copy", pairs), ("the inverse", tails * len(graph.entities) + heads)):
        at, owners = spans(np.searchsorted(pairs, others), np.searchsorted(pairs, others, "right"))
        both, shared = np.unique(relations[at] * len(sizes) + relations[owners], return_counts=True)
        first, second = np.divmod(both, len(sizes))
        share = shared / np.maximum(sizes[first], sizes[second])
        near = (first < second) & (share >= NEAR)
        near_copies += [(a, b, how, s) for a, b, s in zip(first[near], second[near], share[near], strict=True)]
    names = graph.relations
    return [
        f"'{names[b]}' is nearly {how} of '{names[a]}' ({s:.0%} of the pairs)" for a, b, how, s in sorted(near_copies)
    ]


def _some(names: list[str]) -> str:
    return ", ".join(repr(n) for n in names[:EXAMPLES]) + (", …" if len(names) > EXAMPLES else "")
