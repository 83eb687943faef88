"""Why TRAIL gives a pair its score: the paths that carried it, and what head, references and names add to it.

Everything is measured by removal: edges, a stream or names are left out, and the network runs again. Which paths are
measured is decided by a first-order estimate: with the network linear around its states, the score is a sum over paths
from the marks to the tail, and a beam search backwards from the tail finds those that add most. Paths along relations
that join the references are measured as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.graph.groups import spans
from fewlink.models.contract import Reasons
from fewlink.models.trail.removal import STREAMS, Pair, Trace

EVIDENCE = {"head": "paths from the head", "references": "paths from the references", "names": "likeness of names"}
WITH_HEAD = [0]
WITH_TAILS = [1, 2]  # cosines that compare a candidate's name with the head's, with the tails'

MOST_HOPS = 5
MAX_DIRECT = 3  # edges between head and tail that are named
MAX_ALIKE = 2  # measured paths along the same relations
MAX_KINDS = 12  # relations whose edges at the tail are measured
BEAM = 128  # beginnings of paths that the search follows
HARDLY_MORE = 1.25  # times what a part of a path loses
SHORTER = 0.9  # what each hop after the first counts, where paths lose about the same
MIN_SHARE = 0.05  # of the largest loss that a named path must lose
MIN_NEW_SHARE = 0.1  # of its own loss that a named path must add to those before it


class FoundPath(NamedTuple):
    """Its nodes, the edges between them as places in `Cone.edges`, and its estimated part of the score."""

    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    part: float


@torch.no_grad()
def find_paths(pair: Pair, stream: int, width: int = BEAM) -> list[FoundPath]:
    """Simple paths from a mark of a stream to the tail, with their estimated parts of the score, largest first.

    A beginning of a path, read from the tail, has the gradient of the score that flows through it to the state of
    its last node; the same beginning at different layers has the sum. Its estimate is gradient · state.
    """
    trace = pair.traces[stream]
    with torch.enable_grad():
        last = [each.states[-1][pair.tail].clone().requires_grad_() for each in pair.traces]
        gradient = torch.autograd.grad(pair.score(*last), last[stream])[0]
    beam: dict[tuple[int, ...], Tensor] = {(): gradient}
    for number in range(len(pair.cone.layers[stream]) - 1, -1, -1):
        beam = _before(pair, beam, stream, number, trace, width)
    nodes = {edges: nodes_of(pair, edges) for edges in beam if edges}
    parts = {edges: float(beam[edges] @ trace.states[0][walked[0]]) for edges, walked in nodes.items()}
    return [FoundPath(nodes[edges], edges, parts[edges]) for edges in sorted(parts, key=lambda e: -parts[e])]


def path_along(pair: Pair, nodes: Sequence[int], relations: Sequence[int]) -> FoundPath | None:
    """The path through these nodes along these relations; None if a part of the graph lacks one of its edges."""
    steps = zip(nodes, relations, nodes[1:], strict=False)
    places = [np.flatnonzero((pair.cone.edges == step).all(1)) for step in steps]
    if not all(len(found) for found in places):
        return None
    return FoundPath(tuple(nodes), tuple(int(found[0]) for found in places), 0.0)


def nodes_of(pair: Pair, edges: Sequence[int]) -> tuple[int, ...]:
    """The nodes of a path to the tail, given its edges."""
    return *(int(pair.cone.edges[edge, 0]) for edge in edges), pair.tail


def _before(
    pair: Pair, beam: dict[tuple[int, ...], Tensor], stream: int, number: int, trace: Trace, width: int
) -> dict[tuple[int, ...], Tensor]:
    """The best beginnings of paths one layer earlier: each stays where it is, or is longer by an edge."""
    layer = pair.cone.layers[stream][number]
    update = pair.network.layers_of(stream)[number]
    before = trace.states[number]
    weights = pair.weights(stream)[number]
    walked = list(beam)
    visited = np.full((len(walked), MOST_HOPS + 1), -1)
    for row, edges in enumerate(walked):
        visited[row, : len(edges) + 1] = nodes_of(pair, edges)
    known = np.isin(visited[:, 0], layer.rows)
    walked = [edges for edges, k in zip(walked, known, strict=True) if k]
    visited = visited[known]
    if not walked:
        return {}
    rows = np.searchsorted(layer.rows, visited[:, 0])
    with torch.enable_grad():
        x = before[visited[:, 0]].requires_grad_()
        sums = trace.sums[number][rows].requires_grad_()
        after = torch.stack([beam[edges] for edges in walked])
        by_state, by_sums = torch.autograd.grad((update.updated(x, sums) * after).sum(), (x, sums))
    at, owner = spans(layer.offsets[rows], layer.offsets[rows + 1])
    sources = pair.cone.edges[layer.edges[at], 0]
    short = np.array([len(edges) < MOST_HOPS for edges in walked])[owner]
    allowed = short & (visited[owner] != sources[:, None]).all(1)
    at = at[allowed]
    owner = owner[allowed]
    sources = sources[allowed]
    through = by_sums.unflatten(-1, (4, -1))[owner] * layer.fans[at][:, :, None]
    through = through.flatten(1) * weights[layer.relations[at]]  # (moves, W)
    best = (through * before[sources]).sum(1).topk(min(4 * width, len(at))).indices.tolist()
    longer = {edges: by_state[row] for row, edges in enumerate(walked)}
    for move in best:
        edges = (int(layer.edges[at[move]]), *walked[owner[move]])
        longer[edges] = longer[edges] + through[move] if edges in longer else through[move]
    ends = [nodes_of(pair, edges)[0] for edges in longer]
    worth, order = (torch.stack(list(longer.values())) * before[ends]).sum(1).sort(descending=True)
    keys = list(longer)
    best = [i for i, value in zip(order.tolist(), worth.tolist(), strict=True) if value]
    return {keys[i]: longer[keys[i]] for i in best[:width]}


@torch.no_grad()
def explain(pair: Pair, most: int = 5, by_rule: Sequence[FoundPath] = ()) -> Reasons:
    """The reasons for the score of one pair, but for those of single references and names; entities are nodes.

    `by_rule` are paths from the head along relations that join the references, to measure in any case.
    """
    score = float(pair.score(*pair.states))
    of_head, of_references = (find_paths(pair, stream) for stream in STREAMS)
    paths = candidate_paths(pair, of_head, of_references, most)
    paths += [path for path in by_rule if path.edges not in {each.edges for each in paths}]
    drops = [score - left for left in pair.scores([removal_of(pair, [path]) for path in paths]).tolist()]
    ordered = ordered_paths(pair, paths, drops)
    without_first = [removal_of(pair, [paths[i] for i in ordered[: n + 1]]) for n in range(len(ordered))]
    lost = [score - left for left in pair.scores(without_first).tolist()]
    named = adding_paths(pair, paths, drops, ordered, lost)[:most]
    together = None
    if named and named == ordered[: len(named)]:
        together = lost[len(named) - 1]
    elif named:
        together = score - pair.scores([removal_of(pair, [paths[i] for i in named])]).item()
    from_head = any(paths[i].nodes[0] == pair.head for i in named)
    relations = [tuple(pair.cone.edges[list(paths[i].edges), 1].tolist()) for i in named]
    return Reasons(
        score,
        shares_of(pair, score),
        [(walked, drops[i]) for walked, i in zip(relations, named, strict=True)],
        entities=[tuple(pair.cone.nodes[list(paths[i].nodes)].tolist()) for i in named],
        measured=True,
        together=together,
        at_tail=[] if from_head else edges_at_tail(pair, score),
    )


def shares_of(pair: Pair, score: float) -> dict[str, float]:
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


def likeness_of_names(pair: Pair, score: float) -> tuple[float, float]:
    """What the score loses if the tail's name is not compared with the head's, or not with the references' tails'."""
    if pair.cosines is None:
        return 0.0, 0.0
    lost = []
    for columns in (WITH_HEAD, WITH_TAILS):
        cosines = pair.cosines.clone()
        cosines[columns] = 0
        lost.append(score - float(pair.score(*pair.states, cosines)))
    return lost[0], lost[1]


def candidate_paths(
    pair: Pair, of_head: Sequence[FoundPath], of_references: Sequence[FoundPath], most: int
) -> list[FoundPath]:
    """The edges between head and tail, and the best paths from the head and from references: at most `most` each.

    Left out: paths from a reference through the head, whose second part is a path from the head; the pair itself as a
    reference; and of paths along the same relations all but the first `MAX_ALIKE`.
    """
    heads, relations, tails = pair.cone.edges.T
    joined = (heads == pair.head) & (tails == pair.tail)
    single = [] if pair.head == pair.tail else np.flatnonzero(joined & (relations < pair.cone.relations)).tolist()
    own = np.flatnonzero(joined & (relations == pair.cone.relations)).tolist()
    direct = [FoundPath((pair.head, pair.tail), (edge,), 0.0) for edge in single]
    known = {(edge,) for edge in (*single, *own)}

    def best(paths: Sequence[FoundPath]) -> list[FoundPath]:
        others = [path for path in paths if path.part > 0 and path.edges not in known]
        others = list({path.nodes: path for path in reversed(others)}.values())[::-1]  # the best of the same nodes
        return _unlike(pair, others)[:most]

    from_references = [path for path in of_references if pair.head not in path.nodes[:-1]]
    return direct[:most] + best(of_head) + best(from_references)


def _unlike(pair: Pair, paths: Sequence[FoundPath]) -> list[FoundPath]:
    """The paths without those along the same relations as `MAX_ALIKE` before them."""
    kinds: Counter[tuple[int, ...]] = Counter()
    kept = []
    for path in paths:
        kind = tuple(pair.cone.edges[list(path.edges), 1].tolist())
        kinds[kind] += 1
        if kinds[kind] <= MAX_ALIKE:
            kept.append(path)
    return kept


def ordered_paths(pair: Pair, paths: Sequence[FoundPath], drops: Sequence[float]) -> list[int]:
    """Places of the paths that lower the score when they are removed: edges from head to tail, then other paths from
    the head, then those from references; each time those that lower it most first.

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
    pair: Pair, paths: Sequence[FoundPath], drops: Sequence[float], order: Sequence[int], lost: Sequence[float]
) -> list[int]:
    """Those of the ordered paths that lower the score further when the paths before them are removed already.

    `lost` (n,) is what the score loses without the first one, the first two, and so on.
    """
    added = np.diff(lost, prepend=0.0)
    return [
        i for i, more in zip(order, added, strict=True) if is_direct(pair, paths[i]) or more > MIN_NEW_SHARE * drops[i]
    ]


