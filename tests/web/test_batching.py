"""Requests that come together: one call, the same answers as alone, a bounded queue, and clients that leave."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.web.servers import PAIRS, Known, asking, on_a_port, small, trail

from fewlink.prediction import Linker
from fewlink.web import Settings
from fewlink.web.answering import Answers
from fewlink.web.app import make_app
from fewlink.web.asking import Given, Ranking
from fewlink.web.batching import Batcher
from fewlink.web.errors import Refusal

GIVEN = Given((("ann", "rome"),), None)


def asked(*heads: str, k: int = 2, given: Given = GIVEN, pairs: bool = False) -> Ranking:
    return Ranking(given, heads, k, None, True, pairs)


def scorer_of(linker: Linker) -> Known:
    assert isinstance(linker.scorer, Known)
    return linker.scorer


def test_those_with_the_same_question_share_a_call() -> None:
    linker = small()
    other = Given((("bob", "oslo"),), None)
    parts = [asked("ann"), asked("bob", "ann", k=1), asked("cy", given=other), asked("cy", k=3)]
    answers = dict(Answers(linker, Settings()).turn(parts))
    assert scorer_of(linker).calls == [[0, 2, 4], [4]]
    for place, part in enumerate(parts):
        alone = dict(Answers(linker, Settings()).turn([part]))[0]
        assert answers[place] == alone, part
    rows, _ = answers[1]  # type: ignore[misc]
    assert [(row.head, row.tail) for row in rows] == [("bob", "rome"), ("ann", "oslo")]  # ann, rome is known


def test_who_asks_about_other_candidates_gets_those() -> None:
    parts = [Ranking(GIVEN, ("bob",), 2, (name,), True, False) for name in ("rome", "oslo")]
    answers = dict(Answers(small(), Settings()).turn(parts))
    assert [[row.tail for row in answers[place][0]] for place in (0, 1)] == [["rome"], ["oslo"]]  # type: ignore[index]


def test_a_note_is_told_to_whom_it_concerns() -> None:
    one = Ranking(GIVEN, ("ann",), 2, ("rome",), True, False)
    two = Ranking(GIVEN, ("bob",), 2, ("rome",), True, False)
    answers = dict(Answers(small(), Settings()).turn([one, two]))
    assert [len(answers[place][1]) for place in (0, 1)] == [1, 0]  # type: ignore[index]


def test_a_call_has_no_more_rows_than_a_request_may_have() -> None:
    linker = small()
    answers = Answers(linker, Settings(rows=4))
    list(answers.turn([asked("ann"), asked("bob"), asked("cy"), asked("oslo", k=4), asked("rome", k=1)]))
    assert scorer_of(linker).calls == [[0, 2], [4], [1], [3]]


def test_pairs_share_a_call_only_where_all_heads_are_the_same() -> None:
    linker = small()
    parts = [asked("ann", "bob", pairs=True), asked("ann", "bob", k=1, pairs=True), asked("ann", pairs=True)]
    answers = dict(Answers(linker, Settings()).turn(parts))
    assert scorer_of(linker).calls == [[0, 2], [0]]
    assert answers[1][0][0] == answers[0][0][0] and len(answers[1][0]) == 1  # type: ignore[index]


def test_an_error_is_told_to_those_who_share_it_only() -> None:
    wrong = asked("ann", given=Given(None, "no such relation"))
    answers = dict(Answers(small(), Settings()).turn([wrong, asked("bob")]))
    assert "unknown relation" in str(answers[0]) and not isinstance(answers[1], Exception)


def test_answers_over_http_equal_those_without_batching() -> None:
    heads = list(trail().graph.entities)[:40]
    asks = [
        {"references": PAIRS[: 1 + place % 2], "heads": [head, heads[-1 - place]], "k": 1 + place % 7}
        for place, head in enumerate(heads[:20])
    ]

    def all_of(client: Any) -> list[Any]:
        with ThreadPoolExecutor(20) as pool:
            return [a.json()["predictions"] for a in pool.map(lambda ask: client.post("/predict", json=ask), asks)]

    with asking(trail(), gather=0.1) as client:
        together, calls = all_of(client), client.app.state.answers.calls  # type: ignore[attr-defined]
    with asking(trail(), together=1) as client:
        alone, one_by_one = all_of(client), client.app.state.answers.calls  # type: ignore[attr-defined]
    assert one_by_one == 20 and calls < 20
    for batched, single in zip(together, alone, strict=True):
        for row, other in zip(batched, single, strict=True):
            assert {**row, "score": 0, "probability": 0} == {**other, "score": 0, "probability": 0}
            assert row["score"] == pytest.approx(other["score"], rel=1e-5, abs=1e-5)


def test_scoring_has_a_thread_of_its_own_and_the_loop_stays_free() -> None:
    linker = small()
    scorer_of(linker).gate = gate = threading.Event()
    with asking(linker) as client, ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(client.post, "/predict", json={"references": [["ann", "rome"]], "heads": ["bob"]})
        while not scorer_of(linker).calls:
            time.sleep(0.01)
        assert client.get("/health").status_code == 200 and not waiting.done()
        gate.set()
        assert waiting.result(20).status_code == 200
    assert scorer_of(linker).thread == {"fewlink-scoring_0"}


def test_a_full_queue_says_when_to_come_again() -> None:
    linker = small()
    scorer_of(linker).gate = gate = threading.Event()
    ask = {"references": [["ann", "rome"]], "heads": ["bob"]}
    with asking(linker, waiting=2, together=1) as client, ThreadPoolExecutor(8) as pool:
        first = pool.submit(client.post, "/predict", json=ask)
        while not scorer_of(linker).calls:
            time.sleep(0.01)
        others = [pool.submit(client.post, "/predict", json=ask) for _ in range(5)]
        while sum(other.done() for other in others) < 3:
            time.sleep(0.01)
        gate.set()
        answers = [each.result(20) for each in (first, *others)]
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [503] * 3
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert refused.headers["retry-after"] == "1" and refused.json()["error"]["code"] == "busy"


def batched(work: Callable[[Sequence[int], Callable[[int], bool]], Iterable[tuple[int, int]]]) -> Batcher[int, int]:
    return Batcher(work, waiting=10, gather=0.01, together=4)


def test_turns_of_a_batcher() -> None:
    seen: list[list[int]] = []

    def work(questions: Sequence[int], wanted: Callable[[int], bool]) -> Iterable[tuple[int, int]]:
        seen.append(list(questions))
        return [(place, 10 * question) for place, question in enumerate(questions)][::-1]

    async def all_at_once() -> list[int]:
        async with batched(work) as batcher:
            return list(await asyncio.gather(*(batcher.ask(number) for number in range(10))))

    assert asyncio.run(all_at_once()) == [10 * number for number in range(10)]
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_who_leaves_is_dropped_and_what_was_asked_is_answered_before_closing() -> None:
    seen: list[int] = []

    def work(questions: Sequence[int], wanted: Callable[[int], bool]) -> Iterable[tuple[int, int]]:
        seen.extend(questions)
        return enumerate(questions)

    async def some_leave() -> tuple[int, list[int]]:
        batcher = batched(work)
        async with batcher:
            tasks = [asyncio.create_task(batcher.ask(number)) for number in range(3)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            closing = asyncio.create_task(batcher.ask(7))
            await asyncio.sleep(0)
        with pytest.raises(Refusal, match="stopping"):
            await batcher.ask(8)
        return await closing, [await tasks[0], await tasks[2]]

    assert asyncio.run(some_leave()) == (7, [0, 2]) and seen == [0, 2, 7]


def test_an_error_in_a_turn_is_told_and_the_next_turn_comes() -> None:
    def work(questions: Sequence[int], wanted: Callable[[int], bool]) -> Iterable[tuple[int, int]]:
        yield 0, questions[0]
        if len(questions) > 1:
            raise ValueError("broken")

    async def twice() -> tuple[list[Any], int]:
        async with batched(work) as batcher:
            both = await asyncio.gather(batcher.ask(1), batcher.ask(2), return_exceptions=True)
            return both, await batcher.ask(3)

    (first, second), third = asyncio.run(twice())
    assert first == 1 and isinstance(second, ValueError) and third == 3


def test_a_client_that_hangs_up_is_not_scored_and_requests_under_way_are_finished() -> None:
    linker = small()
    scorer_of(linker).gate = gate = threading.Event()
    body = json.dumps({"references": [["ann", "rome"]], "heads": ["bob"]}).encode()
    gone = json.dumps({"references": [["ann", "oslo"]], "heads": ["cy"]}).encode()
    with on_a_port(make_app(linker, Settings(together=1))) as (address, server), ThreadPoolExecutor(1) as pool:
        request = urllib.request.Request(f"{address}/predict", body, {"Content-Type": "application/json"})
        first = pool.submit(lambda: urllib.request.urlopen(request, timeout=20).status)
        while not scorer_of(linker).calls:
            time.sleep(0.01)
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as leaving:
            head = ["POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
            head += [f"Content-Length: {len(gone)}", "", ""]
            leaving.sendall("\r\n".join(head).encode() + gone)
            time.sleep(0.2)
        time.sleep(0.2)
        server.should_exit = True
        time.sleep(0.2)
        assert not first.done()
        gate.set()
        assert first.result(20) == 200
    assert scorer_of(linker).calls == [[2]]
