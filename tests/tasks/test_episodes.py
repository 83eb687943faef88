from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import task_of

from fewlink.core.errors import FewlinkError
from fewlink.core.seeds import derive, scramble
from fewlink.tasks import Task
from fewlink.tasks.episodes import ContrastedEpisodes, ContrastedSampler, Episodes, EpisodeSampler, scramble_tensor

Lists = list[list[tuple[int, int]]]

pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=12, unique=True)
tasks_of_pairs = st.lists(pairs, min_size=1, max_size=4)
known_pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30)
episode_numbers = st.lists(st.integers(0, 2**40), min_size=1, max_size=5)


def make_tasks(lists: Lists, known: list[tuple[int, int]] | None = None) -> list[Task]:
    known = [(0, 0)] if known is None else known
    return [task_of(p, range={t for _, t in p} | {0, 5}, known=known, name=f"t{i}") for i, p in enumerate(lists)]


def sample(tasks: list[Task], numbers: list[int], entities: int = 10, **options: Any) -> Episodes:
    return EpisodeSampler(tasks, entities, **options)(torch.tensor(numbers))


def equal(one: Episodes, two: Episodes) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def part(episodes: Episodes, seed: int, place: int) -> Episodes:
    """One episode of one seed, with both dimensions kept."""
    return Episodes(*(x[seed : seed + 1, place : place + 1] for x in episodes))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(0, 9))
def test_the_hash_equals_the_numpy_version(keys: list[int], seed: int) -> None:
    start = np.array(derive(seed, "scramble"), np.uint64).astype(np.int64)
    ours = scramble_tensor(torch.tensor(keys) + torch.tensor(start))
    assert ours.numpy().view(np.uint64).tolist() == scramble(np.array(keys).view(np.uint64), seed).tolist()


