"""One trainer for four interactions: sampled with touched rows only, or one-vs-all.

Relations are reciprocal (Lacroix et al. 2018): relation r + R is the inverse of r, every triple is trained in both
directions, and only tails are predicted. All randomness is a pure function of (seed, epoch, batch), so a run that is
resumed on the CPU ends in the same bytes as one that was never stopped, given the same number of threads (RESCAL's
small products differ in the last bit with another number; the others were seen not to).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewlink import memory
from fewlink.ahead import ahead
from fewlink.embeddings.batches import Batch, Batches, torch_generator
from fewlink.embeddings.heldout import HeldOut, choose_held_out
from fewlink.embeddings.interactions import Interaction, interaction
from fewlink.embeddings.losses import LOSSES, PoolLoss
from fewlink.embeddings.rows import OPTIMIZERS, State
from fewlink.embeddings.settings import EmbeddingSettings
from fewlink.embeddings.state import digest, load_state, save_state
from fewlink.embeddings.table import Embeddings
from fewlink.errors import FewlinkError

LOOK_EVERY = 64  # batches between looks at the loss on a GPU, where each look waits for the device


def train(
    triples: np.ndarray,
    entities: int,
    relations: int,
    settings: EmbeddingSettings,
    *,
    resume: Path | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    protected: np.ndarray | None = None,
) -> Embeddings:
    """Vectors for all entities and relations from triples (n, 3) of ids (head, relation, tail).

    `resume` is the state file: written after each epoch, and continued from when it exists. `protected` (n,) marks
    triples that are never held out. `on_epoch` receives epoch, epochs, loss, learning_rate, triples_per_second (a
    triple in one direction counts once), seconds (sampling, step, evaluation, saving), held_out_mrr and
    best_held_out_mrr.
    """
    triples = _checked(triples, entities, relations, protected)
    needs = settings.needs(entities, relations, len(triples))
    memory.ensure("pretraining", needs, settings.device, "use a smaller dim, or several machines")
    run = Run(triples, entities, relations, settings, protected)
    if resume is not None and resume.exists():
        run.load(resume)
    while not run.finished:
        trace = run.epoch()
        start = time.perf_counter()
        if resume is not None and (run.done % settings.save_every == 0 or run.finished):
            run.save(resume)
        trace["seconds"]["saving"] = time.perf_counter() - start
        if on_epoch is not None:
            on_epoch(trace)
    return run.result()


def step_loss(
    rule: Interaction, settings: EmbeddingSettings, batch: Batch, rows: Tensor, kinds: Tensor, every: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The loss of a batch and its regulariser, both scalars, from the gathered rows.

    Shapes: rows (M, d) as `batch.entities`, kinds (V, w) as `batch.relations`; `every` (E, d) in one-vs-all.
    """
    size = len(batch)
    h, t, others = rows.split([size, size, len(rows) - 2 * size])  # (B, d), (B, d), (K or B·N, d)
    q = rule.query_segments(h, kinds, batch.counts)  # (B, d)
    loss = LOSSES[settings.loss]
    if settings.corrupt == "each":
        scores = rule.compare(q.unsqueeze(1), others.view(size, -1, others.shape[-1])) + batch.penalty  # (B, N)
        value = loss(rule.compare(q, t), scores, settings.margin).mean()
    else:
        pool = others if every is None else every
        value = PoolLoss.apply(  # type: ignore[no-untyped-call]
            q, t, pool, batch.position, batch.penalty, rule, loss, settings.margin, settings.mixed_precision
        )
    penalty = value.new_zeros(())
    for weight, power in ((settings.n3, 3.0), (settings.lp, settings.lp_power)):
        if weight:
            ends = rule.powers(h, power).sum() + rule.powers(t, power).sum()
            penalty = penalty + weight / size * (ends + (rule.powers(kinds, power) * batch.counts).sum())
    return value, penalty


