"""(h, ?, t): ranks of relations by hand, and a whole split against a literal loop over pairs and relations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import benchmark_of, graph_of, task_of

from between import RANKED_BY, queries_of, rank_relations, relations_between
from fewlink.core.errors import FewlinkError
from fewlink.evaluation.records import RecordStore
from fewlink.models.contract import Question
from fewlink.tasks import open_benchmark
from fewlink.tasks.candidates import open_candidates


class Hashed:
    """Scores that look random and tie now and then."""

    name = "hashed"

    def __call__(self, question: Question) -> torch.Tensor:
        start = sum(map(ord, question.relation)) + int(question.references.sum())
        heads, tails = question.heads.astype(np.int64)[:, None], question.candidates.astype(np.int64)[None]
        return torch.from_numpy(((start + 31 * heads + 17 * tails) ** 2 % 97 // 4).astype(np.float32))


def test_ranks_of_relations_by_hand() -> None:
    values = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 5.0], [4.0, 2.0, 9.0]])
    holds = np.array([[True, False, False], [False, True, False], [False, True, True]])
    ranks, counts = rank_relations(values, np.array([0, 1, 1]), holds)
    assert ranks.tolist() == [1.0, 2.5, 2.0]  # a tie counts for half; the last pair's third relation holds as well
    assert counts.tolist() == [3, 3, 2]


def test_a_split_equals_a_literal_loop() -> None:
    benchmark, scorer = open_benchmark("umls"), Hashed()
    tasks, entities = benchmark.split("test"), len(benchmark.graph.entities)
    records = relations_between(benchmark, scorer, model="hashed", max_queries=7, seed=0)
    assert [record.ranked_by for record in records] == list(RANKED_BY)
    for record in records:
        reciprocal: dict[str, list[float]] = {task.name: [] for task in tasks}
        for task in tasks:
            for head, tail in queries_of(task, 3, 7).tolist():
                values = {}
                for other in tasks:
                    references = other.split(3)[0]
                    pool = open_candidates(benchmark.graph, references).tolist()
                    ids = np.array(sorted({*pool, tail}), np.int32)
                    scores = scorer(Question(other.name, references, np.array([head], np.int32), ids))[0]
                    of = dict(zip(ids.tolist(), scores.tolist(), strict=True))
                    above = sum(of[c] > of[tail] for c in pool)
                    level = sum(of[c] == of[tail] for c in pool if c != tail)
                    rank = 1 + above + level / 2 if tail in pool else 1 + len(pool) + (entities - len(pool) - 1) / 2
                    values[other.name] = of[tail] if record.ranked_by == "score" else -rank
                rivals = [
                    value
                    for name, value in values.items()
                    if name != task.name and [head, tail] not in benchmark.task(name).known.tolist()
                ]
                own = values[task.name]
                reciprocal[task.name].append(1 / (1 + sum(v > own for v in rivals) + sum(v == own for v in rivals) / 2))
        for task in tasks:
            assert record.relations[task.name]["mrr"] == pytest.approx(np.mean(reciprocal[task.name]))
        every = [value for values in reciprocal.values() for value in values]
        assert record.queries == len(every)
        assert record.metrics["micro"]["mrr"] == pytest.approx(np.mean(every))
        assert record.metrics["macro"]["mrr"] == pytest.approx(np.mean([np.mean(v) for v in reciprocal.values()]))


def test_records_are_stored_once(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    for _ in range(2):
        for record in relations_between(open_benchmark("umls"), Hashed(), model="hashed", max_queries=2, seed=0):
            path = store.add(record)
    assert path.name == "hashed.between.jsonl" and len(path.read_text().splitlines()) == 2
    assert store.records == []


def test_one_relation_is_no_question() -> None:
    pairs = [(0, 1), (1, 2), (2, 0), (0, 2)]
    single = benchmark_of(graph_of("a r b", "b r c"), test=[task_of(pairs, [0, 1, 2], name="only")])
    with pytest.raises(FewlinkError, match="two"):
        relations_between(single, Hashed(), model="hashed", seed=0)
