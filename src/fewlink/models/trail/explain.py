"""Why TRAIL gives a pair its score: the paths that carried it, and what head, references and names add to it.

Everything is measured by removal: edges, a stream or names are left out, and the network runs again. Which paths are
measured is decided by a first-order estimate: with the network linear around its states, the score is a sum over paths
from the marks to the tail, and a beam search backwards from the tail finds those that add most. Paths
along relations that join the references are measured as well.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.core.seeds import hashes_of
from fewlink.graph.groups import spans
from fewlink.models.contract import Reasons
from fewlink.models.trail.features import ReadGraph, TaskReferences, distinct_pairs
from fewlink.models.trail.network import HEAD, REFERENCES, Encoded, TrailNetwork
from fewlink.models.trail.propagate import (
    MessageEdges,
    Reached,
    Rows,
    Weights,
    Without,
    layer_states,
    places_of,
    reached_by,
    rows_to,
)
from fewlink.propagation.edges import EdgeTable, GraphPart
from fewlink.propagation.product import Norms, constants

LikeName = tuple[str, int, float]
EVIDENCE = {"head": "paths from the head", "references": "paths from the references", "names": "likeness of names"}
STREAMS = (HEAD, REFERENCES)
WITH_HEAD = [0]
WITH_TAILS = [1, 2]  # cosines that compare a candidate's name with the head's, with the tails'

MOST_HOPS = 5
MAX_LEFT_OUT = 8  # references up to which an explanation leaves out each in turn
MAX_RULES = 3  # paths along relations that join references
MAX_JOINED = 8  # references that paths are looked for
MAX_EDGES = 20_000  # of an entity from which paths are looked for
MAX_DIRECT = 3  # edges between head and tail that are named
MAX_ALIKE = 2  # measured paths along the same relations
BEAM = 128  # beginnings of paths that the search follows
HARDLY_MORE = 1.25  # times what a part of a path loses
SHORTER = 0.9  # what each hop after the first counts, where paths lose about the same
MIN_SHARE = 0.05  # of the largest loss that a named path must lose
ALIKE = 0.3  # cosine of two names from which one resembles the other
MIN_LIKENESS = 0.01  # what a likeness of names must add to be named
MIN_NEW_SHARE = 0.1  # of its own loss that a named path must add to those before it


Rule = tuple[int, int]  # two relations
Edges = tuple[int, ...]  # of a path to the tail, by their places


class FoundPath(NamedTuple):
    """Its nodes, the places of the edges between them, and its estimated part of the score."""

    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    part: float


class Trace(NamedTuple):
    """One stream with all edges: the weights of its layers, and the states before the first layer and after each."""

    weights: list[Weights]
    states: list[Reached]


@dataclass(frozen=True, eq=False)
class ExplainedPair:
    """A pair of one task, and the layers that its score depends on.

    Edges have places: those of the table by target come first, then the references and their inverses. `entities` (n,)
    are those of the nodes, or None if they are the same. `cosines` (COSINES,) are those of the pair's names, or None.
    """

    network: TrailNetwork
    encoded: Encoded
    graph: ReadGraph
    table: EdgeTable
    entities: np.ndarray | None
    references: TaskReferences
    edges: MessageEdges
    rows: Sequence[Rows]
    head: int
    tail: int
    cosines: Tensor | None

    @classmethod
    def of(
        cls,
        network: TrailNetwork,
        encoded: Encoded,
        graph: ReadGraph,
        part: GraphPart | None,
        references: TaskReferences,
        head: int,
        tail: int,
        cosines: Tensor | None = None,
    ) -> ExplainedPair:
        """The pair of two entities of a graph, of which a part is read or all."""
        table = graph.edges if part is None else part.edges
        if part is not None:
            head, tail = part.places(np.array([head, tail])).tolist()
            references = references._replace(ends=torch.from_numpy(part.places(references.ends.numpy())))
        edges = MessageEdges(table, references.edges())
        rows = rows_to(edges, torch.tensor([tail]), network.shape.layers)
        entities = None if part is None else part.nodes
        return cls(network, encoded, graph, table, entities, references, edges, rows, head, tail, cosines)

    @functools.cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The sources, relations and targets (e,) of all edges; 2R is the relation of the references."""
        order = self.table.by_tail
        own = self.edges.own(1)
        kinds = self.table.relations + np.repeat([0, 1], len(own.sources) // 2)
        columns = (order.first, own.sources), (order.second, torch.from_numpy(kinds)), (order.row, own.targets)
        sources, relations, targets = (torch.cat(both).numpy() for both in columns)
        return sources, relations, targets

    def entity_of(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """The entities of some nodes."""
        return tuple(nodes) if self.entities is None else tuple(self.entities[list(nodes)].tolist())

    def nodes_of(self, edges: Sequence[int]) -> tuple[int, ...]:
        """The nodes of a path to the tail along edges at these places."""
        return (*self.ends[0][list(edges)].tolist(), self.tail)

    def relations_of(self, edges: Sequence[int]) -> tuple[int, ...]:
        """The relations of a path along edges at these places."""
        return tuple(self.ends[1][list(edges)].tolist())

    def into(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of all edges to these nodes (n,), and the index of the node that each edge leads to: (m,) each."""
        offsets = self.table.by_tail.offsets.numpy()
        at, owners = spans(offsets[nodes], offsets[nodes + 1])
        targets = self.ends[2][self.table.edges :]
        order = np.argsort(targets, kind="stable")
        sides = (np.searchsorted(targets[order], nodes, side) for side in ("left", "right"))
        of_own, owners_of_own = spans(*sides)
        return np.concatenate([at, self.table.edges + order[of_own]]), np.concatenate([owners, owners_of_own])

    def places(self, sources: np.ndarray, relations: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The places of edges with these sources, relations and targets (n,), as far as they exist."""
        at, owners = self.into(np.asarray(targets))
        same = self.ends[0][at] == np.asarray(sources)[owners]
        same &= self.ends[1][at] == np.asarray(relations)[owners]
        return np.asarray(at[same])

    def both_ways(self, edges: Iterable[int]) -> np.ndarray:
        """The places of edges and of their inverses."""
        given = np.unique(np.asarray(list(edges), np.int64))
        sources, relations, targets = (each[given] for each in self.ends)
        return np.union1d(given, self.places(targets, self.inverse(relations), sources))

    def inverse(self, relations: np.ndarray) -> np.ndarray:
        """The inverses of relations (n,)."""
        count = self.table.relations
        return np.where(relations < count, (relations + count // 2) % max(count, 1), relations ^ 1)

    def shown(self, edges: np.ndarray) -> np.ndarray:
        """Those of some edges (n,) that are of the graph, and of a relation that is read."""
        of_graph = edges[edges < self.table.edges]
        return np.asarray(of_graph[self.graph.visible[self.ends[1][of_graph]] > 0])

    def over(self, step: Weights, edges: np.ndarray) -> Tensor:
        """The factors (n, W) of the messages along some edges in a layer."""
        place = torch.from_numpy(edges)
        of_graph = place < self.table.edges
        order = self.table.by_tail
        found = step.extra.new_empty(len(place), step.extra.shape[1])
        some = place[of_graph]
        scales = constants(order, some, found.shape[1], Norms.FOUR)
        found[of_graph] = step.relations[0, order.second[some]] * scales
        found[~of_graph] = step.extra[place[~of_graph] - self.table.edges]
        return found

    @functools.cached_property
    def traces(self) -> tuple[Trace, Trace]:
        """The traces of both streams, computed with all edges."""
        nodes_of = (torch.tensor([self.head]), self.references.ends[0])
        head_marks = self.network.head_marks(self.encoded, 1)
        marks_of = (head_marks, self.network.reference_marks(self.references, self.encoded))
        found = []
        for stream, nodes, marks in zip(STREAMS, nodes_of, marks_of, strict=True):
            weights = self.network.weights(self.references, self.encoded, stream)
            begin = reached_by(nodes, marks, 1, 1)
            found.append(Trace(weights, [begin, *layer_states(self.edges, begin, weights, self.rows)]))
        return found[0], found[1]

    @functools.cached_property
    def states(self) -> tuple[Tensor, Tensor]:
        """The states (W,) of the tail after the last layer of both streams."""
        of_head, of_references = (
            trace.states[-1].at(torch.tensor([self.tail]), self.table.nodes)[0, 0, 0] for trace in self.traces
        )
        return of_head, of_references

    def scores(self, removals: Sequence[np.ndarray]) -> Tensor:
        """The score without each of these sets of edges, given by their places: (L,)."""
        if not removals:
            return torch.zeros(0)
        edges = np.unique(np.concatenate(removals).astype(np.int64))
        gone = np.stack([np.isin(edges, each) for each in removals], 1)
        kept = torch.from_numpy(~np.insert(gone, 0, False, axis=1)).float()  # the first query leaves out nothing
        found = []
        for trace, whole in zip(self.traces, self.states, strict=True):
            nothing = Reached(torch.zeros(0, dtype=torch.int64), whole.new_zeros(0, 1, kept.shape[1], len(whole)))
            without = Without(torch.from_numpy(edges), kept, trace.states)
            *_, last = layer_states(self.edges, nothing, trace.weights, self.rows, without)
            found.append(last.states[0, 0, 1:] if len(last.rows) else whole.expand(len(removals), -1))
        return self.score(*found)

    def score(self, from_head: Tensor, from_references: Tensor, cosines: Tensor | None = None) -> Tensor:
        """Scores (…) of states (…, W) of the tail in both streams, with the pair's own `cosines` or others."""
        own = self.cosines if cosines is None else cosines
        return self.network.score(from_head, from_references, self.encoded.task[0], own)


# The search for paths


def find_paths(pair: ExplainedPair, stream: int) -> list[FoundPath]:
    """Simple paths from a mark of a stream to the tail, with their estimated parts of the score, largest first.

    A beam search follows paths backwards from the tail, layer by layer, with the gradient of the score that flows
    through each to the state of its first node; the same path at different layers has the sum of the gradients. The
    estimate of a path is gradient · state.
    """
    trace = pair.traces[stream]
    with torch.enable_grad():
        last = [state.clone().requires_grad_() for state in pair.states]
        gradients = torch.autograd.grad(pair.score(*last), last[stream])[0][None]
    paths: list[Edges] = [()]
    for number in range(len(trace.weights) - 1, -1, -1):
        if paths:
            paths, gradients = _before(pair, trace, number, paths, gradients)
    begins = trace.states[0].at(_first_nodes(pair, paths), pair.table.nodes)
    parts = (begins[:, 0, 0] * gradients).sum(1).tolist()
    found = [FoundPath(pair.nodes_of(path), path, part) for path, part in zip(paths, parts, strict=True) if path]
    return sorted(found, key=lambda path: -path.part)


def _first_nodes(pair: ExplainedPair, paths: Sequence[Edges]) -> Tensor:
    """The first node of each path."""
    first = np.array([path[0] if path else -1 for path in paths], np.int64)
    return torch.from_numpy(np.where(first < 0, pair.tail, pair.ends[0][first]).astype(np.int64))


def _before(
    pair: ExplainedPair, trace: Trace, number: int, paths: list[Edges], gradients: Tensor
) -> tuple[list[Edges], Tensor]:
    """The best ends of paths one layer earlier, and their gradients: each stays as it is, or is longer by an edge."""
    step = trace.weights[number]
    before = trace.states[number]
    count = pair.table.nodes
    starts = _first_nodes(pair, paths)
    at, owners = pair.into(starts.numpy())
    places = places_of(before.rows, count)[torch.from_numpy(pair.ends[0][at])]
    inside = (places >= 0).numpy()
    at = at[inside]
    owners = owners[inside]
    sources = pair.ends[0][at]
    over = pair.over(step, at)
    owner = torch.from_numpy(owners)
    messages = before.states[:, 0, 0].index_select(0, places[places >= 0]) * over
    sums = gradients.new_zeros(len(paths), over.shape[1]).index_add_(0, owner, messages)
    x = before.at(starts, count)[:, 0, 0]
    with torch.enable_grad():
        x.requires_grad_()
        sums.requires_grad_()
        after = step.layer.updated(x, sums, starts)
        by_state, by_sums = torch.autograd.grad((after * gradients).sum(), (x, sums))
    walked = np.full((len(paths), MOST_HOPS), -1)
    for row, path in enumerate(paths):
        walked[row, : len(path)] = path
    visited = np.where(walked < 0, pair.tail, pair.ends[0][walked])
    short = walked[:, -1] < 0
    allowed = np.flatnonzero(short[owners] & (visited[owners] != sources[:, None]).all(1))
    worth = messages.mul_(by_sums.index_select(0, owner)).sum(1)[torch.from_numpy(allowed)]
    moves = allowed[worth.topk(min(4 * BEAM, len(allowed))).indices.numpy()]
    through = by_sums[owner[moves]] * over[moves]
    longer = [(edge, *paths[row]) for edge, row in zip(at[moves].tolist(), owners[moves].tolist(), strict=True)]
    which = {path: place for place, path in enumerate(dict.fromkeys([*paths, *longer]))}
    sums = torch.zeros(len(which), over.shape[1])
    sums.index_add_(0, torch.tensor([which[path] for path in (*paths, *longer)]), torch.cat([by_state, through]))
    every = list(which)
    begins = before.at(_first_nodes(pair, every), count)[:, 0, 0]
    values, order = (sums * begins).sum(1).sort(descending=True)
    kept = order[values != 0][:BEAM]
    return [every[place] for place in kept.tolist()], sums[kept]


def two_hops(pair: ExplainedPair, head: int, tail: int) -> dict[Rule, int]:
    """The two relations of each path of two hops between nodes, and the node between them: of several, the one with
    fewest edges. A node with very many edges has no paths here."""
    ends = [pair.into(np.array([node]))[0] for node in (head, tail)]
    if head == tail or max(map(len, ends)) > MAX_EDGES:
        return {}
    sources, relations, _ = pair.ends
    first, last = (pair.shown(at[(sources[at] != head) & (sources[at] != tail)]) for at in ends)
    last = last[np.argsort(sources[last], kind="stable")]
    at, owners = spans(*(np.searchsorted(sources[last], sources[first], side) for side in ("left", "right")))
    between = sources[last[at]]
    degrees = pair.graph.graph.degrees_of(np.array(pair.entity_of(between.tolist()), np.int64), pair.graph.shown)
    rarest = np.argsort(-degrees, kind="stable")
    begins = pair.inverse(relations[first[owners[rarest]]]).tolist()
    rules = zip(begins, relations[last[at[rarest]]].tolist(), strict=True)
    return dict(zip(rules, between[rarest].tolist(), strict=True))


def paths_along_rules(pair: ExplainedPair) -> list[FoundPath]:
    """Paths of two hops from the head along relations that join some of the references too, at most `MAX_RULES`.

    The relations that join most references come first, then those that lead to fewest entities.
    """
    own = two_hops(pair, pair.head, pair.tail)
    sample = pair.references.sampled_entities[0].numpy()
    order = np.argsort(hashes_of(sample if pair.entities is None else pair.entities[sample]))
    others = [ends for ends in sample[order].tolist() if ends != [pair.head, pair.tail]]
    joined = Counter(rule for ends in others[:MAX_JOINED] for rule in two_hops(pair, *ends).keys() & own.keys())
    fans = pair.table.by_tail.fan_out
    found: dict[int, tuple[int, float, Rule, Edges]] = {}
    for rule, count in joined.items():
        between = own[rule]
        edges = pair.places(np.array([pair.head, between]), np.array(rule), np.array([between, pair.tail]))
        first, second = edges.tolist()
        rank = (-count, 1 / float(fans[first] * fans[second]), rule, (first, second))
        found[between] = min(rank, found.get(between, rank))
    return [FoundPath(pair.nodes_of(edges), edges, 0.0) for *_, edges in sorted(found.values())[:MAX_RULES]]


# Reasons


def explain(pair: ExplainedPair, most: int = 5) -> Reasons:
    """The reasons for the score of one pair, except what single references and names contribute."""
    score = float(pair.score(*pair.states))
    of_head, of_references = (find_paths(pair, stream) for stream in STREAMS)
    paths = candidate_paths(pair, of_head, of_references, most)
    known = {path.edges for path in paths}
    paths += [path for path in paths_along_rules(pair) if path.edges not in known]
    drops = [score - left for left in pair.scores([removal_of(pair, [path]) for path in paths]).tolist()]
    ordered = ordered_paths(pair, paths, drops)
    without_first = [removal_of(pair, [paths[i] for i in ordered[: n + 1]]) for n in range(1, len(ordered))]
    lost = [drops[i] for i in ordered[:1]] + [score - left for left in pair.scores(without_first).tolist()]
    named = adding_paths(pair, paths, drops, ordered, lost)[:most]
    return Reasons(
        score,
        shares_of(pair, score),
        [(pair.relations_of(paths[i].edges), drops[i]) for i in named],
        entities=[pair.entity_of(paths[i].nodes) for i in named],
        measured=True,
    )


def left_out(references: np.ndarray) -> list[np.ndarray]:
    """The distinct references without each of them in turn, if they are few."""
    pairs = distinct_pairs(references)
    few = 2 <= len(pairs) <= MAX_LEFT_OUT
    return [np.delete(pairs, place, axis=0) for place in range(len(pairs))] if few else []


def shares_of(pair: ExplainedPair, score: float) -> dict[str, float]:
    """What the score loses without each stream, and without the likeness of names."""
    of_head, of_references = pair.states
    nothing = torch.zeros_like(of_head)
    shares = {
        "head": score - float(pair.score(nothing, of_references)),
        "references": score - float(pair.score(of_head, nothing)),
    }
    if pair.cosines is not None:
        shares["names"] = score - float(pair.score(*pair.states, torch.zeros_like(pair.cosines)))
    return shares


def likeness_of_names(pair: ExplainedPair, score: float) -> list[LikeName]:
    """The head, and the tail of a reference, if the tail's name is like theirs, and what this adds to the score."""
    vectors = pair.graph.vectors
    if vectors is None or pair.cosines is None:
        return []
    head, tail = pair.entity_of([pair.head, pair.tail])
    tails = pair.entity_of(pair.references.sampled_entities[0, :, 1].tolist())
    cosines = vectors[[head, *tails]].float() @ vectors[tail].float()
    nearest = int(cosines[1:].argmax())
    found = []
    for end, entity, cosine, columns in (
        ("head", head, cosines[0], WITH_HEAD),
        ("reference", tails[nearest], cosines[1 + nearest], WITH_TAILS),
    ):
        without = pair.cosines.clone()
        without[columns] = 0
        lost = score - float(pair.score(*pair.states, without))
        if cosine >= ALIKE and abs(lost) > MIN_LIKENESS:
            found.append((end, entity, lost))
    return found


def candidate_paths(
    pair: ExplainedPair, of_head: Sequence[FoundPath], of_references: Sequence[FoundPath], most: int
) -> list[FoundPath]:
    """The edges between head and tail, and the best paths from the head and from references: at most `most` each.

    Left out: paths from a reference through the head, whose second part is a path from the head; the pair itself as a
    reference; and of paths along the same relations all but the first `MAX_ALIKE`.
    """
    into_tail, _ = pair.into(np.array([pair.tail]))
    joining = into_tail[pair.ends[0][into_tail] == pair.head]
    single = [] if pair.head == pair.tail else pair.shown(joining).tolist()
    own = joining[pair.ends[1][joining] == pair.table.relations].tolist()
    direct = [FoundPath((pair.head, pair.tail), (edge,), 0.0) for edge in single]
    known = {(edge,) for edge in (*single, *own)}

    def best(paths: Sequence[FoundPath]) -> list[FoundPath]:
        best_of_nodes: dict[tuple[int, ...], FoundPath] = {}
        for path in paths:
            if path.part > 0 and path.edges not in known:
                best_of_nodes.setdefault(path.nodes, path)
        return _unlike(pair, list(best_of_nodes.values()))[:most]

    from_references = [path for path in of_references if pair.head not in path.nodes[:-1]]
    return direct[:most] + best(of_head) + best(from_references)


def _unlike(pair: ExplainedPair, paths: Sequence[FoundPath]) -> list[FoundPath]:
    """The paths, of which at most the first `MAX_ALIKE` along the same relations are kept."""
    kinds: Counter[tuple[int, ...]] = Counter()
    kept = []
    for path in paths:
        kind = pair.relations_of(path.edges)
        kinds[kind] += 1
        if kinds[kind] <= MAX_ALIKE:
            kept.append(path)
    return kept


def ordered_paths(pair: ExplainedPair, paths: Sequence[FoundPath], drops: Sequence[float]) -> list[int]:
    """Places of the paths that lower the score when they are removed: edges from head to tail, then other paths from
    the head, then those from references. In each of these groups, those that lower it most come first.

    Of edges from head to tail at least one is named. A path that contains another one and loses hardly more is not.
    """
    direct = [is_direct(pair, path) for path in paths]
    worth = [drop * SHORTER ** (len(path.edges) - 1) for path, drop in zip(paths, drops, strict=True)]
    order = sorted(range(len(paths)), key=lambda i: (not direct[i], paths[i].nodes[0] != pair.head, -worth[i]))
    least = MIN_SHARE * max(drops, default=0.0)
    named = []
    for place, i in enumerate(order):
        within = (j for j in order if j != i and set(paths[j].edges) < set(paths[i].edges))
        if direct[i]:
            name = place == 0 or (place < MAX_DIRECT and drops[i] > 0)
        else:
            name = drops[i] > max(least, 0.0) and not any(drops[i] < HARDLY_MORE * drops[j] for j in within)
        if name:
            named.append(i)
    return named


def adding_paths(
    pair: ExplainedPair, paths: Sequence[FoundPath], drops: Sequence[float], order: Sequence[int], lost: Sequence[float]
) -> list[int]:
    """The ordered paths that lower the score further when the paths before them are removed already.

    `lost` (n,) is what the score loses without the first one, the first two, and so on.
    """
    added = np.diff(lost, prepend=0.0)
    return [
        i for i, more in zip(order, added, strict=True) if is_direct(pair, paths[i]) or more > MIN_NEW_SHARE * drops[i]
    ]


def is_direct(pair: ExplainedPair, path: FoundPath) -> bool:
    """Whether a path is an edge of the graph, not a reference, from head to tail."""
    return path.nodes == (pair.head, pair.tail) and len(path.edges) == 1 and path.edges[0] < pair.table.edges


def removal_of(pair: ExplainedPair, paths: Iterable[FoundPath]) -> np.ndarray:
    """The places of the edges of these paths, and of their inverses."""
    return pair.both_ways(edge for path in paths for edge in path.edges)
