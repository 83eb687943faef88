"""Explanations: the evidence, paths, references and neighbours behind the score of a pair, also as sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np

from fewlink.core.errors import shown
from fewlink.graph import Graph
from fewlink.linker import drawing
from fewlink.linker.drawing import Cell, DrawnPath, Hop
from fewlink.linker.names import Entity, entity_of, hop, short_relation
from fewlink.linker.paths import MAX_HOPS, direct_relations, distance, simple_path
from fewlink.scorers import ExplainingScorer, Question, Reasons, Scorer, capabilities

MAX_MENTIONED = 3  # paths and neighbours in sentences
MAX_DRAWN = 4  # paths in a drawing
MIN_WEIGHT = 0.005  # smaller contributions to the score are not mentioned
MAX_DIRECT_EDGES = 3  # edges between head and tail in an explanation
MAX_LISTED = 32  # references in an explanation, and references that paths are compared with
REFERENCE = "reference"  # the relation of a step between the ends of a reference
End = Literal["head", "tail"]
Named = Literal["head", "reference"]


@dataclass(frozen=True)
class Step:
    """One hop of a path along a relation, or against it if `inverse`."""

    relation: str
    inverse: bool


@dataclass(frozen=True)
class Path:
    """A path from the head, or from an entity of a reference, to the tail.

    steps     its relations; a step from the head of a reference to its tail has the relation "reference"
    weight    what the path adds to the score; None if the model does not say
    entities  along the path, both ends included, without repeats: one more than steps
    like      the number of the compared references that the same relations join; None if not counted
    """

    steps: tuple[Step, ...]
    weight: float | None
    entities: tuple[Entity, ...]
    like: int | None = None

    def __str__(self) -> str:
        names = [entity.name for entity in self.entities]
        hops = [hop(step.relation, step.inverse) for step in self.steps]
        return shown(" ".join([names[0], *(word for both in zip(hops, names[1:], strict=True) for word in both)]))

    def relations(self) -> str:
        """The relations in words, such as "born, then in backwards"."""
        words = [short_relation(step.relation) + (" backwards" if step.inverse else "") for step in self.steps]
        return ", then ".join(words)

    def counts(self) -> bool:
        """Whether the path adds to the score."""
        return self.weight is not None and self.weight >= MIN_WEIGHT


@dataclass(frozen=True)
class Reference:
    """A reference with its attention (β), or what the score loses without it; None if the model has neither."""

    head: Entity
    tail: Entity
    weight: float | None


@dataclass(frozen=True)
class Neighbour:
    """A neighbour of the pair's head or tail (`of`), with its weight.

    For FSRL and its variants the weight is the encoder's attention (α); for TRAIL the neighbour is an edge that the
    tail shares with the references' tails, and rarer edges have larger weights.
    """

    of: End
    relation: str
    inverse: bool
    entity: Entity
    weight: float


@dataclass(frozen=True)
class EdgesAtTail:
    """The edges of the tail in one relation, and what the score loses without them."""

    relation: str
    inverse: bool
    count: int
    weight: float


@dataclass(frozen=True)
class LikeName:
    """The tail's name resembles that of the head or of a reference's tail (`of`); `weight` is what this adds."""

    of: Named
    entity: Entity
    weight: float


@dataclass(frozen=True, repr=False)
class Explanation:
    """The reasons for the score of one pair.

    shares      what each kind of evidence adds to the score, largest first; empty if the model does not say
    paths       edges from head to tail first, then other paths
    references  with their weights; of many, those nearest to the pair: with its tail, then with its head, then others
    neighbours  of head and tail: by attention, or, if `shared`, edges that the tail shares with the references' tails
    evidence    a description of each kind of evidence
    measured    whether shares and weights are what the score loses without each item
    together    what the score loses without all paths
    distance    the hops of the shortest path from head to tail, 0 if there is none of up to 6 hops; None unless no
                path from the head counts
    at_tail     in that case, the relations whose edges at the tail add most
    names       what the tail's name adds, if names are evidence
    given       the number of references
    same_tail   the number of references with the pair's tail
    compared    the number of references that paths are compared with: of many, a sample
    inverse     the query was for the heads of a tail: `head` is that tail, `tail` is the predicted head, and references
                are read from tail to head; sentences write pairs in the direction of the relation
    """

    head: Entity
    tail: Entity
    score: float
    shares: dict[str, float]
    paths: tuple[Path, ...]
    references: tuple[Reference, ...]
    neighbours: tuple[Neighbour, ...]
    shared: bool = False
    evidence: Mapping[str, str] = field(default_factory=dict)
    measured: bool = False
    together: float | None = None
    distance: int | None = None
    at_tail: tuple[EdgesAtTail, ...] = ()
    names: tuple[LikeName, ...] = ()
    given: int = 0
    same_tail: int = 0
    compared: int = 0
    inverse: bool = False

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, sentences included."""
        return {**asdict(self), "sentences": self.sentences()}

    def sentences(self) -> list[str]:
        """The reasons in plain English: a summary, the details, and the score."""
        sentences = [*self._lead(), *self._names()]
        if self.measured:
            sentences += [*self._paths(), *self._evidence(), *self._left_out()]
        else:
            sentences += [*self._kinds_of_paths(), *self._evidence(), *self._references()]
        sentences += [*self._neighbours(self.tail, "tail"), *self._neighbours(self.head, "head")]
        return [*map(shown, sentences), shown(f"{self._pair(self.head, self.tail)} has a score of {self.score:.2f}.")]

    def to_svg(self) -> str:
        """Draw the paths that count most, in the colour of the surrounding text; empty if there are none."""
        paths = self._drawn()
        drawn = [self._as_drawn(path) for path in paths]
        return drawing.path_graph(self.head.name, self.tail.name, drawn) if drawn else ""

    def _repr_html_(self) -> str:
        lead = "".join(self._lead()) or f"{self._pair(self.head, self.tail)} has a score of {self.score:.2f}."
        return drawing.block(drawing.paragraphs([lead]), self.details())

    def summary(self) -> str:
        """The first sentence without the pair."""
        pair = f"{self._pair(self.head, self.tail)}: "
        text = next(iter(self.sentences())).removeprefix(pair)
        return text[:1].upper() + text[1:]

    def details(self) -> str:
        """HTML: the drawing, a bar for each kind of evidence, and sentences on everything else."""
        low, high = min([0.0, *self.shares.values()]), max([0.0, *self.shares.values()])
        bars = [
            [Cell(drawing.escape(self._kind(kind))), Cell(drawing.bar(share, f"{share:+.2f}", low, high))]
            for kind, share in self.shares.items()
            if abs(share) >= MIN_WEIGHT
        ]
        evidence = drawing.paragraphs([f"Evidence in the score of {self.score:.2f}:"]) + drawing.table({}, bars)
        return self.to_svg() + (evidence if bars else "") + drawing.bullets(self._beside_drawing())

    def _beside_drawing(self) -> list[str]:
        """The sentences that add to the drawing and the bars."""
        drawn, helping = self._drawn(), [path for path in self.paths if path.counts()]
        others = [path for path in helping if path not in drawn]
        more = [f"Also: {'; '.join(map(self._counted, others[:MAX_MENTIONED]))}."] if others else []
        if self.measured:
            words = [*self._names(), *more, *self._without_paths(helping), *self._left_out()]
        else:
            words = [*self._names(), *more, *self._references()]
        return [*words, *self._neighbours(self.tail, "tail"), *self._neighbours(self.head, "head")]

    def _drawn(self) -> list[Path]:
        """The paths to draw: edges from head to tail, then the paths that add most."""
        direct = self._direct()
        others = [path for path in self.paths if path not in direct and path.counts()]
        return [*direct, *sorted(others, key=lambda path: -(path.weight or 0.0))][:MAX_DRAWN]

    def _as_drawn(self, path: Path) -> DrawnPath:
        hops = (
            Hop(short_relation(step.relation), step.inverse, entity.name, step.relation == REFERENCE)
            for step, entity in zip(path.steps, path.entities[1:], strict=True)
        )
        begins = path.entities[0] == self.head
        weight = [f"{path.weight:+.2f}"] if path.counts() else []
        like = [f"like {path.like} of {self._compared()}"] if path.like else []
        caption = ", ".join([*weight, *like, *([] if begins else ["from a reference"])])
        return DrawnPath(tuple(hops), caption, path.weight or 0.0, None if begins else path.entities[0].name)

    def _compared(self) -> str:
        """The references that paths are compared with."""
        return f"{self.compared} references" + (" looked at" if self.compared < self.given else "")

    def _pair(self, head: Entity, tail: Entity) -> str:
        """A pair, written in the direction of the relation."""
        first, second = (tail, head) if self.inverse else (head, tail)
        return f"{first.name} → {second.name}"

    def _end(self, end: str) -> str:
        """The user's word for this end of a pair."""
        return {"head": "tail", "tail": "head"}[end] if self.inverse else end

    def _lead(self) -> list[str]:
        """One sentence on what counts most; none for models without paths and shares."""
        head, tail = self.head.name, self.tail.name
        pair = self._pair(self.head, self.tail)
        if any((r.head, r.tail) == (self.head, self.tail) for r in self.references):
            return [f"{pair} is one of the references."]
        if direct := self._direct():
            return [f"{head} and {tail} are joined directly: {'; '.join(map(self._counted, direct))}."]
        by_name = max((like.weight for like in self.names), default=0.0)
        other_evidence = max((share for kind, share in self.shares.items() if kind != "names"), default=0.0)
        if by_name >= MIN_WEIGHT and by_name > other_evidence:
            return [f"{pair}: the name of {tail} counts most."]
        best = self._best()
        if best is not None and best.like:
            same = f"{best.like} of {self._compared()} {'is' if best.like == 1 else 'are'} joined in the same way"
            return [f"{pair}: {same}, by {best.relations()}."]
        if self.same_tail and self.shares.get("references", 0.0) > self.shares.get("head", 0.0):
            have = "has" if self.same_tail == 1 else "have"
            same = f"{self.same_tail:,} of {self.given:,} references {have} the same {self._end('tail')}"
            return [f"{pair}: {same}, which counts more than the paths from {head}."]
        if best is not None:
            through = next((i for i, step in enumerate(best.steps) if step.relation == REFERENCE), None)
            if through is None:
                return [f"{pair}: joined by {best.relations()}; no reference is joined in this way."]
            first, second = best.entities[through : through + 2]
            if best.steps[through].inverse:
                first, second = second, first
            return [f"{pair}: a path through the reference {first.name} → {second.name} counts most."]
        if not self.measured:
            return []
        return [f"{pair}: {self._no_path()}"]

    def _names(self) -> list[str]:
        """The names that the tail's name resembles, and what this adds."""
        sentences = []
        for like in self.names:
            if like.weight < MIN_WEIGHT:
                continue
            if like.of == "head":
                names = f"resembles the {self._end('head')}'s: ‘{self.head.name}’ and ‘{self.tail.name}’"
            elif like.entity == self.tail:
                names = f"is that of a reference's {self._end('tail')}"
            else:
                end = self._end("tail")
                names = f"resembles that of a reference's {end}: ‘{like.entity.name}’ and ‘{self.tail.name}’"
            sentences.append(f"Its name {names} ({like.weight:+.2f}).")
        return sentences

    def _no_path(self) -> str:
        """Say that no path from the head counts, and what counts instead."""
        head, tail = self.head.name, self.tail.name
        if self.distance == 0 and abs(self.shares.get("head", 0.0)) < MIN_WEIGHT:
            why = f"no path of up to {MAX_HOPS} steps joins them in the graph, so nothing about {head} counts"
        elif self.distance == 0:
            why = f"no path of up to {MAX_HOPS} steps joins them in the graph, only paths through references"
        else:
            why = f"no single path from {head} counts much"
        helping = [edges for edges in self.at_tail if edges.weight >= MIN_WEIGHT]
        if not helping:
            return f"{why}."
        kinds = ", ".join(
            f"{edges.count:,} × {hop(edges.relation, edges.inverse)} ({edges.weight:+.2f})" for edges in helping
        )
        return f"{why}. The edges of {tail} count instead: {kinds}."

    def _direct(self) -> list[Path]:
        """The paths that are single edges of the graph from head to tail."""
        ends = self.head, self.tail
        return [path for path in self.paths if path.entities == ends and path.steps[0].relation != REFERENCE]

    def _best(self) -> Path | None:
        """The path from the head that counts most, preferring those that join references if they count half as much."""
        paths = [path for path in self.paths if path.entities[0] == self.head and path.counts()]
        most = max((path.weight or 0.0 for path in paths), default=0.0)
        like = [path for path in paths if path.like and (path.weight or 0.0) >= most / 2]
        return max(like, key=lambda path: path.like or 0) if like else next(iter(paths), None)

    def _paths(self) -> list[str]:
        """The paths from the head, then those from references."""
        direct, helping = self._direct(), [path for path in self.paths if path.counts()]
        sides = {
            f"From the {self._end('head')}": [p for p in helping if p not in direct and p.entities[0] == self.head],
            "From the references": [p for p in helping if p.entities[0] != self.head],
        }
        sentences = [f"{side}: {'; '.join(map(self._counted, paths))}." for side, paths in sides.items() if paths]
        return [*sentences, *self._without_paths(helping)]

    def _without_paths(self, helping: Sequence[Path]) -> list[str]:
        """The score without the paths that count."""
        if self.together is not None and self.together >= MIN_WEIGHT and len(helping) > 1:
            lower = f"the score would be {self.together:.2f} lower; the numbers are for each path alone"
            return [f"Without all of these paths {lower}."]
        if len(helping) == 1:
            return [f"Without this path the score would be {helping[0].weight:.2f} lower."]
        return []

    def _counted(self, path: Path) -> str:
        like = [f"like {path.like} of {self._compared()}"] if path.like else []
        weight = [f"{path.weight:+.2f}"] if path.weight is not None and self.measured else []
        return str(path) + (f" ({', '.join(like + weight)})" if like or weight else "")

    def _kinds_of_paths(self) -> list[str]:
        direct = self._direct()
        helping = [path for path in self.paths if path.counts() and path not in direct][:MAX_MENTIONED]
        if not helping:
            return []
        kind = "Paths" if len(helping) > 1 else "A path"
        return [f"{kind} like those between the references: {'; '.join(map(str, helping))}."]

    def _left_out(self) -> list[str]:
        """The score without the reference that counts most."""
        weighed = [(r.weight, r) for r in self.references if r.weight is not None]
        if not weighed:
            return []
        weight, most = max(weighed, key=lambda pair: pair[0])
        if weight < MIN_WEIGHT:
            return ["The score would not be lower without any single reference."]
        pair = self._pair(most.head, most.tail)
        return [f"Of the references, {pair} counts most: without it the score would be {weight:.2f} lower."]

    def _evidence(self) -> list[str]:
        """The evidence for the pair and the evidence against it."""
        largest_first = self.shares.items()
        sides = {
            "Evidence for it": {kind: share for kind, share in largest_first if share >= MIN_WEIGHT},
            "Evidence against it": {kind: share for kind, share in reversed(largest_first) if share <= -MIN_WEIGHT},
        }
        return [
            f"{side}: {', '.join(f'{self._kind(kind)} ({share:+.2f})' for kind, share in shares.items())}."
            for side, shares in sides.items()
            if shares
        ]

    def _kind(self, kind: str) -> str:
        """A kind of evidence in words."""
        return re.sub(r"\b(head|tail)", lambda end: self._end(end[0]), self.evidence.get(kind, kind))

    def _references(self) -> list[str]:
        weighed = [(r.weight, r) for r in self.references if r.weight is not None]
        if len(weighed) < 2:
            return []
        weight, most = max(weighed, key=lambda pair: pair[0])
        if weight < 1.1 / len(weighed):
            return ["All references count about the same."]
        pair = self._pair(most.head, most.tail)
        return [f"Of the references, {pair} counts most ({weight:.0%} of the attention)."]

    def _neighbours(self, end: Entity, which: str) -> list[str]:
        nearby = [n for n in self.neighbours if n.of == which and n.weight > 0][:MAX_MENTIONED]
        if not nearby:
            return []
        named = ", ".join(
            f"{hop(n.relation, n.inverse)} {n.entity.name}" + ("" if self.shared else f" ({n.weight:.0%})")
            for n in nearby
        )
        if self.shared:
            return [f"{end.name} shares with the references' {self._end('tail')}s: {named}."]
        return [f"Neighbours of {end.name} with most attention: {named}."]


