"""Identical questions: one computation answers all who wait, and the last answers are kept."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from tests.server.servers import Known, asking, eventually, small

from fewlink.linker.query import Query, References
from fewlink.linker.ranking import RankedPairs
from fewlink.server.sharing import KeptRankings, SharedAnswers, size_of, size_of_task, split_by_head

QUERY = {"references": [["ann", "rome"]], "heads": ["bob"]}


def test_clients_with_one_question_share_a_computation_and_its_answer() -> None:
    linker = small()
    assert isinstance(linker.scorer, Known)
    scorer = linker.scorer
    scorer.gate = gate = threading.Event()
    with asking(linker, waiting=1) as client, ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(client.post, "/predict", json=QUERY) for _ in range(8)]
        eventually(lambda: scorer.calls)
        gate.set()
        first, *others = [answer.result(20) for answer in answers]
        assert first.status_code == 200 and all(other.json() == first.json() for other in others)
        assert client.post("/predict", json=QUERY).json() == first.json() and len(scorer.calls) == 1
        client.post("/predict", json={**QUERY, "rejected": [["ann", "oslo"]]})
        assert len(scorer.calls) > 1


def test_heads_of_one_task_are_ranked_once_whoever_asks() -> None:
    linker = small()
    assert isinstance(linker.scorer, Known)
    calls = linker.scorer.calls
    with asking(linker) as client, asking(small(), kept=0) as fresh:

        def ask(**question: Any) -> None:
            body = {"references": [["ann", "rome"]], **question}
            answer = client.post("/predict", json=body)
            assert answer.status_code == 200 and answer.json() == fresh.post("/predict", json=body).json()

        ask(heads=["bob", "cy"])
        assert len(calls.pop()) == 2 and not calls
        ask(heads=["cy", "oslo", "bob", "cy"])  # only oslo is new
        assert len(calls.pop()) == 1 and not calls
        for options in (
            {"constraints": ["types"]},
            {"k": 2},
            {"exclude_known": False},
            {"candidates": "all"},
            {"rejected": [["bob", "oslo"]]},
        ):
            ask(heads=["bob"], **options)
            assert calls
            calls.clear()
        for _ in range(2):  # answers that depend on the other heads are not shared
            ask(heads=["bob", "cy"], constraints=["functional"], k=1)
            ask(heads=["bob"], constraints=["functional"], k=1)
        assert {1, 2} == set(map(len, calls))
        calls.clear()
        ask(heads=["cy"])
        assert calls == []


def test_rankings_are_kept_within_a_bound_those_of_the_last_tasks() -> None:
    def ranking(head: int) -> RankedPairs:
        return RankedPairs(*(np.full(3, head) for _ in fields(RankedPairs)))

    a, b, c, d = (Query(References(((number, 0),)), (), 3) for number in range(4))
    one, task = size_of(ranking(0)), size_of_task(a)
    rankings = KeptRankings(max_bytes=2 * task + 4 * one)
    for query in (a, b):
        rankings.keep(query, None, {head: ranking(head) for head in (1, 2)})
    assert rankings.of(a.ranking_key) is not None  # used last
    rankings.keep(c, None, {3: ranking(3)})
    assert rankings.of(b.ranking_key) is None and rankings.kept_bytes == 2 * task + 3 * one
    kept = rankings.of(a.ranking_key)
    assert kept is not None and kept.by_head.keys() == {1, 2}
    rankings.keep(c, None, {3: ranking(3)})  # the same again
    assert rankings.kept_bytes == 2 * task + 3 * one
    rankings.keep(d, None, {head: ranking(head) for head in range(9)})
    assert rankings.kept_bytes == 0


def test_kept_rankings_count_the_pairs_of_their_tasks() -> None:
    """Thousands of references take more memory than the ranking of one head."""
    rankings = KeptRankings(max_bytes=1 << 20)
    tracemalloc.start()
    for number in range(20):
        pairs = tuple((1_000 * number + place, 2_000 * number + place) for place in range(1_000, 3_000))
        query = Query(References(pairs, rejected=pairs[:100]), (), 3)
        assert len(query.references.ids) == 2_000
        rankings.keep(query, None, {1: RankedPairs(*(np.zeros(3) for _ in fields(RankedPairs)))})
    del query, pairs
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.5 * taken < rankings.kept_bytes <= 1 << 20


def test_rankings_are_split_and_joined_again() -> None:
    heads = np.array([5, 5, 2, 7, 7, 7])
    ranked = RankedPairs(heads, *(np.arange(6) for _ in fields(RankedPairs)[1:]))
    parts = split_by_head(ranked, [5, 2, 9, 7])
    assert {head: len(part) for head, part in parts.items()} == {5: 2, 2: 1, 9: 0, 7: 3}
    joined = RankedPairs.joined(list(parts.values()))
    assert joined.heads.tolist() == heads.tolist() and joined.tails.tolist() == list(range(6))


def test_answers_are_kept_within_a_bound_and_errors_are_not() -> None:
    computed: list[str] = []
    answers = SharedAnswers(max_bytes=50)

    async def ask(question: str) -> bytes:
        async def compute() -> bytes:
            computed.append(question)
            if question == "bad":
                raise ValueError
            return b"x" * 20

        return await answers.get(question, compute)

    async def main() -> None:
        for question in ("a", "b", "a", "c", "a", "b"):
            assert await ask(question) == b"x" * 20
            assert answers.kept_bytes <= 50
        for _ in range(2):
            with pytest.raises(ValueError):
                await ask("bad")

    asyncio.run(main())
    assert computed == ["a", "b", "c", "b", "bad", "bad"]


def test_a_computation_ends_when_nobody_waits_for_it() -> None:
    ended: list[str] = []
    answers = SharedAnswers(max_bytes=50)

    async def compute() -> bytes:
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return b""

    async def main() -> None:
        clients: list[asyncio.Task[Any]] = [asyncio.create_task(answers.get("q", compute)) for _ in range(2)]
        await asyncio.sleep(0)
        clients[0].cancel()
        await asyncio.wait(clients[:1])
        assert not ended
        clients[1].cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await asyncio.sleep(0)
        assert ended == ["cancelled"]

    asyncio.run(main())
