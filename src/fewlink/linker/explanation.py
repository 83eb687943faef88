"""Explanations: the evidence, paths, references and neighbours behind the score of a pair, also as sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from fewlink.core.errors import shown
from fewlink.core.seeds import by_hash
from fewlink.graph import Graph
from fewlink.graph.name_index import fold
from fewlink.linker import drawing, phrases
from fewlink.linker.drawing import Cell, DrawnPath, Hop
from fewlink.linker.english import PARENTS
from fewlink.linker.names import Entity, entity_of, hop, short_relation
from fewlink.linker.paths import MAX_HOPS, direct_relations, distance, simple_path
from fewlink.linker.phrases import without_kinds
from fewlink.models.contract import EMBEDDING, ExplainingScorer, Question, Reasons, Scorer, capabilities

MAX_MENTIONED = 3  # paths and neighbours in sentences
MAX_LINES = 3  # after the first sentence, unless everything is wanted
MAX_DRAWN = 4  # paths in a drawing
MIN_WEIGHT = 0.005  # smaller contributions to the score are not mentioned
CONVINCING = 0.2  # of the largest weight, and of the most references joined alike, that a convincing path has
MIN_ALIKE = 0.1
MIN_UNLIKE = 0.5  # of the largest share that names add to be a reason: with a common word, without
MAX_DIRECT_EDGES = 3  # edges between head and tail in an explanation
SEVERAL = 1.5  # tails for each head, on average, from which heads have several
MAX_LISTED = 32  # references in an explanation, and references that paths are compared with
REFERENCE = "reference"  # the relation of a step between the ends of a reference, unless it has a name
REST = "the rest"
End = Literal["head", "tail"]
Named = Literal["head", "reference"]


@dataclass(frozen=True)
class Step:
    """One hop of a path along a relation, or against it if `inverse`.

    reference  whether it joins the ends of a reference: its relation is the one in question, "reference" if unnamed
    words      the relation without the kinds of its ends, such as "uses" for "group uses malware"
    """

    relation: str
    inverse: bool
    reference: bool = False
    words: str = ""

    def __str__(self) -> str:
        return hop(self.words or self.relation, self.inverse)


@dataclass(frozen=True)
class Path:
    """A path from the head, or from an entity of a reference, to the tail.

    steps     its relations
    weight    what the score loses without the path; None if the model does not say
    entities  along the path, both ends included, without repeats: one more than steps
    like      the number of the compared references that the same relations join; None if not counted
    """

    steps: tuple[Step, ...]
    weight: float | None
    entities: tuple[Entity, ...]
    like: int | None = None

    def __str__(self) -> str:
        names = [entity.name for entity in self.entities]
        return shown(
            " ".join([names[0], *(f"{step} {name}" for step, name in zip(self.steps, names[1:], strict=True))])
        )

    def sentence(self) -> str:
        """The path in English; as a chain of arrows if it cannot be read."""
        names = [entity.name for entity in self.entities]
        hops = [
            phrases.Hop(phrases.EXAMPLE, step.inverse, name)
            if step.reference and step.relation == REFERENCE
            else phrases.Hop(short_relation(step.words or step.relation), step.inverse, name)
            for step, name in zip(self.steps, names[1:], strict=True)
        ]
        return phrases.sentence_of(names[0], hops) or str(self)

    def turned(self) -> Path:
        """The same path from its other end."""
        steps = tuple(replace(step, inverse=not step.inverse) for step in reversed(self.steps))
        return replace(self, steps=steps, entities=self.entities[::-1])

    def kind(self) -> tuple[tuple[str, bool], ...]:
        """Its relations and their directions."""
        return tuple((step.relation, step.inverse) for step in self.steps)

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
    """The reasons for the score of one pair. The names of entities of the same name are followed by their ids.

    shares      what the score loses without each kind of evidence, largest first; empty if the model does not say
    paths       edges from head to tail first, then convincing paths, the shortest first, then others
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
    relation    the name of the relation, if it has one
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
    relation: str | None = None

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with the parts of the score, the few sentences and, as `details`, all of them."""
        words = {"sentences": self.sentences(), "details": self.sentences(full=True)}
        return {**asdict(self), "parts": self.parts(), **words}

    def sentences(self, full: bool = False) -> list[str]:
        """The reasons in plain English: one sentence on what counts most, and at most three short ones.

        If `full`, everything: all paths, the neighbours, what the score loses without paths or references, and the
        score as the sum of its parts.
        """
        lead = self.sentence()
        paths = self._paths() if full else self._other_paths()
        more = [*self._embedding(), *paths, *self._names(), *self._references(full)]
        if full or not self.paths:
            more += [*self._neighbours(self.tail, "tail"), *self._neighbours(self.head, "head")]
        if full:
            more.append(self._sum())
        more = [sentence for sentence in more if sentence != lead]
        lines = [lead, *(more if full else more[:MAX_LINES])]
        return [with_one_stop(shown(line)) for line in lines]

    def sentence(self) -> str:
        """What counts most, in one sentence."""
        return self._lead()[0]

    def _lead(self) -> tuple[str, Path | None]:
        """The first sentence, and the path that it tells."""
        head = self.head.name
        tail = self.tail.name
        pair = self._pair(self.head, self.tail)
        if any((r.head, r.tail) == (self.head, self.tail) for r in self.references):
            return f"{pair} is one of {self._those()}.", None
        if direct := self._direct():
            return f"{head} and {tail} are joined directly: {self._told(direct[0])}.", direct[0]
        if self.shares.get(EMBEDDING, 0.0) > max(self._most(without=EMBEDDING), 0.0):
            return self._embedding()[0], None
        if (like := self._like_name()) is not None and like.weight > self._most(without="names"):
            return self._names()[0], None
        best = self._best()
        by_tail = self.same_tail and self.shares.get("references", 0.0) > self.shares.get("head", 0.0)
        if best is not None and (best.like or not by_tail):
            return f"{self._told(best)}.", best
        if by_tail:
            have = "has" if self.same_tail == 1 else "have"
            same = f"{self._of(self.same_tail, self.given)} {have} the same {self._end('tail')}"
            return f"{pair}: {same}, which counts more than the paths from {head}.", None
        return f"{pair}: {self._no_path()}" if self.measured else self._sum(), None

    def to_svg(self) -> str:
        """Draw the paths that count most, in the colour of the surrounding text; empty if there are none."""
        drawn = [self._as_drawn(path) for path in self._drawn()]
        return drawing.path_graph(self.head.name, self.tail.name, drawn) if drawn else ""

    def _repr_html_(self) -> str:
        return drawing.block(drawing.paragraphs([self.sentence()]), self.details())

    def details(self) -> str:
        """HTML: the drawing, a bar for each part of the score, and sentences on everything else."""
        parts = self.parts()
        low = min([0.0, *parts.values()])
        high = max([0.0, *parts.values()])
        bars = [
            [Cell(drawing.escape(part)), Cell(drawing.bar(value, f"{value:+.2f}", low, high))]
            for part, value in parts.items()
        ]
        evidence = drawing.paragraphs([f"The score of {self.score:.2f} is the sum of:"]) + drawing.table({}, bars)
        return self.to_svg() + (evidence if bars else "") + drawing.bullets(self._beside_drawing())

    def parts(self) -> dict[str, float]:
        """The score as a sum, to two decimals: what it loses without each kind of evidence, and the rest.

        The rest is what no kind of evidence adds, or several only together. Empty if the model has no shares.
        """
        shares = {kind: round(share, 2) for kind, share in self.shares.items() if abs(share) >= MIN_WEIGHT}
        if not shares:
            return {}
        rest = round(round(self.score, 2) - sum(shares.values()), 2)
        return {**{self._kind(kind): share for kind, share in shares.items()}, **({REST: rest} if rest else {})}

    def _sum(self) -> str:
        """The score as a sum."""
        text = f"{self._pair(self.head, self.tail)} has a score of {self.score:.2f}"
        for place, (part, value) in enumerate(self.parts().items()):
            sign = ("− " if value < 0 else "+ ") if place else ("= −" if value < 0 else "= ")
            text += f" {sign}{abs(value):.2f} ({part})"
        return f"{text}."

    def _beside_drawing(self) -> list[str]:
        """The sentences that add to the drawing and the bars."""
        drawn = self._drawn()
        others = [path for path in self.paths if path.counts() and path not in drawn][:MAX_MENTIONED]
        more = [f"Also: {'; '.join(map(self._chain, others))}."] if others else []
        words = [*self._embedding(), *more, *self._without_paths(), *self._names(), *self._references(full=True)]
        words += [*self._neighbours(self.tail, "tail"), *self._neighbours(self.head, "head")]
        lead = self.sentence()
        return [text for text in words if text != lead]

    def _drawn(self) -> list[Path]:
        """The paths to draw: edges from head to tail, then other paths in their order."""
        direct = self._direct()
        return [*direct, *(path for path in self.paths if path not in direct and path.counts())][:MAX_DRAWN]

    def _as_drawn(self, path: Path) -> DrawnPath:
        hops = (
            Hop(short_relation(step.words or step.relation), step.inverse, entity.name, step.reference)
            for step, entity in zip(path.steps, path.entities[1:], strict=True)
        )
        begins = path.entities[0] == self.head
        caption = self._alike(path) if begins else f"from {self._one()}"
        return DrawnPath(tuple(hops), caption, path.weight or 0.0, None if begins else path.entities[0].name)

    def _one(self) -> str:
        return "a known pair" if self.relation else "an example"

    def _those(self) -> str:
        return "the known pairs" if self.relation else "your examples"

    def _of(self, count: int, among: int) -> str:
        """How many of the references, such as "2 of your 3 examples" or "2 of 3 known pairs"."""
        if self.relation is not None:
            return f"{count:,} of {among:,} known pairs"
        return f"{count:,} of your {among:,} {'example' if among == 1 else 'examples'}"

    def _compared(self, count: int) -> str:
        """How many of the references that paths are compared with."""
        if self.compared == self.given:
            return self._of(count, self.given)
        return f"{count:,} of {self.compared:,} {'known pairs' if self.relation else 'examples'} looked at"

    def _told(self, path: Path) -> str:
        """A path in English, and how many references are joined alike."""
        text = (path.turned() if self.inverse else path).sentence()
        if path.like is None or not self.given:
            return text
        alone = self.given == 1 and self.relation is None
        if not path.like:
            return f"{text}; {'your example is not' if alone else f'none of {self._those()} is'} joined in the same way"
        if alone:
            return f"{text}; your example is joined in the same way"
        return f"{text}; {self._compared(path.like)} {'is' if path.like == 1 else 'are'} joined in the same way"

    def _alike(self, path: Path) -> str:
        return f"like {self._compared(path.like)}" if path.like else ""

    def _chain(self, path: Path) -> str:
        """A path as a chain; where it begins, or how many references are joined alike."""
        if path.entities[0] != self.head:
            return f"from {self._one()}, {path}"
        chain = str(path.turned() if self.inverse else path)
        return f"{chain} ({self._alike(path)})" if path.like else chain

    def _pair(self, head: Entity, tail: Entity) -> str:
        """A pair, written in the direction of the relation."""
        first, second = (tail, head) if self.inverse else (head, tail)
        return f"{first.name} → {second.name}"

    def _end(self, end: str) -> str:
        """The user's word for this end of a pair."""
        return {"head": "tail", "tail": "head"}[end] if self.inverse else end

    def _most(self, without: str = "") -> float:
        """The largest share, but for that of one kind of evidence."""
        return max((share for kind, share in self.shares.items() if kind != without), default=0.0)

    def _like_name(self) -> LikeName | None:
        """The name that the tail's name resembles, if this is a reason that convinces.

        What it adds is measured against the largest share, and counts for less if the names have no word in common.
        The name of the tail itself is none: that a reference has the same tail is not a matter of names.
        """
        words = _words(self.tail)
        for like in sorted(self.names, key=lambda like: -like.weight):
            least = (MIN_ALIKE if words & _words(like.entity) else MIN_UNLIKE) * self._most()
            if like.entity != self.tail and like.weight >= max(least, MIN_WEIGHT):
                return like
        return None

    def _names(self) -> list[str]:
        """The name that the tail's name resembles, if it is a reason."""
        if (like := self._like_name()) is None:
            return []
        if like.of == "head":
            return [f"The names ‘{self.head.name}’ and ‘{self.tail.name}’ are alike."]
        end = self._end("tail")
        return [f"The name ‘{self.tail.name}’ is like that of {self._one()}'s {end}, ‘{like.entity.name}’."]

    def _embedding(self) -> list[str]:
        """What an embedding model adds, if it is mixed in: it cannot be told as paths."""
        share = self.shares.get(EMBEDDING, 0.0)
        if abs(share) < MIN_WEIGHT:
            return []
        model = self._kind(EMBEDDING)
        change = f"{abs(share):.2f} {'higher' if share > 0 else 'lower'}"
        pair = self._pair(self.head, self.tail)
        if share > max(self._most(without=EMBEDDING), 0.0):
            return [f"{pair}: {model} counts most; it makes the score {change} and names no path."]
        return [f"Besides, {model} makes the score {change}; it names no path."]

    def _no_path(self) -> str:
        """Say that no path from the head counts, and what counts instead."""
        head = self.head.name
        tail = self.tail.name
        if self.distance == 0 and abs(self.shares.get("head", 0.0)) < MIN_WEIGHT:
            why = f"no path of up to {MAX_HOPS} steps joins them in the graph, so nothing about {head} counts"
        elif self.distance == 0:
            why = f"no path of up to {MAX_HOPS} steps joins them in the graph, only paths through {self._those()}"
        else:
            why = f"no single path from {head} counts much"
        helping = [edges for edges in self.at_tail if edges.weight >= MIN_WEIGHT]
        if not helping:
            return f"{why}."
        kinds = ", ".join(f"{edges.count:,} × {hop(edges.relation, edges.inverse)}" for edges in helping)
        return f"{why}; the edges of {tail} count instead: {kinds}."

    def _direct(self) -> list[Path]:
        """The paths that are single edges of the graph from head to tail."""
        ends = self.head, self.tail
        return [path for path in self.paths if path.entities == ends and not path.steps[0].reference]

    def _best(self) -> Path | None:
        """The first path from the head that counts."""
        return next((path for path in self.paths if path.entities[0] == self.head and path.counts()), None)

    def _other_paths(self) -> list[str]:
        """Chains besides the path of the first sentence: one or two, the shortest first, then of other relations."""
        _, first = self._lead()
        others = [path for path in self.paths if path != first and (path.counts() or path in self._direct())]
        kinds: dict[object, Path] = {first.kind(): first} if first else {}
        for path in others:
            kinds.setdefault(path.kind(), path)
        new = [path in kinds.values() for path in others]
        order = sorted(
            range(len(others)), key=lambda i: (others[i].entities[0] != self.head, len(others[i].steps), not new[i])
        )
        room = MAX_LINES - 1 - len(self._names()) - len(self._embedding())
        return [f"Also: {self._chain(replace(path, like=None))}." for path in (others[i] for i in order[:room])]

    def _paths(self) -> list[str]:
        """All paths, one for each line, and the score without them."""
        paths = [path for path in self.paths if path.counts() or path in self._direct()]
        return [*(f"Path: {self._chain(path)}." for path in paths), *self._without_paths()]

    def _without_paths(self) -> list[str]:
        """The score without the paths that count."""
        helping = [path for path in self.paths if path.counts()]
        if self.together is not None and self.together >= MIN_WEIGHT and len(helping) > 1:
            return [f"Without all of these paths the score would be {self.together:.2f} lower."]
        if len(helping) == 1 and self.measured:
            return [f"Without this path the score would be {helping[0].weight:.2f} lower."]
        return []

    def _references(self, full: bool) -> list[str]:
        """The reference that counts most."""
        weighed = [(r.weight, r) for r in self.references if r.weight is not None]
        if not weighed or self.given < 2:
            return []
        weight, most = max(weighed, key=lambda pair: pair[0])
        counts = f"Of {self._those()}, {self._pair(most.head, most.tail)} counts most"
        if self.measured:
            if weight < MIN_WEIGHT:
                return [f"The score would not be lower without any single one of {self._those()}."] if full else []
            return [f"{counts}: without it the score would be {weight:.2f} lower." if full else f"{counts}."]
        if weight < 1.1 / len(weighed):
            return [f"All of {self._those()} count about the same."]
        return [f"{counts} ({weight:.0%} of the attention)."]

    def _kind(self, kind: str) -> str:
        """A kind of evidence in words."""
        return re.sub(r"\b(head|tail)", lambda end: self._end(end[0]), self.evidence.get(kind, kind))

    def _neighbours(self, end: Entity, which: str) -> list[str]:
        nearby = [n for n in self.neighbours if n.of == which and n.weight > 0][:MAX_MENTIONED]
        if not nearby:
            return []
        named = ", ".join(
            f"{hop(n.relation, n.inverse)} {n.entity.name}" + ("" if self.shared else f" ({n.weight:.0%})")
            for n in nearby
        )
        if self.shared:
            return [f"{end.name} shares with the {self._end('tail')}s of {self._those()}: {named}."]
        return [f"Neighbours of {end.name} with most attention: {named}."]


