"""What a scorer tells about one score, with names: TRAIL's evidence, or what FSRL and its kin attended to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fewlink.graph import Graph
from fewlink.models import FewShotScorer, TrailScorer
from fewlink.prediction.explanation import Entity, Explanation, Neighbour, Path, Reference, Step
from fewlink.scorers import Question, Scorer


def explain(scorer: Scorer, graph: Graph, references: np.ndarray, head: int, tail: int, most: int = 5) -> Explanation:
    """Why a scorer gives a pair its score, given references (K, 2); a scorer that tells nothing gives its score."""
    ends = entity_of(graph, head), entity_of(graph, tail)
    if isinstance(scorer, TrailScorer):
        return _by_trail(scorer, ends, references, head, tail, most)
    if isinstance(scorer, FewShotScorer):
        told = scorer.explain(references, head, tail, most)
        beta = references_with(graph, references, told.references)
        neighbours = [
            neighbour_of(graph, which, edge)
            for which, edges in zip(("head", "tail"), told.neighbours, strict=True)
            for edge in edges or ()
        ]
        return Explanation(*ends, told.score, {}, (), beta, tuple(neighbours))
    score = float(np.asarray(scorer(Question("", references, np.array([head]), np.array([tail]))))[0, 0])
    return Explanation(*ends, score, {}, (), references_with(graph, references, []), ())


def _by_trail(
    scorer: TrailScorer, ends: tuple[Entity, Entity], references: np.ndarray, head: int, tail: int, most: int
) -> Explanation:
    graph, told = scorer.known.graph, scorer.explain(references, head, tail, most)
    paths = []
    for relations, weight in told.trails:
        walked = instance(graph, head, relations, tail)
        steps = tuple(step_of(graph, relation) for relation in relations)
        paths.append(Path(steps, weight, tuple(entity_of(graph, entity) for entity in walked)))
    shares = dict(sorted(told.shares.items(), key=lambda share: -share[1]))
    neighbours = tuple(neighbour_of(graph, "tail", edge) for edge in told.neighbours)
    beta = references_with(graph, references, told.references)
    return Explanation(*ends, told.score, shares, tuple(paths), beta, neighbours, shared=True)


def instance(graph: Graph, head: int, relations: Sequence[int], tail: int) -> list[int]:
    """The entities of a path from head to tail along these relations, inverse ones included; none where none is there.

    Of several it takes the way over entities with few edges, which says more, and not twice over the same where it can.
    """
    reached = [np.array([head])]
    for relation in relations:
        at, _ = graph.edges_of(reached[-1])
        reached.append(np.unique(graph.tail_ids[at[graph.relation_ids[at] == relation]]))
    if tail not in reached[-1]:
        return []
    walked, count = [int(tail)], len(graph.relations)
    for relation, before in zip(reversed(relations), reversed(reached[:-1]), strict=True):
        back = (relation + count) % (2 * count)
        at, _ = graph.edges_of(np.array([walked[-1]]))
        beside = np.intersect1d(graph.tail_ids[at[graph.relation_ids[at] == back]], before)
        seen = np.isin(beside, [*walked, head])
        walked.append(int(beside[np.lexsort((beside, graph.degrees[beside], seen))[0]]))
    return walked[::-1]


def entity_of(graph: Graph, entity: int) -> Entity:
    return Entity(graph.entities[entity], graph.name(entity))


def step_of(graph: Graph, relation: int) -> Step:
    inverse, forward = divmod(relation, len(graph.relations))
    return Step(graph.relation_name(forward), bool(inverse))


def neighbour_of(graph: Graph, which: str, edge: tuple[int, int, float]) -> Neighbour:
    relation, entity, weight = edge
    step = step_of(graph, relation)
    return Neighbour(which, step.relation, step.inverse, entity_of(graph, entity), weight)


def references_with(graph: Graph, references: np.ndarray, weights: Sequence[float]) -> tuple[Reference, ...]:
    """References with their weights, where there are any."""
    each: Sequence[float | None] = weights or [None] * len(references)
    return tuple(
        Reference(entity_of(graph, int(head)), entity_of(graph, int(tail)), weight)
        for (head, tail), weight in zip(references, each, strict=True)
    )
