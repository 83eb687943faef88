"""Equal rows of a table, found once, so that entities with the same vector are scored once."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS_AT_ONCE = 1 << 16


def distinct(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows (U, d) of a table (E, d), and which of them each row is (E,).

    Rows are grouped by a hash. If two different rows have the same hash, they are sorted instead.
    """
    random = torch.Generator().manual_seed(0)
    factors = torch.randint(torch.iinfo(torch.int64).max, (vectors.shape[1],), generator=random) | 1
    factors, pieces = factors.to(vectors.device), vectors.split(ROWS_AT_ONCE)
    hashes = torch.cat([_hashes(piece, factors) for piece in pieces])
    found, owners = hashes.unique(return_inverse=True)
    members = torch.arange(len(hashes), device=hashes.device)
    kinds = vectors[members.new_full((len(found),), len(hashes)).scatter_reduce(0, owners, members, "amin")]
    if not all(torch.equal(kinds[own], piece) for own, piece in zip(owners.split(ROWS_AT_ONCE), pieces, strict=True)):
        kinds, owners = vectors.unique(dim=0, return_inverse=True)
    return kinds, owners


def _hashes(vectors: Tensor, factors: Tensor) -> Tensor:
    """A hash (E,) of each row (E, d), the same for 0.0 and -0.0."""
    bits = (vectors + 0.0).view(torch.int64 if vectors.dtype == torch.float64 else torch.int32).long()
    return ((bits ^ (bits >> 32)) * factors).sum(1)
