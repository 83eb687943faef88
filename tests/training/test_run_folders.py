"""A run folder continues to the bit, is opened with its own graph, and is never mixed up with anything else."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import benchmark_of, id_graph
from tests.training.runs import lines_of, saved, small, timeless, umls, vectors
from tests.training.runs import quick as quick

from fewlink.core.errors import FewlinkError, InputError
from fewlink.models.folder import locked_run
from fewlink.tasks import Benchmark
from fewlink.training import RunConfig, is_run, open_run
from fewlink.training.run import truncate_metrics
from fewlink.training.trainer import train_run


@pytest.mark.parametrize(
    "changes",
    [{}, {"embedding_rate": 0.01, "clip": 1.0}, {"relations": 2, "negatives": 2, "shared_negatives": True}],
    ids=["plain", "tuned-vectors", "relations"],
)
def test_a_continued_run_equals_an_undisturbed_one(changes: dict[str, Any], tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    train_run(umls(), vectors(), small(**changes), tmp_path / "whole")
    train_run(umls(), vectors(), small(steps=2, **changes), tmp_path / "parts")
    train_run(umls(), vectors(), small(steps=4, **changes), tmp_path / "parts")
    train_run(umls(), vectors(), small(**changes), tmp_path / "parts", on_event=events.append)
    assert saved(tmp_path / "whole") == saved(tmp_path / "parts")
    assert timeless(tmp_path / "whole") == timeless(tmp_path / "parts")
    assert [(e["event"], e["step"], e["steps"]) for e in events] == [("continued", 4, 6), ("evaluated", 6, 6)]
    assert RunConfig.read(tmp_path / "parts").settings.steps == 6
    before = saved(tmp_path / "parts")
    again = train_run(umls(), vectors(), small(**changes), tmp_path / "parts")
    assert again.step == 6 and saved(tmp_path / "parts") == before and len(lines_of(tmp_path / "parts")) == 3


@pytest.mark.parametrize("model", ["fsrl", "fsrl-released"])
def test_dropout_is_a_function_of_seed_and_step(model: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    train_run(umls(), vectors(), small(model=model, dropout=0.5), tmp_path / "whole")
    torch.manual_seed(2)
    before = torch.get_rng_state()
    train_run(umls(), vectors(), small(model=model, dropout=0.5), tmp_path / "again")
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.are_deterministic_algorithms_enabled()
    train_run(umls(), vectors(), small(model=model, dropout=0.5, steps=2), tmp_path / "parts")
    train_run(umls(), vectors(), small(model=model, dropout=0.5), tmp_path / "parts")
    assert saved(tmp_path / "whole") == saved(tmp_path / "again") == saved(tmp_path / "parts")
    train_run(umls(), vectors(), small(model=model), tmp_path / "without")
    assert saved(tmp_path / "whole") != saved(tmp_path / "without")


def test_another_run_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_run(umls(), vectors(), small(steps=4), run)
    before = saved(run)
    fewer = {**umls().tasks, "train": umls().tasks["train"][1:]}
    fold = replace(umls(), tasks=fewer)
    changed = {"relations": 2, "dropout": 0.1, "embedding_rate": 0.1, "standardise": True, "shared_negatives": True}
    changed |= {"smallest_range": 5, "decays": 3, "temperature": 2.0}
    for benchmark, table, settings, token in (
        (umls(), vectors(), small(steps=4, batch=9), "batch = 8"),
        (umls(), vectors(), small(steps=4, seed=1), "seed = 0"),
        (umls(), vectors(), small(steps=2), "steps = 4"),
        (umls(), vectors(seed=1), small(steps=4), "embeddings"),
        (fold, vectors(), small(steps=4), "benchmark"),
        *((umls(), vectors(), small(steps=4, **{n: v}), f"{n} = ") for n, v in changed.items()),
    ):
        with pytest.raises(FewlinkError, match=token):
            train_run(benchmark, table, settings, run)
    assert saved(run) == before and RunConfig.read(run).settings == small(steps=4)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    with pytest.raises(FewlinkError, match=re.escape(str(tmp_path))):
        train_run(umls(), vectors(), small(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    assert not is_run(tmp_path)
    with pytest.raises(InputError) as error:
        open_run(tmp_path, umls())
    assert error.value.path == tmp_path


def test_vectors_that_lie_in_the_folder_are_used_and_never_replaced(tmp_path: Path) -> None:
    vectors(seed=1).save(tmp_path / "embeddings", umls().graph.fingerprint, graph="mine")
    before = {path: path.read_bytes() for path in (tmp_path / "embeddings").iterdir()}
    with pytest.raises(FewlinkError, match="embeddings"):
        train_run(umls(), vectors(), small(), tmp_path)
    train_run(umls(), vectors(seed=1), small(steps=1, embedding_rate=0.1), tmp_path)
    open_run(tmp_path, umls())
    assert {path: path.read_bytes() for path in (tmp_path / "embeddings").iterdir()} == before


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with locked_run(tmp_path), ThreadPoolExecutor(1) as other:
        for _ in range(2):
            with pytest.raises(FewlinkError, match=re.escape(str(tmp_path))):
                other.submit(train_run, umls(), vectors(), small(), tmp_path).result()
    train_run(umls(), vectors(), small(steps=1), tmp_path)


def test_checkpoints_that_were_moved_when_the_process_was_killed_come_back(tmp_path: Path) -> None:
    train_run(umls(), vectors(), small(steps=2), tmp_path)
    before = saved(tmp_path)
    for name in ("last", "best"):
        (tmp_path / name).rename(tmp_path / f".{name}.previous")
    open_run(tmp_path, umls())
    assert not (tmp_path / "last").exists()  # reading changes nothing
    train_run(umls(), vectors(), small(steps=4), tmp_path)
    assert saved(tmp_path) != before and not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_scorer_belongs_to_its_graph(tmp_path: Path) -> None:
    train_run(umls(), vectors(), small(steps=1), tmp_path)
    assert is_run(tmp_path)
    other = benchmark_of(id_graph([(0, 0, 1)]))
    with pytest.raises(InputError, match=r"umls.*small"):
        open_run(tmp_path, other)


def test_what_cannot_be_evaluated_or_sampled_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    tasks = umls().tasks
    without = Benchmark("umls", umls().graph, {**tasks, "dev": []})
    for benchmark, settings, token in (
        (without, small(), "dev"),
        (umls(), small(shots=60), "60"),
        (Benchmark("umls", umls().graph, {**tasks, "train": []}), small(), "train relations"),
    ):
        with pytest.raises(FewlinkError, match=token):
            train_run(benchmark, vectors(), settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_lines_are_cut_back_and_made_good(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "a": 1}\n{"step": 4, "a": 2}\n{"step": 6, "a": 3}\n{"step": 8, "a"')
    truncate_metrics(tmp_path, {"step": 4, "a": 0})
    assert lines_of(tmp_path) == [{"step": 2, "a": 1}, {"step": 4, "a": 2}]
    path.write_text('{"step": 2, "a": 1}\n{"ste')
    truncate_metrics(tmp_path, {"step": 4, "a": 0})
    assert lines_of(tmp_path) == [{"step": 2, "a": 1}, {"step": 4, "a": 0}]
    truncate_metrics(tmp_path, {})
    assert lines_of(tmp_path) == []


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    train_run(umls(), vectors(), small(steps=2), tmp_path)
    weights = tmp_path / "last" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    for attempt in (lambda: train_run(umls(), vectors(), small(), tmp_path), lambda: open_run(tmp_path, umls())):
        with pytest.raises(InputError) as error:
            attempt()
        assert error.value.path == weights


def test_another_programs_configuration_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"mine": 1}')
    with pytest.raises(FewlinkError, match=re.escape(str(tmp_path))):
        train_run(umls(), vectors(), small(), tmp_path)
    assert (tmp_path / "config.json").read_text() == '{"mine": 1}'
