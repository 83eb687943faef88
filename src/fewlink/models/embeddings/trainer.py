"""The trainer of all interactions: against sampled entities, updating touched rows only, or against every entity.

Relations are reciprocal (Lacroix et al. 2018): relation r + R is the inverse of r, every triple is trained in both
directions, and only tails are predicted. All randomness is a pure function of (seed, epoch, batch), so a run resumed on
the CPU with the same number of threads gives the same bytes as one that was never stopped (the last bit of RESCAL's
small products depends on the number of threads).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewlink.core import machine
from fewlink.core.errors import FewlinkError, reading
from fewlink.core.machine import use_device
from fewlink.models.embeddings.batches import EmbeddingBatch, batches_of, torch_generator
from fewlink.models.embeddings.gpu import CUDAGraphEpochs, Rate
from fewlink.models.embeddings.held_out import HeldOut, choose_held_out
from fewlink.models.embeddings.interactions import Interaction, interaction
from fewlink.models.embeddings.losses import AnswersLoss, PoolLoss, n3
from fewlink.models.embeddings.settings import EmbeddingSettings
from fewlink.models.embeddings.state import load_state, save_state, triples_digest
from fewlink.models.embeddings.table import Embeddings

EPSILON = 1e-10  # of Adagrad, as in torch
CHECK_EVERY = 64  # batches between checks of the losses on a GPU, where each check waits for the device


def train(
    triples: np.ndarray,
    entities: int,
    relations: int,
    settings: EmbeddingSettings,
    *,
    resume: Path | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    protected: np.ndarray | None = None,
    validation: np.ndarray | None = None,
) -> Embeddings:
    """Train vectors for all entities and relations on triples (n, 3) of ids (head, relation, tail).

    `resume` is the state file: training writes it after each epoch, and resumes from it if it exists. `protected` (n,)
    marks triples that are never held out. `validation` (m, 3) are other triples, for early stopping; with them, the
    setting held_out must be 0. `on_epoch` receives epoch, epochs, loss, learning_rate,
    triples_per_second (per direction), seconds (sampling, step, evaluation, saving), held_out_mrr and
    best_held_out_mrr.
    """
    triples = _checked(triples, entities, relations, protected)
    use_device(settings.device)
    for device in dict.fromkeys(("cpu", settings.device)):
        needs = settings.needs(entities, relations, len(triples), device=device)
        machine.ensure("pretraining", needs, device, "use a smaller dim, or a larger machine")
    if validation is not None:
        if settings.held_out:
            raise FewlinkError(f"held_out is {settings.held_out}: set it to 0, because there are validation triples")
        validation = _checked(validation, entities, relations, None)
    trainer = EmbeddingTrainer(triples, entities, relations, settings, protected, validation)
    if resume is not None and resume.exists():
        trainer.load(resume)
    while not trainer.finished:
        trace = trainer.epoch()
        start = time.perf_counter()
        if resume is not None and (trainer.done % settings.save_every == 0 or trainer.finished):
            trainer.save(resume)
        trace["seconds"]["saving"] = time.perf_counter() - start
        if on_epoch is not None:
            on_epoch(trace)
    return trainer.result()


def step_loss(
    rule: Interaction,
    settings: EmbeddingSettings,
    batch: EmbeddingBatch,
    rows: Tensor,
    relation_rows: Tensor,
    all_rows: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss and the regulariser of a batch, both scalars, from the gathered rows.

    Shapes: rows (M, d) as `batch.entities`, relation_rows (V, w) as `batch.relations`; all_rows (E, d) if every entity
    is scored.
    """
    size = len(batch)
    q = rule.query_segments(rows[:size], relation_rows, batch.counts)  # (B, d)
    if batch.answers is not None:
        value = AnswersLoss.apply(q, all_rows, *batch.answers, rule, settings.mixed_precision)  # type: ignore[no-untyped-call]
    else:
        t = rows[size : 2 * size]  # (B, d)
        pool = rows[2 * size :] if all_rows is None else all_rows
        places = (batch.position, batch.penalty)
        value = PoolLoss.apply(q, t, pool, *places, rule, settings.mixed_precision)  # type: ignore[no-untyped-call]
    penalty = value.new_zeros(())
    if settings.n3:
        penalty = settings.n3 / batch.size * _n3_of(rule, batch, rows, relation_rows)
    return value / batch.size, penalty


