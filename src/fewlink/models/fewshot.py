"""A few-shot model: an encoder, an aggregator and a matcher put together, and as a scorer of the common evaluator."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from fewlink.models.matchers import Matcher
from fewlink.models.surroundings import Surroundings
from fewlink.scorers.question import Question

ENCODED_AT_ONCE = 4096


class FewShotModel(nn.Module):
    """Scores query pairs of a relation by a handful of reference pairs of it."""

    def __init__(self, encoder: nn.Module, aggregator: nn.Module, matcher: Matcher) -> None:
        super().__init__()
        self.encoder, self.aggregator, self.matcher = encoder, aggregator, matcher

    def forward(self, references: Tensor, queries: Tensor, around: Surroundings) -> tuple[Tensor, Tensor]:
        """References (B, K, 2) and queries (B, Q, 2) of ids to scores (B, Q) and reconstruction losses (B,)."""
        both = torch.cat([references, queries], 1)  # (B, K + Q, 2)
        ids, places = both.unique(return_inverse=True)  # each entity is encoded once
        pairs = self.encoder(ids, around)[places].flatten(-2)  # (B, K + Q, 2d)
        shots = references.shape[1]
        summary = self.aggregator(pairs[:, :shots])
        return self.matcher(pairs[:, shots:], summary.vectors), summary.reconstruction

    @torch.no_grad()
    def encode_all(self, around: Surroundings) -> Tensor:
        """The vectors of all entities: (E, d), worked out in double precision.

        A product's rounding depends on its shape; in double precision it is gone when the result is stored, so that
        entities with the same neighbours get the same vector to the last bit and tie.
        """
        encoder, exact = copy.deepcopy(self.encoder).eval().double(), copy.deepcopy(around).double()
        everyone = torch.arange(around.entity_count, device=around.entities.device)
        parts = [encoder(ids, exact).to(around.entities.dtype) for ids in everyone.split(ENCODED_AT_ONCE)]
        return torch.cat(parts)

    @torch.no_grad()
    def grid(self, encoded: Tensor, references: Tensor, heads: Tensor, candidates: Tensor) -> Tensor:
        """Scores (H, C) of every head with every candidate, from the vectors of all entities (E, d)."""
        summary = self.aggregator(encoded[references].flatten(-2))  # (K, 2d) in
        return self.matcher.grid(encoded[heads], encoded[candidates], summary.vectors)


class FewShotScorer:
    """A trained model for the common evaluator.

    Every entity is encoded once, when the first question comes, and entities with the same vector (half of NELL-One's)
    are scored once for all of them.
    """

    def __init__(self, name: str, model: FewShotModel, around: Surroundings) -> None:
        self.name, self.model, self.around = name, model.eval(), around
        self._kinds: tuple[Tensor, Tensor] | None = None  # distinct vectors (U, d), and which is whose (E,)

    def __call__(self, question: Question) -> Tensor:
        if self._kinds is None:
            self._kinds = self.model.encode_all(self.around).unique(dim=0, return_inverse=True)
        vectors, owners = self._kinds
        parts = (question.references, question.heads, question.candidates)
        references, heads, candidates = (owners[torch.from_numpy(p.astype(np.int64)).to(owners.device)] for p in parts)
        (rows, row), (columns, column) = (ids.unique(return_inverse=True) for ids in (heads, candidates))
        return self.model.grid(vectors, references, rows, columns)[row][:, column]
