"""Why TRAIL gives a pair its score: the paths that carried it, and what head and references add to it.

Everything is measured by removal: edges or marks are left out, and the network runs again. Which paths are measured is
decided by a first-order estimate: with the network linear around its states, the score is a sum over paths from the
marks to the tail, and a beam search backwards from the tail finds those that add most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.graph.csr import offsets_of, spans
from fewlink.scorers import Reasons
from fewlink.trail.network import Encoded, TrailNetwork
from fewlink.trail.reading import ReadGraph, Tasks, read_tasks

EVIDENCE = {"head": "paths from the head", "references": "paths from the references"}

MOST_HOPS = 5
MOST_DIRECT = 3  # edges between head and tail that are told
BEAM = 128  # beginnings of paths that the search follows
HARDLY_MORE = 1.25  # times what a part of a path loses
AT_ONCE = 1 << 22  # numbers of a block of messages


class FoundPath(NamedTuple):
    """Its nodes, the edges between them as places in `Cone.edges`, and its estimated part of the score."""

    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    part: float


class ConeLayer(NamedTuple):
    """What one layer computes: new states of `rows`, from edges whose targets are places in `rows`.

    Shapes: `rows` (n,); `edges` (e,) places in `Cone.edges`, sorted by target; `sources`, `targets`, `relations` (e,);
    `fans` (e, 4); `offsets` (n + 1,), where the edges of each row begin.
    """

    rows: np.ndarray
    edges: np.ndarray
    offsets: np.ndarray
    sources: Tensor
    targets: Tensor
    relations: Tensor
    fans: Tensor


@dataclass(frozen=True, eq=False)
class Cone:
    """The part of a graph that can change the score of one pair: what marks reach and what reaches the tail.

    Entities are numbered by their places in `nodes` (n,). `edges` (e, 3) are heads, relations and tails, sorted by
    tail; the references are edges of relation 2R and, inverse, of 2R + 1.
    """

    nodes: np.ndarray
    edges: np.ndarray
    relations: int
    layers: Sequence[ConeLayer]

    @classmethod
    def of(cls, graph: ReadGraph, references: np.ndarray, head: int, tail: int, depth: int) -> Cone:
        """For `depth` layers and references (K, 2)."""
        order, count = graph.edges.by_tail, graph.edges.relations
        given, taken = references.T
        sources, relations, targets = (part.cpu().numpy() for part in (order.first, order.second, order.row))
        fans = torch.stack([order.fan_out, order.fan_in], 1)
        fans = torch.cat([fans, fans.prod(1, keepdim=True).sqrt(), torch.ones_like(fans[:, :1])], 1)
        new = np.repeat([count, count + 1], len(references)).astype(relations.dtype)
        sources = np.concatenate([sources, given, taken]).astype(np.int64)
        targets = np.concatenate([targets, taken, given]).astype(np.int64)
        relations = np.concatenate([relations, new]).astype(np.int64)
        far = depth + 1
        from_marks, to_tail = (
            hops(sources, targets, graph.edges.nodes, np.asarray(begin), far)
            for begin in ([head, *given, *taken], [tail])
        )
        used = np.flatnonzero(from_marks[sources] + 1 + to_tail[targets] <= depth)
        used = used[np.argsort(targets[used], kind="stable")]
        nodes = np.unique(np.concatenate([sources[used], targets[used], [head, tail], given, taken]))
        edges = np.stack(
            [np.searchsorted(nodes, sources[used]), relations[used], np.searchsorted(nodes, targets[used])]
        )
        begun, left, device = from_marks[nodes], to_tail[nodes], graph.edges.device
        fans = torch.cat([fans, fans.new_ones(2 * len(references), 4)])[torch.from_numpy(used).to(device)]

        def layer(number: int) -> ConeLayer:
            rows = np.flatnonzero((begun <= number) & (left <= depth - number))
            some = np.flatnonzero((begun[edges[0]] < number) & (left[edges[2]] <= depth - number))
            at = np.searchsorted(rows, edges[2, some])
            begins, ends, kinds, which = (
                torch.from_numpy(part).to(device) for part in (edges[0, some], at, edges[1, some], some)
            )
            return ConeLayer(rows, some, offsets_of(at, len(rows)), begins, ends, kinds, fans[which])

        return cls(nodes, edges.T, count, [layer(number) for number in range(1, depth + 1)])

    def place(self, entities: np.ndarray | int) -> np.ndarray:
        return np.searchsorted(self.nodes, entities)

    def with_inverses(self, edges: Iterable[int]) -> np.ndarray:
        """The places of these edges and of their inverses, as far as they are in the cone."""
        return self.find(self.edges[list(edges)])

    def find(self, edges: np.ndarray) -> np.ndarray:
        """The places of edges (n, 3) and of their inverses, as far as they are in the cone."""
        heads, relations, tails = np.asarray(edges).reshape(-1, 3).T
        half = self.relations // 2
        inverse = np.where(relations < self.relations, (relations + half) % self.relations, relations ^ 1)
        wanted = [self._keys(heads, relations, tails), self._keys(tails, inverse, heads)]
        return np.flatnonzero(np.isin(self._keys(*self.edges.T), np.concatenate(wanted)))

    def _keys(self, heads: np.ndarray, relations: np.ndarray, tails: np.ndarray) -> np.ndarray:
        keys: np.ndarray = (heads * (self.relations + 2) + relations) * len(self.nodes) + tails
        return keys


class Removal(NamedTuple):
    """What a run of the network leaves out: the head's mark, references, and places of edges of the cone."""

    head: bool = False
    references: Sequence[int] = ()
    edges: np.ndarray | Sequence[int] = ()