def _n3_of(rule: Interaction, batch: EmbeddingBatch, rows: Tensor, relation_rows: Tensor) -> Tensor:
    """The sum of Σ|z|³ of head, relation and tail over a batch; in k-vs-all, over all tails of each example."""
    size = len(batch)
    relations = n3(rule, relation_rows)  # (V,)
    if batch.answers is None:
        return n3(rule, rows[: 2 * size]).sum() + (relations * batch.counts).sum()
    of_examples = relations.repeat_interleave(batch.counts, output_size=size)  # (B,)
    queries = (n3(rule, rows[:size]) + of_examples) * batch.answers.counts
    return queries.sum() + n3(rule, rows[size:]).sum()


class Tables:
    """The vectors of entities (E, d) and relations (2R, w), which Adagrad updates.

    s ← s + g²; x ← x − rate · g / (√s + ε) (Duchi, Hazan and Singer, JMLR 2011). A row with a zero gradient does not
    change, so updating only the rows that a batch touches gives exactly the dense result.
    """

    def __init__(self, vectors: dict[str, Tensor]) -> None:
        self.vectors = vectors
        self.squares = {name: torch.zeros_like(table) for name, table in vectors.items()}

    def gather(self, batch: EmbeddingBatch, dense: bool) -> list[Tensor]:
        """The rows that the loss of a batch reads: of entities (M, d), relations (V, w) and, if dense, all (E, d)."""
        rows = [
            self.vectors["entities"].index_select(0, batch.entities),
            self.vectors["relations"].index_select(0, batch.relations),
        ]
        return [*rows, self.vectors["entities"].detach()] if dense else rows

    def update(self, batch: EmbeddingBatch, gradients: Sequence[Tensor], rate: Rate) -> None:
        """Update the tables by the gradients of the gathered rows."""
        of_rows, of_relations, *of_all = gradients
        if batch.filled is not None:  # padded relations have the gradient of the last
            of_relations = of_relations.index_select(0, batch.filled[1])
        if of_all:
            of_all[0].index_add_(0, batch.entities, of_rows)  # (E, d)
            relations = torch.zeros_like(self.vectors["relations"])
            self._step_all("entities", of_all[0], rate)
            self._step_all("relations", relations.index_copy_(0, batch.relations, of_relations), rate)
            return
        merged = of_rows.new_zeros(len(batch.unique), of_rows.shape[1]).index_add_(0, batch.slots, of_rows)
        if batch.filled is not None:
            merged = merged.index_select(0, batch.filled[0])
        self._step("entities", merged, rate, batch.unique)
        self._step("relations", of_relations, rate, batch.relations)

    def _step(self, name: str, gradient: Tensor, rate: Rate, rows: Tensor) -> None:
        """Update rows (U,) by a gradient (U, w); a repeated row has the same gradient and is updated once."""
        squares = self.squares[name].index_select(0, rows).addcmul_(gradient, gradient)  # (U, w)
        self.squares[name].index_copy_(0, rows, squares)
        move = torch.div(gradient, squares.sqrt_().add_(EPSILON), out=squares).mul_(rate)
        table = self.vectors[name]
        table.index_copy_(0, rows, table.index_select(0, rows).sub_(move))

    def _step_all(self, name: str, gradient: Tensor, rate: Rate) -> None:
        """Update all rows by a gradient of the table's shape."""
        squares = self.squares[name].addcmul_(gradient, gradient)
        self.vectors[name].sub_((gradient / squares.sqrt().add_(EPSILON)).mul_(rate))


