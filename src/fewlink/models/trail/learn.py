"""Training TRAIL: episodes of one or several graphs, the loss, the optimizer, and the average of the weights.

In an episode a relation of a graph is hidden, some of its pairs are references, others queries. Every relation with
enough pairs gives episodes in both directions, with one reference to thousands. No copy of the graph is made: the
relation, its inverse and a random share of the others get weight 0. A batch is a pure function of (seed, step).
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fewlink.core import distributed
from fewlink.core.machine import use_device
from fewlink.core.seeds import derive, generator
from fewlink.graph import Graph
from fewlink.models.contract import Scorer
from fewlink.models.family import RunState, StepResult
from fewlink.models.trail.features import SAMPLE, ReadGraph, TaskReferences, read_references, stacked
from fewlink.models.trail.network import Shape, Tasks, TrailNetwork
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.weights import moments_of, restore_moments
from fewlink.tasks.candidates import SameTypeSampler

SMALLEST = 12  # pairs of a relation to learn from
BANDS = (16, 256)  # the largest numbers of references that a step is padded to, before the largest of all
RANGE = 1 << 14  # entities of a relation's range that are kept
RANDOM = 0.2  # share of candidates drawn from all entities
TRUE = 0.25  # share of candidates that are tails of the relation, at most
HIDDEN = 0.2  # share of other relations that an episode hides at most
HIDDEN_NAMES = 0.1  # share of episodes with names that hide each relation of names


class Batch(NamedTuple):
    """Episodes of one graph.

    Shapes: `answers` (L, Q), the columns of the true tails among the candidates; `excluded` (L, Q, C) bool, the other
    known tails.
    """

    graph: int
    tasks: Tasks
    answers: Tensor
    excluded: Tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        references, heads, candidates = self.tasks
        return *references, heads, candidates, self.answers, self.excluded

    def to(self, device: torch.device) -> Batch:
        return self._with(part.to(device, non_blocking=True) for part in self.tensors)

    def clone(self) -> Batch:
        return self._with(part.clone() for part in self.tensors)

    def episodes(self) -> Iterator[Batch]:
        """Each episode as a batch of its own."""
        for episode in range(len(self.answers)):
            yield self._with(part[episode : episode + 1] for part in self.tensors)

    def _with(self, tensors: Iterable[Tensor]) -> Batch:
        *references, heads, candidates, answers, excluded = tensors
        return Batch(self.graph, Tasks(TaskReferences(*references), heads, candidates), answers, excluded)


@dataclass(frozen=True, eq=False)
class RelationPairs:
    """A relation, possibly inverse: its pairs, sorted by head; those to ask about; and its likely tails."""

    relation: int
    heads: np.ndarray
    tails: np.ndarray
    usable: np.ndarray
    range: np.ndarray

    @functools.cached_property
    def distinct_tails(self) -> np.ndarray:
        return np.unique(self.tails)


class EpisodeSource:
    """Episodes of one graph, which is also given as TRAIL reads it."""

    def __init__(self, graph: Graph, read: ReadGraph, settings: TrailSettings) -> None:
        self.graph = read
        self.settings = settings
        self.pairs = relation_pairs(graph)
        self.relations = len(graph.relations)  # without those of names, which come after them
        self.degrees = np.log1p(graph.degrees)
        self._usable = np.array([len(own.usable) for own in self.pairs], float)
        self._most = max((len(own.heads) for own in self.pairs), default=0)

    def band(self, band: int) -> int:
        """The place of a band, or of the largest before it for which the graph has enough pairs."""
        bands = bands_of(self.settings)
        while band and bands[band - 1] >= self._most // 2:
            band -= 1
        return band

    def batch(self, index: int, rng: np.random.Generator, band: int, part: slice = slice(None)) -> Batch:
        """`part` of the episodes of a step, with references of one band, padded to its end."""
        episodes = [self.episode(rng, band) for _ in range(self.settings.relations)][part]
        references, *columns = zip(*episodes, strict=True)
        heads, candidates, answers, excluded = (torch.from_numpy(np.stack(column)) for column in columns)
        return Batch(index, Tasks(stacked(references), heads, candidates), answers, excluded)

    def episode(
        self, rng: np.random.Generator, band: int
    ) -> tuple[TaskReferences, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """References, heads (Q,), candidates (C,), answers (Q,) and excluded (Q, C)."""
        queries = self.settings.queries
        candidates = self.settings.candidates
        own = self.relation(rng, band)
        asked = rng.permutation(own.usable)[: min(queries, max(2, len(own.usable) // 3))]
        given = self.references(rng, own, asked, band)
        references = self.read(rng, own, given, band)
        asked = np.resize(asked, queries)
        heads = own.heads[asked].astype(np.int64)
        tails = own.tails[asked]
        chosen = self._candidates(rng, own, tails, candidates)
        excluded = np.zeros((queries, candidates), bool)
        begins, ends = (np.searchsorted(own.heads, heads, side=side) for side in ("left", "right"))
        for query, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            known = own.tails[begin:end]
            at = np.minimum(np.searchsorted(chosen, known), candidates - 1)
            excluded[query, at[chosen[at] == known]] = True
        answers = np.searchsorted(chosen, tails)
        repeated = np.append(False, chosen[1:] == chosen[:-1])  # padding
        excluded |= repeated
        excluded[np.arange(queries), answers] = False
        return references, heads, chosen, answers, excluded

    def relation(self, rng: np.random.Generator, band: int) -> RelationPairs:
        """Draw a relation as the settings say; for many references, one that has many pairs."""
        weights = np.ones(len(self.pairs))
        if band:
            weights = self._usable ** {"uniform": 0.0, "root": 0.5, "triples": 1.0}[self.settings.draws]
            weights *= self._usable >= min(bands_of(self.settings)[band] / 8, self._usable.max() / 2)
        return self.pairs[int(rng.choice(len(self.pairs), p=weights / weights.sum()))]

    def references(self, rng: np.random.Generator, own: RelationPairs, asked: np.ndarray, band: int) -> np.ndarray:
        """Places of references among the pairs of a relation, without those asked about.

        Their number is drawn log-uniformly from a band, or is all there are, up to the end of the band.
        """
        bands = bands_of(self.settings)
        free = np.setdiff1d(np.arange(len(own.heads)), asked)
        most = min(bands[band], len(free))
        least = min(bands[band - 1] + 1 if band else 1, most)
        count = most
        if not band or rng.random() >= self.settings.every:
            count = round(math.exp(rng.uniform(math.log(least), math.log(most + 0.49))))
        if count >= 3 and rng.random() < self.settings.skewed:
            return self._skewed(rng, own, free, count)
        return rng.choice(free, count, replace=False)

    def _skewed(self, rng: np.random.Generator, own: RelationPairs, free: np.ndarray, count: int) -> np.ndarray:
        """References as users choose them: mostly of one tail, of the commonest tails, or of well-known entities."""
        tails = own.tails[free]
        kind = rng.integers(3)
        if kind == 0:
            one = tails == tails[rng.integers(len(tails))]
            others = rng.permutation(free[~one])[: rng.integers(4)]
            return np.concatenate([rng.permutation(free[one])[: max(1, count - len(others))], others])
        if kind == 1:
            _, which, counts = np.unique(tails, return_inverse=True, return_counts=True)
            order = np.lexsort((rng.random(len(tails)), rng.random(len(counts))[which], -counts[which]))
            return np.asarray(free[order[:count]])
        known = self.degrees[own.heads[free]] + self.degrees[tails] + rng.gumbel(size=len(free)) / 2
        return np.asarray(free[np.argsort(-known)[:count]])

    def read(self, rng: np.random.Generator, own: RelationPairs, given: np.ndarray, band: int) -> TaskReferences:
        """The references of an episode; the relation, some others and sometimes the names are hidden."""
        visible = rng.random(len(self.graph.graph.relations)) >= rng.uniform(0, HIDDEN)
        visible[own.relation % self.relations] = False
        named = self.graph.reads_names and rng.random() >= self.settings.without_names
        of_names = visible[self.relations :]
        of_names[:] = named & (rng.random(len(of_names)) >= HIDDEN_NAMES)
        return read_references(
            self.graph,
            np.stack([own.heads[given], own.tails[given]], 1).astype(np.int64),
            visible=np.tile(visible, 2),
            named=named,
            size=bands_of(self.settings)[band],
            sample=SAMPLE if band else min(SAMPLE, BANDS[0]),
            rng=rng,
        )

    def _candidates(self, rng: np.random.Generator, own: RelationPairs, tails: np.ndarray, count: int) -> np.ndarray:
        """The tails, tails of other pairs, likely tails and random entities, sorted; the last repeats if there are too
        few."""
        others = own.distinct_tails
        if len(others) > TRUE * count:
            others = rng.choice(others, int(TRUE * count))
        likely = own.range
        room = max(0, int((1 - RANDOM) * count) - len(others) - len(tails))
        if len(likely) > room:
            likely = rng.choice(likely, room)
        more = rng.integers(0, len(self.degrees), max(0, count - len(likely) - len(others) - len(tails)))
        chosen = np.unique(np.concatenate([tails, others, likely, more])).astype(np.int64)
        return np.append(chosen, np.repeat(chosen[-1:], count - len(chosen)))


def bands_of(settings: TrailSettings) -> tuple[int, ...]:
    """The largest numbers of references in each band; a step has references of one band, padded to its end."""
    most = settings.most_references
    return *(band for band in BANDS if band < most), most


def relation_pairs(graph: Graph) -> list[RelationPairs]:
    """All relations to learn from, in both directions, computed once."""
    return graph.once(_relation_pairs)


def _relation_pairs(graph: Graph) -> list[RelationPairs]:
    count = len(graph.relations)
    order = np.argsort(graph.relation_ids, kind="stable")
    bounds = np.searchsorted(graph.relation_ids[order], np.arange(2 * count + 1))
    heads = np.asarray(graph.head_ids)[order]
    tails = np.asarray(graph.tail_ids)[order]
    sampler = SameTypeSampler(graph, RANGE)
    found = []
    for relation in range(2 * count):
        part = slice(bounds[relation], bounds[relation + 1])
        if part.stop - part.start < SMALLEST:
            continue
        here = np.bincount(heads[part], minlength=len(graph.entities))
        here += np.bincount(tails[part], minlength=len(graph.entities))
        joined = graph.degrees > here  # by another relation
        usable = np.flatnonzero(joined[heads[part]] & joined[tails[part]])
        if len(usable) >= SMALLEST and len(np.unique(tails[part])) > 1:
            likely = sampler.of(np.unique(tails[part]), RANGE)
            found.append(RelationPairs(relation, heads[part], tails[part], usable, likely))
    return found


class TrainingBatches(torch.utils.data.Dataset[Batch]):
    """The batch of each step, over all graphs; steps choose graphs in proportion to `shares`.

    Each of several processes draws the same episodes and takes its part of them.
    """

    def __init__(
        self,
        sources: Sequence[EpisodeSource],
        shares: Sequence[float],
        settings: TrailSettings,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.sources = sources
        self.shares = np.array(shares) / sum(shares)
        self.seed = settings.seed
        self.part = slice(rank, None, processes)
        later = len(bands_of(settings)) - 1
        self.bands = [1 - settings.many, *[settings.many / later] * later] if later else [1.0]

    def __getitem__(self, step: int) -> Batch:
        rng = generator(self.seed, "step", step)
        graph = int(rng.choice(len(self.sources), p=self.shares))
        source = self.sources[graph]
        return source.batch(graph, rng, source.band(int(rng.choice(len(self.bands), p=self.bands))), self.part)


RAW = "raw."  # weights before averaging, among the moments of a checkpoint


class TrailLearner:
    """One run. `graphs[0]` is the graph to answer on; episodes come from all graphs.

    `start`: weights to begin with. `shares`: how often a step reads each graph; by default in proportion to the root of
    the number of its relations.
    """

    workers = 6  # processes that draw episodes for a GPU

    def __init__(
        self,
        graphs: Sequence[Graph],
        settings: TrailSettings,
        start: Mapping[str, Tensor] | None = None,
        shares: Sequence[float] | None = None,
    ) -> None:
        self.settings = settings
        self.device = torch.device(use_device(settings.device))
        self.steps_at_once = 50 if self.device.type == "cuda" else 1
        sources = [self.source(graph) for graph in graphs]
        self.graphs = [source.graph.to(self.device) for source in sources]
        shares = shares or [len(source.pairs) ** 0.5 for source in sources]
        self.episodes = TrainingBatches(sources, shares, settings, distributed.rank(), distributed.count())
        torch.manual_seed(derive(settings.seed, "weights"))
        self.network = self.new_network().to(self.device)
        if start is not None:
            self.network.load_state_dict(start)
        self.averaged = {name: value.clone() for name, value in self.network.state_dict().items()}
        on_gpu = self.device.type == "cuda"
        self.rate = torch.tensor(settings.learning_rate, device=self.device)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=self.rate if on_gpu else settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=on_gpu,
            capturable=on_gpu,
        )
        self._recorded: dict[tuple[int, int], RecordedStep] = {}
        self.pool = torch.cuda.graph_pool_handle() if on_gpu else None  # memory that all recorded steps share
        self._stream: Iterator[Batch] | None = None
        self._next = -1

    def source(self, graph: Graph) -> EpisodeSource:
        """The episodes of a graph."""
        return EpisodeSource(graph, ReadGraph.of(graph, names=self.settings.names), self.settings)

    def new_network(self) -> nn.Module:
        """A network with random weights."""
        return network_of(self.settings)

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32

    @property
    def weights(self) -> Mapping[str, Tensor]:
        return {name: value[None] for name, value in self.averaged.items()}

    def run_steps(self, first: int, count: int) -> StepResult:
        """Run `count` steps, beginning with step `first`."""
        self.network.train()
        losses = []
        sampling_seconds = 0.0
        for step in range(first, first + count):
            began = time.perf_counter()
            batch = self._batch(step).to(self.device)
            sampling_seconds += time.perf_counter() - began
            losses.append(self.step(step, batch))
        return StepResult({"loss": torch.stack(losses).unsqueeze(-1)}, sampling_seconds)

    def step(self, number: int, batch: Batch) -> Tensor:
        """Take a training step on a batch, and return the loss before it."""
        rate = self.settings.learning_rate * self.settings.decay_at(number)
        if self.device.type == "cuda" and distributed.count() == 1:
            self.rate.fill_(rate)
            loss = self._recorded_step(batch)
        else:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            loss = self.move(batch)
        keep = min(self.settings.average, (number + 1) / (number + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.averaged.values()), list(self.network.state_dict().values()), 1 - keep)
        return loss

    def move(self, batch: Batch) -> Tensor:
        """Take a step of the optimizer at the rate that is set; the loss before the step, a scalar."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        value = loss.detach().clone()
        if distributed.count() > 1:
            distributed.average_([value, *(p.grad for p in self.network.parameters() if p.grad is not None)])
        nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip)
        self.optimizer.step()
        return value

    def loss(self, batch: Batch) -> Tensor:
        """−log of the softmax of each query's answer among its candidates, the mean over queries."""
        scores = self.network(self.graphs[batch.graph], batch.tasks, self.dtype)  # (L, Q, C)
        scores = scores.masked_fill(batch.excluded, -torch.inf)
        return cross_entropy(scores.flatten(0, 1), batch.answers.flatten())

    def scorer(self, run: int) -> Scorer:
        network = network_of(self.settings).to(self.device)
        network.load_state_dict(self.averaged)
        return TrailScorer(self.settings.model, network, self.graphs[0])

    def state(self, run: int) -> RunState:
        """The averaged weights; the optimizer's moments and the weights before averaging."""
        raw = {RAW + name: value.clone() for name, value in self.network.state_dict().items()}
        return RunState(dict(self.averaged), {**moments_of(self.network, self.optimizer), **raw})

    def load_state(self, states: Sequence[RunState]) -> None:
        """Continue from a state."""
        ((weights, moments),) = states
        self.averaged = {name: weights[name].to(self.device) for name in self.averaged}
        raw = {name[len(RAW) :]: value for name, value in moments.items() if name.startswith(RAW)}
        self.network.load_state_dict(raw)
        restore_moments(self.network, self.optimizer, moments)
        self._recorded.clear()

    def _batch(self, step: int) -> Batch:
        """The batch of a step; for a GPU drawn ahead by other processes."""
        if self.device.type == "cpu":
            return self.episodes[step]
        if self._stream is None or step != self._next:
            self._stream = iter(
                torch.utils.data.DataLoader(
                    self.episodes,
                    sampler=range(step, self.settings.steps),
                    batch_size=None,
                    num_workers=self.workers,
                    prefetch_factor=8,
                    pin_memory=True,
                    multiprocessing_context="fork",
                )
            )
        self._next = step + 1
        return next(self._stream)

    def _recorded_step(self, batch: Batch) -> Tensor:
        """`move` as a CUDA graph, recorded once for each graph and number of references."""
        key = batch.graph, batch.tasks.references.pairs.shape[1]
        if key not in self._recorded:
            self._recorded[key] = RecordedStep(self, batch)
            return self._recorded[key].first
        return self._recorded[key](batch)


class RecordedStep:
    """A training step on batches of one shape, recorded as a CUDA graph. The first batch is trained on as it is."""

    def __init__(self, learner: TrailLearner, batch: Batch) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.first = learner.move(batch)  # compiles the kernels
        torch.cuda.current_stream().wait_stream(side)
        self.batch = batch.clone()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=learner.pool, capture_error_mode="thread_local"):
            self.loss = learner.move(self.batch)

    def __call__(self, batch: Batch) -> Tensor:
        for own, new in zip(self.batch.tensors, batch.tensors, strict=True):
            own.copy_(new, non_blocking=True)
        self.graph.replay()
        return self.loss.clone()


def network_of(settings: TrailSettings) -> TrailNetwork:
    """A network of the shape in the settings, with random weights."""
    return TrailNetwork(Shape(settings.width, settings.layers, settings.relation_layers))
