"""Appending triples to a benchmark: entities and relations keep their ids, and new ones follow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.words import plural
from fewlink.graph import CompileReport, Graph, TypeTable, Vocabulary
from fewlink.graph.compile import check_side_files, labels_query, read_triples, stated_types, types_from_file
from fewlink.graph.name_index import fold, lines_of, readable, spaced
from fewlink.graph.source import GraphSource, some_names
from fewlink.graph.tables import connect
from fewlink.graph.types import CONVENTION_SHARE, types_from_names
from fewlink.graph.vocabulary import Interner
from fewlink.tasks.benchmark import Benchmark, Task, sorted_pairs
from fewlink.tasks.candidates import likely_tails

MAX_REMARKS = 5  # on new entities
OLD_RANK = 9  # of the graph's own readable names, after all that are stated


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
    known = len(graph.relations)
    task_ids = {known + number: name for number, name in enumerate(tasks)}  # temporary ids for reading the files
    with connect() as engine:
        read_triples(engine, source, report, (list(graph.entities), [*graph.relations, *tasks]))
        if not report.triples:
            raise report.no_triples(source.paths)
        read = engine.execute("SELECT h, r, t FROM triple ORDER BY p").fetchnumpy()
        added = np.stack([np.ma.getdata(read[name]) for name in "hrt"], 1)
        engine.execute(f"DELETE FROM relation WHERE id >= {known} AND id < {known + len(tasks)}")
        engine.execute(f"UPDATE relation SET id = id - {len(tasks)} WHERE id >= {known}")
        of_graph = (added[:, 1] < known) | (added[:, 1] >= known + len(tasks))
        new = added[of_graph]
        new[:, 1] -= len(tasks) * (new[:, 1] >= known)
        extended = _extended(engine, graph, new, source, report)
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


def _extended(engine: Any, graph: Graph, new: np.ndarray, source: GraphSource, report: CompileReport) -> Graph:
    """The graph with new triples (n, 3) after the old ones, whose names the engine has."""
    entities = Vocabulary.of(_column(engine, "SELECT name FROM entity ORDER BY id"))
    relations = Vocabulary.of(_column(engine, "SELECT name FROM relation ORDER BY id"))
    check_side_files(engine, source)
    if graph.labels is not None:
        names = [*graph.entities, *graph.relations]
        rows = {"name": np.array(names, object), "text": np.array(list(graph.labels), object)}
        engine.register("old", rows)
        engine.execute(f"INSERT INTO label SELECT name, {OLD_RANK}, text FROM old")
    query = labels_query(engine, source, report)
    labels = Vocabulary.of(_column(engine, query)) if query is not None else None
    if source.types is not None:
        stated: TypeTable | None = types_from_file(engine, source.types, len(entities))
    else:
        stated = stated_types(engine, Graph.of(entities, relations, new, labels=labels))
    table = _types(graph, entities, stated)
    triples = np.concatenate([graph.triples(), new]).astype(np.int32)
    return Graph.of(entities, relations, triples, types=table, labels=labels)


def _column(engine: Any, query: str) -> list[str]:
    return [value for (value,) in engine.execute(query).fetchall()]


def _types(graph: Graph, entities: Vocabulary, stated: TypeTable | None) -> TypeTable | None:
    """The types of the graph with those of a file or `stated` in triples, or else those in the new names."""
    old = graph.types
    more = stated
    first = 0  # the first entity whose types are added
    if stated is None:
        by_name = types_from_names(entities) if old is not None else None
        first = len(graph.entities)
        follows = by_name is not None and by_name.typed(np.arange(first)).mean() >= CONVENTION_SHARE
        more = by_name if follows else None
    if old is None:
        return more
    names = Interner((name.encode(), number) for number, name in enumerate(old.names))
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
