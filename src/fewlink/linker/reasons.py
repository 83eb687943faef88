"""The reasons for the score of a pair: paths of the graph, drawn with arrows, and other evidence.

FIN7 —uses→ Carbanak ←uses— APT38 (example) → Windows
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from fewlink.core.errors import shown
from fewlink.core.seeds import by_hash
from fewlink.graph import Graph
from fewlink.linker.names import Entity, Names, arrow, entity_of, short_relation, without_kinds
from fewlink.models.contract import EMBEDDING, ExplainingScorer, Question, Reasons, Scorer, capabilities

EXAMPLE = "example"  # the relation of a step between the ends of a reference, unless the relation has a name
REST = "the rest"
SHOWN_PATHS = 3  # and as many neighbours, unless everything is wanted
MIN_WEIGHT = 0.005  # smaller contributions would read as 0.00
CONVINCING = 0.2  # a convincing reason has at least this share of the largest weight
MAX_DIRECT = 3  # edges between head and tail
MAX_REFERENCES = 32  # that are listed, and that paths are compared with
MAX_VISITED = 2_000  # entities, in the search for a path without a repeated entity


@dataclass(frozen=True)
class ReasonStep:
    """A step of a path: along the relation if `forward`, else against it.

    An `example` step joins the ends of a reference, so its relation is the one in question.
    """

    start: str
    relation: str
    end: str
    forward: bool
    example: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "from": self.start,
            "relation": self.relation,
            "to": self.end,
            "forward": self.forward,
            "example": self.example,
        }


@dataclass(frozen=True)
class ReasonPath:
    """A path from the pair's head, or else from an end of a reference, to the pair's tail.

    steps      one for each edge
    entities   along the path, one more than steps
    weight     what the score loses without the path; None if the model does not say
    alike      how many of the compared references the same relations join; None if that was not counted
    from_head  whether it begins at the pair's head
    """

    steps: tuple[ReasonStep, ...]
    entities: tuple[Entity, ...]
    weight: float | None = None
    alike: int | None = None
    from_head: bool = True

    def __str__(self) -> str:
        texts = []
        for place, step in enumerate(self.steps):
            is_example = step.example or (place == 0 and not self.from_head)
            texts.append(f"{step.start} (example)" if is_example else step.start)
            texts.append(arrow("" if step.relation == EXAMPLE else step.relation, step.forward))
        return shown(" ".join([*texts, self.steps[-1].end]))

    @property
    def counts(self) -> bool:
        """Whether the score is lower without the path."""
        return self.weight is not None and self.weight >= MIN_WEIGHT

    @property
    def is_edge(self) -> bool:
        """Whether it is a single edge of the graph from head to tail."""
        return self.from_head and len(self.steps) == 1 and not self.steps[0].example

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": str(self),
            "steps": [step.to_dict() for step in self.steps],
            "entities": [asdict(entity) for entity in self.entities],
            "weight": self.weight,
            "alike": self.alike,
        }


@dataclass(frozen=True)
class WeighedReference:
    """A reference with what the score loses without it, or its attention (β); None if the model says neither."""

    head: Entity
    tail: Entity
    weight: float | None


@dataclass(frozen=True)
class Neighbour:
    """A neighbour of the pair's head or tail (`of`) with its weight.

    FSRL weighs neighbours by its attention (α). TRAIL lists edges that the tail shares with the references' tails.
    """

    of: str
    relation: str
    forward: bool
    entity: Entity
    weight: float

    def __str__(self) -> str:
        return f"{arrow(self.relation, self.forward)} {self.entity.name}"


@dataclass(frozen=True, repr=False)
class Explanation:
    """The reasons for the score of one pair. An entity that shares its name with another one shows its id, too.

    head, tail  the pair, as the question was asked: for the heads of a tail, `head` is that tail
    parts       the score as a sum: what it loses without each kind of evidence, and the rest; may be empty
    paths       edges from head to tail, then convincing paths, the shortest first, then others
    compared    the number of references that paths were compared with
    references  with their weights; of many, those nearest to the pair
    neighbours  of head and tail
    notes       the evidence that is no path, one line each
    """

    head: Entity
    tail: Entity
    score: float
    parts: Mapping[str, float]
    paths: tuple[ReasonPath, ...] = ()
    compared: int = 0
    references: tuple[WeighedReference, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self, full: bool = False) -> list[str]:
        """The reasons as lines of text: the best paths first, then the other evidence.

        If `full`, all paths with their weights, all references with theirs, and the score as a sum.
        """
        told = [path for path in self.paths if path.counts or path.is_edge]
        lines = [self._line(path, full) for path in (told if full else told[:SHOWN_PATHS])]
        lines += self.notes
        if full or not told:
            lines += self._beside(self.tail, "tail") + self._beside(self.head, "head")
        if full:
            lines += [
                f"reference {each.head.name} → {each.tail.name}: {each.weight:.2f}"
                for each in self.references
                if each.weight is not None and abs(each.weight) >= MIN_WEIGHT
            ]
        if full or not lines:
            lines.append(self._sum())
        return [shown(line) for line in lines]

    def _line(self, path: ReasonPath, full: bool) -> str:
        text = str(path)
        if path.alike is not None and self.compared:
            text += f"  · {path.alike} of {self.compared} references alike"
        if full and path.weight is not None:
            text += f"  · {path.weight:+.2f}"
        return text

    def _beside(self, end: Entity, which: str) -> list[str]:
        """The neighbours of an end of the pair that count most, in one line."""
        near = [each for each in self.neighbours if each.of == which and each.weight > 0][:SHOWN_PATHS]
        return [f"beside {end.name}: {', '.join(map(str, near))}"] if near else []

    def _sum(self) -> str:
        parts = ", ".join(f"{part} {value:+.2f}" for part, value in self.parts.items())
        return f"score {self.score:.2f}" + (f": {parts}" if parts else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            **asdict(self),
            "parts": dict(self.parts),
            "paths": [path.to_dict() for path in self.paths],
            "lines": self.lines(),
        }

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def explain_pair(
    scorer: Scorer,
    graph: Graph,
    references: np.ndarray,
    head: int,
    tail: int,
    *,
    relation: str | None = None,
    inverse: bool = False,
    corrected: Scorer | None = None,
) -> Explanation:
    """Explain the score of a pair, given references (K, 2); for a scorer without reasons, only the score is known.

    `relation` is the name of the references' relation. If `inverse`, the pair and the references are read from tail to
    head. `corrected` is the scorer after the decisions of a project, if there are any.
    """
    if isinstance(scorer, ExplainingScorer):
        reasons = scorer.explain(references, head, tail)
        evidence = dict(capabilities(scorer).evidence)
    else:
        reasons = Reasons(_score(scorer, references, head, tail))
        evidence = {}
    shares = dict(sorted(reasons.shares.items(), key=lambda share: -share[1]))
    score = reasons.score
    if corrected is not None:
        change = _score(corrected, references, head, tail) - _score(scorer, references, head, tail)
        score += change
        shares["rejected pairs"] = change
    if inverse:  # the words are those of a question for tails
        ends = {"head": "tail", "tail": "head"}
        evidence = {kind: re.sub(r"\b(head|tail)", lambda end: ends[end[0]], text) for kind, text in evidence.items()}
    graph = reasons.graph or graph
    compared = by_hash(references)[:MAX_REFERENCES]
    walks = _walks(graph, reasons, compared, head, tail)
    listed = np.arange(len(references))
    if len(references) > MAX_REFERENCES:  # those with this tail, then with this head, then others
        listed = np.lexsort((references[:, 0] != head, references[:, 1] != tail))[:MAX_REFERENCES]
    numbers = [head, tail, *references[listed].flatten().tolist()]
    numbers += [entity for walk in walks for entity in walk.entities]
    numbers += [neighbour[2] for neighbour in reasons.neighbours]
    entities = _distinguishable(graph, numbers)
    paths = [_path(graph, entities, walk, head, relation, inverse) for walk in walks]
    count = len(graph.relations)
    neighbours = tuple(
        Neighbour(of, graph.relation_name(edge % count), edge < count, entities[entity], weight)
        for of, edge, entity, weight in reasons.neighbours
    )
    weights = dict(enumerate(reasons.references))
    weighed = tuple(
        WeighedReference(entities[first], entities[last], weights.get(place))
        for place, (first, last) in zip(listed.tolist(), references[listed].tolist(), strict=True)
    )
    return Explanation(
        head=entities[head],
        tail=entities[tail],
        score=score,
        parts=_parts(score, shares, evidence),
        paths=tuple(_best_first(paths)),
        compared=len(compared),
        references=weighed,
        neighbours=neighbours,
        notes=tuple(_notes(graph, reasons, evidence.get(EMBEDDING, EMBEDDING), references, (head, tail), paths)),
    )


class Walk(NamedTuple):
    """A path by ids: its relations, where 2R is that of the references and 2R + 1 its inverse, and its entities."""

    relations: tuple[int, ...]
    entities: tuple[int, ...]
    weight: float | None
    alike: int | None


def _path(
    graph: Graph, entities: Mapping[int, Entity], walk: Walk, head: int, asked: str | None, inverse: bool
) -> ReasonPath:
    """A path by names; `asked` is the name of the references' relation."""
    count = len(graph.relations)
    types_of = Names(graph).types_of
    steps = []
    for relation, start, end in zip(walk.relations, walk.entities, walk.entities[1:], strict=False):
        example = relation >= 2 * count
        if example:
            label = asked or EXAMPLE
            backward = (relation > 2 * count) != inverse
        else:
            label = graph.relation_name(relation % count)
            backward = relation >= count
        ends = (end, start) if backward else (start, end)
        label = without_kinds(short_relation(label), *map(types_of, ends))
        steps.append(ReasonStep(entities[start].name, label, entities[end].name, not backward, example))
    named = tuple(entities[entity] for entity in walk.entities)
    return ReasonPath(tuple(steps), named, walk.weight, walk.alike, walk.entities[0] == head)


