import numpy as np
import pytest

from fewlink.data import open_benchmark
from fewlink.data.triples import training_triples

BENCHMARK = open_benchmark("umls")


def pairs_of(triples: np.ndarray, relation: int) -> set[tuple[int, int]]:
    return {(h, t) for h, r, t in triples.tolist() if r == relation}


def test_by_default_only_the_background_is_trained_on() -> None:
    data = training_triples(BENCHMARK)
    assert np.array_equal(data.triples, BENCHMARK.graph.triples())
    assert data.relations == list(BENCHMARK.graph.relations)
    assert data.background.all()


def test_train_tasks_come_whole_behind_the_background() -> None:
    data = training_triples(BENCHMARK, with_train_tasks=True)
    names = [t.name for t in BENCHMARK.tasks["train"]]
    assert data.relations[len(BENCHMARK.graph.relations) :] == names
    first = BENCHMARK.tasks["train"][0]
    assert pairs_of(data.triples, data.relations.index(first.name)) == set(map(tuple, first.pairs.tolist()))
    assert data.background.sum() == BENCHMARK.graph.triple_count


@pytest.mark.parametrize("draw", [0, 2])
def test_of_dev_and_test_relations_nothing_but_the_references_is_seen(draw: int) -> None:
    data = training_triples(BENCHMARK, with_train_tasks=True, shots=3, draw=draw, seed=1)
    for split in ("dev", "test"):
        for task in BENCHMARK.tasks[split]:
            references, queries = task.split(3, draw, 1)
            seen = pairs_of(data.triples, data.relations.index(task.name))
            assert seen == set(map(tuple, references.tolist()))
            assert not seen & set(map(tuple, queries.tolist()))


def test_a_fold_moves_train_relations_to_dev_and_touches_no_other() -> None:
    folded = BENCHMARK.with_fold(1, 5)
    moved = [t.name for t in BENCHMARK.tasks["train"]][1::5]
    assert [t.name for t in folded.tasks["dev"]] == [t.name for t in BENCHMARK.tasks["dev"]] + moved
    assert not set(moved) & {t.name for t in folded.tasks["train"]}
    assert folded.tasks["test"] is BENCHMARK.tasks["test"]
