"""TRAIL learns: episodes of relations that masked views hide, their loss, and the step that moves the parameters."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fewlink.base import distributed
from fewlink.base.errors import FewlinkError
from fewlink.base.recipes import recipe
from fewlink.base.seeds import derive, generator
from fewlink.base.storage import is_folder_of, new_folder, read_folder
from fewlink.base.threads import parallel_map
from fewlink.data.benchmark import Benchmark, Task
from fewlink.data.training_graph import known_graph, masked_views
from fewlink.embeddings import Embeddings, EmbeddingSettings
from fewlink.graph import Graph
from fewlink.trail_0_1.context import CandidateSet, Features, GraphContext, ModelInputs, Pairs, QueryHeads, TaskContext
from fewlink.trail_0_1.evidence import extract, kinds_of, reliability
from fewlink.trail_0_1.model import Trail01Settings, TrailComposition, build
from fewlink.trail_0_1.scorer import Trail01Scorer
from fewlink.training.checkpoints import moments_of, restore_moments
from fewlink.training.family import Reporter, RunState
from fewlink.training.vectors import train_into, trained_already

HARDEST = 20  # best candidates of each head by each kind that proposes negatives
SCALE_EPISODES = 64  # episodes that the scale of features is measured on


class Episode(NamedTuple):
    """Shapes: `rows`, `columns` (Q,) the cell of each query's answer; `excluded` (Q, C) its other known answers.

    `inputs` holds features in half precision; `view` is the number of the view they were extracted from.
    """

    view: int
    inputs: ModelInputs
    rows: Tensor
    columns: Tensor
    excluded: Tensor

    def to(self, device: str) -> Episode:
        if device == "cpu":
            return self
        tensors = (part.to(device) for part in (self.rows, self.columns, self.excluded))
        return Episode(self.view, self.inputs.to(device), *tensors)


class EpisodeStore:
    """A fixed number of episodes of each task, made when they are first used and kept on the settings' device.

    The views stay on the CPU, where episodes are made in parallel: extraction is many small sparse steps.
    """

    def __init__(
        self,
        views: Sequence[tuple[GraphContext, Sequence[Task]]],
        settings: Trail01Settings,
        composition: TrailComposition,
    ) -> None:
        self.settings, self.views, self.composition = settings, views, composition
        tasks = [(view, task) for view, (_, tasks) in enumerate(views) for task in range(len(tasks))]
        self.index = [(view, task, draw) for view, task in tasks for draw in range(settings.lessons)]
        self._episodes: dict[int, Episode] = {}

    def numbers(self, step: int) -> list[int]:
        """The episodes of a step: every episode once before any comes again."""
        count = self.settings.relations
        positions = range(step * count, (step + 1) * count)
        rounds = {at // len(self.index) for at in positions}
        order = {r: generator(self.settings.seed, "lessons", r).permutation(len(self.index)) for r in rounds}
        return [int(order[at // len(self.index)][at % len(self.index)]) for at in positions]

    def __getitem__(self, number: int) -> Episode:
        return self.get([number])[0]

    def get(self, numbers: Sequence[int]) -> list[Episode]:
        """Some episodes; new ones are made in parallel."""
        new = [number for number in dict.fromkeys(numbers) if number not in self._episodes]
        for number, episode in zip(new, parallel_map(lambda n: self._make(*self.index[n]), new), strict=True):
            self._episodes[number] = episode.to(self.settings.device)
        return [self._episodes[number] for number in numbers]

    @torch.no_grad()
    def _make(self, view: int, task_number: int, draw: int) -> Episode:
        (graph, tasks), settings = self.views[view], self.settings
        task = tasks[task_number]
        random = generator(settings.seed, "lesson", view, task.name, draw)
        shots = int(random.integers(1, min(settings.most_shots, len(task.pairs) - 1) + 1))
        pairs = task.pairs[random.permutation(len(task.pairs))[: shots + settings.queries]]
        references, queries = (torch.from_numpy(part.astype(np.int64)) for part in np.split(pairs, [shots]))
        ids, rows = queries[:, 0].unique(return_inverse=True)
        range_ = torch.from_numpy(task.range.astype(np.int64))
        drawn = range_[torch.from_numpy(random.integers(0, len(range_), settings.candidates))]
        context = TaskContext(graph, references)
        heads = QueryHeads(context, ids)
        hard = hard_negatives(heads, range_, self.composition.scoring)
        hard = hard[torch.from_numpy(random.permutation(len(hard))[: settings.hard])]
        candidates = torch.cat([drawn, hard, queries[:, 1], references[:, 1]]).unique()
        features = extract(Pairs(heads, CandidateSet(context, candidates)), self.composition.kinds)
        halved = {kind: _halved(parts) for kind, parts in features.items()}
        known = reliability(context, self.composition.scoring)
        columns = torch.searchsorted(candidates, queries[:, 1].contiguous())
        inputs = ModelInputs(references, ids, candidates, halved, known)
        return Episode(view, inputs, rows, columns, _excluded(task, queries, candidates, columns))


def hard_negatives(heads: QueryHeads, candidates: Tensor, kinds: Iterable[str], count: int = HARDEST) -> Tensor:
    """The candidates that are among the `count` best of some head by a kind that proposes negatives, sorted."""
    pairs = Pairs(heads, CandidateSet(heads.task, candidates))
    scores = [kind.negative_score(pairs) for kind in kinds_of(kinds)]
    most = min(count, len(candidates))
    best = [score.topk(most, 1).indices.flatten() for score in scores if score is not None]
    return candidates[torch.cat(best).unique()] if best else candidates[:0]


def _halved(features: Features) -> Features:
    return tuple(part.half() if part.is_floating_point() else part for part in features)


def _excluded(task: Task, queries: Tensor, candidates: Tensor, columns: Tensor) -> Tensor:
    """The other known answers of each query: (Q, C)."""
    known = [torch.from_numpy(task.known_tails[int(head)].astype(np.int64)) for head in queries[:, 0]]
    excluded = torch.stack([torch.isin(candidates, tails) for tails in known])
    excluded[torch.arange(len(columns)), columns] = False
    return excluded


class Trail01Learner:
    """One run of TRAIL; several seeds train one after another.

    `weights` maps each parameter's and buffer's name to a tensor (1, …), as a learner of several runs has them.
    """

    most = 8  # steps between looks at the loss

    def __init__(
        self, benchmark: Benchmark, vectors: Trail01Vectors, settings: Trail01Settings, seeds: Sequence[int]
    ) -> None:
        if len(seeds) > 1:
            raise FewlinkError("runs of trail-0.1 train one after another")
        if len(vectors.views) != settings.views:
            raise FewlinkError(f"there are vectors of {len(vectors.views)} views, not {settings.views}: train others")
        self.settings = settings = replace(settings, seed=seeds[0])
        self.device = settings.device
        views = masked_views(benchmark, settings.views)
        self.graph = graph_context(benchmark, vectors).to(self.device)
        contexts = [GraphContext(view.graph, *tables) for view, tables in zip(views, vectors.views, strict=True)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(settings.seed, "start"))
            self.model = build(settings.model, settings.dropout).to(self.device)
        tasks = [(context, view.tasks) for context, view in zip(contexts, views, strict=True)]
        self.episodes = EpisodeStore(tasks, settings, self.model.composition)
        self.views = [context.on(self.device) for context in contexts]
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._scaled = False

    @property
    def weights(self) -> dict[str, Tensor]:
        return {name: tensor.unsqueeze(0) for name, tensor in self.model.state_dict().items()}

    def advance(self, first: int, count: int) -> tuple[Tensor, float]:
        """Take steps from step `first` on; losses (count, 3, 1), and the seconds spent on making episodes."""
        if not self._scaled:
            self._fit_scale()
        began, rank, processes = time.perf_counter(), distributed.rank(), distributed.count()
        steps = [self.episodes.numbers(step)[rank::processes] for step in range(first, first + count)]
        self.episodes.get(list(itertools.chain.from_iterable(steps)))
        making = time.perf_counter() - began
        losses = [self.step(first + n, self.episodes.get(numbers)) for n, numbers in enumerate(steps)]
        return torch.stack(losses), making

    def step(self, number: int, episodes: Sequence[Episode]) -> Tensor:
        """Move the parameters along some episodes; the losses (3, 1) before the move."""
        self.model.train()
        torch.manual_seed(derive(self.settings.seed, "step", number, distributed.rank()))  # for dropout
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.stack([self.loss(episode) for episode in episodes]).mean()
        loss.backward()
        value = loss.detach().clone()
        distributed.average_([value, *(p.grad for p in self.model.parameters() if p.grad is not None)])
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip or torch.inf)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * self.settings.decay_at(number)
        self.optimizer.step()
        return torch.stack([value, value, torch.zeros_like(value)]).unsqueeze(1)

    def loss(self, episode: Episode) -> Tensor:
        """−log of the softmax of each query's answer among its candidates, the mean over queries."""
        scores = self.model(episode.inputs, self.views[episode.view])[episode.rows]  # (Q, C)
        return cross_entropy(scores.masked_fill(episode.excluded, -torch.inf), episode.columns)

    def scorer(self, run: int) -> Trail01Scorer:
        return Trail01Scorer(self.settings.model, self.model, self.graph)

    def state(self, run: int) -> RunState:
        """The parameters and the optimizer's moments."""
        return dict(self.model.state_dict()), moments_of(self.model, self.optimizer)

    def take(self, states: Sequence[RunState]) -> None:
        """Continue from a state."""
        ((weights, moments),) = states
        self.model.load_state_dict({name: tensor.to(self.device) for name, tensor in weights.items()})
        self._scaled = True
        restore_moments(self.model, self.optimizer, moments)

    def _fit_scale(self) -> None:
        """Set the scale of features from the first episodes."""
        numbers: list[int] = []
        while len(numbers) < min(SCALE_EPISODES, len(self.episodes.index)):
            numbers += self.episodes.numbers(len(numbers) // self.settings.relations)
        self.model.fit_scale([episode.inputs for episode in self.episodes.get(numbers)])
        self._scaled = True


def graph_context(benchmark: Benchmark, vectors: Trail01Vectors) -> GraphContext:
    """The known graph of a benchmark and its vectors, as the model reads them."""
    return GraphContext(known_graph(benchmark), *vectors.known)


MODELS = ("complex", "transe")
KNOWN, FORMAT = "known", "fewlink-trail-vectors/1"
Tables = tuple[Embeddings, Embeddings]  # ComplEx and TransE


@dataclass(frozen=True)
class Trail01Vectors:
    """`known` are the vectors that answer questions; those of the `views` are for training alone."""

    known: Tables
    views: tuple[Tables, ...]

    @property
    def model(self) -> str:
        return "+".join(MODELS)

    @property
    def dim(self) -> int:
        return self.known[0].dim

    def digest(self) -> str:
        """The sha256 of all tables with their shapes."""
        parts = [table.digest() for pair in (self.known, *self.views) for table in pair]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def save(self, folder: Path, fingerprint: str, *, graph: str = "") -> None:
        """Write all tables into one folder, whole or not at all."""
        with new_folder(Path(folder), FORMAT, {"views": len(self.views)}) as beside:
            for pair, place in zip((self.known, *self.views), _places(beside, len(self.views)), strict=True):
                for table in pair:
                    table.save(place / table.model, fingerprint, graph=graph)

    @classmethod
    def open(cls, folder: Path, fingerprint: str | None = None, *, for_training: bool = True) -> Trail01Vectors:
        """What `save` or `pretrain_views` wrote; the views' vectors only where they are needed."""

        def load(whole: Path, manifest: dict[str, Any] | None = None) -> Trail01Vectors:
            count = sum(1 for _ in whole.glob("view-*")) if for_training else 0
            known, *views = (
                (Embeddings.open(place / MODELS[0], fingerprint), Embeddings.open(place / MODELS[1], fingerprint))
                for place in _places(whole, count)
            )
            return cls(known, tuple(views))

        folder = Path(folder)
        return read_folder(folder, FORMAT, load) if is_folder_of(folder, FORMAT) else load(folder)

    def check(self, benchmark: Benchmark) -> None:
        """Raises if the vectors are of another benchmark: they may have seen the answers of this one."""
        for table in (table for pair in (self.known, *self.views) for table in pair):
            if table.facts.get("benchmark") != benchmark.fingerprint:
                raise FewlinkError(
                    f"the vectors were not trained on the views of {benchmark.name}: fewlink train makes them where "
                    "no --embeddings are given"
                )


def pretrain_views(
    benchmark: Benchmark,
    settings: Trail01Settings,
    *,
    out: Path | str,
    on_epoch: Callable[[str], Reporter] | None = None,
) -> Trail01Vectors:
    """Train the vectors that TRAIL reads into a folder, for runs of any seed; what is there is not trained again.

    `on_epoch` makes, from the title of each table, what is called after its epochs.
    """
    graphs = [known_graph(benchmark), *(view.graph for view in masked_views(benchmark, settings.views))]
    for graph, place in zip(graphs, _places(Path(out), settings.views), strict=True):
        for model in MODELS:
            reporter = on_epoch(f"{model} vectors, {place.name}") if on_epoch else None
            train_table(benchmark, graph, vector_settings(settings, model), place / model, reporter, half=settings.half)
    return Trail01Vectors.open(Path(out), benchmark.graph.fingerprint)


def vector_settings(settings: Trail01Settings, model: str) -> EmbeddingSettings:
    """How one of the two tables is trained: its recipe, with the epochs that TRAIL asks for."""
    epochs = {"complex": settings.complex_epochs, "transe": settings.transe_epochs}[model]
    changes = {"dim": settings.dim, "epochs": epochs, "negatives": settings.negatives, "device": settings.device}
    return EmbeddingSettings(**{**recipe(model, EmbeddingSettings).settings.as_dict(), **changes})


def train_table(
    benchmark: Benchmark,
    graph: Graph,
    settings: EmbeddingSettings,
    folder: Path,
    on_epoch: Reporter | None,
    *,
    half: bool = False,
) -> None:
    """Train vectors of a graph that a benchmark knows, or of a part of it, into a folder, unless they are there."""
    facts = {"with_train_tasks": True, "trained_on": graph.fingerprint}
    if not trained_already(folder, benchmark, settings, {"benchmark": benchmark.fingerprint, **facts}, half=half):
        more: dict[str, Any] = {"facts": facts, "half": half, "on_epoch": on_epoch}
        train_into(folder, benchmark, graph.triples(), list(graph.relations), settings, **more)


def _places(folder: Path, count: int) -> Iterator[Path]:
    yield folder / KNOWN
    yield from (folder / f"view-{index}" for index in range(count))
