"""Measures whether one client can stall the server, with a costly request or with slow sockets.

python benchmarks/stall.py GRAPH [--slow 1000] [--heads 50] [--seconds 30] [--hostile] [--record NAME]

`fewlink serve GRAPH` runs in its own process. The benchmark times small requests (three references of another relation,
one head, open candidates) and /health while another client repeats a costly request (200 references, 50 heads, all
candidates). If the server refuses the costly request, the client splits it as the error message says. Half of the slow
sockets send a header byte by byte, the others a body.

With --hostile, the other clients are instead eight that send batches of 100 long names with many properties to
/reconcile, three that send bodies in chunks of one byte, and `--slow` that ask for large answers and read none. `left`
is the number of admitted requests five seconds after they have gone.

`late` is the delay with which the measuring process wakes up: on a busy machine /health cannot be faster. `connected`
is the time of the first /health with its connection, which competes with the slow sockets. At the end the server
receives SIGTERM during the costly request. The record is records/NAME.json.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from measure import print_table, write_record

REFERENCES = 200
COLUMNS = (  # of the record
    "server",
    "small p50 s",
    "small p95 s",
    "small requests",
    "small not 200",
    "health p95 s",
    "health p99 s",
    "health most s",
    "health not 200",
    "late p99 s",
    "late most s",
    "connected s",
    "MiB over idle",
    "load average",
)
TIMEOUT_SECONDS = 900.0


class Client:
    """A keep-alive connection that records the time and the status of each request."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self.port = port
        self.source = address
        self.seconds: list[float] = []
        self.statuses: dict[int, int] = {}
        self._open()

    def _open(self) -> None:
        self.connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=TIMEOUT_SECONDS, source_address=(self.source, 0)
        )

    def send(self, path: str, body: Any = None, timed: bool = True) -> tuple[int, Any]:
        start = time.perf_counter()
        try:
            headers = {"Content-Type": "application/json"}
            self.connection.request(
                "POST" if body else "GET", path, json.dumps(body).encode() if body else None, headers
            )
            answer = self.connection.getresponse()
            status, content = answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self._open()
            status, content = 0, None
        if timed:
            self.seconds.append(time.perf_counter() - start)
            self.statuses[status] = self.statuses.get(status, 0) + 1
        return status, content


def quantile(seconds: list[float], share: float) -> float:
    ordered = sorted(seconds) or [float("nan")]
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


@contextmanager
def server(graph: str, *more: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run `fewlink serve`; yield the process and its port."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fewlink", "serve", graph, "--port", "0", "--project", f"{folder}/project"]
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen([*command, *more], stderr=log, text=True)
        try:
            match = None
            while match is None:
                time.sleep(0.1)
                printed = (Path(folder) / "log").read_text()
                match = re.search(r"http://127\.0\.0\.1:(\d+)/", printed)
                if process.poll() is not None:
                    raise SystemExit(printed)
            yield process, int(match[1])
            print(f"log: {(Path(folder) / 'log').stat().st_size:,} bytes")
        finally:
            process.kill()
            process.wait()