def literal(
    tasks: list[Task],
    entities: int,
    number: int,
    seed: int,
    *,
    shots: int,
    batch: int,
    negatives: int,
    shared: bool,
) -> list[Any]:
    """An episode in plain Python integers: [task, references, queries, negatives]."""

    def mix(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    def bits(purpose: str, number: int, index: int) -> int:
        return mix((mix((derive(seed, "episodes", purpose) + number) % 2**64) + index) % 2**64)

    def shuffled(purpose: str, number: int, size: int) -> list[int]:
        return sorted(range(size), key=lambda i: (bits(purpose, number, i) + 2**63) % 2**64)  # as signed numbers

    turn, place = divmod(number, len(tasks))
    chosen = shuffled("pass", turn, len(tasks))[place]
    task = tasks[chosen]
    order = [task.pairs[i].tolist() for i in shuffled("pairs", number, len(task.pairs))]
    rest = order[shots:]
    queries = [rest[j if j < len(rest) else bits("repeats", number, j) % 2**63 % len(rest)] for j in range(batch)]
    common = [task.range[bits("shared", number, column) % 2**63 % len(task.range)] for column in range(negatives)]

    def false_tails(purpose: str, j: int, head: int, count: int) -> list[int]:
        known = set(task.known_tails[head].tolist())
        false = sorted({*task.range.tolist()} - known) or sorted({*range(entities)} - known)
        return [false[bits(purpose, number, j * count + column) % 2**63 % len(false)] for column in range(count)]

    cells = []
    for j, (head, _) in enumerate(queries):
        known, separate = set(task.known_tails[head].tolist()), false_tails("negatives", j, head, negatives)
        cells.append([c if shared and c not in known else o for c, o in zip(common, separate, strict=True)])
    return [chosen, order[:shots], queries, cells]


@pytest.mark.parametrize("shared", [False, True])
@given(
    lists=tasks_of_pairs,
    known=known_pairs,
    number=st.integers(0, 2**40),
    seed=st.integers(0, 3),
    batch=st.integers(1, 12),
)
def test_an_episode_equals_a_literal_one(
    shared: bool, lists: Lists, known: list[tuple[int, int]], number: int, seed: int, batch: int
) -> None:
    tasks = make_tasks(lists, known)
    options: dict[str, Any] = {"shots": 2, "batch": batch, "negatives": 3, "shared": shared}
    episodes = sample(tasks, [number], entities=11, seeds=[seed], **options)
    assert [x[0, 0].tolist() for x in episodes] == literal(tasks, 11, number, seed, **options)


@pytest.mark.parametrize("shared", [False, True])
@given(lists=tasks_of_pairs, numbers=episode_numbers, seeds=st.lists(st.integers(0, 99), min_size=1, max_size=3))
def test_an_episode_does_not_depend_on_the_others_of_its_call(
    shared: bool, lists: Lists, numbers: list[int], seeds: list[int]
) -> None:
    options: dict[str, Any] = {"entities": 11, "shots": 2, "batch": 4, "negatives": 2, "shared": shared}
    together = sample(make_tasks(lists), numbers, seeds=seeds, **options)
    for i, seed in enumerate(seeds):
        alone = EpisodeSampler(make_tasks(lists), seeds=[seed], **options)
        for j, number in enumerate(numbers):
            assert equal(part(together, i, j), alone(torch.tensor([number])))


def test_shapes_are_seeds_by_numbers() -> None:
    tasks = [task_of([(0, 1), (1, 2), (2, 3), (3, 4)], range=range(10))]
    for shared in (False, True):
        episodes = sample(tasks, [5, 2, 9], shots=2, batch=7, negatives=4, shared=shared, seeds=[3, 1])
        shapes = [(2, 3), (2, 3, 2, 2), (2, 3, 7, 2), (2, 3, 7, 4)]
        assert [tuple(x.shape) for x in episodes] == shapes
        assert all(x.dtype == torch.int64 for x in episodes)


def test_another_seed_or_number_is_another_episode() -> None:
    many = [task_of([(i, j) for i in range(10) for j in range(5)], range=range(10))]
    episodes = sample(many, [0, 1, 2], shots=3, batch=8, seeds=[0, 1, 2])
    drawn = torch.cat([episodes.references, episodes.queries], 2).flatten(0, 1)
    assert len({str(x.tolist()) for x in drawn}) == 9
    assert len({str(x.tolist()) for x in episodes.negatives.flatten(0, 1)}) == 9


@given(tasks_of_pairs, episode_numbers, st.integers(1, 2), st.integers(1, 12))
def test_references_and_queries_are_disjoint_pairs_of_the_task(
    lists: Lists, numbers: list[int], shots: int, batch: int
) -> None:
    episodes = sample(make_tasks(lists), numbers, entities=11, shots=shots, batch=batch)
    for chosen, *both in zip(*(x[0].tolist() for x in episodes[:3]), strict=True):
        references, queries = ({tuple(p) for p in some} for some in both)
        assert references | queries <= set(lists[chosen])
        assert not references & queries
        assert len(references) == shots
        assert len(queries) == min(batch, len(lists[chosen]) - shots)  # repeated only if there are too few pairs


@pytest.mark.parametrize("shared", [False, True])
@given(lists=tasks_of_pairs, known=known_pairs, numbers=episode_numbers)
def test_negatives_are_in_the_range_and_never_known_answers(
    shared: bool, lists: Lists, known: list[tuple[int, int]], numbers: list[int]
) -> None:
    tasks = make_tasks(lists, known)
    episodes = sample(tasks, numbers, entities=11, shots=2, batch=6, negatives=5, shared=shared)
    for chosen, queries, negatives in zip(*(episodes[i][0].tolist() for i in (0, 2, 3)), strict=True):
        answers = {tuple(p) for p in tasks[chosen].known.tolist()}
        for (head, _), row in zip(queries, negatives, strict=True):
            free = {t for t in tasks[chosen].range.tolist() if (head, t) not in answers}
            for tail in row:
                assert (head, tail) not in answers
                assert tail in (free or range(11))


def test_shared_negatives_are_drawn_uniformly_from_the_range() -> None:
    task = task_of([(0, 0), (1, 0), (2, 0)], range=range(11))
    drawn = sample([task], list(range(2000)), entities=11, shots=1, batch=2, negatives=5, shared=True).negatives[0]
    same = drawn[:, 0] == drawn[:, 1]
    share = torch.bincount(drawn[:, 0][same]).double() / same.sum()
    assert share[0] == 0
    assert (abs(share[1:] - 0.1) < 0.015).all()
    assert 0.85 < same.double().mean() < 0.97  # 10/11, and a tenth of the replaced cells by chance


def test_a_head_whose_whole_range_is_known_has_negatives_from_outside() -> None:
    task = task_of([(0, 1), (0, 2), (0, 3)], range=[1, 2, 3])
    for shared in (False, True):
        episodes = sample([task], [0], entities=6, shots=1, batch=10, negatives=20, shared=shared)
        assert set(episodes.negatives.flatten().tolist()) == {0, 4, 5}


def test_an_empty_range_has_negatives_from_all_entities() -> None:
    task = task_of([(0, 1), (0, 2), (0, 3)], range=[])
    for shared in (False, True):
        episodes = sample([task], [0], entities=6, shots=1, batch=10, negatives=20, shared=shared)
        assert set(episodes.negatives.flatten().tolist()) == {0, 4, 5}


def test_a_head_with_a_single_false_tail_draws_it() -> None:
    task = task_of([(0, t) for t in range(999)], range=range(1000))
    assert (sample([task], [0], entities=1000, shots=1, batch=10, negatives=5).negatives == 999).all()


def test_a_head_without_false_tails_is_an_error() -> None:
    task = task_of([(0, 0), (1, 0), (1, 1), (1, 2)], range=[0, 1, 2])
    with pytest.raises(FewlinkError, match=r"task: .*head 1"):
        EpisodeSampler([task], 3, shots=1)


@given(st.integers(1, 9), st.integers(0, 5), st.integers(0, 3))
def test_every_task_comes_once_in_a_pass(count: int, turn: int, seed: int) -> None:
    tasks = [task_of([(0, 1), (1, 2)], range=[1, 2, 3], name=f"t{i}") for i in range(count)]
    numbers = list(range(turn * count, (turn + 1) * count))
    chosen = sample(tasks, numbers, entities=4, shots=1, batch=1, seeds=[seed]).tasks
    assert sorted(chosen[0].tolist()) == list(range(count))


def test_every_pass_has_another_order() -> None:
    tasks = [task_of([(0, 1), (1, 2)], range=[1, 2, 3], name=f"t{i}") for i in range(8)]
    chosen = sample(tasks, list(range(40)), entities=4, shots=1, batch=1).tasks
    assert len({tuple(order) for order in chosen.reshape(5, 8).tolist()}) == 5


def test_pairs_and_negatives_are_drawn_uniformly() -> None:
    task = task_of([(h, h) for h in range(6)], range=range(10), known=[(0, 4), (0, 7), (0, 9)])
    episodes = sample([task], list(range(500)), shots=2, batch=8, negatives=4, seeds=[0, 1])
    references = torch.bincount(episodes.references[..., 0].flatten()).double()  # 6 pairs
    queries = torch.bincount(episodes.queries[..., 0].flatten()).double()
    draws = [(references, 6), (queries, 6)]
    for head in range(6):
        drawn = torch.bincount(episodes.negatives[episodes.queries[..., 0] == head].flatten(), minlength=10)
        false = sorted({*range(10)} - set(task.known_tails[head].tolist()))
        assert drawn.sum() == drawn[false].sum()
        draws.append((drawn[false].double(), len(false)))
    for counts, values in draws:
        expected = counts.sum() / values
        assert len(counts) == values
        assert ((counts - expected) ** 2 / expected).sum() < 40  # chi-square of at most 8 degrees: never by chance


def test_tasks_too_small_for_an_episode_are_an_error() -> None:
    with pytest.raises(FewlinkError, match="task has 2 pairs"):
        EpisodeSampler([task_of([(0, 1), (1, 2)], range=[1, 2])], 3, shots=2)
    with pytest.raises(FewlinkError, match="no train relations"):
        EpisodeSampler([], 3, shots=1)


def test_fewer_episodes_are_drawn_at_once_if_each_is_larger() -> None:
    tasks = [task_of([(h, h + 1) for h in range(4)], range=range(10))]
    few = EpisodeSampler(tasks, 10, shots=1, batch=512, negatives=64)
    many = EpisodeSampler(tasks, 10, shots=1, batch=2)
    assert 1 <= few.at_once < many.at_once


def test_the_package_imports_without_torch() -> None:
    subprocess.run([sys.executable, "-c", "import sys, fewlink.tasks; assert 'torch' not in sys.modules"], check=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_draws_the_same_episodes_without_synchronising() -> None:
    tasks = [task_of([(h, (h * i) % 50) for h in range(20 + i)], range=range(50), name=f"t{i}") for i in range(5)]
    numbers = torch.arange(40)
    for shared in (False, True):
        options: dict[str, Any] = {"shots": 3, "batch": 30, "negatives": 4, "shared": shared, "seeds": [0, 1, 2]}
        sampler, on_gpu = EpisodeSampler(tasks, 60, device="cuda", **options), numbers.cuda()
        torch.cuda.set_sync_debug_mode("error")
        try:
            episodes = sampler(on_gpu)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert equal(Episodes(*(x.cpu() for x in episodes)), EpisodeSampler(tasks, 60, **options)(numbers))


# Episodes whose references have negatives


def contrast(tasks: list[Task], numbers: list[int], entities: int = 10, **options: Any) -> ContrastedEpisodes:
    return ContrastedSampler(tasks, entities, **options).contrasted(torch.tensor(numbers))


@given(tasks_of_pairs, known_pairs, episode_numbers, st.integers(1, 2), st.integers(1, 5), st.integers(1, 3))
def test_contrasted_episodes_keep_pairs_and_negatives_apart(
    lists: Lists, known: list[tuple[int, int]], numbers: list[int], shots: int, batch: int, negatives: int
) -> None:
    tasks = make_tasks(lists, known)
    try:
        episodes = contrast(tasks, numbers, shots=shots, batch=batch, negatives=negatives)
    except FewlinkError as error:
        assert "every entity is a known tail" in str(error)
        return
    for references, reference_false, queries, false in zip(*(part.tolist() for part in episodes), strict=True):
        given, asked = [tuple(p) for p in references], [tuple(p) for p in queries]
        task = next(task for task in tasks if {*given, *asked} <= {tuple(p) for p in task.pairs.tolist()})
        assert len({*given}) == shots and not {*given} & {*asked}
        assert len({*asked}) == min(batch, len(task.pairs) - shots) or len({*asked}) < batch
        for (head, _), tails in zip([*references, *queries], [*reference_false, *false], strict=True):
            assert len(tails) == negatives
            assert not {(head, tail) for tail in tails} & {tuple(p) for p in task.known.tolist()}


def test_a_contrasted_episode_is_the_same_in_every_call_and_of_its_seed() -> None:
    tasks = make_tasks([[(h, h + 1) for h in range(9)], [(h, 0) for h in range(1, 9)]])
    together = contrast(tasks, [3, 4, 5], shots=2, batch=3)
    alone = contrast(tasks, [4], shots=2, batch=3)
    assert all(torch.equal(a[1:2], b) for a, b in zip(together, alone, strict=True))
    other = contrast(tasks, [3, 4, 5], shots=2, batch=3, seeds=[1])
    assert not all(torch.equal(a, b) for a, b in zip(together, other, strict=True))


def test_contrasted_episodes_draw_every_pair_and_task_alike() -> None:
    lists: Lists = [[(h, 1) for h in range(5)], [(h, 2) for h in range(4)]]
    episodes = contrast(make_tasks(lists), list(range(9000)), shots=2, batch=2)
    tails = torch.cat([episodes.references, episodes.queries], 1)[..., 1]
    assert (tails == tails[:, :1]).all()  # of one task
    for tail, size in ((1, 5), (2, 4)):
        chosen = (tails[:, 0] == tail).nonzero().squeeze(1)
        assert len(chosen) == pytest.approx(4500, abs=250)
        for part in (episodes.references, episodes.queries):
            counts = torch.bincount(part[chosen][..., 0].flatten(), minlength=size)
            assert counts.tolist() == pytest.approx([2 * len(chosen) / size] * size, rel=0.1)


def test_queries_repeat_only_where_a_task_is_small() -> None:
    episodes = contrast(make_tasks([[(h, 1) for h in range(5)]]), list(range(50)), shots=2, batch=7)
    for references, queries in zip(episodes.references.tolist(), episodes.queries.tolist(), strict=True):
        assert len({head for head, _ in queries}) == 3 and not {h for h, _ in references} & {h for h, _ in queries}
    whole = contrast(make_tasks([[(h, 1) for h in range(9)]]), list(range(50)), shots=2, batch=7)
    assert all(len({head for head, _ in queries}) == 7 for queries in whole.queries.tolist())
