"""Which requests are let in, and what the others are told."""

from __future__ import annotations

import pytest

from fewlink.server.admission import CALLER, CURRENT, Admission, Caller, Refused


def admission(**limits: float) -> Admission:
    return Admission(**{"seconds": 60.0, "queued": 100.0, "deadline": 5.0, "requests": 3, **limits})  # type: ignore[arg-type]


def refused(gate: Admission, seconds: float, how_to_split: str = "") -> Refused:
    with pytest.raises(Refused) as caught, gate.enter(seconds, how_to_split):
        pass
    return caught.value


def test_a_request_over_the_limit_is_refused_with_its_estimate_unless_it_cannot_be_split() -> None:
    gate = admission()
    error = refused(gate, 210.0, "ask for 5 heads")
    assert "would take about 210 s, and this server allows 60 s for one request: ask for 5 heads" in str(error)
    assert error.reason == "cost" and error.retry_after is None and len(gate) == 0
    with gate.enter(210.0) as request:
        assert request.left == 210.0 and len(gate) == 1 and gate.left == 210.0


def test_requests_wait_up_to_a_number_of_seconds_and_retry_after_says_when_there_is_room() -> None:
    gate = admission()
    with gate.enter(50.0, "split"), gate.enter(40.0, "split") as second:
        error = refused(gate, 30.0, "split")
        assert str(error) == "requests that take about 90 s are waiting: try again in 20 s"
        assert error.reason == "busy" and error.retry_after == 20
        second.spend(20.0)
        with gate.enter(30.0, "split"):
            assert gate.left == 100.0


def test_a_request_that_turns_out_to_cost_more_is_let_in_for_it_or_refused() -> None:
    gate = admission()
    with gate.enter(1.0) as first:
        gate.extend(first, 200.0)  # alone, and it cannot be split
        assert gate.left == 201.0
        first.spend(151.0)
        with gate.enter(10.0) as second:
            with pytest.raises(Refused, match="50 s are waiting: try again in 10 s"):
                gate.extend(second, 60.0, "split")
            with pytest.raises(Refused, match="allows 60 s for one request: split"):
                gate.extend(second, 61.0, "split")
            assert second.left == 10.0
            gate.extend(second, 40.0)
            assert gate.left == 100.0
            gate.closed = True
            gate.extend(second, 0.0)  # who is inside is answered


def test_requests_are_limited_in_number() -> None:
    gate = admission(requests=2)
    with gate.enter(4.0), gate.enter(2.0):
        assert str(refused(gate, 0.0)) == "2 requests are waiting: try again in 3 s"
    assert len(gate) == 0


def test_a_closed_server_lets_nobody_in() -> None:
    gate = admission()
    gate.closed = True
    assert str(refused(gate, 0.0)) == "the server is stopping"


def test_the_context_knows_the_request_and_its_caller() -> None:
    token = CALLER.set(Caller("10.0.0.1"))
    try:
        with admission().enter(3.0) as request:
            assert CURRENT.get() is request and request.caller.client == "10.0.0.1"
            request.spend(5.0)
            assert request.left == 0.0 and request.due == request.arrived
        assert CURRENT.get() is None
    finally:
        CALLER.reset(token)