class Trace(NamedTuple):
    """States (n, W) before the first layer and after each, and the sums of messages of each layer at its rows."""

    states: list[Tensor]
    sums: list[Tensor]


@dataclass(frozen=True, eq=False)
class Pair:
    """A pair with its cone; `references` (K, 2) are places in the cone, like `head` and `tail`."""

    network: TrailNetwork
    cone: Cone
    references: np.ndarray
    head: int
    tail: int

    @classmethod
    def of(cls, network: TrailNetwork, graph: ReadGraph, references: np.ndarray, head: int, tail: int) -> Pair:
        cone = Cone.of(graph, references, head, tail, network.shape.layers)
        return cls(network, cone, cone.place(references), int(cone.place(head)), int(cone.place(tail)))

    @torch.no_grad()
    def scores(self, encoded: Encoded, removals: Sequence[Removal], trace: Trace | None = None) -> Tensor:
        """The score without each of these (L,); `encoded` has one task for all or one for each.

        A trace is filled for the first removal.
        """
        if not removals:
            return torch.zeros(0)
        x, width = self._marks(encoded, removals), self.network.shape.width
        removed = [self._removed(removal) for removal in removals]
        if trace is not None:
            trace.states.append(x[:, 0])
        for layer, update, weights in zip(
            self.cone.layers, self.network.layers, relation_weights(encoded), strict=True
        ):
            sums = self._sums(x, layer, weights.transpose(0, 1).unflatten(-1, (4, width // 4)), removed)
            rows = torch.from_numpy(layer.rows).to(x.device)
            x = x.index_copy(0, rows, update.updated(x[rows], sums))  # type: ignore[operator]
            if trace is not None:
                trace.states.append(x[:, 0])
                trace.sums.append(sums[:, 0])
        return self._readout(x[self.tail], encoded)

    def _marks(self, encoded: Encoded, removals: Sequence[Removal]) -> Tensor:
        """States before the first layer (n, L, W)."""
        marks = self.network.marks(encoded.task).unflatten(-1, (3, -1)).expand(len(removals), -1, -1)  # (L, 3, W)
        x: Tensor = marks.new_zeros(len(self.cone.nodes), len(removals), marks.shape[-1])
        for task, removal in enumerate(removals):
            if not removal.head:
                x[self.head, task] += marks[task, 0]
            for k, ends in enumerate(self.references.tolist()):
                if k not in removal.references:
                    for end, mark in zip(ends, marks[task, 1:], strict=True):
                        x[end, task] += mark
        return x

    def _removed(self, removal: Removal) -> np.ndarray:
        """Places of all edges that are left out."""
        heads, relations, tails = self.cone.edges.T
        gone = [np.asarray(removal.edges, np.int64)]
        ends, counts = np.unique(self.references[list(removal.references)], axis=0, return_counts=True)
        for (given, taken), count in zip(ends, counts, strict=True):  # the same pair may be given twice
            forth = (heads == given) & (relations == self.cone.relations) & (tails == taken)
            back = (heads == taken) & (relations == self.cone.relations + 1) & (tails == given)
            gone += [np.flatnonzero(forth)[:count], np.flatnonzero(back)[:count]]
        return np.unique(np.concatenate(gone))

    def _sums(self, x: Tensor, layer: ConeLayer, weights: Tensor, removed: Sequence[np.ndarray]) -> Tensor:
        """Sums of messages at a layer's rows (n, L, W), given weights (2R + 2, L or 1, 4, W / 4)."""
        sums: Tensor = x.new_zeros(len(layer.rows), *x.shape[1:])
        x = x.unflatten(-1, (4, -1))
        gone = [np.flatnonzero(np.isin(layer.edges, edges)) for edges in removed]
        places, tasks = np.concatenate(gone), np.repeat(np.arange(len(gone)), [len(part) for part in gone])
        step = max(1, AT_ONCE // max(1, x[0].numel()))
        for at in range(0, len(layer.edges), step):
            part = slice(at, at + step)
            messages = x[layer.sources[part]]
            messages *= weights[layer.relations[part]] * layer.fans[part, None, :, None]
            here = (places >= at) & (places < at + step)
            messages[places[here] - at, tasks[here]] = 0
            sums.index_add_(0, layer.targets[part], messages.flatten(2))
        return sums

    def _readout(self, states: Tensor, encoded: Encoded) -> Tensor:
        """Scores (L,) of the tail's states (L, W)."""
        first = torch.zeros(len(states), 1, dtype=torch.long, device=states.device)
        return self.network.scores(states[None, :, None], encoded, first).flatten()

    @torch.no_grad()
    def paths(self, encoded: Encoded, trace: Trace, width: int = BEAM) -> list[FoundPath]:
        """Simple paths from a mark to the tail, with their estimated parts of the score, largest first.

        A beginning of a path, read from the tail, has the gradient of the score that flows through it to the state of
        its last node; the same beginning at different layers has the sum. Its estimate is gradient · state.
        """
        with torch.enable_grad():
            last = trace.states[-1][[self.tail]].requires_grad_()
            (gradient,) = torch.autograd.grad(self._readout(last, encoded).sum(), last)
        beam: dict[tuple[int, ...], Tensor] = {(): gradient[0]}
        for number in range(len(self.cone.layers) - 1, -1, -1):
            weights = relation_weights(encoded)[number, 0]
            beam = self._before(beam, number, weights, trace, width)
        nodes = {edges: self._nodes(edges) for edges in beam if edges}
        parts = {edges: float(beam[edges] @ trace.states[0][walked[0]]) for edges, walked in nodes.items()}
        return [FoundPath(nodes[edges], edges, parts[edges]) for edges in sorted(parts, key=lambda e: -parts[e])]

    def _nodes(self, edges: Sequence[int]) -> tuple[int, ...]:
        return *(int(self.cone.edges[edge, 0]) for edge in edges), self.tail

    def _before(
        self, beam: dict[tuple[int, ...], Tensor], number: int, weights: Tensor, trace: Trace, width: int
    ) -> dict[tuple[int, ...], Tensor]:
        """The best beginnings of paths one layer earlier: each stays where it is, or is longer by an edge."""
        layer, update, before = self.cone.layers[number], self.network.layers[number], trace.states[number]
        walked = list(beam)
        visited = np.full((len(walked), MOST_HOPS + 1), -1)
        for row, edges in enumerate(walked):
            visited[row, : len(edges) + 1] = self._nodes(edges)
        known = np.isin(visited[:, 0], layer.rows)
        walked, visited = [edges for edges, k in zip(walked, known, strict=True) if k], visited[known]
        if not walked:
            return {}
        rows = np.searchsorted(layer.rows, visited[:, 0])
        with torch.enable_grad():
            x = before[visited[:, 0]].requires_grad_()
            sums = trace.sums[number][rows].requires_grad_()
            after = torch.stack([beam[edges] for edges in walked])
            by_state, by_sums = torch.autograd.grad(update.updated(x, sums), (x, sums), after)  # type: ignore[operator]
        at, owner = spans(layer.offsets[rows], layer.offsets[rows + 1])
        sources = self.cone.edges[layer.edges[at], 0]
        short = np.array([len(edges) < MOST_HOPS for edges in walked])[owner]
        allowed = short & (visited[owner] != sources[:, None]).all(1)
        at, owner, sources = at[allowed], owner[allowed], sources[allowed]
        through = by_sums.unflatten(-1, (4, -1))[owner] * layer.fans[at][:, :, None]
        through = through.flatten(1) * weights[layer.relations[at]]  # (moves, W)
        best = (through * before[sources]).sum(1).topk(min(4 * width, len(at))).indices.tolist()
        longer = {edges: by_state[row] for row, edges in enumerate(walked)}
        for move in best:
            edges = (int(layer.edges[at[move]]), *walked[owner[move]])
            longer[edges] = longer[edges] + through[move] if edges in longer else through[move]
        ends = [self._nodes(edges)[0] for edges in longer]
        worth, order = (torch.stack(list(longer.values())) * before[ends]).sum(1).sort(descending=True)
        keys = list(longer)
        best = [i for i, value in zip(order.tolist(), worth.tolist(), strict=True) if value]
        return {keys[i]: longer[keys[i]] for i in best[:width]}


@torch.no_grad()
def explain(
    network: TrailNetwork,
    graph: ReadGraph,
    task: Tasks,
    encoded: Encoded,
    without_each: Encoded | None,
    head: int,
    tail: int,
    most: int = 5,
    nodes: np.ndarray | None = None,
) -> Reasons:
    """The reasons for the score of one pair, given one task and what the network makes of its references.

    `without_each` comes from `encode_without_each`; it depends on the references only, like `encoded`. If `graph` is a
    part of another, `nodes` (n,) are the ids there of its entities.
    """
    references = task.references[0, task.weights[0] > 0].cpu().numpy()
    pair = Pair.of(network, graph, references, head, tail)
    trace = Trace([], [])
    every = range(len(references))
    score, no_head, no_references = pair.scores(
        encoded, [Removal(), Removal(head=True), Removal(references=every)], trace
    ).tolist()
    paths = candidate_paths(pair, pair.paths(encoded, trace), most)
    drops = [score - left for left in pair.scores(encoded, [removal_of(pair, [path]) for path in paths]).tolist()]
    order = told_paths(pair, paths, drops)[:most]
    fewer = [Removal(references=[k]) for k in every]
    ids = pair.cone.nodes if nodes is None else nodes[pair.cone.nodes]
    relations = [tuple(pair.cone.edges[list(paths[i].edges), 1].tolist()) for i in order]
    return Reasons(
        score,
        {"head": score - no_head, "references": score - no_references},
        [(walked, drops[i]) for walked, i in zip(relations, order, strict=True)],
        [score - left for left in pair.scores(without_each, fewer).tolist()] if without_each else [],
        entities=[tuple(ids[list(paths[i].nodes)].tolist()) for i in order],
        measured=True,
    )


def candidate_paths(pair: Pair, paths: Sequence[FoundPath], most: int) -> list[FoundPath]:
    """The edges between head and tail, and the best paths from the head and from references: at most `most` each.

    A path from a reference through the head is left out: its second part is a path from the head.
    """
    heads, relations, tails = pair.cone.edges.T
    joined = (heads == pair.head) & (tails == pair.tail) & (relations < pair.cone.relations)
    single = [] if pair.head == pair.tail else np.flatnonzero(joined).tolist()
    direct = [FoundPath((pair.head, pair.tail), (edge,), 0.0) for edge in single]
    others = [path for path in paths if path.part > 0 and path.edges not in {(edge,) for edge in single}]
    others = list({path.nodes: path for path in reversed(others)}.values())[::-1]  # the best of the same nodes
    from_head = [path for path in others if path.nodes[0] == pair.head]
    from_references = [path for path in others if pair.head not in path.nodes[:-1]]
    return direct[:most] + from_head[:most] + from_references[:most]


def told_paths(pair: Pair, paths: Sequence[FoundPath], drops: Sequence[float]) -> list[int]:
    """Places of the paths that lower the score when they are removed, most first; edges from head to tail before all.

    Of edges from head to tail at least one is told. A path that contains another one and loses hardly more is not.
    """
    direct = [path.nodes == (pair.head, pair.tail) and is_edge(pair, path) for path in paths]
    order = sorted(range(len(paths)), key=lambda i: (not direct[i], -drops[i]))
    told = []
    for place, i in enumerate(order):
        within = (j for j in order if j != i and set(paths[j].edges) < set(paths[i].edges))
        if direct[i]:
            tell = place == 0 or (place < MOST_DIRECT and drops[i] > 0)
        else:
            tell = drops[i] > 0 and not any(drops[i] < HARDLY_MORE * drops[j] for j in within)
        if tell:
            told.append(i)
    return told


def is_edge(pair: Pair, path: FoundPath) -> bool:
    """Whether a path is one edge of the graph, not a reference."""
    return len(path.edges) == 1 and int(pair.cone.edges[path.edges[0], 1]) < pair.cone.relations


def removal_of(pair: Pair, paths: Iterable[FoundPath]) -> Removal:
    """Leaving out the edges of these paths, and their inverses."""
    return Removal(edges=pair.cone.with_inverses(edge for path in paths for edge in path.edges))


@torch.no_grad()
def encode_without_each(network: TrailNetwork, graph: ReadGraph, task: Tasks) -> Encoded | None:
    """What the network makes of a task's references without each in turn; None if there is only one."""
    used = task.weights[0] > 0
    count = int(used.sum())
    if count < 2:
        return None
    references = task.references[:, used].expand(count, -1, -1)
    weights = 1 - torch.eye(count, device=references.device)
    others = Tasks(references, weights, *(part.expand(count, *part.shape[1:]) for part in task[2:]))
    return network.encode(graph, others, read_tasks(graph, others))


def relation_weights(encoded: Encoded) -> Tensor:
    """Weights of all relations, the new one and its inverse last: (layers, L, 2R + 2, W)."""
    return torch.cat([encoded.relations, encoded.new], 2)


def hops(sources: np.ndarray, targets: np.ndarray, nodes: int, begin: np.ndarray, far: int) -> np.ndarray:
    """How many edges each node is away from the nearest of `begin`, in either direction, or `far` if more: (nodes,)."""
    found = np.full(nodes, far)
    found[begin] = 0
    for distance in range(1, far):
        reached = targets[found[sources] == distance - 1]
        reached = reached[found[reached] == far]
        if not len(reached):
            break
        found[reached] = distance
    return found
