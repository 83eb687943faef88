"""`fewlink serve` as a process: starting, answering, stopping, and error messages."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
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
from fewlink.server.process import TOKEN_VARIABLE


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
    graph = tmp_path / "graph.tsv"
    graph.write_text("no triples\n")  # which is told when the graph is read
    for host in ("0.0.0.0", "::"):
        with pytest.raises(FewlinkError, match=f"{host}.*--allow-anyone"):
            serve(graph, "--port", "0", "--host", host)
    for words in (
        ["--host", "127.0.0.1"],
        ["--host", "0.0.0.0", "--token", "t"],
        ["--host", "0.0.0.0", "--allow-anyone"],
    ):
        with pytest.raises(FewlinkError, match=r"graph\.tsv"):
            serve(graph, "--port", "0", *words)
    with pytest.raises(FewlinkError, match="access log"):
        serve(graph, "--port", "0", "--access-log", tmp_path / "none" / "log")


def test_options_of_the_command_reach_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: dict[str, Any] = {}
    monkeypatch.setattr("fewlink.server.process.load", lambda source, **options: small())

    def make(linker: object, settings: ServerSettings, project: Path, **more: object) -> None:
        passed.update(settings=settings, project=project, **more)
        raise FewlinkError("made")

    monkeypatch.setattr("fewlink.server.process.make_app", make)
    graph = tmp_path / "graph.tsv"
    graph.write_text("a\tr\tb\n")
    words = ["--public-name", "Graph.Example", "--access-log", str(tmp_path / "log")]
    with pytest.raises(FewlinkError, match="made"):
        serve(graph, "--port", "0", *words)
    assert passed["settings"].hosts == {"localhost", "127.0.0.1", "[::1]", "graph.example"}
    assert passed["project"] == tmp_path / "graph.tsv.decisions" and (tmp_path / "log").exists()


def test_a_missing_extra_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra, match="'serve'"):
        serve(tmp_path)
