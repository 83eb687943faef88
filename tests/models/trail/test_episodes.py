"""Episodes: drawn by seed and step alone, from relations that are hidden, with candidates and answers kept apart."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import benchmark_of, id_graph
from tests.training.runs import umls

from fewlink.graph import Graph
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.learn import (
    HIDDEN,
    SMALLEST,
    Batch,
    EpisodeSource,
    RelationPairs,
    TrainingBatches,
    relation_pairs,
)
from fewlink.models.trail.settings import TrailSettings

SETTINGS = TrailSettings(relations=3, queries=6, candidates=40, most_references=64)
STEPS = range(0, 200, 5)


@functools.cache
def source() -> EpisodeSource:
    return source_of(umls().known_graph)


def source_of(graph: Graph, **changes: Any) -> EpisodeSource:
    return EpisodeSource(graph, ReadGraph.of(graph), SETTINGS.model_copy(update=changes))


def episodes(*processes: int, **changes: Any) -> TrainingBatches:
    own = source_of(umls().known_graph, **changes) if changes else source()
    return TrainingBatches([own], [1.0], own.settings, *processes)


@functools.cache
def batches() -> list[Batch]:
    return [episodes()[step] for step in STEPS]


def equal(one: Batch, other: Batch) -> bool:
    same = zip(one.tensors, other.tensors, strict=True)
    return one.graph == other.graph and all(torch.equal(a, b) for a, b in same)


def pairs_by_relation(graph: Graph) -> dict[int, set[tuple[int, int]]]:
    """The pairs of every relation, inverse ones included."""
    count, found = len(graph.relations), {r: set[tuple[int, int]]() for r in range(2 * len(graph.relations))}
    for h, r, t in graph.triples().tolist():
        found[r].add((h, t))
        found[r + count].add((t, h))
    return found


def references_of(batch: Batch, task: int) -> list[tuple[int, int]]:
    references = batch.tasks.references
    used = references.entities[task][references.used[task] > 0]
    return [(h, t) for h, t in used.tolist()]


def queries_of(batch: Batch, task: int) -> list[tuple[int, int]]:
    tails = batch.tasks.candidates[task][batch.answers[task]].tolist()
    return list(zip(batch.tasks.heads[task].tolist(), tails, strict=True))


def relation_of(batch: Batch, task: int) -> set[int]:
    """The hidden relations that hold for every reference and query: which relation an episode is about."""
    hidden = (batch.tasks.references.visible[task] == 0).nonzero().flatten().tolist()
    half, named = source().relations, len(source().graph.graph.relations)
    known = {r if r < half else r + named - half: own for r, own in pairs_by_relation(umls().known_graph).items()}
    return {r for r in hidden if {*references_of(batch, task), *queries_of(batch, task)} <= known.get(r, set())}


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    assert all(equal(batch, episodes()[step]) for step, batch in zip(reversed(STEPS), reversed(batches()), strict=True))
    assert not equal(batches()[0], batches()[1]) and not equal(batches()[0], episodes(seed=1)[0])


def test_processes_share_the_episodes_of_one() -> None:
    for step in (0, 1, 7):
        whole = episodes(relations=4)[step]
        parts = [episodes(rank, 2, relations=4)[step] for rank in (0, 1)]
        for mine, first, second in zip(whole.tensors, *(part.tensors for part in parts), strict=True):
            assert torch.equal(mine[::2], first) and torch.equal(mine[1::2], second)


def test_shapes_padding_and_numbers_of_references() -> None:
    counts: dict[int, set[int]] = {}
    for batch in batches():
        references, heads, candidates = batch.tasks
        size = references.pairs.shape[1]
        assert references.ends.shape == (3, 2 * size) and heads.shape == batch.answers.shape == (3, 6)
        assert candidates.shape == (3, 40) and batch.excluded.shape == (3, 6, 40)
        shots = references.used.sum(1)
        assert torch.equal(references.used, (torch.arange(size) < shots[:, None]).float())
        counts.setdefault(size, set()).update(shots.int().tolist())
    assert counts.keys() == {16, 64}
    assert 1 in counts[16] and max(counts[16]) > 12
    assert max(counts[64]) > 40


def test_skewed_references_repeat_tails() -> None:
    def shares(skewed: float) -> float:
        drawn = [episodes(skewed=skewed)[step].tasks.references.facts[:, 6] for step in range(0, 100, 5)]
        return float(torch.cat(drawn).mean())

    assert shares(1.0) > shares(0.0) + 0.1


def test_names_are_hidden_at_times() -> None:
    named = EpisodeSource.__new__(EpisodeSource)
    named.__dict__.update(source_of(umls().known_graph, without_names=0.5).__dict__)
    assert named.graph.reads_names
    seen = [named.batch(0, np.random.default_rng(seed), 0).tasks.references for seed in range(20)]
    flags = torch.stack([references.named for references in seen])
    assert 0.2 < flags.mean() < 0.8
    for references in seen:
        of_names = references.visible[:, named.relations : named.relations + 2].sum(1)
        assert not of_names[references.named == 0].any()


def test_the_relation_and_its_inverse_are_hidden() -> None:
    half = len(source().graph.graph.relations)
    for batch in batches():
        visible = batch.tasks.references.visible
        assert set(visible.unique().tolist()) <= {0, 1} and torch.equal(visible[:, :half], visible[:, half:])
        assert (1 - visible).mean() < 2 * HIDDEN + 1 / half
    for task in range(3):
        for batch in batches()[:10]:
            assert relation_of(batch, task)


def test_other_relations_are_hidden_at_times() -> None:
    shares = torch.cat([1 - batch.tasks.references.visible[:, : source().relations].mean(1) for batch in batches()])
    assert shares.min() < 0.05 and 0.12 < shares.max() < 0.4 and 0.05 < shares.mean() < 0.2


def test_references_and_queries_are_different_pairs() -> None:
    for batch in batches():
        for task in range(3):
            given = references_of(batch, task)
            assert len(set(given)) == len(given) and not {*given} & {*queries_of(batch, task)}


def test_candidates_are_sorted_and_hold_the_answers() -> None:
    for batch in batches():
        candidates = batch.tasks.candidates
        assert (candidates.diff(dim=1) >= 0).all() and candidates.max() < len(source().degrees)
        assert not batch.excluded.gather(2, batch.answers[..., None]).any()
        repeated = torch.nn.functional.pad(candidates.diff(dim=1) == 0, (1, 0))
        counted = ~(repeated[:, None] & ~batch.excluded)
        counted.scatter_(2, batch.answers[..., None], True)
        assert counted.all()  # padding is never a rival


def test_other_known_tails_are_excluded_and_nothing_else() -> None:
    draw = np.random.default_rng(0)
    for turn in range(60):
        own = source().pairs[turn % len(source().pairs)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source(), "relation", lambda *_, own=own: own)
            references, heads, chosen, answers, excluded = source().episode(draw, 0)
        known = set(zip(own.heads.tolist(), own.tails.tolist(), strict=True))
        usable = {(int(own.heads[i]), int(own.tails[i])) for i in own.usable}
        given = references.entities[0][references.used[0] > 0].tolist()
        assert {(h, t) for h, t in given} <= known
        for query, (head, answer) in enumerate(zip(heads.tolist(), answers.tolist(), strict=True)):
            assert (head, int(chosen[answer])) in usable
            seen = set[int]()
            for column, candidate in enumerate(chosen.tolist()):
                rival = (head, candidate) not in known and candidate not in seen
                assert excluded[query, column] == (not rival and column != answer)
                seen.add(candidate)


def test_most_candidates_are_likely_and_some_are_not() -> None:
    graph = id_graph([(h, 0, 100 + h) for h in range(30)] + [(h, 1, h + 1) for h in range(150)], 400, 2)
    pairs = next(own for own in relation_pairs(graph) if own.relation == 0)
    own = source_of(graph)
    chosen = own._candidates(np.random.default_rng(0), pairs, pairs.tails[:4], 40)
    assert len(chosen) == 40 and set(pairs.tails[:4]) <= set(chosen.tolist())
    assert np.isin(chosen, pairs.range).mean() >= 0.7 and not np.isin(chosen, pairs.range).all()


def test_few_entities_are_padded_with_the_last() -> None:
    batch = episodes(candidates=400)[0]
    candidates = batch.tasks.candidates
    assert candidates.shape == (3, 400)
    for task in range(3):
        own = candidates[task]
        count = len(own.unique())
        assert count <= len(source().degrees) and (own[count:] == own[-1]).all()
        assert (batch.excluded[task, :, count:] | (batch.answers[task] == count - 1)[:, None]).all()


# Relations to learn from


def of_relation(graph: Graph, relation: int) -> RelationPairs | None:
    return next((own for own in relation_pairs(graph) if own.relation == relation), None)


def test_every_relation_comes_in_both_directions() -> None:
    graph, half = umls().known_graph, source().relations
    sizes = np.bincount(graph.triples()[:, 1], minlength=half)
    found = {own.relation: own for own in source().pairs}
    assert {r % half for r in found} <= set(np.flatnonzero(sizes >= SMALLEST).tolist())
    known = pairs_by_relation(graph)
    for relation, own in found.items():
        assert set(zip(own.heads.tolist(), own.tails.tolist(), strict=True)) == known[relation]
        assert (np.diff(own.heads) >= 0).all() and np.isin(own.tails, own.range).all()
        other = (relation + half) % (2 * half)
        assert other in found or len({h for h, _ in known[relation]}) == 1


def test_usable_pairs_have_other_edges_at_both_ends() -> None:
    ring = [(h, 0, (h + 1) % 20) for h in range(20)]
    task = [(h, 1, (h + 3) % 20) for h in range(14)]
    lonely = [(0, 1, 20), (21, 1, 1), (22, 1, 22)]
    graph = id_graph([*ring, *task, *lonely], 23, 2)
    own = of_relation(graph, 1)
    assert own is not None and len(own.heads) == 17
    usable = {(int(own.heads[i]), int(own.tails[i])) for i in own.usable}
    assert usable == {(h, t) for h, _, t in task}
    back = of_relation(graph, 3)
    assert back is not None and {(int(back.tails[i]), int(back.heads[i])) for i in back.usable} == usable


@pytest.mark.parametrize(("pairs", "there"), [(SMALLEST - 1, False), (SMALLEST, True)])
def test_small_relations_are_left_out(pairs: int, there: bool) -> None:
    ring = [(h, 0, (h + 1) % 20) for h in range(20)]
    graph = id_graph([*ring, *((h, 1, (h + 3) % 20) for h in range(pairs))], 20, 2)
    assert (of_relation(graph, 1) is not None) == there


def test_a_relation_with_one_tail_is_learnt_backwards_only() -> None:
    ring = [(h, 0, (h + 1) % 20) for h in range(20)]
    graph = id_graph([*ring, *((h, 1, 0) for h in range(1, 16))], 20, 2)
    assert of_relation(graph, 1) is None and of_relation(graph, 3) is not None


def test_a_relation_alone_gives_nothing() -> None:
    assert relation_pairs(id_graph([(h, 0, (h + 1) % 20) for h in range(20)], 20, 1)) == []
    assert relation_pairs(id_graph([], 4, 1)) == []


def test_graphs_are_chosen_in_proportion() -> None:
    small = source_of(benchmark_of(umls().graph).known_graph)
    both = TrainingBatches([source(), small], [3.0, 1.0], SETTINGS)
    chosen = [both[step].graph for step in range(200)]
    assert 0.15 < np.mean(chosen) < 0.35
