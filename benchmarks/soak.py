"""Runs a long mixed load on the server, with kills and restarts, and checks that it loses nothing and does not grow.

python benchmarks/soak.py GRAPH [--minutes 60] [--clients 50] [--kills 6] [--record NAME]

Each client requests predictions, reasons, the next pairs of a project and entities, and decides pairs. In the first
half of the time the benchmark kills the server (SIGKILL) or stops it (SIGTERM) in turn, and restarts it; in the second
half the server runs without interruption. The benchmark samples memory, open files and threads every five seconds, and
prints a line every minute.

`checks` in the record lists each check with the allowed and the measured value. A 503 counts as a failure unless the
server was stopping. Growth is the slope of memory over the second half, without its first third, in which the server
warms up. The exit code is 1 if a check fails. The record is records/NAME.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from measure import print_table, write_record
from serving import ask

MAX_GROWTH = 0.05  # of memory, as a fraction
MAX_MORE_FILES = 10
MAX_MORE_THREADS = 2
MAX_STOP_SECONDS = 10.0
SAMPLE_SECONDS = 5.0
PRINT_SECONDS = 60.0
WEIGHTS = {"predict": 10, "explain": 2, "next": 3, "decide": 5, "entities": 8, "entity": 3, "health": 3}
TIMEOUT_SECONDS = 200.0


class Server:
    """`fewlink serve` in its own process, restarted on the same port."""

    def __init__(self, graph: str, project: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.command = [sys.executable, "-m", "fewlink", "serve", graph, "--port", str(self.port)]
        self.command += ["--project", str(project)]
        self.log = project.with_suffix(".log").open("a")
        self.up = False
        self.starts = 0
        self.stops: list[float] = []  # seconds until the process ended after SIGTERM
        self.crashes = 0

    async def start(self) -> None:
        self.process = subprocess.Popen(self.command, stderr=self.log)
        self.starts += 1
        while True:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended: {Path(self.log.name).read_text()[-2_000:]}")
            try:  # it listens before it has read its graph
                connection = await asyncio.open_connection("127.0.0.1", self.port)
                await ask(*connection, "/health", b"")
                connection[1].close()
                break
            except (OSError, IndexError):
                await asyncio.sleep(0.2)
        self.up = True

    async def stop(self, kind: signal.Signals) -> None:
        self.up = False
        begin = time.perf_counter()
        self.process.send_signal(kind)
        while self.process.poll() is None:
            await asyncio.sleep(0.02)
        if kind == signal.SIGTERM:
            self.stops.append(time.perf_counter() - begin)

    def sample(self) -> dict[str, float]:
        """Resident memory in MiB, open files and threads."""
        place = Path(f"/proc/{self.process.pid}")
        memory = int((place / "statm").read_text().split()[1]) * 4096 / 2**20
        files, threads = (sum(1 for _ in (place / kind).iterdir()) for kind in ("fd", "task"))
        return {"MiB": memory, "open files": files, "threads": threads}


class Load:
    """The requests of all clients, and their outcomes."""

    def __init__(self, server: Server, graph: str) -> None:
        import numpy as np

        from fewlink.linker import load

        linker = load(graph)
        names, triples = linker.graph.entities, linker.graph.triples()
        sizes = np.bincount(triples[:, 1])
        self.relations = []
        for relation in np.argsort(-sizes, kind="stable")[:8].tolist():
            rows = triples[triples[:, 1] == relation][:500].tolist()
            self.relations.append([[names[head], names[tail]] for head, _, tail in rows])
        self.entities = [names[place] for place in range(0, len(names), max(1, len(names) // 500))]
        self.server = server
        self.projects: list[int] = []
        self.statuses: Counter[str] = Counter()
        self.seconds: dict[str, list[float]] = {kind: [] for kind in WEIGHTS}
        self.broken = 0  # connections that broke while the server was up
        self.failed = 0  # answers of 500 and above while the server was up
        self.problems: list[str] = []
        self.decided: set[tuple[int, str, str, str, str]] = set()  # answered with 200; as in `stored_decisions`

    def request(self, draw: random.Random, number: int) -> tuple[str, str, Any]:
        """A kind of request, its path and its body."""
        kind = draw.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        pairs = draw.choice(self.relations)
        references = pairs[: draw.choice([1, 3, 5])]
        head, tail = draw.choice(pairs)
        project = self.projects[number % len(self.projects)]
        if kind == "predict":
            heads = [pair[0] for pair in draw.sample(pairs, min(len(pairs), draw.choice([1, 1, 1, 5])))]
            return kind, "/predict", {"references": references, "heads": heads, "k": 10}
        if kind == "explain":
            return kind, "/explain", {"references": references, "head": head, "tail": tail}
        if kind == "next":
            return kind, f"/projects/{project}/next", {"count": 5}
        if kind == "decide":
            decision = {
                "head": head,
                "tail": draw.choice(self.entities),
                "decision": draw.choice(["accepted", "rejected"]),
            }
            return kind, f"/projects/{project}/decisions", {"decisions": [decision], "who": f"client {number}"}
        if kind == "health":
            return kind, "/health", None
        word = draw.choice(self.entities)
        if kind == "entities":
            return kind, f"/entities?q={word[:4]}", None
        return kind, f"/entity?id={word}", None

    async def client(self, number: int, until: float) -> None:
        draw = random.Random(number)
        connection = None
        while time.monotonic() < until:
            kind, path, body = self.request(draw, number)
            path = re.sub(r"[^\x21-\x7e]|[#%]", "_", path)
            begin = time.perf_counter()
            starts = self.server.starts if self.server.up else -1
            try:
                connection = connection or await asyncio.open_connection("127.0.0.1", self.server.port)
                content = json.dumps(body).encode() if body else b""
                status, answer = await asyncio.wait_for(ask(*connection, path, content), TIMEOUT_SECONDS)
            except (OSError, asyncio.IncompleteReadError, IndexError, ValueError, TimeoutError) as error:
                if self.server.up and starts == self.server.starts:
                    self.broken += 1
                    self.problems.append(f"{kind}: {error!r}")
                if connection is not None:
                    connection[1].close()
                connection = None
                await asyncio.sleep(0.2)
                continue
            if starts > 0:  # else the time of the restart would count
                self.seconds[kind].append(time.perf_counter() - begin)
            self.statuses[f"{status}"] += 1
            if status >= 500 and self.server.up and starts == self.server.starts:
                self.failed += 1
                self.problems.append(f"{kind}: {status} {answer[:300]!r}")
            if kind == "decide" and status == 200:
                one = body["decisions"][0]
                project = self.projects[number % len(self.projects)]
                self.decided.add((project, one["head"], one["tail"], one["decision"], body["who"]))
            if status == 503:
                await asyncio.sleep(1)
            await asyncio.sleep(draw.random() * 0.5)

    async def add_projects(self, count: int) -> None:
        connection = await asyncio.open_connection("127.0.0.1", self.server.port)
        for number in range(count):
            body = {"name": f"relation {number}", "references": self.relations[number % len(self.relations)][:3]}
            status, answer = await ask(*connection, "/projects", json.dumps(body).encode())
            assert status == 201, answer
            self.projects.append(json.loads(answer)["number"])
        connection[1].close()


async def disturb(server: Server, kills: int, seconds: float) -> None:
    """Kill or stop the server at random times, and restart it."""
    draw = random.Random(0)
    for number in range(kills):
        await asyncio.sleep(seconds / kills * (0.5 + draw.random() / 2))
        await server.stop(signal.SIGTERM if number % 2 else signal.SIGKILL)
        await server.start()


async def watch(load: Load, until: float) -> list[dict[str, float]]:
    """Sample the server, print progress, and restart the server if it crashes."""
    server = load.server
    begin = now = time.monotonic()
    printed = 0.0
    samples: list[dict[str, float]] = []
    while now < until:
        code = server.process.poll()
        if server.up and code is not None:
            server.up = False
            server.crashes += 1
            load.problems.append(f"the server crashed with code {code} after {now - begin:.0f} s")
            await server.start()
        if server.up:
            samples.append({"seconds": now - begin, "start": server.starts, **server.sample()})
        if samples and now - begin >= printed:
            printed += PRINT_SECONDS
            print(progress_line(load, samples[-1], (until - now) / 60), flush=True)
        await asyncio.sleep(SAMPLE_SECONDS)
        now = time.monotonic()
    return samples


def progress_line(load: Load, last: dict[str, float], left: float) -> str:
    """One line of progress."""
    counts = f"{sum(load.statuses.values()):,} answers, {load.failed} of 500 and above, {load.broken} broken"
    state = f"{last['MiB']:.0f} MiB, {last['open files']:.0f} files, {last['threads']:.0f} threads"
    health = max(load.seconds["health"], default=0.0)
    return f"{left:.0f} minutes left: {counts}; {state}, start {load.server.starts}; /health at most {health:.3f} s"


def growth_of(samples: Sequence[dict[str, float]], name: str = "MiB") -> float:
    """The growth of a fitted line from the first sample to the last, as a fraction of the mean."""
    times, values = [one["seconds"] for one in samples], [one[name] for one in samples]
    if len(samples) < 3:
        return 0.0
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((at - middle) ** 2 for at in times)
    slope = sum((at - middle) * (value - mean) for at, value in zip(times, values, strict=True)) / spread
    return slope * (times[-1] - times[0]) / mean


def increase_of(samples: Sequence[dict[str, float]], name: str) -> float:
    """The median of the last quarter minus the median of the first."""
    quarter = max(1, len(samples) // 4)
    first, last = (sorted(one[name] for one in some) for some in (samples[:quarter], samples[-quarter:]))
    return last[len(last) // 2] - first[len(first) // 2] if samples else 0.0


def stored_decisions(project: Path, numbers: Sequence[int]) -> set[tuple[int, str, str, str, str]]:
    """Project, head, tail, decision and curator of all events in a project file; exit if the file is damaged."""
    from fewlink.curation.store import ProjectFile

    with closing(sqlite3.connect(project)) as database:
        integrity = database.execute("pragma integrity_check").fetchone()[0]
        if integrity != "ok":
            raise SystemExit(f"the project file is damaged: {integrity}")
    with ProjectFile(project, write=False) as file:
        return {(n, event.head, event.tail, event.kind, event.who) for n in numbers for event in file.log(n)}


async def soak(options: argparse.Namespace, project: Path) -> dict[str, Any]:
    server = Server(options.graph, project)
    load = Load(server, options.graph)
    await server.start()
    await load.add_projects(5)
    seconds = 60 * options.minutes
    until = time.monotonic() + seconds
    clients = [load.client(number, until) for number in range(options.clients)]
    watching = asyncio.create_task(watch(load, until))
    await asyncio.gather(watching, disturb(server, options.kills, seconds / 2), *clients)
    samples = watching.result()
    await server.stop(signal.SIGTERM)

    lost = sorted(load.decided - stored_decisions(project, load.projects))
    undisturbed = [one for one in samples if one["start"] == server.starts]
    warm = undisturbed[len(undisturbed) // 3 :]
    checks = [
        check("responses with status 500 or above while the server was up", 0, load.failed),
        check("connections that broke while the server was up", 0, load.broken),
        check("decisions answered with 200 but missing in the project file", 0, len(lost)),
        check("crashes of the server", 0, server.crashes),
        check("longest seconds from SIGTERM to exit", MAX_STOP_SECONDS, max(server.stops)),
        check("growth of memory when warm", MAX_GROWTH, growth_of(warm)),
        check("increase of open files when warm", MAX_MORE_FILES, increase_of(warm, "open files")),
        check("increase of threads when warm", MAX_MORE_THREADS, increase_of(warm, "threads")),
    ]
    shown = samples[:: max(1, len(samples) // 60)]
    rows = []
    for kind, times in load.seconds.items():
        ordered = sorted(times) or [float("nan")]
        rows.append(
            {
                "kind": kind,
                "requests": len(times),
                "p50 s": ordered[len(ordered) // 2],
                "p95 s": ordered[int(0.95 * (len(ordered) - 1))],
                "most s": ordered[-1],
            }
        )
    return {
        "minutes": options.minutes,
        "clients": options.clients,
        "graph": Path(options.graph).name,
        "checks": checks,
        "rows": rows,
        "statuses": dict(load.statuses),
        "decisions": len(load.decided),
        "starts": server.starts,
        "seconds to stop": server.stops,
        "minutes warm": (warm[-1]["seconds"] - warm[0]["seconds"]) / 60 if warm else 0.0,
        "samples": [{name: round(value) for name, value in one.items()} for one in shown],
        "load average": os.getloadavg()[1],
        "problems": [*load.problems[:20], *(f"lost decision: {one}" for one in lost[:5])],
    }


def check(name: str, allowed: float, measured: float) -> dict[str, Any]:
    """A row of the table of checks."""
    return {"check": name, "allowed": allowed, "measured": measured, "kept": measured <= allowed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--record", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(soak(options, Path(folder) / "project"))
        log = (Path(folder) / "project.log").read_text()
    print_table(results["rows"])
    print_table(results["checks"])
    for name, value in results.items():
        if name not in ("rows", "checks", "samples", "problems"):
            print(f"{name}: {value}")
    print(f"log of the server: {len(log):,} bytes; its end: {log[-300:]}")
    if options.record:
        write_record(options.record, results)
    for problem in results["problems"]:
        print(f"problem: {problem}")
    raise SystemExit(0 if all(row["kept"] for row in results["checks"]) else 1)


if __name__ == "__main__":
    main()