def resident(process: subprocess.Popen[str]) -> float:
    """Resident memory of a process, in MiB."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096 / 2**20


def slow_sockets(port: int, count: int, ready: Any, stop: Any) -> None:
    """Keep `count` sockets open that send a byte per second, and reopen closed ones."""
    starts = [
        b"GET /about HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n" + b" " * 60_000,
    ]
    sockets: list[socket.socket | None] = [None] * count
    while not stop.is_set():
        for place, one in enumerate(sockets):
            try:
                if one is None:
                    one = socket.create_connection(("127.0.0.1", port), 1)
                    one.setblocking(False)
                    sockets[place] = one
                    one.sendall(starts[place % 2])
                else:
                    one.send(b"a")
            except BlockingIOError:
                continue
            except OSError:
                if one is not None:
                    one.close()
                sockets[place] = None
        ready.set()
        stop.wait(1)


def hostile_clients(port: int, slow: int, ready: Any, stop: Any) -> None:
    """Send batches to /reconcile, bodies in chunks of one byte, and requests whose answers are not read."""
    properties = [{"pid": str(number), "v": ["x" * 400] * 20} for number in range(20)]
    queries = {str(number): {"query": f"{number} " + "ab" * 250, "properties": properties[:1]} for number in range(100)}
    form = urlencode({"queries": json.dumps(queries)}).encode()
    reconcile = b"POST /reconcile HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(form) + form
    chunked = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"

    def repeat(begin: bytes, then: bytes) -> None:
        while not stop.is_set():
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as one:
                one.sendall(begin)
                while not stop.is_set():
                    if then:
                        one.sendall(then)
                    elif not one.recv(65_536):
                        break

    threads = [threading.Thread(target=repeat, args=(reconcile, b""), daemon=True) for _ in range(8)]
    threads += [threading.Thread(target=repeat, args=(chunked, b"1\r\nx\r\n" * 10_000), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    readers: list[socket.socket] = []
    while not stop.is_set():
        while len(readers) < slow and not stop.is_set():
            with suppress(OSError):
                one = socket.create_connection(("127.0.0.1", port), 1)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_024)
                one.sendall(request)
                readers.append(one)
        ready.set()
        stop.wait(1)
        for one in readers[: slow // 10]:  # opened again
            one.close()
        del readers[: slow // 10]


def waiting(port: int) -> int:
    """The number of admitted requests."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        found = re.search(rb"^fewlink_waiting_requests (\S+)", answer.read(), re.MULTILINE)
    return int(float(found[1])) if found else -1


def measure_hostile(options: argparse.Namespace, small: list[dict[str, Any]]) -> None:
    """Measure small requests and /health among hostile clients."""
    from fewlink.core.memory import hardware

    context = get_context("spawn")
    with server(options.graph) as (process, port):
        Client(port).send("/predict", small[0])
        memory = resident(process)
        ready, stop = context.Event(), context.Event()
        others = context.Process(target=hostile_clients, args=(port, options.slow, ready, stop))
        others.start()
        ready.wait(60)
        row = {"server": "hostile clients", **measured(port, small, options.seconds)}
        row["MiB over idle"] = resident(process) - memory
        row["load average"] = os.getloadavg()[0]
        stop.set()
        others.join(5)
        others.kill()
        time.sleep(5)
        row["left"] = waiting(port)
    print_table([row])
    if options.record:
        about = {"graph": Path(options.graph).name, "slow": options.slow, "hardware": hardware()}
        write_record(options.record, {**about, "seconds": options.seconds, "rows": [row]})


