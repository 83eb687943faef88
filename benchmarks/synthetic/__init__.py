"""Synthetic benchmarks with the shape of NELL-One or Wiki-One, as folders of the NELL-One layout.

They serve to test sizes and rules that no available data has. Each is a function of (like, entities, triples, seed).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from fewlink.core.errors import FewlinkError, choose
from fewlink.core.files import new_folder, write_json
from fewlink.core.progress import progress
from fewlink.core.seeds import generator
from fewlink.tasks.benchmark import SPLITS
from fewlink.tasks.catalogue import CATALOGUE
from synthetic.graph import GeneratedGraph, generate_graph
from synthetic.tasks import PlantedTask, plant_tasks

FORMAT = "fewlink-generated/1"
LIKE = ("nell-one", "wiki-one")
MIN_ENTITIES = 500
MIN_TRIPLES = 2000
MAX_TRIPLES_PER_ENTITY = 20
TYPES_PER_RELATION = 0.95  # in NELL-One
MIN_TYPES = 8
MIN_RELATIONS = 24
TASK_PAIRS = (50, 500)  # fewest and most pairs of a task
MIN_TRIPLES_PER_PAIR = (200, 50)  # in a graph of n triples they are at most n/200 and n/50
ROWS_AT_ONCE = 1 << 18  # per write


@dataclass(frozen=True)
class Shape:
    """The sizes of a synthetic benchmark: `tasks` by split; `pairs`, the fewest and most of a task."""

    like: str
    entities: int
    triples: int
    relations: int
    types: int
    tasks: dict[str, int]
    pairs: tuple[int, int]


def shape_of(like: str, entities: int | None = None, triples: int | None = None) -> Shape:
    """The shape of a benchmark with these numbers of entities and triples, by default the published ones.

    If one number is None, it is in proportion to the other. A smaller graph has fewer relations, types and tasks.
    """
    counts = choose("benchmark to imitate", like, {name: CATALOGUE[name] for name in LIKE}).counts
    assert counts is not None
    published_entities, published_triples, published_relations, published_tasks = counts
    if entities is None:
        size = published_triples if triples is None else triples
        entities = max(size * published_entities // published_triples, MIN_ENTITIES)
    if triples is None:
        triples = max(entities * published_triples // published_entities, MIN_TRIPLES)
    if entities < MIN_ENTITIES:
        raise FewlinkError(f"{entities:,} entities are too few for a synthetic graph: use at least {MIN_ENTITIES}")
    least = max(entities, MIN_TRIPLES)
    if not least <= triples <= MAX_TRIPLES_PER_ENTITY * entities:
        limits = f"{least:,} to {MAX_TRIPLES_PER_ENTITY * entities:,}"
        raise FewlinkError(f"a synthetic graph of {entities:,} entities cannot have {triples:,} triples: use {limits}")
    scale = min(1.0, math.cbrt(triples / published_triples))
    types = TYPES_PER_RELATION * published_relations * min(1.0, math.sqrt(entities / published_entities))
    smallest, largest = (
        min(most, triples // share) for most, share in zip(TASK_PAIRS, MIN_TRIPLES_PER_PAIR, strict=True)
    )
    return Shape(
        like,
        entities,
        triples,
        relations=max(round(published_relations * scale), MIN_RELATIONS),
        types=max(round(types), MIN_TYPES),
        tasks={split: max(round(n * scale), 1) for split, n in zip(SPLITS, published_tasks, strict=True)},
        pairs=(smallest, largest),
    )


@dataclass(frozen=True, eq=False)
class GeneratedNames:
    """Names as zero-padded bytes; `relations` has those of the background, then those of the tasks.

    `order` (entities,) are the entity ids sorted by the number in their names.
    """

    entities: np.ndarray
    relations: np.ndarray
    types: np.ndarray
    order: np.ndarray


def generate(
    out: Path, like: str, entities: int | None = None, triples: int | None = None, seed: int = 0
) -> dict[str, Any]:
    """Write a benchmark that imitates a published one to a new folder, atomically, and return its counts."""
    shape = shape_of(like, entities, triples)
    if os.path.lexists(out):
        raise FewlinkError(f"{out} exists: remove it or choose another folder")
    facts = {"like": like, "entities": shape.entities, "triples": shape.triples, "seed": seed}
    with new_folder(Path(out), FORMAT, facts) as folder:
        graph = generate_graph(shape.entities, shape.triples, shape.types, shape.relations, seed)
        tasks = plant_tasks(graph, shape.tasks, shape.pairs, seed)
        names = _names(shape, graph, seed)
        _write_graph(folder, graph, names, seed)
        _write_names(folder, shape, graph, names)
        _write_tasks(folder, graph, tasks, names)
    return {
        "entities": shape.entities,
        "background triples": shape.triples,
        "background relations": shape.relations,
        "entity types": shape.types,
        **{f"{split} tasks": len(members) for split, members in tasks.items()},
        **{f"{split} pairs": sum(len(t.pairs) for t in members) for split, members in tasks.items()},
    }


def _names(shape: Shape, graph: GeneratedGraph, seed: int) -> GeneratedNames:
    """Make names: `concept:type:name` as in NELL-One, or Q and P with a number, without a type, as in Wiki-One."""
    rng = generator(seed, "generate", "names")
    relation_count = shape.relations + sum(shape.tasks.values())
    numbers = rng.permutation(shape.entities)
    relation_numbers = rng.permutation(relation_count)
    order = np.empty_like(numbers)
    order[numbers] = np.arange(len(numbers))
    types = _numbered(b"type", np.arange(shape.types))
    if shape.like == "wiki-one":
        return GeneratedNames(_numbered(b"Q", numbers + 1), _numbered(b"P", relation_numbers + 1), types, order)
    prefixes = np.char.add(np.char.add(b"concept:", types), b":e")[graph.population.types]
    return GeneratedNames(_numbered(prefixes, numbers), _numbered(b"concept:relation", relation_numbers), types, order)


def _numbered(word: bytes | np.ndarray, numbers: np.ndarray) -> np.ndarray:
    width = len(str(int(numbers.max(initial=0))))
    return np.char.add(word, numbers.astype(f"S{width}"))


def _write_graph(folder: Path, graph: GeneratedGraph, names: GeneratedNames, seed: int) -> None:
    """Write `path_graph`, in random order."""
    sizes = [len(p) for p in graph.pairs]
    order = generator(seed, "generate", "order").permutation(sum(sizes))
    relations = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[order]
    heads, tails = np.concatenate(graph.pairs).astype(np.int32)[order].T
    entities = names.entities
    tab = b"\t"
    columns: list[Column] = [(entities, heads), tab, (names.relations, relations), tab, (entities, tails), b"\n"]
    with (folder / "path_graph").open("wb") as file, progress("writing triples", len(order)) as advance:
        _write_rows(file, columns, advance)


def _write_names(folder: Path, shape: Shape, graph: GeneratedGraph, names: GeneratedNames) -> None:
    """Write `ent2ids` and `relation2ids`, and `entity2type.tsv` if names have no type."""
    numbers = np.arange(shape.entities)
    with (folder / "ent2ids").open("wb") as file, progress("writing names", shape.entities) as advance:
        columns: list[Column] = [b'"', (names.entities, names.order), b'": ', (_numbered(b"", numbers), numbers)]
        _write_json_rows(file, b"{}", columns, advance)
    if shape.like == "wiki-one":
        types = graph.population.types[names.order]
        with (folder / "entity2type.tsv").open("wb") as file, progress("writing types", shape.entities) as advance:
            _write_rows(file, [(names.entities, names.order), b"\t", (names.types, types), b"\n"], advance)
    both = [name + end for end in ("", "_inv") for name in _text(names.relations[: shape.relations])]
    _write_json(folder / "relation2ids", {name: number for number, name in enumerate(both)})


def _write_tasks(
    folder: Path, graph: GeneratedGraph, tasks: dict[str, list[PlantedTask]], names: GeneratedNames
) -> None:
    """Write the tasks of each split, their known answers and ranges, and the planted rules."""
    task_names = iter(_text(names.relations[len(graph.relations) :]))
    known: dict[str, list[str]] = {}
    planted: dict[str, dict[str, Any]] = {}
    with (folder / "rel2candidates.json").open("wb") as file:
        for split, members in tasks.items():
            triples: dict[str, list[list[str]]] = {}
            for task in members:
                name = next(task_names)
                heads, tails = (_text(names.entities[column]) for column in task.pairs.T)
                triples[name] = [[h, name, t] for h, t in zip(heads, tails, strict=True)]
                for head, tail in zip(heads, tails, strict=True):
                    known.setdefault(head + name, []).append(tail)
                file.write(f'{", " if planted else "{"}"{name}": '.encode())
                _write_json_rows(file, b"[]", [b'"', (names.entities, _range(graph, task, names)), b'"'])
                planted[name] = {"split": split, **_readable(task.rule, graph, names)}
            _write_json(folder / f"{split}_tasks.json", triples)
        file.write(b"}")
    _write_json(folder / "e1rel_e2.json", known)
    write_json(folder / "planted.json", {"tasks": planted, "background": _background(graph, names)})


def _range(graph: GeneratedGraph, task: PlantedTask, names: GeneratedNames) -> np.ndarray:
    """The entities that share a type with a tail, sorted by name."""
    population = graph.population
    types = np.unique(population.types[task.pairs[:, 1]])
    members = np.concatenate([population.starts[k] + np.arange(population.sizes[k]) for k in types])
    return members[np.argsort(names.entities[members], kind="stable")]


def _readable(rule: dict[str, Any], graph: GeneratedGraph, names: GeneratedNames) -> dict[str, Any]:
    """A rule with names instead of numbers; the name of an inverse relation ends in _inv, as in relation2ids."""
    rule = dict(rule)
    count = len(graph.relations)
    if "path" in rule:
        rule["path"] = [_text(names.relations[[r % count]])[0] + "_inv" * (r >= count) for r in rule["path"]]
    if "types" in rule:
        rule["types"] = _text(names.types[rule["types"]])
    return rule


def _background(graph: GeneratedGraph, names: GeneratedNames) -> dict[str, dict[str, Any]]:
    relation_names = _text(names.relations)
    return {
        relation_names[number]: {
            "triples": len(graph.pairs[number]),
            "head types": _text(names.types[r.sides[0]]),
            "tail types": _text(names.types[r.sides[1]]),
            "signs": r.codes.signs,
            "swap": r.codes.swap,
            "repeats": None if r.repeats is None else relation_names[r.repeats] + "_inv" * r.inverted,
        }
        for number, r in enumerate(graph.relations)
    }


# the same bytes in every row, or a table and the index of each row in it
Column = bytes | tuple[np.ndarray, np.ndarray]


def _write_rows(file: IO[bytes], columns: Sequence[Column], advance: Callable[[float], None] | None = None) -> None:
    """Write rows of bytes, many at once, without padding."""
    count = max(len(c[1]) for c in columns if not isinstance(c, bytes))
    for begin in range(0, count, ROWS_AT_ONCE):
        end = min(begin + ROWS_AT_ONCE, count)
        blocks = [
            np.tile(np.frombuffer(c, np.uint8), (end - begin, 1))
            if isinstance(c, bytes)
            else c[0][c[1][begin:end]].view(np.uint8).reshape(end - begin, -1)
            for c in columns
        ]
        flat = np.concatenate(blocks, axis=1).ravel()
        file.write(flat[flat != 0].tobytes())
        if advance:
            advance(end)


def _write_json_rows(
    file: IO[bytes], brackets: bytes, columns: Sequence[Column], advance: Callable[[float], None] | None = None
) -> None:
    """Write rows as the members of a JSON list or object."""
    file.write(brackets[:1])
    _write_rows(file, [c if isinstance(c, bytes) else (c[0], c[1][:1]) for c in columns])
    if any(len(c[1]) > 1 for c in columns if not isinstance(c, bytes)):
        rest = [c if isinstance(c, bytes) else (c[0], c[1][1:]) for c in columns]
        _write_rows(file, [b", ", *rest], advance)
    file.write(brackets[1:])


def _write_json(path: Path, content: Any) -> None:
    path.write_bytes(json.dumps(content).encode())


def _text(names: np.ndarray) -> list[str]:
    return [name.decode() for name in names.tolist()]
