"""Concurrent requests: shared calls, the same answers as alone, a bounded queue, and clients that disconnect."""

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
from tests.server.servers import PAIRS, Known, asking, on_a_port, small, trail

from fewlink.linker import Linker
from fewlink.linker.query import References
from fewlink.linker.ranking import RankedPairs
from fewlink.server import ServerSettings
from fewlink.server.admission import Admission
from fewlink.server.batching import Answer, Answers, Batcher, Part, RankingPart
from fewlink.server.middleware import ApiError
from fewlink.server.server import make_app

ANN, OSLO, BOB, ROME, CY = range(5)
REFERENCES = References(((ANN, ROME),))


def ranking(
    *heads: int,
    k: int = 2,
    references: References = REFERENCES,
    candidates: str | tuple[int, ...] | None = None,
    overall: bool = False,
) -> RankingPart:
    return RankingPart(references, heads, k, candidates, True, overall)


def answers_of(linker: Linker, parts: Sequence[Part]) -> dict[int, Answer]:
    return dict(Answers(linker, ServerSettings()).batch(parts))


def rows(answer: Answer) -> list[tuple[int, int, float, float]]:
    """Head, tail, score and rank of each row."""
    assert isinstance(answer, RankedPairs)
    columns = answer.heads, answer.tails, answer.scores, answer.ranks
    return list(zip(*(column.tolist() for column in columns), strict=True))


def pairs(answer: Answer) -> list[tuple[int, int]]:
    return [(head, tail) for head, tail, *_ in rows(answer)]


def scorer_of(linker: Linker) -> Known:
    assert isinstance(linker.scorer, Known)
    return linker.scorer


def test_parts_with_the_same_references_share_a_call() -> None:
    linker = small()
    other = References(((BOB, OSLO),))
    parts = [ranking(ANN), ranking(BOB, ANN, k=1), ranking(CY, references=other), ranking(CY, k=3)]
    answers = answers_of(linker, parts)
    assert scorer_of(linker).calls == [[ANN, BOB, CY], [CY]]
    for place, part in enumerate(parts):
        assert rows(answers[place]) == rows(answers_of(linker, [part])[0]), part
    assert pairs(answers[1]) == [(BOB, ROME), (ANN, OSLO)]  # ann, rome is known


def test_parts_with_other_candidates_do_not_share_a_call() -> None:
    answers = answers_of(small(), [ranking(BOB, candidates=(tail,)) for tail in (ROME, OSLO)])
    assert [pairs(answers[place]) for place in (0, 1)] == [[(BOB, ROME)], [(BOB, OSLO)]]


def test_a_head_without_candidates_has_no_row() -> None:
    answers = answers_of(small(), [ranking(ANN, candidates=(ROME,)), ranking(BOB, candidates=(ROME,))])
    assert [len(rows(answers[place])) for place in (0, 1)] == [0, 1]


def test_a_call_has_no_more_rows_than_a_request_may_have() -> None:
    linker = small()
    answers = Answers(linker, ServerSettings(rows=4))
    list(answers.batch([ranking(ANN), ranking(BOB), ranking(CY), ranking(OSLO, k=4), ranking(ROME, k=1)]))
    assert scorer_of(linker).calls == [[ANN, BOB], [CY], [OSLO], [ROME]]


def test_best_pairs_share_a_call_only_if_all_heads_are_the_same() -> None:
    linker = small()
    parts = [ranking(ANN, BOB, overall=True), ranking(ANN, BOB, k=1, overall=True), ranking(ANN, overall=True)]
    answers = answers_of(linker, parts)
    assert scorer_of(linker).calls == [[ANN, BOB], [ANN]]
    assert rows(answers[1]) == rows(answers[0])[:1]


def test_an_error_is_sent_to_the_requests_that_share_it_only() -> None:
    answers = answers_of(small(), [ranking(ANN, candidates="full"), ranking(BOB)])
    assert "range of a relation" in str(answers[0]) and not isinstance(answers[1], Exception)


def test_answers_over_http_equal_those_without_batching() -> None:
    heads = list(trail().graph.entities)[:40]
    queries = [
        {"references": PAIRS[: 1 + place % 2], "heads": [head, heads[-1 - place]], "k": 1 + place % 7}
        for place, head in enumerate(heads[:20])
    ]

    def all_of(client: Any) -> list[Any]:
        with ThreadPoolExecutor(20) as pool:
            return [
                a.json()["predictions"] for a in pool.map(lambda query: client.post("/predict", json=query), queries)
            ]

    with asking(trail(), gather=0.1) as client:
        together, calls = all_of(client), client.app.state.answers.calls  # type: ignore[attr-defined]
    with asking(trail(), together=1) as client:
        alone, one_by_one = all_of(client), client.app.state.answers.calls  # type: ignore[attr-defined]
    assert one_by_one == 20 and calls < 20
    for batched, single in zip(together, alone, strict=True):
        for row, other in zip(batched, single, strict=True):
            assert {**row, "score": 0, "probability": 0} == {**other, "score": 0, "probability": 0}
            assert row["score"] == pytest.approx(other["score"], rel=1e-5, abs=1e-5)


