"""Four score functions, each of which compares a tail with a query vector of head and relation.

Each is written as score(h, r, t) = compare(query(h, r), t), so that scoring a query against all entities is one matrix
product. `dim` is the number of reals in an entity vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

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


INTERACTIONS: dict[str, type[Interaction]] = {kind.name: kind for kind in (RESCAL, TransE, DistMult, ComplEx)}


def interaction(name: str, norm: int = 2) -> Interaction:
    """Make an interaction by name; `norm` is TransE's p."""
    return choose("embedding model", name, INTERACTIONS)(norm)
