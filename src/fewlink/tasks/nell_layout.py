"""The layout of NELL-One and Wiki-One, as a folder or an archive.

Required: `path_graph` (triples) and `{train,dev,test}_tasks.json`. Rebuilt if absent and checked if present:
`rel2candidates.json`, `e1rel_e2.json`. Used if present: `entity2text.txt`, `relation2text.txt` (readable names).
"""

from __future__ import annotations

import dataclasses
import itertools
import lzma
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.files import read_json
from fewlink.graph import CompileReport, Graph, Vocabulary
from fewlink.graph.types import types_from_names
from fewlink.graph.vocabulary import labels_of
from fewlink.tasks.benchmark import SPLITS, Benchmark, Task, sorted_pairs
from fewlink.tasks.candidates import task_of_pairs

REQUIRED = ("path_graph", *(f"{split}_tasks.json" for split in SPLITS))
OPTIONAL = ("rel2candidates.json", "e1rel_e2.json", "entity2text.txt", "relation2text.txt")


def is_layout(folder: Path) -> bool:
    """Whether a folder has all required files."""
    return all((folder / name).is_file() for name in REQUIRED)


def read_layout(path: Path, name: str | None = None) -> tuple[Benchmark, list[str]]:
    """Read a benchmark from a folder or archive of this layout, with remarks on differences from the rules."""
    from fewlink.graph.compile import compile_graph
    from fewlink.graph.tables import read_pairs

    path = Path(path)
    if os.path.isfile(path):
        with _unpacked(path) as folder:
            return read_layout(folder, name or path.name.split(".")[0])
    missing = [n for n in REQUIRED if not os.path.isfile(path / n)]
    if missing:
        raise InputError(path, f"is not in the NELL-One layout: add {', '.join(missing)}")
    report = CompileReport()
    graph = compile_graph([path / "path_graph"], literals="keep", report=report)
    raw = {split: _task_triples(path / f"{split}_tasks.json") for split in SPLITS}
    graph = _with_task_entities(graph, raw)
    texts = [file for file in (path / "entity2text.txt", path / "relation2text.txt") if file.exists()]
    if texts:
        names = {row[0]: row[1] for file in texts for row in read_pairs(file)}
        graph = dataclasses.replace(graph, labels=labels_of(graph.entities, graph.relations, names))
    remarks = report.remarks()
    index = graph.entities.index()
    tasks = {split: [_task(graph, index, n, rows, remarks) for n, rows in raw[split].items()] for split in SPLITS}
    by_name = _checked_names(path, tasks)
    _check_known(path, index, by_name, remarks)
    _check_candidates(path, index, by_name, remarks)
    checked = {split: [by_name[t.name] for t in tasks[split]] for split in SPLITS}
    return Benchmark(name or path.resolve().name, graph, checked), remarks


def _task_triples(path: Path) -> dict[str, list[list[str]]]:
    tasks = read_json(path)
    if not isinstance(tasks, dict):
        raise InputError(path, "is not a JSON object of relations")
    for relation, triples in tasks.items():
        valid = isinstance(triples, list) and all(
            isinstance(t, list) and len(t) == 3 and all(isinstance(x, str) and x for x in t) for t in triples
        )
        if not valid:
            raise InputError(path, f"has a relation '{relation}' that is not a list of [head, relation, tail]")
        if wrong := next((t for t in triples if t[1] != relation), None):
            raise InputError(path, f"lists a triple of '{wrong[1]}' under the relation '{relation}'")
    return tasks


def _with_task_entities(graph: Graph, raw: Mapping[str, Mapping[str, list[list[str]]]]) -> Graph:
    """The graph with the entities that occur only in tasks, after its own entities."""
    mentioned: dict[str, None] = {}
    for tasks in raw.values():
        for head, _, tail in itertools.chain.from_iterable(tasks.values()):
            mentioned[head] = None
            mentioned[tail] = None
    new = [entity for entity in mentioned if entity not in graph.entities]
    if not new:
        return graph
    entities = Vocabulary.of([*graph.entities, *new])
    offsets = np.pad(graph.offsets, (0, len(new)), mode="edge")  # the new entities have no edges
    return dataclasses.replace(graph, entities=entities, offsets=offsets, types=types_from_names(entities))


def _task(graph: Graph, index: dict[str, int], name: str, rows: list[list[str]], remarks: list[str]) -> Task:
    if name in graph.relations:
        raise FewlinkError(
            f"task relation '{name}' is also in path_graph, where its answers would leak: remove it there"
        )
    pairs = np.array([[index[h], index[t]] for h, _, t in rows], np.int32).reshape(-1, 2)
    _, first = np.unique(pairs, axis=0, return_index=True)
    if len(first) < len(pairs):
        remarks.append(f"{name}: {len(pairs) - len(first):,} repeated pairs left out")
    return task_of_pairs(graph, name, pairs[np.sort(first)])


