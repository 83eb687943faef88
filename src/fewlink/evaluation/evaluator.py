"""One evaluator for every scorer: the rank of each true tail among its candidates, relation by relation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fewlink.core import distributed
from fewlink.core.engine import Engine
from fewlink.core.errors import FewlinkError, ScoreError
from fewlink.core.metrics import HITS, METRICS
from fewlink.core.progress import progress
from fewlink.graph import Graph
from fewlink.models.contract import Question, Scorer, capabilities, realistic_rank
from fewlink.tasks import Benchmark, Candidates, Task, candidates_of


def realistic_ranks(
    scores: Tensor, rows: Tensor, true: Tensor, excluded: tuple[Tensor, Tensor], counted: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The rank of each query's true tail, and the number of candidates it is ranked among.

    Shapes: `scores` (heads, candidates); `rows`, `true` (queries,) the query's row and the column of its true tail;
    `excluded` two tensors (x,): queries, and columns that do not compete in them (other known answers); `counted`
    (candidates,) bool, the columns that compete at all. The ranks (queries,) are float64; the numbers of candidates
    (queries,) are int64 and include the true tail.
    """
    true_scores = scores[rows, true].unsqueeze(1)  # (queries, 1)
    candidate_scores = scores[rows]  # (queries, candidates)
    higher = candidate_scores > true_scores
    tied = candidate_scores == true_scores
    if counted is not None:
        higher = higher & counted
        tied = tied & counted
        total = counted.sum()
    else:
        total = torch.tensor(scores.shape[1], device=scores.device)
    cells = excluded[0] * scores.shape[1] + excluded[1]
    cells = torch.cat([cells, torch.arange(len(rows), device=rows.device) * scores.shape[1] + true]).unique()
    queries = cells // scores.shape[1]
    columns = cells % scores.shape[1]
    competes = torch.ones_like(columns, dtype=torch.bool) if counted is None else counted[columns]

    def without_excluded(counts: Tensor, flags: Tensor) -> Tensor:
        return counts.index_add(0, queries, -flags.to(counts.dtype))

    above = without_excluded(higher.sum(1), higher[queries, columns])
    level = without_excluded(tied.sum(1), tied[queries, columns])
    rivals = without_excluded(total.expand(len(rows)).contiguous(), competes)
    return realistic_rank(above.double(), level.double()), rivals + 1


def summarise(ranks: np.ndarray, candidates: np.ndarray) -> dict[str, float]:
    """Mean reciprocal rank, Hits@k, mean rank and the chance-adjusted mean rank index of a set of queries.

    The index is 1 − (MR − 1) / (E[MR] − 1), where E[MR] = mean((candidates + 1) / 2) is the mean rank of random scores:
    1 is perfect, 0 is chance. It is 0 if every query has a single candidate.
    """
    ranks = np.asarray(ranks, float)
    candidates = np.asarray(candidates, float)
    by_chance = float(np.mean((candidates + 1) / 2))
    mean_rank = float(ranks.mean())
    return {
        "mrr": float(np.mean(1 / ranks)),
        **{f"hits@{k}": float(np.mean(ranks <= k)) for k in HITS},
        "mr": mean_rank,
        "amri": 1 - (mean_rank - 1) / (by_chance - 1) if by_chance > 1 else 0.0,
    }


