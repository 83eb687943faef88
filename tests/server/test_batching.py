"""Concurrent requests: shared calls, the same answers as alone, turns by client, and clients that disconnect."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from tests.server.servers import PAIRS, Known, asking, eventually, on_a_port, small, trail

from fewlink.linker import Linker
from fewlink.server import ServerSettings
from fewlink.server.admission import Caller, Job
from fewlink.server.app import make_app
from fewlink.server.batching import Batcher


@dataclass(frozen=True)
class Ask:
    """A question for a batcher."""

    number: int
    key: Hashable = ""
    rows: int = 1


def job(client: str = "", left: float = 0.0) -> Job:
    return Job(Caller(client), "test", left)


class Calls:
    """Answers ten times the number. Records the calls, and waits for `gate` in the first one."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.gate = threading.Event()

    def __call__(self, questions: Sequence[Ask]) -> list[int]:
        self.seen.append([question.number for question in questions])
        if len(self.seen) == 1:
            assert self.gate.wait(20)
        return [10 * question.number for question in questions]


def run(batcher: Batcher[Ask], main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def started() -> Any:
        batcher.start()
        try:
            return await main()
        finally:
            batcher.close()

    return asyncio.run(started())


async def queue_behind(batcher: Batcher[Ask], calls: Calls, *others: tuple[Ask, Job]) -> list[Any]:
    """Ask a first question, which waits, then the others in their order, and return all answers."""
    tasks = [asyncio.create_task(batcher.ask(Ask(0, "first"), job("first")))]
    while not calls.seen:
        await asyncio.sleep(0.005)
    for question, of in others:
        tasks.append(asyncio.create_task(batcher.ask(question, of)))
        await asyncio.sleep(0)
    calls.gate.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_questions_with_one_key_share_a_call_within_the_limits() -> None:
    calls = Calls()
    batcher: Batcher[Ask] = Batcher(calls, together=3, rows=10)
    same = [(Ask(n), job()) for n in (1, 2, 3, 4)]
    large = [(Ask(5, "large", rows=9), job()), (Ask(6, "large", rows=9), job())]
    answers = run(batcher, lambda: queue_behind(batcher, calls, *same, *large))
    assert answers == [0, 10, 20, 30, 40, 50, 60]
    assert sorted(calls.seen) == [[0], [1, 2, 3], [4], [5], [6]]


def test_clients_take_turns_and_the_least_work_of_a_client_comes_first() -> None:
    calls = Calls()
    batcher: Batcher[Ask] = Batcher(calls)
    many = [(Ask(n), job("a")) for n in (1, 2, 3)]
    others = [(Ask(4), job("b", left=100)), (Ask(5), job("b"))]
    run(batcher, lambda: queue_behind(batcher, calls, *many, *others))
    assert [call[0] for call in calls.seen] == [0, 1, 5, 2, 4, 3]


def test_a_second_thread_answers_only_short_jobs() -> None:
    calls = Calls()
    batcher: Batcher[Ask] = Batcher(calls, short=1.0)

    async def main() -> list[Any]:
        long = asyncio.create_task(batcher.ask(Ask(1), job(left=5)))
        while not calls.seen:
            await asyncio.sleep(0.005)
        waiting = asyncio.create_task(batcher.ask(Ask(2), job(left=5)))
        quick = await batcher.ask(Ask(3), job())
        assert not long.done() and not waiting.done()
        calls.gate.set()
        return [quick, await long, await waiting]

    assert run(batcher, main) == [30, 10, 20]


def test_a_cancelled_question_leaves_the_queue() -> None:
    calls = Calls()
    batcher: Batcher[Ask] = Batcher(calls)

    async def main() -> None:
        first, second = (asyncio.create_task(batcher.ask(Ask(n), job())) for n in (1, 2))
        while not calls.seen:
            await asyncio.sleep(0.005)
        second.cancel()
        await asyncio.sleep(0)
        assert len(batcher) == 0
        calls.gate.set()
        assert await first == 10

    run(batcher, main)
    assert calls.seen == [[1]]


def test_an_error_is_raised_for_its_call_and_the_next_call_runs() -> None:
    def divide(questions: Sequence[Ask]) -> list[int]:
        return [10 // question.number for question in questions]

    batcher: Batcher[Ask] = Batcher(divide)

    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await batcher.ask(Ask(0), job())
        return int(await batcher.ask(Ask(2), job()))

    assert run(batcher, main) == 5


def test_the_time_of_a_call_is_shared_by_its_jobs() -> None:
    batcher: Batcher[Ask] = Batcher(
        lambda questions: [time.sleep(0.1) for _ in questions], together=2, gather=0.05, rows=100
    )
    jobs = [job(), job()]

    async def main() -> None:
        await asyncio.gather(batcher.ask(Ask(1, rows=3), jobs[0]), batcher.ask(Ask(2, rows=1), jobs[1]))

    run(batcher, main)
    assert jobs[0].spent > 0 and jobs[0].spent == pytest.approx(3 * jobs[1].spent)


def scorer_of(linker: Linker) -> Known:
    assert isinstance(linker.scorer, Known)
    return linker.scorer


def test_answers_over_http_equal_those_without_batching() -> None:
    heads = list(trail().graph.entities)[:40]
    queries = [
        {"references": PAIRS[: 1 + place % 2], "heads": [head, heads[-1 - place]], "k": 1 + place % 7}
        for place, head in enumerate(heads[:20])
    ]

    def all_of(client: Any) -> tuple[list[Any], int]:
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda query: client.post("/predict", json=query).json()["predictions"], queries))
        return answers, client.app.state.service.calls

    with asking(trail(), gather=0.1) as client:
        together, calls = all_of(client)
    with asking(trail(), together=1) as client:
        alone, one_by_one = all_of(client)
    assert calls < one_by_one
    for batched, single in zip(together, alone, strict=True):
        for row, other in zip(batched, single, strict=True):
            assert {**row, "score": 0, "probability": 0} == {**other, "score": 0, "probability": 0}
            assert row["score"] == pytest.approx(other["score"], rel=1e-5, abs=1e-5)


