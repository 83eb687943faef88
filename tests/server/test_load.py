"""The server under load: it refuses costly requests, lets others take turns, and stops soon."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from tests.conftest import benchmark_of, graph_of
from tests.server.servers import Known, asking, eventually, on_a_port, small

from fewlink.linker import Linker
from fewlink.linker.query import References
from fewlink.models.contract import Capabilities, Question
from fewlink.server import ServerSettings
from fewlink.server.app import make_app
from fewlink.server.logs import AccessLog
from fewlink.server.service import FIRST_TURN_HEADS


class Slow(Known):
    """Takes some seconds for each head; `heads` are the heads that it has scored."""

    def __init__(self, seconds: float = 0.05, thread_safe: bool = False) -> None:
        super().__init__()
        self.seconds = seconds
        self.capabilities = Capabilities(thread_safe=thread_safe)

    def __call__(self, question: Question) -> torch.Tensor:
        for _ in question.heads:
            time.sleep(self.seconds)
        return super().__call__(question)

    @property
    def heads(self) -> list[int]:
        return [head for call in self.calls for head in call]


PEOPLE = 60
P1_ID = 2


def crowd(scorer: Known) -> Linker:
    """Sixty people who live in three towns."""
    rows = [f"p{n} lives t{n % 3}" for n in range(PEOPLE)]
    return Linker(benchmark_of(graph_of(*rows)), scorer)


def request_for(*people: int, **more: Any) -> dict[str, Any]:
    return {"references": [["p0", "t1"]], "heads": [f"p{n}" for n in people], "k": 1, **more}


def predict(client: TestClient, body: dict[str, Any]) -> Any:
    return client.post("/predict", json=body)


def test_a_costly_request_is_refused_with_advice_how_to_split_it() -> None:
    scorer = Slow(0.1)
    with asking(crowd(scorer), seconds=2.0, turn=0.2) as client:
        answer = predict(client, request_for(*range(1, PEOPLE)))
        assert answer.status_code == 422 and answer.json()["error"]["code"] == "cost"
        assert len(scorer.heads) <= 2 * FIRST_TURN_HEADS
        match = re.search(r"at most (\d+) heads", answer.json()["error"]["message"])
        assert match and 1 <= int(match[1]) <= 20
        assert predict(client, request_for(*range(1, max(2, int(match[1]) // 2)))).status_code == 200


def test_a_request_that_cannot_be_split_is_not_refused() -> None:
    with asking(crowd(Slow(0.1)), seconds=0.01) as client:
        assert [predict(client, request_for(n)).status_code for n in (1, 2, 3)] == [200] * 3


def test_a_small_request_waits_for_a_turn_of_a_large_one_not_for_its_end() -> None:
    scorer = Slow(0.05)
    with asking(crowd(scorer), turn=0.1, together=1) as client, ThreadPoolExecutor(2) as pool:
        large = pool.submit(predict, client, request_for(*range(2, PEOPLE)))
        eventually(lambda: len(scorer.heads) > FIRST_TURN_HEADS)
        assert predict(client, request_for(1)).status_code == 200
        assert not large.done()
        assert large.result(20).status_code == 200
    assert scorer.heads.index(P1_ID) < len(scorer.heads) - 1
    assert max(map(len, scorer.calls)) <= FIRST_TURN_HEADS


def test_a_thread_safe_model_answers_short_requests_beside_a_long_call() -> None:
    scorer = Slow(0.0, thread_safe=True)
    with asking(crowd(scorer), seconds=10) as client, ThreadPoolExecutor(2) as pool:
        scorer.gate = gate = threading.Event()
        long: Future[Any] = pool.submit(predict, client, request_for(2))
        eventually(lambda: len(scorer.calls) == 1)
        scorer.gate = None
        assert predict(client, request_for(3)).status_code == 200
        assert not long.done()
        gate.set()
        assert long.result(20).status_code == 200
    assert scorer.threads == {"fewlink-scoring_0", "fewlink-scoring_1"}


def test_a_request_that_finds_too_much_work_waiting_gets_a_retry_time() -> None:
    scorer = Slow(0.1)
    with asking(crowd(scorer), seconds=8.0, queued=8.0, turn=0.25, kept=0) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(predict, client, request_for(*range(2, 52)))
        eventually(lambda: len(scorer.heads) > 2 * FIRST_TURN_HEADS)
        answer = predict(client, request_for(*range(2, PEOPLE)))
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "busy"
        assert int(answer.headers["retry-after"]) >= 1
        assert first.result(20).status_code == 200


def test_a_deadline_gives_504_and_stops_the_work() -> None:
    scorer = Slow(0.1)
    with asking(crowd(scorer), deadline=0.5, turn=0.1) as client:
        answer = predict(client, request_for(*range(1, 50)))
        assert answer.status_code == 504 and answer.json()["error"]["code"] == "deadline"
        eventually(lambda: not len(client.app.state.service.batcher))  # type: ignore[attr-defined]
        done = len(scorer.heads)
        assert predict(client, request_for(55)).status_code == 200
        assert len(scorer.heads) <= done + FIRST_TURN_HEADS + 1  # the running turn and the other request


def test_a_stopping_server_cuts_long_requests_off_with_503() -> None:
    scorer = Slow(0.1)
    app = make_app(crowd(scorer), ServerSettings(turn=0.1, drain=0.3))
    with on_a_port(app) as (address, server), ThreadPoolExecutor(1) as pool:
        large = pool.submit(post, address, "/predict", request_for(*range(1, 60)))
        eventually(lambda: len(scorer.heads) > 1)
        server.should_exit = True
        status, content = large.result(20)
        assert status == 503 and content["error"]["code"] == "closing"


def post(address: str, path: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_many_large_bodies_are_refused_while_small_requests_get_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewlink.server.security.MAX_BUFFERED_BYTES", 50_000)
    with on_a_port(make_app(small(), ServerSettings())) as (address, _):
        port = int(address.rpartition(":")[2])
        begin = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\n" + b" " * 60_000
        with socket.create_connection(("127.0.0.1", port), 20) as first:
            first.sendall(begin)
            time.sleep(0.2)
            with socket.create_connection(("127.0.0.1", port), 20) as second:
                second.sendall(begin)
                assert second.recv(1_000).startswith(b"HTTP/1.1 503")
            body = {"references": [["ann", "rome"]], "heads": ["bob"]}
            assert post(address, "/predict", body)[0] == 200


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
    monkeypatch.setattr("fewlink.server.service.MAX_TURN_HEADS", 1)
    assert answers() == whole


def test_constraints_between_too_many_heads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewlink.server.service.MAX_COMPARED_ROWS", 100)
    with asking(crowd(Known())) as client:
        answer = predict(client, request_for(*range(1, 11), constraints=["functional"]))
        assert answer.status_code == 422 and answer.json()["error"]["code"] == "limit"
        assert predict(client, request_for(*range(1, 10), constraints=["functional"])).status_code == 200


def test_metrics_are_counted_by_path_and_status_and_need_the_token() -> None:
    with asking(crowd(Slow(0.05)), token="t", k=5) as client:
        client.headers["Authorization"] = "Bearer t"
        predict(client, request_for(1))
        predict(client, request_for(1, k=9))
        client.get("/projects/7")
        client.get("/no/such/path")
        text = client.get("/metrics").text
        assert client.get("/metrics", headers={"Authorization": "Bearer x"}).status_code == 401
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines['fewlink_requests_total{method="POST",path="/predict",status="200"}']) == 1
    assert float(lines['fewlink_requests_total{method="POST",path="/predict",status="422"}']) == 1
    assert float(lines['fewlink_requests_total{method="GET",path="/projects/{number}",status="404"}']) == 1
    assert float(lines['fewlink_requests_total{method="GET",path="other",status="404"}']) == 1
    assert float(lines['fewlink_refused_total{reason="limit"}']) == 1
    assert float(lines['fewlink_request_seconds_sum{path="/predict"}']) >= 0.05
    assert float(lines["fewlink_waiting_requests"]) == 0 and float(lines["process_resident_memory_bytes"]) > 1e6
    assert any(line.startswith("fewlink_info{") and 'model="known"' in line for line in lines)


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


def test_one_request_orders_all_entities_at_a_time_and_others_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered: list[References] = []
    gate = threading.Event()

    def slowly(linker: Linker, references: References, with_others: bool) -> np.ndarray:
        ordered.append(references)
        assert gate.wait(20)
        return np.arange(2, dtype=np.int32)

    monkeypatch.setattr("fewlink.server.service.heads_by_similarity", slowly)
    with asking(crowd(Known())) as client, ThreadPoolExecutor(3) as pool:
        bodies = [
            {"references": [[f"p{n}", f"t{n % 3}"]], "heads_of_type": "open", "count": 1, "k": 1} for n in (1, 2, 3)
        ]
        costly = [pool.submit(predict, client, body) for body in bodies]
        eventually(lambda: ordered)
        assert predict(client, request_for(1)).status_code == 200
        assert len(ordered) == 1
        gate.set()
        assert [one.result(20).status_code for one in costly] == [200] * 3
