"""Pair encoders, which represent a pair (h, t) by one vector, given the encoded head and tail."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from fewlink.models.fsrl import grid
from fewlink.models.fsrl.grid import every_pair
from fewlink.models.fsrl.matcher import Matcher


class PairEncoder(nn.Module, ABC):
    """A pair encoder for entities that are encoded by `dim` numbers."""

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, ends: Tensor) -> Tensor:
        """Encoded heads and tails (…, 2, d) to pairs (…, 2d)."""

    @abstractmethod
    def grid(self, matcher: Matcher, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        """Heads (H, d), tails (C, d) and the references' vectors (M, w) to scores (H, C), as `forward` gives them."""


class Concatenation(PairEncoder):
    """[h ; t], as in the paper."""

    def forward(self, ends: Tensor) -> Tensor:
        return ends.flatten(-2)

    def grid(self, matcher: Matcher, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        return matcher.grid(heads, tails, vectors)


class FeedForward(PairEncoder):
    """The authors' program: norm(x + W₂ relu(W₁ x + b₁) + b₂) of x = [h ; t], with 4d inner numbers.

    norm(y) = a·(y − mean)/(deviation + 0.001) + b with the unbiased deviation.
    """

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__(dim)
        self.inner = nn.Linear(2 * dim, 4 * dim)
        self.outer = nn.Linear(4 * dim, 2 * dim)
        self.a = nn.Parameter(torch.ones(2 * dim))
        self.b = nn.Parameter(torch.zeros(2 * dim))
        self.dropout = nn.Dropout(dropout)
        for layer in (self.inner, self.outer):
            nn.init.xavier_normal_(layer.weight)

    def forward(self, ends: Tensor) -> Tensor:
        pairs = ends.flatten(-2)  # (…, 2d)
        return self._finish(pairs, self.inner(pairs))

    def _finish(self, pairs: Tensor, inner: Tensor) -> Tensor:
        """Pairs (…, 2d) and W₁ x + b₁ (…, 4d) to encoded pairs (…, 2d)."""
        y: Tensor = pairs + self.dropout(self.outer(inner.relu()))
        return self.a * (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 1e-3) + self.b

    def grid(self, matcher: Matcher, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        dim = heads.shape[-1]
        of_tails = tails @ self.inner.weight[:, dim:].T  # (C, 4d)

        def cells(some: Tensor, columns: slice) -> Tensor:
            of_heads = some @ self.inner.weight[:, :dim].T + self.inner.bias  # (H', 4d)
            inner = of_heads.unsqueeze(1) + of_tails[columns]  # (H', C', 4d)
            scores: Tensor = matcher(self._finish(every_pair(some, tails[columns]), inner), vectors)
            return scores

        return grid.fill(heads, tails, vectors, cells)