def explain_pair(
    scorer: Scorer, graph: Graph, references: np.ndarray, head: int, tail: int, most: int = 5, inverse: bool = False
) -> Explanation:
    """Explain the score of a pair, given references (K, 2); scorers without reasons explain nothing but the score.

    If `inverse`, the pair and the references are read from tail to head.
    """
    if isinstance(scorer, ExplainingScorer):
        reasons, evidence = scorer.explain(references, head, tail, most), capabilities(scorer).evidence
    else:
        score = float(np.asarray(scorer(Question("", references, np.array([head]), np.array([tail]))))[0, 0])
        reasons, evidence = Reasons(score), {}
    graph = reasons.graph or graph
    compared = references[np.linspace(0, len(references) - 1, min(len(references), MAX_LISTED)).astype(int)]
    paths = []
    for place, (relations, weight) in enumerate(reasons.paths):
        walked = list(reasons.entities[place]) if reasons.entities else simple_path(graph, head, relations, tail)
        if not walked:
            continue
        of_graph = walked[0] == head and max(relations) < 2 * len(graph.relations)
        like = joined(graph, compared, relations) if of_graph else None
        path = path_of(graph, walked, relations, weight, like)
        paths.append(replace(path, steps=tuple(map(_turned, path.steps))) if inverse else path)
    direct = [path for path in paths if len(path.steps) == 1 and path.like is not None] or [
        path_of(graph, [head, tail], [relation], None, joined(graph, compared, [relation]))
        for relation in direct_relations(graph, head, tail)[:MAX_DIRECT_EDGES]
    ]
    paths = [*direct, *(path for path in paths if path not in direct)]
    named = any(path.entities[0].id == graph.entities[head] and path.counts() for path in paths)
    return Explanation(
        entity_of(graph, head),
        entity_of(graph, tail),
        reasons.score,
        dict(sorted(reasons.shares.items(), key=lambda share: -share[1])),
        tuple(paths),
        references_with(graph, references, reasons.references, head, tail),
        tuple(neighbour_of(graph, *edge) for edge in reasons.neighbours),
        reasons.shared,
        evidence,
        reasons.measured,
        reasons.together,
        None if named or not reasons.measured else distance(graph, head, tail),
        tuple(edges_of_tail(graph, *each) for each in reasons.at_tail),
        tuple(LikeName(cast(Named, of), entity_of(graph, like), weight) for of, like, weight in reasons.names),
        len(references),
        int((references[:, 1] == tail).sum()),
        len(compared),
        inverse,
    )


