"""Grids of scores, of every head with every candidate, faster than pair by pair.

Terms that are linear in a pair [h ; t] are computed once for each head and each tail, and added for each pair. The
scores equal those of the equations in `matcher.py` and `pair.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

GATES_ON_CPU = 800 << 9  # gates in memory at once: 2⁹ pairs with w = 200, which fit in the processor's cache
GATES_ON_GPU = 800 << 18  # enough to keep a GPU busy

# Computes the scores (H', C') of some heads (H', d) with some columns of the grid.
Cells = Callable[[Tensor, slice], Tensor]


def fill(heads: Tensor, tails: Tensor, vectors: Tensor, cells: Cells) -> Tensor:
    """Scores (H, C) of heads (H, d) with tails (C, d), block by block."""
    scores = heads.new_empty(len(heads), len(tails))
    for rows, columns in blocks(len(heads), len(tails), vectors.numel(), heads.device):
        scores[rows, columns] = cells(heads[rows].clone(), columns)
    return scores


def blocks(heads: int, tails: int, numbers: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Yield the rows and columns of blocks of the grid that are computed together.

    A pair is compared with M vectors of w numbers: `numbers` is M·w, and each of them has four gates. On the CPU a
    block has one head, copied to aligned memory, because the rounding of a product depends on its shape and alignment,
    and the scores of a head must not depend on other heads.
    """
    max_pairs = (GATES_ON_CPU if device.type == "cpu" else GATES_ON_GPU) // max(1, 4 * numbers)
    columns = max(1, min(tails, max_pairs))
    rows = 1 if device.type == "cpu" else max(1, max_pairs // columns)
    for row, column in itertools.product(range(0, heads, rows), range(0, tails, columns)):
        yield slice(row, row + rows), slice(column, column + columns)


def every_pair(heads: Tensor, tails: Tensor) -> Tensor:
    """[h ; t] of each head (H, d) with each tail (C, d): (H, C, 2d)."""
    shape = (len(heads), *tails.shape)
    return torch.cat([heads.unsqueeze(1).expand(shape), tails.expand(shape)], -1)