def _checked_names(path: Path, tasks: Mapping[str, Iterable[Task]]) -> dict[str, Task]:
    by_name: dict[str, Task] = {}
    for split, members in tasks.items():
        for task in members:
            if task.name in by_name:
                raise InputError(
                    path / f"{split}_tasks.json", f"has the relation '{task.name}' of another split: keep it in one"
                )
            by_name[task.name] = task
    return by_name


def _check_known(path: Path, index: dict[str, int], tasks: dict[str, Task], remarks: list[str]) -> None:
    """Make the pairs of `e1rel_e2.json`, which maps joined names of head and relation to tails, known answers."""
    file = path / "e1rel_e2.json"
    if not file.is_file():
        return
    listed_pairs: dict[str, list[tuple[int, int]]] = {}
    added = skipped = 0
    for key, tails in _lists(file).items():
        splits = [(key[:i], key[i:]) for i in range(1, len(key)) if key[i:] in tasks]
        if not splits:
            continue
        head, relation = next(((index[h], r) for h, r in splits if h in index), (None, ""))
        ids = [index.get(t) for t in tails]
        if head is None or None in ids:
            skipped += 1
            continue
        listed_pairs.setdefault(relation, []).extend((head, t) for t in ids if t is not None)
    for relation, rows in listed_pairs.items():
        task = tasks[relation]
        known = sorted_pairs(np.concatenate([task.known, np.array(rows, np.int32).reshape(-1, 2)]))
        added += len(known) - len(task.known)
        tasks[relation] = dataclasses.replace(task, known=known)
    if added:
        remarks.append(f"e1rel_e2.json: {added:,} true pairs outside the tasks are filtered as known answers")
    if skipped:
        remarks.append(f"e1rel_e2.json: {skipped:,} entries with entities that are not in the graph are skipped")


def _check_candidates(path: Path, index: dict[str, int], tasks: dict[str, Task], remarks: list[str]) -> None:
    """Replace the rebuilt ranges by those of `rel2candidates.json`, which published results were measured with."""
    file = path / "rel2candidates.json"
    if not file.is_file():
        return
    listed = _lists(file)
    differ = []
    for name, task in tasks.items():
        if name not in listed:
            continue
        if not listed[name]:
            raise InputError(file, f"has no candidates for the relation '{name}'")
        ids = [index.get(e) for e in listed[name]]
        if None in ids:
            raise InputError(
                file, f"lists '{listed[name][ids.index(None)]}' for the relation '{name}', which is not in the graph"
            )
        candidates = np.union1d(np.array(ids, np.int32), task.pairs[:, 1]).astype(np.int32)
        if not np.array_equal(candidates, task.range):
            differ.append(name)
            tasks[name] = dataclasses.replace(task, range=candidates)
    if differ:
        remarks.append(
            f"rel2candidates.json: {len(differ)} of {len(listed)} ranges differ from the rule and replace it"
        )


def _object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(path, "is not a JSON object")
    return content


def _lists(path: Path) -> dict[str, list[str]]:
    content = _object(path)
    for key, names in content.items():
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise InputError(path, f"has an entry '{key}' that is not a list of names")
    return content


@contextmanager
def _unpacked(archive: Path) -> Iterator[Path]:
    """Yield the folder of the layout in an archive, unpacked into a temporary one."""
    with tempfile.TemporaryDirectory(prefix="fewlink-") as place:
        try:
            with tarfile.open(archive) as tar:
                members = [each for each in tar.getmembers() if Path(each.name).name in REQUIRED + OPTIONAL]
                tar.extractall(place, [each for each in members if each.isfile()], filter="data")
        except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
            raise InputError(archive, f"is damaged or not an archive ({error}): copy or download it again") from None
        folders = sorted({path.parent for path in Path(place).rglob("path_graph")})
        if not folders:
            raise InputError(archive, "contains no path_graph: give an archive in the NELL-One layout")
        if len(folders) > 1:
            inside = ", ".join(str(folder.relative_to(place)) for folder in folders)
            raise InputError(archive, f"contains several benchmarks ({inside}): unpack it and name one of them")
        try:
            yield folders[0]
        except InputError as error:  # names the path in the archive, not the temporary one
            raise InputError(archive / error.path.relative_to(place), error.problem, error.line) from None
