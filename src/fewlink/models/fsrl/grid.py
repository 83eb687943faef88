"""Grids of scores: every head with every candidate, faster than pair by pair.

What is linear in a pair [h ; t] is computed once for each head and once for each tail, and added up for each pair. The
equations are in `matcher.py` and `pair.py`; the scores here are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

GATES_ON_CPU = 800 << 9  # gates in memory at once, those of 2⁹ pairs where w = 200: they stay in the processor's cache
GATES_ON_GPU = 800 << 18  # and on a GPU: enough to fill it

# The scores (H', C') of some heads (H', d), which begin at a row of the grid, with some columns of it.
Cells = Callable[[Tensor, slice], Tensor]


def fill(heads: Tensor, tails: Tensor, vectors: Tensor, cells: Cells) -> Tensor:
    """Scores (H, C) of heads (H, d) with tails (C, d), block by block."""
    scores = heads.new_empty(len(heads), len(tails))
    for rows, columns in blocks(len(heads), len(tails), vectors.numel(), heads.device):
        scores[rows, columns] = cells(heads[rows].clone(), columns)
    return scores


def blocks(heads: int, tails: int, numbers: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of a grid of scores that are computed together.

    A pair is compared with M vectors of w reals: `numbers` is M·w, and each of them has four gates. On the CPU a block
    has one head, copied to aligned memory: the rounding of a product depends on shape and alignment, and a head's
    scores must not depend on other heads.
    """
    most = (GATES_ON_CPU if device.type == "cpu" else GATES_ON_GPU) // max(1, 4 * numbers)
    columns = max(1, min(tails, most))
    rows = 1 if device.type == "cpu" else max(1, most // columns)
    for row, column in itertools.product(range(0, heads, rows), range(0, tails, columns)):
        yield slice(row, row + rows), slice(column, column + columns)


def every_pair(heads: Tensor, tails: Tensor) -> Tensor:
    """[h ; t] of each head (H, d) with each tail (C, d): (H, C, 2d)."""
    shape = (len(heads), *tails.shape)
    return torch.cat([heads.unsqueeze(1).expand(shape), tails.expand(shape)], -1)
