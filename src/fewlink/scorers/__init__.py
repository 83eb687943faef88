"""Scorers that need no training, and the names of all scorers."""

from collections.abc import Callable

from fewlink.choices import choose
from fewlink.graph import Graph
from fewlink.scorers.question import Question, Scorer, best_tails
from fewlink.scorers.reference_tails import ReferenceTailsScorer
from fewlink.scorers.rules import RulesScorer
from fewlink.scorers.simple import PopularityScorer, RandomScorer

LEARNING_FREE: dict[str, Callable[[Graph, int], Scorer]] = {
    s.name: s for s in (RandomScorer, PopularityScorer, ReferenceTailsScorer, RulesScorer)
}


def learning_free(name: str, graph: Graph, seed: int = 0) -> Scorer:
    """The scorer of this name for this graph."""
    return choose("scorer", name, LEARNING_FREE)(graph, seed)


__all__ = ["LEARNING_FREE", "Question", "Scorer", "best_tails", "learning_free"]
