"""Matchers (Eq. 8), which score the similarity of a query pair to the references' vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fewlink.models.fsrl import grid
from fewlink.models.fsrl.grid import every_pair
from fewlink.models.fsrl.recurrence import lstm_step


class Matcher(nn.Module, ABC):
    """Scores pairs (`forward`), or every head with every tail (`grid`), with the same result."""

    @abstractmethod
    def forward(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """Queries (…, Q, w) and vectors (…, M, w) to scores (…, Q)."""

    @abstractmethod
    def compared(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """The vectors (…, Q, M, w) of queries whose inner products with the M vectors are compared."""

    @abstractmethod
    def grid(self, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        """Heads (H, d), tails (C, d) and vectors (M, w) to scores (H, C) of every pair [h ; t]."""


class InnerProduct(Matcher):
    """⟨q, f(R)⟩, the ablation AS3."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()

    def forward(self, queries: Tensor, vectors: Tensor) -> Tensor:
        return (queries @ vectors.transpose(-1, -2)).amax(-1)

    def compared(self, queries: Tensor, vectors: Tensor) -> Tensor:
        return queries.unsqueeze(-2).expand(*queries.shape[:-1], vectors.shape[-2], -1)

    def grid(self, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        dim = heads.shape[-1]
        of_tails = tails @ vectors[:, dim:].T  # (C, M)

        def cells(some: Tensor, columns: slice) -> Tensor:
            of_heads = some @ vectors[:, :dim].T  # (H', M)
            return (of_heads.unsqueeze(1) + of_tails[columns]).amax(-1)

        return grid.fill(heads, tails, vectors, cells)


class RecurrentMatching(Matcher):
    """The paper's Eq. 8: T steps of an LSTM cell with hidden state [g ; f(R)], then ⟨g_T, f(R)⟩.

    g', c = cell(q, [g ; f(R)], c) and g = g' + q. The hidden state has 2w units, but only the first w of g' are read,
    because f(R) replaces the others in the next state. The cell therefore has only those units, with weights from the
    query, from g and from f(R), (4w, w) each. The terms of q and f(R) are equal in all steps and computed once.
    """

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.from_query = nn.Parameter(_uniform(4 * width, width, hidden=2 * width))
        self.from_state = nn.Parameter(_uniform(4 * width, width, hidden=2 * width))
        self.from_reference = nn.Parameter(_uniform(4 * width, width, hidden=2 * width))
        self.bias = nn.Parameter(_uniform(4 * width, hidden=2 * width) + _uniform(4 * width, hidden=2 * width))

    def forward(self, queries: Tensor, vectors: Tensor) -> Tensor:
        return (self.compared(queries, vectors) * vectors.unsqueeze(-3)).sum(-1).amax(-1)

    def compared(self, queries: Tensor, vectors: Tensor) -> Tensor:
        of_queries = linear(queries, self.from_query, self.bias).unsqueeze(-2)  # (…, Q, 1, 4w)
        of_vectors = linear(vectors, self.from_reference).unsqueeze(-3)  # (…, 1, M, 4w)
        return self._refined(queries.unsqueeze(-2), of_queries, of_vectors)

    def _refined(self, queries: Tensor, of_queries: Tensor, of_vectors: Tensor) -> Tensor:
        """g_T (…, Q, M, w) from queries (…, Q, 1, w) and the gate terms (…, 4w) of the queries and the vectors."""
        constant = of_queries + of_vectors  # (…, Q, M, 4w)
        refined = queries
        memory = None
        for step in range(self.steps):
            if step == 0:
                state, memory = lstm_step(self.first_gates(of_queries, constant))
            else:
                state, memory = lstm_step(constant, linear(refined, self.from_state), memory)
            refined = queries + state
        return refined

    def first_gates(self, of_queries: Tensor, constant: Tensor) -> Tensor:
        """The gates (…, Q, M, 4w) of the first step, whose state is [0 ; f(R)]."""
        return constant

    def grid(self, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        from_head, from_tail = self.from_query.split(heads.shape[-1], 1)
        of_tails = linear(tails, from_tail)  # (C, 4w)
        of_vectors = linear(vectors, self.from_reference)  # (M, 4w)

        def cells(some: Tensor, columns: slice) -> Tensor:
            queries = every_pair(some, tails[columns]).unsqueeze(-2)  # (H', C', 1, w)
            of_queries = (linear(some, from_head, self.bias).unsqueeze(1) + of_tails[columns]).unsqueeze(-2)
            return (self._refined(queries, of_queries, of_vectors) * vectors).sum(-1).amax(-1)

        return grid.fill(heads, tails, vectors, cells)


class ZeroStartMatching(RecurrentMatching):
    """The authors' program: Eq. 8 with a first step that starts from zeros in place of [0 ; f(R)]."""

    def first_gates(self, of_queries: Tensor, constant: Tensor) -> Tensor:
        return of_queries.expand(constant.shape)


def _uniform(*shape: int, hidden: int) -> Tensor:
    """The initial weights of torch's LSTM cell with this many hidden units."""
    return torch.empty(shape).uniform_(-(hidden**-0.5), hidden**-0.5)
