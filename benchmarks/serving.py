"""Measures `fewlink serve` under load: latency beside costly questions, answers a second, and memory over time.

python benchmarks/serving.py GRAPH [--seconds 20] [--minutes 10] [--record NAME]

1. Small questions (three references, one head) and /health, alone and beside eight clients that repeat costly questions
   (200 references, 50 heads, all candidates).
2. Fifty clients that all ask the same, that ask about heads of one relation, and that ask about different relations.
3. A mixture of all of these, reasons, entities and decisions for some minutes: the memory of the server in the last
   minute, compared with the third one.

The server runs in a process of its own, and keeps answers as it does for users. The record is records/NAME.json.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from measure import print_table, write_record

COSTLY_CLIENTS = 8
SAMPLE_SECONDS = 5.0  # between two looks at the memory of the server
Ask = tuple[str, bytes]  # a path, and a body unless it is a GET
Asks = Iterator[Ask]


@dataclass
class Answers:
    """The seconds of each answer, and refused or failed requests."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def row(self, name: str, passed: float) -> dict[str, Any]:
        ordered = sorted(self.seconds) or [float("nan")]
        for line in self.errors[:3]:
            print(f"{name}: {line}")
        return {
            "load": name,
            "answers/s": len(self.seconds) / passed,
            "p50 ms": 1000 * ordered[len(ordered) // 2],
            "p95 ms": 1000 * ordered[int(0.95 * (len(ordered) - 1))],
            "most ms": 1000 * ordered[-1],
            "answers": len(self.seconds),
            "errors": len(self.errors),
        }


@contextmanager
def serving(graph: str) -> Iterator[tuple[int, int]]:
    """Run a server; yield its port and its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fewlink", "serve", graph, "--port", str(port)]
        process = subprocess.Popen([*command, "--project", f"{folder}/decisions"], stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr
            line = process.stderr.readline()
            if str(port) not in line:
                raise SystemExit(f"the server did not start: {line}")
            yield port, process.pid
        finally:
            process.terminate()
            process.wait(60)


def resident(process: int) -> float:
    """The memory of a process, in MiB."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes) -> int:
    """Send a request over an open connection; return the status of the response once it has arrived."""
    head = [f"{'POST' if body else 'GET'} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    writer.write("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    status = int((await reader.readline()).split()[1])
    length = 0
    while line := (await reader.readline()).strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    await reader.readexactly(length)
    return status


async def client(port: int, asks: Asks, until: float, answers: Answers, pause: float = 0.0) -> None:
    """Send requests one after another until the time is over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        path, body = next(asks)
        start = time.perf_counter()
        status = await asyncio.wait_for(exchange(reader, writer, path, body), 200)
        if status in (200, 201):
            answers.seconds.append(time.perf_counter() - start)
        else:
            answers.errors.append(f"{path}: {status}")
        await asyncio.sleep(pause)
    writer.close()


async def together(*clients: Any) -> None:
    """Run all clients; one that a closed connection ends does not end the others."""
    for result in await asyncio.gather(*clients, return_exceptions=True):
        if isinstance(result, Exception):
            print(f"a client ended: {result!r}")


class Questions:
    """Requests about the largest relations of a graph."""

    def __init__(self, graph: str) -> None:
        import numpy as np

        from fewlink.linker import load

        found = load(graph).graph
        triples = found.triples()
        self.names = found.entities
        self.draw = np.random.default_rng(0)
        order = np.argsort(-np.bincount(triples[:, 1]), kind="stable").tolist()
        self.pairs = {relation: triples[triples[:, 1] == relation][:, [0, 2]] for relation in order[:50]}
        self.first = order[0]

    def predict(self, relation: int, references: int, heads: int, k: int = 10, **more: Any) -> Ask:
        """A request with pairs of a relation as references, about heads of other pairs."""
        own = self.draw.permutation(self.pairs[relation])
        pairs = [[self.names[head], self.names[tail]] for head, tail in own[:references].tolist()]
        asked = [self.names[head] for head in dict.fromkeys(own[references:, 0].tolist())][:heads]
        asked = asked or [pairs[0][0]]
        return "/predict", json.dumps({"references": pairs, "heads": asked, "k": k, **more}).encode()

    def same(self) -> Asks:
        return itertools.repeat(self.predict(self.first, 3, 1))

    def of_one_relation(self) -> Asks:
        pairs = [[self.names[head], self.names[tail]] for head, tail in self.pairs[self.first][:3].tolist()]
        heads = [self.names[head] for head in dict.fromkeys(self.pairs[self.first][3:, 0].tolist())]
        for k in itertools.cycle(range(10, 100)):
            for head in heads:
                yield "/predict", json.dumps({"references": pairs, "heads": [head], "k": k}).encode()

    def of_many_relations(self) -> Asks:
        while True:
            yield self.predict(random.choice(list(self.pairs)), 3, 1)

    def costly(self) -> Asks:
        while True:
            yield self.predict(self.first, 200, 50, candidates="all")

    def explained(self) -> Asks:
        while True:
            _, body = self.predict(random.choice(list(self.pairs)), 3, 1)
            request = json.loads(body)
            tail = request["references"][0][1]
            asked = {"references": request["references"], "head": request["heads"][0], "tail": tail}
            yield "/explain", json.dumps(asked).encode()

    def entities(self) -> Asks:
        while True:
            yield f"/entities?q={random.choice('abcdefghijklmnopqrstuvwxyz')}&limit=8", b""

    def decisions(self) -> Asks:
        """Decisions of project 1."""
        while True:
            head, tail = self.draw.choice(self.pairs[self.first]).tolist()
            made = {"head": self.names[head], "tail": self.names[tail], "decision": "accepted"}
            yield "/projects/1/decisions", json.dumps({"decisions": [made]}).encode()

    def project(self) -> Asks:
        pairs = [[self.names[head], self.names[tail]] for head, tail in self.pairs[self.first][:3].tolist()]
        return iter([("/projects", json.dumps({"name": "load", "references": pairs}).encode())])

    def mixed(self) -> Asks:
        kinds = [self.same(), self.of_one_relation(), self.of_many_relations(), self.explained(), self.entities()]
        return itertools.chain.from_iterable(zip(*kinds, self.decisions(), strict=False))


async def latencies(port: int, questions: Questions, seconds: float) -> list[dict[str, Any]]:
    """Small questions and /health, alone and beside costly questions."""
    rows = []
    for costly in (0, COSTLY_CLIENTS):
        small = Answers()
        health = Answers()
        large = Answers()
        until = time.perf_counter() + seconds
        await together(
            *(client(port, questions.costly(), until, large) for _ in range(costly)),
            client(port, questions.of_many_relations(), until, small),
            client(port, itertools.repeat(("/health", b"")), until, health, pause=0.05),
        )
        beside = f" beside {costly} costly ones" if costly else " alone"
        rows += [small.row(f"small questions{beside}", seconds), health.row(f"/health{beside}", seconds)]
        if costly:
            rows.append(large.row("the costly ones", seconds))
    return rows


async def throughput(port: int, questions: Questions, clients: int, seconds: float) -> list[dict[str, Any]]:
    """Answers a second to many clients."""
    rows = []
    for name, asks in (
        ("the same question", questions.same()),
        ("heads of one relation", questions.of_one_relation()),
        ("different relations", questions.of_many_relations()),
    ):
        answers = Answers()
        until = time.perf_counter() + seconds
        await together(*(client(port, asks, until, answers) for _ in range(clients)))
        rows.append(answers.row(f"{clients} clients: {name}", seconds))
    return rows


async def memory_of(
    port: int, process: int, questions: Questions, clients: int, minutes: float
) -> tuple[dict[str, Any], list[float]]:
    """The mixture for some minutes, and the memory of the server every few seconds."""
    answers = Answers()
    await client(port, questions.project(), time.perf_counter() + 1e-3, Answers())
    until = time.perf_counter() + 60 * minutes
    memory: list[float] = []

    async def watch() -> None:
        while time.perf_counter() < until:
            await asyncio.sleep(SAMPLE_SECONDS)
            memory.append(resident(process))

    costly = [client(port, questions.costly(), until, Answers(), pause=5.0) for _ in range(2)]
    await together(watch(), *costly, *(client(port, questions.mixed(), until, answers) for _ in range(clients)))
    minute = round(60 / SAMPLE_SECONDS)
    row = {
        **answers.row("a mixture", 60 * minutes),
        "MiB, minute 3": mean(memory[2 * minute : 3 * minute] or memory),
        "MiB, last minute": mean(memory[-minute:]),
        "most MiB": max(memory),
    }
    return row, [round(each) for each in memory]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--record", default="serving")
    options = parser.parse_args()
    from fewlink.core.machine import hardware

    questions = Questions(options.graph)
    with serving(options.graph) as (port, process):
        rows = asyncio.run(latencies(port, questions, options.seconds))
        rows += asyncio.run(throughput(port, questions, options.clients, options.seconds))
    print_table(rows)
    about = {"graph": Path(options.graph).name, "hardware": hardware(), "load average": os.getloadavg()[0]}
    record: dict[str, Any] = {**about, "clients": options.clients, "seconds": options.seconds, "rows": rows}
    if options.minutes:
        with serving(options.graph) as (port, process):
            mixed, memory = asyncio.run(memory_of(port, process, questions, options.clients, options.minutes))
        print_table([mixed])
        print(f"memory: {mixed['MiB, last minute'] / mixed['MiB, minute 3']:.2f} times that of minute 3")
        record |= {"mixture": mixed, f"MiB every {SAMPLE_SECONDS:.0f} s": memory}
    write_record(options.record, record)


if __name__ == "__main__":
    main()