def drawn(graph: Graph, relations: Sequence[int], entities: Sequence[int]) -> str:
    """A path of the graph, drawn with arrows."""
    walk = Walk(tuple(relations), tuple(entities), None, None)
    return str(_path(graph, _distinguishable(graph, entities), walk, entities[0], None, False))


def _walks(graph: Graph, reasons: Reasons, compared: np.ndarray, head: int, tail: int) -> list[Walk]:
    """The edges from head to tail and the paths of the reasons, each with the number of references joined alike."""

    def alike(relations: Sequence[int]) -> int:
        return sum(bool(simple_path(graph, first, relations, last)) for first, last in compared.tolist())

    walks = []
    for place, (relations, weight) in enumerate(reasons.paths):
        entities = reasons.entities[place] if reasons.entities else simple_path(graph, head, relations, tail)
        if entities:
            in_graph = entities[0] == head and max(relations) < 2 * len(graph.relations)
            walks.append(Walk(tuple(relations), tuple(entities), weight, alike(relations) if in_graph else None))
    if head != tail and not any(len(walk.relations) == 1 and walk.alike is not None for walk in walks):
        edges = graph.between(head, tail, reasons.visible).tolist()
        walks += [Walk((edge,), (head, tail), None, alike([edge])) for edge in edges[:MAX_DIRECT]]
    return walks


