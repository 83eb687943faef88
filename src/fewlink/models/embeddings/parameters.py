"""Vectors with their optimizer state, and their update by the gradients of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fewlink.models.embeddings.batches import Batch
from fewlink.models.embeddings.optimizers import OPTIMIZERS, Rate, State
from fewlink.models.embeddings.settings import EmbeddingSettings


class SparseParameters:
    """Vectors of entities (E, d) and relations (2R, w) with optimizer state. A batch updates the rows it touches."""

    def __init__(self, vectors: dict[str, Tensor], settings: EmbeddingSettings) -> None:
        self.vectors = vectors
        self.optimizer = OPTIMIZERS[settings.optimizer]()
        self.states: dict[str, State] = {name: self.optimizer.start(table) for name, table in vectors.items()}

    def gather(self, batch: Batch) -> list[Tensor]:
        """The rows that the loss of a batch reads: those of entities (M, d) and relations (V, w)."""
        return [
            self.vectors["entities"].index_select(0, batch.entities),
            self.vectors["relations"].index_select(0, batch.relations),
        ]

    def update(self, batch: Batch, gradients: Sequence[Tensor], rate: Rate) -> None:
        """Update the rows by the gradients of the gathered rows."""
        self._step("entities", self._merged(batch, gradients[0]), rate, batch.unique)
        self._step("relations", self._of_relations(batch, gradients[1]), rate, batch.relations)

    def _merged(self, batch: Batch, gradient: Tensor) -> Tensor:
        """Sum the gradients (M, d) of repeated rows: (U, d), each row once."""
        merged = gradient.new_zeros(len(batch.unique), gradient.shape[1]).index_add_(0, batch.slots, gradient)
        return merged if batch.filled is None else merged.index_select(0, batch.filled[0])

    def _of_relations(self, batch: Batch, gradient: Tensor) -> Tensor:
        """The gradients (V, w) of the batch's relations; padded relations have that of the last."""
        return gradient if batch.filled is None else gradient.index_select(0, batch.filled[1])

    def _step(self, name: str, gradient: Tensor, rate: Rate, rows: Tensor | None = None) -> None:
        self.optimizer.step(self.vectors[name], self.states[name], gradient, rate, rows)


class DenseParameters(SparseParameters):
    """Parameters for one-vs-all and k-vs-all, of which a batch reads and updates every row."""

    def gather(self, batch: Batch) -> list[Tensor]:
        """Entity rows (M, d), relation rows (V, w), and every entity's row (E, d)."""
        return [*super().gather(batch), self.vectors["entities"].detach()]

    def update(self, batch: Batch, gradients: Sequence[Tensor], rate: Rate) -> None:
        of_rows, of_relations, of_all = gradients
        of_all.index_add_(0, batch.entities, of_rows)  # (E, d)
        of_all_relations = torch.zeros_like(self.vectors["relations"])
        of_all_relations.index_copy_(0, batch.relations, self._of_relations(batch, of_relations))
        self._step("entities", of_all, rate)
        self._step("relations", of_all_relations, rate)
