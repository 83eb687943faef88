"""Measures throughput and latency of the server under many concurrent clients, with and without batching.

python benchmarks/serving.py RUN --clients 50 --seconds 60 [--bench PATH]

RUN is a training run. Each client requests predictions for heads of test relations, one after another, over its own
connection; the servers with and without batching run in turn, and keep no answers. The record is records/serving.json.

python benchmarks/serving.py GRAPH --shared

measures instead the same question from all clients, distinct heads of one relation, and distinct relations, with
answers kept as `fewlink serve` keeps them; then all of these in turn for `--memory-seconds`, with the memory of the
server every few seconds. `cores, other work` is what other processes of the machine took. The record is
records/serving-shared.json.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import mean
from typing import Any

from measure import print_table, write_record

RELATIONS = 5  # in concurrent requests
SAMPLE_SECONDS = 5.0  # between two looks at the memory of a server
MIXED = "all of these"


@dataclass
class Responses:
    """The seconds of each answer, and refused or failed requests."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def serve(listener: socket.socket, run: str, bench: str | None, mode: str) -> None:
    """Run a server."""
    import uvicorn

    from fewlink.linker import load
    from fewlink.server import ServerSettings
    from fewlink.server.app import make_app
    from fewlink.server.connections import UVICORN_OPTIONS
    from fewlink.server.process import tune_process

    settings = {
        "batched": ServerSettings(kept=0),
        "one by one": ServerSettings(kept=0, gather=0, together=1),
    }.get(mode, ServerSettings())
    app = make_app(load(run, bench=bench), settings)
    tune_process()
    uvicorn.Server(uvicorn.Config(app, **UVICORN_OPTIONS)).run(sockets=[listener])


