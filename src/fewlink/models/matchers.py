"""Matchers: how well a query pair fits the references' vectors, the best over them where there are several."""

from __future__ import annotations

import torch
from torch import Tensor, nn

PAIRS_AT_ONCE = 1 << 14  # pairs whose gates are held together: they stay near the processor


class Matcher(nn.Module):
    """The two ways a matcher is asked; they give the same scores."""

    def forward(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """Queries (…, Q, w) and vectors (…, M, w) to scores (…, Q)."""
        raise NotImplementedError

    def grid(self, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        """Heads (H, d), tails (C, d) and vectors (M, w) to scores (H, C) of every pair [h ; t]."""
        raise NotImplementedError


class InnerProduct(Matcher):
    """⟨q, f(R)⟩, the ablation AS3; for a grid, a head part plus a tail part."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()

    def forward(self, queries: Tensor, vectors: Tensor) -> Tensor:
        return (queries @ vectors.transpose(-1, -2)).amax(-1)

    def grid(self, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        d = heads.shape[-1]
        of_tails = tails @ vectors[:, d:].T  # (C, M)
        return torch.stack([(of_tails + vectors[:, :d] @ head).amax(-1) for head in heads])


class RecurrentMatching(Matcher):
    """The paper's Eq. 8: T steps of an LSTM cell with hidden state [g ; f(R)], then ⟨g_T, f(R)⟩.

    g', c = cell(q, [g ; f(R)], c) and g = g' + q. The hidden state is 2w wide and only the first w of g' is ever read
    (the rest of the next state is f(R) again), so only those units of the cell are computed; what f(R) and q add to
    their gates is the same in every step and is computed once; in a grid it is a head part plus a tail part.
    """

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.cell = nn.LSTMCell(width, 2 * width)

    def forward(self, queries: Tensor, vectors: Tensor) -> Tensor:
        from_query, from_state, from_reference, bias = self._read_units()
        constant = (queries @ from_query.T + bias).unsqueeze(-2) + (vectors @ from_reference.T).unsqueeze(-3)
        return self._match(queries.unsqueeze(-2), vectors.unsqueeze(-3), constant, from_state).amax(-1)

    def grid(self, heads: Tensor, tails: Tensor, vectors: Tensor) -> Tensor:
        from_query, from_state, from_reference, bias = self._read_units()
        d = heads.shape[-1]
        of_tails = tails @ from_query[:, d:].T  # (C, 4w)
        of_vectors = vectors @ from_reference.T  # (M, 4w)
        scores = heads.new_empty(len(heads), len(tails))
        rows = max(1, PAIRS_AT_ONCE // max(1, len(vectors)))
        for h in range(len(heads)):  # one by one: a head's scores must not depend on who else is asked about
            of_head = from_query[:, :d] @ heads[h] + bias  # (4w,)
            for begin in range(0, len(tails), rows):
                part = slice(begin, begin + rows)
                queries = torch.cat([heads[h].expand(len(tails[part]), d), tails[part]], -1).unsqueeze(-2)  # (C', 1, w)
                constant = (of_head + of_tails[part]).unsqueeze(-2) + of_vectors  # (C', M, 4w)
                scores[h, part] = self._match(queries, vectors, constant, from_state).amax(-1)
        return scores

    def _read_units(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights (4w, w) from query, g and f(R), and bias (4w,), of the units of each gate that are read."""
        width = self.cell.input_size
        units = torch.arange(8 * width, device=self.cell.weight_ih.device).view(4, 2 * width)[:, :width].flatten()
        state = self.cell.weight_hh[units]
        bias = self.cell.bias_ih[units] + self.cell.bias_hh[units]
        return self.cell.weight_ih[units], state[:, :width], state[:, width:], bias

    def _match(self, queries: Tensor, vectors: Tensor, constant: Tensor, from_state: Tensor) -> Tensor:
        """⟨g_T, f(R)⟩ from queries (…, 1, w), vectors (…, M, w) and the constant part of the gates (…, M, 4w)."""
        refined: Tensor | None = None
        memory: Tensor | None = None
        for _ in range(self.steps):
            gates = constant if refined is None else constant + refined @ from_state.T
            enter, keep, new, leave = gates.chunk(4, -1)
            added = enter.sigmoid() * new.tanh()
            memory = added if memory is None else keep.sigmoid() * memory + added
            refined = queries + leave.sigmoid() * memory.tanh()
        final = queries if refined is None else refined
        return (final * vectors).sum(-1)
