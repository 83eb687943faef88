"""The trainer of all interactions: against sampled entities, updating touched rows only, or against every entity.

Relations are reciprocal (Lacroix et al. 2018): relation r + R is the inverse of r, every triple is trained in both
directions, and only tails are predicted. All randomness is a pure function of (seed, epoch, batch), so a run resumed on
the CPU with the same number of threads gives the same bytes as one that was never stopped (the last bit of RESCAL's
small products depends on the number of threads).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewlink.core import machine
from fewlink.core.errors import FewlinkError, reading
from fewlink.core.files import exists
from fewlink.core.machine import use_device
from fewlink.core.threads import prefetch
from fewlink.models.captured import CapturedStep
from fewlink.models.checkpoints import read_checkpoint, write_checkpoint
from fewlink.models.embeddings.batches import Batches, EmbeddingBatch, torch_generator
from fewlink.models.embeddings.interactions import Interaction, interaction
from fewlink.models.embeddings.settings import SCORES_BYTES, EmbeddingSettings
from fewlink.models.embeddings.table import Embeddings

EPSILON = 1e-10  # of Adagrad, as in torch
EXCLUDED = -1e9  # added to the score of a negative that is the true tail, which gets no weight
CACHE_BYTES = 16 << 20  # a slice of scores that fits the processor's cache
FAST_ROWS = 256  # make a product fast on the CPU, if their scores take at most this memory:
FAST_BYTES = 256 << 20
STEPS_ON_GPU = 64  # steps whose negatives are drawn together, and whose losses are checked together
ADVICE = "train with a smaller learning_rate; the last saved state is intact"

Rate = float | Tensor  # of learning; a tensor on the device in a captured step


def train(
    triples: np.ndarray,
    entities: int,
    relations: int,
    settings: EmbeddingSettings,
    *,
    resume: Path | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> Embeddings:
    """Train vectors for all entities and relations on triples (n, 3) of ids (head, relation, tail).

    `resume` is the folder of a checkpoint: training writes it after each epoch, and continues from it if it exists.
    `on_epoch` receives epoch, epochs, loss, learning_rate, triples_per_second (per direction), seconds (sampling, step,
    saving).
    """
    trainer = EmbeddingTrainer(triples, entities, relations, settings)
    if resume is not None and exists(resume):
        trainer.load(resume)
    while not trainer.finished:
        trace = trainer.epoch()
        start = time.perf_counter()
        if resume is not None:
            trainer.save(resume)
        trace["seconds"]["saving"] = time.perf_counter() - start
        if on_epoch is not None:
            on_epoch(trace)
    return trainer.result()


def slice_rows(columns: int, bytes_per_score: int, device: str) -> int:
    """The number of rows of a score matrix to compute at a time."""
    row = columns * bytes_per_score
    if device != "cpu":
        return max(1, SCORES_BYTES // row)
    return max(1, CACHE_BYTES // row, min(FAST_ROWS, FAST_BYTES // row))


class SoftmaxLoss(torch.autograd.Function):
    """The sum of −log softmax of the true tails of a batch: among every entity, or each among itself and negatives.

    Shapes: queries (B, d), vectors of tails (A, d), and of all entities or of the negatives (C, d). The forward pass
    computes scores and their gradients for a slice of the batch at a time, so the whole matrix is never in memory; the
    backward pass only scales them.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, t: Tensor, columns: Tensor, batch: EmbeddingBatch, rule: Interaction, mixed_precision: bool
    ) -> Tensor:
        rows = slice_rows(len(columns), rule.bytes_per_score(q.shape[1]), q.device.type)
        gradients = [torch.zeros_like(x) for x in (q, t, columns)]
        total = q.new_zeros(())
        for start in range(0, len(q), rows):
            part = slice(start, min(start + rows, len(q)))
            own = slice(batch.ends[part.start], batch.ends[part.stop])
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in (q[part], t[own], columns)]
                with torch.autocast(q.device.type, torch.bfloat16, enabled=mixed_precision):
                    scores = rule.against(leaves[0], leaves[2])  # (rows, C)
                scores = scores.to(q.dtype)
            if batch.negatives is None:
                value, slopes = among_all(scores.detach(), batch.owners[own] - start, batch.tails[own])
                by_q, by_columns = torch.autograd.grad(scores, [leaves[0], leaves[2]], slopes)
            else:
                with torch.enable_grad():
                    true = rule.compare(leaves[0], leaves[1])  # (rows,)
                exclude(scores.detach(), batch.negatives, batch.tails[own])
                value, slopes, by_true = among_others(scores.detach(), true.detach())
                by_q, gradients[1][own], by_columns = torch.autograd.grad([scores, true], leaves, [slopes, by_true])
            total += value
            gradients[0][part] = by_q
            gradients[2].add_(by_columns)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return *(gradient * grad_outputs[0] for gradient in ctx.saved_tensors), None, None, None


