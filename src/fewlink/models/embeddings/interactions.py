"""Four score functions, each of which compares a tail with a query vector of head and relation, and their losses.

Each is written as score(h, r, t) = compare(query(h, r), t), so that scoring a query against all entities is one matrix
product. `dim` is the number of reals in an entity vector. The losses compare a true tail with many others, and compute
the gradient for a slice of the batch at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fewlink.core.errors import FewlinkError, choose

EXCLUDED = -1e9  # added to the score of a negative that is the true tail: no loss gives it weight
CACHE_BYTES = 16 << 20  # a slice of scores that fits the processor's cache
SLICE_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}
SLICE_ROWS = 256
TINY = 1e-12  # keeps square roots differentiable at a distance of zero


class Interaction(ABC):
    """A score function; by default the comparison is the inner product ⟨q, t⟩, as in the bilinear models."""

    name: str
    reals_per_number = 1

    def __init__(self, norm: int = 2) -> None:
        self.norm = norm

    def check_dim(self, dim: int) -> None:
        """Raise if entity vectors cannot have this number of reals."""
        if dim < 1:
            raise FewlinkError(f"dim is {dim}: it must be at least 1")

    def relation_width(self, dim: int) -> int:
        """The number of reals in a relation row."""
        return dim

    @abstractmethod
    def query(self, h: Tensor, r: Tensor) -> Tensor:
        """The queries (B, d) of heads (B, d) and relation rows (B, w)."""

    @abstractmethod
    def inverse(self, r: Tensor) -> Tensor:
        """The relation rows r⁻¹ (n, w) with score(t, r⁻¹, h) = score(h, r, t)."""

    def query_segments(self, h: Tensor, r: Tensor, counts: Tensor) -> Tensor:
        """`query` for heads (B, d) sorted by relation: row u of r (U, w) belongs to the next counts[u] heads."""
        return self.query(h, r.repeat_interleave(counts, dim=0, output_size=len(h)))

    def compare(self, q: Tensor, t: Tensor) -> Tensor:
        """The scores (…) of queries (…, d) and tails (…, d), broadcast."""
        return (q * t).sum(-1)

    def against(self, q: Tensor, table: Tensor) -> Tensor:
        """The scores (B, C) of queries (B, d) against every row of a table (C, d)."""
        return q @ table.T

    def bytes_per_score(self, dim: int) -> int:
        """The working memory for one score of `against` and its gradient."""
        return 4

    def powers(self, rows: Tensor, p: float) -> Tensor:
        """Σ|x|ᵖ of each row (n, w): (n,); |x| is the modulus of a complex x; p = 3 is N3 (Lacroix et al. 2018)."""
        return Powers.apply(rows, p, self.reals_per_number)  # type: ignore[no-any-return, no-untyped-call]

    def check(self, entities: Tensor, relations: Tensor) -> None:
        """Raise if the widths of the tables do not match."""
        dim = entities.shape[1]
        width = relations.shape[1]
        self.check_dim(dim)
        if width != self.relation_width(dim):
            raise FewlinkError(
                f"{self.name} with entity vectors of {dim} reals has relation rows of {self.relation_width(dim)}, "
                f"not {width}"
            )


class RESCAL(Interaction):
    """score = hᵀ W_r t (Nickel, Tresp and Kriegel, ICML 2011). A relation row is W_r, row-major, of d·d reals."""

    name = "rescal"

    def relation_width(self, dim: int) -> int:
        return dim * dim

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        d = h.shape[-1]
        return torch.bmm(h.unsqueeze(1), r.view(-1, d, d)).squeeze(1)  # (B, 1, d) (B, d, d) -> (B, d)

    def query_segments(self, h: Tensor, r: Tensor, counts: Tensor) -> Tensor:
        if h.device.type != "cpu" or not len(h):
            return super().query_segments(h, r, counts)
        # one product per relation reads each W_r once; a copy for every example would move B·d² numbers
        d = h.shape[-1]
        heads = h.split(counts.tolist())
        return torch.cat([segment @ w.view(d, d) for segment, w in zip(heads, r.unbind(), strict=True)])  # (B, d)

    def inverse(self, r: Tensor) -> Tensor:
        d = round(r.shape[-1] ** 0.5)
        return r.view(-1, d, d).transpose(1, 2).reshape(len(r), -1)


class TransE(Interaction):
    """score = −‖h + r − t‖_p with p = 1 or 2 (Bordes et al., NIPS 2013)."""

    name = "transe"

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return h + r

    def inverse(self, r: Tensor) -> Tensor:
        return -r

    def compare(self, q: Tensor, t: Tensor) -> Tensor:
        if self.norm == 1:
            return -(q - t).abs().sum(-1)
        return -(q - t).square().sum(-1).clamp_min(TINY).sqrt()

    def against(self, q: Tensor, table: Tensor) -> Tensor:
        """For p = 2 through ‖q‖² − 2 q·t + ‖t‖²: one matrix product, in full precision because the terms cancel."""
        with torch.autocast(q.device.type, enabled=False):
            if self.norm == 1:
                return -torch.cdist(q, table, p=1.0)
            lengths = table.square().sum(-1)  # (C,)
            squares = torch.addmm(lengths, q, table.T, alpha=-2)  # (B, C)
            return -(squares + q.square().sum(-1, keepdim=True)).clamp_min(TINY).sqrt()

    def bytes_per_score(self, dim: int) -> int:
        return 4 * dim if self.norm == 1 else 4  # the gradient of an L1 distance holds every difference


class DistMult(Interaction):
    """score = Σ h ⊙ r ⊙ t (Yang et al., ICLR 2015)."""

    name = "distmult"

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return h * r

    def inverse(self, r: Tensor) -> Tensor:
        return r.clone()


class ComplEx(Interaction):
    """score = Re Σ h ⊙ r ⊙ conj(t) over dim/2 complex numbers stored as [re | im] (Trouillon et al., ICML 2016)."""

    name = "complex"
    reals_per_number = 2

    def check_dim(self, dim: int) -> None:
        super().check_dim(dim)
        if dim % 2:
            raise FewlinkError(f"dim is {dim}: it must be even, because complex has dim/2 complex numbers")

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        a, b = h.chunk(2, -1)  # (B, d/2) each
        c, e = r.chunk(2, -1)
        return torch.cat([a * c - b * e, a * e + b * c], -1)  # h ⊙ r; its inner product with t is Re⟨h ⊙ r, t⟩

    def inverse(self, r: Tensor) -> Tensor:
        re, im = r.chunk(2, -1)
        return torch.cat([re, -im], -1)


class Powers(torch.autograd.Function):
    """Σ|z|ᵖ of each row (n, w), where the reals of a number z are w / parts apart, to (n,)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, p: float, parts: int) -> Tensor:
        squares = rows.square().unflatten(-1, (parts, -1)).sum(-2).clamp_min_(1e-30)  # (n, w / parts)
        factors = squares.sqrt() if p == 3 else squares.pow((p - 2) / 2)  # |z|ᵖ⁻²
        ctx.save_for_backward(rows, factors)
        ctx.p = p
        ctx.parts = parts
        total: Tensor = (squares * factors).sum(-1)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        rows, factors = ctx.saved_tensors
        scale = factors * (ctx.p * grad_outputs[0]).unsqueeze(-1)  # by |z|ᵖ = (x² + y²)^(p/2): p · |z|ᵖ⁻² · x
        return (rows.unflatten(-1, (ctx.parts, -1)) * scale.unsqueeze(-2)).flatten(-2), None, None


