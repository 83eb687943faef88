"""/reconcile under load: it waits in the lanes of every other question, and stops when the client has gone."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.bridges.test_openrefine import serving
from tests.server.servers import eventually, on_a_port, small

from fewlink.bridges import openrefine
from fewlink.bridges.reconciliation import Reconciler
from fewlink.server import ServerSettings
from fewlink.server.app import make_app

PREDICT = {"references": [["ann", "rome"]], "heads": ["bob"]}
BATCH = {"queries": json.dumps({str(n): {"query": "ann"} for n in range(50)})}


class Gate:
    """Replaces the matching of names: counts the calls, and waits until it is opened."""

    def __init__(self) -> None:
        self.calls = 0
        self.opened = threading.Event()

    def match(self, *_: Any) -> list[dict[str, Any]]:
        self.calls += 1
        assert self.opened.wait(20)
        return []


@pytest.fixture()
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(Reconciler, "match", gate.match)
    yield gate
    gate.opened.set()


def test_predictions_do_not_wait_for_clients_that_reconcile(gate: Gate) -> None:
    with serving() as client, ThreadPoolExecutor(20) as pool:
        hostile = [pool.submit(client.post, "/reconcile", data=BATCH) for _ in range(20)]
        eventually(lambda: gate.calls)
        assert client.post("/predict", json=PREDICT).status_code == 200
        assert client.get("/entities?q=a").status_code == 200
        assert gate.calls == 1 and not any(one.done() for one in hostile)
        gate.opened.set()
        assert {one.result(20).status_code for one in hostile} <= {200, 503}


def test_the_queries_of_a_client_that_leaves_are_dropped(gate: Gate) -> None:
    app = make_app(small(), ServerSettings(), extensions=[openrefine.install])
    body = urlencode(BATCH).encode()
    header = ["POST /reconcile HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", "", ""]
    with on_a_port(app) as (address, _):
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as leaving:
            leaving.sendall("\r\n".join(header).encode() + body)
            eventually(lambda: gate.calls)
        eventually(lambda: app.state.service.large.requests == 0)
        gate.opened.set()
        time.sleep(0.5)
    assert gate.calls == 1


def test_a_batch_has_a_deadline(gate: Gate) -> None:
    with serving(seconds=0.3) as client:
        assert client.post("/reconcile", data=BATCH).status_code == 504


def test_values_cells_and_fields_are_bounded() -> None:
    value = {"pid": "lives", "v": "oslo"}
    with serving() as client:
        for properties in ([value] * 21, [{"pid": "lives", "v": ["oslo"] * 21}]):
            answer = client.post(
                "/reconcile", data={"queries": json.dumps({"q": {"query": "a", "properties": properties}})}
            )
            assert answer.status_code == 422, answer.text
        many = {"ids": [str(n) for n in range(10_000)], "properties": [{"id": "lives"}] * 3}
        assert client.post("/reconcile", data={"extend": json.dumps(many)}).status_code == 413
        assert client.post("/reconcile", content=b"a=&" * 300_000).status_code == 413
