"""Why TRAIL gives a pair its score: the paths that carried it, and what head, references and names add to it.

Everything is measured by removal: edges, a stream or names are left out, and the network runs again. Which paths are
measured is decided by a first-order estimate: with the network linear around its states, the score is a sum over paths
from the marks to the tail, and a beam search backwards from the tail finds those that add most. Paths along relations
that join the references are measured as well.
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

from fewlink.core.seeds import by_hash
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

EVIDENCE = {"head": "paths from the head", "references": "paths from the references", "names": "likeness of names"}
STREAMS = (HEAD, REFERENCES)
WITH_HEAD = [0]
WITH_TAILS = [1, 2]  # cosines that compare a candidate's name with the head's, with the tails'

MOST_HOPS = 5
MAX_LEFT_OUT = 8  # references up to which an explanation leaves out each in turn
MAX_RULES = 3  # that join references and are measured in any case
MAX_DIRECT = 3  # edges between head and tail that are named
MAX_ALIKE = 2  # measured paths along the same relations
BEAM = 128  # beginnings of paths that the search follows
HARDLY_MORE = 1.25  # times what a part of a path loses
SHORTER = 0.9  # what each hop after the first counts, where paths lose about the same
MIN_SHARE = 0.05  # of the largest loss that a named path must lose
MIN_NEW_SHARE = 0.1  # of its own loss that a named path must add to those before it


Ids = Sequence[int] | np.ndarray


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
        """The pair of two entities of a graph, of which a part is read or all; the ends of references are nodes."""
        if part is None:
            table = graph.edges
            entities = None
        else:
            table = part.edges
            entities = part.nodes
            head, tail = part.places(np.array([head, tail])).tolist()
        edges = MessageEdges(table, references.edges())
        rows = rows_to(edges, torch.tensor([tail]), network.shape.layers)
        return cls(network, encoded, graph, table, entities, references, rows, head, tail, cosines)

    @functools.cached_property
    def edges(self) -> MessageEdges:
        return MessageEdges(self.table, self.references.edges())

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

    def places(self, sources: Ids, relations: Ids, targets: Ids) -> np.ndarray:
        """The places of edges with these sources, relations and targets (n,), as far as they exist."""
        at, owners = self.into(np.asarray(targets, np.int64))
        known_sources, known_relations, _ = self.ends
        same = (known_sources[at] == np.asarray(sources, np.int64)[owners]) & (
            known_relations[at] == np.asarray(relations, np.int64)[owners]
        )
        return np.asarray(at[same])

    def into(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of all edges to these nodes (n,), and the index of the node that each edge leads to: (m,) each."""
        offsets = self.table.by_tail.offsets.numpy()
        at, owners = spans(offsets[nodes], offsets[nodes + 1])
        targets = self.ends[2][self.table.edges :]
        order = np.argsort(targets, kind="stable")
        sides = (np.searchsorted(targets[order], nodes, side) for side in ("left", "right"))
        of_own, owners_of_own = spans(*sides)
        return np.concatenate([at, self.table.edges + order[of_own]]), np.concatenate([owners, owners_of_own])

    def both_ways(self, edges: Iterable[int]) -> np.ndarray:
        """The places of edges and of their inverses."""
        given = np.unique(np.asarray(list(edges), np.int64))
        sources, relations, targets = (each[given] for each in self.ends)
        count = self.table.relations
        inverse = np.where(relations < count, (relations + count // 2) % max(count, 1), relations ^ 1)
        return np.union1d(given, self.places(targets, inverse, sources))

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

    @property
    def states(self) -> tuple[Tensor, Tensor]:
        """The states (W,) of the tail after the last layer of both streams."""
        of_head, of_references = (
            trace.states[-1].at(torch.tensor([self.tail]), self.table.nodes)[0, 0, 0] for trace in self.traces
        )
        return of_head, of_references

    @torch.no_grad()
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


class Beginnings(NamedTuple):
    """Beginnings of paths, read from the tail: the `edges` and `nodes` of each, and the gradient (n, W) of the score
    that flows through it to the state of its first node."""

    edges: list[tuple[int, ...]]
    nodes: list[tuple[int, ...]]
    gradients: Tensor


@torch.no_grad()
def find_paths(pair: ExplainedPair, stream: int) -> list[FoundPath]:
    """Simple paths from a mark of a stream to the tail, with their estimated parts of the score, largest first.

    The same beginning at different layers has the sum of the gradients. Its estimate is gradient · state.
    """
    trace = pair.traces[stream]
    with torch.enable_grad():
        last = [state.clone().requires_grad_() for state in pair.states]
        gradient = torch.autograd.grad(pair.score(*last), last[stream])[0]
    beam = Beginnings([()], [(pair.tail,)], gradient[None])
    for number in range(len(trace.weights) - 1, -1, -1):
        if beam.edges:
            beam = _before(pair, trace, number, beam)
    first = trace.states[0].at(torch.tensor([nodes[0] for nodes in beam.nodes], dtype=torch.int64), pair.table.nodes)
    parts = (first[:, 0, 0] * beam.gradients).sum(1).tolist()
    found = [FoundPath(*path) for path in zip(beam.nodes, beam.edges, parts, strict=True) if path[1]]
    return sorted(found, key=lambda path: -path.part)


def _before(pair: ExplainedPair, trace: Trace, number: int, beam: Beginnings) -> Beginnings:
    """The best beginnings of paths one layer earlier: each stays where it is, or is longer by an edge."""
    step = trace.weights[number]
    nodes = pair.table.nodes
    before = trace.states[number]
    ends = np.array([walked[0] for walked in beam.nodes])
    at, owners = pair.into(ends)
    reached = places_of(before.rows, nodes).numpy()[pair.ends[0][at]]
    at = at[reached >= 0]
    owners = owners[reached >= 0]
    sources = pair.ends[0][at]
    visited = np.full((len(ends), MOST_HOPS + 1), -1)
    for row, walked in enumerate(beam.nodes):
        visited[row, : len(walked)] = walked
    over = pair.over(step, at)
    owner = torch.from_numpy(owners)
    messages = before.states[:, 0, 0].index_select(0, torch.from_numpy(reached[reached >= 0])) * over
    sums = beam.gradients.new_zeros(len(ends), over.shape[1]).index_add_(0, owner, messages)
    x = before.at(torch.from_numpy(ends), nodes)[:, 0, 0]
    with torch.enable_grad():
        x.requires_grad_()
        sums.requires_grad_()
        after = step.layer.updated(x, sums, torch.from_numpy(ends))
        by_state, by_sums = torch.autograd.grad((after * beam.gradients).sum(), (x, sums))
    short = np.array([len(edges) < MOST_HOPS for edges in beam.edges])
    allowed = np.flatnonzero(short[owners] & (visited[owners] != sources[:, None]).all(1))
    worth = messages.mul_(by_sums.index_select(0, owner)).sum(1)[torch.from_numpy(allowed)]
    moves = allowed[worth.topk(min(4 * BEAM, len(allowed))).indices.numpy()]
    chosen = torch.from_numpy(moves)
    through = by_sums[owner[chosen]] * over[chosen]
    edges = [
        *beam.edges,
        *((edge, *beam.edges[owner]) for edge, owner in zip(at[moves].tolist(), owners[moves].tolist(), strict=True)),
    ]
    walks = [
        *beam.nodes,
        *(
            (node, *beam.nodes[owner])
            for node, owner in zip(sources[moves].tolist(), owners[moves].tolist(), strict=True)
        ),
    ]
    which = {walked: place for place, walked in enumerate(dict.fromkeys(edges))}
    nodes_of = dict(zip(edges, walks, strict=True))
    gradients = torch.zeros(len(which), over.shape[1])
    gradients.index_add_(0, torch.tensor([which[walked] for walked in edges]), torch.cat([by_state, through]))
    starts = torch.tensor([nodes_of[walked][0] for walked in which])
    values, order = (gradients * before.at(starts, nodes)[:, 0, 0]).sum(1).sort(descending=True)
    kept = order[values != 0][:BEAM]
    names = list(which)
    chosen_edges = [names[place] for place in kept.tolist()]
    return Beginnings(chosen_edges, [nodes_of[walked] for walked in chosen_edges], gradients[kept])


def path_along(pair: ExplainedPair, nodes: Sequence[int], relations: Sequence[int]) -> FoundPath | None:
    """The path through these nodes along these relations; None if a part of the graph lacks one of its edges."""
    edges = [pair.places([a], [relation], [b]) for a, relation, b in zip(nodes, relations, nodes[1:], strict=False)]
    if not all(len(found) for found in edges):
        return None
    return FoundPath(tuple(nodes), tuple(int(found[0]) for found in edges), 0.0)


def paths_along_rules(pair: ExplainedPair, references: np.ndarray) -> list[FoundPath]:
    """Paths from the head along relations that join the references, given as entities (K, 2)."""
    head, tail = pair.entity_of([pair.head, pair.tail])
    found = []
    for rule, between in paths_by_rule(pair.graph, references, head, tail, MAX_RULES):
        if pair.entities is not None:
            if between not in pair.entities:
                continue
            between = int(np.searchsorted(pair.entities, between))
        found.append(path_along(pair, [pair.head, between, pair.tail], rule))
    return [path for path in found if path is not None]


# Reasons


@torch.no_grad()
def explain(pair: ExplainedPair, references: np.ndarray, most: int = 5) -> Reasons:
    """The reasons for the score of one pair, except what single references (K, 2) and names contribute."""
    score = float(pair.score(*pair.states))
    of_head, of_references = (find_paths(pair, stream) for stream in STREAMS)
    paths = candidate_paths(pair, of_head, of_references, most)
    known = {path.edges for path in paths}
    paths += [path for path in paths_along_rules(pair, references) if path.edges not in known]
    drops = [score - left for left in pair.scores([removal_of(pair, [path]) for path in paths]).tolist()]
    ordered = ordered_paths(pair, paths, drops)
    without_first = [removal_of(pair, [paths[i] for i in ordered[: n + 1]]) for n in range(1, len(ordered))]
    lost = [drops[i] for i in ordered[:1]] + [score - left for left in pair.scores(without_first).tolist()]
    named = adding_paths(pair, paths, drops, ordered, lost)[:most]
    relations = pair.ends[1]
    return Reasons(
        score,
        shares_of(pair, score),
        [(tuple(relations[list(paths[i].edges)].tolist()), drops[i]) for i in named],
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


@torch.no_grad()
def likeness_of_names(pair: ExplainedPair, score: float) -> tuple[float, float]:
    """What the score loses without the likeness of the tail's name to the head's, and to the references' tails."""
    if pair.cosines is None:
        return 0.0, 0.0
    lost = []
    for columns in (WITH_HEAD, WITH_TAILS):
        cosines = pair.cosines.clone()
        cosines[columns] = 0
        lost.append(score - float(pair.score(*pair.states, cosines)))
    return lost[0], lost[1]


def candidate_paths(
    pair: ExplainedPair, of_head: Sequence[FoundPath], of_references: Sequence[FoundPath], most: int
) -> list[FoundPath]:
    """The edges between head and tail, and the best paths from the head and from references: at most `most` each.

    Left out: paths from a reference through the head, whose second part is a path from the head; the pair itself as a
    reference; and of paths along the same relations all but the first `MAX_ALIKE`.
    """
    into_tail, _ = pair.into(np.array([pair.tail]))
    joining = into_tail[pair.ends[0][into_tail] == pair.head]
    relations = pair.ends[1][joining]
    single = [] if pair.head == pair.tail else joining[relations < pair.table.relations].tolist()
    own = joining[relations == pair.table.relations].tolist()
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
        kind = tuple(pair.ends[1][list(path.edges)].tolist())
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


MAX_JOINED = 8  # references that paths are looked for
MAX_EDGES = 20_000  # of an entity from which paths are looked for
Rule = tuple[int, int]


def paths_by_rule(graph: ReadGraph, references: np.ndarray, head: int, tail: int, most: int) -> list[tuple[Rule, int]]:
    """At most `most` rules that join head and tail and some of the references (K, 2), each with an entity between them.

    The rules that join most references come first, then those that lead to fewest entities. Of the rules through the
    same entity only the first counts.
    """
    own = joining(graph, head, tail)
    others = [pair for pair in by_hash(references).tolist() if pair != [head, tail]][:MAX_JOINED]
    joined = Counter(rule for pair in others for rule in joining(graph, *pair).keys() & own)

    def order(rule: Rule) -> tuple[int, int, Rule]:
        return -joined[rule], _fan(graph, head, rule[0]) * _fan(graph, own[rule], rule[1]), rule

    best: dict[int, Rule] = {}
    for rule in sorted(joined, key=order):
        best.setdefault(own[rule], rule)
    return [(rule, between) for between, rule in best.items()][:most]


def joining(graph: ReadGraph, head: int, tail: int) -> dict[Rule, int]:
    """The two relations of each path of two hops from head to tail, and the entity between them.

    Of several entities it is the one with fewest edges. An end with very many edges has no paths here.
    """
    if head == tail or graph.graph.degrees_of(np.array([head, tail]), graph.shown).max() > MAX_EDGES:
        return {}
    half = len(graph.graph.relations)
    (first, begins), (second, ends) = (_edges(graph, entity) for entity in (head, tail))
    inner = (ends != head) & (ends != tail)
    second = (second[inner] + half) % (2 * half)
    ends = ends[inner]
    order = np.argsort(ends, kind="stable")
    at, owner = spans(*(np.searchsorted(ends[order], begins, side) for side in ("left", "right")))
    at = order[at]
    rarest = np.argsort(-graph.graph.degrees_of(ends[at], graph.shown), kind="stable")
    at = at[rarest]
    owner = owner[rarest]
    rules = zip(first[owner].tolist(), second[at].tolist(), strict=True)
    return dict(zip(rules, ends[at].tolist(), strict=True))


def _fan(graph: ReadGraph, entity: int, relation: int) -> int:
    """The number of edges of an entity with a relation."""
    firsts, counts, _ = graph.graph.slots_of(np.array([entity]))
    return int(counts[graph.graph.relation_ids[firsts] == relation].sum())


def _edges(graph: ReadGraph, entity: int) -> tuple[np.ndarray, np.ndarray]:
    """The relations and tails of the visible edges of an entity."""
    at, _ = graph.graph.edges_of(np.array([entity]), graph.shown)
    return graph.graph.relation_ids[at], graph.graph.tail_ids[at]