INTERACTIONS: dict[str, type[Interaction]] = {kind.name: kind for kind in (RESCAL, TransE, DistMult, ComplEx)}


def interaction(name: str, norm: int = 2) -> Interaction:
    """Make an interaction by name; `norm` is TransE's p."""
    return choose("embedding model", name, INTERACTIONS)(norm)


Loss = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]
"""Maps true scores (B,), others (B, K) and the margin to values (B,) and their gradients by true scores and others.

Overwrites the others.
"""


def softmax(true: Tensor, others: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """−log softmax of the true score among itself and the others."""
    top = others.amax(-1)
    shares = torch.softmax(others, -1, out=others)
    log_sum = top - shares.amax(-1).log()  # log Σ e^other, of which e^top is the largest share
    total = torch.logaddexp(log_sum, true)
    not_true = (log_sum - total).exp()
    return total - true, -not_true, shares.mul_(not_true.unsqueeze(-1))


def logistic(true: Tensor, others: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """log(1 + e^−true) + mean log(1 + e^other)."""
    value = softplus(-true) + softplus(others).mean(-1)
    return value, -(-true).sigmoid(), others.sigmoid_().div_(others.shape[-1])


def margin_loss(true: Tensor, others: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """mean max(0, margin − true + other)."""
    value = others.add_((margin - true).unsqueeze(-1)).relu_().mean(-1)
    gradient = others.sign_().div_(others.shape[-1])
    return value, -gradient.sum(-1), gradient


LOSSES: dict[str, Loss] = {"softmax": softmax, "logistic": logistic, "margin": margin_loss}


def slice_rows(columns: int, bytes_per_score: int, device: str) -> int:
    """The number of rows of a score matrix to compute at a time."""
    row = columns * bytes_per_score
    if device != "cpu":
        return max(1, SLICE_BYTES["cuda"] // row)
    return max(1, CACHE_BYTES // row, min(SLICE_ROWS, SLICE_BYTES["cpu"] // row))


class EachLoss(torch.autograd.Function):
    """The sum of the losses of true scores (B,), each against N other scores (B, N)."""

    @staticmethod
    def forward(ctx: Any, true: Tensor, others: Tensor, loss: Loss, margin: float) -> Tensor:
        values, *gradients = loss(true, others.clone(), margin)
        ctx.save_for_backward(*gradients)
        return values.sum()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return *(gradient * grad_outputs[0] for gradient in ctx.saved_tensors), None, None


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
        loss: Loss,
        margin: float,
        mixed_precision: bool,
    ) -> Tensor:
        batch, dim = q.shape
        rows = slice_rows(len(pool), interaction.bytes_per_score(dim), q.device.type)
        gradients = torch.empty_like(q), torch.empty_like(t), torch.zeros_like(pool)
        total = q.new_zeros(())
        for start in range(0, batch, rows):
            part = slice(start, start + rows)
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in (q[part], t[part], pool)]
                with torch.autocast(q.device.type, torch.bfloat16, enabled=mixed_precision):
                    others = interaction.against(leaves[0], leaves[2])  # (rows, K)
                others = others.to(q.dtype)
                true = interaction.compare(leaves[0], leaves[1])  # (rows,)
            scores = others.detach().scatter_add_(1, position[part, None], penalty[part, None])
            values, *score_gradients = loss(true.detach(), scores, margin)
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
        return *(gradient * scale for gradient in ctx.saved_tensors), *[None] * 6


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