class Run:
    """Tables, optimizer state and counters: all that a resumed run needs, and the step that changes them."""

    def __init__(
        self,
        triples: np.ndarray,
        entities: int,
        relations: int,
        settings: EmbeddingSettings,
        protected: np.ndarray | None = None,
    ) -> None:
        self.settings, self.device = settings, settings.device
        self.rule = interaction(settings.model, settings.norm)
        self.optimizer = OPTIMIZERS[settings.optimizer]()
        self.trained_on = digest(triples, entities, relations)
        held = choose_held_out(triples, settings.held_out, settings.seed, protected)
        self.held = HeldOut(triples[held], triples, relations, settings.seed) if held.any() else None
        self.batches = Batches(torch.from_numpy(triples[~held]), entities, relations, settings)
        sizes = {
            "entities": (entities, settings.dim),
            "relations": (2 * relations, self.rule.relation_width(settings.dim)),
        }
        self.tables = {name: self._start(name, size) for name, size in sizes.items()}
        self.states: dict[str, State] = {name: self.optimizer.start(table) for name, table in self.tables.items()}
        self.best: dict[str, Tensor] = {}
        self.best_mrr, self.waited, self.done = -1.0, 0, 0
        self.seconds = 0.0
        self.trace: list[dict[str, Any]] = []

    def _start(self, name: str, size: tuple[int, int]) -> Tensor:
        random = torch_generator(self.settings.seed, "start", name)
        return torch.empty(size).normal_(0, self.settings.init_scale, generator=random).to(self.device)

    @property
    def finished(self) -> bool:
        return self.done >= self.settings.epochs or self.waited >= self.settings.patience

    def epoch(self) -> dict[str, Any]:
        """Train one epoch and evaluate; its trace."""
        began = clock = time.perf_counter()
        steps, size = len(self.batches), self.batches.examples
        losses = torch.zeros(steps, device=self.device)
        rate, sampling = self.settings.learning_rate, 0.0
        batches = self.batches.epoch(self.done)
        for index, batch in enumerate(batches if self.device == "cpu" else ahead(batches)):
            batch = batch.to(self.device)
            sampling += time.perf_counter() - clock
            rate = self.settings.rate_at(self.done * steps + index, self.settings.epochs * steps)
            losses[index] = self.step(batch, rate)
            if self.device == "cpu" or index % LOOK_EVERY == LOOK_EVERY - 1:
                self._look(losses[: index + 1])
            clock = time.perf_counter()
        self._look(losses)
        trained = time.perf_counter() - began
        self.done += 1
        mrr = self._evaluate()
        self.seconds += time.perf_counter() - began
        trace = {
            "epoch": self.done,
            "epochs": self.settings.epochs,
            "loss": float(losses.mean()),
            "learning_rate": rate,
            "triples_per_second": size / trained,
            "seconds": {
                "sampling": sampling,
                "step": trained - sampling,
                "evaluation": time.perf_counter() - began - trained,
            },
            "held_out_mrr": mrr,
            "best_held_out_mrr": self.best_mrr if self.best else None,
        }
        self.trace.append(trace)
        return trace

    def step(self, batch: Batch, rate: float) -> Tensor:
        """Move the tables along one batch; its loss with the regulariser, a scalar."""
        entities, relations = self.tables["entities"], self.tables["relations"]
        dense = self.settings.regime == "one-vs-all"
        rows = entities.index_select(0, batch.entities).requires_grad_()  # (M, d)
        kinds = relations.index_select(0, batch.relations).requires_grad_()  # (V, w)
        every = entities.detach().requires_grad_() if dense else None
        value, penalty = step_loss(self.rule, self.settings, batch, rows, kinds, every)
        leaves = [rows, kinds] if every is None else [rows, kinds, every]
        gradients = torch.autograd.grad(value + penalty, leaves)
        if dense:
            for_entities = gradients[2].index_add_(0, batch.entities, gradients[0])  # (E, d)
            for_relations = torch.zeros_like(relations).index_copy_(0, batch.relations, gradients[1])  # (2R, w)
            self.optimizer.step(entities, self.states["entities"], for_entities, rate)
            self.optimizer.step(relations, self.states["relations"], for_relations, rate)
        else:
            merged = rows.new_zeros(len(batch.unique), rows.shape[1]).index_add_(0, batch.slots, gradients[0])  # (U, d)
            self.optimizer.step(entities, self.states["entities"], merged, rate, batch.unique)
            self.optimizer.step(relations, self.states["relations"], gradients[1], rate, batch.relations)
        return (value + penalty).detach()

    def _look(self, losses: Tensor) -> None:
        """Stop at the first loss that is not a number."""
        if self.device == "cpu" and math.isfinite(float(losses[-1])):
            return
        bad = (~torch.isfinite(losses)).nonzero()
        if len(bad):
            raise FewlinkError(
                f"the loss is {float(losses[bad[0]])} in epoch {self.done + 1}, batch {int(bad[0]) + 1}: "
                "train with a smaller learning_rate; the last saved state is whole"
            )

    def _evaluate(self) -> float | None:
        for name, table in self.tables.items():
            if not math.isfinite(float(table.sum())):
                raise FewlinkError(
                    f"the {name} table is not finite after epoch {self.done}, batch {len(self.batches)}: "
                    "train with a smaller learning_rate; the last saved state is whole"
                )
        if self.held is None or (self.done % self.settings.evaluate_every and self.done < self.settings.epochs):
            return None
        mrr = self.held.mrr(self.rule, self.tables["entities"], self.tables["relations"])
        if mrr > self.best_mrr:
            self.best_mrr, self.waited = mrr, 0
            for name, table in self.tables.items():
                self.best.setdefault(name, torch.empty_like(table)).copy_(table)
        else:
            self.waited += 1
        return mrr

    def save(self, path: Path) -> None:
        tensors = dict(self.tables)
        tensors |= {f"best.{name}": table for name, table in self.best.items()}
        tensors |= {f"{name}.{part}": x for name, state in self.states.items() for part, x in state.items()}
        facts = {"settings": self.settings.as_dict(), "triples": self.trained_on, "done": self.done}
        facts |= {"best_mrr": self.best_mrr, "waited": self.waited, "seconds": self.seconds}
        facts |= {"trace": self.trace}
        save_state(path, tensors, facts)

    def load(self, path: Path) -> None:
        tensors, facts = load_state(path, self.settings, self.trained_on, self.device)
        self.tables = {name: tensors[name] for name in self.tables}
        self.best = {name: tensors[f"best.{name}"] for name in self.tables if f"best.{name}" in tensors}
        self.states = {name: {p: tensors[f"{name}.{p}"] for p in state} for name, state in self.states.items()}
        self.done, self.waited, self.seconds = facts["done"], facts["waited"], facts["seconds"]
        self.best_mrr, self.trace = facts["best_mrr"], facts["trace"]

    def result(self) -> Embeddings:
        best = self.best or self.tables
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
    """The triples as contiguous 64-bit ids, or an error that says what is wrong with them."""
    if triples.ndim != 2 or triples.shape[1] != 3 or not np.issubdtype(triples.dtype, np.integer):
        raise FewlinkError(f"triples must be whole numbers of shape (n, 3), not {triples.dtype} {triples.shape}")
    if not len(triples):
        raise FewlinkError("there are no triples to train on")
    for name, column, limit in (("head", 0, entities), ("relation", 1, relations), ("tail", 2, entities)):
        low, high = int(triples[:, column].min()), int(triples[:, column].max())
        if low < 0 or high >= limit:
            raise FewlinkError(f"{name} ids run from {low} to {high}: they must lie between 0 and {limit - 1}")
    if protected is not None and protected.shape != (len(triples),):
        raise FewlinkError(f"protected has shape {protected.shape}: it must have one entry for each of {len(triples)}")
    return np.ascontiguousarray(triples, dtype=np.int64)