def softmax_and_log_sums(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The softmax of each row (n, C), which overwrites the scores, and log Σ e^score (n,)."""
    top = scores.amax(1)
    shares = torch.softmax(scores, 1, out=scores)
    return shares, top - shares.amax(1).log()  # e^top is the largest share


def among_all(scores: Tensor, rows: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of −log softmax of scores (n, E) at the places (rows, tails) of the true tails, and its gradient."""
    true = rows * scores.shape[1] + tails  # (A,)
    one = scores.new_ones(len(true))
    counts = scores.new_zeros(len(scores)).index_add_(0, rows, one)  # tails of each query
    of_true = scores.view(-1).index_select(0, true).sum()
    shares, log_sums = softmax_and_log_sums(scores)
    if len(true) != len(scores):
        shares.mul_(counts.unsqueeze(1))
    shares.view(-1).index_add_(0, true, -one)
    return (counts * log_sums).sum() - of_true, shares


def among_others(others: Tensor, true: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of −log softmax of true scores (n,) among themselves and others (n, K); its gradients by others, true."""
    shares, log_sums = softmax_and_log_sums(others)
    totals = torch.logaddexp(log_sums, true)
    not_true = (log_sums - totals).exp()
    return (totals - true).sum(), shares.mul_(not_true.unsqueeze(1)), -not_true


def exclude(scores: Tensor, negatives: Tensor, tails: Tensor) -> None:
    """Give no weight to a negative (K,) that is the true tail (B,) of its row of scores (B, K)."""
    at = torch.searchsorted(negatives, tails).clamp_max_(len(negatives) - 1)
    penalty = torch.where(negatives[at] == tails, EXCLUDED, 0.0).to(scores.dtype)
    scores.scatter_add_(1, at.unsqueeze(1), penalty.unsqueeze(1))


def batch_loss(
    rule: Interaction,
    settings: EmbeddingSettings,
    batch: EmbeddingBatch,
    vectors: tuple[Tensor, Tensor, Tensor],
    relations: Tensor,
    kinds: Tensor,
) -> Tensor:
    """The mean loss of a batch with the N3 regulariser.

    Shapes: vectors of heads (B, d), of tails (A, d), and of all entities or of the negatives (C, d); relation rows
    (V, w), and the row of each example among them (B,).
    """
    heads, tails, columns = vectors
    queries = rule.query_by(heads, relations, kinds)  # (B, d)
    total: Tensor = SoftmaxLoss.apply(queries, tails, columns, batch, rule, settings.mixed_precision)  # type: ignore[no-untyped-call]
    if settings.n3:
        of_queries = rule.n3(heads) + rule.n3(relations).index_select(0, kinds)  # (B,)
        total = total + settings.n3 * (of_queries.index_select(0, batch.owners) + rule.n3(tails)).sum()
    return total / len(batch.tails)


class EmbeddingTrainer:
    """The state of a run (tables, optimizer state and counters), and its training step.

    Adagrad: s ← s + g²; x ← x − rate · g / (√s + ε) (Duchi, Hazan and Singer, JMLR 2011). A row with a zero gradient
    does not change, so updating only the rows that a batch touches gives exactly the dense result.
    """

    def __init__(self, triples: np.ndarray, entities: int, relations: int, settings: EmbeddingSettings) -> None:
        triples = _checked(triples, entities, relations)
        use_device(settings.device)
        for device in dict.fromkeys(("cpu", settings.device)):
            needs = settings.needs(entities, relations, len(triples), device=device)
            machine.ensure("pretraining", needs, device, "use a smaller dim, or a larger machine")
        self.settings = settings
        self.device = settings.device
        self.rule = interaction(settings.model, settings.norm)
        self.trained_on = triples_digest(triples, entities, relations)
        self.batches = Batches(torch.from_numpy(triples).to(self.device), entities, relations, settings)
        self.vectors = {
            "entities": self._initial("entities", entities, settings.dim),
            "relations": self._initial("relations", 2 * relations, self.rule.relation_width(settings.dim)),
        }
        self.squares = {name: torch.zeros_like(table) for name, table in self.vectors.items()}
        self.place = torch.zeros(entities, dtype=torch.int64, device=self.device)  # of an entity in a batch
        self.done = 0
        self.seconds = 0.0
        self.trace: list[dict[str, Any]] = []
        self._captured: CapturedStep | None = None

    def _initial(self, name: str, count: int, width: int) -> Tensor:
        """Normally distributed vectors (count, width)."""
        random = torch_generator(self.settings.seed, "start", name)
        return torch.empty(count, width).normal_(0, self.settings.init_scale, generator=random).to(self.device)

    @property
    def finished(self) -> bool:
        return self.done >= self.settings.epochs

    def epoch(self) -> dict[str, Any]:
        """Train one epoch, and return its trace."""
        start = time.perf_counter()
        captured = self.device != "cpu" and self.settings.regime != "k-vs-all"
        losses, sampling = self._steps_on_gpu() if captured else self._steps()
        for name, table in self.vectors.items():
            if not math.isfinite(float(table.sum())):
                raise FewlinkError(f"the {name} table is not finite after epoch {self.done + 1}: {ADVICE}")
        seconds = time.perf_counter() - start
        steps = len(self.batches)
        self.done += 1
        self.seconds += seconds
        trace = {
            "epoch": self.done,
            "epochs": self.settings.epochs,
            "loss": float(losses.mean()),
            "learning_rate": self.rate(self.done * steps - 1),
            "triples_per_second": 2 * len(self.batches.triples) / seconds,
            "seconds": {"sampling": sampling, "step": seconds - sampling},
        }
        self.trace.append(trace)
        if self.finished:
            self._captured = None  # it refers to the trainer, whose memory would not be freed
        return trace

    def rate(self, number: Any) -> Any:
        """The learning rate of a step, counted from the first of the run."""
        return self.settings.rate_at(number, self.settings.epochs * len(self.batches))

    def _steps(self) -> tuple[Tensor, float]:
        """Run the steps of an epoch; return their losses and the seconds spent on making batches."""
        first = self.done * len(self.batches)
        losses = torch.zeros(len(self.batches), device=self.device)
        sampling = 0.0
        clock = time.perf_counter()
        for index, batch in enumerate(self.batches.epoch(self.done)):
            sampling += time.perf_counter() - clock
            losses[index] = self.step(batch, self.rate(first + index))
            if self.device == "cpu" or index % STEPS_ON_GPU == 0:  # a check waits for the GPU
                self._check(losses[: index + 1])
            clock = time.perf_counter()
        self._check(losses)
        return losses, sampling

    def _steps_on_gpu(self) -> tuple[Tensor, float]:
        """Run the steps of an epoch from one CUDA graph; return as `_steps` does. A short last batch runs eagerly."""
        size = self.settings.batch_size
        order = self.batches.order(self.done)
        full = len(order) // size
        number = self.done * len(self.batches)
        losses = []
        waited = 0.0
        clock = time.perf_counter()
        for ids in prefetch(self._blocks(order, full)):
            waited += time.perf_counter() - clock
            ids = ids.to(self.device).unsqueeze(0)  # (1, steps, B + K)
            if self._captured is None:
                self._capture(ids)
            assert self._captured is not None
            losses.append(self._captured.replay(number, ids).flatten())
            number += ids.shape[1]
            self._check(torch.cat(losses))
            clock = time.perf_counter()
        if full < len(self.batches):
            last = self.batches.arrange(order[full * size :], self.batches.negatives(self.done, full))
            losses.append(self.step(last, self.rate(number)).view(1))
        self._check(torch.cat(losses))
        return torch.cat(losses), waited

    def _blocks(self, order: Tensor, full: int) -> Iterator[Tensor]:
        """Yield the examples and negatives (steps, B + K) of some of the `full` batches at a time."""
        examples = order[: full * self.settings.batch_size].view(-1, self.settings.batch_size).long()
        for first in range(0, full, STEPS_ON_GPU):
            steps = range(first, min(first + STEPS_ON_GPU, full))
            negatives = torch.stack([self.batches.negatives(self.done, step) for step in steps])
            yield torch.cat([examples[steps.start : steps.stop], negatives], 1)

    def _capture(self, ids: Tensor) -> None:
        """Capture the step, and take back the updates of its warm-up."""
        tables = (*self.vectors.values(), *self.squares.values())
        before = [table.to("cpu", copy=True) for table in tables]
        self._captured = CapturedStep(self._captured_step, ids, terms=1)
        for table, values in zip(tables, before, strict=True):
            table.copy_(values)

    def _captured_step(self, number: Tensor, ids: Tensor) -> Tensor:
        size = self.settings.batch_size
        batch = self.batches.arrange(ids[0, :size], ids[0, size:])
        return self.step(batch, self.rate(number)).view(1, 1)

    def step(self, batch: EmbeddingBatch, rate: Rate) -> Tensor:
        """Update the tables by one batch, and return its loss with the regulariser, a scalar."""
        entities = self.vectors["entities"]
        if self.device == "cpu":
            used, kinds = batch.relations.unique(return_inverse=True)  # (V,), (B,)
        else:  # all of them, because the shapes of a captured step are fixed
            used = torch.arange(len(self.vectors["relations"]), device=self.device)
            kinds = batch.relations
        relations = self.vectors["relations"].index_select(0, used).requires_grad_()
        if batch.negatives is None:
            leaf = entities.detach().requires_grad_()
            vectors = leaf.index_select(0, batch.heads), leaf.index_select(0, batch.tails), leaf
        else:
            ids = torch.cat([batch.heads, batch.tails, batch.negatives])  # (M,)
            leaf = entities.index_select(0, ids).requires_grad_()
            vectors = leaf.split([len(batch.heads), len(batch.tails), len(batch.negatives)])
        loss = batch_loss(self.rule, self.settings, batch, vectors, relations, kinds)
        of_entities, of_relations = torch.autograd.grad(loss, [leaf, relations])
        self._update("relations", of_relations, rate, used)
        if batch.negatives is None:
            self._update("entities", of_entities, rate)
        elif len(ids) >= len(entities):  # then the whole table is fewer rows
            self._update("entities", torch.zeros_like(entities).index_add_(0, ids, of_entities), rate)
        else:
            self.place.index_copy_(0, ids, torch.arange(len(ids), device=ids.device))
            first = self.place.index_select(0, ids)  # a place of the same entity
            merged = torch.zeros_like(of_entities).index_add_(0, first, of_entities)
            self._update("entities", merged.index_select(0, first), rate, ids)
        return loss.detach()

    def _update(self, name: str, gradient: Tensor, rate: Rate, ids: Tensor | None = None) -> None:
        """Update rows (M,) of a table, or all, by their gradient (M, w); a row that occurs twice has it twice."""
        table = self.vectors[name]
        if ids is None:
            squares = self.squares[name].addcmul_(gradient, gradient)
            table.sub_((gradient / squares.sqrt().add_(EPSILON)).mul_(rate))
            return
        squares = self.squares[name].index_select(0, ids).addcmul_(gradient, gradient)
        self.squares[name].index_copy_(0, ids, squares)
        move = torch.div(gradient, squares.sqrt_().add_(EPSILON), out=squares).mul_(rate)
        table.index_copy_(0, ids, table.index_select(0, ids).sub_(move))

    def _check(self, losses: Tensor) -> None:
        """Raise if a loss is not finite."""
        bad = (~torch.isfinite(losses)).nonzero()
        if len(bad):
            where = f"epoch {self.done + 1}, batch {int(bad[0]) + 1}"
            raise FewlinkError(f"the loss is {float(losses[bad[0]])} in {where}: {ADVICE}")

    def save(self, folder: Path) -> None:
        """Replace the state of the run: a process killed at any moment leaves the old state or the new one."""
        facts = {
            "settings": self.settings.as_dict(),
            "triples": self.trained_on,
            "done": self.done,
            "seconds": self.seconds,
            "trace": self.trace,
        }
        write_checkpoint(folder, self.vectors, self.squares, facts, {})

    def load(self, folder: Path) -> None:
        """Continue from the state that `save` wrote. Raise if it is damaged, or has other settings or triples."""
        vectors, squares, facts = read_checkpoint(folder)
        with reading(folder, "remove it to start again"):
            self._check_same(folder, facts)
            for name, table in self.vectors.items():
                table.copy_(vectors[name])
                self.squares[name].copy_(squares[name])
            self.done = facts["done"]
            self.seconds = facts["seconds"]
            self.trace = facts["trace"]

    def _check_same(self, path: Path, facts: dict[str, Any]) -> None:
        """Raise unless the state is of the same triples and settings."""
        if facts["triples"] != self.trained_on:
            raise FewlinkError(
                f"{path} was trained on other triples: remove it to start again, or give the same triples"
            )
        may_change = {"device", "epochs"} if self.settings.schedule == "constant" else {"device"}
        for name, value in self.settings.as_dict().items():
            before = facts["settings"].get(name)
            if name not in may_change and value != before:
                raise FewlinkError(
                    f"{path} was trained with {name} = {before!r}, not {value!r}: "
                    "give the same settings, or remove it to start again"
                )

    def result(self) -> Embeddings:
        """The vectors, on the CPU."""
        return Embeddings(
            self.vectors["entities"].cpu(),
            self.vectors["relations"].cpu(),
            self.settings.model,
            self.settings.norm,
            self.settings.as_dict(),
            {"epochs": self.done, "seconds": self.seconds},
            self.trace,
        )


def triples_digest(triples: np.ndarray, entities: int, relations: int) -> str:
    """The sha256 of the sizes and of all triples in order."""
    digest = hashlib.sha256(f"{entities} {relations} {len(triples)}".encode())
    for piece in np.array_split(triples, len(triples) // (1 << 16) + 1):  # copied as 64-bit numbers one at a time
        digest.update(np.ascontiguousarray(piece, dtype="<i8").data)
    return digest.hexdigest()


def _checked(triples: np.ndarray, entities: int, relations: int) -> np.ndarray:
    """The triples as contiguous ids, of 32 bits if these suffice. Raise if an id is invalid."""
    if triples.ndim != 2 or triples.shape[1] != 3 or not np.issubdtype(triples.dtype, np.integer):
        raise FewlinkError(f"triples are {triples.dtype} of shape {triples.shape}: give whole numbers of shape (n, 3)")
    if not len(triples):
        raise FewlinkError("there are no triples to train on: give at least one")
    for name, column, limit in (("head", 0, entities), ("relation", 1, relations), ("tail", 2, entities)):
        low = int(triples[:, column].min())
        high = int(triples[:, column].max())
        if low < 0 or high >= limit:
            raise FewlinkError(f"{name} ids run from {low} to {high}: they must lie between 0 and {limit - 1}")
    return np.ascontiguousarray(triples, dtype=np.int32 if max(entities, relations) < 1 << 31 else np.int64)
