"""TRAIL as a scorer. What follows from references is computed once for a task; heads are scored side by side."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fewlink.core.threads import parallel_map, torch_threads
from fewlink.models.cached import Remembered, apart
from fewlink.models.contract import Capabilities, Question, Reasons
from fewlink.models.trail.explain import EVIDENCE, ExplainedPair, explain, left_out, likeness_of_names
from fewlink.models.trail.features import (
    SAMPLE,
    ReadGraph,
    TaskReferences,
    Walks,
    padded,
    read_references,
    read_walks,
    stacked,
)
from fewlink.models.trail.nearby import Near, Surroundings, Worth, scores_near
from fewlink.models.trail.network import HEAD, REFERENCES, Encoded, TrailNetwork
from fewlink.models.trail.propagate import (
    MessageEdges,
    Rows,
    Weights,
    at_places,
    every_row,
    head_places,
    marked,
    propagate,
    reached_by,
    rows_to,
)
from fewlink.propagation.edges import EdgeTable, GraphPart, graph_part
from fewlink.propagation.product import ExtraEdges

HEADS_ON_GPU = 16  # heads of one task side by side, for which one program of the kernels has room
COPIES_ON_GPU = 4  # of a task side by side, each with other heads: few heads do not keep a GPU busy
STATES_ON_GPU = 1 << 31  # bytes that the states of several copies may take
HEADS = 4  # heads side by side on a CPU
CACHE_BYTES = 1 << 29  # bytes of all that is remembered
MAX_WHOLE_EDGES = 1_500_000  # edges, inverse ones included, up to which a CPU reads the whole graph
PART_EDGES = 100_000  # edges that are read around the references, and around each head, of a larger graph
NEAR_EDGES = 10_000  # edges that are read near each head if there are many
NEARBY = 12  # times these edges that a graph must have: choosing edges of a smaller one saves little
EDGES_AT_ONCE = 160_000  # edges near several heads that are read side by side
EDGE_BYTES = 100  # that an edge of a part takes in its table
ALIKE = 0.3  # cosine of two names from which one resembles the other
MIN_LIKENESS = 0.01  # what a likeness of names must add to be named
LikeName = tuple[str, int, float]
S = TypeVar("S", np.ndarray, list[np.ndarray], list["KnownTask"])


class KnownTask(NamedTuple):
    """What follows from references alone; `part` of the graph is read around them, or all of it.

    `references` have ids of the whole graph, `local` those of the part.
    """

    key: bytes
    references: TaskReferences
    local: TaskReferences
    encoded: Encoded
    weights: tuple[list[Weights], list[Weights]]
    part: GraphPart | None

    def bytes(self) -> int:
        of_part = 0 if self.part is None else EDGE_BYTES * self.part.edges.edges
        return (
            self.encoded.relations.nbytes
            + sum(step.extra.nbytes for stream in self.weights for step in stream)
            + 2 * sum(each.nbytes for each in self.references)
            + of_part
        )


class Cone(NamedTuple):
    """The `rows` that each layer computes of a table of edges for the states of some entities."""

    table: EdgeTable
    rows: Sequence[Rows]

    def places(self, nodes: Tensor) -> Tensor:
        """Some of the entities (C,) among the rows of the last layer, or -1 for -1."""
        return torch.searchsorted(self.rows[-1].entities, nodes).where(nodes >= 0, -1)

    def bytes(self) -> int:
        """The bytes of the rows, without those that read the edges of the whole table."""
        every = self.table.by_tail.row_edges(False)
        edges = {id(rows.edges): rows.edges for rows in self.rows if rows.edges is not every}
        own = sum(rows.entities.nbytes + rows.before.nbytes + rows.own.nbytes for rows in self.rows)
        return own + 2 * sum(each.sources.nbytes + each.source_fans.nbytes for each in edges.values())


class States(NamedTuple):
    """States (n, W) of some nodes (n,), sorted, or of all."""

    nodes: Tensor | None
    values: Tensor

    def cover(self, nodes: Tensor) -> bool:
        """Whether the states of all these nodes (m,) are known; -1 is outside the graph, where states are zeros."""
        return self.nodes is None or bool(torch.isin(nodes[nodes >= 0], self.nodes).all())

    def at(self, nodes: Tensor) -> Tensor:
        """The states of nodes (m,); zeros for -1."""
        places = nodes if self.nodes is None else torch.searchsorted(self.nodes, nodes).where(nodes >= 0, -1)
        return at_places(self.values, places)

    def bytes(self) -> int:
        return self.values.nbytes


class TrailScorer:
    """A trained TRAIL on a graph. What follows from references is computed once; several tasks are remembered.

    Of a graph with more than `MAX_WHOLE_EDGES` edges, a CPU reads the part around the references and a part near each
    head only; elsewhere states are zero.
    """

    def __init__(self, name: str, network: TrailNetwork, graph: ReadGraph) -> None:
        self.name = name
        self.network = network.eval()
        self.graph = graph
        self.device = graph.device
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        large = self.device.type == "cpu" and 2 * graph.graph.triple_count > MAX_WHOLE_EDGES
        self.part_edges = PART_EDGES if large else None  # around the references; None: the whole graph
        self.near_edges = self.part_edges  # near each head
        if large:
            graph.graph.expect_questions()
        self._forget()

    def _forget(self) -> None:
        """Begin with nothing remembered."""
        self._cache = Remembered(CACHE_BYTES)
        self._gpu = threading.Lock()  # one question at a time

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            thread_safe=True,
            scores_are_logits=True,
            evidence=EVIDENCE,
            edges_read=self.near_edges,
            reads_names=self.graph.reads_names,
            text_vectors=self.graph.given_vectors,
        )

    def has_evidence(self, references: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """Whether a path, over equal and contained names too if they are read, joins each head (n,) to a reference."""
        return self.graph.graph.joined(references, heads, self.graph.shown)

    def for_many_heads(self) -> TrailScorer:
        """The same model, which on a CPU reads only the most promising edges near each head where that is faster."""
        if self.device.type != "cpu" or 2 * self.graph.graph.triple_count < NEARBY * NEAR_EDGES:
            return self
        other = self._on(self.graph)
        other.near_edges = NEAR_EDGES
        return other

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
        other = copy.copy(self)
        other.graph = graph
        other.__dict__.pop("_on_cpu", None)
        other._forget()
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_cache", "_gpu")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __call__(self, question: Question) -> Tensor:
        return self.each([question])[0]

    @torch.no_grad()
    def each(self, questions: Sequence[Question]) -> list[Tensor]:
        """Scores (H, C) of several questions. On a CPU, tasks on the whole graph are computed side by side, and those
        of questions without heads are remembered."""
        if self.device.type != "cpu":
            with self._gpu:
                return [self._answered([question], COPIES_ON_GPU * HEADS_ON_GPU)[0] for question in questions]
        if self.near_edges is not None and len(questions) > 1:
            return parallel_map(self, questions)
        if len(questions) < 2 and not any(len(question.heads) for question in questions):
            return [torch.zeros(0, len(question.candidates)) for question in questions]
        if self.near_edges is not None:
            return [self._nearby(questions[0])]
        return self._answered(questions, HEADS)

    def _answered(self, questions: Sequence[Question], heads: int) -> list[Tensor]:
        """Scores (H, C) of several questions on the whole graph; up to `heads` heads are computed at once."""
        tasks = self.known_tasks([question.references for question in questions])
        candidates = [question.candidates for question in questions]
        asked = np.concatenate([np.stack([np.full_like(q.heads, n), q.heads], 1) for n, q in enumerate(questions)])
        groups = in_groups(asked, heads)
        with torch_threads(1):
            cone = self._cone(tasks, np.unique(np.concatenate(candidates)))
        if len(groups) == 1 and cone is not None:  # both streams at once
            streams: list[Callable[[], Any]] = [
                functools.partial(self._bases, tasks, candidates, cone),
                functools.partial(self._from_heads, tasks, questions, groups[0], cone),
            ]
            bases, of_heads = parallel_map(lambda stream: stream(), streams)
            with torch_threads(1):
                found = [self._scores(tasks, bases, questions, groups[0], of_heads)]
        else:
            with torch_threads(1):
                bases = self._bases(tasks, candidates, cone)

            def answered(asked: np.ndarray) -> list[tuple[int, Tensor]]:
                of_heads = self._from_heads(tasks, questions, asked, cone)
                return self._scores(tasks, bases, questions, asked, of_heads)

            found = parallel_map(answered, groups) if cone is not None else [answered(group) for group in groups]
        scores = [[torch.zeros(0, len(question.candidates), device=self.device)] for question in questions]
        for number, some in itertools.chain(*found):
            scores[number].append(some)
        return [torch.cat(parts) for parts in scores]

    @torch.no_grad()
    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """What carried the score of one pair, given references (K, 2); it is computed on a CPU."""
        if self.device.type != "cpu":
            return self._on_cpu.explain(references, head, tail, most)
        with torch_threads(1):
            known = self.known_task(references)
            pair = self.pair(known, head, tail)
        sets = [references, *left_out(references)]  # an answer may read other edges than the explanation
        asked = [Question("", pairs, np.array([head]), np.array([tail])) for pairs in sets]
        work: list[Callable[[], Any]] = [
            functools.partial(explain, pair, references, most),
            functools.partial(self.each, asked),
        ]
        found, scores = parallel_map(lambda each: each(), work)
        reasons: Reasons = found
        answered, *without = map(float, scores)
        return dataclasses.replace(
            reasons,
            references=[answered - each for each in without],
            names=self._like_names(known, pair, reasons.score, head, tail),
            graph=self.graph.graph,
            visible=self.graph.shown,
        )

    def pair(self, known: KnownTask, head: int, tail: int) -> ExplainedPair:
        """A pair to explain, over the whole graph or the part around both ends and the references."""
        cosines = self.network.cosines(self.graph, known.references, ids([head])[None], ids([tail])[None])
        of_names = None if cosines is None else cosines[0, 0, 0]
        references = known.references
        if self.part_edges is None:
            return ExplainedPair.of(self.network, known.encoded, self.graph, None, references, head, tail, of_names)
        ends = references.ends[0].numpy()
        part = self._part(np.append(ends, [head, tail]), self.part_edges)
        references = references._replace(ends=ids(part.places(ends))[None])
        return ExplainedPair.of(self.network, known.encoded, self.graph, part, references, head, tail, of_names)

    def _like_names(self, known: KnownTask, pair: ExplainedPair, score: float, head: int, tail: int) -> list[LikeName]:
        """The head, and the tail of a reference, if the tail's name is like theirs, and what this adds to the score."""
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

    # What follows from references

    def known_task(self, references: np.ndarray) -> KnownTask:
        """The task with these references, new or remembered."""
        return self.known_tasks([references])[0]

    def known_tasks(self, references: Sequence[np.ndarray]) -> list[KnownTask]:
        """The tasks with these references, whatever their order, new or remembered; new ones are read side by side."""
        distinct = [np.unique(np.asarray(pairs, np.int64), axis=0) for pairs in references]
        new = {pairs.tobytes(): pairs for pairs in distinct if ("task", pairs.tobytes()) not in self._cache}
        read: dict[bytes, KnownTask] = {}
        if len(new) > 1:
            size = 1 if self.part_edges is not None else max(1, SAMPLE // max(map(len, new.values())))
            groups = parallel_map(self._read_tasks, in_groups(list(new.values()), size))
            read = {task.key: task for task in itertools.chain(*groups)}

        def make(pairs: np.ndarray) -> KnownTask:
            with torch_threads(1):
                return read.get(pairs.tobytes()) or self._read_tasks([pairs])[0]

        return [self._cache.get(("task", pairs.tobytes()), functools.partial(make, pairs)) for pairs in distinct]

    @torch.no_grad()
    def _read_tasks(self, tasks: Sequence[np.ndarray]) -> list[KnownTask]:
        """A `KnownTask` for the distinct references (K, 2) of each task; on a part of the graph or a GPU there is one.

        The walks are read side by side. The rest is computed for each task alone, so that a task with the most
        references has the same numbers in any company.
        """
        graph = self.graph
        part = None
        on_gpu = self.device.type != "cpu"
        references = [
            read_references(graph, pairs, size=len(pairs) if on_gpu else None).to(self.device) for pairs in tasks
        ]
        local = references
        if self.part_edges is not None:
            part = self._part(references[0].ends[0].numpy(), self.part_edges)
            graph = graph.part(part)
            local = [references[0]._replace(ends=torch.from_numpy(part.places(references[0].ends.numpy())))]
        together = local[0]
        if len(local) > 1:
            size, sample = (max(getattr(each, name).shape[1] for each in local) for name in ("pairs", "sample"))
            together = stacked([padded(each, size, sample, graph.edges.nodes) for each in local])
        walks = (each.split(1) for each in read_walks(graph, together, self.dtype))
        found = []
        for pairs, own, of_part, *walked in zip(tasks, references, local, *walks, strict=True):
            encoded = self.network.encode(graph, of_part, Walks(*walked))
            if not on_gpu:
                encoded = encoded._replace(relations=apart(encoded.relations))
            of_head, of_references = (self.network.weights(of_part, encoded, stream) for stream in (HEAD, REFERENCES))
            found.append(KnownTask(pairs.tobytes(), own, of_part, encoded, (of_head, of_references), part))
        return found

    def _cone(self, tasks: Sequence[KnownTask], candidates: np.ndarray) -> Cone | None:
        """The rows that layers compute for the states of candidates; None on a GPU, which computes all rows."""
        if self.device.type != "cpu":
            return None
        key = b"".join(task.key for task in tasks) + candidates.tobytes()
        layers = self.network.shape.layers

        def make() -> Cone:
            edges = MessageEdges(self.graph.edges, extra_edges(tasks))
            return Cone(self.graph.edges, rows_to(edges, ids(candidates), layers, len(tasks)))

        return self._cache.get(("cone", key), make)

    def _bases(self, tasks: Sequence[KnownTask], candidates: Sequence[np.ndarray], cone: Cone | None) -> list[Tensor]:
        """For each task, what the references add to the hidden layer of each candidate's score: (C, 2W)."""
        of_references = self.network.of_state.weight.chunk(2, 1)[1]
        found = self._reference_states(tasks, candidates, cone)
        return [
            states.float() @ of_references.T + self.network.of_task(task.encoded.task)
            for states, task in zip(found, tasks, strict=True)
        ]

    def _reference_states(
        self, tasks: Sequence[KnownTask], entities: Sequence[np.ndarray], cone: Cone | None
    ) -> list[Tensor]:
        """The states (n, W) of some entities for each task, in the stream that begins at the references.

        With a cone, they are computed for the entities that are asked for first, and for all once others are.
        """
        nodes = [
            ids(wanted if task.part is None else task.part.places(wanted)).to(self.device)
            for task, wanted in zip(tasks, entities, strict=True)
        ]
        first = self._remembered_states(tasks, cone) if cone is not None else {}
        lacking = [
            task
            for task, wanted in zip(tasks, nodes, strict=True)
            if task.key not in first or not first[task.key].cover(wanted)
        ]
        found = first | self._remembered_states(lacking, None)
        return [found[task.key].at(wanted) for task, wanted in zip(tasks, nodes, strict=True)]

    def _remembered_states(self, tasks: Sequence[KnownTask], cone: Cone | None) -> dict[bytes, States]:
        """The states of tasks by their keys, remembered or new: of the last rows of a cone, or of all nodes."""
        kind = "all states" if cone is None else "states"
        by_key = {task.key: task for task in tasks}
        new = [task for key, task in by_key.items() if (kind, key) not in self._cache]
        made: dict[bytes, States] = {}
        for group in in_groups(new, 1 if self.device.type != "cpu" or self.part_edges is not None else HEADS):
            made |= zip((task.key for task in group), self._new_states(group, cone), strict=True)

        def make(task: KnownTask) -> States:
            return made.get(task.key) or self._new_states([task], cone)[0]

        return {key: self._cache.get((kind, key), functools.partial(make, task)) for key, task in by_key.items()}

    def _new_states(self, tasks: Sequence[KnownTask], cone: Cone | None) -> list[States]:
        """The states of tasks in the stream that begins at the references, computed side by side."""
        part = tasks[0].part
        table = self.graph.edges if part is None else part.edges
        extra = extra_edges(tasks)
        edges = MessageEdges(table, extra)
        weights = self._weights(tasks, REFERENCES)
        marks = torch.cat([self.network.reference_marks(task.local, task.encoded) for task in tasks])
        if self.device.type != "cpu":
            begin = marked(extra.rows, marks, table.nodes, len(tasks), 1).to(self.dtype)
            return [States(None, propagate(edges, begin, weights)[:, 0, 0])]
        rows = [every_row(edges)] * self.network.shape.layers if cone is None else cone.rows
        states = propagate(edges, reached_by(extra.rows, marks, len(tasks), 1), weights, rows)
        nodes = None if cone is None else cone.rows[-1].entities
        return [States(nodes, apart(own[:, 0])) for own in states.unbind(1)]

    def _weights(self, tasks: Sequence[KnownTask], stream: int) -> list[Weights]:
        """The weights of tasks side by side."""
        of_tasks = [task.weights[stream] for task in tasks]
        if len(tasks) == 1:
            return of_tasks[0]
        return [
            Weights(
                layers[0].layer,
                torch.cat([each.relations for each in layers]),
                torch.cat([each.extra for each in layers]),
            )
            for layers in zip(*of_tasks, strict=True)
        ]

    # Heads

    def _from_heads(
        self, tasks: Sequence[KnownTask], questions: Sequence[Question], asked: np.ndarray, cone: Cone | None
    ) -> list[tuple[int, Tensor]]:
        """The states (H, C, W) of each question's candidates in the streams of its heads, by its number.

        `asked` (Q, 2) are numbers of questions and heads.
        """
        numbers, heads = asked.T
        distinct = np.unique(numbers).tolist()
        width = self.network.shape.width
        if len(distinct) == 1:
            own = [tasks[distinct[0]]]
            given = ids(heads)[None].to(self.device)
            if cone is None:  # always as many heads: a GPU records a program for each number
                copies = self._copies_on_gpu(len(heads), len(questions[distinct[0]].candidates))
                own = own * copies
                count = copies * HEADS_ON_GPU
                given = torch.cat([given, given[:, -1:].expand(1, -len(heads) % count)], 1)
                parts = given.view(-1, copies, HEADS_ON_GPU)
            else:
                parts = given[None]
        else:
            own = [tasks[number] for number in numbers.tolist()]
            parts = ids(heads)[None, :, None]
        edges = MessageEdges(self.graph.edges, extra_edges(own))
        weights = self._weights(own, HEAD)
        marks = torch.cat([self.network.marks(task.encoded.task)[:, :width] for task in own])
        columns = []
        for some in parts:
            places = head_places(some)
            of_heads = marks.repeat_interleave(some.shape[1], 0)
            if cone is None:
                begin = marked(places, of_heads, self.graph.edges.nodes, *some.shape).to(self.dtype)
                columns.append(propagate(edges, begin, weights).flatten(1, 2))
            else:
                columns.append(
                    propagate(edges, reached_by(places, of_heads, *some.shape), weights, cone.rows).flatten(1, 2)
                )
        states = columns[0] if len(columns) == 1 else torch.cat(columns, 1)
        found = []
        for number in distinct:
            tails = ids(questions[number].candidates).to(self.device)
            if len(distinct) == 1:
                of_question = states[:, : len(heads)]
            else:
                of_question = states[:, ids(np.flatnonzero(numbers == number))]
            at = of_question[tails] if cone is None else at_places(of_question, cone.places(tails))
            found.append((number, at.transpose(0, 1)))
        return found

    def _scores(
        self,
        tasks: Sequence[KnownTask],
        bases: Sequence[Tensor],
        questions: Sequence[Question],
        asked: np.ndarray,
        of_heads: Sequence[tuple[int, Tensor]],
    ) -> list[tuple[int, Tensor]]:
        """Scores (H, C) of some heads of each question, given the states of its candidates: equation 6."""
        of_state = self.network.of_state.weight.chunk(2, 1)[0]
        scores = []
        for number, states in of_heads:
            heads = ids(asked[asked[:, 0] == number, 1]).to(self.device)[None]
            tails = ids(questions[number].candidates).to(self.device)[None]
            cosines = self.network.cosines(self.graph, tasks[number].references, heads, tails)
            weights = of_state
            if cosines is not None:
                weights = torch.cat([of_state, self.network.of_names.weight], 1)
                states = torch.cat([states, cosines[0]], 2)
            hidden = (torch.addmm(bases[number], own.float(), weights.T).relu_() for own in states)
            scores.append((number, torch.stack([self.network.last(each).squeeze(-1) for each in hidden])))
        return scores

    def _copies_on_gpu(self, heads: int, candidates: int) -> int:
        """How many copies of a task are propagated side by side on a GPU."""
        of_states = self.graph.edges.nodes * self.dtype.itemsize
        of_scores = 2 * candidates * torch.float32.itemsize
        of_copy = HEADS_ON_GPU * self.network.shape.width * (of_states + of_scores)  # bytes
        return max(1, min(COPIES_ON_GPU, STATES_ON_GPU // of_copy, -(-heads // HEADS_ON_GPU)))

    # Parts of a large graph

    def _part(self, entities: np.ndarray, edges: int) -> GraphPart:
        """The part around entities; a hidden relation, which would lead to answers, does not choose it."""
        return graph_part(self.graph.graph, entities, edges, self.graph.shown)

    def _nearby(self, question: Question) -> Tensor:
        """Scores (H, C) with the edges near each head only."""
        assert self.near_edges is not None
        known = self.known_task(question.references)
        tails, which = np.unique(question.candidates, return_inverse=True)
        with torch_threads(1):
            around = self._cache.get(("surroundings", known.key), lambda: self._surroundings(known))
            (base,) = self._bases([known], [tails], None)

        def scores(heads: np.ndarray) -> Tensor:
            near = Near.of(around, heads)
            with torch.no_grad():
                cosines = self.network.cosines(self.graph, known.references, ids(heads)[None], ids(tails)[None])
                of_names = None if cosines is None else cosines[0]
                return scores_near(self.network, known.encoded, near, tails, base, of_names)

        groups = in_groups(question.heads, max(1, EDGES_AT_ONCE // self.near_edges))
        return torch.cat(parallel_map(scores, groups))[:, torch.from_numpy(which)]

    def _surroundings(self, known: KnownTask) -> Surroundings:
        """The edges around heads for a task, and which of them are worth following."""
        assert self.near_edges is not None
        pairs = known.references.entities[0].numpy()
        table = self.graph.edges if known.part is None else known.part.edges
        nodes = None if known.part is None else known.part.nodes
        entities = np.arange(table.nodes) if nodes is None else nodes
        suggested = self.network.last(self._bases([known], [entities], None)[0].relu_()).squeeze(-1)
        local = pairs if known.part is None else known.part.places(pairs)
        worth = Worth.of(nodes, table.by_head, local, suggested)
        return Surroundings(self.graph.graph, pairs, worth, self.near_edges, self.graph.shown)


def extra_edges(tasks: Sequence[KnownTask]) -> ExtraEdges:
    """The references of T tasks as edges: of each task those that the network gives weights, one task after another."""
    count = len(tasks)
    first = 0
    parts = []
    for number, task in enumerate(tasks):
        own = task.local.edges()
        parts.append((own.rows * count + number, own.sources + first, own.targets + first))
        first += len(own.rows)
    return ExtraEdges(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def in_groups(items: S, size: int) -> list[S]:
    """The items in their order, in groups of `size`."""
    return [items[at : at + size] for at in range(0, len(items), size)]


def ids(array: np.ndarray | Sequence[int]) -> Tensor:
    """Ids as a tensor."""
    return torch.from_numpy(np.asarray(array, np.int64))
