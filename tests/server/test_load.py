"""The server under load: costly questions hold up no small ones, clients share answers, and limits are kept."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from tests.conftest import benchmark_of, graph_of
from tests.server.servers import Known, asking, eventually, on_a_port, small

from fewlink.linker import Linker
from fewlink.models.contract import Capabilities, Question
from fewlink.server import ServerSettings
from fewlink.server.app import make_app
from fewlink.server.process import open_log
from fewlink.server.service import SharedAnswers

PEOPLE = 1_100
QUERY = {"references": [["ann", "rome"]], "heads": ["bob"]}


class Slow(Known):
    """Takes so many seconds for each head."""

    capabilities = Capabilities(thread_safe=True)

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def __call__(self, question: Question) -> torch.Tensor:
        time.sleep(self.seconds * len(question.heads))
        return super().__call__(question)


def crowd(scorer: Known) -> Linker:
    """Many people who live in three towns."""
    return Linker(benchmark_of(graph_of(*(f"p{n} lives t{n % 3}" for n in range(PEOPLE)))), scorer)


def about(people: int) -> dict[str, Any]:
    """A question about the last so many people."""
    return {"references": [["p0", "t1"]], "heads": [f"p{PEOPLE - 1 - n}" for n in range(people)], "k": 1}


def predict(client: TestClient, body: dict[str, Any]) -> Any:
    return client.post("/predict", json=body)


def test_costly_questions_take_turns_and_hold_up_no_small_ones() -> None:
    scorer = Slow(0.001)
    with asking(crowd(scorer)) as client, ThreadPoolExecutor(4) as pool:
        long, other = (pool.submit(predict, client, about(people)) for people in (PEOPLE - 1, PEOPLE - 2))
        eventually(lambda: len(scorer.calls) > 2)
        assert predict(client, about(1)).status_code == 200
        assert client.get("/health").status_code == 200
        assert not long.done() and not other.done()
        assert max(map(len, scorer.calls)) < 100  # heads at a time
        assert [len(one.result(30).json()["predictions"]) for one in (long, other)] == [PEOPLE - 1, PEOPLE - 2]


def test_nothing_more_is_computed_when_the_client_has_gone() -> None:
    scorer = Slow(0.01)
    app = make_app(crowd(scorer), ServerSettings())
    body = json.dumps(about(PEOPLE - 1)).encode()
    header = ["POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    with on_a_port(app) as (address, _):
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as leaving:
            leaving.sendall("\r\n".join([*header, f"Content-Length: {len(body)}", "", ""]).encode() + body)
            eventually(lambda: scorer.calls)
        eventually(lambda: app.state.service.large.requests == 0)
        time.sleep(1)  # a turn that has begun ends
        done = len(scorer.calls)
        time.sleep(1)
        assert len(scorer.calls) == done < PEOPLE // 32


def test_a_question_that_takes_too_long_is_given_up() -> None:
    with asking(crowd(Slow(0.01)), seconds=0.5) as client:
        answer = predict(client, about(PEOPLE - 1))
        assert answer.status_code == 504 and answer.json()["error"]["code"] == "deadline"
        assert predict(client, about(1)).status_code == 200


def test_when_too_many_wait_a_client_is_told_when_to_come_back() -> None:
    scorer = Slow(0.01)
    with asking(crowd(scorer), waiting_large=1, seconds=2) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(predict, client, about(PEOPLE - 1))
        eventually(lambda: scorer.calls)
        answer = predict(client, about(PEOPLE - 2))
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
        assert predict(client, about(1)).status_code == 200
        assert first.result(30).status_code == 504


def test_clients_with_one_question_share_a_computation_and_its_answer() -> None:
    linker = small()
    assert isinstance(linker.scorer, Known)
    scorer = linker.scorer
    scorer.gate = gate = threading.Event()
    with asking(linker, waiting=1) as client, ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(predict, client, QUERY) for _ in range(8)]
        eventually(lambda: scorer.calls)
        gate.set()
        first, *others = [answer.result(20) for answer in answers]
        assert first.status_code == 200 and all(other.json() == first.json() for other in others)
        assert predict(client, QUERY).json() == first.json() and len(scorer.calls) == 1
        predict(client, {**QUERY, "rejected": [["ann", "oslo"]]})
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


def test_constraints_between_too_many_heads_are_refused() -> None:
    with asking(crowd(Known())) as client:
        answer = predict(client, {**about(PEOPLE - 1), "constraints": ["functional"]})
        assert answer.status_code == 422 and answer.json()["error"]["code"] == "limit"
        assert predict(client, {**about(100), "constraints": ["functional"]}).status_code == 200


def test_metrics_are_counted_by_path_and_status_and_need_the_token() -> None:
    with asking(crowd(Slow(0.05)), token="t") as client:
        client.headers["Authorization"] = "Bearer t"
        predict(client, about(1))
        predict(client, {**about(1), "k": 101})
        client.get("/projects/7")
        client.get("/no/such/path")
        text = client.get("/metrics").text
        assert client.get("/metrics", headers={"Authorization": "Bearer x"}).status_code == 401
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    for path, method, status in (
        ("/predict", "POST", 200),
        ("/predict", "POST", 422),
        ("/projects/{number}", "GET", 404),
        ("other", "GET", 404),
    ):
        assert float(lines[f'fewlink_requests_total{{method="{method}",path="{path}",status="{status}"}}']) == 1
    assert float(lines['fewlink_request_seconds_sum{path="/predict"}']) >= 0.05
    assert float(lines['fewlink_waiting_requests{lane="large"}']) == 0
    assert float(lines["process_resident_memory_bytes"]) > 1e6
    assert any(line.startswith("fewlink_info{") and 'model="known"' in line for line in lines)


def test_the_access_log_has_neither_names_nor_tokens(tmp_path: Path) -> None:
    place = tmp_path / "access.log"
    app = make_app(small(), ServerSettings(token="s3cret"), access_log=open_log(str(place)))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        client.headers["Authorization"] = "Bearer s3cret"
        client.get("/entities", params={"q": "ann"})
        place.rename(tmp_path / "access.log.1")  # as logrotate does
        predict(client, QUERY)
        client.get("/about", headers={"Authorization": "Bearer wr0ng"})
    text = (tmp_path / "access.log.1").read_text() + place.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("GET", "/entities", 200),
        ("POST", "/predict", 200),
        ("GET", "/about", 401),
    ]
    assert all(line["bytes"] > 0 and line["seconds"] >= 0 and line["client"] for line in lines)
    assert not any(word in text for word in ("ann", "bob", "s3cret", "wr0ng"))
