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
from tests.web.servers import trail_run
from typer.testing import CliRunner

from fewlink.base.errors import FewlinkError, MissingExtra
from fewlink.cli import app
from fewlink.web.server import GIVEN, TOKEN, ServeOptions, from_environment


def serve(*words: str | Path) -> None:
    CliRunner().invoke(app, ["serve", *map(str, words)], catch_exceptions=False)


@pytest.mark.slow
def test_the_server_starts_answers_and_stops() -> None:
    command = [sys.executable, "-m", "fewlink", "serve", str(trail_run()), "--port", "0", "--device", "cpu"]
    environment = {**os.environ, TOKEN: "s3cret"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr
    try:
        line = process.stderr.readline()
        match = re.fullmatch(r"trail-0\.1 on umls: (http://127\.0\.0\.1:\d+)/ \(Ctrl-C stops\)\n", line)
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


def test_what_cannot_be_served_raises(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match="is not a training run"):
        serve(tmp_path, "--port", "0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            FewlinkError, match=f"cannot listen on 127.0.0.1, port {port} .*: choose others with --host"
        ):
            serve(tmp_path, "--port", str(port))
    with pytest.raises(FewlinkError, match=r"cannot listen on no\.such\.host\.invalid"):
        serve(tmp_path, "--host", "no.such.host.invalid")
    for token in ("", " x", "a\nb", "é"):
        with pytest.raises(FewlinkError, match="the token is empty"):
            serve(tmp_path, "--token", token)


def test_a_missing_extra_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra, match="fewlink serve needs the extra 'serve'"):
        serve(tmp_path)


def test_a_worker_reads_its_environment() -> None:
    place = ServeOptions(str(trail_run())).place
    config = {"place": place, "limits": {"heads": 7, "k": 8, "hosts": ["localhost"]}, "project": "x.decisions"}
    app = from_environment({GIVEN: json.dumps(config), TOKEN: "t"})
    settings = app.state.answers.settings
    assert (settings.heads, settings.k, settings.token, settings.hosts) == (7, 8, "t", frozenset({"localhost"}))
    assert app.state.projects.path == Path("x.decisions")