def _best_first(paths: Sequence[ReasonPath]) -> list[ReasonPath]:
    """Edges from head to tail, then convincing paths from the head, its other paths, and those from references.

    A path convinces if neither its weight nor the number of references that it joins is far below the largest. Shorter
    paths come first; of one length, those that join most references.
    """
    own = [path for path in paths if path.from_head]
    weight = CONVINCING * max((path.weight or 0.0 for path in own), default=0.0)
    alike = CONVINCING * max((path.alike or 0 for path in own), default=0)

    def order(path: ReasonPath) -> tuple[float, ...]:
        weak = not path.counts or (path.weight or 0.0) < weight or (path.alike or 0) < alike
        return not path.is_edge, not path.from_head, weak, len(path.steps), -(path.alike or 0), -(path.weight or 0.0)

    return sorted(paths, key=order)


def _parts(score: float, shares: Mapping[str, float], evidence: Mapping[str, str]) -> dict[str, float]:
    """The score as a sum, to two decimals; the rest is what no kind of evidence adds, or several only together."""
    parts = {evidence.get(kind, kind): round(share, 2) for kind, share in shares.items() if abs(share) >= MIN_WEIGHT}
    rest = round(round(score, 2) - sum(parts.values()), 2)
    return {**parts, REST: rest} if parts and rest else parts


