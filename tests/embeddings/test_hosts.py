"""Two hosts, each a network namespace: one is killed during training, and the job resumes from its state.

Skipped without root and `ip`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import torch

from fewlink.embeddings import Embeddings

pytestmark = pytest.mark.long

EPOCHS = 60
PATIENCE = 90  # seconds until the hosts count as hanging, on a busy machine
NOTICED = 60  # seconds in which a host must exit after the other was killed
WORDS = [
    *("--dim", "16", "--device", "cpu", "--set", f"epochs={EPOCHS}"),
    *("--set", "held_out=0.1", "--set", "patience=60"),
]
PORT = "29400"  # of an address that only the two hosts reach


class Host:
    """A network namespace with one interface of a pair."""

    def __init__(self, name: str, interface: str, address: str) -> None:
        self.name, self.interface, self.address = name, interface, address
        self.rank = int(address.rpartition(".")[2]) - 1
        self.children: list[subprocess.Popen[str]] = []

    def start(self, words: list[str], log: IO[str]) -> None:
        """Start torchrun with one process, as one of two hosts that meet at the first one's address."""
        meet = ["--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(self.rank)]
        meet += ["--master-addr", "10.213.0.1", "--master-port", PORT, "-m", "fewlink", *words]
        child = subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, "-m", "torch.distributed.run", *meet],
            env={**environment(), "GLOO_SOCKET_IFNAME": self.interface},
            stdout=log,
            stderr=log,
            text=True,
        )
        self.children.append(child)

    def kill(self, by: signal.Signals = signal.SIGKILL) -> int:
        """Kill every process in the namespace, as a power cut would; returns their number."""
        listed = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True)
        for process in listed.stdout.split():
            os.kill(int(process), by)
        return len(listed.stdout.split())


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need Linux, root and ip")
    pair = [Host(f"fewlink-{os.getpid()}-{i}", f"fl{os.getpid()}-{i}", f"10.213.0.{i}") for i in (1, 2)]
    try:
        try:
            for host in pair:
                ip("netns", "add", host.name)
            ends = [(host.interface, "netns", host.name) for host in pair]
            ip("link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1])
            for host in pair:
                ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.interface)
                for interface in ("lo", host.interface):
                    ip("-n", host.name, "link", "set", interface, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
        yield pair
    finally:
        for host in pair:
            if Path(f"/run/netns/{host.name}").exists():
                host.kill()
                for child in host.children:
                    child.wait()
                ip("netns", "del", host.name)


def ended(hosts: list[Host], log: IO[str], patience: float = PATIENCE) -> list[int]:
    """The exit codes of the last process of each host; on a time-out, fails with their output and stack traces."""
    try:
        return [host.children[-1].wait(patience) for host in hosts]
    except subprocess.TimeoutExpired:
        for host in hosts:
            host.kill(signal.SIGABRT)  # prints the stack
        time.sleep(1)
        log.seek(0)
        pytest.fail(f"the hosts hang: {log.read()[-10000:]}")


def words(out: Path) -> list[str]:
    return ["pretrain", "umls", "--out", str(out), *WORDS]


def written(state: Path) -> int:
    return state.stat().st_mtime_ns if state.exists() else 0


def test_a_killed_host_loses_at_most_one_epoch(hosts: list[Host], tmp_path: Path) -> None:
    """The first host is killed, then, after the job has resumed, the second; the job resumes and finishes."""
    out = tmp_path / "out"
    state = tmp_path / f".{out.name}.state.safetensors"
    with (tmp_path / "log").open("w+") as log:
        for killed in hosts:
            before, until = written(state), time.monotonic() + PATIENCE
            for host in hosts:
                host.start(words(out), log)
            while written(state) == before and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.1)
            assert killed.kill() >= 2, (log.seek(0), log.read()[-5000:])
            begin = log.seek(0, os.SEEK_END)
            assert all(code != 0 for code in ended(hosts, log, NOTICED))
            log.seek(begin)
            output = log.read()
            assert f"error: process {killed.rank} on {socket.gethostname()} was lost: start the same" in output, output
            assert "Read error" not in output, "messages of gloo must not be shown"
            assert written(state) != before and not out.exists(), "the run finished before its host was killed"
        for host in hosts:
            host.start(words(out), log)
        assert ended(hosts, log) == [0, 0], (log.seek(0), log.read()[-5000:])
        log.seek(0)
        assert f"epoch {EPOCHS}/{EPOCHS}" in log.read()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []

    whole = tmp_path / "whole"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "fewlink"]
    subprocess.run([*torchrun, *words(whole)], env=environment(), check=True, capture_output=True, timeout=PATIENCE)
    resumed, expected = Embeddings.open(out), Embeddings.open(whole)
    assert torch.equal(resumed.entities, expected.entities) and torch.equal(resumed.relations, expected.relations)
    assert resumed.facts["held_out_mrr"] == expected.facts["held_out_mrr"]