class EmbeddingTrainer:
    """The state of a run (tables, optimizer state and counters), and its training step."""

    def __init__(
        self,
        triples: np.ndarray,
        entities: int,
        relations: int,
        settings: EmbeddingSettings,
        protected: np.ndarray | None = None,
        validation: np.ndarray | None = None,
    ) -> None:
        self.settings = settings
        self.device = settings.device
        self.rule = interaction(settings.model, settings.norm)
        known = triples if validation is None else np.concatenate([triples, validation])
        self.trained_on = triples_digest(known, entities, relations)
        mask = choose_held_out(triples, settings.held_out, settings.seed, protected)
        held = triples[mask] if validation is None else validation
        self.held_out = HeldOut(held, known, relations, settings.seed) if len(held) else None
        trained = torch.from_numpy(triples[~mask] if mask.any() else triples).to(self.device)
        self.batches = batches_of(settings.regime)(trained, entities, relations, settings)
        vectors = {
            "entities": self._initial("entities", entities, settings.dim),
            "relations": self._initial("relations", 2 * relations, self.rule.relation_width(settings.dim)),
        }
        self.tables = Tables(vectors)
        self.best: dict[str, Tensor] = {}
        self.best_mrr = -1.0
        self.waited = 0
        self.done = 0
        self.seconds = 0.0
        self.trace: list[dict[str, Any]] = []
        self._graph: CUDAGraphEpochs | None = None

    def _initial(self, name: str, count: int, width: int) -> Tensor:
        """Normally distributed vectors (count, width)."""
        random = torch_generator(self.settings.seed, "start", name)
        return torch.empty(count, width).normal_(0, self.settings.init_scale, generator=random).to(self.device)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or patience is used up."""
        return self.done >= self.settings.epochs or self.waited >= self.settings.patience

    def epoch(self) -> dict[str, Any]:
        """Train one epoch, evaluate, and return the epoch's trace."""
        start = time.perf_counter()
        steps = len(self.batches)
        size = 2 * len(self.batches.triples)
        rates = [
            self.settings.rate_at(self.done * steps + index, self.settings.epochs * steps) for index in range(steps)
        ]
        if self.device == "cpu" or self.settings.regime == "k-vs-all":
            losses, sampling = self._steps(rates)
        else:
            self._graph = self._graph or CUDAGraphEpochs(self.batches)
            losses, sampling = self._graph.epoch(self.done, rates, self.step, self._check_losses)
        trained = time.perf_counter() - start
        self.done += 1
        mrr = self._evaluate()
        self.seconds += time.perf_counter() - start
        trace = {
            "epoch": self.done,
            "epochs": self.settings.epochs,
            "loss": float(losses.mean()),
            "learning_rate": rates[-1],
            "triples_per_second": size / trained,
            "seconds": {
                "sampling": sampling,
                "step": trained - sampling,
                "evaluation": time.perf_counter() - start - trained,
            },
            "held_out_mrr": mrr,
            "best_held_out_mrr": self.best_mrr if self.best else None,
        }
        self.trace.append(trace)
        return trace

    def _steps(self, rates: Sequence[float]) -> tuple[Tensor, float]:
        """Run the steps of an epoch; return their losses and the seconds spent on making batches."""
        losses = torch.zeros(len(rates), device=self.device)
        sampling = 0.0
        clock = time.perf_counter()
        for index, batch in enumerate(self.batches.epoch(self.done)):
            sampling += time.perf_counter() - clock
            losses[index] = self.step(batch, rates[index])
            if self.device == "cpu" or index % CHECK_EVERY == CHECK_EVERY - 1:
                self._check_losses(losses[: index + 1])
            clock = time.perf_counter()
        self._check_losses(losses)
        return losses, sampling

    def step(self, batch: EmbeddingBatch, rate: Rate) -> Tensor:
        """Update the tables by one batch, and return its loss with the regulariser, a scalar."""
        leaves = [rows.requires_grad_() for rows in self.tables.gather(batch, self.settings.dense)]
        value, penalty = step_loss(self.rule, self.settings, batch, *leaves)
        loss = value + penalty
        gradients = torch.autograd.grad(loss, leaves)
        self.tables.update(batch, gradients, rate)
        return loss.detach()

    def _check_losses(self, losses: Tensor) -> None:
        """Raise if a loss is not finite."""
        if self.device == "cpu" and math.isfinite(float(losses[-1])):
            return
        bad = (~torch.isfinite(losses)).nonzero()
        if len(bad):
            raise FewlinkError(
                f"the loss is {float(losses[bad[0]])} in epoch {self.done + 1}, batch {int(bad[0]) + 1}: "
                "train with a smaller learning_rate; the last saved state is intact"
            )

    def _evaluate(self) -> float | None:
        """The held-out MRR, if it is due. Keeps the best vectors, and raises if a vector is not finite."""
        for name, table in self.tables.vectors.items():
            if not math.isfinite(float(table.sum())):
                raise FewlinkError(
                    f"the {name} table is not finite after epoch {self.done}, batch {len(self.batches)}: "
                    "train with a smaller learning_rate; the last saved state is intact"
                )
        if self.held_out is None or (self.done % self.settings.evaluate_every and self.done < self.settings.epochs):
            return None
        mrr = self.held_out.mrr(self.rule, **self.tables.vectors)
        if mrr > self.best_mrr:
            self.best_mrr = mrr
            self.waited = 0
            for name, table in self.tables.vectors.items():
                self.best.setdefault(name, torch.empty_like(table)).copy_(table)
        else:
            self.waited += 1
        return mrr

    def save(self, path: Path) -> None:
        """Write the state of the run, so that `load` can continue it."""
        tensors = dict(self.tables.vectors)
        tensors |= {f"best.{name}": table for name, table in self.best.items()}
        tensors |= {f"{name}.squares": squares for name, squares in self.tables.squares.items()}
        facts = {
            "settings": self.settings.as_dict(),
            "triples": self.trained_on,
            "done": self.done,
            "best_mrr": self.best_mrr,
            "waited": self.waited,
            "seconds": self.seconds,
            "trace": self.trace,
        }
        save_state(path, tensors, facts)

    def load(self, path: Path) -> None:
        """Continue from the state that `save` wrote."""
        tensors, facts = load_state(path, self.settings, self.trained_on, self.device)
        vectors = self.tables.vectors
        with reading(path, "remove it to start again"):
            self.tables.vectors = {name: tensors[name].view_as(table) for name, table in vectors.items()}
            self.tables.squares = {name: tensors[f"{name}.squares"] for name in vectors}
            self.best = {name: tensors[f"best.{name}"] for name in vectors if f"best.{name}" in tensors}
            self.done = facts["done"]
            self.waited = facts["waited"]
            self.seconds = facts["seconds"]
            self.best_mrr = facts["best_mrr"]
            self.trace = facts["trace"]
        self._graph = None

    def result(self) -> Embeddings:
        """The best vectors, on the CPU."""
        best = self.best or self.tables.vectors
        facts = {"epochs": self.done, "seconds": self.seconds, "held_out_mrr": self.best_mrr if self.best else None}
        return Embeddings(
            best["entities"].cpu(),
            best["relations"].cpu(),
            self.settings.model,
            self.settings.norm,
            self.settings.as_dict(),
            facts,
            self.trace,
        )


def _checked(triples: np.ndarray, entities: int, relations: int, protected: np.ndarray | None) -> np.ndarray:
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
    if protected is not None and protected.shape != (len(triples),):
        raise FewlinkError(f"protected has shape {protected.shape}: it must be ({len(triples)},)")
    return np.ascontiguousarray(triples, dtype=np.int32 if max(entities, relations) < 1 << 31 else np.int64)
