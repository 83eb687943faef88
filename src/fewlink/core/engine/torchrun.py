"""The processes that torchrun started as workers."""

from __future__ import annotations

from collections.abc import Sequence

from fewlink.core import distributed
from fewlink.core.engine.base import Batch, Engine, Name, Results, Sample, Tell, Work


class Torchrun(Engine):
    """Every process calls `run`, does its share of the batches, and gets all results."""

    def __init__(self) -> None:
        super().__init__(distributed.count())

    def _run(self, work: Work, batches: Sequence[Batch], name: Name, sample: Sample | None, tell: Tell) -> Results:
        own = range(distributed.rank(), len(batches), self.workers)
        for share in distributed.gathered({number: work(batches[number]) for number in own}):
            yield from share.items()
