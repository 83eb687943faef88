"""The softmax over entities as the loss of a batch, and the N3 regulariser.

Scores and their gradients are computed for a slice of the batch at a time, so the whole matrix is never in memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fewlink.models.embeddings.interactions import Interaction

EXCLUDED = -1e9  # added to the score of a negative that is the true tail, which gets no weight
CACHE_BYTES = 16 << 20  # a slice of scores that fits the processor's cache
SLICE_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}
SLICE_ROWS = 256  # that make a product fast on the CPU


def slice_rows(columns: int, bytes_per_score: int, device: str) -> int:
    """The number of rows of a score matrix to compute at a time."""
    row = columns * bytes_per_score
    if device != "cpu":
        return max(1, SLICE_BYTES["cuda"] // row)
    return max(1, CACHE_BYTES // row, min(SLICE_ROWS, SLICE_BYTES["cpu"] // row))


def softmax(true: Tensor, others: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """−log softmax (B,) of true scores (B,) among themselves and others (B, K), and the gradients by both.

    The others are overwritten.
    """
    top = others.amax(-1)
    shares = torch.softmax(others, -1, out=others)
    log_sum = top - shares.amax(-1).log()  # log Σ e^other, of which e^top is the largest share
    total = torch.logaddexp(log_sum, true)
    not_true = (log_sum - total).exp()
    return total - true, -not_true, shares.mul_(not_true.unsqueeze(-1))


class PoolLoss(torch.autograd.Function):
    """The sum of the losses of queries (B, d) with true tails (B, d) against one pool (K, d) for all of them.

    The forward pass computes the score matrix (B, K) and its gradients slice by slice; the backward pass only scales
    them. `position` (B,) is a column of the pool; `penalty` (B,) is `EXCLUDED` if that column is the true tail, else 0.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        t: Tensor,
        pool: Tensor,
        position: Tensor,
        penalty: Tensor,
        interaction: Interaction,
        mixed_precision: bool,
    ) -> Tensor:
        rows = slice_rows(len(pool), interaction.bytes_per_score(q.shape[1]), q.device.type)
        gradients = torch.empty_like(q), torch.empty_like(t), torch.zeros_like(pool)
        total = q.new_zeros(())
        for start in range(0, len(q), rows):
            part = slice(start, start + rows)
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in (q[part], t[part], pool)]
                with torch.autocast(q.device.type, torch.bfloat16, enabled=mixed_precision):
                    others = interaction.against(leaves[0], leaves[2])  # (rows, K)
                others = others.to(q.dtype)
                true = interaction.compare(leaves[0], leaves[1])  # (rows,)
            scores = others.detach().scatter_add_(1, position[part, None], penalty[part, None])
            values, *score_gradients = softmax(true.detach(), scores)
            for_q, for_t, for_pool = torch.autograd.grad([true, others], leaves, score_gradients)
            gradients[0][part] = for_q
            gradients[1][part] = for_t
            gradients[2].add_(for_pool)
            total += values.sum()
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        scale = grad_outputs[0]
        return *(gradient * scale for gradient in ctx.saved_tensors), *[None] * 4


class AnswersLoss(torch.autograd.Function):
    """The sum of −log softmax among all entities (E, d), over all true tails of queries (B, d).

    Query i has `counts[i]` tails (B,); tail `tails[j]` belongs to query `owners[j]`, both (A,), owners ascending. The
    value is that of `PoolLoss` over the A triples, but each query is scored once instead of once for each tail.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        entities: Tensor,
        counts: Tensor,
        tails: Tensor,
        owners: Tensor,
        interaction: Interaction,
        mixed_precision: bool,
    ) -> Tensor:
        rows = slice_rows(len(entities), interaction.bytes_per_score(q.shape[1]), q.device.type)
        gradients = torch.empty_like(q), torch.zeros_like(entities)
        total = q.new_zeros(())
        ends = [0, *counts.cumsum(0).tolist()]
        for start in range(0, len(q), rows):
            part = slice(start, min(start + rows, len(q)))
            own = slice(ends[part.start], ends[part.stop])
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in (q[part], entities)]
                with torch.autocast(q.device.type, torch.bfloat16, enabled=mixed_precision):
                    scores = interaction.against(*leaves)  # (rows, E)
                scores = scores.to(q.dtype)
            places = (owners[own] - start, tails[own])
            weights = counts[part].to(q.dtype)
            values = scores.detach()
            total += (values.logsumexp(1) * weights).sum() - values[places].sum()
            by_score = torch.softmax(values, 1).mul_(weights.unsqueeze(1))
            by_score.index_put_(places, -q.new_ones(()), accumulate=True)
            gradients[0][part], for_entities = torch.autograd.grad(scores, leaves, by_score)
            gradients[1].add_(for_entities)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        scale = grad_outputs[0]
        return *(gradient * scale for gradient in ctx.saved_tensors), *[None] * 5


class N3(torch.autograd.Function):
    """Σ|z|³ of each row (n, w) of numbers z whose `parts` reals are w / parts apart: (n,) (Lacroix et al. 2018)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, parts: int) -> Tensor:
        squares = rows.square().unflatten(-1, (parts, -1)).sum(-2).clamp_min_(1e-30)  # (n, w / parts)
        lengths = squares.sqrt()
        ctx.save_for_backward(rows, lengths)
        ctx.parts = parts
        total: Tensor = (squares * lengths).sum(-1)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        rows, lengths = ctx.saved_tensors
        scale = lengths * (3 * grad_outputs[0]).unsqueeze(-1)  # by |z|³ = (x² + y²)^(3/2): 3 · |z| · x
        return (rows.unflatten(-1, (ctx.parts, -1)) * scale.unsqueeze(-2)).flatten(-2), None


def n3(interaction: Interaction, rows: Tensor) -> Tensor:
    """Σ|z|³ of each row (n, w): (n,); |z| is the modulus of a complex z."""
    return N3.apply(rows, interaction.reals_per_number)  # type: ignore[no-any-return, no-untyped-call]
