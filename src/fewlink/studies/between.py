"""(h, ?, t): which of the test relations, each given by K references, holds between two entities."""

from __future__ import annotations

from collections.abc import Iterator

from fewlink.core.metrics import labelled
from fewlink.core.recipes import same_settings
from fewlink.evaluation.between import RANKED_BY, relations_between
from fewlink.evaluation.records import BetweenRecord
from fewlink.models import family_of
from fewlink.models.family import BaselineFamily, Prepared, TrainedFamily
from fewlink.models.settings import ModelSettings
from fewlink.studies.jobs import run_models
from fewlink.studies.plan import Plan
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.tables import Table, emphasise, spread
from fewlink.studies.workspace import Workspace

COLUMNS = labelled("mrr", "hits@1", "hits@5")
NOTE = "micro: mean over pairs; macro: mean over relations; at most 100 pairs of each relation"


def show(plan: Plan, workspace: Workspace) -> StudyOutput:
    """A table of all relations, and one of each relation's MRR."""
    records = _finished(plan, workspace)
    rows = []
    by_relation = []
    for ranked_by in RANKED_BY:
        for model in plan.models:
            seeds = [r for r in records if (r.model, r.ranked_by) == (model, ranked_by)]
            if not seeds:
                continue
            cells = [spread([r.metrics["micro"][metric] for r in seeds]) for metric in COLUMNS.values()]
            macro = spread([r.metrics["macro"]["mrr"] for r in seeds])
            rows.append([model, ranked_by, str(len(seeds)), f"{seeds[0].queries:,}", *cells, macro])
            for relation in seeds[0].relations:
                figures = [r.relations[relation] for r in seeds]
                cells = [spread([f[metric] for f in figures]) for metric in COLUMNS.values()]
                by_relation.append([relation, model, ranked_by, str(int(figures[0]["queries"])), *cells])
    columns = ["model", "ranked by", "seeds", "pairs", *COLUMNS, "macro MRR"]
    count = len(records[0].relations) if records else 0
    title = f"{workspace.benchmark.name}, {plan.splits[0]}: which of {count} relations, K = {plan.shots[0]}"
    by_relation.sort(key=lambda row: row[0])
    output = [Table(title, columns, emphasise(rows, range(4, len(columns)), group=1), NOTE)]
    if by_relation:
        output.append(Table("by relation", ["relation", "model", "ranked by", "pairs", *COLUMNS], by_relation))
    return StudyOutput(output)


def pending(plan: Plan, workspace: Workspace) -> list[str]:
    return [f"{model}, seeds {', '.join(map(str, seeds))}" for model, seeds in _missing(plan, workspace).items()]


def run(plan: Plan, workspace: Workspace) -> None:
    """Prepare or train each model, and store its records."""
    for model, seeds in _missing(plan, workspace).items():
        workspace.log(f"{model}, seeds {', '.join(map(str, seeds))}")
        for seed, prepared in _scorers(plan, model, seeds, workspace):
            for record in relations_between(
                workspace.data,
                prepared.scorer,
                model=model,
                split=plan.splits[0],
                shots=plan.shots[0],
                seed=seed,
                config=prepared.config,
            ):
                workspace.store.add(record)


def _scorers(plan: Plan, model: str, seeds: list[int], workspace: Workspace) -> Iterator[tuple[int, Prepared]]:
    """The scorer of each seed: prepared, with built-in weights, or trained."""
    family = family_of(model)
    settings = plan.settings_of(model)
    shots = plan.shots[0]
    if isinstance(family, BaselineFamily):
        for seed in seeds:
            own = settings.replace(device=workspace.device) if settings else None
            yield seed, family.prepare(model, workspace.data, own, shots=shots, seed=seed)
    elif isinstance(family, TrainedFamily) and model in family.shipped_models:
        yield 0, family.shipped(model, workspace.data, workspace.device)
    else:
        assert isinstance(settings, ModelSettings)
        yield from run_models(settings, shots, seeds, workspace).items()


def _seeds(plan: Plan, model: str) -> range:
    family = family_of(model)
    built_in = isinstance(family, TrainedFamily) and model in family.shipped_models
    return range(plan.seeds if family.seeded and not built_in else 1)


def _missing(plan: Plan, workspace: Workspace) -> dict[str, list[int]]:
    """The seeds of each model that have no record."""
    finished = {(record.model, record.seed) for record in _finished(plan, workspace)}
    missing = {model: [s for s in _seeds(plan, model) if (model, s) not in finished] for model in plan.models}
    return {model: seeds for model, seeds in missing.items() if seeds}


def _finished(plan: Plan, workspace: Workspace) -> list[BetweenRecord]:
    settings = {model: None if len(_seeds(plan, model)) == 1 else plan.settings_of(model) for model in plan.models}
    return [
        record
        for record in workspace.store.read(BetweenRecord)
        if record.model in settings
        and record.data_sha256 == workspace.benchmark.fingerprint
        and (record.split, record.shots) == (plan.splits[0], plan.shots[0])
        and record.seed < plan.seeds
        and (settings[record.model] is None or same_settings(record.config.get("settings"), settings[record.model]))
    ]


STUDY = Study(show, pending, run)
