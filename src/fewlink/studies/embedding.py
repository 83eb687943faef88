"""Figure "Embedding visualization": true and false pairs of a relation as each model sees them, with silhouettes."""

from __future__ import annotations

from fewlink.base.errors import FewlinkError
from fewlink.report import charts, tables
from fewlink.studies.pair_maps import PairMap, PairScorer, make_map, read_maps
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Bench, run_models
from fewlink.studies.study import Shown
from fewlink.training.family import ModelSettings

SEED = 0


def todo(plan: Plan, bench: Bench) -> list[str]:
    found = {(m.model, m.relation) for m in _finished(plan, bench)}
    return [f"{m}, {r}" for m in plan.models for r in plan.relations if (m, r) not in found]


def run(plan: Plan, bench: Bench) -> None:
    done = {(m.model, m.relation) for m in _finished(plan, bench)}
    for model in plan.models:
        missing = [bench.benchmark.task(r) for r in plan.relations if (model, r) not in done]
        settings, shots = plan.settings_of(model), plan.shots[0]
        if not missing or not isinstance(settings, ModelSettings):
            continue
        bench.tell(f"{model}, {', '.join(task.name for task in missing)}")
        scorer = run_models(settings, shots, [SEED], bench)[SEED].scorer
        if not isinstance(scorer, PairScorer):
            raise FewlinkError(f"{model} has no vectors of pairs: choose few-shot models")
        for task in missing:
            facts = {"benchmark": bench.benchmark.name, "data_sha256": bench.benchmark.fingerprint}
            make_map(scorer, task, **facts, shots=shots, seed=SEED).save(bench.results)


def show(plan: Plan, bench: Bench) -> Shown:
    maps = sorted(_finished(plan, bench), key=lambda m: (m.relation, plan.models.index(m.model)))
    rows = [
        [m.relation, m.model, str(len(m.points)), charts.figure(m.silhouette), charts.figure(m.silhouette_of_map)]
        for m in maps
    ]
    columns = ["relation", "model", "pairs", "silhouette", "silhouette of the map"]
    note = "silhouette: −1 to 1, of true against false pairs in the model's own space; 0 where they lie in each other"
    pictures = {f"{m.relation}-{m.model}": charts.scatter(m.points, title=f"{m.relation}, {m.model}") for m in maps}
    return Shown([tables.Table("true and false pairs", columns, rows, note)], pictures)


def _finished(plan: Plan, bench: Bench) -> list[PairMap]:
    return [
        m
        for m in (read_maps(bench.results) if bench.results.is_dir() else [])
        if m.data_sha256 == bench.benchmark.fingerprint and m.model in plan.models and m.relation in plan.relations
    ]
