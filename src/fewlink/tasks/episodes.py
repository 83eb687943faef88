"""Episodes for meta-training (the paper's Algorithm 1, lines 2–6), and the batch of a training step.

Each episode is a pure function of its seed and number.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.seeds import derive
from fewlink.tasks.benchmark import Task

PURPOSES = ("pass", "pairs", "repeats", "negatives", "shared", "references")
MAX_INT64 = 2**63 - 1  # sorts after every hash
MAX_ELEMENTS = 1 << 23  # of an array: 64 MB


class Episodes(NamedTuple):
    """Episodes: n for each of S seeds.

    Shapes: `tasks` (S, n); `references` (S, n, K, 2); `queries` (S, n, B, 2); `negatives` (S, n, B, N);
    all int64.
    """

    tasks: Tensor
    references: Tensor
    queries: Tensor
    negatives: Tensor


class EpisodeSampler:
    """Samples episodes: `sampler(numbers)` returns those of the numbers for every seed. Each pass shuffles the tasks.

    References and queries are disjoint. Queries repeat only if a relation has fewer pairs than the batch needs.
    Negatives are tails of the relation's range that are not known answers of the query's head. With `shared`, all
    queries of an episode share their negatives, except those that are known answers of a query's head.
    An episode is the same on every device and in every call; a call never synchronises with the device.
    With at most `at_once` numbers in a call, no array exceeds 64 MB unless that of a single number does.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        entities: int,
        *,
        shots: int,
        batch: int = 128,
        negatives: int = 1,
        shared: bool = False,
        seeds: Sequence[int] = (0,),
        device: str | torch.device = "cpu",
    ) -> None:
        for task in tasks:
            if len(task.pairs) <= shots:
                raise FewlinkError(
                    f"{task.name} has {len(task.pairs)} pairs, and {shots} references leave no query: use fewer"
                )
        if not tasks:
            raise FewlinkError("there are no train relations to sample episodes from: choose a benchmark that has some")
        self.shots = shots
        self.batch = batch
        self.negatives = negatives
        self.shared = shared
        self.device = torch.device(device)
        sizes = [len(task.pairs) for task in tasks]
        self._sizes = torch.tensor(sizes, device=self.device)  # (T,)
        self._begins = torch.tensor([0, *accumulate(sizes)][:-1], device=self.device)  # (T,)
        self._widest = max(sizes)
        widest = max(len(tasks), self._widest, 2 * shots, 2 * batch, batch * negatives)
        self.at_once = max(1, MAX_ELEMENTS // (len(seeds) * widest))
        pairs = np.concatenate([task.pairs for task in tasks]).astype(np.int64)
        self._pairs = torch.from_numpy(pairs).to(self.device)  # (all pairs, 2)
        self._false = _FalseTails(tasks, entities, self.device)
        self._starts = {
            purpose: torch.tensor([_signed(derive(seed, "episodes", purpose)) for seed in seeds], device=self.device)
            for purpose in PURPOSES
        }

    def __call__(self, numbers: Tensor) -> Episodes:
        """The episodes of these numbers (n,), for every seed."""
        numbers = numbers.to(self.device)
        count = len(self._sizes)
        order = self._hashes("pass", numbers // count, count).argsort(dim=-1, stable=True)  # (S, n, T)
        tasks = order.gather(-1, (numbers % count).expand(order.shape[:2])[..., None])  # (S, n, 1)
        sizes = self._sizes[tasks]
        begins = self._begins[tasks]

        keys = self._hashes("pairs", numbers, self._widest)  # (S, n, P)
        padding = torch.arange(self._widest, device=self.device) >= sizes
        shuffled = keys.masked_fill_(padding, MAX_INT64).argsort(dim=-1, stable=True) + begins
        places = torch.arange(self.shots, self.shots + self.batch, device=self.device)
        repeats = self.shots + _modulo(self._hashes("repeats", numbers, self.batch), sizes - self.shots)
        queries = shuffled.gather(-1, torch.where(places < sizes, places, repeats))  # (S, n, B)
        return Episodes(
            tasks.squeeze(-1),
            self._pairs[shuffled[..., : self.shots]],
            self._pairs[queries],
            self._negatives(numbers, tasks, self._false.rows[queries]),
        )

    def _negatives(self, numbers: Tensor, tasks: Tensor, rows: Tensor) -> Tensor:
        """False tails (S, n, B, N) of the queries in these rows (S, n, B); tasks (S, n, 1)."""
        hashes = self._hashes("negatives", numbers, self.batch * self.negatives)
        separate = self._false.draw(rows, hashes.unflatten(-1, (self.batch, self.negatives)))
        if not self.shared:
            return separate
        common = self._false.in_range(tasks, self._hashes("shared", numbers, self.negatives)).unsqueeze(-2)
        return torch.where(self._false.known(rows, common), separate, common)

    def _hashes(self, purpose: str, numbers: Tensor, count: int) -> Tensor:
        """64-bit hashes (S, n, count) of each seed, number and index; distinct for one seed and number."""
        each = scramble_tensor(self._starts[purpose][:, None] + numbers)
        return scramble_tensor(each[..., None] + torch.arange(count, device=self.device))


class ContrastedEpisodes(NamedTuple):
    """Episodes of one seed whose references have negatives too.

    Shapes: `references` (n, K, 2), `reference_negatives` (n, K, N), `queries` (n, B, 2), `negatives` (n, B, N).
    """

    references: Tensor
    reference_negatives: Tensor
    queries: Tensor
    negatives: Tensor


class ContrastedSampler(EpisodeSampler):
    """Samples many small episodes of tasks of any size: each draws a task and a few of its pairs."""

    def contrasted(self, numbers: Tensor) -> ContrastedEpisodes:
        """The episodes of these numbers (n,), for the first seed."""
        numbers = numbers.to(self.device)
        tasks = _modulo(self._hashes("pass", numbers, 1)[0], torch.tensor(len(self._sizes), device=self.device))
        places = self._places(numbers, self._sizes[tasks]) + self._begins[tasks]  # (n, K + B)
        references, queries = places.split([self.shots, self.batch], 1)
        return ContrastedEpisodes(
            self._pairs[references],
            self._false_tails("references", numbers, references),
            self._pairs[queries],
            self._false_tails("negatives", numbers, queries),
        )

    def _places(self, numbers: Tensor, sizes: Tensor) -> Tensor:
        """Draw K + B distinct numbers below the sizes (n, 1); if there are too few, queries repeat."""
        hashes = self._hashes("pairs", numbers, self.shots + self.batch)[0]  # (n, K + B)
        chosen = hashes[:, :0]
        for i in range(self.shots + self.batch):
            others = i if i < self.shots else torch.where(sizes > i, i, self.shots)  # numbers already taken
            place = _modulo(hashes[:, i : i + 1], sizes - others)
            taken = torch.arange(i, device=self.device) < others
            for other in chosen.masked_fill(~taken, MAX_INT64).sort(1).values.unbind(1):
                place = place + (place >= other.unsqueeze(1))
            chosen = torch.cat([chosen, place], 1)
        return chosen

    def _false_tails(self, purpose: str, numbers: Tensor, pairs: Tensor) -> Tensor:
        """False tails (n, P, N) of pairs (n, P)."""
        hashes = self._hashes(purpose, numbers, pairs.shape[1] * self.negatives)[0]
        return self._false.draw(self._false.rows[pairs], hashes.unflatten(-1, (pairs.shape[1], self.negatives)))


class _FalseTails:
    """Draws tails uniformly from those that are not known answers, without rejection.

    A row is a head of a task's pairs. The i-th known tail of a row, at position p of the sorted range, follows p - i
    false tails, which is its gap. False tail u of the row is therefore at position u plus the number of gaps up to u.
    One sorted array holds the gaps of all rows, as row · entities + gap. A row whose whole range is known draws from
    all entities, which follow the ranges in the pool.
    """

    def __init__(self, tasks: Sequence[Task], entities: int, device: torch.device) -> None:
        everything = np.arange(entities)
        ranges = [task.range if len(task.range) else everything for task in tasks]
        widths = [len(r) for r in ranges]
        *starts, behind = [0, *accumulate(widths)]
        rows = []
        free = []
        offsets = []
        gaps = []
        keys = []
        first = before = 0  # rows and gaps of earlier tasks
        for task, range_, start in zip(tasks, ranges, starts, strict=True):
            heads, row = np.unique(task.pairs[:, 0], return_inverse=True)
            known = task.known[np.isin(task.known[:, 0], heads)].astype(np.int64)
            owners = np.searchsorted(heads, known[:, 0])
            tails = known[:, 1]
            inside = np.isin(tails, range_)
            left = len(range_) - np.bincount(owners[inside], minlength=len(heads))
            full = left == 0
            left[full] = entities - np.bincount(owners, minlength=len(heads))[full]
            if not left.all():
                head = heads[left == 0][0]
                raise FewlinkError(f"{task.name}: every entity is a known tail of head {head}: leave out its pairs")
            counted = inside | full[owners]
            positions = np.where(full[owners], tails, np.searchsorted(range_, tails))[counted]
            keys.append((first + owners) * entities + tails)
            owners = owners[counted]
            begins = np.searchsorted(owners, np.arange(len(heads)))
            gaps.append((first + owners) * entities + positions - (np.arange(len(owners)) - begins[owners]))
            rows.append(first + row)
            free.append(left)
            offsets.append(np.where(full, behind, start) - begins - before)
            first = first + len(heads)
            before = before + len(owners)

        def joined(arrays: Sequence[np.ndarray]) -> Tensor:
            return torch.from_numpy(np.concatenate(arrays).astype(np.int64)).to(device)

        self.entities = entities
        self.rows = joined(rows)  # (all pairs,)
        self._free = joined(free)  # (rows,): number of false tails
        self._offsets = joined(offsets)  # (rows,): start in the pool minus first gap
        self._gaps = joined(gaps)
        self._keys = joined(keys)
        self._pool = joined([*ranges, everything])
        self._starts = torch.tensor(starts, device=device)
        self._widths = torch.tensor(widths, device=device)  # (T,)

    def draw(self, rows: Tensor, hashes: Tensor) -> Tensor:
        """A false tail for each hash (..., N) of the rows (...)."""
        rows = rows.unsqueeze(-1)
        drawn = _modulo(hashes, self._free[rows])
        passed = torch.searchsorted(self._gaps, rows * self.entities + drawn, right=True)
        return self._pool[passed.add_(drawn).add_(self._offsets[rows])]

    def in_range(self, tasks: Tensor, hashes: Tensor) -> Tensor:
        """A tail of the range, true or false, for each hash (..., N) of the tasks (..., 1)."""
        return self._pool[self._starts[tasks] + _modulo(hashes, self._widths[tasks])]

    def known(self, rows: Tensor, tails: Tensor) -> Tensor:
        """Whether the tails (..., 1, N) are known answers of the rows (..., B); (..., B, N)."""
        keys = rows.unsqueeze(-1) * self.entities + tails
        at = torch.searchsorted(self._keys, keys).clamp_(max=len(self._keys) - 1)
        return self._keys[at] == keys


def scramble_tensor(keys: Tensor) -> Tensor:
    """Hash each int64 key to 64 bits: the steps of `seeds.scramble` after its sum, on any device."""
    x = keys
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = _shift_right(x, shift).bitwise_xor_(x).mul_(_signed(factor))
    return _shift_right(x, 31).bitwise_xor_(x)


def _shift_right(x: Tensor, by: int) -> Tensor:
    """A logical shift to the right: x >> by of an unsigned number."""
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _modulo(hashes: Tensor, limits: Tensor) -> Tensor:
    """Integers below the limits, from the low 63 bits of the hashes."""
    return (hashes & MAX_INT64).remainder_(limits)


class EpisodeBatch(NamedTuple):
    """The batch of a step of S runs: `ids` (S, U) are entities, `references` and `pairs` positions in them.

    Shapes: `references` (S, R, K, 2); `pairs` (S, R, B + B·N, 2): for each of the R relations the B queries, then each
    query's head with its N negatives.
    """

    ids: Tensor
    references: Tensor
    pairs: Tensor


class EpisodeLayout:
    """The positions of an episode's entities. They are the same in every step, so that a step needs only the ids.

    An episode has its references, its queries, and the false tails of the queries.
    """

    def __init__(self, runs: int, relations: int, shots: int, batch: int, negatives: int, device: str) -> None:
        self.relations = relations
        sizes = (2 * shots, 2 * batch, batch * negatives)
        positions = torch.arange(sum(sizes), device=device)
        references, queries, false_tails = positions.split(sizes)
        references = references.view(-1, 2)
        queries = queries.view(-1, 2)
        false_tails = false_tails.view(batch, -1)
        heads = queries[:, :1].expand_as(false_tails)
        pairs = torch.cat([queries, torch.stack([heads, false_tails], -1).flatten(0, 1)])
        begins = torch.arange(relations, device=device).view(-1, 1, 1) * len(positions)
        self.references = (references + begins).expand(runs, -1, -1, -1)
        self.pairs = (pairs + begins).expand(runs, -1, -1, -1)

    def ids(self, episodes: Episodes) -> Tensor:
        """The entities (S, steps, U) of the steps that these episodes (S, steps · R) make up."""
        parts = (episodes.references, episodes.queries, episodes.negatives)
        columns = [ids.flatten(2) for ids in parts]
        steps: Tensor = torch.cat(columns, -1).unflatten(1, (-1, self.relations))
        return steps.flatten(2)

    def batch(self, ids: Tensor) -> EpisodeBatch:
        """The batch of a step's entities (S, U)."""
        return EpisodeBatch(ids, self.references, self.pairs)


def compact(batch: EpisodeBatch) -> EpisodeBatch:
    """The same batch with each entity once, which saves encoding; for a single run on the CPU."""
    ids, places = batch.ids.unique(return_inverse=True)  # (U',), (1, U)
    return EpisodeBatch(ids.unsqueeze(0), places[0][batch.references], places[0][batch.pairs])
