"""TRAIL as a scorer; on a CPU one head at a time, computing only states that can reach its candidates."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.threads import parallel_map, torch_threads
from fewlink.graph import Graph
from fewlink.models.trail.explanation import EVIDENCE, encode_without_each, explain
from fewlink.models.trail.network import Encoded, Layer, TrailNetwork
from fewlink.models.trail.reading import MOST_REFERENCES, ReadGraph, Tasks, read_tasks
from fewlink.propagation.edges import EdgeTable, GraphPart, graph_part
from fewlink.propagation.product import Norms, chunk_sums, constants, edge_sums, source_states
from fewlink.scorers import Capabilities, Question, Reasons

QUERIES = 8  # heads of a block on a GPU
BLOCKS = 4  # blocks at once
MAX_TASKS = 16  # tasks that are kept in memory
WHOLE = 1_500_000  # edges, inverse ones included, up to which a CPU reads the whole graph
PART = 100_000  # edges that are read around the head and the references in a larger graph
SPARSE = 0.1  # share of all edges up to which a layer follows the edges of reached entities only
SPARSE_LAST = 0.4  # share of all edges up to which the last layer computes the candidates only


class EncodedTask(NamedTuple):
    """A task, in ids of the whole graph, and its references as the network encodes them."""

    task: Tasks
    encoded: Encoded


class TrailScorer:
    """A trained TRAIL on a graph. The encoded references of the last tasks are kept for further heads.

    On a CPU, each head is scored on its own, by several threads if there are several heads. Of a graph with more than
    `WHOLE` edges, only the surroundings of the head and the references are read; tails outside share one low score.
    """

    def __init__(self, name: str, network: TrailNetwork, graph: ReadGraph, source: Graph | None = None) -> None:
        self.name, self.network, self.graph = name, network.eval(), graph
        self.source = source
        self.device = graph.device
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        large = source is not None and self.device.type == "cpu" and 2 * source.triple_count > WHOLE
        self.part = PART if large else None  # edges to read around each head; None: the whole graph
        self._tasks: dict[bytes, EncodedTask] = {}  # in the order of their last use
        self._without_each: dict[bytes, Encoded | None] = {}  # of the task explained last
        self._idle: list[CpuPropagation] = []  # over the whole graph, each used by one thread at a time
        self._lock = threading.RLock()  # guards the caches; nothing slow is computed while it is held

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            thread_safe=True,
            most_references=MOST_REFERENCES,
            scores_are_logits=True,
            evidence=EVIDENCE,
            edges_read=self.part,
            takes_names=True,
        )

    def limit_edges(self, edges: int) -> None:
        """Read about this many edges around each head, whatever the size of the graph; fewer are quicker."""
        if self.source is None or self.device.type != "cpu":
            raise FewlinkError("the edges to read can be limited on a CPU only: give no limit, or --device cpu")
        if edges < 1:
            raise FewlinkError(f"edges is {edges}: it must be at least 1")
        self.part = edges
        self._tasks.clear()
        self._without_each.clear()

    def without(self, relation: str) -> TrailScorer:
        """The same model on the graph without the triples of a relation, which can then be predicted as a new one."""
        if self.source is None:
            return self
        graph, number = self.source, self.source.relations.find(relation)
        triples = graph.triples()[graph.triples()[:, 1] != number] if number is not None else graph.triples()
        rest = Graph.of(graph.entities, graph.relations, triples, types=graph.types, labels=graph.labels)
        other = TrailScorer(self.name, self.network, ReadGraph.of(rest).to(self.device), rest)
        other.part = self.part
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_tasks": {}, "_without_each": {}, "_idle": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        if not len(question.heads):
            return torch.zeros(0, len(question.candidates), device=self.device)
        if self.device.type == "cuda":
            with self._lock:
                return self._on_gpu(*self._encoded_task(question.references), question)
        with torch_threads(1):
            known = self._encoded_task(question.references)
            if len(question.heads) == 1:
                return self._one_head(*known, int(question.heads[0]), question.candidates)[None]
        heads = question.heads.tolist()
        return torch.stack(parallel_map(lambda head: self._one_head(*known, head, question.candidates), heads))

    @torch.no_grad()
    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """The reasons for the score of one pair, given references (K, 2)."""
        with torch_threads(1):
            task, encoded = self._encoded_task(references)
            key = references.astype(np.int64).tobytes()
            without_each = self._without_each
            if key not in without_each:
                graph, local, _ = self._read(task)
                without_each = {key: encode_without_each(self.network, graph, local)}
                self._without_each = without_each
            graph, local, part = self._read(task, head)
            nodes = None
            if part is not None:
                nodes, (head, tail) = part.nodes, part.places(np.array([head, tail])).tolist()
                if tail < 0:
                    nothing = torch.zeros(self.network.shape.width)
                    return Reasons(
                        float(self.network.score(nothing, encoded.task[0])), measured=True, graph=self.source
                    )
            reasons = explain(self.network, graph, local, encoded, without_each[key], head, tail, most, nodes=nodes)
            return dataclasses.replace(reasons, graph=self.source)

    def task(self, references: np.ndarray) -> Tasks:
        """One task with these references (K, 2), and no queries yet."""
        shots = min(len(references), MOST_REFERENCES)
        size = shots if self.device.type == "cpu" else 8 if shots <= 8 else 16
        padded = np.zeros((1, size, 2), np.int64)
        padded[0, :shots] = references[:shots]
        weights = torch.from_numpy((np.arange(size) < shots).astype(np.float32)[None]).to(self.device)
        visible = torch.ones(1, self.graph.relations, device=self.device)
        nothing = torch.zeros(1, 0, dtype=torch.long, device=self.device)
        return Tasks(self._ids(padded), weights, visible, nothing, nothing)

    def _encoded_task(self, references: np.ndarray) -> EncodedTask:
        """The task with these references, from the cache or encoded now; the least recently used task is dropped."""
        key = references.astype(np.int64).tobytes()
        with self._lock:
            known = self._tasks.pop(key, None)
            if known is not None:
                self._tasks[key] = known
                return known
        task = self.task(references)
        graph, local, _ = self._read(task)
        known = EncodedTask(task, self.network.encode(graph, local, read_tasks(graph, local)))
        with self._lock:
            self._tasks[key] = known
            if len(self._tasks) > MAX_TASKS:
                del self._tasks[next(iter(self._tasks))]
        return known

    def _read(self, task: Tasks, *more: int) -> tuple[ReadGraph, Tasks, GraphPart | None]:
        """The graph, or its edges around the references and `more` entities, and the task in ids of what is read."""
        if self.part is None or self.source is None:
            return self.graph, task, None
        ends = task.references[0].numpy()
        part = graph_part(self.source, np.append(ends.reshape(-1), more), self.part)
        local = task._replace(references=torch.from_numpy(part.places(ends))[None])
        return self.graph.part(part.edges, part.nodes), local, part

    @torch.no_grad()
    def _one_head(self, task: Tasks, encoded: Encoded, head: int, candidates: np.ndarray) -> Tensor:
        """Scores (C,) of candidates on a CPU."""
        graph, local, part = self._read(task, head)
        if part is None:
            try:
                propagation = self._idle.pop()
            except IndexError:
                propagation = CpuPropagation(self.network, graph.edges)
            states = propagation.states_of(local, encoded, head, self._ids(candidates))
            self._idle.append(propagation)
            return self.network.score(states, encoded.task)
        places = part.places(candidates)
        inside = torch.from_numpy(places >= 0)
        propagation = CpuPropagation(self.network, graph.edges)
        head = int(part.places(np.array([head]))[0])
        states = propagation.states_of(local, encoded, head, torch.from_numpy(places)[inside])
        outside = self.network.score(torch.zeros(1, self.network.shape.width), encoded.task)
        scores = outside.repeat(len(candidates))
        scores[inside] = self.network.score(states, encoded.task)
        return scores

    def _on_gpu(self, task: Tasks, encoded: Encoded, question: Question) -> Tensor:
        """Scores (H, C) on a GPU, several heads at once."""
        candidates = self._ids(question.candidates).expand(BLOCKS, -1)
        task = Tasks(*(part.expand(BLOCKS, *part.shape[1:]) for part in task))
        encoded = Encoded(
            encoded.relations.expand(-1, BLOCKS, -1, -1),
            encoded.new.expand(-1, BLOCKS, -1, -1),
            encoded.task.expand(BLOCKS, -1),
        )
        scores = []
        for some in self._ids(question.heads).split(BLOCKS * QUERIES):
            padding = some[-1:].expand(-len(some) % (BLOCKS * QUERIES))
            queries = task._replace(heads=torch.cat([some, padding]).view(BLOCKS, QUERIES), candidates=candidates)
            states = self.network.propagate(self.graph, queries, encoded, self.dtype)
            scores.append(self.network.scores(states, encoded, candidates).flatten(0, 1)[: len(some)])
        return torch.cat(scores)

    def _ids(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self.device)


class CpuPropagation:
    """Propagation over one graph; its buffers are reused for each head."""

    def __init__(self, network: TrailNetwork, edges: EdgeTable) -> None:
        self.network, self.edges = network, edges
        width, slots = network.shape.width, edges.by_tail.slots(False)
        self.states = torch.zeros(edges.nodes, width)
        self.sums = torch.zeros(edges.nodes, width)
        self.sources = torch.empty(len(slots.sources), width)

    @torch.no_grad()
    def states_of(self, task: Tasks, encoded: Encoded, head: int, rows: Tensor) -> Tensor:
        """States (n, W) of entities `rows` (n,) after the last layer, given one task and one head."""
        x, references, shots = self.states.zero_(), task.references[0], task.weights[0].bool()
        heads, tails = references[shots].unbind(1)
        marks = self.network.marks(encoded.task[0]).view(3, -1)
        x[head] += marks[0]
        x.index_add_(0, heads, marks[1].expand(len(heads), -1)).index_add_(0, tails, marks[2].expand(len(tails), -1))
        active: Tensor | None = torch.cat([heads, tails, heads.new_tensor([head])]).unique()
        layers: list[Layer] = [*self.network.layers]  # type: ignore[list-item]
        weights = list(zip(layers, encoded.relations[:, 0], encoded.new[:, 0], strict=True))
        for layer, w, new in weights[:-1]:
            active = self._layer(layer, w, new, heads, tails, active)
        layer, w, new = weights[-1]
        return self._last(layer, w, new, heads, tails, rows)

    def _layer(
        self, layer: Layer, w: Tensor, new: Tensor, heads: Tensor, tails: Tensor, active: Tensor | None
    ) -> Tensor | None:
        """Apply a layer to all states; returns the entities reached so far, or None if they are many."""
        x, order = self.states, self.edges.by_head
        over = x[heads] * new[0], x[tails] * new[1]  # messages over the references
        if active is not None:
            at = order.edges_of(active)
            if len(at) <= SPARSE * self.edges.edges:
                messages = x[self.edges.by_head.row[at]] * w[order.second[at]]
                messages *= constants(order, at, x.shape[1], Norms.FOUR)
                sums, targets = self.sums.zero_(), order.first[at].long()
                sums.index_add_(0, targets, messages)
                sums.index_add_(0, tails, over[0]).index_add_(0, heads, over[1])
                reached: Tensor = torch.cat([active, tails, heads, targets]).unique()
                x[reached] = layer.updated(x[reached], sums[reached])
                return reached
        order = self.edges.by_tail
        source_states(order, x[:, None], Norms.FOUR, out=self.sources)
        for chunk in order.chunks(False):
            sums = chunk_sums(order, chunk, self.sources[:, None], w, Norms.FOUR)[:, 0]
            for targets, messages in ((tails, over[0]), (heads, over[1])):
                inside = (targets >= chunk.rows.start) & (targets < chunk.rows.stop)
                sums.index_add_(0, targets[inside] - chunk.rows.start, messages[inside])
            x[chunk.rows] = layer.updated(x[chunk.rows], sums)
        return None

    def _last(self, layer: Layer, w: Tensor, new: Tensor, heads: Tensor, tails: Tensor, rows: Tensor) -> Tensor:
        """The states of `rows` only, after the last layer."""
        x, order = self.states, self.edges.by_tail
        rows, back = rows.unique(return_inverse=True)
        at = order.edges_of(rows)
        if len(at) > SPARSE_LAST * self.edges.edges:
            self._layer(layer, w, new, heads, tails, None)
            return self.states[rows[back]]
        messages = x.index_select(0, order.first[at]) * w.index_select(0, order.second[at])
        messages *= constants(order, at, x.shape[1], Norms.FOUR)
        sums = edge_sums(order, rows, messages)
        places = torch.full((self.edges.nodes,), -1, dtype=torch.long)
        places[rows] = torch.arange(len(rows))
        for sources, targets, weight in ((heads, tails, new[0]), (tails, heads, new[1])):
            inside = places[targets] >= 0
            sums.index_add_(0, places[targets[inside]], x[sources[inside]] * weight)
        return layer.updated(x[rows], sums)[back]
