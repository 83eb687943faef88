"""Identical questions: one computation answers all who wait, and the last answers are kept."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.server.servers import Known, asking, eventually, small

from fewlink.server.sharing import SharedAnswers

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
