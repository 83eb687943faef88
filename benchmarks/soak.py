"""A long mixed load on the server, with kills and restarts: nothing is lost, nothing grows, nothing fails.

python benchmarks/soak.py GRAPH [--minutes 60] [--clients 50] [--kills 6] [--record NAME]

Each client asks for predictions, reasons, the next pairs of a project and entities, and decides pairs. In the first
half of the time the server is killed (SIGKILL) or stopped (SIGTERM) and started again; in the second half it runs on,
and its memory is measured. Checked are: every decision that was answered with 200 is in the project file; no answer has
a status of 500 or above except 503 and 504; connections break only while the server is down; memory grows by at most
5 % over the last quarter of the time; SIGTERM ends the server within 10 s. The exit code is 1 if something is wrong;
the record is records/NAME.json.
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
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from measure import print_table, write_record
from serving import ask

GROWTH = 0.05
KINDS = {"predict": 10, "explain": 2, "next": 3, "decide": 5, "entities": 8, "entity": 3, "health": 3}
MOST_SECONDS = 200.0  # of one answer


class Server:
    """`fewlink serve` in its own process, at one port, again and again."""

    def __init__(self, graph: str, project: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.command = [sys.executable, "-m", "fewlink", "serve", graph, "--port", str(self.port)]
        self.command += ["--project", str(project)]
        self.log = project.with_suffix(".log").open("a")
        self.up, self.starts, self.stops = False, 0, list[float]()

    async def start(self) -> None:
        self.process = subprocess.Popen(self.command, stderr=self.log)
        self.starts += 1
        while True:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended: {Path(self.log.name).read_text()[-2_000:]}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                break
            except OSError:
                await asyncio.sleep(0.2)
        self.up = True

    async def stop(self, kind: signal.Signals) -> None:
        self.up, begin = False, time.perf_counter()
        self.process.send_signal(kind)
        while self.process.poll() is None:
            await asyncio.sleep(0.02)
        if kind == signal.SIGTERM:
            self.stops.append(time.perf_counter() - begin)

    @property
    def memory(self) -> float:
        """Resident memory, in MiB."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096 / 2**20


