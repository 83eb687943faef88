"""Episodes for TRAIL: references, queries and candidates of relations that a masked view hides, with their features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.base.seeds import generator
from fewlink.base.threads import parallel_map
from fewlink.data.benchmark import Task
from fewlink.trail_0_1.context import GraphContext
from fewlink.trail_0_1.evidence import extract, kinds_of, reliability
from fewlink.trail_0_1.model import TrailComposition
from fewlink.trail_0_1.settings import Trail01Settings
from fewlink.trail_0_1.task import CandidateSet, Features, ModelInputs, Pairs, QueryHeads, TaskContext

HARDEST = 20  # best candidates of each head by each kind that proposes negatives


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
