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

import pytest
from tests.server.servers import trail_run
from typer.testing import CliRunner

from fewlink.cli import app
from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.server.process import TOKEN_VARIABLE


def serve(*words: str | Path) -> None:
    CliRunner().invoke(app, ["serve", *map(str, words)], catch_exceptions=False)


def code_of(asked: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
def test_the_server_starts_answers_and_stops(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "fewlink", "serve", str(trail_run()), "--port", "0", "--device", "cpu"]
    command += ["--public-name", "Graph.Example", "--access-log", str(log), "--project", str(tmp_path / "project")]
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
        for host, code in (("graph.example", 200), ("other.example", 421)):
            asked = urllib.request.Request(f"{match[1]}/about")
            asked.add_header("Host", host)
            asked.add_header("Authorization", "Bearer s3cret")
            assert code_of(asked) == code
        assert "/about" in log.read_text()
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


def test_a_missing_extra_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra, match="'serve'"):
        serve(tmp_path)
