"""Limits of connections: which one gives way, and what is buffered."""

from __future__ import annotations

import resource

import pytest

from fewlink.server.connections import ConnectionLimits, Connections, raise_open_files, within_open_files


class One:
    """A connection in some state."""

    def __init__(self, client: str, state: str = "answering") -> None:
        self.client, self.state = client, state

    def client_address(self) -> str:
        return self.client

    def is_waiting(self) -> bool:
        return self.state in ("idle", "unfinished")

    def is_unfinished(self) -> bool:
        return self.state == "unfinished"

    def drop(self) -> None:
        self.state = "dropped"


def guard(**limits: int) -> Connections:
    return Connections(ConnectionLimits(**{"connections": 3, "per_client": 2, "buffered": 100, **limits}))  # type: ignore[arg-type]


def test_the_oldest_unfinished_connection_gives_way_then_the_oldest_idle_one() -> None:
    all_of = guard(per_client=9)
    idle, slow, slower = One("a", "idle"), One("b", "unfinished"), One("c", "unfinished")
    assert all(map(all_of.add, (idle, slow, slower)))
    assert all_of.add(One("d")) and slow.state == "dropped"
    assert all_of.add(One("e")) and slower.state == "dropped"
    assert all_of.add(One("f")) and idle.state == "dropped"
    assert not all_of.add(One("g")) and len(all_of) == 3  # all others are being answered
    assert all_of.dropped == 3


def test_a_client_at_its_limit_loses_a_connection_of_its_own() -> None:
    all_of = guard(connections=9)
    other, first, second = One("b", "unfinished"), One("a"), One("a", "unfinished")
    assert all(map(all_of.add, (other, first, second)))
    assert all_of.add(One("a")) and second.state == "dropped" and other.state == "unfinished"
    assert not all_of.add(One("a")) and all_of.add(One("b"))
    all_of.remove(first)
    all_of.remove(first)
    assert all_of.add(One("a"))


def test_bytes_of_unfinished_requests_are_bounded() -> None:
    all_of = guard()
    slow = One("a", "unfinished")
    assert all_of.add(slow) and all_of.reserve(90)
    assert all_of.reserve(20) and slow.state == "dropped"
    assert not all_of.reserve(20)
    all_of.release(110)
    assert all_of.reserve(100) and all_of.buffered == 100


def test_the_limit_of_open_files_is_raised_and_bounds_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"limit": (256, 1_024)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: now["limit"])
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: now.update(limit=limit))
    assert raise_open_files() == 1_024 and now["limit"] == (1_024, 1_024)
    limits = within_open_files(ConnectionLimits(connections=2_000, per_client=1_000))
    assert limits.connections == limits.per_client == 768
    now["limit"] = (100, 100)
    assert within_open_files(ConnectionLimits()).connections == 25
    now["limit"] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert raise_open_files() is None and within_open_files(ConnectionLimits()).connections == 2_000
