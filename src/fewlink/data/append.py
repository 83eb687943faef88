"""New triples for a benchmark: entities and relations keep their ids, new ones follow behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fewlink.base.errors import FewlinkError
from fewlink.data.benchmark import Benchmark, Task, sorted_pairs
from fewlink.data.candidates import likely_tails
from fewlink.graph import CompileReport, Graph, TypeTable, Vocabulary
from fewlink.graph.compile import read_ids
from fewlink.graph.reading import check_on_error, read_pairs_table
from fewlink.graph.types import CONVENTION_SHARE, types_from_file, types_from_names
from fewlink.graph.vocabulary import Interner


@dataclass(frozen=True)
class Growth:
    """How much came to a benchmark: triples of its graph, pairs of its task relations, names, and what it had."""

    triples: int
    pairs: int
    entities: int
    relations: int
    duplicates: int

    def __bool__(self) -> bool:
        return bool(self.triples or self.pairs)


def grow(
    benchmark: Benchmark,
    paths: Sequence[Path],
    *,
    types: Path | None = None,
    names: Path | None = None,
    on_error: str = "stop",
    report: CompileReport | None = None,
) -> tuple[Benchmark, Growth]:
    """The benchmark with the triples of these files; those it has are counted and not added.

    A triple of a task relation becomes a pair of that task, behind those it has, never one of the graph: there it would
    give an answer away. `types` and `names` are side files as for a new graph; they may speak of old entities too.
    """
    graph, report = benchmark.graph, report or CompileReport()
    tasks = {task.name: task for members in benchmark.tasks.values() for task in members}
    entities = _interner(graph.entities)
    relations = _interner(graph.relations)
    own = {relations[name.encode()]: name for name in tasks}  # ids of task relations while files are read
    added = read_ids([Path(p) for p in paths], entities, relations, check_on_error(on_error), report)
    if not len(added):
        why = f" ({report.skipped:,} bad lines, the first: {report.problems[0]})" if report.skipped else ""
        raise FewlinkError(f"no triples in {', '.join(map(str, paths))}{why}")
    stays = [number for number in range(len(relations)) if number not in own]
    number = np.full(len(relations), -1, np.int32)
    number[stays] = np.arange(len(stays), dtype=np.int32)  # task relations are none of the graph's
    of_graph = number[added[:, 1]] >= 0
    new = np.stack([added[of_graph, 0], number[added[of_graph, 1]], added[of_graph, 2]], 1)
    names_of = list(relations)
    grown = _graph(graph, new, list(entities), [names_of[i] for i in stays], types, names)
    rest = added[~of_graph]
    made = {name: _task(grown, tasks[name], rest[rest[:, 1] == at][:, [0, 2]]) for at, name in own.items()}
    pairs = sum(len(made[name].pairs) - len(task.pairs) for name, task in tasks.items())
    triples = grown.triple_count - graph.triple_count
    growth = Growth(
        triples=triples,
        pairs=pairs,
        entities=len(grown.entities) - len(graph.entities),
        relations=len(grown.relations) - len(graph.relations),
        duplicates=len(added) - triples - pairs,
    )
    splits = {split: [made[task.name] for task in members] for split, members in benchmark.tasks.items()}
    before = (*benchmark.grown_from, benchmark.fingerprint, graph.fingerprint)
    return Benchmark(benchmark.name, grown, splits, benchmark.source, before), growth


def _interner(names: Vocabulary) -> Interner:
    return Interner((name.encode(), number) for number, name in enumerate(names))


def _graph(
    graph: Graph,
    new: np.ndarray,
    entities: list[bytes],
    relations: list[bytes],
    types: Path | None,
    names: Path | None,
) -> Graph:
    """The graph with new triples (n, 3) behind its own, under the names of all entities and relations."""
    every, kinds = Vocabulary.of(entities), Vocabulary.of(relations)
    labels = _labels(graph, every, kinds, names)
    table = _types(graph, every, types)
    triples = np.concatenate([graph.triples(), new]).astype(np.int32)
    return Graph.of(every, kinds, triples, types=table, labels=labels)


def _labels(graph: Graph, entities: Vocabulary, relations: Vocabulary, path: Path | None) -> Vocabulary | None:
    """Readable names: those of the file, those there were, or else the ids."""
    if graph.labels is None and path is None:
        return None
    texts = {row[0]: row[1] for row in read_pairs_table(path)} if path else {}
    old = list(graph.labels) if graph.labels is not None else [*graph.entities, *graph.relations]
    before = (old[: len(graph.entities)], old[len(graph.entities) :])
    return Vocabulary.of(
        texts.get(name, labels[number] if number < len(labels) else name)
        for vocabulary, labels in zip((entities, relations), before, strict=True)
        for number, name in enumerate(vocabulary)
    )


def _types(graph: Graph, entities: Vocabulary, path: Path | None) -> TypeTable | None:
    """The types there were and those of the file, or by the convention of names where the graph's are by it."""
    old, later = graph.types, np.arange(len(graph.entities), len(entities))
    if path is not None:
        more: TypeTable | None = types_from_file(path, entities)
    else:
        by_name = types_from_names(entities) if old is not None else None
        followed = by_name is not None and by_name.typed(np.arange(len(graph.entities))).mean() >= CONVENTION_SHARE
        more = by_name if followed else None
    if old is None:
        return more
    kinds, owners, numbers = _interner(old.names), [], []
    for table, of in ((old, np.arange(len(graph.entities))), (more, later if path is None else None)):
        if table is None:
            continue
        owner = np.repeat(np.arange(len(table.offsets) - 1), np.diff(table.offsets))
        own = np.array([kinds[name.encode()] for name in table.names], np.int32)
        kept = np.isin(owner, of) if of is not None else np.ones(len(owner), bool)
        owners.append(owner[kept])
        numbers.append(own[table.types[kept]])
    return TypeTable.of(kinds, np.concatenate(owners), np.concatenate(numbers), len(entities))


def _task(graph: Graph, task: Task, new: np.ndarray) -> Task:
    """A task with the pairs (n, 2) it does not have yet, each once, in their order."""
    seen = {tuple(pair) for pair in task.pairs.tolist()}
    fresh = [pair for pair in dict.fromkeys(map(tuple, new.tolist())) if pair not in seen]
    if not fresh:
        return task
    pairs = np.concatenate([task.pairs, np.array(fresh, np.int32)]).astype(np.int32)
    known = sorted_pairs(np.concatenate([task.known, pairs]))
    allowed = np.union1d(task.range, likely_tails(graph, pairs[len(task.pairs) :, 1])).astype(np.int32)
    return Task(task.name, pairs, known, allowed)