def edges_at_tail(pair: Pair, score: float, most: int = 3) -> list[tuple[int, int, float]]:
    """The relations whose edges at the tail matter most: (relation as seen from the tail, edges, what they add)."""
    _, relations, tails = pair.cone.edges.T
    into = np.flatnonzero((tails == pair.tail) & (relations < pair.cone.relations))
    kinds, counts = np.unique(relations[into], return_counts=True)
    largest = np.argsort(-counts, kind="stable")[:MAX_KINDS]
    kinds = kinds[largest]
    counts = counts[largest]
    removals = [pair.cone.find(pair.cone.edges[into[relations[into] == kind]]) for kind in kinds]
    drops = [score - left for left in pair.scores(removals).tolist()]
    half = pair.cone.relations // 2
    found = [((int(k) + half) % (2 * half), int(n), d) for k, n, d in zip(kinds, counts, drops, strict=True) if d > 0]
    return sorted(found, key=lambda each: -each[2])[:most]


def is_direct(pair: Pair, path: FoundPath) -> bool:
    """Whether a path is an edge of the graph from head to tail."""
    return path.nodes == (pair.head, pair.tail) and is_edge(pair, path)


def is_edge(pair: Pair, path: FoundPath) -> bool:
    """Whether a path is one edge of the graph, not a reference."""
    return len(path.edges) == 1 and int(pair.cone.edges[path.edges[0], 1]) < pair.cone.relations


def removal_of(pair: Pair, paths: Iterable[FoundPath]) -> np.ndarray:
    """The places of the edges of these paths, and of their inverses."""
    return pair.cone.find(pair.cone.edges[[edge for path in paths for edge in path.edges]])