def with_one_stop(sentence: str) -> str:
    """A sentence with one full stop, although the name before it may end in one."""
    return re.sub(r"(?<!\.)\.\.$", ".", sentence)


def _words(entity: Entity) -> set[str]:
    """The words of a name that say something, in lower case; those of an id that follows it are left out."""
    name = entity.name.removesuffix(f" ({entity.id})")
    return {word for word in re.findall(r"\w+", fold(name)) if len(word) > 2}


def explain_pair(
    scorer: Scorer,
    graph: Graph,
    references: np.ndarray,
    head: int,
    tail: int,
    most: int = 5,
    inverse: bool = False,
    relation: str | None = None,
) -> Explanation:
    """Explain the score of a pair, given references (K, 2); scorers without reasons explain nothing but the score.

    `relation` is the name of the references' relation. If `inverse`, pair and references are read from tail to head.
    """
    if isinstance(scorer, ExplainingScorer):
        reasons = scorer.explain(references, head, tail, most)
        evidence = capabilities(scorer).evidence
    else:
        score = float(np.asarray(scorer(Question("", references, np.array([head]), np.array([tail]))))[0, 0])
        reasons = Reasons(score)
        evidence = {}
    graph = reasons.graph or graph
    compared = by_hash(references)[:MAX_LISTED]
    paths = []
    for place, (relations, weight) in enumerate(reasons.paths):
        walked = list(reasons.entities[place]) if reasons.entities else simple_path(graph, head, relations, tail)
        if not walked:
            continue
        of_graph = walked[0] == head and max(relations) < 2 * len(graph.relations)
        like = joined(graph, compared, relations) if of_graph else None
        paths.append(path_of(graph, walked, relations, weight, like, references, relation, inverse))
    direct = [path for path in paths if len(path.steps) == 1 and path.like is not None] or [
        path_of(graph, [head, tail], [edge], None, joined(graph, compared, [edge]), references)
        for edge in direct_relations(graph, head, tail, reasons.visible)[:MAX_DIRECT_EDGES]
    ]
    paths = [*direct, *convincing_first([path for path in paths if path not in direct], graph.entities[head])]
    named = any(path.entities[0].id == graph.entities[head] and path.counts() for path in paths)
    explanation = Explanation(
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
        None if named or not reasons.measured else distance(graph, head, tail, reasons.visible),
        tuple(edges_of_tail(graph, *each) for each in reasons.at_tail),
        tuple(LikeName(cast(Named, of), entity_of(graph, like), weight) for of, like, weight in reasons.names),
        len(references),
        int((references[:, 1] == tail).sum()),
        len(compared),
        inverse,
        relation,
    )
    return told_apart(explanation)