def busy_seconds() -> float:
    """Seconds that the cores of the machine have worked."""
    counts = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]]
    return (sum(counts) - sum(counts[3:5])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(process: BaseProcess) -> float:
    """Seconds that the cores have worked for a process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: BaseProcess) -> int:
    """Resident memory of a process, in bytes."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * 4096


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes) -> tuple[int, bytes]:
    """Send a request over an open connection; return the status and the body of the response."""
    method = "POST" if body else "GET"
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    writer.write("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    status = int((await reader.readline()).split()[1])
    length = 0
    line = (await reader.readline()).strip()
    while line:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        line = (await reader.readline()).strip()
    return status, await reader.readexactly(length)


async def client(port: int, bodies: Iterator[bytes], until: float, responses: Responses) -> None:
    """Send requests one after another until the time is over; after a refusal, wait for a second."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until:
            start = time.perf_counter()
            status, answer = await asyncio.wait_for(ask(reader, writer, "/predict", next(bodies)), 60)
            if status == 200 and json.loads(answer)["predictions"]:
                responses.seconds.append(time.perf_counter() - start)
            else:
                responses.errors.append(f"{status} {answer[:200]!r}")
                await asyncio.sleep(1)
        writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
        responses.errors.append(repr(error))


async def load_of(
    port: int, bodies: Iterator[bytes], clients: int, seconds: float, look: Callable[[], None] = lambda: None
) -> Responses:
    """Run all clients for some seconds; return their responses. Each request has the next body.

    `look` is called every few seconds.
    """
    responses = Responses()
    until = time.perf_counter() + seconds

    async def watch() -> None:
        while time.perf_counter() < until:
            await asyncio.sleep(min(SAMPLE_SECONDS, seconds / 4))
            look()

    await asyncio.gather(watch(), *(client(port, bodies, until, responses) for _ in range(clients)))
    return responses


def questions(run: str, bench: str | None) -> list[bytes]:
    """Bodies of requests for heads of some test relations."""
    from fewlink.linker import load
    from fewlink.server.lookups import example

    linker = load(run, bench=bench)
    requests = []
    for number in range(RELATIONS):
        shown = example(linker, number)
        references = [[entity["id"] for entity in pair] for pair in shown["references"]]
        for head in shown["heads"]:
            requests.append(json.dumps({"references": references, "heads": [head["id"]], "k": 10}).encode())
    return requests


def shared_questions(graph: str) -> dict[str, list[bytes]]:
    """Bodies of requests: one, heads of one relation, and relations with three references each."""
    import numpy as np

    from fewlink.linker import load

    linker = load(graph)
    triples, names = linker.graph.triples(), linker.graph.entities
    order = np.argsort(-np.bincount(triples[:, 1]), kind="stable").tolist()
    draw = np.random.default_rng(0)

    def bodies(relation: int, references: int, count: int) -> list[bytes]:
        own = triples[triples[:, 1] == relation]
        own = own[draw.permutation(len(own))]
        pairs = [[names[head], names[tail]] for head, _, tail in own[:references].tolist()]
        heads = [names[head] for head in np.unique(own[references:, 0])[:count].tolist()]
        asked = ((head, k) for k in range(10, 100) for head in heads)  # no answer is asked for twice
        return [
            json.dumps({"references": pairs, "heads": [head], "k": k}).encode()
            for head, k in itertools.islice(asked, count)
        ]

    heads = bodies(order[0], 3, 50_000)
    relations = [body for _ in range(200) for relation in order[:50] for body in bodies(relation, 3, 1)]
    return {"the same question": heads[:1], "heads of one relation": heads, "distinct relations": relations}


def in_turn(requests: dict[str, list[bytes]]) -> Iterator[bytes]:
    """Bodies of each kind in turn."""
    kinds = [itertools.cycle(random.Random(0).sample(bodies, len(bodies))) for bodies in requests.values()]
    return itertools.chain.from_iterable(zip(*kinds, strict=True))


def measured(mode: str, options: argparse.Namespace, bodies: Iterator[bytes], seconds: float) -> dict[str, Any]:
    """Start a server and put it under load: answers per second, latency, errors, memory in both halves of the time."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    process = get_context("spawn").Process(target=serve, args=(listener, options.run, options.bench, mode))
    process.start()
    port = listener.getsockname()[1]
    memory: list[float] = []  # MiB
    try:
        asyncio.run(load_of(port, bodies, 2, min(3.0, seconds)))  # warm
        start, own, busy, spent = time.perf_counter(), time.process_time(), busy_seconds(), cpu_seconds(process)
        responses = asyncio.run(
            load_of(port, bodies, options.clients, seconds, look=lambda: memory.append(resident(process) / 2**20))
        )
        passed, spent = time.perf_counter() - start, cpu_seconds(process) - spent
        others = busy_seconds() - busy - spent - (time.process_time() - own)
    finally:
        process.terminate()
        process.join(60)
        listener.close()
    for line in responses.errors[:3]:
        print(f"{mode}: {line}")
    ordered = sorted(responses.seconds) or [float("nan")]
    return {
        "server": mode,
        "answers/s": len(responses.seconds) / passed,
        "p50 ms": 1000 * ordered[len(ordered) // 2],
        "p95 ms": 1000 * ordered[int(0.95 * (len(ordered) - 1))],
        "most ms": 1000 * ordered[-1],
        "answers": len(responses.seconds),
        "errors": len(responses.errors),
        "seconds": seconds,
        "CPU ms an answer": 1000 * spent / max(1, len(responses.seconds)),
        "cores, server": spent / passed,
        "cores, other work": others / passed,
        "MiB, first half": mean(memory[: len(memory) // 2]),
        "MiB, second half": mean(memory[len(memory) // 2 :]),
        "most MiB, first half": max(memory[: len(memory) // 2]),
        "most MiB, second half": max(memory[len(memory) // 2 :]),
        "MiB": [round(each) for each in memory],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--bench")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--memory-seconds", type=float, default=600)
    options = parser.parse_args()

    if options.shared:
        from fewlink.core.memory import hardware

        requests = shared_questions(options.run)
        kinds = {kind: ({kind: bodies}, options.seconds) for kind, bodies in requests.items()}
        kinds[MIXED] = requests, options.memory_seconds
        rows = [measured(kind, options, in_turn(some), seconds) for kind, (some, seconds) in kinds.items() if seconds]
        memory = {row["server"]: row.pop("MiB") for row in rows}
        print_table(rows)
        about = {"graph": Path(options.run).name, "hardware": hardware(), "clients": options.clients}
        write_record("serving-shared", {**about, "rows": rows, f"MiB every {SAMPLE_SECONDS:.0f} s": memory})
        return
    requests = {"": questions(options.run, options.bench)}
    rows = [measured(mode, options, in_turn(requests), options.seconds) for mode in ("batched", "one by one")]
    for row in rows:
        del row["MiB"]
    print_table(rows)
    ratio = rows[0]["answers/s"] / rows[1]["answers/s"]
    print(f"batching: {ratio:.2f} times as many requests per second")
    from fewlink.core.memory import hardware
    from fewlink.training import RunConfig

    config = RunConfig.read(Path(options.run))
    record = {
        "bench": config.benchmark["name"],
        "model": config.settings.model,
        "hardware": hardware(),
        "clients": options.clients,
        "seconds": options.seconds,
        "relations": RELATIONS,
        "rows": rows,
        "ratio": ratio,
    }
    write_record("serving", record)


if __name__ == "__main__":
    main()
