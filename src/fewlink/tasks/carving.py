"""Carving few-shot tasks out of an ordinary graph: its relations of medium size become tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fewlink.core.errors import FewlinkError
from fewlink.core.seeds import generator
from fewlink.graph import Graph
from fewlink.graph.groups import Groups
from fewlink.tasks.benchmark import SPLITS, Benchmark, Task, sorted_pairs
from fewlink.tasks.candidates import task_of_pairs

BOUNDS = ((50, 500), (30, 500), (20, 500), (10, 500), (50, 5000), (20, 5000), (6, 5000))  # tried by `carve_any`
MIN_TASKS = 6  # with fewer, `carve_any` tries wider bounds
MIN_BACKGROUND_SHARE = 0.5  # `carve_any` leaves at least this share of the triples in the background
DEV_SHARE = TEST_SHARE = 0.15  # larger than by default: small graphs have few tasks, and one relation measures little


@dataclass(frozen=True)
class CarveSettings:
    """Which relations become tasks, and how they are split; the defaults are the paper's 50–500 rule and shares."""

    smallest: int = 50
    largest: int = 500
    dev_share: float = 0.08
    test_share: float = 0.16
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.smallest <= self.largest:
            raise FewlinkError(f"smallest is {self.smallest} and largest {self.largest}: use 2 <= smallest <= largest")
        if not (self.dev_share > 0 and self.test_share > 0 and self.dev_share + self.test_share < 1):  # NaN fails too
            raise FewlinkError(
                f"dev share is {self.dev_share} and test share {self.test_share}: use shares over 0 with a sum below 1"
            )


@dataclass(frozen=True)
class CarveReport:
    """What carving left out."""

    twins: list[tuple[str, str, str]]  # relation, `duplicate` or `inverse`, and the task relation
    dropped_pairs: int  # with an entity outside the background
    dropped_relations: list[str]  # with too few pairs left, or a single possible tail
    dropped_entities: int  # in no background triple

    def remarks(self) -> list[str]:
        """Remarks for the user, one for each kind of omission."""
        lines = [f"{r} is the exact {how} of {task}: removed from the background" for r, how, task in self.twins]
        if self.dropped_pairs:
            lines.append(f"{self.dropped_pairs:,} pairs dropped: one of their entities is in no background triple")
        if self.dropped_entities:
            lines.append(f"{self.dropped_entities:,} entities dropped: in no background triple")
        if count := len(self.dropped_relations):
            some = ", ".join(self.dropped_relations[:5]) + (", …" if count > 5 else "")
            lines.append(f"{count:,} relations dropped: too few pairs left, or a single possible tail ({some})")
        return lines


def carve(graph: Graph, name: str, settings: CarveSettings = CarveSettings()) -> tuple[Benchmark, CarveReport]:
    """Make a benchmark of a graph. Task relations and their exact inverses and duplicates leave the background."""
    pairs = pairs_by_relation(graph)
    tasks = [r for r, p in pairs.items() if settings.smallest <= len(p) <= settings.largest]
    twins = twins_of(pairs, tasks)
    tasks = [r for r in tasks if r not in twins]

    removed = np.array([*tasks, *twins], np.int64)
    rest = graph.without(removed)
    kept = np.flatnonzero(rest.degrees)  # entities of the background
    background = rest.renumbered(kept, np.setdiff1d(np.arange(len(graph.relations)), removed))
    number = np.full(len(graph.entities), -1, np.int32)
    number[kept] = np.arange(len(kept))

    whole = {r: p[(p >= 0).all(1)] for r, p in ((r, number[pairs[r]]) for r in tasks)}
    rng = generator(settings.seed, "carve")
    enough = [r for r in tasks if len(whole[r]) >= settings.smallest]
    twins |= twins_of(whole, enough)  # relations that became equal when pairs were dropped
    enough = [r for r in enough if r not in twins]
    carved = {r: task_of_pairs(background, graph.relations[r], rng.permutation(whole[r])) for r in enough}
    good = [r for r in enough if len(carved[r].range) > 1]
    if len(good) < len(SPLITS) or not background.triple_count:
        sizes = f"{settings.smallest} to {settings.largest}"
        raise FewlinkError(
            f"{name}: {len(good)} relations of {sizes} triples can be tasks, which leaves {background.triple_count:,} "
            f"background triples, but a benchmark needs {len(SPLITS)} tasks and a background: try other limits"
        )
    report = CarveReport(
        twins=[(graph.relations[r], how, graph.relations[of]) for r, (how, of) in twins.items()],
        dropped_pairs=sum(len(pairs[r]) - len(whole[r]) for r in tasks),
        dropped_relations=[graph.relations[r] for r in tasks if r not in good and r not in twins],
        dropped_entities=len(graph.entities) - len(kept),
    )
    return Benchmark(name, background, _split([carved[r] for r in good], settings, rng)), report


