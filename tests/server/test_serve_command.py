"""`fewlink serve` as a process: starting, answering, stopping, and error messages."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.server.servers import small, trail_run
from typer.testing import CliRunner

from fewlink.cli import app
from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.server import ServerSettings
from fewlink.server.process import (
    EXIT_CODE,
    TOKEN_VARIABLE,
    WORKER_VARIABLE,
    exit_soon,
    inherited_listener,
    read_worker_config,
    trim_every,
)


def serve(*words: str | Path) -> None:
    CliRunner().invoke(app, ["serve", *map(str, words)], catch_exceptions=False)


@pytest.mark.slow
def test_the_server_starts_answers_and_stops() -> None:
    command = [sys.executable, "-m", "fewlink", "serve", str(trail_run()), "--port", "0", "--device", "cpu"]
    environment = {**os.environ, TOKEN_VARIABLE: "s3cret"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr
    try:
        line = process.stderr.readline()
        match = re.search(r"trail .*(http://127\.0\.0\.1:\d+)/", line)
        assert match, line
        with urllib.request.urlopen(f"{match[1]}/health", timeout=20) as answer:
            assert json.load(answer)["status"] == "ok"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{match[1]}/about", timeout=20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM and process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


PASS_ON = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


class Asking(threading.Thread):
    """Sends requests until it is stopped, each over a new connection or all over one that is kept."""

    def __init__(self, port: int, stop: threading.Event, *, keep: bool) -> None:
        super().__init__()
        self.port, self.stop, self.keep = port, stop, keep
        self.answers: list[int] = []
        self.errors: list[Exception] = []

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = {"references": [["ann", "norway"], ["bob", "italy"]], "heads": ["cy"], "candidates": "all"}
        while not self.stop.is_set():
            k = len(self.answers) % 6 + 1
            try:
                connection.request(
                    "POST", "/predict", json.dumps({**body, "k": k}), {"Content-Type": "application/json"}
                )
                with connection.getresponse() as answer:
                    self.answers.append(answer.status)
                    answer.read()
            except Exception as error:
                self.errors.append(error)
            if not self.keep:
                connection.close()


@pytest.mark.slow
def test_processes_that_inherit_a_socket_take_over_without_a_dropped_request(tmp_path: Path) -> None:
    graph = tmp_path / "graph.tsv"
    rows = ["ann in oslo", "bob in rome", "oslo of norway", "rome of italy", "cy in paris", "paris of france"]
    graph.write_text("".join("\t".join(row.split()) + "\n" for row in rows))
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        file, port = listener.fileno(), listener.getsockname()[1]
        command = [sys.executable, "-c", PASS_ON, str(file), "-m", "fewlink", "serve", str(graph), "--project"]

        def started() -> subprocess.Popen[str]:
            words = [*command, str(tmp_path / "decisions")]
            process = subprocess.Popen(words, pass_fds=[file], stderr=subprocess.PIPE, text=True)
            assert process.stderr and f"http://127.0.0.1:{port}/" in process.stderr.readline()
            return process

        def stopped(process: subprocess.Popen[str]) -> None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == -signal.SIGTERM

        clients = [Asking(port, stop, keep=keep) for keep in (True, True, False, False)]
        processes = [started()]
        try:
            for client in clients:
                client.start()
            processes.append(started())  # both accept connections
            stopped(processes[0])
            stopped(processes[1])  # connections wait
            processes.append(started())
            before = [len(client.answers) for client in clients]
            until = time.monotonic() + 30
            while any(len(c.answers) < n + 5 for c, n in zip(clients, before, strict=True)):
                assert time.monotonic() < until
                time.sleep(0.05)
        finally:
            stop.set()
            for client in clients:
                client.join(60)
            for process in processes:
                process.kill()
                process.communicate()
    for client in clients:
        assert not client.errors and set(client.answers) == {200}, (client.errors, set(client.answers))


def test_a_socket_that_is_passed_on_must_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as one:
        monkeypatch.setattr("fewlink.server.process.FIRST_PASSED_FILE", os.dup(one.fileno()))
        environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
        with pytest.raises(FewlinkError, match="LISTEN_FDS=1"):
            inherited_listener(environment)
    assert not environment
    assert inherited_listener({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) is None  # meant for another process


def test_an_inherited_socket_that_others_reach_needs_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    graph = tmp_path / "graph.tsv"
    graph.write_text("a\tr\tb\n")
    with socket.create_server(("0.0.0.0", 0)) as listener:
        monkeypatch.setattr("fewlink.server.process.inherited_listener", lambda environment: listener)
        with pytest.raises(FewlinkError, match=r"0\.0\.0\.0.*--allow-anyone"):
            serve(graph)
        with pytest.raises(FewlinkError, match="--workers"):
            serve(graph, "--workers", "2")


def test_sources_addresses_and_tokens_that_cannot_be_used_raise(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match=tmp_path.name):
        serve(tmp_path, "--port", "0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FewlinkError, match=f"127.0.0.1, port {port} "):
            serve(tmp_path, "--port", str(port))
    with pytest.raises(FewlinkError, match=r"no\.such\.host\.invalid"):
        serve(tmp_path, "--host", "no.such.host.invalid", "--allow-anyone")
    for token in ("", " x", "a\nb", "é"):
        with pytest.raises(FewlinkError, match="token"):
            serve(tmp_path, "--token", token)


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    started: list[str] = []

    def load(source: str, **options: object) -> None:
        started.append(source)
        raise FewlinkError("started")

    monkeypatch.setattr("fewlink.server.process.load", load)
    graph = tmp_path / "graph.tsv"
    graph.write_text("a\tr\tb\n")
    for host in ("0.0.0.0", "::"):
        with pytest.raises(FewlinkError, match=f"{host}.*--allow-anyone"):
            serve(graph, "--port", "0", "--host", host)
    assert not started
    for words in (
        ["--host", "127.0.0.1"],
        ["--host", "0.0.0.0", "--token", "t"],
        ["--host", "0.0.0.0", "--allow-anyone"],
    ):
        with pytest.raises(FewlinkError, match="started"):
            serve(graph, "--port", "0", *words)
    with pytest.raises(FewlinkError, match="access log"):
        serve(graph, "--port", "0", "--access-log", tmp_path / "none" / "log")


def test_options_of_the_command_reach_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: dict[str, Any] = {}
    monkeypatch.setattr("fewlink.server.process.load", lambda source, **options: small())
    monkeypatch.setattr("fewlink.server.process.tune_process", lambda: None)

    def make(linker: object, settings: ServerSettings, project: Path, **more: object) -> None:
        passed.update(settings=settings, project=project, **more)
        raise FewlinkError("made")

    monkeypatch.setattr("fewlink.server.process.make_app", make)
    graph = tmp_path / "graph.tsv"
    graph.write_text("a\tr\tb\n")
    words = ["--most-seconds", "10", "--public-name", "Graph.Example", "--access-log", str(tmp_path / "log")]
    with pytest.raises(FewlinkError, match="made"):
        serve(graph, "--port", "0", *words)
    settings = passed["settings"]
    assert (settings.seconds, settings.queued, settings.deadline) == (10, 20, 25)
    assert settings.hosts == {"localhost", "127.0.0.1", "[::1]", "graph.example"}
    assert passed["access_log"].place == str(tmp_path / "log") and callable(passed["on_stop"])


def test_workers_have_the_token_and_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, Any] = {}

    def run(app: str, **options: Any) -> None:
        started.update(options, environment=dict(os.environ))

    for name in (TOKEN_VARIABLE, WORKER_VARIABLE):
        monkeypatch.setenv(name, "")  # monkeypatch restores them
    monkeypatch.setattr("fewlink.server.process.load", lambda source, **options: small())
    monkeypatch.setattr("fewlink.server.process.uvicorn.run", run)
    graph = tmp_path / "graph.tsv"
    graph.write_text("a\tr\tb\n")
    serve(graph, "--port", "0", "--workers", "2", "--token", "s3cret", "--most-seconds", "10", "--most-heads", "7")
    assert "s3cret" not in started["environment"][WORKER_VARIABLE]
    options, settings = read_worker_config(started["environment"])
    assert options.source == str(graph) and started["http"] is not None
    assert (settings.token, settings.seconds, settings.heads) == ("s3cret", 10, 7)
    assert settings.hosts == {"localhost", "127.0.0.1", "[::1]"}
    assert (started["workers"], started["host"]) == (2, "127.0.0.1")


def test_a_missing_extra_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra, match="'serve'"):
        serve(tmp_path)


def test_a_stopping_process_exits() -> None:
    exited = threading.Event()
    codes: list[int] = []
    exit_soon(0.05, lambda code: (codes.append(code), exited.set()))
    assert exited.wait(20) and codes == [EXIT_CODE]


def test_freed_memory_goes_back_to_the_system_again_and_again() -> None:
    trimmed = threading.Semaphore(0)

    def trim(pad: int) -> None:
        assert pad == 0
        trimmed.release()

    thread = trim_every(0.001, trim)
    assert all(trimmed.acquire(timeout=20) for _ in range(3))
    assert thread.daemon
