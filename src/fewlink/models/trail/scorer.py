"""TRAIL as a scorer: what follows from references once for a task, then several heads side by side."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.threads import parallel_map, torch_threads
from fewlink.graph.components import joined
from fewlink.models.trail.answering import (
    Reached,
    ReferenceEdges,
    Rows,
    Stream,
    all_rows,
    at_places,
    propagate,
    rows_to,
)
from fewlink.models.trail.explanation import EVIDENCE, explain, likeness_of_names
from fewlink.models.trail.nearby import Near, Surroundings, Worth, scores_near
from fewlink.models.trail.network import HEAD, REFERENCES, Encoded, TrailNetwork
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.references import References, distinct_pairs, read_references
from fewlink.models.trail.remembered import Remembered
from fewlink.models.trail.removal import Pair
from fewlink.models.trail.walks import read_walks
from fewlink.propagation.edges import EdgeTable, GraphPart, graph_part
from fewlink.scorers import Capabilities, Question, Reasons

HEADS_ON_GPU = 16  # heads side by side
HEADS = 4  # heads side by side on a CPU
HEADS_NEARBY = 16  # heads whose surroundings are read side by side
FEW = 64  # candidates up to which a CPU computes the references' states for them alone
TASKS = 1 << 27  # bytes of the tasks that are remembered
STATES = 1 << 28  # bytes of the references' states that are remembered
REACHES = 1 << 27  # bytes of the ways to candidates that are remembered
WHOLE = 1_500_000  # edges, inverse ones included, up to which a CPU reads the whole graph
PART = 100_000  # edges that a part of a larger graph is grown to
NEARBY = 12  # edges of the whole graph that take about half as long as one that is chosen near a head
EDGE_BYTES = 100  # that an edge of a part takes in its table
MAX_LEFT_OUT = 8  # references up to which an explanation leaves out each in turn
ALIKE = 0.3  # cosine of two names from which one resembles the other
MIN_LIKENESS = 0.01  # what a likeness of names must add to be named
LikeName = tuple[str, int, float]


class KnownTask(NamedTuple):
    """What follows from references alone, in ids of the whole graph; `part` of it is read around them, or all of it."""

    key: bytes
    references: References
    edges: ReferenceEdges
    encoded: Encoded
    part: GraphPart | None

    def bytes(self) -> int:
        of_part = 0 if self.part is None else EDGE_BYTES * self.part.edges.edges
        return self.encoded.relations.nbytes + self.edges.constants.nbytes + of_part


class Reach(NamedTuple):
    """The way of propagation to candidates (C,), over the whole graph or a part of it.

    `edges` of the references; `rows` that each layer computes; `places` (C,) of the candidates among the last of them,
    or -1 outside of the part.
    """

    table: EdgeTable
    part: GraphPart | None
    edges: ReferenceEdges
    rows: Sequence[Rows]
    places: Tensor

    @classmethod
    def of(
        cls, table: EdgeTable, part: GraphPart | None, edges: ReferenceEdges, tails: np.ndarray, layers: int
    ) -> Reach:
        over = edges if part is None else edges.within(part)
        nodes = ids(tails if part is None else part.places(tails))
        rows = rows_to(table, over, nodes[nodes >= 0], layers)
        places = torch.searchsorted(rows[-1].entities, nodes)
        return cls(table, part, over, rows, places.where(nodes >= 0, -1))

    def bytes(self) -> int:
        distinct = {id(rows): rows for rows in self.rows}
        return self.places.nbytes + sum(rows.bytes() for rows in distinct.values())


class TrailScorer:
    """A trained TRAIL on a graph. What follows from references is computed once; several tasks are remembered.

    Of a graph with more than `WHOLE` edges, a CPU reads the neighbourhood of the references and of each head only;
    elsewhere states are zero.
    """

    def __init__(self, name: str, network: TrailNetwork, graph: ReadGraph) -> None:
        self.name, self.network, self.graph = name, network.eval(), graph
        self.device = graph.device
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        large = self.device.type == "cpu" and 2 * graph.graph.triple_count > WHOLE
        self.part_edges = PART if large else None  # to read around each head; None: the whole graph
        self.near_edges: int | None = None  # to choose by walks from each head instead
        self._remember()

    def _remember(self) -> None:
        """Begin with nothing remembered."""
        self._tasks: Remembered[KnownTask] = Remembered(TASKS, KnownTask.bytes)
        self._states: Remembered[Tensor] = Remembered(STATES, lambda states: states.nbytes)
        self._reaches: Remembered[Reach] = Remembered(REACHES, Reach.bytes)
        self._surroundings: Remembered[Surroundings] = Remembered(TASKS, Surroundings.bytes)
        self._gpu = threading.Lock()  # one question at a time

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            thread_safe=True,
            scores_are_logits=True,
            evidence=EVIDENCE,
            edges_read=self.part_edges if self.near_edges is None else self.near_edges,
            reads_names=self.graph.reads_names,
        )

    def has_evidence(self, references: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """Whether a path, over equal and contained names too if they are read, joins each head (n,) to a reference."""
        return joined(self.graph.graph, references, heads)

    def limit_edges(self, edges: int) -> None:
        """Read about so many edges around each head, chosen by walks from it (`nearby`): fewer are quicker.

        A graph that has less than `NEARBY` times as many, references included, is read as a whole.
        """
        if self.device.type != "cpu":
            raise FewlinkError("the edges to read can be limited on a CPU only: give no limit, or --device cpu")
        if edges < 1:
            raise FewlinkError(f"edges is {edges}: it must be at least 1")
        self.near_edges = edges
        self._remember()

    def without(self, relation: str) -> TrailScorer:
        """The same model on the graph without the triples of a relation."""
        return self._on(self.graph.without(relation))

    def without_names(self) -> TrailScorer:
        """The same model without the evidence of names."""
        return self._on(self.graph.without_names())

    def with_vectors(self, vectors: np.ndarray | None) -> TrailScorer:
        """The same model with other vectors of names (entities, D), see `fewlink.models.trail.text`, or without any."""
        return self._on(self.graph.with_vectors(vectors))

    def _on(self, graph: ReadGraph) -> TrailScorer:
        other = TrailScorer(self.name, self.network, graph)
        other.part_edges, other.near_edges = self.part_edges, self.near_edges
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_tasks", "_states", "_reaches", "_surroundings", "_gpu")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._remember()

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        if not len(question.heads):
            return torch.zeros(0, len(question.candidates), device=self.device)
        if self.device.type == "cuda":
            with self._gpu:
                return self._on_gpu(self.known_task(question.references), question)
        with torch_threads(1):
            known = self.known_task(question.references)
        if self._reads_nearby(known):
            return self._nearby(known, question.heads, question.candidates)
        candidates, groups = question.candidates, self._groups(question.heads)
        if len(groups) == 1:  # both streams at once
            streams = [lambda: self._base(known, candidates), lambda: self._features(known, groups[0], candidates)]
            return self._scores(*parallel_map(lambda stream: stream(), streams))
        with torch_threads(1):
            base = self._base(known, candidates)
        answers = parallel_map(lambda heads: self._scores(base, self._features(known, heads, candidates)), groups)
        return torch.cat(answers)

    @torch.no_grad()
    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """What carried the score of one pair, given references (K, 2); it is computed on a CPU."""
        if self.device.type != "cpu":
            return self._on_cpu.explain(references, head, tail, most)
        with torch_threads(1):
            known = self.known_task(references)
            pair, nodes = self._pair(known, head, tail)

        def score(pairs: np.ndarray) -> float:
            return float(self(Question("", pairs, np.array([head]), np.array([tail]))))

        work: list[Callable[[], Any]] = [lambda: explain(pair, most)]
        work += [functools.partial(score, pairs) for pairs in left_out(references)]
        found, *scores = parallel_map(lambda each: each(), work)
        reasons: Reasons = found
        return dataclasses.replace(
            reasons,
            entities=[tuple(nodes[list(walked)].tolist()) for walked in reasons.entities],
            references=[reasons.score - left for left in scores],
            names=self._like_names(known, pair, reasons.score, head, tail),
            graph=self.graph.graph,
        )

    def _pair(self, known: KnownTask, head: int, tail: int) -> tuple[Pair, np.ndarray]:
        """A pair to explain, over the whole graph or the neighbourhood of both ends and the references; and the
        entities of its nodes (n,)."""
        asked = ids([head])[None], ids([tail])[None]
        cosines = self.network.cosines(self.graph, known.references, *asked)
        edges, references, table = known.edges, known.references, self.graph.edges
        nodes = np.arange(table.nodes)
        if self.part_edges is not None:
            ends = references.ends[0].numpy()
            part = graph_part(self.graph.graph, np.append(ends, [head, tail]), self.part_edges)
            references = references._replace(ends=ids(part.places(ends))[None])
            edges, table, nodes = edges.within(part), part.edges, part.nodes
            head, tail = part.places(np.array([head, tail])).tolist()
        own = None if cosines is None else cosines[0, 0, 0]
        return Pair.of(self.network, known.encoded, table, references, edges, head, tail, own), nodes

    def _like_names(self, known: KnownTask, pair: Pair, score: float, head: int, tail: int) -> list[LikeName]:
        """The head's name, and that of a reference's tail, if the tail's name resembles it; and what this adds."""
        if self.graph.vectors is None:
            return []
        tails = known.references.sampled_entities[0, :, 1]
        cosines = (
            self.graph.vectors[torch.cat([ids([head]), tails])].float() @ self.graph.vectors[tail].float()
        ).tolist()
        nearest = max(range(len(tails)), key=lambda place: cosines[1 + place])
        with_head, with_tails = likeness_of_names(pair, score)
        found = [
            (cosines[0], ("head", head, with_head)),
            (cosines[1 + nearest], ("reference", int(tails[nearest]), with_tails)),
        ]
        return [like for cosine, like in found if cosine >= ALIKE and abs(like[2]) > MIN_LIKENESS]

    @functools.cached_property
    def _on_cpu(self) -> TrailScorer:
        network = TrailNetwork(self.network.shape)
        network.load_state_dict(self.network.state_dict())
        return TrailScorer(self.name, network, self.graph.to("cpu"))

    @torch.no_grad()
    def known_task(self, references: np.ndarray) -> KnownTask:
        """The task with these references, new or remembered."""
        pairs = distinct_pairs(references)
        return self._tasks.get(pairs.tobytes(), lambda: self.read_task(pairs))

    @torch.no_grad()
    def read_task(self, pairs: np.ndarray) -> KnownTask:
        """What follows from distinct references (K, 2)."""
        size = None if self.device.type == "cpu" else len(pairs)
        references = read_references(self.graph, pairs, size=size).to(self.device)
        graph, local, part = self.graph, references, None
        if self.part_edges is not None:
            part = graph_part(self.graph.graph, references.ends[0].numpy(), self.part_edges)
            graph = self.graph.part(part)
            local = references._replace(ends=torch.from_numpy(part.places(references.ends.numpy())))
        encoded = self.network.encode(graph, local, read_walks(graph, local, self.dtype))
        edges = ReferenceEdges.of(references, self.network.shape.width)
        return KnownTask(pairs.tobytes(), references, edges, encoded, part)

    def reference_states(self, known: KnownTask, entities: np.ndarray) -> Tensor:
        """States (n, W) of entities in the stream that begins at the references; zeros outside of the task's part."""
        if len(entities) <= FEW and self.device.type == "cpu" and known.part is None and known.key not in self._states:
            reach = self._reach(known, entities[:0], entities)
            return at_places(self._from_references(known, reach.table, reach.edges, reach.rows), reach.places)
        states = self._states.get(known.key, lambda: self._all_reference_states(known))
        places = ids(entities if known.part is None else known.part.places(entities))
        return at_places(states, places.to(self.device))

    def _all_reference_states(self, known: KnownTask) -> Tensor:
        if self.device.type != "cpu":
            found = self.network.reference_states(self.graph, known.references, known.encoded, self.dtype)
            return found[:, 0, 0]
        table, edges = self.graph.edges, known.edges
        if known.part is not None:
            table, edges = known.part.edges, edges.within(known.part)
        return self._from_references(known, table, edges, all_rows(table, edges, self.network.shape.layers))

    def _from_references(
        self, known: KnownTask, table: EdgeTable, edges: ReferenceEdges, rows: Sequence[Rows]
    ) -> Tensor:
        """States (n, W) of the last rows in the stream that begins at the references, on a CPU."""
        ends, marks = known.references.ends[0], known.references.marks[0]
        if known.part is not None:
            ends = ids(known.part.places(ends.numpy()))
        of_ends = self.network.marks(known.encoded.task[0]).view(3, -1)[1:]  # of the references' heads and tails
        stream = Stream.of(self.network, known.encoded, REFERENCES, edges)
        return propagate(table, stream, Reached(ends, (marks.T @ of_ends)[:, None]), rows)[:, 0]

    def _reads_nearby(self, known: KnownTask) -> bool:
        """Whether edges near each head are chosen for a task."""
        count = 2 * self.graph.graph.triple_count + len(known.edges.sources)
        return self.near_edges is not None and count >= NEARBY * self.near_edges

    def _nearby(self, known: KnownTask, heads: np.ndarray, candidates: np.ndarray) -> Tensor:
        """Scores (H, C) with the edges near each head only."""
        tails, which = np.unique(candidates, return_inverse=True)
        with torch_threads(1):
            around = self._surroundings.get(known.key, lambda: self._surroundings_of(known))
            base = self._base(known, tails)

        def scores(some: np.ndarray) -> Tensor:
            near = Near.of(around, some)
            cosines = self.network.cosines(self.graph, known.references, ids(some)[None], ids(tails)[None])
            of_names = None if cosines is None else cosines[0]
            return scores_near(self.network, known.encoded, near, tails, base, of_names)

        groups = [heads[at : at + HEADS_NEARBY] for at in range(0, len(heads), HEADS_NEARBY)]
        return torch.cat(parallel_map(scores, groups))[:, torch.from_numpy(which)]

    def _surroundings_of(self, known: KnownTask) -> Surroundings:
        """The edges around heads for a task, and which of them are worth following."""
        assert self.near_edges is not None
        pairs = known.references.entities[0].numpy()
        table, nodes = (self.graph.edges, None) if known.part is None else (known.part.edges, known.part.nodes)
        entities = np.arange(table.nodes) if nodes is None else nodes
        suggested = self.network.last(self._base(known, entities).relu_()).squeeze(-1)
        local = pairs if known.part is None else known.part.places(pairs)
        worth = Worth.of(nodes, table.by_head, local, suggested)
        return Surroundings(self.graph.graph, pairs, worth, self.near_edges)

    def _groups(self, heads: np.ndarray) -> list[np.ndarray]:
        """Heads that are answered together: side by side on the whole graph, one by one on parts."""
        size = HEADS if self.part_edges is None else 1
        return [heads[at : at + size] for at in range(0, len(heads), size)]

    @torch.no_grad()
    def _base(self, known: KnownTask, candidates: np.ndarray) -> Tensor:
        """What the references add to the hidden layer of each candidate's score: (C, 2W)."""
        of_references = self.network.of_state.weight.chunk(2, 1)[1]
        of_task: Tensor = self.network.of_task(known.encoded.task)
        return self.reference_states(known, candidates) @ of_references.T + of_task

    @torch.no_grad()
    def _features(self, known: KnownTask, heads: np.ndarray, candidates: np.ndarray) -> Tensor:
        """The states of candidates in the streams of some heads on a CPU, and the cosines of names: (H, C, n)."""
        reach = self._reach(known, heads, candidates)
        places = heads if reach.part is None else reach.part.places(heads)
        rows, which = np.unique(places, return_inverse=True)
        mark = self.network.marks(known.encoded.task[0])[: self.network.shape.width]
        states = mark.new_zeros(len(rows), len(heads), len(mark))
        states[which, np.arange(len(heads))] = mark
        stream = Stream.of(self.network, known.encoded, HEAD, reach.edges)
        found = propagate(reach.table, stream, Reached(ids(rows), states), reach.rows)
        features = at_places(found, reach.places).transpose(0, 1)  # (H, C, W)
        cosines = self.network.cosines(self.graph, known.references, ids(heads)[None], ids(candidates)[None])
        return features if cosines is None else torch.cat([features, cosines[0]], 2)

    @torch.no_grad()
    def _scores(self, base: Tensor, features: Tensor) -> Tensor:
        """Scores (H, C)."""
        weights = torch.cat([self.network.of_state.weight.chunk(2, 1)[0], self.network.of_names.weight], 1)
        weights = weights[:, : features.shape[2]]
        hidden = (torch.addmm(base, own, weights.T).relu_() for own in features)
        return torch.stack([self.network.last(each).squeeze(-1) for each in hidden])

    def _reach(self, known: KnownTask, heads: np.ndarray, candidates: np.ndarray) -> Reach:
        """The way to candidates: over the whole graph, or over the part around the heads and the sampled references."""
        layers = self.network.shape.layers
        if self.part_edges is not None:
            sample = known.references.sampled_entities[0].flatten().numpy()
            part = graph_part(self.graph.graph, np.append(heads, sample), self.part_edges)
            return Reach.of(part.edges, part, known.edges, candidates, layers)
        ends = (known.edges.sources, known.edges.targets)
        key = b"".join(each.numpy().tobytes() for each in ends) + candidates.tobytes()
        return self._reaches.get(key, lambda: Reach.of(self.graph.edges, None, known.edges, candidates, layers))

    def _on_gpu(self, known: KnownTask, question: Question) -> Tensor:
        """Scores (H, C) on a GPU, several heads at once."""
        candidates, encoded = ids(question.candidates).to(self.device), known.encoded
        from_references = self.reference_states(known, question.candidates)
        scores = []
        for some in ids(question.heads).to(self.device).split(HEADS_ON_GPU):
            heads = torch.cat([some, some[-1:].expand(HEADS_ON_GPU - len(some))])[None]
            states = self.network.head_states(self.graph, known.references, encoded, heads, self.dtype)
            cosines = self.network.cosines(self.graph, known.references, heads, candidates[None])
            from_heads = states[candidates, 0].transpose(0, 1)  # (H, C, W)
            found = self.network.score(
                from_heads, from_references, encoded.task, None if cosines is None else cosines[0]
            )
            scores.append(found[: len(some)])
        return torch.cat(scores)


def left_out(references: np.ndarray) -> list[np.ndarray]:
    """The distinct references without each of them in turn, if they are few."""
    pairs = distinct_pairs(references)
    few = 2 <= len(pairs) <= MAX_LEFT_OUT
    return [np.delete(pairs, place, axis=0) for place in range(len(pairs))] if few else []


def ids(array: np.ndarray | Sequence[int]) -> Tensor:
    """Ids as a tensor."""
    return torch.from_numpy(np.asarray(array, np.int64))
