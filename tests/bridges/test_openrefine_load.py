"""/reconcile under load: it shares the admission, the deadline and the cancellation of every other endpoint."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.bridges.test_openrefine import serving
from tests.server.servers import eventually, on_a_port, small

from fewlink.bridges.openrefine import Queries
from fewlink.bridges.reconciliation import Property, Reconciler
from fewlink.linker.names import Names
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
    with serving() as client, ThreadPoolExecutor(40) as pool:
        hostile = [pool.submit(client.post, "/reconcile", data=BATCH) for _ in range(40)]
        eventually(lambda: gate.calls)
        assert client.post("/predict", json=PREDICT).status_code == 200
        assert client.get("/entities?q=a").status_code == 200
        assert gate.calls == 1 and not any(one.done() for one in hostile)
        gate.opened.set()
        assert {one.result(20).status_code for one in hostile} <= {200, 503}


def test_the_queries_of_a_client_that_leaves_are_dropped(gate: Gate) -> None:
    app = make_app(small(), ServerSettings(), extensions=["fewlink.bridges.openrefine:install"])
    body = urlencode(BATCH).encode()
    header = ["POST /reconcile HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", "", ""]
    with on_a_port(app) as (address, _):
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as leaving:
            leaving.sendall("\r\n".join(header).encode() + body)
            eventually(lambda: gate.calls)
        eventually(lambda: len(app.state.service.admission) == 0)
        gate.opened.set()
        eventually(lambda: len(app.state.service.slow_lookups) == 0)
    assert gate.calls == 1


def test_every_endpoint_has_a_deadline(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(deadline=0.3) as client:
        assert client.post("/reconcile", data=BATCH).status_code == 504
        monkeypatch.setattr(Names, "complete", lambda *_: gate.opened.wait(20))
        for path in ("/entities?q=a", "/reconcile/suggest/entity?prefix=a"):
            answer = client.get(path)
            assert answer.status_code == 504 and answer.json()["error"]["code"] == "deadline"


def test_columns_are_read_in_threads_some_ids_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()
    read = Queries.known_cells

    def recorded(self: Queries, of: Property, ids: Any, with_known: bool) -> Any:
        threads.add(threading.current_thread().name)
        return read(self, of, ids, with_known)

    monkeypatch.setattr(Queries, "known_cells", recorded)
    monkeypatch.setattr("fewlink.bridges.openrefine.TURN_IDS", 2)
    ids = ["ann", "bob", "cy", "oslo", "nobody"]
    with serving() as client:
        extend = {"ids": ids, "properties": [{"id": "lives"}]}
        rows = client.post("/reconcile", data={"extend": json.dumps(extend)}).json()["rows"]
    assert [len(rows[id_]["lives"]) for id_ in ids] == [1, 1, 1, 0, 0]
    assert threads and all(name.startswith("fewlink-lookup") for name in threads)


def test_values_cells_and_fields_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
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
        monkeypatch.setattr("fewlink.bridges.openrefine.MAX_EXTENDED_VALUES", 1)
        both = {"ids": ["ann", "bob"], "properties": [{"id": "lives"}]}
        assert client.post("/reconcile", data={"extend": json.dumps(both)}).status_code == 413


def test_a_batch_that_would_take_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reconciler, "match", lambda *_: threading.Event().wait(0.05) or [])
    with serving(seconds=0.5) as client:
        answer = client.post("/reconcile", data=BATCH)
        assert answer.status_code == 422 and answer.json()["error"]["code"] == "cost"