def carve_any(
    graph: Graph, name: str, *, seed: int, check: Callable[[Benchmark], None], source: str = ""
) -> tuple[Benchmark, list[str]]:
    """Make a benchmark of any graph, with task sizes that suit it, and return it with remarks.

    The first bounds that give enough tasks are used, or else those that give the most. `check` raises FewlinkError for
    a benchmark that cannot be used.
    """
    best: tuple[Benchmark, CarveReport, tuple[int, int]] | None = None
    for bounds in _bounds(graph):
        try:
            benchmark, report = carve(graph, name, CarveSettings(*bounds, DEV_SHARE, TEST_SHARE, seed))
            benchmark = replace(benchmark, source=source)
            check(benchmark)
        except FewlinkError:
            continue
        if best is None or _task_count(benchmark) > _task_count(best[0]):
            best = benchmark, report, bounds
        if _task_count(best[0]) >= MIN_TASKS:
            break
    if best is None:
        raise FewlinkError(
            f"{name}: no tasks can be carved out of {graph.triple_count:,} triples of {len(graph.relations):,} "
            f"relations: carving needs 3 relations of {BOUNDS[-1][0]} to {BOUNDS[-1][1]:,} triples, one of 20 or more, "
            "and as many other triples (fewlink data check FILE lists the relations)"
        )
    benchmark, report, bounds = best
    counts = ", ".join(f"{len(benchmark.tasks[split])} {split}" for split in SPLITS)
    remarks = [f"relations of {bounds[0]} to {bounds[1]} triples are tasks: {counts}"]
    if bounds != BOUNDS[0]:
        remarks.append(
            f"{BOUNDS[0][0]} to {BOUNDS[0][1]} triples would leave too few tasks or too small a background, "
            "so the metrics are less precise"
        )
    return benchmark, [*remarks, *report.remarks()]


def _bounds(graph: Graph) -> list[tuple[int, int]]:
    """The bounds to try, with the upper one lowered until tasks have at most half of the triples."""
    sizes = np.sort(np.bincount(graph.triples()[:, 1]))
    bounds = []
    for smallest, largest in BOUNDS:
        middling = sizes[(sizes >= smallest) & (sizes <= largest)]
        fits = np.cumsum(middling) <= (1 - MIN_BACKGROUND_SHARE) * graph.triple_count
        if not fits.all():  # relations of equal size stay or go together
            largest = int(middling[fits.argmin()]) - 1
        if largest >= smallest:
            bounds.append((smallest, largest))
    return bounds


def _task_count(benchmark: Benchmark) -> int:
    return sum(len(tasks) for tasks in benchmark.tasks.values())


def pairs_by_relation(graph: Graph) -> dict[int, np.ndarray]:
    """The pairs (n, 2) of each relation, computed once."""
    return graph.once(_pairs_by_relation)


def _pairs_by_relation(graph: Graph) -> dict[int, np.ndarray]:
    triples = graph.triples()
    count = len(graph.relations)
    groups = Groups.of(triples[:, 1], triples[:, [0, 2]], count)
    return {relation: groups[relation] for relation in range(count)}


def twins_of(pairs: dict[int, np.ndarray], tasks: list[int]) -> dict[int, tuple[str, int]]:
    """Relations that have exactly the pairs of an earlier task relation, or exactly their inverses."""
    keys = {r: sorted_pairs(p).tobytes() for r, p in pairs.items()}
    inverse = {r: sorted_pairs(pairs[r][:, ::-1]).tobytes() for r in tasks}
    by_key: dict[bytes, list[int]] = {}
    for relation, key in keys.items():
        by_key.setdefault(key, []).append(relation)
    twins: dict[int, tuple[str, int]] = {}
    for task in tasks:
        if task in twins:
            continue
        for how, key in (("duplicate", keys[task]), ("inverse", inverse[task])):
            for other in by_key.get(key, ()):
                if other != task and other not in twins:
                    twins[other] = (how, task)
    return twins


def _split(tasks: list[Task], settings: CarveSettings, rng: np.random.Generator) -> dict[str, list[Task]]:
    order = rng.permutation(len(tasks))
    dev = min(max(1, round(settings.dev_share * len(tasks))), len(tasks) - 2)  # leaves one for test and one for train
    test = min(max(1, round(settings.test_share * len(tasks))), len(tasks) - dev - 1)
    members = {"dev": order[:dev], "test": order[dev : dev + test], "train": order[dev + test :]}
    return {split: [tasks[i] for i in np.sort(members[split])] for split in SPLITS}
