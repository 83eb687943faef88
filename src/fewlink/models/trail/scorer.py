"""TRAIL as a scorer. What follows from references is computed once for a task; heads are scored side by side."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.threads import parallel_map, torch_threads
from fewlink.graph.components import joined
from fewlink.models.contract import Capabilities, Question, Reasons
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
from fewlink.models.trail.explanation import EVIDENCE, FoundPath, explain, likeness_of_names, path_along
from fewlink.models.trail.nearby import Near, Surroundings, Worth, scores_near
from fewlink.models.trail.network import HEAD, REFERENCES, Encoded, TrailNetwork
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.references import SAMPLE, References, distinct_pairs, padded, read_references, stacked
from fewlink.models.trail.remembered import Remembered, apart
from fewlink.models.trail.removal import Pair
from fewlink.models.trail.rules import paths_by_rule
from fewlink.models.trail.walks import Walks, read_walks
from fewlink.propagation.edges import EdgeTable, GraphPart, graph_part

HEADS_ON_GPU = 16  # heads of one task side by side
COPIES_ON_GPU = 4  # of a task side by side, each with other heads
STATES_ON_GPU = 1 << 31  # bytes that the states of several copies may take
HEADS = 4  # heads side by side on a CPU
HEADS_NEARBY = 16  # heads whose surroundings are read side by side
TASK_BYTES = 1 << 27  # bytes of the tasks that are remembered
STATE_BYTES = 1 << 28  # bytes of the references' states that are remembered
REACH_BYTES = 1 << 26  # bytes of the ways to candidates that are remembered
MAX_WHOLE_EDGES = 1_500_000  # edges, inverse ones included, up to which a CPU reads the whole graph
PART_EDGES = 100_000  # edges that a part of a larger graph is grown to
NEARBY = 12  # times the limit of edges that a graph must have: choosing edges of a smaller one saves little
EDGE_BYTES = 100  # that an edge of a part takes in its table
MAX_LEFT_OUT = 8  # references up to which an explanation leaves out each in turn
MAX_RULES = 3  # that join references and are measured in any case
ALIKE = 0.3  # cosine of two names from which one resembles the other
MIN_LIKENESS = 0.01  # what a likeness of names must add to be named
TASK_DIMENSIONS = (2, 2, 0)  # of each part of `Encoded`
LikeName = tuple[str, int, float]
Features = list[tuple[int, Tensor]]  # of questions, by their number
S = TypeVar("S", np.ndarray, list[np.ndarray], list["KnownTask"])


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


class SideBySide(NamedTuple):
    """T tasks together: the `edges` of their references, each once, and what the network makes of them."""

    edges: ReferenceEdges
    encoded: Encoded

    @classmethod
    def of(cls, tasks: Sequence[KnownTask]) -> SideBySide:
        first, *others = tasks
        if not others:
            return cls(first.edges, first.encoded)
        columns = zip(*(task.encoded for task in tasks), strict=True)
        encoded = (torch.cat(each, dim) for each, dim in zip(columns, TASK_DIMENSIONS, strict=True))
        return cls(first.edges.joined([task.edges for task in others]), Encoded(*encoded))


class Reach(NamedTuple):
    """The `rows` that each layer computes of the whole graph, or of a part of it, for the states of candidates."""

    table: EdgeTable
    part: GraphPart | None
    rows: Sequence[Rows]

    @classmethod
    def of(
        cls, table: EdgeTable, part: GraphPart | None, edges: ReferenceEdges, tails: np.ndarray, layers: int
    ) -> Reach:
        nodes = ids(tails if part is None else part.places(tails))
        return cls(table, part, rows_to(table, edges, nodes[nodes >= 0], layers))

    def nodes(self, entities: np.ndarray) -> np.ndarray:
        """Entities (n,) as nodes of the table, or -1 outside the part."""
        return entities if self.part is None else self.part.places(entities)

    def places(self, candidates: np.ndarray) -> Tensor:
        """Some of the candidates (C,) among the rows of the last layer, or -1 outside the part."""
        nodes = ids(self.nodes(candidates))
        return torch.searchsorted(self.rows[-1].entities, nodes).where(nodes >= 0, -1)

    def bytes(self) -> int:
        """The bytes of the rows, without those that read the edges of the whole table."""
        every = self.table.by_tail.row_edges(False)
        return sum(rows.bytes() for rows in self.rows if rows.edges is not every)


class States(NamedTuple):
    """States (n, W) of some nodes (n,), sorted, or of all."""

    nodes: Tensor | None
    values: Tensor

    def cover(self, nodes: Tensor) -> bool:
        """Whether the states of all these nodes (m,) are known; -1 is outside the graph, where states are zeros."""
        return self.nodes is None or bool(torch.isin(nodes[nodes >= 0], self.nodes).all())

    def at(self, nodes: Tensor) -> Tensor:
        """Those of nodes (m,), zeros at -1."""
        places = nodes if self.nodes is None else torch.searchsorted(self.nodes, nodes).where(nodes >= 0, -1)
        return at_places(self.values, places)

    def bytes(self) -> int:
        return self.values.nbytes + (0 if self.nodes is None else self.nodes.nbytes)


class TrailScorer:
    """A trained TRAIL on a graph. What follows from references is computed once; several tasks are remembered.

    Of a graph with more than `MAX_WHOLE_EDGES` edges, a CPU reads the neighbourhood of the references and of each head
    only; elsewhere states are zero.
    """

    def __init__(self, name: str, network: TrailNetwork, graph: ReadGraph) -> None:
        self.name = name
        self.network = network.eval()
        self.graph = graph
        self.device = graph.device
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        large = self.device.type == "cpu" and 2 * graph.graph.triple_count > MAX_WHOLE_EDGES
        self.part_edges = PART_EDGES if large else None  # to read around each head; None: the whole graph
        if large:
            graph.graph.expect_questions()
        self.near_edges: int | None = None  # to choose by walks from each head instead
        self._remember()

    def _remember(self) -> None:
        """Forget everything."""
        self._tasks: Remembered[KnownTask] = Remembered(TASK_BYTES, KnownTask.bytes)
        self._first: Remembered[States] = Remembered(STATE_BYTES // 2, States.bytes)  # of candidates asked first
        self._states: Remembered[States] = Remembered(STATE_BYTES // 2, States.bytes)  # of all nodes
        self._reaches: Remembered[Reach] = Remembered(REACH_BYTES, Reach.bytes)
        self._surroundings: Remembered[Surroundings] = Remembered(TASK_BYTES, Surroundings.bytes)
        self._gpu = threading.Lock()  # one question at a time

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            thread_safe=True,
            scores_are_logits=True,
            evidence=EVIDENCE,
            edges_read=self.part_edges if self.near_edges is None else self.near_edges,
            reads_names=self.graph.reads_names,
            text_vectors=self.graph.given_vectors,
        )

    def has_evidence(self, references: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """Whether a path, over equal and contained names too if they are read, joins each head (n,) to a reference."""
        return joined(self.graph.graph, references, heads, self.graph.shown)

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
        other.part_edges = self.part_edges
        other.near_edges = self.near_edges
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_tasks", "_first", "_states", "_reaches", "_surroundings", "_gpu")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._remember()

    def __call__(self, question: Question) -> Tensor:
        return self.each([question])[0]

    @torch.no_grad()
    def each(self, questions: Sequence[Question]) -> list[Tensor]:
        """Scores (H, C) of several questions. On a CPU, tasks on the whole graph are computed side by side, and those
        of questions without heads are remembered."""
        if self.device.type == "cuda":
            with self._gpu:
                return [self._on_gpu(question) for question in questions]
        if self.capabilities.edges_read is not None and len(questions) > 1:
            return parallel_map(self, questions)
        if len(questions) < 2 and not any(len(question.heads) for question in questions):
            return [torch.zeros(0, len(question.candidates)) for question in questions]
        tasks = self.known_tasks([question.references for question in questions])
        if self._reads_nearby(tasks[0]):
            return [self._nearby(tasks[0], questions[0].heads, questions[0].candidates)]
        if self.part_edges is not None:
            return [self._on_parts(tasks[0], questions[0].heads, questions[0].candidates)]
        candidates = [question.candidates for question in questions]
        groups = self._groups(questions)
        if len(groups) == 1:  # both streams at once
            streams: list[Callable[[], Any]] = [
                lambda: self._bases(tasks, candidates),
                lambda: self._features(tasks, questions, groups[0]),
            ]
            bases, features = parallel_map(lambda stream: stream(), streams)
            found = [self._scores(bases, features)]
        else:
            with torch_threads(1):
                bases = self._bases(tasks, candidates)
            found = parallel_map(lambda asked: self._scores(bases, self._features(tasks, questions, asked)), groups)
        scores = [[torch.zeros(0, len(question.candidates))] for question in questions]
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
            pair, nodes = self._pair(known, head, tail)

        def by_rule() -> list[FoundPath]:
            inside = nodes[pair.cone.nodes]
            rules = paths_by_rule(self.graph, references, head, tail, MAX_RULES)
            walks = [(rule, [head, between, tail]) for rule, between in rules if between in inside]
            along = (path_along(pair, np.searchsorted(inside, walked).tolist(), rule) for rule, walked in walks)
            return [path for path in along if path is not None]

        sets = [references, *left_out(references)]  # an answer may read other edges than the explanation
        asked = [Question("", pairs, np.array([head]), np.array([tail])) for pairs in sets]
        work: list[Callable[[], Any]] = [lambda: explain(pair, most, by_rule()), lambda: self.each(asked)]
        found, scores = parallel_map(lambda each: each(), work)
        reasons: Reasons = found
        answered, *without = map(float, scores)
        return dataclasses.replace(
            reasons,
            entities=[tuple(nodes[list(walked)].tolist()) for walked in reasons.entities],
            references=[answered - each for each in without],
            names=self._like_names(known, pair, reasons.score, head, tail),
            graph=self.graph.graph,
            visible=self.graph.shown,
        )

    def _pair(self, known: KnownTask, head: int, tail: int) -> tuple[Pair, np.ndarray]:
        """A pair to explain, over the whole graph or the neighbourhood of both ends and the references; and the
        entities of its nodes (n,)."""
        asked = ids([head])[None], ids([tail])[None]
        cosines = self.network.cosines(self.graph, known.references, *asked)
        edges = known.edges
        references = known.references
        if self.part_edges is None:
            table = self.graph.edges
            nodes = np.arange(table.nodes)
        else:
            ends = references.ends[0].numpy()
            part = self._part(np.append(ends, [head, tail]), self.part_edges)
            references = references._replace(ends=ids(part.places(ends))[None])
            edges, table, nodes = edges.within(part), part.edges, part.nodes
            head, tail = part.places(np.array([head, tail])).tolist()
        own = None if cosines is None else cosines[0, 0, 0]
        return Pair.of(self.network, known.encoded, table, references, edges, head, tail, own), nodes

    def _like_names(self, known: KnownTask, pair: Pair, score: float, head: int, tail: int) -> list[LikeName]:
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

    def known_task(self, references: np.ndarray) -> KnownTask:
        """The task with these references, new or remembered."""
        return self.known_tasks([references])[0]

    def known_tasks(self, references: Sequence[np.ndarray]) -> list[KnownTask]:
        """The tasks with these references, whatever their order, new or remembered; new ones are read side by side."""
        distinct = [np.unique(np.asarray(pairs, np.int64), axis=0) for pairs in references]
        new = {pairs.tobytes(): pairs for pairs in distinct if pairs.tobytes() not in self._tasks}
        read: dict[bytes, KnownTask] = {}
        if len(new) > 1:
            size = 1 if self.part_edges is not None else max(1, SAMPLE // max(map(len, new.values())))
            groups = parallel_map(self.read_tasks, in_groups(list(new.values()), size))
            read = {task.key: task for task in itertools.chain(*groups)}

        def make(pairs: np.ndarray) -> KnownTask:
            with torch_threads(1):
                return read.get(pairs.tobytes()) or self.read_tasks([pairs])[0]

        return [self._tasks.get(pairs.tobytes(), functools.partial(make, pairs)) for pairs in distinct]

    @torch.no_grad()
    def read_tasks(self, tasks: Sequence[np.ndarray]) -> list[KnownTask]:
        """What follows from distinct references (K, 2) of each task; of a part of the graph, and on a GPU, of one.

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
        if len(tasks) > 1:
            size, sample = (max(getattr(each, name).shape[1] for each in local) for name in ("pairs", "sample"))
            together = stacked([padded(each, size, sample, graph.edges.nodes) for each in local])
        walks = (each.split(1) for each in read_walks(graph, together, self.dtype))

        def encoded(references: References, walked: Sequence[Tensor]) -> Encoded:
            found = self.network.encode(graph, references, Walks(*walked))
            return found if on_gpu else found._replace(relations=apart(found.relations))

        return [
            KnownTask(
                pairs.tobytes(),
                own,
                ReferenceEdges.of(own, self.network.shape.width),
                encoded(of_part, walked),
                part,
            )
            for pairs, own, of_part, *walked in zip(tasks, references, local, *walks, strict=True)
        ]

    def reference_states(self, tasks: Sequence[KnownTask], entities: Sequence[np.ndarray]) -> list[Tensor]:
        """For each task the states (n, W) of some entities in the stream that begins at the references; zeros outside
        of the task's part.

        On the whole graph, a CPU computes them for the entities that are asked for first, and for all once others are.
        """
        nodes = [
            ids(wanted if task.part is None else task.part.places(wanted)).to(self.device)
            for task, wanted in zip(tasks, entities, strict=True)
        ]
        alone = self.device.type == "cpu" and self.part_edges is None
        first = [task for task in tasks if alone and task.key not in self._states]
        found = self._remembered_states(first, np.unique(np.concatenate(entities)))
        lacking = [
            task
            for task, wanted in zip(tasks, nodes, strict=True)
            if task.key not in found or not found[task.key].cover(wanted)
        ]
        found |= self._remembered_states(lacking, None)
        return [found[task.key].at(wanted) for task, wanted in zip(tasks, nodes, strict=True)]

    def _remembered_states(self, tasks: Sequence[KnownTask], entities: np.ndarray | None) -> dict[bytes, States]:
        """The states of tasks by their keys, remembered or new: of some entities at least, or of all nodes."""
        known = self._states if entities is None else self._first
        by_key = {task.key: task for task in tasks}
        new = [task for task in by_key.values() if task.key not in known]
        made: dict[bytes, States] = {}
        if len(new) > 1:
            for group in in_groups(new, HEADS):
                made |= zip((task.key for task in group), self._new_states(group, entities), strict=True)

        def make(task: KnownTask) -> States:
            return made.get(task.key) or self._new_states([task], entities)[0]

        return {key: known.get(key, functools.partial(make, task)) for key, task in by_key.items()}

    @torch.no_grad()
    def _new_states(self, tasks: Sequence[KnownTask], entities: np.ndarray | None) -> list[States]:
        """The states of tasks, computed side by side; on a part of the graph, and on a GPU, of one task."""
        first = tasks[0]
        if self.device.type != "cpu":
            states = self.network.reference_states(self.graph, first.references, first.encoded, self.dtype)
            return [States(None, states[:, 0, 0])]
        if entities is None:
            table = self.graph.edges if first.part is None else first.part.edges
            return [States(None, apart(own)) for own in self._from_references(tasks, table, None).unbind(1)]
        reach = self._reach(SideBySide.of(tasks).edges, entities)
        nodes = reach.rows[-1].entities
        states = self._from_references(tasks, reach.table, reach.rows)
        return [States(nodes, apart(own)) for own in states.unbind(1)]

    def _from_references(self, tasks: Sequence[KnownTask], table: EdgeTable, rows: Sequence[Rows] | None) -> Tensor:
        """States (n, T, W) of the last rows, or of all, in the stream that begins at the references, on a CPU."""
        together = SideBySide.of(tasks)
        part = tasks[0].part
        edges = together.edges if part is None else together.edges.within(part)
        ends = [task.references.ends[0] for task in tasks]
        if part is not None:
            ends = [ids(part.places(each.numpy())) for each in ends]
        every = torch.cat(ends).unique()
        states = torch.zeros(len(every), len(tasks), self.network.shape.width)
        for number, (own, task) in enumerate(zip(ends, tasks, strict=True)):
            of_ends = self.network.marks(task.encoded.task[0]).view(3, -1)[1:]  # of the references' heads and tails
            states[torch.searchsorted(every, own), number] = task.references.marks[0].T @ of_ends
        stream = Stream.of(self.network, together.encoded, REFERENCES, edges)
        rows = rows or all_rows(table, edges, self.network.shape.layers)
        return propagate(table, stream, Reached(every, states), rows)

    def _reads_nearby(self, known: KnownTask) -> bool:
        """Whether edges near each head are chosen for a task."""
        count = 2 * self.graph.graph.triple_count + len(known.edges.sources)
        return self.near_edges is not None and count >= NEARBY * self.near_edges

    def _nearby(self, known: KnownTask, heads: np.ndarray, candidates: np.ndarray) -> Tensor:
        """Scores (H, C) with the edges near each head only."""
        tails, which = np.unique(candidates, return_inverse=True)
        with torch_threads(1):
            around = self._surroundings.get(known.key, lambda: self._surroundings_of(known))
            (base,) = self._bases([known], [tails])

        def scores(some: np.ndarray) -> Tensor:
            near = Near.of(around, some)
            cosines = self.network.cosines(self.graph, known.references, ids(some)[None], ids(tails)[None])
            of_names = None if cosines is None else cosines[0]
            return scores_near(self.network, known.encoded, near, tails, base, of_names)

        return torch.cat(parallel_map(scores, in_groups(heads, HEADS_NEARBY)))[:, torch.from_numpy(which)]

    def _surroundings_of(self, known: KnownTask) -> Surroundings:
        """The edges around heads for a task, and which of them are worth following."""
        assert self.near_edges is not None
        pairs = known.references.entities[0].numpy()
        table, nodes = (self.graph.edges, None) if known.part is None else (known.part.edges, known.part.nodes)
        entities = np.arange(table.nodes) if nodes is None else nodes
        suggested = self.network.last(self._bases([known], [entities])[0].relu_()).squeeze(-1)
        local = pairs if known.part is None else known.part.places(pairs)
        worth = Worth.of(nodes, table.by_head, local, suggested)
        return Surroundings(self.graph.graph, pairs, worth, self.near_edges, self.graph.shown)

    def _part(self, entities: np.ndarray, edges: int) -> GraphPart:
        """The neighbourhood of entities; a hidden relation, which would lead to answers, does not choose it."""
        return graph_part(self.graph.graph, entities, edges, self.graph.shown)

    def _on_parts(self, known: KnownTask, heads: np.ndarray, candidates: np.ndarray) -> Tensor:
        """Scores (H, C) with the neighbourhood of the references and of each head only. Candidates outside both have
        the same score, unless their names are read."""
        assert known.part is not None
        outside = known.part.places(candidates) < 0
        around = known.references.sampled_entities[0].flatten().numpy()

        def scores(head: int) -> Tensor:
            first: list[Callable[[], Any]] = [
                lambda: self._part(np.append(around, head), self.part_edges or PART_EDGES),
                lambda: self._remembered_states([known], None),
            ]
            part, _ = parallel_map(lambda each: each(), first)
            far = outside & (part.places(candidates) < 0)
            if self.graph.vectors is not None or not far.any():
                far = np.zeros_like(far)
            own = np.append(candidates[~far], candidates[far][:1])
            question = Question("", known.references.entities[0].numpy(), np.array([head]), own)
            features = self._features([known], [question], np.array([[0, head]]), part)
            ((_, found),) = self._scores(self._bases([known], [own]), features)
            every = found.new_empty(len(candidates))
            every[torch.from_numpy(far)] = found[0, -1]
            every[torch.from_numpy(~far)] = found[0, : int((~far).sum())]
            return every

        return torch.stack(parallel_map(scores, heads.tolist()))

    def _groups(self, questions: Sequence[Question]) -> list[np.ndarray]:
        """The number of the question and the head (n, 2) of those that are answered side by side."""
        asked = [np.stack([np.full_like(q.heads, number), q.heads], 1) for number, q in enumerate(questions)]
        return in_groups(np.concatenate(asked), HEADS)

    @torch.no_grad()
    def _bases(self, tasks: Sequence[KnownTask], candidates: Sequence[np.ndarray]) -> list[Tensor]:
        """For each task, what the references add to the hidden layer of each candidate's score: (C, 2W)."""
        of_references = self.network.of_state.weight.chunk(2, 1)[1]
        found = self.reference_states(tasks, candidates)
        return [
            states @ of_references.T + self.network.of_task(task.encoded.task)
            for states, task in zip(found, tasks, strict=True)
        ]

    @torch.no_grad()
    def _features(
        self,
        tasks: Sequence[KnownTask],
        questions: Sequence[Question],
        asked: np.ndarray,
        part: GraphPart | None = None,
    ) -> Features:
        """The states of candidates in the streams of some heads on a CPU, over the whole graph or a part of it, and the
        cosines of names: (H, C, n) for each question that has such heads, by its number. `asked` (Q, 2) is as in
        `_groups`."""
        numbers, heads = asked.T
        together = SideBySide.of(tasks)
        candidates = np.unique(np.concatenate([q.candidates for q in questions]))
        edges = together.edges if part is None else together.edges.within(part)
        layers = self.network.shape.layers
        reach = (
            self._reach(edges, candidates) if part is None else Reach.of(part.edges, part, edges, candidates, layers)
        )
        rows, which = np.unique(reach.nodes(heads), return_inverse=True)
        marks = torch.stack([self.network.marks(task.encoded.task[0])[: self.network.shape.width] for task in tasks])
        states = marks.new_zeros(len(rows), len(heads), marks.shape[1])
        states[which, np.arange(len(heads))] = marks[numbers]
        stream = Stream.of(self.network, together.encoded, HEAD, edges).of_columns(ids(numbers))
        found = propagate(reach.table, stream, Reached(ids(rows), states), reach.rows)
        features = []
        for number in np.unique(numbers).tolist():
            own = numbers == number
            tails = questions[number].candidates
            states = at_places(found[:, own], reach.places(tails)).transpose(0, 1)  # (H, C, W)
            given = ids(heads[own])[None], ids(tails)[None]
            cosines = self.network.cosines(self.graph, tasks[number].references, *given)
            features.append((number, states if cosines is None else torch.cat([states, cosines[0]], 2)))
        return features

    @torch.no_grad()
    def _scores(self, bases: Sequence[Tensor], features: Features) -> Features:
        """Scores (H, C) for each question."""
        every = torch.cat([self.network.of_state.weight.chunk(2, 1)[0], self.network.of_names.weight], 1)
        scores = []
        for number, states in features:
            weights = every[:, : states.shape[2]]
            hidden = (torch.addmm(bases[number], own, weights.T).relu_() for own in states)
            scores.append((number, torch.stack([self.network.last(each).squeeze(-1) for each in hidden])))
        return scores

    def _reach(self, edges: ReferenceEdges, candidates: np.ndarray) -> Reach:
        """The way to candidates over the whole graph."""
        key = b"".join(each.numpy().tobytes() for each in (edges.sources, edges.targets)) + candidates.tobytes()
        layers = self.network.shape.layers
        return self._reaches.get(key, lambda: Reach.of(self.graph.edges, None, edges, candidates, layers))

    def _on_gpu(self, question: Question) -> Tensor:
        """Scores (H, C) on a GPU, several heads at once."""
        if not len(question.heads):
            return torch.zeros(0, len(question.candidates), device=self.device)
        known = self.known_task(question.references)
        candidates = ids(question.candidates).to(self.device)
        (from_references,) = self.reference_states([known], [question.candidates])
        copies = self._copies_on_gpu(len(question.heads), len(candidates))
        references = References(*(each.expand(copies, *each.shape[1:]) for each in known.references))
        encoded = Encoded(
            *(each.repeat_interleave(copies, dim) for each, dim in zip(known.encoded, TASK_DIMENSIONS, strict=True))
        )
        scores = []
        for some in ids(question.heads).to(self.device).split(copies * HEADS_ON_GPU):
            heads = torch.cat([some, some[-1:].expand(copies * HEADS_ON_GPU - len(some))]).view(copies, -1)
            states = self.network.head_states(self.graph, references, encoded, heads, self.dtype)
            cosines = self.network.cosines(self.graph, references, heads, candidates.expand(copies, -1))
            from_heads = states.flatten(1, 2)[candidates].transpose(0, 1)  # (H, C, W)
            found = self.network.score(
                from_heads, from_references, known.encoded.task, None if cosines is None else cosines.flatten(0, 1)
            )
            scores.append(found[: len(some)])
        return torch.cat(scores)

    def _copies_on_gpu(self, heads: int, candidates: int) -> int:
        """How many copies of a task are propagated side by side: few heads do not keep a GPU busy."""
        of_states = self.graph.edges.nodes * self.dtype.itemsize
        of_scores = 2 * candidates * torch.float32.itemsize
        of_copy = HEADS_ON_GPU * self.network.shape.width * (of_states + of_scores)  # bytes
        return max(1, min(COPIES_ON_GPU, STATES_ON_GPU // of_copy, -(-heads // HEADS_ON_GPU)))


def left_out(references: np.ndarray) -> list[np.ndarray]:
    """The distinct references without each of them in turn, if they are few."""
    pairs = distinct_pairs(references)
    few = 2 <= len(pairs) <= MAX_LEFT_OUT
    return [np.delete(pairs, place, axis=0) for place in range(len(pairs))] if few else []


def in_groups(items: S, size: int) -> list[S]:
    """Items in their order, so many at a time."""
    return [items[at : at + size] for at in range(0, len(items), size)]


def ids(array: np.ndarray | Sequence[int]) -> Tensor:
    """Ids as a tensor."""
    return torch.from_numpy(np.asarray(array, np.int64))
