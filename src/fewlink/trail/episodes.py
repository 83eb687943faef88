"""Lessons for TRAIL: references, queries and candidates of hidden relations, and what a view says about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.base.seeds import generator
from fewlink.base.threads import parallel_map
from fewlink.data.benchmark import Task
from fewlink.trail.context import Known
from fewlink.trail.features import Findings, inquire
from fewlink.trail.model import Asked
from fewlink.trail.settings import TrailSettings

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

    def to(self, device: str) -> Lesson:
        if device == "cpu":
            return self
        references, heads, candidates, findings, context, _ = self.asked
        moved = Findings(*(part.to(device) for part in findings))
        asked = Asked(references.to(device), heads.to(device), candidates.to(device), moved, context.to(device))
        return Lesson(self.view, asked, self.rows.to(device), self.columns.to(device), self.excluded.to(device))


class LessonBook:
    """A fixed number of lessons of each task, made when they are first asked for and kept on the settings' device.

    What the views know stays on the CPU, where lessons are made side by side: they are many small sparse steps.
    """

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
        return self.open([number])[0]

    def open(self, numbers: Sequence[int]) -> list[Lesson]:
        """Some lessons, those that are new made side by side."""
        new = [number for number in dict.fromkeys(numbers) if number not in self._kept]
        for number, lesson in zip(new, parallel_map(lambda n: self._made(*self.index[n]), new), strict=True):
            self._kept[number] = lesson.to(self.settings.device)
        return [self._kept[number] for number in numbers]

    @torch.no_grad()
    def _made(self, view: int, task_number: int, draw: int) -> Lesson:
        known, task = self.views[view][0], self.views[view][1][task_number]
        settings = self.settings
        random = generator(settings.seed, "lesson", view, task.name, draw)
        shots = int(random.integers(1, min(settings.most_shots, len(task.pairs) - 1) + 1))
        pairs = task.pairs[random.permutation(len(task.pairs))[: shots + settings.queries]]
        references, queries = (torch.from_numpy(part.astype(np.int64)) for part in np.split(pairs, [shots]))
        heads, rows = queries[:, 0].unique(return_inverse=True)
        range_ = torch.from_numpy(task.range.astype(np.int64))
        drawn = range_[torch.from_numpy(random.integers(0, len(range_), settings.candidates))]
        inquiry, context = inquire(known, references)
        walked = inquiry.walk(heads)
        hard = inquiry.hardest(walked, range_, HARDEST)
        hard = hard[torch.from_numpy(random.permutation(len(hard))[: settings.hard])]
        candidates = torch.cat([drawn, hard, queries[:, 1], references[:, 1]]).unique()
        findings, _ = inquiry.look(walked, inquiry.among(candidates))
        kept = findings._replace(
            trails=findings.trails.half(), pairs=findings.pairs.half(), references=findings.references.half()
        )
        columns = torch.searchsorted(candidates, queries[:, 1].contiguous())
        asked = Asked(references, heads, candidates, kept, context)
        return Lesson(view, asked, rows, columns, self._excluded(task, queries, candidates, columns))

    @staticmethod
    def _excluded(task: Task, queries: Tensor, candidates: Tensor, columns: Tensor) -> Tensor:
        known = [torch.from_numpy(task.known_tails[int(head)].astype(np.int64)) for head in queries[:, 0]]
        excluded = torch.stack([torch.isin(candidates, tails) for tails in known])
        excluded[torch.arange(len(columns)), columns] = False
        return excluded