def average(rows: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over relations (the macro average)."""
    return {metric: float(np.mean([row[metric] for row in rows])) for metric in METRICS}


HEADS_PER_BATCH = 256  # of a relation, that a worker ranks at a time
MAX_SCORES = 1 << 23  # in memory at a time: 32 MB of float32, and some masks of that shape


@dataclass(frozen=True)
class Protocol:
    """The split, the number and choice of references, and the candidates that queries are ranked against.

    With `draw` 0, the references are the first `shots` pairs of each relation; with n > 0, the n-th random draw.
    """

    split: str = "test"
    shots: int = 3
    candidates: str = "full"
    draw: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.shots < 1:
            raise FewlinkError(f"shots is {self.shots}: it must be at least 1")
        if self.draw < 0:
            raise FewlinkError(f"draw is {self.draw}: it must be 0 (the first pairs) or more")

    @property
    def references(self) -> str:
        """How references are chosen, as records name it: `first` or `draw-N`."""
        return f"draw-{self.draw}" if self.draw else "first"


@dataclass(frozen=True)
class TaskRanks:
    """The ranked queries of one relation. Shapes: `queries` (q, 2); `ranks`, `candidates` (q,)."""

    relation: str
    queries: np.ndarray
    ranks: np.ndarray
    candidates: np.ndarray
    range: int  # the number of tails that candidates are drawn from

    def row(self) -> dict[str, float]:
        """The metrics of the relation, with its numbers of queries and candidates."""
        return {"queries": len(self.ranks), "candidates": self.range, **summarise(self.ranks, self.candidates)}


@dataclass(frozen=True)
class Evaluation:
    """The ranks of a whole split and the metrics computed from them."""

    protocol: Protocol
    tasks: Sequence[TaskRanks]
    seconds: float

    @property
    def queries(self) -> int:
        return sum(len(t.ranks) for t in self.tasks)

    def metrics(self) -> dict[str, dict[str, float]]:
        """`micro` over queries and `macro` over relations."""
        ranks = np.concatenate([t.ranks for t in self.tasks])
        candidates = np.concatenate([t.candidates for t in self.tasks])
        return {"micro": summarise(ranks, candidates), "macro": average([t.row() for t in self.tasks])}

    def relations(self) -> dict[str, dict[str, float]]:
        """The metrics of each relation, with its numbers of queries and candidates."""
        return {t.relation: t.row() for t in self.tasks}


def evaluate(
    benchmark: Benchmark, scorer: Scorer, protocol: Protocol = Protocol(), engine: Engine | None = None
) -> Evaluation:
    """Rank every query of a split. The ranks do not depend on the engine, by default this process.

    Under torchrun, each process ranks its share, and every process returns all ranks.
    """
    start = time.monotonic()
    check_unseen(scorer, protocol)
    tasks = rank_split(benchmark, scorer, protocol, engine)
    return Evaluation(protocol, tasks, time.monotonic() - start)


def check_unseen(scorer: Scorer, protocol: Protocol) -> None:
    """Raise if the queries of a protocol include pairs that the scorer was trained on."""
    seen = capabilities(scorer).references_seen
    if protocol.split != "train" and (protocol.shots < seen or (seen and protocol.draw)):
        raise FewlinkError(
            f"{scorer.name} was trained on the first {seen} pairs of each dev and test relation, which would be among "
            f"the queries: evaluate it with the first {seen} references or more"
        )


def rank_split(
    benchmark: Benchmark, scorer: Scorer, protocol: Protocol, engine: Engine | None = None
) -> list[TaskRanks]:
    """The ranks of every relation's queries."""
    tasks = benchmark.split(protocol.split)
    if not tasks:
        raise FewlinkError(f"{benchmark.name} has no {protocol.split} relations: choose another split")
    batches = [batch for number, task in enumerate(tasks) for batch in head_batches(number, task, protocol)]

    def name(number: int) -> str:
        return f"{len(batches[number]):,} heads of {tasks[batches[number][0][0]].name}"

    with progress(f"ranking {protocol.split}", sum(map(len, batches))) as advance:
        work = SplitRanking(benchmark, scorer, protocol)
        if engine is None and distributed.count() > 1:
            results = distributed.shared(work, batches)
        else:
            results = (engine or Engine()).in_order(work, batches, name, lambda done: advance(done, f"{done:,} heads"))
        found: list[list[TaskRanks]] = [[] for _ in tasks]
        for batch, ranked in zip(batches, results, strict=True):
            found[batch[0][0]] += ranked
    return [joined(ranked) for ranked in found]


TaskHead = tuple[int, int]  # the number of a task in its split, and a head


def head_batches(number: int, task: Task, protocol: Protocol) -> list[list[TaskHead]]:
    """The heads of a task's queries, some at a time."""
    _, queries = task.split(protocol.shots, protocol.draw, protocol.seed)
    heads = [(number, head) for head in np.unique(queries[:, 0]).tolist()]
    return [heads[begin : begin + HEADS_PER_BATCH] for begin in range(0, len(heads), HEADS_PER_BATCH)]


@dataclass(frozen=True)
class SplitRanking:
    """Ranks the queries of some heads of one task of a split, which any worker can do."""

    benchmark: Benchmark
    scorer: Scorer
    protocol: Protocol

    def __call__(self, batch: Sequence[TaskHead]) -> list[TaskRanks]:
        task = self.benchmark.split(self.protocol.split)[batch[0][0]]
        heads = np.array([head for _, head in batch])
        return [rank_task(self.benchmark.graph, self.scorer, task, self.protocol, heads)]


def joined(ranked: Sequence[TaskRanks]) -> TaskRanks:
    """The ranks of all heads of a relation."""
    queries = np.concatenate([part.queries for part in ranked])
    ranks = np.concatenate([part.ranks for part in ranked])
    candidates = np.concatenate([part.candidates for part in ranked])
    return TaskRanks(ranked[0].relation, queries, ranks, candidates, ranked[0].range)


def rank_task(
    graph: Graph, scorer: Scorer, task: Task, protocol: Protocol, heads: np.ndarray | None = None
) -> TaskRanks:
    """The ranks of a relation's queries, or of those of some heads (h,), sorted by head.

    A head with several queries is scored once against all candidates.
    """
    references, queries = task.split(protocol.shots, protocol.draw, protocol.seed)
    pool = candidates_of(protocol.candidates, task, references, graph)
    queries = queries[np.argsort(queries[:, 0], kind="stable")]
    if heads is not None:
        queries = queries[np.isin(queries[:, 0], heads)]
    ranks, counts = rank_queries(scorer, task, references, pool, queries)
    return TaskRanks(task.name, queries, ranks, counts, int(pool.counted.sum()) + pool.outside)


def rank_queries(
    scorer: Scorer, task: Task, references: np.ndarray, pool: Candidates, queries: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The ranks (q,) of queries (q, 2) of a task, in their order, and the number of candidates of each."""
    size = max(1, MAX_SCORES // max(len(pool.ids), 1))
    batches = [queries[i : i + size] for i in range(0, len(queries), size)]
    ranked = [_rank_batch(scorer, task, references, pool, batch) for batch in batches]
    ranks = np.concatenate([r for r, _ in ranked]) if ranked else np.zeros(0)
    counts = np.concatenate([c for _, c in ranked]) if ranked else np.zeros(0, np.int64)
    return ranks, counts


def _rank_batch(
    scorer: Scorer, task: Task, references: np.ndarray, pool: Candidates, queries: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    heads, rows = np.unique(queries[:, 0], return_inverse=True)
    output = scorer(Question(task.name, references, heads, pool.ids))
    scores = torch.from_numpy(np.array(output)) if isinstance(output, np.ndarray) else output
    _check_scores(scores, scorer, task, heads, pool)

    known = [task.known_tails[int(h)] for h in queries[:, 0]]
    owners = np.repeat(np.arange(len(queries)), [len(k) for k in known])
    tails = np.concatenate(known)
    columns, inside = _columns(pool.ids, tails)
    true, within = _columns(pool.ids, queries[:, 1])
    if not (pool.outside or within.all()):
        missing = int(queries[~within][0, 1])
        raise FewlinkError(f"{task.name}: the true tail {missing} is not a candidate: add it to the relation's range")

    def on_device(array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(array, device=scores.device)

    excluded = (on_device(owners[inside]), on_device(columns[inside]))
    ranks, counts = realistic_ranks(scores, on_device(rows), on_device(true), excluded, on_device(pool.counted))
    if pool.outside:
        others = ~inside & (tails != queries[owners, 1])  # other known answers outside the candidates are excluded too
        behind = pool.outside - np.bincount(owners[others], minlength=len(queries))
        return _with_outside(ranks.cpu().numpy(), counts.cpu().numpy(), within, behind, pool, owners[inside])
    return ranks.cpu().numpy(), counts.cpu().numpy()


def _with_outside(
    ranks: np.ndarray,
    counts: np.ndarray,
    within: np.ndarray,
    behind: np.ndarray,
    pool: Candidates,
    known_inside: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The ranks if `behind` further entities, perhaps the true tail, tie behind all candidates."""
    ahead = len(pool.ids) - np.bincount(known_inside, minlength=len(ranks))
    last = realistic_rank(ahead, behind - 1)
    return np.where(within, ranks, last), np.where(within, counts + behind, ahead + behind)


def _columns(candidates: np.ndarray, entities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The column of each entity among sorted candidates (0 if it is not one), and whether it is one."""
    at = np.minimum(np.searchsorted(candidates, entities), len(candidates) - 1)
    inside = candidates[at] == entities
    return np.where(inside, at, 0), inside


def _check_scores(scores: torch.Tensor, scorer: Scorer, task: Task, heads: np.ndarray, pool: Candidates) -> None:
    """Raise unless there is one finite score for each head and candidate."""
    expected = (len(heads), len(pool.ids))
    if tuple(scores.shape) != expected:
        raise ScoreError(
            f"scorer '{scorer.name}' returned scores of shape {tuple(scores.shape)} for {task.name}, not {expected}"
        )
    if not bool(torch.isfinite(scores).all()):
        row, column = (int(i) for i in torch.nonzero(~torch.isfinite(scores))[0])
        raise ScoreError(
            f"scorer '{scorer.name}' returned {float(scores[row, column])} for {task.name}, head {heads[row]}, "
            f"candidate {pool.ids[column]}: scores must be finite"
        )
