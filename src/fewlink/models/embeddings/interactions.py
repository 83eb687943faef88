"""Four score functions, each of which compares a tail with a query vector of head and relation.

Each is written as score(h, r, t) = compare(query(h, r), t), so that scoring a query against all entities is one matrix
product. `dim` is the number of reals in an entity vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from fewlink.core.errors import FewlinkError, choose

TINY = 1e-12  # keeps square roots differentiable at a distance of zero


class Interaction(ABC):
    """A score function; by default the comparison is the inner product ⟨q, t⟩, as in the bilinear models."""

    name: str
    reals_per_number = 1

    def __init__(self, norm: int = 2) -> None:
        self.norm = norm

    def check_dim(self, dim: int) -> None:
        """Raise if entity vectors cannot have this number of reals."""
        if dim % self.reals_per_number:
            raise FewlinkError(f"dim is {dim}: it must be even, because {self.name} has dim/2 complex numbers")

    def relation_width(self, dim: int) -> int:
        """The number of reals in a relation row."""
        return dim

    @abstractmethod
    def query(self, h: Tensor, r: Tensor) -> Tensor:
        """The queries (B, d) of heads (B, d) and relation rows (B, w)."""

    @abstractmethod
    def inverse(self, r: Tensor) -> Tensor:
        """The relation rows r⁻¹ (n, w) with score(t, r⁻¹, h) = score(h, r, t)."""

    def query_by(self, h: Tensor, table: Tensor, relations: Tensor) -> Tensor:
        """The queries (B, d) of heads (B, d) and relations (B,), whose rows are in a table (2R, w)."""
        return self.query(h, table.index_select(0, relations))

    def compare(self, q: Tensor, t: Tensor) -> Tensor:
        """The scores (…) of queries (…, d) and tails (…, d), broadcast."""
        return (q * t).sum(-1)

    def against(self, q: Tensor, table: Tensor) -> Tensor:
        """The scores (B, C) of queries (B, d) against every row of a table (C, d)."""
        return q @ table.T

    def bytes_per_score(self, dim: int) -> int:
        """The working memory for one score of `against` and its gradient."""
        return 4

    def n3(self, rows: Tensor) -> Tensor:
        """Σ|z|³ of each row (n, w) of numbers z, which may be complex: (n,) (Lacroix et al. 2018)."""
        total: Tensor = Cubes.apply(rows, self.reals_per_number)  # type: ignore[no-untyped-call]
        return total


class Cubes(torch.autograd.Function):
    """Σ|z|³ of each row (n, w), with the gradient 3|z|z: torch's own takes several times as long."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, reals_per_number: int) -> Tensor:
        numbers = rows.unflatten(-1, (reals_per_number, -1))  # (n, 1 or 2, w or w/2)
        lengths = numbers.abs() if reals_per_number == 1 else numbers.square().sum(-2, keepdim=True).sqrt()
        ctx.save_for_backward(numbers, lengths)
        cubes: Tensor = lengths * lengths * lengths
        return cubes.sum((-1, -2))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        numbers, lengths = ctx.saved_tensors
        return (numbers * lengths).mul_(3 * grad_outputs[0].view(-1, 1, 1)).flatten(-2), None


class RESCAL(Interaction):
    """score = hᵀ W_r t (Nickel, Tresp and Kriegel, ICML 2011). A relation row is W_r, row-major, of d·d reals."""

    name = "rescal"

    def relation_width(self, dim: int) -> int:
        return dim * dim

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        d = h.shape[-1]
        return torch.bmm(h.unsqueeze(1), r.view(-1, d, d)).squeeze(1)  # (B, 1, d) (B, d, d) -> (B, d)

    def query_by(self, h: Tensor, table: Tensor, relations: Tensor) -> Tensor:
        if h.device.type != "cpu":
            return super().query_by(h, table, relations)
        # one product per relation reads each W_r once; a copy for every example would move B·d² numbers
        d = h.shape[-1]
        order = relations.argsort(stable=True)
        heads = h.index_select(0, order).split(relations.bincount(minlength=len(table)).tolist())
        queries = torch.cat([own @ matrix for own, matrix in zip(heads, table.view(-1, d, d).unbind(), strict=True)])
        return queries.index_select(0, order.argsort())

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

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        a, b = h.chunk(2, -1)  # (B, d/2) each
        c, e = r.chunk(2, -1)
        return torch.cat([a * c - b * e, a * e + b * c], -1)  # h ⊙ r; its inner product with t is Re⟨h ⊙ r, t⟩

    def inverse(self, r: Tensor) -> Tensor:
        re, im = r.chunk(2, -1)
        return torch.cat([re, -im], -1)


INTERACTIONS: dict[str, type[Interaction]] = {kind.name: kind for kind in (RESCAL, TransE, DistMult, ComplEx)}


def interaction(name: str, norm: int = 2) -> Interaction:
    """Make an interaction by name; `norm` is TransE's p."""
    return choose("embedding model", name, INTERACTIONS)(norm)