def test_scoring_runs_in_its_own_thread_and_the_event_loop_stays_free() -> None:
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


def test_a_full_queue_says_when_to_retry() -> None:
    linker = small()
    scorer_of(linker).gate = gate = threading.Event()
    query = {"references": [["ann", "rome"]], "heads": ["bob"]}
    with asking(linker, waiting=2, together=1) as client, ThreadPoolExecutor(8) as pool:
        first = pool.submit(client.post, "/predict", json=query)
        while not scorer_of(linker).calls:
            time.sleep(0.01)
        others = [pool.submit(client.post, "/predict", json=query) for _ in range(5)]
        while sum(other.done() for other in others) < 3:
            time.sleep(0.01)
        gate.set()
        answers = [each.result(20) for each in (first, *others)]
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [503] * 3
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert refused.headers["retry-after"] == "1" and refused.json()["error"]["code"] == "busy"


def batched(work: Callable[[Sequence[int], Callable[[int], bool]], Iterable[tuple[int, int]]]) -> Batcher[int, int]:
    return Batcher(work, gather=0.01, together=4)


def test_batches_of_a_batcher() -> None:
    seen: list[list[int]] = []

    def work(questions: Sequence[int], wanted: Callable[[int], bool]) -> Iterable[tuple[int, int]]:
        seen.append(list(questions))
        return [(place, 10 * question) for place, question in enumerate(questions)][::-1]

    async def all_at_once() -> list[int]:
        async with batched(work) as batcher:
            return list(await asyncio.gather(*(batcher.ask(number) for number in range(10))))

    assert asyncio.run(all_at_once()) == [10 * number for number in range(10)]
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_cancelled_questions_are_dropped_and_queued_ones_answered_before_closing() -> None:
    seen: list[int] = []

    def work(questions: Sequence[int], wanted: Callable[[int], bool]) -> Iterable[tuple[int, int]]:
        seen.extend(questions)
        return enumerate(questions)

    async def cancel_one() -> tuple[int, list[int]]:
        batcher = batched(work)
        async with batcher:
            tasks = [asyncio.create_task(batcher.ask(number)) for number in range(3)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            closing = asyncio.create_task(batcher.ask(7))
            await asyncio.sleep(0)
        with pytest.raises(ApiError, match="stopping"):
            await batcher.ask(8)
        return await closing, [await tasks[0], await tasks[2]]

    assert asyncio.run(cancel_one()) == (7, [0, 2]) and seen == [0, 2, 7]


def test_an_error_in_a_batch_is_raised_and_the_next_batch_runs() -> None:
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


def test_a_disconnected_client_is_not_scored_and_pending_requests_are_finished() -> None:
    linker = small()
    scorer_of(linker).gate = gate = threading.Event()
    body = json.dumps({"references": [["ann", "rome"]], "heads": ["bob"]}).encode()
    gone = json.dumps({"references": [["ann", "oslo"]], "heads": ["cy"]}).encode()
    with on_a_port(make_app(linker, ServerSettings(together=1))) as (address, server), ThreadPoolExecutor(1) as pool:
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


def test_a_long_turn_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewlink.server.batching.GRACE", 0.2)
    gate = threading.Event()

    def work(questions: Sequence[int], wanted: Callable[[int], bool]) -> Iterable[tuple[int, int]]:
        gate.wait(20)
        return enumerate(questions)

    async def close() -> tuple[list[Any], float]:
        batcher: Batcher[int, int] = Batcher(work)
        async with batcher:
            tasks = [asyncio.create_task(batcher.ask(number)) for number in range(3)]
            await asyncio.sleep(0.05)
            begin = time.monotonic()
        return await asyncio.gather(*tasks, return_exceptions=True), time.monotonic() - begin

    errors, seconds = asyncio.run(close())
    gate.set()
    assert [str(error) for error in errors] == ["the server is stopping"] * 3 and seconds < 5


def test_a_question_in_a_turn_that_does_not_end_is_given_up_at_the_deadline() -> None:
    gate = threading.Event()
    admission = Admission(seconds=60, queued=100, deadline=0.1, requests=3)

    def work(questions: Sequence[int], wanted: Callable[[int], bool]) -> Iterable[tuple[int, int]]:
        gate.wait(20)
        return enumerate(questions)

    async def late() -> tuple[str, float]:
        batcher: Batcher[int, int] = Batcher(work)
        async with batcher:
            with admission.enter(1.0), pytest.raises(ApiError) as caught:
                await asyncio.wait_for(batcher.ask(1, 1.0), 10)
            gate.set()
        return caught.value.code, admission.left

    assert asyncio.run(late()) == ("deadline", 0)
