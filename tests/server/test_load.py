"""The server under load: costly requests are refused or take turns, nobody is kept waiting, and the end comes soon."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from tests.conftest import benchmark_of, graph_of
from tests.server.servers import Known, asking, on_a_port, small

from fewlink.linker import Linker
from fewlink.linker.query import References
from fewlink.scorers import Question
from fewlink.server import ServerSettings
from fewlink.server.estimates import FIRST
from fewlink.server.logs import AccessLog
from fewlink.server.middleware import PIECE, as_json
from fewlink.server.schema import PredictRequest
from fewlink.server.server import make_app
from fewlink.server.service import preparation_of


class Slow(Known):
    """Each head takes some seconds; `heads` are those that were scored."""

    def __init__(self, seconds: float = 0.05, thread_safe: bool = False) -> None:
        super().__init__()
        self.seconds, self.thread_safe = seconds, thread_safe

    def __call__(self, question: Question) -> torch.Tensor:
        for _ in question.heads:
            time.sleep(self.seconds)
        return super().__call__(question)

    @property
    def heads(self) -> list[int]:
        return [head for call in self.calls for head in call]


PEOPLE = 60


def crowd(scorer: Known) -> Linker:
    """Sixty people who live in three towns."""
    rows = [f"p{n} lives t{n % 3}" for n in range(PEOPLE)]
    return Linker(benchmark_of(graph_of(*rows)), scorer)


def asked(*people: int, **more: Any) -> dict[str, Any]:
    return {"references": [["p0", "t1"]], "heads": [f"p{n}" for n in people], "k": 1, **more}


def predict(client: TestClient, body: dict[str, Any]) -> Any:
    return client.post("/predict", json=body)


def wait_for(true: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_costly_request_is_refused_at_once_with_its_estimate_and_how_to_split_it() -> None:
    scorer = Slow(0.1)
    with asking(crowd(scorer), seconds=2.0) as client:
        assert predict(client, asked(1)).status_code == predict(client, asked(2)).status_code == 200
        answer = predict(client, asked(*range(1, PEOPLE)))
        assert answer.status_code == 422 and answer.json()["error"]["code"] == "cost"
        message = answer.json()["error"]["message"]
        match = re.fullmatch(
            r"this request would take about (\d+) s, and this server allows 2 s for one request: ask for at most (\d+) "
            r"heads at a time, or start the server with a higher --most-seconds",
            message,
        )
        assert match, message
        assert 4 <= int(match[1]) <= 9 and 12 <= int(match[2]) <= 20
        assert len(scorer.heads) == 2
        assert predict(client, asked(*range(1, int(match[2])))).status_code == 200


def test_a_request_that_cannot_be_split_is_not_refused() -> None:
    with asking(crowd(Slow(0.3)), seconds=0.01) as client:
        assert [predict(client, asked(n)).status_code for n in (1, 2, 3)] == [200] * 3
        assert predict(client, asked(1, 2)).status_code == 422


def test_a_small_request_waits_for_a_turn_of_a_large_one_not_for_its_end() -> None:
    scorer = Slow(0.05)
    with asking(crowd(scorer), turn=0.1, together=1) as client, ThreadPoolExecutor(2) as pool:
        predict(client, asked(1))
        predict(client, asked(1))  # now the cost of a head is known
        large = pool.submit(predict, client, asked(*range(2, PEOPLE)))
        wait_for(lambda: len(scorer.heads) > 4)
        start = time.monotonic()
        assert predict(client, asked(1)).status_code == 200
        assert time.monotonic() - start < 1.5 and not large.done()
        assert large.result(20).status_code == 200
    assert max(map(len, scorer.calls)) <= 4


def test_a_thread_safe_model_answers_short_requests_beside_a_long_turn() -> None:
    scorer = Slow(0.0, thread_safe=True)
    with asking(crowd(scorer), seconds=10) as client, ThreadPoolExecutor(2) as pool:
        predict(client, asked(1))
        scorer.gate = gate = threading.Event()
        costs = client.app.state.answers.estimates.costs  # type: ignore[attr-defined]
        for size in (1, 1 << 30):
            costs.observe("head", size, 1, 100.0)
        long: Future[Any] = pool.submit(predict, client, asked(2))
        wait_for(lambda: len(scorer.calls) == 2)
        scorer.gate = None
        for size in (1, 1 << 30):
            for _ in range(30):
                costs.observe("head", size, 1, 0.0)
        assert predict(client, asked(3)).status_code == 200
        assert not long.done()
        gate.set()
        assert long.result(20).status_code == 200
    assert scorer.thread == {"fewlink-scoring_0", "fewlink-scoring_1"}


def test_requests_that_take_too_long_together_are_told_when_to_come_back() -> None:
    scorer = Slow(0.1)
    with asking(crowd(scorer), seconds=8.0, queued=8.0) as client, ThreadPoolExecutor(2) as pool:
        predict(client, asked(1))
        predict(client, asked(1))
        first = pool.submit(predict, client, asked(*range(2, 52)))
        wait_for(lambda: len(scorer.heads) > 3)
        answer = predict(client, asked(*range(2, 52)))
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "busy"
        assert 1 <= int(answer.headers["retry-after"]) <= 4
        assert first.result(20).status_code == 200


def test_references_that_a_waiting_request_reads_are_counted_once() -> None:
    scorer = Slow(0.1)
    with asking(crowd(scorer)) as client, ThreadPoolExecutor(1) as pool:
        service = client.app.state.service  # type: ignore[attr-defined]
        whole = service.resolver.ranking(PredictRequest.model_validate(asked(1)))[0]

        def cost() -> float:
            return float(service._cost(whole, service._size(whole))[0])

        with service.admission.enter(0.0) as other:
            before, other.reads = cost(), whole.references.pairs
            assert 0 < cost() < before
        first = pool.submit(predict, client, asked(*range(2, 12)))
        wait_for(lambda: service.admission.is_read(whole.references.pairs))
        assert first.result(20).status_code == 200 and not service.admission.is_read(whole.references.pairs)


def test_a_deadline_gives_504_and_stops_the_work() -> None:
    scorer = Slow(0.1)
    with asking(crowd(scorer), deadline=0.5, turn=0.1) as client:
        answer = predict(client, asked(*range(1, 50)))
        assert answer.status_code == 504 and answer.json()["error"]["code"] == "deadline"
        assert answer.json()["error"]["message"].startswith("no answer within 0.5 s, the most that this server takes")
        time.sleep(1.5)
        assert len(scorer.heads) <= FIRST  # the turn that was running


def test_a_stopping_server_answers_503_to_what_is_left_within_seconds() -> None:
    scorer = Slow(0.1)
    app = make_app(crowd(scorer), ServerSettings(turn=0.1))
    with on_a_port(app) as (address, server), ThreadPoolExecutor(1) as pool:
        large = pool.submit(post, address, "/predict", asked(*range(1, 60)))
        wait_for(lambda: len(scorer.heads) > 1)
        start = time.monotonic()
        server.should_exit = True
        status, content = large.result(20)
        assert status == 503 and content["error"]["message"] == "the server is stopping"
    assert time.monotonic() - start < 8


def post(address: str, path: str, body: Any) -> tuple[int, Any]:
    import urllib.error
    import urllib.request

    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_turns_do_not_change_the_answer_with_constraints_between_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [
        {"references": [["ann", "rome"]], **heads, "k": 3, "candidates": "all", "constraints": [kind]}
        for heads in ({"heads": ["bob", "cy", "oslo"]}, {"heads_of_type": "person"})
        for kind in ("functional", "inverse-functional", "symmetric")
    ]

    def answers() -> Sequence[Any]:
        with asking(small()) as client:
            return [predict(client, body).json() for body in bodies]

    whole = answers()
    assert all(answer["predictions"] for answer in whole)
    monkeypatch.setattr("fewlink.server.service.TURN", 1)
    assert answers() == whole


def test_settling_many_heads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewlink.server.service.MOST_SETTLED", 100)
    with asking(crowd(Known())) as client:
        answer = predict(client, asked(*range(1, 11), constraints=["functional"]))
        assert answer.status_code == 422 and "ask for at most 9" in answer.json()["error"]["message"]
        assert predict(client, asked(*range(1, 10), constraints=["functional"])).status_code == 200


def test_metrics_are_counted_by_path_and_status_and_need_the_token(tmp_path: Path) -> None:
    with asking(crowd(Slow(0.1)), token="t", seconds=0.15, k=5) as client:
        client.headers["Authorization"] = "Bearer t"
        predict(client, asked(1))
        predict(client, asked(1))
        predict(client, asked(1, 2, 3))
        predict(client, asked(1, k=9))
        client.get("/projects/7")
        client.get("/no/such/path")
        text = client.get("/metrics").text
        assert client.get("/metrics", headers={"Authorization": "Bearer x"}).status_code == 401
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['fewlink_requests_total{path="/predict",method="POST",status="200"}'] == "2"
    assert lines['fewlink_requests_total{path="/predict",method="POST",status="422"}'] == "2"
    assert lines['fewlink_requests_total{path="/projects/{number}",method="GET",status="404"}'] == "1"
    assert lines['fewlink_requests_total{path="other",method="GET",status="404"}'] == "1"
    assert lines['fewlink_refused_total{reason="cost"}'] == lines['fewlink_refused_total{reason="limit"}'] == "1"
    assert float(lines['fewlink_request_seconds_sum{path="/predict"}']) >= 0.2
    assert lines["fewlink_waiting_requests"] == "0" and float(lines["process_resident_memory_bytes"]) > 1e6
    assert any(line.startswith('fewlink_info{version="') and 'model="known"' in line for line in lines)


def test_the_access_log_has_neither_names_nor_tokens(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "access.log"))
    app = make_app(small(), ServerSettings(token="s3cret"), access_log=log)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        client.headers["Authorization"] = "Bearer s3cret"
        client.get("/entities", params={"q": "ann"})
        predict(client, {"references": [["ann", "rome"]], "heads": ["bob"]})
        client.get("/about", headers={"Authorization": "Bearer wr0ng"})
    text = (tmp_path / "access.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("GET", "/entities", 200),
        ("POST", "/predict", 200),
        ("GET", "/about", 401),
    ]
    assert all(line["bytes"] > 0 and line["seconds"] >= 0 and line["client"] for line in lines)
    assert lines[1]["queue_seconds"] > 0
    assert not any(word in text for word in ("ann", "bob", "s3cret", "wr0ng"))


def of_like(place: int) -> dict[str, Any]:
    """The best pair of all heads like the one of a reference; another reference for each place."""
    return {"references": [[f"p{place}", f"t{place % 3}"]], "heads_of_type": "open", "count": 1, "k": 1}


def test_a_request_is_refused_before_its_heads_are_ordered_and_others_do_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ordered: list[References] = []
    gate = threading.Event()

    def slowly(linker: Linker, references: References, others: bool) -> np.ndarray:
        ordered.append(references)
        assert gate.wait(20)
        return np.arange(2, dtype=np.int32)

    monkeypatch.setattr("fewlink.server.service.by_likeness", slowly)
    with asking(crowd(Known()), seconds=10, queued=20) as client, ThreadPoolExecutor(12) as pool:
        costs = client.app.state.answers.estimates.costs  # type: ignore[attr-defined]
        costs.observe("prepare likeness", 2, 1, 6.0)
        costly = [pool.submit(predict, client, of_like(place)) for place in range(1, 13)]
        wait_for(lambda: sum(one.done() for one in costly) == 9)  # three of 6 s are let in
        refused = [one.result() for one in costly if one.done()]
        assert {answer.status_code for answer in refused} == {503}
        assert all("Retry-After" in answer.headers for answer in refused)
        assert predict(client, asked(1)).status_code == 200  # a short one is prepared beside them
        assert len(ordered) == 1
        gate.set()
        assert sorted(one.result(20).status_code for one in costly) == [200] * 3 + [503] * 9
        assert len(ordered) == 3


def test_what_was_prepared_recently_costs_nothing_again() -> None:
    with asking(crowd(Known()), seconds=10, queued=20) as client:
        assert predict(client, of_like(1)).status_code == 200
        estimates = client.app.state.answers.estimates  # type: ignore[attr-defined]
        known, new = (preparation_of(PredictRequest.model_validate(of_like(place))) for place in (1, 2))
        assert known[0] == "likeness" and estimates.preparation(*known) == 0 < estimates.preparation(*new)


def test_a_long_answer_is_written_as_json_writes_it() -> None:
    rows = [{"n": place, "é": None} for place in range(2 * PIECE + 1)]
    content = {"a": rows, "b": {}, "c": [], 'd"': {"e": rows[:PIECE]}, "f": 0.5}
    assert as_json(content).body == json.dumps(content).encode()
    with pytest.raises(ValueError, match="JSON"):
        as_json({"a": [*rows, float("nan")]})
