"""Several processes train the vectors of one process, in every regime and in changing numbers; their errors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.embeddings.test_trainer import ENTITIES, SMALL, planted

from fewlink.core import distributed
from fewlink.core.errors import FewlinkError
from fewlink.embeddings import EmbeddingSettings, checkpoint, train
from fewlink.embeddings.batches import Batches, torch_generator
from fewlink.embeddings.checkpoint import load_state, save_state
from fewlink.embeddings.shards import PIECE, Batch, Shard, first_vectors

pytestmark = pytest.mark.slow

COUNTS = (2, 3, 4)
UNEVEN = 133  # the last of six batches of the 666 examples has one example

CASES: dict[str, dict[str, Any]] = {
    "complex": {"batch_size": UNEVEN},
    "complex, adam, held out": {"optimizer": "adam", "learning_rate": 0.01, "held_out": 0.1, "patience": 9},
    "complex, each": {"corrupt": "each", "negatives": 3, "batch_size": UNEVEN, "lp": 0.1},
    "complex, each, adam": {"corrupt": "each", "negatives": 3, "optimizer": "adam", "learning_rate": 0.01},
    "transe": {"model": "transe", "n3": 0.0, "held_out": 0.1, "patience": 9},
    "transe, adam": {"model": "transe", "optimizer": "adam", "learning_rate": 0.01, "batch_size": UNEVEN},
    "transe, each": {"model": "transe", "corrupt": "each", "negatives": 3, "loss": "margin"},
    "rescal": {"model": "rescal", "batch_size": UNEVEN},
    "a pool of all": {"negatives": 1000, "loss": "logistic"},
    "one-vs-all": {"regime": "one-vs-all", "held_out": 0.1, "patience": 9},
    "k-vs-all": {"regime": "k-vs-all", "held_out": 0.1, "patience": 9, "batch_size": UNEVEN},
    "one-vs-all, adam": {"regime": "one-vs-all", "optimizer": "adam", "learning_rate": 0.01, "batch_size": UNEVEN},
}
CHAIN: dict[str, Any] = {"optimizer": "adam", "learning_rate": 0.01, "held_out": 0.1, "patience": 9}
FEW = np.array([[0, 0, 1], [1, 0, 2]])  # three entities: the fourth process has no row


def small(**changes: Any) -> EmbeddingSettings:
    """Few batches, because in each the processes wait for each other several times."""
    return EmbeddingSettings(**{**SMALL, "epochs": 2, "batch_size": 128, **changes})


# All work of the processes is done in one start of each, because starting takes longer than the work. One process loads
# torch and forks the others; it has one thread, so that forking is safe.
SCRIPT = """
import json, os, sys
from pathlib import Path
import torch, torch.distributed as dist
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.optim.Adam([torch.zeros(1)])
os.fsync = lambda handle: None
from fewlink.core import distributed
from tests.embeddings.test_shards import COUNTS, work_of_each

place = Path(sys.argv[1])

def work(rank):
    for count in (count for count in COUNTS if rank < count):
        dist.init_process_group("gloo", init_method=f"file://{place}/store-{count}", rank=rank, world_size=count)
        assert distributed.count() == count and distributed.rank() == rank
        results = work_of_each(place, count)
        (place / f"results-{count}-{rank}.json").write_text(json.dumps(results))
        dist.destroy_process_group()

for rank in range(max(COUNTS)):
    if not os.fork():
        work(rank)
        sys.exit()
for _ in range(max(COUNTS)):
    assert os.wait()[1] == 0, "one failed, and the others would wait for it"
