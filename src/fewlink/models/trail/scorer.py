"""TRAIL as a scorer. What follows from references is computed once for a task; heads are scored side by side."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fewlink.core.threads import parallel_map, torch_threads
from fewlink.models.contract import Capabilities, Question, Reasons
from fewlink.models.trail.cache import Remembered, apart
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
from fewlink.models.trail.nearby import Surroundings, Worth, as_one
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
from fewlink.propagation.edges import GraphPart, graph_part
from fewlink.propagation.product import ExtraEdges

HEADS = 4  # heads side by side on a CPU
HEADS_ON_GPU = 16  # heads of one task side by side, for which one program of the kernels has room
COPIES_ON_GPU = 4  # of a task side by side, each with other heads: few heads do not keep a GPU busy
STATES_ON_GPU = 1 << 31  # bytes that the states of several copies may take
CACHE_BYTES = 1 << 28  # bytes of all that is remembered, of the graph and of the graph without a relation
MAX_WHOLE_EDGES = 1_500_000  # edges, inverse ones included, up to which a CPU reads the whole graph
PART_EDGES = 100_000  # edges that are read around the references, and around each head, of a larger graph
NEAR_EDGES = 10_000  # edges that are read near each head if there are many
NEAR_HEADS = 16  # side by side
NEARBY = 12  # times these edges that a graph must have: choosing edges of a smaller one saves little
EDGE_BYTES = 100  # that an edge of a part takes in its table
CANDIDATES_AT_ONCE = 1 << 11  # whose hidden layer a processor's cache holds
Asked = tuple[int, int]  # the number of a question and a head
S = TypeVar("S")


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
        of_weights = sum(step.extra.nbytes for stream in self.weights for step in stream)
        return self.encoded.relations.nbytes + of_weights + 2 * sum(each.nbytes for each in self.references) + of_part


class Cone(NamedTuple):
    """The rows that each layer computes for the states of some entities; `nodes` is the number of all entities."""

    rows: Sequence[Rows]
    nodes: int

    def places(self, entities: Tensor) -> Tensor:
        """The places of some of these entities (C,) among the rows of the last layer."""
        return torch.searchsorted(self.rows[-1].entities, entities)

    def bytes(self) -> int:
        own = [rows for rows in self.rows if len(rows.entities) < self.nodes]
        return sum(8 * (len(rows.entities) + len(rows.before) + 2 * len(rows.edges.sources)) for rows in own)


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
        self.network = network.eval().requires_grad_(False)
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
        self._graph_key = object()  # in every key: models on views of a graph share the cache
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
        other._graph_key = object()
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_graph_key", "_cache", "_gpu")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __call__(self, question: Question) -> Tensor:
        return self.each([question])[0]

    def each(self, questions: Sequence[Question]) -> list[Tensor]:
        """Scores (H, C) of several questions; on a CPU, tasks on the whole graph are computed side by side."""
        if self.device.type != "cpu":
            with self._gpu:
                return [self._answered([question])[0] for question in questions]
        if self.near_edges is None:
            return self._answered(questions) if questions else []
        if len(questions) == 1:
            return [self._nearby(questions[0])]
        return parallel_map(self._nearby, questions)

    def _answered(self, questions: Sequence[Question]) -> list[Tensor]:
        """Scores (H, C) of several questions on the whole graph."""
        tasks = self.known_tasks([question.references for question in questions])
        candidates = [question.candidates for question in questions]
        with torch_threads(1):
            cone = self._cone(tasks, np.unique(np.concatenate(candidates)))
        asked = [(number, head) for number, each in enumerate(questions) for head in each.heads.tolist()]
        groups = in_groups(asked, self._heads_at_once(candidates))

        bases: Future[list[Tensor]] = Future()

        def scores(group: Sequence[Asked]) -> dict[int, Tensor]:
            if not group:  # the first one, beside which the states of heads are computed
                try:
                    bases.set_result(self._bases(tasks, candidates, cone))
                except BaseException as error:
                    bases.set_exception(error)  # the other thread waits for them
                    raise
                return {}
            states = self._head_states(tasks, group, cone)
            return self._scores(tasks, bases.result(), questions, group, states, cone)

        found = self._in_turn(scores, [(), *groups])
        nothing = [torch.zeros(0, len(each), device=self.device) for each in candidates]
        return [
            torch.cat([nothing[number], *(some[number] for some in found if number in some)])
            for number in range(len(questions))
        ]

    def _in_turn(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """`work(item)` for each item; a CPU computes two at a time."""
        return parallel_map(work, items) if self.device.type == "cpu" else [work(item) for item in items]

    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """What carried the score of one pair, given references (K, 2); it is computed on a CPU."""
        if self.device.type != "cpu":
            return self._on_cpu.explain(references, head, tail, most)
        with torch_threads(1):
            pair = self.pair(references, head, tail)
        sets = [references, *left_out(references)]  # an answer may read other edges than the explanation
        asked = [Question("", pairs, np.array([head]), np.array([tail])) for pairs in sets]
        work: list[Callable[[], Any]] = [
            functools.partial(explain, pair, most),
            functools.partial(self.each, asked),
        ]
        found, scores = parallel_map(lambda each: each(), work)
        reasons: Reasons = found
        answered, *without = map(float, scores)
        return dataclasses.replace(
            reasons,
            references=[answered - each for each in without],
            names=likeness_of_names(pair, reasons.score),
            graph=self.graph.graph,
            visible=self.graph.shown,
        )

    def pair(self, references: np.ndarray, head: int, tail: int) -> ExplainedPair:
        """A pair to explain, over the whole graph or the part around both ends and the references."""
        (known,) = self.known_tasks([references])
        cosines = self.network.cosines(self.graph, known.references, ids([head])[None], ids([tail])[None])
        ends = np.append(known.references.ends[0].numpy(), [head, tail])
        part = None if self.part_edges is None else self._part(ends, self.part_edges)
        of_names = None if cosines is None else cosines[0, 0, 0]
        return ExplainedPair.of(self.network, known.encoded, self.graph, part, known.references, head, tail, of_names)

    @functools.cached_property
    def _on_cpu(self) -> TrailScorer:
        network = copy.deepcopy(self.network).to("cpu")
        return TrailScorer(self.name, network, self.graph.to("cpu"))

    # What follows from references

    def known_tasks(self, references: Sequence[np.ndarray]) -> list[KnownTask]:
        """The tasks with these references, whatever their order, new or remembered; new ones are read side by side."""
        distinct = [np.unique(np.asarray(pairs, np.int64), axis=0) for pairs in references]
        by_key = {(self._graph_key, "task", pairs.tobytes()): pairs for pairs in distinct}
        found = self._cache.get_all(by_key, self._new_tasks)
        return [found[self._graph_key, "task", pairs.tobytes()] for pairs in distinct]

    def _new_tasks(self, references: Sequence[np.ndarray]) -> list[KnownTask]:
        alone = self.part_edges is not None or self.device.type != "cpu"
        size = 1 if alone else max(1, SAMPLE // max(map(len, references)))
        return list(itertools.chain(*self._in_turn(self._read_tasks, in_groups(references, size))))

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
            local = [references[0]._replace(ends=ids(part.places(references[0].ends.numpy())))]
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

        def make() -> Cone:
            edges = MessageEdges(self.graph.edges, extra_edges(tasks))
            return Cone(rows_to(edges, ids(candidates), self.network.shape.layers, len(tasks)), edges.nodes)

        return self._cache.get((self._graph_key, "cone", *(task.key for task in tasks), candidates.tobytes()), make)

    def _bases(self, tasks: Sequence[KnownTask], candidates: Sequence[np.ndarray], cone: Cone | None) -> list[Tensor]:
        """For each task, what the references add to the hidden layer of each candidate's score: (C, 2W).

        With a cone, states are computed for its candidates first, and for all entities once others are asked for.
        """
        nodes = [
            ids(wanted if task.part is None else task.part.places(wanted)).to(self.device)
            for task, wanted in zip(tasks, candidates, strict=True)
        ]
        found = {} if cone is None else self._reference_states(tasks, cone)
        lacking = [
            task
            for task, wanted in zip(tasks, nodes, strict=True)
            if task.key not in found or not found[task.key].cover(wanted)
        ]
        found |= self._reference_states(lacking, None)
        of_references = self.network.of_state.weight.chunk(2, 1)[1]
        return [
            found[task.key].at(wanted).float() @ of_references.T + self.network.of_task(task.encoded.task)
            for task, wanted in zip(tasks, nodes, strict=True)
        ]

    def _reference_states(self, tasks: Sequence[KnownTask], cone: Cone | None) -> dict[bytes, States]:
        """The states of tasks by their keys in the stream that begins at the references, remembered or new."""
        kind = "states" if cone is None else "states of a cone"
        by_key = {(self._graph_key, kind, task.key): task for task in tasks}
        alone = self.device.type != "cpu" or self.part_edges is not None

        def make(new: Sequence[KnownTask]) -> list[States]:
            groups = in_groups(new, 1 if alone else HEADS)
            return [states for group in groups for states in self._new_states(group, cone)]

        found = self._cache.get_all(by_key, make)
        return {key: states for (*_, key), states in found.items()}

    def _new_states(self, tasks: Sequence[KnownTask], cone: Cone | None) -> list[States]:
        """The states of tasks in the stream that begins at the references, computed side by side."""
        part = tasks[0].part
        extra = extra_edges(tasks)
        edges = MessageEdges(self.graph.edges if part is None else part.edges, extra)
        weights = side_by_side([task.weights[REFERENCES] for task in tasks])
        marks = torch.cat([self.network.reference_marks(task.local, task.encoded) for task in tasks])
        rows = None
        if self.device.type == "cpu":
            rows = [every_row(edges)] * self.network.shape.layers if cone is None else cone.rows
        states = self._propagated(edges, extra.rows, marks, (len(tasks), 1), weights, rows)
        nodes = None if cone is None else cone.rows[-1].entities
        return [States(nodes, own[:, 0] if rows is None else apart(own[:, 0])) for own in states.unbind(1)]

    def _propagated(
        self,
        edges: MessageEdges,
        places: Tensor,
        marks: Tensor,
        shape: tuple[int, int],
        weights: Sequence[Weights],
        rows: Sequence[Rows] | None,
    ) -> Tensor:
        """States (n, T, Q, W) from marks (m, W) at places (m,), for T tasks and Q heads; without rows those of all."""
        if rows is None:
            return propagate(edges, marked(places, marks, edges.nodes, *shape).to(self.dtype), weights)
        return propagate(edges, reached_by(places, marks, *shape), weights, rows)

    # Heads

    def _heads_at_once(self, candidates: Sequence[np.ndarray]) -> int:
        """How many heads are propagated side by side; on a GPU, in copies of one task."""
        if self.device.type == "cpu":
            return HEADS
        of_states = self.graph.edges.nodes * self.dtype.itemsize
        of_scores = 2 * len(candidates[0]) * torch.float32.itemsize
        of_copy = HEADS_ON_GPU * self.network.shape.width * (of_states + of_scores)  # bytes
        return HEADS_ON_GPU * max(1, min(COPIES_ON_GPU, STATES_ON_GPU // of_copy))

    def _head_states(self, tasks: Sequence[KnownTask], asked: Sequence[Asked], cone: Cone | None) -> Tensor:
        """The states (n, len(asked), W) of the candidates in a cone, or of all entities, in the streams of heads."""
        heads = ids([head for _, head in asked]).to(self.device)
        numbers = [number for number, _ in asked]
        of_heads = [tasks[number] for number in numbers]
        given = heads[:, None]
        if len(set(numbers)) == 1:
            of_heads = of_heads[:1]
            given = heads[None]
            if cone is None:  # always as many: a GPU records a program for each number
                given = torch.cat([heads, heads[-1:].expand(-len(heads) % HEADS_ON_GPU)]).view(-1, HEADS_ON_GPU)
                of_heads = of_heads * len(given)
        edges = MessageEdges(self.graph.edges, extra_edges(of_heads))
        weights = side_by_side([task.weights[HEAD] for task in of_heads])
        marks = torch.cat([self.network.head_marks(task.encoded, given.shape[1]) for task in of_heads])
        rows = None if cone is None else cone.rows
        states = self._propagated(edges, head_places(given), marks, (len(of_heads), given.shape[1]), weights, rows)
        return states.flatten(1, 2)[:, : len(heads)]

    def _scores(
        self,
        tasks: Sequence[KnownTask],
        bases: Sequence[Tensor],
        questions: Sequence[Question],
        asked: Sequence[Asked],
        states: Tensor,
        cone: Cone | None,
    ) -> dict[int, Tensor]:
        """Scores (H, C) of some heads by the number of their question, given the states of its candidates."""
        found = {}
        first = 0
        for number, of_question in itertools.groupby(asked, lambda each: each[0]):
            heads = ids([head for _, head in of_question]).to(self.device)
            tails = ids(questions[number].candidates).to(self.device)
            own = states[:, first : first + len(heads)][tails if cone is None else cone.places(tails)]
            first += len(heads)
            cosines = self.network.cosines(self.graph, tasks[number].references, heads[None], tails[None])
            of_heads = zip(own.unbind(1), [None] * len(heads) if cosines is None else cosines[0], strict=True)
            found[number] = torch.stack(
                [self._score(bases[number], of_head, None, names) for of_head, names in of_heads]
            )
        return found

    def _score(self, base: Tensor, states: Tensor, columns: Tensor | None, cosines: Tensor | None) -> Tensor:
        """Scores (C,) of the candidates of one head: equation 6, given what references add (C, 2W), what names say
        (C, COSINES), and the states (m, W) of those of the `columns` (m,), sorted, or of all."""
        of_state = self.network.of_state.weight.chunk(2, 1)[0].T
        states = states.float()
        scores = []
        for at in range(0, len(base), CANDIDATES_AT_ONCE):
            part = slice(at, at + CANDIDATES_AT_ONCE)
            if columns is None:
                hidden = torch.addmm(base[part], states[part], of_state)
            else:
                first, last = torch.searchsorted(columns, columns.new_tensor([part.start, part.stop])).tolist()
                hidden = base[part].index_add(0, columns[first:last] - at, states[first:last] @ of_state)
            if cosines is not None:
                hidden.addmm_(cosines[part], self.network.of_names.weight.T)
            scores.append(self.network.last(hidden.relu_()).squeeze(-1))
        return torch.cat(scores)

    # Parts of a large graph

    def _part(self, entities: np.ndarray, edges: int) -> GraphPart:
        """The part around entities; a hidden relation, which would lead to answers, does not choose it."""
        return graph_part(self.graph.graph, entities, edges, self.graph.shown)

    def _nearby(self, question: Question) -> Tensor:
        """Scores (H, C) with the edges near each head only."""
        (known,) = self.known_tasks([question.references])
        tails, which = np.unique(question.candidates, return_inverse=True)
        with torch_threads(1):
            around = self._cache.get((self._graph_key, "surroundings", known.key), lambda: self._surroundings(known))
            (base,) = self._bases([known], [tails], None)

        def scores(heads: np.ndarray) -> Tensor:
            return self._scores_near(known, around, heads, tails, base)

        groups = [question.heads[at : at + NEAR_HEADS] for at in range(0, len(question.heads), NEAR_HEADS)]
        found = [torch.zeros(0, len(tails)), *parallel_map(scores, groups)]
        return torch.cat(found)[:, torch.from_numpy(which)]

    def _surroundings(self, known: KnownTask) -> Surroundings:
        """The edges around heads for a task, and which of them are worth following."""
        assert self.near_edges is not None
        pairs = known.references.entities[0].numpy()
        table = self.graph.edges if known.part is None else known.part.edges
        nodes = None if known.part is None else known.part.nodes
        entities = np.arange(table.nodes) if nodes is None else nodes
        suggested = self.network.last(self._bases([known], [entities], None)[0].relu_()).squeeze(-1)
        local = pairs if known.part is None else known.part.places(pairs)
        worth = Worth.of(nodes, table.by_head, self.graph.visible, local, suggested)
        return Surroundings(self.graph.graph, pairs, worth, self.near_edges, self.graph.shown)

    def _scores_near(
        self, known: KnownTask, around: Surroundings, heads: np.ndarray, tails: np.ndarray, base: Tensor
    ) -> Tensor:
        """Scores (H, C) of tails (C,), sorted, which have states where the edges near a head reach."""
        parts = [around.near(head) for head in heads.tolist()]
        firsts = np.cumsum([0, *(len(nodes) for nodes, _ in parts)])[:-1]
        begins = [
            first + np.searchsorted(nodes, head) for first, head, (nodes, _) in zip(firsts, heads, parts, strict=True)
        ]
        reached = [np.isin(nodes, tails, assume_unique=True).nonzero()[0] for nodes, _ in parts]
        wanted = np.concatenate([first + own for first, own in zip(firsts, reached, strict=True)])
        edges = MessageEdges(as_one([own for _, own in parts]))
        rows = rows_to(edges, ids(wanted), self.network.shape.layers)
        weights = self.network.weights_of_relations(known.encoded, HEAD)
        marks = self.network.head_marks(known.encoded, len(heads))
        states = self._propagated(edges, ids(begins), marks, (1, 1), weights, rows)[:, 0, 0]
        of_heads = states.split([len(own) for own in reached])
        cosines = self.network.cosines(self.graph, known.references, ids(heads)[None], ids(tails)[None])
        names = [None] * len(heads) if cosines is None else cosines[0]
        scores = []
        for (nodes, _), own, own_states, own_names in zip(parts, reached, of_heads, names, strict=True):
            columns = ids(np.searchsorted(tails, nodes[own]))
            scores.append(self._score(base, own_states, columns, own_names))
        return torch.stack(scores)


def side_by_side(tasks: Sequence[list[Weights]]) -> list[Weights]:
    """The weights of the layers of several tasks as those of one computation."""
    if len(tasks) == 1:
        return tasks[0]
    return [
        Weights(
            layers[0].layer,
            torch.cat([each.relations for each in layers]),
            torch.cat([each.extra for each in layers]),
        )
        for layers in zip(*tasks, strict=True)
    ]


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


def in_groups(items: Sequence[S], size: int) -> list[Sequence[S]]:
    """The items in their order, in groups of `size`."""
    return [items[at : at + size] for at in range(0, len(items), size)]


def ids(array: np.ndarray | Sequence[int]) -> Tensor:
    """Ids as a tensor."""
    return torch.from_numpy(np.asarray(array, np.int64))