def test_the_event_loop_stays_free_while_the_model_runs() -> None:
    linker = small()
    scorer_of(linker).gate = gate = threading.Event()
    with asking(linker) as client, ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(client.post, "/predict", json={"references": [["ann", "rome"]], "heads": ["bob"]})
        eventually(lambda: scorer_of(linker).calls)
        assert client.get("/health").status_code == 200 and not waiting.done()
        gate.set()
        assert waiting.result(20).status_code == 200
    assert scorer_of(linker).threads == {"fewlink-scoring_0"}


def test_a_full_queue_gives_a_retry_time() -> None:
    linker = small()
    scorer_of(linker).gate = gate = threading.Event()
    query = {"references": [["ann", "rome"]], "heads": ["bob"]}
    with asking(linker, waiting=3, together=1) as client, ThreadPoolExecutor(8) as pool:
        first = pool.submit(client.post, "/predict", json=query)
        eventually(lambda: scorer_of(linker).calls)
        others = [pool.submit(client.post, "/predict", json={**query, "k": k}) for k in range(1, 6)]
        eventually(lambda: sum(other.done() for other in others) == 3)
        gate.set()
        answers = [each.result(20) for each in (first, *others)]
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [503] * 3
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert refused.headers["retry-after"] == "1" and refused.json()["error"]["code"] == "busy"


def test_a_disconnected_client_is_not_scored_and_pending_requests_are_finished() -> None:
    linker = small()
    scorer_of(linker).gate = gate = threading.Event()
    body = json.dumps({"references": [["ann", "rome"]], "heads": ["bob"]}).encode()
    gone = json.dumps({"references": [["ann", "oslo"]], "heads": ["cy"]}).encode()
    app = make_app(linker, ServerSettings(together=1))
    with on_a_port(app) as (address, server), ThreadPoolExecutor(1) as pool:
        request = urllib.request.Request(f"{address}/predict", body, {"Content-Type": "application/json"})
        first = pool.submit(lambda: urllib.request.urlopen(request, timeout=20).status)
        eventually(lambda: scorer_of(linker).calls)
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as leaving:
            header = ["POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
            header += [f"Content-Length: {len(gone)}", "", ""]
            leaving.sendall("\r\n".join(header).encode() + gone)
            eventually(lambda: len(app.state.service.batcher) == 1)
        eventually(lambda: len(app.state.service.batcher) == 0)
        server.should_exit = True
        time.sleep(0.2)
        assert not first.done()
        gate.set()
        assert first.result(20) == 200
    assert scorer_of(linker).calls == [[2]]