def joined(graph: Graph, references: np.ndarray, relations: Sequence[int]) -> int:
    """The number of references that a path along these relations joins."""
    return sum(bool(simple_path(graph, head, relations, tail)) for head, tail in references.tolist())


def path_of(
    graph: Graph, walked: Sequence[int], relations: Sequence[int], weight: float | None, like: int | None
) -> Path:
    """A path through these entities along these relations, by name."""
    steps = tuple(step_of(graph, relation) for relation in relations)
    return Path(steps, weight, tuple(entity_of(graph, entity) for entity in walked), like)


def _turned(step: Step) -> Step:
    """A step of a query for heads, in which references are read from tail to head."""
    return Step(REFERENCE, not step.inverse) if step.relation == REFERENCE else step


def edges_of_tail(graph: Graph, relation: int, count: int, weight: float) -> EdgesAtTail:
    """The edges of the tail in one relation, by name."""
    step = step_of(graph, relation)
    return EdgesAtTail(step.relation, step.inverse, count, weight)


def step_of(graph: Graph, relation: int) -> Step:
    """A step along a relation by name; numbers from 2R on are references and their inverse."""
    inverse, forward = divmod(relation, len(graph.relations))
    if inverse >= 2:
        return Step(REFERENCE, relation > 2 * len(graph.relations))
    return Step(graph.relation_name(forward), bool(inverse))


def neighbour_of(graph: Graph, which: str, relation: int, entity: int, weight: float) -> Neighbour:
    """A neighbour of head or tail (`which`), by name."""
    step = step_of(graph, relation)
    return Neighbour(cast(End, which), step.relation, step.inverse, entity_of(graph, entity), weight)


def references_with(
    graph: Graph, references: np.ndarray, weights: Sequence[float], head: int, tail: int
) -> tuple[Reference, ...]:
    """References by name with their weights, or None; of many, those with this tail or head come first."""
    places = np.arange(len(references))
    if len(references) > MAX_LISTED:
        places = np.lexsort((references[:, 0] != head, references[:, 1] != tail))[:MAX_LISTED]
    weight_of = dict(enumerate(weights))
    return tuple(
        Reference(
            entity_of(graph, int(references[place, 0])),
            entity_of(graph, int(references[place, 1])),
            weight_of.get(place),
        )
        for place in places.tolist()
    )
