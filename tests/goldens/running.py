"""What every golden needs: the command in this process, a running server, and small files to ask about."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import fewlink
from fewlink.__main__ import main

RECORDS = Path(__file__).parent / "records"
DECISIONS = RECORDS / "attack.decisions"  # a project file of version 0.3, which later versions open
PEOPLE = [
    *("source,link,target", "ann,lives in,oslo", "bob,lives in,rome", "cy,lives in,oslo", "dee,lives in,rome"),
    *("oslo,is in,norway", "rome,is in,italy", "ann,knows,cy", "bob,knows,dee", "eve,knows,ann", "eve,lives in,oslo"),
    *("dan,lives in,rome", "dan,knows,bob", "ann,born in,norway", "bob,born in,italy"),
]


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def command(*words: object) -> Ran:
    """Run `fewlink WORDS …` in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv = mock.patch.object(sys, "argv", ["fewlink", *map(str, words)])
    with argv, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    return Ran(code, out.getvalue(), err.getvalue())


def succeeds(*words: object) -> Ran:
    """Run a command that must succeed."""
    ran = command(*words)
    assert ran.code == 0, (words, ran.err)
    return ran


def umls_file(folder: Path) -> Path:
    """All triples of the built-in benchmark `umls` as one file."""
    benchmark = fewlink.open_benchmark("umls")
    graph = benchmark.graph
    names = graph.entities
    lines = [(names[h], graph.relations[r], names[t]) for h, r, t in graph.triples().tolist()]
    for tasks in benchmark.tasks.values():
        lines += [(names[h], task.name, names[t]) for task in tasks for h, t in task.pairs.tolist()]
    path = folder / "umls.tsv"
    path.write_text("".join("\t".join(line) + "\n" for line in lines))
    return path


def people_file(folder: Path) -> Path:
    """A small table with a header, separated by commas."""
    path = folder / "people.csv"
    path.write_text("\n".join(PEOPLE) + "\n")
    return path


class Server:
    """A client of `fewlink serve`."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: object = None, data: bytes | None = None) -> tuple[int, Any]:
        """The status and the answer of a request; with a body it is a POST."""
        sent = data if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.address + path, sent, headers)) as answer:
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _parsed(error.read())

    def get(self, path: str, body: object = None) -> Any:
        """The answer of a request that must succeed."""
        status, answer = self.ask(path, body)
        assert status in (200, 201), (path, answer)
        return answer


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode("utf-8-sig")


@contextlib.contextmanager
def serving(source: str, folder: Path, project: Path) -> Iterator[Server]:
    """A server on a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", source, "--port", str(port), "--project", str(project)]
    environment: Mapping[str, str] = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "fewlink", *words], stdout=log, stderr=log, env=environment)
    server, until = Server(port), time.monotonic() + 60
    try:
        while True:
            assert process.poll() is None and time.monotonic() < until, (folder / "server.log").read_text()
            with contextlib.suppress(urllib.error.URLError):
                server.ask("/health")
                break
            time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait(20)


def nell_one() -> Path | None:
    """The folder of NELL-One in `shared/data` beside the checkout or beside a folder above it, if it is there."""
    for folder in Path(__file__).resolve().parents:
        if (found := folder / "shared" / "data" / "nell-one").is_dir():
            return found
    return None
