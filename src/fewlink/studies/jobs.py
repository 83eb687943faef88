"""What of a study is still to be done: a cell is finished when its record is stored."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewlink.base.recipes import OWN
from fewlink.base.settings import Settings
from fewlink.data.benchmark import Benchmark
from fewlink.evaluation.evaluator import Protocol
from fewlink.evaluation.records import Record, read_records
from fewlink.studies.plan import Plan
from fewlink.training import family_of


@dataclass(frozen=True)
class Job:
    """A model to be trained with some seeds, and what each of them is then asked."""

    model: str
    settings: Settings | None
    asked: dict[int, tuple[Protocol, ...]]  # by seed

    @property
    def shots(self) -> list[int]:
        return sorted({protocol.shots for protocols in self.asked.values() for protocol in protocols})

    def __str__(self) -> str:
        seeds = f", seeds {', '.join(map(str, self.asked))}" if family_of(self.model).seeded else ""
        return f"{self.model}, K = {', '.join(map(str, self.shots))}{seeds}"


class RecordStore:
    """The records of a folder, to look up whether something has been measured."""

    def __init__(self, folder: Path) -> None:
        self.records = read_records(folder) if folder.is_dir() else []

    def holds(self, benchmark: Benchmark, model: str, settings: Settings | None, protocol: Protocol) -> bool:
        return any(
            (r.model, r.split, r.shots, r.candidates, r.references, r.seed)
            == (model, protocol.split, protocol.shots, protocol.candidates, protocol.references, protocol.seed)
            and r.data_sha256 == benchmark.fingerprint
            and same_settings(r.config.get("settings"), settings)
            for r in self.records
        )


def same_settings(found: dict[str, Any] | None, wanted: Settings | None) -> bool:
    """Whether a record's settings are these; K, seed, device and settings that one of them does not know apart."""
    if wanted is None or found is None:
        return not found and wanted is None
    mine = wanted.as_dict()
    return all(found[name] == mine[name] for name in found.keys() & mine.keys() - {*OWN, "shots"})


def jobs(plan: Plan, benchmark: Benchmark, shelf: RecordStore) -> list[Job]:
    """Everything of a study that no record is there of, in the order it is to be done."""
    made = []
    for model in plan.models:
        family, settings = family_of(model), plan.settings_of(model)
        possible = [k for k in plan.shots if k < _fewest_pairs(benchmark, plan.splits)]
        for shots in [possible] if family.any_shots else [[k] for k in possible]:
            asked = {}
            for seed in range(plan.seeds if family.seeded else 1):
                wanted = _protocols(plan, shots, seed)
                missing = tuple(p for p in wanted if not shelf.holds(benchmark, model, settings, p))
                if missing:
                    asked[seed] = missing
            if asked:
                made.append(Job(model, settings, asked))
    return made


def of_plan(records: Iterable[Record], plan: Plan, benchmark: Benchmark) -> list[Record]:
    """The records that a study is shown from."""
    settings = {model: plan.settings_of(model) for model in plan.models}
    return [
        r
        for r in records
        if r.model in settings
        and r.data_sha256 == benchmark.fingerprint
        and r.references == "first"
        and r.split in plan.splits
        and r.shots in plan.shots
        and r.candidates in plan.candidates
        and r.seed < plan.seeds
        and same_settings(r.config.get("settings"), settings[r.model])
    ]


def _protocols(plan: Plan, shots: Sequence[int], seed: int) -> list[Protocol]:
    """Large pools of candidates first: the scores of smaller ones are among theirs."""
    against = sorted(plan.candidates, key=("full", "paper", "open").index)
    return [Protocol(split, k, c, 0, seed) for split, k, c in itertools.product(plan.splits, shots, against)]


def _fewest_pairs(benchmark: Benchmark, splits: Sequence[str]) -> int:
    return min((len(task.pairs) for split in splits for task in benchmark.split(split)), default=0)
