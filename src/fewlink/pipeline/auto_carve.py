"""Which relations of a graph become tasks when nobody says: 50 to 500 triples, or what a small graph has."""

from __future__ import annotations

import numpy as np

from fewlink.base.errors import FewlinkError
from fewlink.data import Benchmark, CarveReport, CarveSettings, carve
from fewlink.graph import Graph
from fewlink.training.family import ModelSettings
from fewlink.training.trainer import check

BOUNDS = ((50, 500), (30, 500), (20, 500), (10, 500), (50, 5000), (20, 5000), (6, 5000))
ENOUGH = 6  # tasks: fewer than that, and wider bounds are tried
BACKGROUND = 0.5  # share of the triples that stays background, at least
DEV, TEST = 0.15, 0.15  # shares of the tasks: carved graphs have few, and one relation alone is a poor measure


def carve_any(graph: Graph, name: str, settings: ModelSettings) -> tuple[Benchmark, list[str]]:
    """A benchmark that a model can be trained on, and what to say about it.

    The first bounds that give enough tasks are taken, or else those that give most.
    """
    best: tuple[Benchmark, CarveReport, tuple[int, int]] | None = None
    for bounds in _bounds(graph):
        found = _carved(graph, name, bounds, settings)
        if found and (best is None or _count(found[0]) > _count(best[0])):
            best = (*found, bounds)
        if best and _count(best[0]) >= ENOUGH:
            break
    if best is None:
        raise FewlinkError(
            f"{name}: no tasks can be carved out of {graph.triple_count:,} triples of {len(graph.relations):,} "
            f"relations: at least 3 relations of {BOUNDS[-1][0]} to {BOUNDS[-1][1]:,} triples, one of 20 or more, and "
            "as many triples beside them are needed; fewlink data check FILE shows what there is"
        )
    benchmark, report, bounds = best
    notes = [f"{len(benchmark.tasks[split])} {split}" for split in ("train", "dev", "test")]
    told = [f"relations of {bounds[0]} to {bounds[1]} triples are tasks: {', '.join(notes)}"]
    if bounds != BOUNDS[0]:
        told.append(
            f"bounds of {BOUNDS[0][0]} to {BOUNDS[0][1]} triples would leave too few tasks or too small a background: "
            "the figures are rougher"
        )
    return benchmark, [*told, *report.remarks()]


def _carved(
    graph: Graph, name: str, bounds: tuple[int, int], settings: ModelSettings
) -> tuple[Benchmark, CarveReport] | None:
    """A benchmark of these bounds, where one can be made and learnt on."""
    try:
        benchmark, report = carve(graph, name, CarveSettings(*bounds, DEV, TEST, settings.seed))
        check(benchmark, settings)
    except FewlinkError:
        return None
    return benchmark, report


def _bounds(graph: Graph) -> list[tuple[int, int]]:
    """Bounds to try: the larger one falls until tasks are at most half of the triples."""
    sizes = np.sort(np.bincount(graph.triples()[:, 1]))
    found = []
    for smallest, largest in BOUNDS:
        middling = sizes[(sizes >= smallest) & (sizes <= largest)]
        fits = np.cumsum(middling) <= (1 - BACKGROUND) * graph.triple_count
        if not fits.all():  # relations of one size stay or go together
            largest = int(middling[fits.argmin()]) - 1
        if largest >= smallest:
            found.append((smallest, largest))
    return found


def _count(benchmark: Benchmark) -> int:
    return sum(len(tasks) for tasks in benchmark.tasks.values())