def told_apart(explanation: Explanation) -> Explanation:
    """The explanation with the ids of entities that share their name with another one of it."""
    named: dict[str, set[Entity]] = {}
    for entity in entities_in(explanation):
        named.setdefault(entity.name, set()).add(entity)
    alike = {entity for same in named.values() if len(same) > 1 for entity in same if entity.id != entity.name}
    names = {entity: Entity(entity.id, f"{entity.name} ({entity.id})") for entity in alike}
    told: Explanation = renamed(explanation, names) if names else explanation
    return told


def entities_in(value: object) -> Iterator[Entity]:
    """The entities in a value made of dataclasses and tuples."""
    if isinstance(value, Entity):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from entities_in(each)
    elif is_dataclass(value):
        for part in fields(value):
            yield from entities_in(getattr(value, part.name))


def renamed(value: Any, names: Mapping[Entity, Entity]) -> Any:
    """A value made of dataclasses and tuples, with other names of its entities."""
    if isinstance(value, Entity):
        return names.get(value, value)
    if isinstance(value, tuple):
        return tuple(renamed(each, names) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{part.name: renamed(getattr(value, part.name), names) for part in fields(value)})
    return value


def convincing_first(paths: Sequence[Path], head: str) -> list[Path]:
    """Convincing paths from the head, then its other paths, then those from references; each time the shortest first.

    Neither the weight of a convincing path nor the number of references that it joins is far below the largest. Of
    paths of one length, those that join most references come first, then those with the largest weight.
    """
    own = [path for path in paths if path.entities[0].id == head]
    weight = CONVINCING * max((path.weight or 0.0 for path in own), default=0.0)
    like = CONVINCING * max((path.like or 0 for path in own), default=0)

    def order(path: Path) -> tuple[float, ...]:
        weak = not path.counts() or (path.weight or 0.0) < weight or (path.like or 0) < like
        return path.entities[0].id != head, weak, len(path.steps), -(path.like or 0), -(path.weight or 0.0)

    return sorted(paths, key=order)


