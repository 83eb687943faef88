"""The reasons that a scorer gives for a pair, as an explanation with readable names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from fewlink.graph import Graph
from fewlink.linker.explanation import (
    REFERENCE,
    EdgesAtTail,
    End,
    Explanation,
    LikeName,
    Named,
    Neighbour,
    Path,
    Reference,
    Step,
)
from fewlink.linker.names import entity_of
from fewlink.linker.paths import direct_relations, distance, simple_path
from fewlink.scorers import ExplainingScorer, Question, Reasons, Scorer, capabilities

MOST_DIRECT = 3  # edges between head and tail that are named


def explain_pair(
    scorer: Scorer, graph: Graph, references: np.ndarray, head: int, tail: int, most: int = 5, inverse: bool = False
) -> Explanation:
    """Why a scorer gives a pair its score, given references (K, 2); scorers without reasons give only the score.

    `inverse`: the pair and the references are read from tail to head.
    """
    if isinstance(scorer, ExplainingScorer):
        reasons, evidence = scorer.explain(references, head, tail, most), capabilities(scorer).evidence
    else:
        score = float(np.asarray(scorer(Question("", references, np.array([head]), np.array([tail]))))[0, 0])
        reasons, evidence = Reasons(score), {}
    graph = reasons.graph or graph
    paths = []
    for place, (relations, weight) in enumerate(reasons.paths):
        walked = list(reasons.entities[place]) if reasons.entities else simple_path(graph, head, relations, tail)
        if not walked:
            continue
        of_graph = walked[0] == head and max(relations) < 2 * len(graph.relations)
        like = joined(graph, references, relations) if of_graph else None
        path = path_of(graph, walked, relations, weight, like)
        paths.append(replace(path, steps=tuple(map(_turned, path.steps))) if inverse else path)
    direct = [path for path in paths if len(path.steps) == 1 and path.like is not None] or [
        path_of(graph, [head, tail], [relation], None, joined(graph, references, [relation]))
        for relation in direct_relations(graph, head, tail)[:MOST_DIRECT]
    ]
    paths = [*direct, *(path for path in paths if path not in direct)]
    named = any(path.entities[0].id == graph.entities[head] and path.counts() for path in paths)
    return Explanation(
        entity_of(graph, head),
        entity_of(graph, tail),
        reasons.score,
        dict(sorted(reasons.shares.items(), key=lambda share: -share[1])),
        tuple(paths),
        references_with(graph, references, reasons.references),
        tuple(neighbour_of(graph, *edge) for edge in reasons.neighbours),
        reasons.shared,
        evidence,
        reasons.measured,
        reasons.together,
        None if named or not reasons.measured else distance(graph, head, tail),
        tuple(edges_of_tail(graph, *each) for each in reasons.at_tail),
        tuple(LikeName(cast(Named, of), entity_of(graph, like), weight) for of, like, weight in reasons.names),
        inverse,
    )


def joined(graph: Graph, references: np.ndarray, relations: Sequence[int]) -> int:
    """How many references a path along these relations joins."""
    return sum(bool(simple_path(graph, head, relations, tail)) for head, tail in references.tolist())


def path_of(
    graph: Graph, walked: Sequence[int], relations: Sequence[int], weight: float | None, like: int | None
) -> Path:
    steps, entities = (step_of(graph, r) for r in relations), (entity_of(graph, entity) for entity in walked)
    return Path(tuple(steps), weight, tuple(entities), like)


def _turned(step: Step) -> Step:
    """A step as seen from the tail of a question for heads: references are read backwards."""
    return Step(REFERENCE, not step.inverse) if step.relation == REFERENCE else step


def edges_of_tail(graph: Graph, relation: int, count: int, weight: float) -> EdgesAtTail:
    step = step_of(graph, relation)
    return EdgesAtTail(step.relation, step.inverse, count, weight)


def step_of(graph: Graph, relation: int) -> Step:
    inverse, forward = divmod(relation, len(graph.relations))
    if inverse >= 2:
        return Step(REFERENCE, relation > 2 * len(graph.relations))
    return Step(graph.relation_name(forward), bool(inverse))


def neighbour_of(graph: Graph, which: str, relation: int, entity: int, weight: float) -> Neighbour:
    step = step_of(graph, relation)
    return Neighbour(cast(End, which), step.relation, step.inverse, entity_of(graph, entity), weight)


def references_with(graph: Graph, references: np.ndarray, weights: Sequence[float]) -> tuple[Reference, ...]:
    """References with their weights; those that the scorer did not read have none."""
    each: Sequence[float | None] = [*weights, *[None] * (len(references) - len(weights))]
    return tuple(
        Reference(entity_of(graph, int(head)), entity_of(graph, int(tail)), weight)
        for (head, tail), weight in zip(references, each, strict=True)
    )
