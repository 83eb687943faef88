"""Matchers (Eq. 8), which score the similarity of query pairs to the references, and how a pair is encoded.

For whole grids, of every head with every candidate, terms that are linear in a pair [h ; t] are computed once for each
head and each tail, and added for each pair. The scores equal those of the equations.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fewlink.models.fsrl.lstm import lstm_step

GATES_ON_CPU = 800 << 9  # gates in memory at once: 2⁹ pairs with w = 200, which fit in the processor's cache
GATES_ON_GPU = 800 << 18  # enough to keep a GPU busy

# Computes the scores (H', C') of some heads (H', d) with some columns of the grid.
Cells = Callable[[Tensor, slice], Tensor]


def fill_grid(heads: Tensor, tails: Tensor, vectors: Tensor, cells: Cells) -> Tensor:
    """Scores (H, C) of heads (H, d) with tails (C, d), block by block.

    A pair is compared with M vectors of w numbers, each of which has four gates. On the CPU a block has one head,
    copied to aligned memory, because the rounding of a product depends on its shape and alignment, and the scores of a
    head must not depend on other heads.
    """
    on_cpu = heads.device.type == "cpu"
    most_pairs = (GATES_ON_CPU if on_cpu else GATES_ON_GPU) // max(1, 4 * vectors.numel())
    columns = max(1, min(len(tails), most_pairs))
    rows = 1 if on_cpu else max(1, most_pairs // columns)
    scores = heads.new_empty(len(heads), len(tails))
    for row in range(0, len(heads), rows):
        some = heads[row : row + rows].clone()
        for column in range(0, len(tails), columns):
            part = slice(column, column + columns)
            scores[row : row + rows, part] = cells(some, part)
    return scores


def every_pair(heads: Tensor, tails: Tensor) -> Tensor:
    """[h ; t] of each head (H, d) with each tail (C, d): (H, C, 2d)."""
    shape = (len(heads), *tails.shape)
    return torch.cat([heads.unsqueeze(1).expand(shape), tails.expand(shape)], -1)


class InnerProduct(nn.Module):
    """⟨q, f(R)⟩, the ablation AS3.

    A matcher scores pairs (`forward`), or every head with every tail (`grid`), with the same result.
    """

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()

    def forward(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """Queries (…, Q, w) and vectors (…, M, w) to scores (…, Q)."""
        return (queries @ vectors.transpose(-1, -2)).amax(-1)

    def compared(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """The vectors (…, Q, M, w) of queries whose inner products with the M vectors are compared."""
        return queries.unsqueeze(-2).expand(*queries.shape[:-1], vectors.shape[-2], -1)

    def grid(self, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        """Heads (H, d), tails (C, d) and vectors (M, w) to scores (H, C) of every pair [h ; t]."""

        def cells(some: Tensor, columns: slice) -> Tensor:
            return self.forward(every_pair(some, tails[columns]), vectors)

        return fill_grid(heads, tails, vectors, cells)


class RecurrentMatching(InnerProduct):
    """The paper's Eq. 8: T steps of an LSTM cell with hidden state [g ; f(R)], then ⟨g_T, f(R)⟩.

    g', c = cell(q, [g ; f(R)], c) and g = g' + q. The hidden state has 2w units, but only the first w of g' are read,
    because f(R) replaces the others in the next state. The cell therefore has only those units, with weights from the
    query, from g and from f(R), (4w, w) each. The terms of q and f(R) are equal in all steps and computed once.
    """

    def __init__(self, width: int, steps: int) -> None:
        super().__init__(width, steps)
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

        return fill_grid(heads, tails, vectors, cells)


class ZeroStartMatching(RecurrentMatching):
    """The authors' program: Eq. 8 with a first step that starts from zeros in place of [0 ; f(R)]."""

    def first_gates(self, of_queries: Tensor, constant: Tensor) -> Tensor:
        return of_queries.expand(constant.shape)


class Concatenation(nn.Module):
    """Pairs [h ; t] of entities that are encoded by `dim` numbers, as in the paper."""

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()

    def forward(self, ends: Tensor) -> Tensor:
        """Encoded heads and tails (…, 2, d) to pairs (…, 2d)."""
        return ends.flatten(-2)

    def grid(self, matcher: InnerProduct, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        """Heads (H, d), tails (C, d) and the references' vectors (M, w) to scores (H, C), as `forward` gives them."""
        return matcher.grid(heads, tails, vectors)


class FeedForward(Concatenation):
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

    def grid(self, matcher: InnerProduct, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        dim = heads.shape[-1]
        of_tails = tails @ self.inner.weight[:, dim:].T  # (C, 4d)

        def cells(some: Tensor, columns: slice) -> Tensor:
            of_heads = some @ self.inner.weight[:, :dim].T + self.inner.bias  # (H', 4d)
            inner = of_heads.unsqueeze(1) + of_tails[columns]  # (H', C', 4d)
            scores: Tensor = matcher(self._finish(every_pair(some, tails[columns]), inner), vectors)
            return scores

        return fill_grid(heads, tails, vectors, cells)


def _uniform(*shape: int, hidden: int) -> Tensor:
    """The initial weights of torch's LSTM cell with this many hidden units."""
    return torch.empty(shape).uniform_(-(hidden**-0.5), hidden**-0.5)
