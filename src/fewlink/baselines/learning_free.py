"""The learning-free family: scorers that need no training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from fewlink.base.resolver import choose
from fewlink.base.settings import Settings
from fewlink.data.benchmark import Benchmark
from fewlink.graph import Graph
from fewlink.scorers import Scorer
from fewlink.scorers.reference_tails import ReferenceTailsScorer
from fewlink.scorers.rules import RulesScorer
from fewlink.scorers.simple import PopularityScorer, RandomScorer
from fewlink.training.family import SCORERS, BaselineFamily, Prepared, Reporter, load_entry_point, plugin_error

Maker = Callable[[Graph, int], Scorer]  # of a graph and a seed
LEARNING_FREE: dict[str, Maker] = {
    s.name: s for s in (RandomScorer, PopularityScorer, ReferenceTailsScorer, RulesScorer)
}


class LearningFreeFamily(BaselineFamily):
    """The built-in scorers, and those of other packages (entry points `fewlink.scorers`)."""

    name = "learning-free"
    seeded = False
    any_shots = True

    @property
    def models(self) -> Mapping[str, str]:
        return {name: (maker.__doc__ or "").strip().split("\n")[0] for name, maker in scorers().items()}

    def prepare(
        self,
        model: str,
        benchmark: Benchmark,
        settings: Settings | None = None,
        *,
        shots: int,
        draw: int = 0,
        seed: int = 0,
        on_epoch: Reporter | None = None,
    ) -> Prepared:
        return Prepared(learning_free(model, benchmark.graph, seed), {})


@functools.cache
def scorers() -> dict[str, Maker]:
    """The learning-free scorers by name; looking for those of other packages takes a while, so it is done once."""
    found = dict(LEARNING_FREE)
    for point in entry_points(group=SCORERS):
        if point.name in found:
            raise plugin_error(point, "has the name of another scorer")
        found[point.name] = load_entry_point(point)
        if not callable(found[point.name]):
            raise plugin_error(point, "is not a function of a graph and a seed that makes a scorer")
    return found


def learning_free(name: str, graph: Graph, seed: int = 0) -> Scorer:
    """The learning-free scorer of this name for a graph."""
    return choose("scorer", name, scorers())(graph, seed)


FAMILY = LearningFreeFamily()
