from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import task_of
from fewlink.errors import FewlinkError
from fewlink.tasks import EpisodeSampler, Task

pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=12, unique=True)
tasks_of_pairs = st.lists(pairs, min_size=1, max_size=4)


def tasks(lists: list[list[tuple[int, int]]]) -> list[Task]:
    return [task_of(p, range={t for _, t in p} | {0, 5}, known=[(0, 0)], name=f"t{i}") for i, p in enumerate(lists)]


@given(tasks_of_pairs, st.integers(0, 50), st.integers(0, 3))
def test_an_episode_is_a_function_of_seed_and_step(lists: list[list[tuple[int, int]]], step: int, seed: int) -> None:
    sampler = EpisodeSampler(tasks(lists), 10, shots=2, batch=4, negatives=2, seed=seed)
    sampler(step + 1)  # what was asked before does not matter
    one, two = sampler(step), EpisodeSampler(tasks(lists), 10, shots=2, batch=4, negatives=2, seed=seed)(step)
    assert one.task == two.task
    for array in ("references", "queries", "negatives"):
        assert np.array_equal(getattr(one, array), getattr(two, array))


def test_another_seed_step_or_rank_is_another_episode() -> None:
    many = [task_of([(i, j) for i in range(10) for j in range(5)], range=range(10))]
    episodes = [
        EpisodeSampler(many, 10, shots=3, batch=8, seed=seed)(step, rank)
        for seed, step, rank in itertools.product((0, 1), repeat=3)
    ]
    assert len({e.references.tobytes() + e.queries.tobytes() for e in episodes}) == 8


@given(tasks_of_pairs, st.integers(0, 30), st.integers(1, 2), st.integers(1, 12))
def test_references_and_queries_are_pairs_of_the_task_and_disjoint(
    lists: list[list[tuple[int, int]]], step: int, shots: int, batch: int
) -> None:
    episode = EpisodeSampler(tasks(lists), 10, shots=shots, batch=batch)(step)
    references, queries = ({tuple(p) for p in a.tolist()} for a in (episode.references, episode.queries))
    assert (episode.references.shape, episode.queries.shape) == ((shots, 2), (batch, 2))
    assert references | queries <= set(lists[episode.task])
    assert not references & queries
    assert len(references) == shots
    assert len(queries) == min(batch, len(lists[episode.task]) - shots)  # repeated only where pairs run out


@given(tasks_of_pairs, st.integers(0, 30))
def test_negatives_are_never_known_answers_and_lie_in_the_range(lists: list[list[tuple[int, int]]], step: int) -> None:
    made = tasks(lists)
    episode = EpisodeSampler(made, 10, shots=2, batch=6, negatives=5)(step)
    task = made[episode.task]
    known = {tuple(p) for p in task.known.tolist()}
    assert episode.negatives.shape == (6, 5)
    for head, row in zip(episode.queries[:, 0].tolist(), episode.negatives.tolist(), strict=True):
        free = {t for t in task.range.tolist() if (head, t) not in known}
        for tail in row:
            assert (head, tail) not in known
            assert tail in (free or range(10))


def test_a_head_whose_whole_range_is_known_takes_negatives_from_outside() -> None:
    task = task_of([(0, 1), (0, 2), (0, 3)], range=[1, 2, 3])
    episode = EpisodeSampler([task], 6, shots=1, batch=10, negatives=20)(0)
    assert set(episode.negatives.ravel().tolist()) == {0, 4, 5}


def test_a_head_with_one_false_tail_among_many_finds_it() -> None:
    task = task_of([(0, t) for t in range(999)], range=range(1000))
    episode = EpisodeSampler([task], 1000, shots=1, batch=10, negatives=5)(0)
    assert (episode.negatives == 999).all()


def test_a_head_that_knows_every_entity_is_an_error() -> None:
    task = task_of([(0, 0), (0, 1), (0, 2)], range=[0, 1, 2])
    with pytest.raises(FewlinkError, match="every entity is a known tail of head 0"):
        EpisodeSampler([task], 3, shots=1)(0)


@given(st.integers(1, 9), st.integers(0, 5), st.integers(0, 3))
def test_every_task_comes_once_a_pass(count: int, turn: int, seed: int) -> None:
    made = [task_of([(0, 1), (1, 2)], range=[1, 2, 3], name=f"t{i}") for i in range(count)]
    sampler = EpisodeSampler(made, 4, shots=1, batch=1, seed=seed)
    assert sorted(sampler(turn * count + i).task for i in range(count)) == list(range(count))


def test_passes_are_shuffled_anew() -> None:
    made = [task_of([(0, 1), (1, 2)], range=[1, 2, 3], name=f"t{i}") for i in range(8)]
    sampler = EpisodeSampler(made, 4, shots=1, batch=1)
    orders = {tuple(sampler(turn * 8 + i).task for i in range(8)) for turn in range(5)}
    assert len(orders) == 5


def test_negatives_are_drawn_evenly_from_what_is_false() -> None:
    task = task_of([(0, 0), (1, 1), (2, 2)], range=range(10))
    sampler = EpisodeSampler([task], 10, shots=1, batch=100, negatives=20)
    episode = sampler(0)
    for head in set(episode.queries[:, 0].tolist()):
        drawn = np.bincount(episode.negatives[episode.queries[:, 0] == head].ravel(), minlength=10)
        share = drawn / drawn.sum()
        assert share[head] == 0
        assert (abs(np.delete(share, head) - 1 / 9) < 0.05).all()


def test_tasks_too_small_for_an_episode_are_refused() -> None:
    with pytest.raises(FewlinkError, match="task has 2 pairs, too few for 2 references and a query"):
        EpisodeSampler([task_of([(0, 1), (1, 2)], range=[1, 2])], 3, shots=2)
    with pytest.raises(FewlinkError, match="no training relations"):
        EpisodeSampler([], 3, shots=1)
