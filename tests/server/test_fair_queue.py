"""Whose turn it is: clients one after another, of each the request that is due first, and similar ones together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fewlink.server.fair_queue import Entry, FairQueue


def queue_of(*entries: Entry[str]) -> FairQueue[str]:
    queue: FairQueue[str] = FairQueue()
    for entry in entries:
        queue.put(entry)
    return queue


def order(queue: FairQueue[str], **limits: float) -> list[str]:
    """The items in the order in which they are taken one by one."""
    taken = []
    while entries := queue.take(1, **limits):
        taken += [entry.item for entry in entries]
    return taken


def test_clients_take_turns() -> None:
    queue = queue_of(*(Entry(f"a{n}", "a", due=n) for n in range(3)), Entry("b0", "b", due=9), Entry("c0", "c", due=9))
    assert order(queue) == ["a0", "b0", "c0", "a1", "a2"]


def test_of_one_client_small_requests_go_first_but_old_ones_are_not_put_off_for_ever() -> None:
    large, small = Entry("large", "a", due=0 + 60), Entry("small", "a", due=10 + 1)
    late = Entry("late", "a", due=61 + 1)
    assert order(queue_of(large, small, late)) == ["small", "large", "late"]


def test_entries_with_the_same_key_are_taken_together_within_count_and_seconds() -> None:
    entries = [Entry(str(n), str(n % 3), due=n, seconds=0.1, key="same") for n in range(9)]
    queue = queue_of(*entries, Entry("other", "z", key="other"))
    assert sorted(entry.item for entry in queue.take(4)) == ["0", "1", "2", "3"]
    assert len(queue.take(9, seconds=0.25)) == 2
    assert len(queue) == 4
    assert [entry.item for entry in queue.take(9, seconds=0.0)] != []  # at least one


def test_a_lane_takes_short_requests_only() -> None:
    queue = queue_of(Entry("large", "a", left=50.0), Entry("small", "b", left=0.5))
    assert queue.has(1.0) and [entry.item for entry in queue.take(9, most_left=1.0)] == ["small"]
    assert not queue.has(1.0) and not queue.take(9, most_left=1.0) and queue.has()


def test_discarded_entries_are_not_taken() -> None:
    one, two = Entry("1", "a"), Entry("2", "a")
    queue = queue_of(one, two)
    queue.discard(one)
    queue.discard(one)
    assert [entry.item for entry in queue.clear()] == ["2"] and not len(queue) and not queue.take()


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 100))))
def test_every_entry_is_taken_once_and_no_client_waits_longer_than_a_round(entries: list[tuple[str, float]]) -> None:
    queue = queue_of(*(Entry(f"{n}", client, due=due) for n, (client, due) in enumerate(entries)))
    taken = order(queue)
    assert sorted(taken) == sorted(f"{n}" for n in range(len(entries)))
    clients = [entries[int(item)][0] for item in taken]
    for place, client in enumerate(clients):
        later = clients[place + 1 :]
        if client in later:
            between = later[: later.index(client)]
            waiting = set(later) - {client}
            assert set(between) >= waiting  # everyone else who waits has a turn in between
