"""Tables of vectors, the rows a batch touches, and the optimizers that update them, in one or several processes.

In the sampled regime with several processes, an entity's row and its optimizer state are in one process. In each step a
process requests the rows it needs from the others, computes the gradient of its share of the batch, and sends each
row's gradient to the process of that row, which sums the gradients and updates the row once. Every process has all
relations, because they are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fewlink.core import distributed
from fewlink.embeddings.settings import EmbeddingSettings

State = dict[str, Tensor]
Rate = float | Tensor  # a scalar tensor in a captured step


class RowOptimizer(Protocol):
    """An update rule whose state has one row for each row of the table."""

    def start(self, table: Tensor) -> State:
        """The state before the first step."""

    def step(self, table: Tensor, state: State, gradient: Tensor, rate: Rate, rows: Tensor | None = None) -> None:
        """Update `rows` (U,) of a table (n, w), or all rows if None, by a gradient (U, w).

        A repeated row has the same gradient each time and is updated once.
        """


class Adagrad:
    """s ← s + g²; x ← x − rate · g / (√s + ε) (Duchi, Hazan and Singer, JMLR 2011).

    A row with a zero gradient does not change, so updating touched rows gives the dense result exactly.
    """

    epsilon = 1e-10

    def start(self, table: Tensor) -> State:
        return {"squares": torch.zeros_like(table)}

    def step(self, table: Tensor, state: State, gradient: Tensor, rate: Rate, rows: Tensor | None = None) -> None:
        squares = state["squares"]
        if rows is None:
            squares.addcmul_(gradient, gradient)
            table.sub_((gradient / squares.sqrt().add_(self.epsilon)).mul_(rate))
            return
        touched = squares.index_select(0, rows).addcmul_(gradient, gradient)  # (U, w)
        squares.index_copy_(0, rows, touched)
        move = torch.div(gradient, touched.sqrt_().add_(self.epsilon), out=touched).mul_(rate)
        table.index_copy_(0, rows, table.index_select(0, rows).sub_(move))


class Adam:
    """Adam (Kingma and Ba, ICLR 2015) in which each row counts its own steps.

    A row receives exactly the updates that dense Adam would make if there were only the steps that touch it.
    """

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def start(self, table: Tensor) -> State:
        steps = table.new_zeros(len(table), 1)
        return {"mean": torch.zeros_like(table), "squares": torch.zeros_like(table), "steps": steps}

    def step(self, table: Tensor, state: State, gradient: Tensor, rate: Rate, rows: Tensor | None = None) -> None:
        if rows is None:
            table.sub_(self._move(state["mean"], state["squares"], state["steps"], gradient, rate))
            return
        touched = {name: values.index_select(0, rows) for name, values in state.items()}
        move = self._move(**touched, gradient=gradient, rate=rate)
        table.index_copy_(0, rows, table.index_select(0, rows).sub_(move))
        for name, values in touched.items():
            state[name].index_copy_(0, rows, values)

    def _move(self, mean: Tensor, squares: Tensor, steps: Tensor, gradient: Tensor, rate: Rate) -> Tensor:
        """Advance moments (U, w) and step counts (U, 1) in place; what to subtract, (U, w)."""
        steps += 1
        mean.lerp_(gradient, 1 - self.beta1)
        squares.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        first, second = 1 - self.beta1**steps, 1 - self.beta2**steps  # (U, 1)
        return (mean / squares.sqrt().div_(second.sqrt()).add_(self.epsilon)).mul_(rate / first)


OPTIMIZERS: dict[str, type[RowOptimizer]] = {"adagrad": Adagrad, "adam": Adam}


PIECE = 1 << 16  # rows handled at once when a table is made, read or collected; a multiple of 16


class Answers(NamedTuple):
    """The tails of B heads and relations: how many each has (B,), all of them (A,), and their examples (A,)."""

    counts: Tensor
    tails: Tensor
    owners: Tensor


@dataclass(frozen=True)
class Batch:
    """B examples sorted by relation, and the places of their rows; with several processes, the share of this one.

    entities    (M,)    places of rows to gather: B heads, B tails, then the negatives (none in one-vs-all);
                        in k-vs-all B heads, then all A tails
    unique      (U,)    those places, each once, ascending
    slots       (M,)    entities == unique[slots]
    relations   (V,)    relations of the batch, each once, ascending
    counts      (V,)    examples of each relation
    position    (B,)    a column of the pool; (B, N) negatives have none
    penalty     (B,) or (B, N)  `EXCLUDED` where the negative is the true tail, 0 elsewhere
    size                examples of the batch of all processes; in k-vs-all its tails
    answers             in k-vs-all the tails of each example; None otherwise

    In a batch of fixed shape, U and V are the largest possible numbers. `unique` and `relations` are padded with their
    last value, padded relations with a count of 0, and `filled` are the indices (U,) and (V,) of the values; it is None
    in other batches.
    """

    entities: Tensor
    unique: Tensor
    slots: Tensor
    relations: Tensor
    counts: Tensor
    position: Tensor
    penalty: Tensor
    size: int
    filled: tuple[Tensor, Tensor] | None = None
    answers: Answers | None = None

    def __len__(self) -> int:
        return len(self.penalty)


@dataclass(frozen=True)
class Shard:
    """The rows of a table of `total` in process `rank` of `count`: id e is row e // count of process e % count."""

    total: int
    rank: int = 0
    count: int = 1

    def __len__(self) -> int:
        return len(range(self.rank, self.total, self.count))

    @property
    def most(self) -> int:
        """The largest number of rows in a process."""
        return -(-self.total // self.count)

    def places(self, ids: Tensor) -> Tensor:
        """Places (n,) of ids (n,), which sort by process, then by row: process · most + row."""
        return ids if self.count == 1 else ids % self.count * self.most + ids // self.count

    def add_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes that share the table."""
        if self.count > 1:
            distributed.add_(tensors)

    def rows(self, table: Tensor, ids: Tensor) -> Tensor:
        """Rows (m, d) of ids (m,), from the tables (n, d) of all processes."""
        if self.count == 1:
            return table.index_select(0, ids)
        places, slots = self.places(ids).unique(return_inverse=True)
        return RowRequest(places, self).rows_from(table).index_select(0, slots)

    def pieces(self) -> Iterator[tuple[slice, slice]]:
        """Runs of at most PIECE rows, each with their ids in the whole table."""
        for first in range(0, len(self), PIECE):
            last = min(first + PIECE, len(self))
            ids = slice(self.rank + first * self.count, self.rank + (last - 1) * self.count + 1, self.count)
            yield slice(first, last), ids


def first_vectors(shard: Shard, width: int, scale: float, random: torch.Generator) -> Tensor:
    """Normally distributed rows (n, w) of a shard; an id has the same row with any number of processes."""
    rows = torch.empty(len(shard), width)
    pieces = max(1, shard.total // PIECE)  # torch draws in groups of 16, so the last piece must not be short
    for first in range(0, pieces * PIECE, PIECE):
        last = first + PIECE if first + PIECE < pieces * PIECE else shard.total
        drawn = torch.empty(last - first, width).normal_(0, scale, generator=random)
        own = drawn[(shard.rank - first) % shard.count :: shard.count]
        at = len(range(shard.rank, first, shard.count))
        rows[at : at + len(own)] = own
    return rows


class RowRequest:
    """The rows that this process requests from the others, at ascending places (U,), and those they request from it."""

    def __init__(self, places: Tensor, shard: Shard) -> None:
        starts = torch.arange(shard.count + 1, device=places.device) * shard.most
        counts, each = torch.searchsorted(places, starts).diff(), [1] * shard.count
        requested = distributed.exchanged(counts, each, each)
        self.sent, self.received = torch.stack([counts, requested]).tolist()
        self.rows = distributed.exchanged(places % shard.most, self.sent, self.received)  # (A,)

    def rows_from(self, table: Tensor) -> Tensor:
        """The requested rows (U, d), from the tables (n, d) of all processes."""
        return distributed.exchanged(table.index_select(0, self.rows), self.received, self.sent)

    def summed(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """From gradients (U, d) of requested rows: rows of this process with a gradient, each once, and the sums."""
        parts = distributed.exchanged(gradient, self.sent, self.received)  # (A, d)
        rows, slots = self.rows.unique(return_inverse=True)
        return rows, parts.new_zeros(len(rows), parts.shape[1]).index_add_(0, slots, parts)


class Tables:
    """Vectors of entities (n, d) and relations (2R, w) with their optimizer state, all rows in this process."""

    def __init__(self, shard: Shard, vectors: dict[str, Tensor], settings: EmbeddingSettings) -> None:
        self.shard, self.vectors = shard, vectors
        self.optimizer = OPTIMIZERS[settings.optimizer]()
        self.states: dict[str, State] = {name: self.optimizer.start(table) for name, table in vectors.items()}

    def gather(self, batch: Batch) -> list[Tensor]:
        """The inputs of the loss of a batch: entity rows (M, d) and relation rows (V, w)."""
        return [
            self.vectors["entities"].index_select(0, batch.entities),
            self.vectors["relations"].index_select(0, batch.relations),
        ]

    def update(self, batch: Batch, gradients: Sequence[Tensor], loss: Tensor, rate: Rate) -> Tensor:
        """Update the rows by the gradients of the gathered rows; the loss of the whole batch, a scalar."""
        self._step("entities", self._merged(batch, gradients[0]), rate, batch.unique)
        self._step("relations", self._of_relations(batch, gradients[1]), rate, batch.relations)
        return loss

    def _merged(self, batch: Batch, gradient: Tensor) -> Tensor:
        """Gradients (M, d) of rows with repetitions to (U, d), each row once."""
        merged = gradient.new_zeros(len(batch.unique), gradient.shape[1]).index_add_(0, batch.slots, gradient)
        return merged if batch.filled is None else merged.index_select(0, batch.filled[0])

    def _of_relations(self, batch: Batch, gradient: Tensor) -> Tensor:
        """Gradients (V, w) of the batch's relations; padded ones have the gradient of the last."""
        return gradient if batch.filled is None else gradient.index_select(0, batch.filled[1])

    def _of_all_relations(self, batch: Batch, gradient: Tensor) -> Tensor:
        """Gradients (V, w) of the batch's relations to (2R, w), zero for all others."""
        dense = torch.zeros_like(self.vectors["relations"])
        return dense.index_copy_(0, batch.relations, self._of_relations(batch, gradient))

    def _step(self, name: str, gradient: Tensor, rate: Rate, rows: Tensor | None = None) -> None:
        self.optimizer.step(self.vectors[name], self.states[name], gradient, rate, rows)

    def collect(self, table: Tensor, file: Path | None = None) -> Tensor:
        """All rows of an entity table (E, d) on the CPU, in each process."""
        return table.cpu()

    def share(self) -> tuple[Tensor, Shard]:
        """This process's share of the entity rows when every row is evaluated once, and its shard."""
        shard = Shard(self.shard.total, distributed.rank(), distributed.count())
        return self.vectors["entities"][shard.rank :: shard.count], shard


class DenseTables(Tables):
    """For one-vs-all and k-vs-all: every row is gathered and updated, in every process alike."""

    def gather(self, batch: Batch) -> list[Tensor]:
        """Entity rows (M, d), relation rows (V, w), and every entity's row (E, d)."""
        return [*super().gather(batch), self.vectors["entities"].detach()]

    def update(self, batch: Batch, gradients: Sequence[Tensor], loss: Tensor, rate: Rate) -> Tensor:
        of_rows, of_relations, of_all = gradients
        of_all.index_add_(0, batch.entities, of_rows)  # (E, d)
        of_all_relations = self._of_all_relations(batch, of_relations)
        distributed.add_([of_all, of_all_relations, loss])
        self._step("entities", of_all, rate)
        self._step("relations", of_all_relations, rate)
        return loss


class ShardedTables(Tables):
    """Each entity row in one of several processes; relations in each of them."""

    request: RowRequest  # of the last gathered batch

    def gather(self, batch: Batch) -> list[Tensor]:
        self.request = RowRequest(batch.unique, self.shard)
        rows = self.request.rows_from(self.vectors["entities"])  # (U, d)
        return [rows.index_select(0, batch.slots), self.vectors["relations"].index_select(0, batch.relations)]

    def update(self, batch: Batch, gradients: Sequence[Tensor], loss: Tensor, rate: Rate) -> Tensor:
        rows, merged = self.request.summed(self._merged(batch, gradients[0]))
        self._step("entities", merged, rate, rows)
        dense = self._of_all_relations(batch, gradients[1])
        touched = dense.new_zeros(len(dense)).index_fill_(0, batch.relations, 1)  # by this process
        distributed.add_([dense, touched, loss])
        relations = touched.nonzero().squeeze(1)  # by any process
        self._step("relations", dense.index_select(0, relations), rate, relations)
        return loss

    def share(self) -> tuple[Tensor, Shard]:
        return self.vectors["entities"], self.shard

    def collect(self, table: Tensor, file: Path | None = None) -> Tensor:
        """All rows in each process: in memory, or in `file`, which the first process writes and the others map."""
        total, count = self.shard.total, self.shard.count
        size, dtype = (total, table.shape[1]), table.new_empty(0, device="cpu").numpy().dtype
        lengths = [len(Shard(total, rank, count)) for rank in range(count)]
        collectors = count if file is None else 1  # the first processes receive all rows
        collects, rows = distributed.rank() < collectors, None
        if collects:
            rows = np.empty(size, dtype) if file is None else np.memmap(file, dtype, "w+", shape=size)
        for start in range(0, self.shard.most, PIECE):
            piece = table[start : start + PIECE]
            sent = [len(piece) if rank < collectors else 0 for rank in range(count)]
            received = [len(range(n)[start : start + PIECE]) if collects else 0 for n in lengths]
            arrived = distributed.exchanged(piece.repeat(collectors, 1), sent, received)
            for rank, part in enumerate(arrived.cpu().split(received)):
                if rows is not None:
                    rows[rank + start * count :: count][: len(part)] = part.numpy()
        if isinstance(rows, np.memmap):
            rows.flush()
        distributed.gathered(None)
        if rows is None and file is not None:
            rows = np.memmap(file, dtype, "c", shape=size)
        return torch.from_numpy(rows)


def shard_of(settings: EmbeddingSettings, entities: int) -> Shard:
    """The entities whose rows are in this process: all if each step needs every row."""
    return Shard(entities) if settings.dense else Shard(entities, distributed.rank(), distributed.count())


def tables_of(settings: EmbeddingSettings, shard: Shard, vectors: dict[str, Tensor]) -> Tables:
    """Tables with these initial vectors of entities (n, d) and relations (2R, w)."""
    if settings.dense:
        return DenseTables(shard, vectors, settings)
    return (Tables if shard.count == 1 else ShardedTables)(shard, vectors, settings)
