"""Lessons for TRAIL: references, queries and candidates of hidden relations, and what a view says about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.models.findings import inquire
from fewlink.models.known import Known
from fewlink.models.trail import Asked
from fewlink.seeds import generator
from fewlink.tasks.benchmark import Task
from fewlink.training.settings import TrailSettings

HARDEST = 20  # best candidates of each head by either kind of vectors, and by trails


class Lesson(NamedTuple):
    """Shapes: `rows`, `columns` (Q,) where each query's answer stands; `excluded` (Q, C) its other known answers.

    `asked` holds findings in half precision; `view` is the number of the view they were made in.
    """

    view: int
    asked: Asked
    rows: Tensor
    columns: Tensor
    excluded: Tensor


class LessonBook:
    """A fixed number of lessons of each task, opened when they are first asked for and kept."""

    def __init__(self, views: Sequence[tuple[Known, Sequence[Task]]], settings: TrailSettings) -> None:
        self.settings = settings
        self.views = views
        own = [(view, task) for view, (_, tasks) in enumerate(views) for task in range(len(tasks))]
        self.index = [(view, task, draw) for view, task in own for draw in range(settings.lessons)]
        self._kept: dict[int, Lesson] = {}

    def numbers(self, step: int) -> list[int]:
        """The lessons of a step: every lesson once before any comes again."""
        count = self.settings.relations
        wanted = range(step * count, (step + 1) * count)
        rounds = {at // len(self.index) for at in wanted}
        order = {r: generator(self.settings.seed, "lessons", r).permutation(len(self.index)) for r in rounds}
        return [int(order[at // len(self.index)][at % len(self.index)]) for at in wanted]

    def __getitem__(self, number: int) -> Lesson:
        if number not in self._kept:
            self._kept[number] = self._made(*self.index[number])
        return self._kept[number]

    @torch.no_grad()
    def _made(self, view: int, task_number: int, draw: int) -> Lesson:
        known, task = self.views[view][0], self.views[view][1][task_number]
        settings = self.settings
        random = generator(settings.seed, "lesson", view, task.name, draw)
        shots = int(random.integers(1, min(settings.most_shots, len(task.pairs) - 1) + 1))
        pairs = task.pairs[random.permutation(len(task.pairs))[: shots + settings.queries]]
        references, queries = (
            torch.from_numpy(part.astype(np.int64)).to(known.device) for part in np.split(pairs, [shots])
        )
        heads, rows = queries[:, 0].unique(return_inverse=True)
        range_ = torch.from_numpy(task.range.astype(np.int64)).to(known.device)
        drawn = range_[torch.from_numpy(random.integers(0, len(range_), settings.candidates)).to(known.device)]
        inquiry, context = inquire(known, references)
        hard = inquiry.hardest(heads, range_, HARDEST)
        hard = hard[torch.from_numpy(random.permutation(len(hard))[: settings.hard]).to(known.device)]
        candidates = torch.cat([drawn, hard, queries[:, 1], references[:, 1]]).unique()
        findings, _ = inquiry.look(heads, inquiry.among(candidates))
        kept = findings._replace(
            trails=findings.trails.half(), pairs=findings.pairs.half(), references=findings.references.half()
        )
        columns = torch.searchsorted(candidates, queries[:, 1].contiguous())
        asked = Asked(references, heads, candidates, kept, context)
        return Lesson(view, asked, rows, columns, self._excluded(task, queries, candidates, columns))

    @staticmethod
    def _excluded(task: Task, queries: Tensor, candidates: Tensor, columns: Tensor) -> Tensor:
        known = [torch.from_numpy(task.known_tails[int(head)].astype(np.int64)) for head in queries[:, 0]]
        excluded = torch.stack([torch.isin(candidates, tails.to(candidates.device)) for tails in known])
        excluded[torch.arange(len(columns), device=columns.device), columns] = False
        return excluded
