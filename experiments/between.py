"""(h, ?, t) of the paper's problem definition, few-shot: which of a split's relations holds between two entities.

    python experiments/between.py --tiny
    python experiments/between.py --device cuda

Every query pair of the relations is asked about with the references of each of them. Relations are ranked by the score
of the pair, or by the rank of its tail among the candidates of each relation, which makes relations comparable whose
scores have other scales. Other relations that are known to hold between the two do not compete.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pydantic import Field

from common import Experiment, Result, Table, emphasise, figures, options, print_tables, run, untrained
from fewlink.core.errors import FewlinkError
from fewlink.core.metrics import labelled
from fewlink.core.progress import progress
from fewlink.core.seeds import generator
from fewlink.evaluation.evaluator import MAX_SCORES, Protocol, average, check_unseen, summarise
from fewlink.models.contract import Question, Scorer, realistic_rank
from fewlink.tasks.benchmark import Benchmark, Task
from fewlink.tasks.candidates import open_candidates

MODELS = ("random", "reference-tails", "rules", "gmatching-maxp", "fsrl", "fsrl-tuned", "trail")
TINY_MODELS = ("random", "rules", "fsrl", "trail")
RANKED_BY = ("rank", "score")
MAX_QUERIES = 100  # of each relation
SHOTS = 3
COLUMNS = labelled("mrr", "hits@1", "hits@5")
NOTE = "micro: mean over pairs; macro: mean over relations; at most 100 pairs of each relation"


class BetweenRecord(Result):
    """How well a model tells which of a split's relations holds between two entities."""

    what = "a record of relations between entities"
    suffix = ".between.jsonl"
    figures = frozenset({"queries", "metrics", "relations"})
    parts = ("split", "ranked_by")

    split: str
    ranked_by: str
    queries: int
    metrics: dict[str, dict[str, float]]
    relations: dict[str, dict[str, float]]
    config: dict[str, Any] = Field(default_factory=dict)
    seconds: float


def relations_between(
    benchmark: Benchmark, scorer: Scorer, *, model: str, max_queries: int = MAX_QUERIES, **facts: Any
) -> list[BetweenRecord]:
    """Rank the test relations for query pairs of each of them; a record with other `facts` for each of `RANKED_BY`."""
    began = time.monotonic()
    check_unseen(scorer, Protocol("test", SHOTS))
    tasks = benchmark.split("test")
    if len(tasks) < 2:
        raise FewlinkError(f"{benchmark.name} has fewer than two test relations: choose another benchmark")
    queries = [queries_of(task, SHOTS, max_queries) for task in tasks]
    pairs = np.concatenate(queries)
    true = np.repeat(np.arange(len(tasks)), [len(each) for each in queries])
    measures = []  # of each relation, (P,) by rank and (P,) by score
    with progress("relations", len(tasks)) as advance:
        for number, task in enumerate(tasks):
            advance(number, task.name)
            measures.append(measure(benchmark, scorer, task, SHOTS, pairs))
    holds = np.stack([known_in(task, pairs) for task in tasks], 1)  # (P, T)
    records = []
    for ranked_by, columns in zip(RANKED_BY, zip(*measures, strict=True), strict=True):
        ranks, counts = rank_relations(np.stack(columns, 1), true, holds)
        rows = {
            task.name: {"queries": int((true == i).sum()), **summarise(ranks[true == i], counts[true == i])}
            for i, task in enumerate(tasks)
        }
        record = BetweenRecord(
            benchmark=benchmark.name,
            model=model,
            split="test",
            shots=SHOTS,
            ranked_by=ranked_by,
            queries=len(pairs),
            metrics={"micro": summarise(ranks, counts), "macro": average(list(rows.values()))},
            relations=rows,
            data_sha256=benchmark.fingerprint,
            seconds=round(time.monotonic() - began, 3),
            **facts,
        )
        records.append(record)
    return records


def queries_of(task: Task, shots: int, max_queries: int) -> np.ndarray:
    """At most `max_queries` query pairs (q, 2) of a relation, in the benchmark's order."""
    _, queries = task.split(shots)
    chosen = generator(0, "relations between", task.name).permutation(len(queries))[:max_queries]
    sample: np.ndarray = queries[np.sort(chosen)]
    return sample


