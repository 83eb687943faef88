"""Linkers to serve, clients of an app in this process, and servers on a free port."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import uvicorn
from fastapi.testclient import TestClient
from tests.conftest import benchmark_of, graph_of, task_of
from tests.linker.linkers import fsrl, trail, trail_run

from fewlink.graph import Graph, TypeTable, Vocabulary
from fewlink.linker import Linker
from fewlink.models.contract import Question
from fewlink.server import ServerSettings
from fewlink.server.app import make_app
from fewlink.server.process import UVICORN_OPTIONS, listen

__all__ = ["PAIRS", "Known", "asking", "eventually", "fsrl", "namesakes", "on_a_port", "small", "trail", "trail_run"]
PAIRS = [["virus", "cell"], ["fungus", "plant"]]


class Known:
    """Scores a tail with its number plus a hundredth of the head's. Records calls, and waits for `gate` if set."""

    name = "known"

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gate: threading.Event | None = None
        self.threads: set[str] = set()

    def __call__(self, question: Question) -> torch.Tensor:
        self.calls.append(question.heads.tolist())
        self.threads.add(threading.current_thread().name)
        if self.gate is not None:
            assert self.gate.wait(20)
        scores = question.candidates[None].astype(np.float32) + question.heads[:, None] / 100
        return torch.from_numpy(scores.astype(np.float32))


def small() -> Linker:
    """ann, bob and cy live in oslo, rome and oslo; visited is a task."""
    rows = ("ann lives oslo", "bob lives rome", "cy lives oslo", "oslo near rome", "ann knows bob")
    plain = graph_of(*rows)
    types = TypeTable.of([b"person", b"city", b"ghost"], np.arange(5), np.array([0, 1, 0, 1, 0]), 5)
    graph = Graph.of(plain.entities, plain.relations, plain.triples(), types=types)
    task = task_of([(0, 1), (2, 3), (4, 3), (0, 3)], [1, 3], name="visited")
    return Linker(benchmark_of(graph, test=[task]), Known())


def namesakes() -> Linker:
    """Four people live in three towns. Two people are called Bob, and two towns Paris."""
    rows = ("ann lives paris_1", "bob_1 lives paris_2", "bob_2 lives oslo", "cy lives paris_2", "ann knows cy")
    plain = graph_of(*rows)
    labels = Vocabulary.of([*(name.split("_")[0].title() for name in plain.entities), *plain.relations])
    graph = Graph.of(plain.entities, plain.relations, plain.triples(), labels=labels)
    return Linker(benchmark_of(graph), Known())


def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds; fail if it does not within twenty seconds."""
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


@contextmanager
def asking(linker: Linker, **settings: Any) -> Iterator[TestClient]:
    """A client of an app that serves this linker. Exceptions of the app become answers."""
    app = make_app(linker, ServerSettings(**settings))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@contextmanager
def on_a_port(app: Any, **options: Any) -> Iterator[tuple[str, uvicorn.Server]]:
    """Run a server in a thread; yield its address and the server. `options` are uvicorn's."""
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, **{**UVICORN_OPTIONS, **options}))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
