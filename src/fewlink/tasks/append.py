"""Appending triples to a benchmark: entities and relations keep their ids, and new ones follow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fewlink.core.words import plural
from fewlink.graph import CompileReport, Graph, TypeTable, Vocabulary
from fewlink.graph.compile import read_ids
from fewlink.graph.name_index import fold, lines_of, readable, spaced
from fewlink.graph.side_files import check_side_files, read_pairs_table
from fewlink.graph.source import GraphSource, some_names
from fewlink.graph.types import CONVENTION_SHARE, described_types, types_from_file, types_from_names, types_from_triples
from fewlink.graph.vocabulary import Interner, local_name
from fewlink.tasks.benchmark import Benchmark, Task, sorted_pairs
from fewlink.tasks.candidates import likely_tails

MAX_REMARKS = 5  # on new entities


@dataclass(frozen=True)
class AppendReport:
    """The numbers of new triples, pairs of tasks, entities and relations, and of duplicates.

    `namesakes` has the new entities whose id is the readable name of old ones, with the ids of these.
    """

    triples: int
    pairs: int
    entities: int
    relations: int
    duplicates: int
    namesakes: Mapping[str, Sequence[str]]

    def remarks(self) -> list[str]:
        """Remarks on the first few new entities that may be meant as old ones."""
        lines = [
            f"'{new}' is a new entity, but also the name of {some_names(old)}: write the id if you mean "
            + ("that one" if len(old) == 1 else "one of these")
            for new, old in list(self.namesakes.items())[:MAX_REMARKS]
        ]
        if more := len(self.namesakes) - len(lines):
            lines.append(
                f"{plural(more, 'other new entity has', 'other new entities have')} the name of an old one, too"
            )
        return lines

    def __bool__(self) -> bool:
        return bool(self.triples or self.pairs)


def append_triples(
    benchmark: Benchmark,
    files: Sequence[Path] | GraphSource,
    report: CompileReport | None = None,
) -> tuple[Benchmark, AppendReport]:
    """Add the triples of files to a benchmark; duplicates are counted.

    A triple of a task relation becomes the last pair of its task. It does not enter the graph, where it would reveal an
    answer. The files of types and names may describe old entities too.
    """
    source = GraphSource.of(files)
    graph = benchmark.graph
    report = report or CompileReport()
    tasks = {task.name: task for members in benchmark.tasks.values() for task in members}
    entities = _interner(graph.entities)
    relations = _interner(graph.relations)
    task_ids = {relations[name.encode()]: name for name in tasks}  # temporary ids for reading the files
    added = read_ids(source, entities, relations, report)
    if not len(added):
        raise report.no_triples(source.paths)
    relation_names = list(relations)
    in_graph = [i for i in range(len(relations)) if i not in task_ids]
    new_id = np.full(len(relations), -1, np.int32)
    new_id[in_graph] = np.arange(len(in_graph), dtype=np.int32)
    of_graph = new_id[added[:, 1]] >= 0
    new = np.stack([added[of_graph, 0], new_id[added[of_graph, 1]], added[of_graph, 2]], 1)
    graph_relations = [relation_names[i] for i in in_graph]
    extended = _extended(graph, new, list(entities), graph_relations, source, report)
    of_tasks = added[~of_graph]
    extended_tasks = {
        name: _extended_task(extended, tasks[name], of_tasks[of_tasks[:, 1] == i][:, [0, 2]])
        for i, name in task_ids.items()
    }
    pairs = sum(len(extended_tasks[name].pairs) - len(task.pairs) for name, task in tasks.items())
    triples = extended.triple_count - graph.triple_count
    counts = AppendReport(
        triples=triples,
        pairs=pairs,
        entities=len(extended.entities) - len(graph.entities),
        relations=len(extended.relations) - len(graph.relations),
        duplicates=len(added) - triples - pairs,
        namesakes=_namesakes(graph, list(extended.entities)[len(graph.entities) :]),
    )
    splits = {split: [extended_tasks[task.name] for task in members] for split, members in benchmark.tasks.items()}
    extended_from = (*benchmark.extended_from, benchmark.fingerprint, graph.fingerprint)
    return Benchmark(benchmark.name, extended, splits, benchmark.source, extended_from), counts


def _namesakes(graph: Graph, new: Sequence[str]) -> dict[str, list[str]]:
    """The new entities whose id is the readable name of entities of the graph, and the ids of these."""
    if not new:
        return {}
    texts = {name: spaced(fold(name.replace("\n", " "))) for name in new}
    wanted = set(texts.values()) - {""}
    owners = defaultdict[str, list[str]](list)
    lines = fold(readable(lines_of(graph.labels or graph.entities, 0, len(graph.entities)))).split("\n")
    for number, line in enumerate(lines[:-1]):
        if line in wanted:
            owners[line].append(graph.entities[number])
    return {name: owners[text] for name, text in texts.items() if text in owners}


def _interner(names: Vocabulary) -> Interner:
    return Interner((name.encode(), number) for number, name in enumerate(names))


def _extended(
    graph: Graph,
    new: np.ndarray,
    entities: list[bytes],
    relations: list[bytes],
    source: GraphSource,
    report: CompileReport,
) -> Graph:
    """The graph with new triples (n, 3) after the old ones; `report` holds names and types from RDF and STIX."""
    entity_names = Vocabulary.of(entities)
    relation_names = Vocabulary.of(relations)
    check_side_files(entity_names, relation_names, source)
    labels = _labels(graph, entity_names, relation_names, source.names, report)
    stated = types_from_triples(entity_names, relation_names, new, labels) if source.types is None else None
    if stated is None and report.descriptions:
        stated = described_types(entity_names, report.descriptions)
    table = _types(graph, entity_names, source.types, stated)
    triples = np.concatenate([graph.triples(), new]).astype(np.int32)
    return Graph.of(entity_names, relation_names, triples, types=table, labels=labels)


def _labels(
    graph: Graph,
    entities: Vocabulary,
    relations: Vocabulary,
    path: Path | None,
    report: CompileReport,
) -> Vocabulary | None:
    """Readable names from the files, or else from the graph, or else the ids themselves."""
    if graph.labels is None and path is None and report.labels is None and not report.descriptions:
        return None
    texts = {name.decode(): text.decode() for name, (_, text) in (report.labels or {}).items()}
    texts.update({name.decode(): text.decode() for name, (text, _) in report.descriptions.items()})
    if path is not None:
        texts.update({row[0]: row[1] for row in read_pairs_table(path)})
    old = list(graph.labels) if graph.labels is not None else [*graph.entities, *graph.relations]
    labels = []
    for vocabulary, old_labels in (
        (entities, old[: len(graph.entities)]),
        (relations, old[len(graph.entities) :]),
    ):
        for number, name in enumerate(vocabulary):
            if texts.get(name):
                labels.append(texts[name])
            elif number < len(old_labels):
                labels.append(old_labels[number])
            elif report.labels is not None:  # RDF was read
                labels.append(local_name(name.encode()).decode())
            else:
                labels.append(name)
    return Vocabulary.of(labels)


def _types(graph: Graph, entities: Vocabulary, path: Path | None, stated: TypeTable | None) -> TypeTable | None:
    """The types of the graph with those of the file, or else those `stated` in triples or STIX, or else in names."""
    old = graph.types
    count = len(graph.entities)
    first = 0  # the first entity whose types are added
    if path is not None:
        more: TypeTable | None = types_from_file(path, entities)
    elif stated is not None:
        more = stated
    else:
        by_name = types_from_names(entities) if old is not None else None
        follows = by_name is not None and by_name.typed(np.arange(count)).mean() >= CONVENTION_SHARE
        more = by_name if follows else None
        first = count
    if old is None:
        return more
    names = _interner(old.names)
    owners, types = _entries(old)
    if more is not None:
        more_owners, more_types = _entries(more)
        more_types = np.array([names[name.encode()] for name in more.names], np.int32)[more_types]
        added = more_owners >= first
        owners = np.append(owners, more_owners[added])
        types = np.append(types, more_types[added])
    return TypeTable.of(names, owners, types, len(entities))


def _entries(table: TypeTable) -> tuple[np.ndarray, np.ndarray]:
    """The entities and the types of a table's entries."""
    return np.repeat(np.arange(len(table.offsets) - 1), np.diff(table.offsets)), table.types


def _extended_task(graph: Graph, task: Task, new: np.ndarray) -> Task:
    """The task with the pairs (n, 2) that it lacks, each once, in their order."""
    old = {tuple(pair) for pair in task.pairs.tolist()}
    added = [pair for pair in dict.fromkeys(map(tuple, new.tolist())) if pair not in old]
    if not added:
        return task
    pairs = np.concatenate([task.pairs, np.array(added, np.int32)]).astype(np.int32)
    known = sorted_pairs(np.concatenate([task.known, pairs]))
    allowed = np.union1d(task.range, likely_tails(graph, pairs[len(task.pairs) :, 1])).astype(np.int32)
    return Task(task.name, pairs, known, allowed)