"""


def work_of_each(place: Path, count: int) -> dict[str, Any]:
    """The work of each of `count` processes: writes its tables to a file, and returns the other results."""
    results: dict[str, Any] = {}
    tables = {name: train(planted(), ENTITIES, 4, small(**case)) for name, case in CASES.items()}
    tables["few"] = train(FEW, 3, 1, small(negatives=2, dim=6))
    chained = small(**CHAIN, epochs=count)  # after epoch 1 of one process, 2 of two and so on
    tables["chain"] = train(planted(), ENTITIES, 4, chained, resume=place / "chain")
    results["beside the chain"] = distributed.gathered(sorted(path.name for path in place.glob("chain*")))
    for epochs in (1, 2):
        state = place / f"parts-{count}"
        tables["parts"] = train(planted(), ENTITIES, 4, small(epochs=epochs, batch_size=UNEVEN), resume=state)
    results["alone"] = distributed.from_first(lambda: train(planted(), ENTITIES, 4, small(epochs=1)).facts["epochs"])
    distributed.gathered(None)
    if distributed.rank() == 0:
        next(place.glob(f"parts-{count}.epoch-2.1-of-*")).unlink()
    distributed.gathered(None)
    first = distributed.rank() == 0
    for what, arguments, change, resume in (
        ("missing", planted(), {"epochs": 3, "batch_size": UNEVEN}, place / f"parts-{count}"),
        ("other settings", planted(), {"dim": 8}, place / "chain"),
        ("other triples", planted()[: 300 if first else 200], {}, None),
        ("other places", planted(), {}, place / ("here" if first else f"there-{distributed.rank()}") / "state"),
        ("no number", planted(), {"learning_rate": 1e300, "epochs": 3}, None),
    ):
        try:
            train(arguments, ENTITIES, 4, small(**change), resume=resume)
        except FewlinkError as error:
            results[what] = str(error)
    parts = {
        f"{name}.{kind}": getattr(t, kind).numpy() for name, t in tables.items() for kind in ("entities", "relations")
    }
    np.savez(place / f"tables-{count}-{distributed.rank()}.npz", **parts)
    results["mrr"] = {name: table.facts["held_out_mrr"] for name, table in tables.items()}
    results["losses"] = {name: [trace["loss"] for trace in table.trace] for name, table in tables.items()}
    return results


@pytest.fixture(scope="module")
def exact() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, exact: None) -> Path:
    """The folder with the results of two, three and four processes."""
    place = tmp_path_factory.mktemp("shards")
    train(planted(), ENTITIES, 4, small(**CHAIN, epochs=1), resume=place / "chain")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    with (place / "output").open("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(place)],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(120)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):  # none of its forks is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert code == 0, (output.seek(0), output.read()[-10000:])
    return place


def results_of(place: Path, count: int) -> list[dict[str, Any]]:
    return [json.loads((place / f"results-{count}-{rank}.json").read_text()) for rank in range(count)]


@pytest.mark.parametrize("name", CASES)
def test_several_processes_train_the_vectors_of_one(name: str, place: Path) -> None:
    alone = train(planted(), ENTITIES, 4, small(**CASES[name]))
    for count in COUNTS:
        for rank in range(count):
            tables = np.load(place / f"tables-{count}-{rank}.npz")
            for kind in ("entities", "relations"):
                expected = getattr(alone, kind).numpy()
                np.testing.assert_allclose(tables[f"{name}.{kind}"], expected, rtol=1e-9, atol=1e-11)
        for each in results_of(place, count):
            assert each["mrr"][name] == (alone.facts["held_out_mrr"] and pytest.approx(alone.facts["held_out_mrr"]))
            assert each["losses"][name] == pytest.approx([trace["loss"] for trace in alone.trace], rel=1e-10)


def test_a_process_may_have_no_rows(place: Path) -> None:
    alone = train(FEW, 3, 1, small(negatives=2, dim=6))
    for rank in range(4):
        tables = np.load(place / f"tables-4-{rank}.npz")
        np.testing.assert_allclose(tables["few.entities"], alone.entities.numpy(), rtol=1e-10, atol=1e-12)


def test_a_run_is_resumed_by_two_three_four_and_one_process(place: Path) -> None:
    for count in COUNTS:
        shards = [f"chain.epoch-{count}.{rank}-of-{count}" for rank in range(1, count)]
        assert results_of(place, count)[0]["beside the chain"] == [["chain", *shards, "chain.whole"]] * count
    settings = small(**CHAIN, epochs=5)
    resumed = train(planted(), ENTITIES, 4, settings, resume=place / "chain")
    alone = train(planted(), ENTITIES, 4, settings)
    torch.testing.assert_close(resumed.entities, alone.entities, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(resumed.relations, alone.relations, rtol=1e-9, atol=1e-11)
    assert resumed.facts["held_out_mrr"] == pytest.approx(alone.facts["held_out_mrr"])
    assert [trace["epoch"] for trace in resumed.trace] == [1, 2, 3, 4, 5]
    assert not list(place.glob("chain.epoch-*"))


@pytest.mark.parametrize("count", COUNTS)
def test_resumed_processes_are_equal_to_the_bit(count: int, place: Path) -> None:
    first = np.load(place / f"tables-{count}-0.npz")
    for rank in range(count):
        tables = np.load(place / f"tables-{count}-{rank}.npz")
        for kind in ("entities", "relations"):
            assert np.array_equal(tables[f"parts.{kind}"], first[f"complex.{kind}"])


@pytest.mark.parametrize("count", COUNTS)
def test_all_processes_raise_the_same_error(count: int, place: Path) -> None:
    results = results_of(place, count)
    for what, message in (
        ("missing", f"parts-{count}.epoch-2.1-of-{count}: is a part of the state"),
        ("other settings", "trained with dim = 16, not 8"),
        ("other triples", "the processes were given different triples or settings"),
        ("other places", "all processes need the same folder"),
        ("no number", "train with a smaller learning_rate"),
    ):
        assert all(message in each[what] for each in results), (what, [each[what] for each in results])
    assert all(each["alone"] == 1 for each in results)
    assert not list(place.glob("**/.seen-by-all-*"))


@given(st.integers(1, 40), st.integers(1, 5))
def test_places_sort_by_process_and_row(total: int, count: int) -> None:
    shards = [Shard(total, rank, count) for rank in range(count)]
    assert sum(map(len, shards)) == total and max(map(len, shards)) == shards[0].most
    places = shards[0].places(torch.arange(total))
    assert len(places.unique()) == total
    for shard in shards:
        own = places[shard.rank :: count]
        assert own.tolist() == [shard.rank * shard.most + row for row in range(len(shard))]


def test_pieces_have_the_ids_of_their_rows() -> None:
    shard = Shard(3 * PIECE + 7, 1, 2)
    ids = list(range(1, shard.total, 2))
    for rows, whole in shard.pieces():
        assert ids[rows] == list(range(shard.total))[whole]
    assert sum(rows.stop - rows.start for rows, _ in shard.pieces()) == len(shard)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("total", [3, 1000, PIECE + 1, 2 * PIECE])
def test_initial_vectors_are_those_of_one_process(total: int, kind: torch.dtype) -> None:
    torch.set_default_dtype(kind)
    try:
        whole = torch.empty(total, 3).normal_(0, 0.1, generator=torch_generator(7))
        for count in (1, 2, 5):
            for rank in range(count):
                rows = first_vectors(Shard(total, rank, count), 3, 0.1, torch_generator(7))
                assert torch.equal(rows, whole[rank::count])
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("corrupt", ["shared", "each"])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_shares_of_a_batch_make_up_the_batch(count: int, corrupt: str) -> None:
    settings = EmbeddingSettings(batch_size=UNEVEN, negatives=7, corrupt=corrupt)
    triples = torch.from_numpy(planted())
    whole = list(Batches(triples, ENTITIES, 4, settings).epoch(3))
    parts = [list(Batches(triples, ENTITIES, 4, settings, (rank, count)).epoch(3)) for rank in range(count)]
    for batch, *shares in zip(whole, *parts, strict=True):
        assert sum(map(len, shares)) == len(batch) == batch.size == shares[0].size
        assert sorted(e for part in shares for e in examples(part)) == sorted(examples(batch))
        if corrupt == "shared":
            assert all(torch.equal(part.entities[2 * len(part) :], batch.entities[2 * len(batch) :]) for part in shares)


def examples(batch: Batch) -> list[tuple[int, ...]]:
    """Head, relation, tail and, if it has its own, the negatives of every example."""
    size, kinds = len(batch), batch.relations.repeat_interleave(batch.counts)
    columns = [batch.entities[:size], kinds, batch.entities[size : 2 * size]]
    if batch.penalty.dim() == 2:
        columns += batch.entities[2 * size :].view(size, -1).T if size else []
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_kill_at_any_moment_leaves_an_intact_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes, simulated in this one, are killed before and after the renaming and before removing."""
    path, settings = tmp_path / "state", small()
    monkeypatch.setattr(distributed, "everywhere", lambda make: make())
    monkeypatch.setattr(distributed, "from_first", lambda make: make())
    removed = Path.unlink

    def save(epoch: int, ranks: tuple[int, ...] = (1, 2, 0)) -> None:
        facts = {"settings": settings.as_dict(), "triples": "some", "done": epoch}
        for rank in ranks:
            monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
            tensors = {
                "entities": torch.arange(rank, 10.0, 3)[:, None] + 100 * epoch,
                "relations": torch.ones(2) * epoch,
            }
            with monkeypatch.context() as patch:
                if rank:  # only the first process renames
                    patch.setattr(checkpoint, "_replace", lambda *arguments: None)
                save_state(path, tensors, facts, Shard(10, rank, 3))

    def epoch_of_state() -> int:
        """The epoch of the state, which any number of processes reads alike."""
        for count in (1, 2, 3, 4):
            for rank in range(count):
                tensors, facts = load_state(path, settings, "some", "cpu", Shard(10, rank, count))
                expected = torch.arange(rank, 10.0, count)[:, None] + 100 * facts["done"]
                assert torch.equal(tensors["entities"], expected)
                assert torch.equal(tensors["relations"], torch.ones(2) * facts["done"])
        return int(facts["done"])

    save(1)
    assert epoch_of_state() == 1
    save(2, ranks=(1,))  # killed before the others had written
    assert epoch_of_state() == 1
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_replace", lambda *arguments: None)  # killed before the renaming
        save(2)
    assert epoch_of_state() == 1
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda self, missing_ok=False: None)  # killed before the old one was removed
        save(2)
    assert epoch_of_state() == 2 and len(list(tmp_path.iterdir())) == 5
    save(3)
    assert epoch_of_state() == 3 and len(list(tmp_path.iterdir())) == 3
    assert Path.unlink is removed
    monkeypatch.setattr(distributed, "rank", lambda: 0)
    next(tmp_path.glob("state.epoch-*")).write_bytes(b"damaged")
    with pytest.raises(FewlinkError, match="is not a training state"):
        epoch_of_state()