def _notes(
    graph: Graph,
    reasons: Reasons,
    embedding: str,
    references: np.ndarray,
    pair: tuple[int, int],
    paths: Sequence[ReasonPath],
) -> list[str]:
    """The evidence that is no path; `embedding` is what an embedding model is called."""
    head, tail = pair
    notes = []
    if (references == pair).all(1).any():
        notes.append("the pair is one of the references")
    counting = (path.alike is not None and (path.weight is None or path.counts) for path in paths)
    if reasons.measured and not any(counting):
        notes.append(f"no path from {graph.name(head)} counts")
    same = int((references[:, 1] == tail).sum())
    if same:
        notes.append(f"{same:,} of {len(references):,} references end in {graph.name(tail)}, too")
    added = reasons.shares.get(EMBEDDING, 0.0)
    if abs(added) >= MIN_WEIGHT:
        notes.append(f"{embedding}: {added:+.2f}, without a path")
    least = max(CONVINCING * max(reasons.shares.values(), default=0.0), MIN_WEIGHT)
    alike = [(weight, number) for _, number, weight in reasons.names if weight >= least and number != tail]
    if alike:
        notes.append(f"names alike: {graph.name(tail)}, {graph.name(max(alike)[1])}")
    return notes


def _score(scorer: Scorer, references: np.ndarray, head: int, tail: int) -> float:
    return float(np.asarray(scorer(Question("", references, np.array([head]), np.array([tail]))))[0, 0])


def _distinguishable(graph: Graph, numbers: Iterable[int]) -> dict[int, Entity]:
    """Entities by number; the names of those that share one are followed by their ids."""
    entities = {number: entity_of(graph, number) for number in set(numbers)}
    counts = Counter(entity.name for entity in entities.values())
    return {
        number: entity if counts[entity.name] == 1 else Entity(entity.id, f"{entity.name} ({entity.id})")
        for number, entity in entities.items()
    }


def simple_path(graph: Graph, head: int, relations: Sequence[int], tail: int) -> list[int]:
    """The entities of a path from head to tail along these relations, which may be inverse, without repeats.

    Of several paths it prefers one through entities with few edges, which are more informative. Empty if there is no
    path, or if the search visits too many entities.
    """
    if head == tail:
        return []
    reached = [np.array([head])]
    for place, relation in enumerate(relations):
        at, _ = graph.edges_of(reached[-1])
        ends = np.unique(graph.tail_ids[at[graph.relation_ids[at] == relation]])
        last = place == len(relations) - 1
        reached.append(np.intersect1d(ends, [tail]) if last else np.setdiff1d(ends, [head, tail]))
    count = len(graph.relations)
    visited = 0

    def back(walked: list[int]) -> list[int]:
        """Extend a path, from its tail backwards, to the head."""
        nonlocal visited
        place = len(relations) - len(walked)  # of the relation that leads to the last entity
        if place < 0:
            return walked[::-1]
        visited += 1
        at, _ = graph.edges_of(np.array([walked[-1]]))
        inverse = (relations[place] + count) % (2 * count)
        beside = np.intersect1d(graph.tail_ids[at[graph.relation_ids[at] == inverse]], reached[place])
        beside = np.setdiff1d(beside, walked)
        for before in beside[np.lexsort((beside, graph.degrees_of(beside)))].tolist():
            if visited > MAX_VISITED:
                break
            if found := back([*walked, before]):
                return found
        return []

    return back([tail]) if len(reached[-1]) else []
