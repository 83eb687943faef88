"""Epochs on a GPU: a step is captured as a CUDA graph and replayed, so that no kernel waits for the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from fewlink.core.threads import prefetch, prefetch_indexed
from fewlink.models.embeddings.batches import Batches, EmbeddingBatch

WARM_UP_STEPS = 3  # eager steps before the capture
STEPS_AT_ONCE = 64  # steps whose negatives are drawn together
MAX_DRAWN_BYTES = 64 << 20  # of those negatives

Rate = float | Tensor  # of learning; a tensor on the device in a captured step
Step = Callable[[EmbeddingBatch, Rate], Tensor]
"""Updates the tables by a batch at a learning rate; returns the loss, a scalar."""


class CUDAGraphEpochs:
    """The steps of all epochs, replayed from one CUDA graph.

    The examples, negatives, learning rates and losses of an epoch are on the device, and so is `at`, the index of the
    next step. If the last batch of an epoch is short, it runs eagerly.
    """

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        settings = batches.settings
        device = batches.triples.device
        self.size = settings.batch_size
        self.full = batches.examples // settings.batch_size
        self.orders = prefetch_indexed(batches.order, settings.epochs)
        self.order: Tensor | None = None
        self.places = torch.arange(self.size, device=device)
        one = batches.negatives(0, 0)
        self.block = max(1, min(STEPS_AT_ONCE, MAX_DRAWN_BYTES // max(1, one.nbytes)))
        self.drawn = torch.empty(self.block, *one.shape, dtype=one.dtype, device=device)
        self.rates, self.losses = (torch.zeros(len(batches), device=device) for _ in range(2))
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.warm = 0
        self.graph = torch.cuda.CUDAGraph()

    def epoch(
        self, epoch: int, rates: Sequence[float], step: Step, check: Callable[[Tensor], None]
    ) -> tuple[Tensor, float]:
        """Run the steps of an epoch; return their losses and the seconds spent waiting for the CPU's random draws.

        `step` must be the same in every epoch; `check` is called with the losses so far after every block of steps.
        """
        start = time.perf_counter()
        order = self.orders(epoch)
        self.order = order.to(self.at.device) if self.order is None else self.order.copy_(order)
        del order
        self.rates.copy_(torch.tensor(rates))
        self.at.zero_()
        waited = time.perf_counter() - start
        done = 0
        start = time.perf_counter()
        for drawn in prefetch(self._blocks(epoch)):
            waited += time.perf_counter() - start
            self.drawn[: len(drawn)] = drawn.to(self.at.device)
            for _ in range(len(drawn)):
                self._advance(step)
            done += len(drawn)
            check(self.losses[:done])
            start = time.perf_counter()
        if self.full < len(self.batches):
            examples = self.order[self.full * self.size :]
            last = self.batches.arrange(examples, self.batches.negatives(epoch, self.full))
            self.losses[self.full] = step(last, rates[self.full])
        check(self.losses)
        return self.losses, waited

    def _blocks(self, epoch: int) -> Iterator[Tensor]:
        """Yield the negatives (block, …) of the steps of an epoch."""
        for first in range(0, self.full, self.block):
            steps = range(first, min(first + self.block, self.full))
            yield torch.stack([self.batches.negatives(epoch, index) for index in steps])

    def _advance(self, step: Step) -> None:
        """Run one step: eagerly at first, then captured, then replayed."""
        if self.warm < WARM_UP_STEPS:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._step(step)
            torch.cuda.current_stream().wait_stream(stream)
        elif self.warm == WARM_UP_STEPS:
            with torch.cuda.graph(self.graph, stream=torch.cuda.Stream()):
                self._step(step)
        if self.warm >= WARM_UP_STEPS:
            self.graph.replay()
        self.warm += 1

    def _step(self, step: Step) -> None:
        assert self.order is not None
        examples = self.order.index_select(0, self.at * self.size + self.places)
        negatives = self.drawn.index_select(0, self.at % self.block).squeeze(0)
        rate = self.rates.index_select(0, self.at).squeeze(0)
        loss = step(self.batches.arrange(examples, negatives, fixed=True), rate)
        self.losses.index_copy_(0, self.at, loss.view(1))
        self.at += 1