def joined(graph: Graph, references: np.ndarray, relations: Sequence[int]) -> int:
    """The number of references that a path along these relations joins."""
    return sum(bool(simple_path(graph, head, relations, tail)) for head, tail in references.tolist())


def path_of(
    graph: Graph,
    walked: Sequence[int],
    relations: Sequence[int],
    weight: float | None,
    like: int | None,
    references: np.ndarray,
    asked: str | None = None,
    inverse: bool = False,
) -> Path:
    """A path through these entities along these relations, by name.

    `asked` is the name of the relation of the references (K, 2); if `inverse`, they are read from tail to head.
    """
    steps = []
    for relation, before, after in zip(relations, walked, walked[1:], strict=False):
        step = step_of(graph, relation)
        if step.reference:
            step = replace(step, relation=asked or REFERENCE, inverse=step.inverse != inverse)
        first, last = (after, before) if step.inverse else (before, after)
        words = without_kinds(step.relation, kinds_of(graph, first), kinds_of(graph, last))
        if words in PARENTS:
            number = relation % len(graph.relations)
            pairs = len(references) if step.reference else graph.relation_sizes[number]
            heads = np.unique(references[:, int(inverse)]) if step.reference else graph.slots[number]
            if pairs > SEVERAL * len(heads):
                words = f"{words} of"  # nobody has several fathers, so the heads are the fathers
        steps.append(replace(step, words=words))
    return Path(tuple(steps), weight, tuple(entity_of(graph, entity) for entity in walked), like)


def kinds_of(graph: Graph, entity: int) -> list[str]:
    """The names of an entity's types."""
    types = graph.types
    return [types.names[int(kind)] for kind in types.of_entities(np.array([entity]))] if types else []


def edges_of_tail(graph: Graph, relation: int, count: int, weight: float) -> EdgesAtTail:
    """The edges of the tail in one relation, by name."""
    step = step_of(graph, relation)
    return EdgesAtTail(step.relation, step.inverse, count, weight)


def step_of(graph: Graph, relation: int) -> Step:
    """A step along a relation by name; numbers from 2R on are references and their inverse."""
    inverse, forward = divmod(relation, len(graph.relations))
    if inverse >= 2:
        return Step(REFERENCE, relation > 2 * len(graph.relations), reference=True)
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