class Load:
    """What all clients send, and what they got."""

    def __init__(self, server: Server, graph: str) -> None:
        import numpy as np

        from fewlink.prediction import load

        linker = load(graph)
        names, triples = linker.graph.entities, linker.graph.triples()
        sizes = np.bincount(triples[:, 1])
        self.relations = []
        for relation in np.argsort(-sizes, kind="stable")[:8].tolist():
            rows = triples[triples[:, 1] == relation][:500].tolist()
            self.relations.append([[names[head], names[tail]] for head, _, tail in rows])
        self.entities = [names[place] for place in range(0, len(names), max(1, len(names) // 500))]
        self.server, self.projects = server, list[int]()
        self.statuses: Counter[str] = Counter()
        self.seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.broken = 0  # connections that broke while the server was up
        self.problems: list[str] = []
        self.decided: list[tuple[int, str, str, str]] = []  # project, head, tail, decision: those answered with 200

    def request(self, draw: random.Random, number: int) -> tuple[str, str, Any]:
        """A kind of request, its path and its body."""
        kind = draw.choices([*KINDS], [*KINDS.values()])[0]
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
        return (kind, f"/entities?q={word[:4]}", None) if kind == "entities" else (kind, f"/entity?id={word}", None)

    async def client(self, number: int, until: float) -> None:
        draw, connection = random.Random(number), None
        while time.monotonic() < until:
            kind, path, body = self.request(draw, number)
            path = re.sub(r"[^\x21-\x7e]|[#%]", "_", path)
            begin, was_up, starts = time.perf_counter(), self.server.up, self.server.starts
            try:
                connection = connection or await asyncio.open_connection("127.0.0.1", self.server.port)
                content = json.dumps(body).encode() if body else b""
                status, answer = await asyncio.wait_for(ask(*connection, path, content), MOST_SECONDS)
            except (OSError, asyncio.IncompleteReadError, IndexError, ValueError, TimeoutError) as error:
                if was_up and self.server.up and starts == self.server.starts:
                    self.broken += 1
                    self.problems.append(f"{kind}: {error!r}")
                if connection is not None:
                    connection[1].close()
                connection = None
                await asyncio.sleep(0.2)
                continue
            self.seconds[kind].append(time.perf_counter() - begin)
            self.statuses[f"{status}"] += 1
            if status >= 500 and status not in (503, 504):
                self.problems.append(f"{kind}: {status} {answer[:300]!r}")
            if kind == "decide" and status == 200:
                one = body["decisions"][0]
                project = self.projects[number % len(self.projects)]
                self.decided.append((project, one["head"], one["tail"], one["decision"]))
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
    """Kill or stop the server now and then, and start it again."""
    draw = random.Random(0)
    for number in range(kills):
        await asyncio.sleep(seconds / kills * (0.5 + draw.random() / 2))
        await server.stop(signal.SIGTERM if number % 2 else signal.SIGKILL)
        await server.start()


async def watch(server: Server, until: float, every: float = 5.0) -> list[tuple[float, float]]:
    """The memory of the server over time."""
    begin, samples = time.monotonic(), []
    while time.monotonic() < until:
        if server.up:
            samples.append((time.monotonic() - begin, server.memory))
        await asyncio.sleep(every)
    return samples


async def soak(options: argparse.Namespace, project: Path) -> dict[str, Any]:
    server = Server(options.graph, project)
    load = Load(server, options.graph)
    await server.start()
    await load.add_projects(5)
    seconds = 60 * options.minutes
    until = time.monotonic() + seconds
    clients = [load.client(number, until) for number in range(options.clients)]
    samples, *_ = await asyncio.gather(watch(server, until), disturb(server, options.kills, seconds / 2), *clients)
    await server.stop(signal.SIGTERM)

    from fewlink.curation.store import ProjectFile

    with ProjectFile(project, write=False) as file:
        kept = {(number, event.head, event.tail, event.kind) for number in load.projects for event in file.log(number)}
    lost = [one for one in load.decided if one not in kept]
    last = [memory for at, memory in samples if at > 0.75 * seconds] or [float("nan")]
    third = max(1, len(last) // 3)
    growth = sum(last[-third:]) / sum(last[:third]) - 1
    problems = load.problems[:20] + [f"lost decision: {one}" for one in lost[:5]]
    if growth > GROWTH:
        problems.append(f"memory grew by {growth:.0%} in the last quarter")
    if max(server.stops) > 10:
        problems.append(f"stopping took {max(server.stops):.1f} s")
    rows = []
    for kind, times in load.seconds.items():
        ordered = sorted(times) or [float("nan")]
        p95 = ordered[int(0.95 * (len(ordered) - 1))]
        rows.append({"kind": kind, "requests": len(times), "p50 s": ordered[len(ordered) // 2], "p95 s": p95})
    return {
        "minutes": options.minutes,
        "clients": options.clients,
        "graph": Path(options.graph).name,
        "rows": rows,
        "statuses": dict(load.statuses),
        "decisions": len(load.decided),
        "lost decisions": len(lost),
        "broken connections": load.broken,
        "starts": server.starts,
        "seconds to stop": server.stops,
        "MiB": [round(memory) for _, memory in samples[:: max(1, len(samples) // 20)]],
        "growth in the last quarter": growth,
        "load average": os.getloadavg()[1],
        "problems": problems,
    }


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
    for name, value in results.items():
        if name not in ("rows", "problems"):
            print(f"{name}: {value}")
    print(f"log of the server: {len(log):,} bytes; its end: {log[-300:]}")
    if options.record:
        write_record(options.record, results)
    for problem in results["problems"]:
        print(f"problem: {problem}")
    raise SystemExit(1 if results["problems"] else 0)


if __name__ == "__main__":
    main()
