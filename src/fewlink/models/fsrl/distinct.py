"""Deduplication of the rows of a table, so that entities with the same vector are scored once."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS_AT_ONCE = 1 << 16


def distinct(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows (U, d) of a table (E, d), and the index of each row among them (E,).

    Rows are grouped by a hash. If two different rows have the same hash, the rows are sorted instead.
    """
    random = torch.Generator().manual_seed(0)
    factors = torch.randint(torch.iinfo(torch.int64).max, (vectors.shape[1],), generator=random) | 1
    factors = factors.to(vectors.device)
    chunks = vectors.split(ROWS_AT_ONCE)
    hashes = torch.cat([_hashes(chunk, factors) for chunk in chunks])
    unique_hashes, indices = hashes.unique(return_inverse=True)
    rows = torch.arange(len(hashes), device=hashes.device)
    first_rows = rows.new_full((len(unique_hashes),), len(hashes)).scatter_reduce(0, indices, rows, "amin")
    distinct_rows = vectors[first_rows]
    index_chunks = indices.split(ROWS_AT_ONCE)
    if not all(torch.equal(distinct_rows[i], chunk) for i, chunk in zip(index_chunks, chunks, strict=True)):
        distinct_rows, indices = vectors.unique(dim=0, return_inverse=True)
    return distinct_rows, indices


def _hashes(vectors: Tensor, factors: Tensor) -> Tensor:
    """A hash (E,) of each row (E, d), the same for 0.0 and -0.0."""
    bits = (vectors + 0.0).view(torch.int64 if vectors.dtype == torch.float64 else torch.int32).long()
    return ((bits ^ (bits >> 32)) * factors).sum(1)