def measure(
    benchmark: Benchmark, scorer: Scorer, task: Task, shots: int, pairs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How well a relation fits pairs (P, 2): minus the rank of the tail among its candidates, and the score: (P,) each.

    The candidates are those of the protocol `open`; a tail that is not one of them ranks in the middle of all others.
    """
    references, _ = task.split(shots)
    candidates = open_candidates(benchmark.graph, references)
    ids = np.union1d(candidates, pairs[:, 1]).astype(np.int32)
    competes = torch.from_numpy(np.isin(ids, candidates))
    columns = np.searchsorted(ids, pairs[:, 1])
    within = np.isin(pairs[:, 1], candidates)
    others = len(benchmark.graph.entities) - len(candidates) - 1
    last = realistic_rank(np.array(float(len(candidates))), np.array(float(others)))  # of a tail that is no candidate
    ranks = np.zeros(len(pairs))
    scores = np.zeros(len(pairs))
    heads = np.unique(pairs[:, 0])
    size = max(1, MAX_SCORES // len(ids))
    for first in range(0, len(heads), size):
        some = heads[first : first + size].astype(np.int32)
        grid = torch.as_tensor(scorer(Question(task.name, references, some, ids))).cpu()
        own = np.flatnonzero(np.isin(pairs[:, 0], some))
        rows = torch.from_numpy(np.searchsorted(some, pairs[own, 0]))
        true = grid[rows, torch.from_numpy(columns[own])]  # (p,)
        among = grid[rows][:, competes]  # (p, c)
        above = (among > true[:, None]).sum(1).double().numpy()
        level = (among == true[:, None]).sum(1).double().numpy() - within[own]
        ranks[own] = np.where(within[own], realistic_rank(above, level), last)
        scores[own] = true.double().numpy()
    return -ranks, scores


def known_in(task: Task, pairs: np.ndarray) -> np.ndarray:
    """Whether each of the pairs (P, 2) is known to be one of the relation: (P,)."""
    none = np.zeros(0, np.int32)
    return np.array([tail in task.known_tails.get(int(head), none) for head, tail in pairs], bool)


def rank_relations(values: np.ndarray, true: np.ndarray, holds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rank of the true relation of each pair, and among how many: (P,) each.

    Shapes: values (P, T), higher is better; true (P,); holds (P, T), relations that are known to hold, which do not
    compete with the true one.
    """
    rows = np.arange(len(values))
    competes = ~holds
    competes[rows, true] = False
    own = values[rows, true][:, None]
    above = ((values > own) & competes).sum(1)
    level = ((values == own) & competes).sum(1)
    return np.asarray(realistic_rank(above.astype(float), level.astype(float))), competes.sum(1) + 1


def tables(records: Sequence[BetweenRecord], models: Sequence[str]) -> list[Table]:
    """A table of all relations, and one of each relation."""
    rows = []
    by_relation = []
    for ranked_by in RANKED_BY:
        for model in models:
            seeds = [record for record in records if (record.model, record.ranked_by) == (model, ranked_by)]
            if not seeds:
                continue
            cells = figures([record.metrics["micro"] for record in seeds], COLUMNS.values())
            macro = figures([record.metrics["macro"] for record in seeds], ["mrr"])
            rows.append([model, ranked_by, str(len(seeds)), f"{seeds[0].queries:,}", *cells, *macro])
            for relation in seeds[0].relations:
                each = [record.relations[relation] for record in seeds]
                cells = figures(each, COLUMNS.values())
                by_relation.append([relation, model, ranked_by, str(int(each[0]["queries"])), *cells])
    columns = ["model", "ranked by", "seeds", "pairs", *COLUMNS, "macro MRR"]
    by_relation.sort(key=lambda row: row[0])
    return [
        Table("which relation, K = 3", columns, emphasise(rows, range(4, len(columns)), group=1), NOTE),
        Table("by relation", ["relation", "model", "ranked by", "pairs", *COLUMNS], by_relation),
    ]


def main() -> None:
    experiment = Experiment(options(__doc__).parse_args())
    models = experiment.chosen(TINY_MODELS if experiment.tiny else MODELS)
    done = {(record.model, record.seed) for record in experiment.stored(BetweenRecord, models)}
    for model in [] if experiment.show else models:
        seeds = [seed for seed in experiment.seeds_of(model) if (model, seed) not in done]
        if model == "trail":  # with the built-in weights
            seeds = [seed for seed in seeds if seed == 0]
            made = [(seed, untrained(model, experiment.benchmark, experiment.device)) for seed in seeds]
        else:
            made = list(experiment.prepared(model, SHOTS, seeds)) if seeds else []
        for seed, each in made:
            facts = {"seed": seed, "config": each.config, "settings": each.config.get("settings", {})}
            for record in relations_between(experiment.benchmark, each.scorer, model=model, **facts):
                experiment.store.add(record)
    print_tables(tables(experiment.stored(BetweenRecord, models), models))


if __name__ == "__main__":
    run(main)