def requests(graph: str, head_count: int) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """The costly request, small ones with the same references, and small ones with new references."""
    import numpy as np

    from fewlink.linker import load

    linker = load(graph)
    triples, names = linker.graph.triples(), linker.graph.entities
    relations = np.argsort(-np.bincount(triples[:, 1]), kind="stable").tolist()

    def pairs(relation: int) -> list[list[str]]:
        return [[names[head], names[tail]] for head, _, tail in triples[triples[:, 1] == relation][:6_000].tolist()]

    many, others = pairs(relations[0]), pairs(relations[1])
    heads = list(dict.fromkeys([*(head for head, _ in many), *(names[n] for n in range(min(len(names), 5_000)))]))
    costly = {
        "references": many[:REFERENCES],
        "heads": heads[-head_count:],
        "candidates": "all",
        "k": min(100, 10_000 // head_count),
    }
    used = [{"references": others[:3], "heads": [head], "k": 10} for head, _ in others[3:103]]
    new = [
        {"references": others[i : i + 3], "heads": [others[i + 3][0]], "k": 10}
        for i in range(103, min(1_103, len(others) - 4), 4)
    ]
    return costly, used or new, new or used


class Costly(threading.Thread):
    """Repeats the costly request until it is stopped, with fewer heads if the server refuses it."""

    def __init__(self, port: int, body: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.body = body
        self.halt = threading.Event()
        self.answers: list[tuple[int, int, float, str]] = []  # heads, status, seconds, message

    def run(self) -> None:
        client = Client(self.port)
        while not self.halt.is_set():
            start = time.perf_counter()
            status, content = client.send("/predict", self.body)
            message = "" if status == 200 or content is None else content["error"]["message"]
            self.answers.append((len(self.body["heads"]), status, time.perf_counter() - start, message))
            if status in (413, 422):
                fewer = re.search(r"at most ([\d,]+) heads", message)
                count = int(fewer[1].replace(",", "")) if fewer else len(self.body["heads"]) // 2
                self.body = {**self.body, "heads": self.body["heads"][: max(1, count)]}
            elif status == 0:
                return


def measured(port: int, small: list[dict[str, Any]], seconds: float, pause: float = 0.05) -> dict[str, Any]:
    """Send small requests and /health for some seconds, each over one connection."""
    clients = {"small": Client(port), "health": Client(port)}
    start = time.perf_counter()
    clients["health"].send("/health", timed=False)
    connected = time.perf_counter() - start
    clients["small"].send("/health", timed=False)
    until = time.perf_counter() + seconds
    late: list[float] = []

    def load(name: str) -> None:
        place = 0
        while time.perf_counter() < until:
            if name == "small":
                body = small[place % len(small)]
                clients[name].send("/predict", {**body, "k": 10 + place // len(small) % 90})  # no kept answer fits
            else:
                clients[name].send("/health")
            place += 1
            slept = time.perf_counter()
            time.sleep(pause)
            late.append(time.perf_counter() - slept - pause)

    threads = [threading.Thread(target=load, args=(name,)) for name in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    row: dict[str, Any] = {"late p99 s": quantile(late, 0.99), "late most s": max(late), "connected s": connected}
    for name, client in clients.items():
        row[f"{name} p50 s"] = quantile(client.seconds, 0.5)
        row[f"{name} p95 s"] = quantile(client.seconds, 0.95)
        row[f"{name} p99 s"] = quantile(client.seconds, 0.99)
        row[f"{name} most s"] = max(client.seconds)
        row[f"{name} requests"] = len(client.seconds)
        row[f"{name} not 200"] = sum(count for status, count in client.statuses.items() if status != 200)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("--slow", type=int, default=1_000)
    parser.add_argument("--heads", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--record", default="")
    options = parser.parse_args()
    costly, used, new = requests(options.graph, options.heads)
    if options.hostile:
        measure_hostile(options, used)
        return
    rows = []
    context = get_context("spawn")
    with server(options.graph) as (process, port):
        client = Client(port)
        for body in used[:3]:
            client.send("/predict", body)
        memory = resident(process)

        def measure(state: str, small: list[dict[str, Any]]) -> None:
            row = {"server": state, **measured(port, small, options.seconds)}
            row["MiB over idle"] = resident(process) - memory
            row["load average"] = os.getloadavg()[0]
            rows.append(row)
            print({key: round(value, 3) if isinstance(value, float) else value for key, value in rows[-1].items()})

        measure("idle", used)
        measure("idle, new references", new[:100])
        large = Costly(port, costly)
        large.start()
        time.sleep(2)
        measure("costly request", used)
        ready, stop = context.Event(), context.Event()
        slow = context.Process(target=slow_sockets, args=(port, options.slow, ready, stop))
        if options.slow:
            slow.start()
            ready.wait(60)
            measure("costly request and slow sockets", used)
            measure("costly request and slow sockets, new references", new[100:])
        large.halt.set()
        start = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_SECONDS)
        ended = time.perf_counter() - start
        stop.set()
        if options.slow:
            slow.join(10)
            slow.terminate()
        large.join(10)
    print_table([{k: v for k, v in each.items() if "health" not in k or "p99" in k} for each in rows])
    for heads, status, seconds, message in large.answers[:6]:
        print(f"costly: {heads} heads, status {status}, {seconds:.1f} s {message}")
    print(f"ended {ended:.1f} s after SIGTERM")
    if options.record:
        from fewlink.core.memory import hardware

        about = {"graph": Path(options.graph).name, "slow": options.slow, "hardware": hardware()}
        kept = [{column: row[column] for column in COLUMNS} for row in rows]
        answers = [
            {"heads": heads, "status": status, "seconds": seconds, "message": message}
            for heads, status, seconds, message in large.answers[:10]
        ]
        write_record(options.record, {**about, "rows": kept, "costly": answers, "seconds to end": ended})


if __name__ == "__main__":
    main()
