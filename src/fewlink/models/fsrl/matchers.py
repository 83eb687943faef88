"""Pair encoders and matchers: what stands for a pair (h, t), and how well it fits the references' vectors."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fewlink.models.fsrl.aggregators import gated

NEAR = 800 << 9  # gates held together on the CPU, those of 2⁹ pairs where w = 200: they stay near the processor
ON_DEVICE = 800 << 18  # and on a GPU: enough to fill it


def blocks(heads: int, tails: int, numbers: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Parts (rows, columns) of a grid of scores that are computed together.

    A pair is compared with M vectors of w reals: `numbers` is M·w, and each of them has four gates.
    On the CPU one head at a time, copied to where memory is aligned: a product's rounding depends on shape and
    alignment, and a head's scores should not depend on the other heads.
    """
    most = (NEAR if device.type == "cpu" else ON_DEVICE) // max(1, 4 * numbers)
    columns = max(1, min(tails, most))
    rows = 1 if device.type == "cpu" else max(1, most // columns)
    for row, column in itertools.product(range(0, heads, rows), range(0, tails, columns)):
        yield slice(row, row + rows), slice(column, column + columns)


def every_pair(heads: Tensor, tails: Tensor) -> Tensor:
    """[h ; t] of each head (H, d) with each tail (C, d): (H, C, 2d)."""
    shape = (len(heads), *tails.shape)
    return torch.cat([heads.unsqueeze(1).expand(shape), tails.expand(shape)], -1)


class Matcher(nn.Module, ABC):
    """A matcher has two ways to score, which agree: given pairs, and every head with every tail."""

    @abstractmethod
    def forward(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """Queries (…, Q, w) and vectors (…, M, w) to scores (…, Q)."""

    @abstractmethod
    def compared(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """What of each query is compared with each vector, by an inner product: (…, Q, M, w)."""

    @abstractmethod
    def grid(self, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        """Heads (H, d), tails (C, d) and vectors (M, w) to scores (H, C) of every pair [h ; t]."""


class InnerProduct(Matcher):
    """⟨q, f(R)⟩, the ablation AS3; for a grid, a head part plus a tail part."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()

    def forward(self, queries: Tensor, vectors: Tensor) -> Tensor:
        return (queries @ vectors.transpose(-1, -2)).amax(-1)

    def compared(self, queries: Tensor, vectors: Tensor) -> Tensor:
        return queries.unsqueeze(-2).expand(*queries.shape[:-1], vectors.shape[-2], -1)

    def grid(self, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        d = heads.shape[-1]
        of_tails = tails @ vectors[:, d:].T  # (C, M)
        scores = heads.new_empty(len(heads), len(tails))
        for rows, columns in blocks(len(heads), len(tails), vectors.numel(), heads.device):
            of_heads = heads[rows].clone() @ vectors[:, :d].T  # (H', M)
            scores[rows, columns] = (of_heads.unsqueeze(1) + of_tails[columns]).amax(-1)
        return scores


class RecurrentMatching(Matcher):
    """The paper's Eq. 8: T steps of an LSTM cell with hidden state [g ; f(R)], then ⟨g_T, f(R)⟩.

    g', c = cell(q, [g ; f(R)], c) and g = g' + q. The hidden state is 2w wide and only the first w of g' is ever read
    (the rest of the next state is f(R) again), so the cell has only those units: of each gate the weights from the
    query, from g and from f(R), (4w, w) each. What f(R) and q add to the gates is the same in every step and is
    computed once; in a grid it is a head part plus a tail part.
    """

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.from_query, self.from_state, self.from_reference = (
            nn.Parameter(_uniform(4 * width, width, hidden=2 * width)) for _ in range(3)
        )
        self.bias = nn.Parameter(_uniform(4 * width, hidden=2 * width) + _uniform(4 * width, hidden=2 * width))

    def forward(self, queries: Tensor, vectors: Tensor) -> Tensor:
        return (self.compared(queries, vectors) * vectors.unsqueeze(-3)).sum(-1).amax(-1)

    def compared(self, queries: Tensor, vectors: Tensor) -> Tensor:
        of_queries = linear(queries, self.from_query, self.bias).unsqueeze(-2)  # (…, Q, 1, 4w)
        of_vectors = linear(vectors, self.from_reference).unsqueeze(-3)  # (…, 1, M, 4w)
        return self._refined(queries.unsqueeze(-2), of_queries, of_vectors)

    def grid(self, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        from_head, from_tail = self.from_query.split(heads.shape[-1], 1)
        of_tails = linear(tails, from_tail)  # (C, 4w)
        of_vectors = linear(vectors, self.from_reference)  # (M, 4w)
        scores = heads.new_empty(len(heads), len(tails))
        for rows, columns in blocks(len(heads), len(tails), vectors.numel(), heads.device):
            some = heads[rows].clone()
            queries = every_pair(some, tails[columns]).unsqueeze(-2)  # (H', C', 1, w)
            of_queries = (linear(some, from_head, self.bias).unsqueeze(1) + of_tails[columns]).unsqueeze(-2)
            refined = self._refined(queries, of_queries, of_vectors)
            scores[rows, columns] = (refined * vectors).sum(-1).amax(-1)
        return scores

    def first_gates(self, of_queries: Tensor, constant: Tensor) -> Tensor:
        """The gates (…, Q, M, 4w) of the first step, whose state is [0 ; f(R)]."""
        return constant

    def _refined(self, queries: Tensor, of_queries: Tensor, of_vectors: Tensor) -> Tensor:
        """g_T (…, Q, M, w) from queries (…, Q, 1, w) and what they and the vectors add to the gates (…, 4w)."""
        constant = of_queries + of_vectors
        gates, refined, memory = self.first_gates(of_queries, constant), queries, None
        for step in range(self.steps):
            more = linear(refined, self.from_state) if step else None
            state, memory = gated(constant if step else gates, more, memory)
            refined = queries + state
        return refined


class ZeroStartMatching(RecurrentMatching):
    """The authors' program: as Eq. 8, the first step starting from zero in place of [0 ; f(R)]."""

    def first_gates(self, of_queries: Tensor, constant: Tensor) -> Tensor:
        return of_queries.expand(constant.shape)


def _uniform(*shape: int, hidden: int) -> Tensor:
    """As torch starts an LSTM cell of this many hidden units."""
    return torch.empty(shape).uniform_(-(hidden**-0.5), hidden**-0.5)


class PairEncoder(nn.Module, ABC):
    """Encodes given pairs; `grid` scores every head with every tail as `forward` and the matcher do.

    Made for entities encoded in `dim` reals.
    """

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, ends: Tensor) -> Tensor:
        """Encoded heads and tails (…, 2, d) to pairs (…, 2d)."""

    @abstractmethod
    def grid(self, matcher: Matcher, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        """Heads (H, d), tails (C, d) and the references' vectors (M, w) to scores (H, C)."""


class Concatenation(PairEncoder):
    """[h ; t], as in the paper: whatever is linear in it is a head part plus a tail part, so the matcher sees both."""

    def forward(self, ends: Tensor) -> Tensor:
        return ends.flatten(-2)

    def grid(self, matcher: Matcher, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        return matcher.grid(heads, tails, vectors)


class FeedForward(PairEncoder):
    """The authors' program: norm(x + W₂ relu(W₁ x + b₁) + b₂) of x = [h ; t], inner size 4d.

    norm(y) = a·(y − mean)/(deviation + 0.001) + b with the unbiased deviation.
    """

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__(dim)
        self.inner, self.outer = nn.Linear(2 * dim, 4 * dim), nn.Linear(4 * dim, 2 * dim)
        self.a, self.b = nn.Parameter(torch.ones(2 * dim)), nn.Parameter(torch.zeros(2 * dim))
        self.dropout = nn.Dropout(dropout)
        for layer in (self.inner, self.outer):
            nn.init.xavier_normal_(layer.weight)

    def forward(self, ends: Tensor) -> Tensor:
        pairs = ends.flatten(-2)
        return self._finish(pairs, self.inner(pairs))

    def grid(self, matcher: Matcher, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        dim = heads.shape[-1]
        of_tails = tails @ self.inner.weight[:, dim:].T  # (C, 4d)
        scores = heads.new_empty(len(heads), len(tails))
        for rows, columns in blocks(len(heads), len(tails), vectors.numel(), heads.device):
            some = heads[rows].clone()
            of_heads = some @ self.inner.weight[:, :dim].T + self.inner.bias  # (H', 4d)
            inner = of_heads.unsqueeze(1) + of_tails[columns]  # (H', C', 4d)
            scores[rows, columns] = matcher(self._finish(every_pair(some, tails[columns]), inner), vectors)
        return scores

    def _finish(self, pairs: Tensor, inner: Tensor) -> Tensor:
        y: Tensor = pairs + self.dropout(self.outer(inner.relu()))
        return self.a * (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 1e-3) + self.b
