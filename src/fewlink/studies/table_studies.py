"""Studies that are tables and charts: of evaluated models, of the benchmark, of runs step by step, and of pairs as each
model represents them."""

from __future__ import annotations

import dataclasses
import itertools
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fewlink import __version__
from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.core.memory import command_line
from fewlink.core.recipes import same_settings
from fewlink.core.seeds import derive, generator
from fewlink.core.storage import write_json
from fewlink.data import open_benchmark
from fewlink.data.benchmark import SPLITS, Benchmark, Task
from fewlink.evaluation.curves import CurvePoint, LearningCurve
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.evaluation.maps import PairMap
from fewlink.evaluation.records import Record
from fewlink.evaluation.stored import read_result
from fewlink.models.family import ModelSettings
from fewlink.report import charts, tables
from fewlink.report.tables import COLUMNS, Table, by_selection, leaderboard, step_lines
from fewlink.scorers import Scorer
from fewlink.studies.runner import (
    Plan,
    Rivals,
    Study,
    StudyOutput,
    Workspace,
    pending_jobs,
    run_jobs,
    run_models,
)
from fewlink.training.run import RunConfig
from fewlink.training.trainer import Watch

CURVE = "course.json"  # in a run: its learning curve so far


def show_overall(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Table 2: every system on test and dev, under each candidates protocol, with the paper's figures."""
    published = plan.published.get(workspace.benchmark.name)
    return StudyOutput(tables.overall(finished_records(plan, workspace), published))


def show_ablation(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Table 4, and the same of TRAIL: a model without its parts, one at a time, with the paper's figures."""
    records = finished_records(plan, workspace)
    whole = next((model for model, variants in tables.ablations().items() if {*plan.models} <= {*variants}), None)
    if whole is None:
        raise FewlinkError(f"{', '.join(plan.models)} are not one model and its ablations: leave out some of them")
    changes = [tables.ablation(records, whole, candidates=c) for c in plan.candidates]
    return StudyOutput([*tables.overall(records, plan.published.get(workspace.benchmark.name)), *changes])


def show_relations(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Table 3: each test relation with its number of candidates, and the paper's relations, which it only numbers."""
    records, shots = finished_records(plan, workspace), plan.shots[0]
    output = [tables.by_relation(records, plan.models, candidates=c, shots=shots) for c in plan.candidates]
    rows = [
        [number, model, *(charts.figure(figures[metric]) for metric in tables.COLUMNS.values())]
        for model, relations in plan.published.get(workspace.benchmark.name, {}).items()
        for number, figures in relations.items()
    ]
    if rows:
        rows.sort(key=lambda row: int(row[0]))
        output.append(Table("as published, paper", ["relation", "model", *tables.COLUMNS], rows))
    candidates = plan.candidates[-1]
    on_test = tables.select(records, split="test", candidates=candidates, shots=shots)
    title = f"{workspace.benchmark.name}, test relations, {candidates} candidates"
    picture = charts.bars(tables.relation_bars(on_test, plan.models), title=title, value_label="MRR")
    return StudyOutput(output, {"relations": picture})


def show_shots(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Figure "Impact of few-shot size": four metrics by the number of references, with bands over seeds."""
    records = finished_records(plan, workspace)
    output, pictures = [], {}
    for candidates in plan.candidates:
        on_test = tables.select(records, split="test", candidates=candidates)
        for name, metric in tables.COLUMNS.items():
            output.append(tables.by_shots(records, metric, candidates=candidates))
            pictures[f"{metric.replace('@', '-at-')}-{candidates}"] = charts.lines(
                tables.shots_lines(on_test, plan.models, metric),
                title=f"{workspace.benchmark.name}, test, {name}, {candidates} candidates",
                x_label="references (K)",
                y_label=name,
            )
    return StudyOutput(output, pictures)


def finished_records(plan: Plan, workspace: Workspace) -> list[Record]:
    """The records that a study shows, in the plan's order of models."""
    settings = {model: plan.settings_of(model) for model in plan.models}
    records = [
        r
        for r in workspace.store.records
        if r.model in settings
        and r.data_sha256 == workspace.benchmark.fingerprint
        and r.references == "first"
        and r.split in plan.splits
        and r.shots in plan.shots
        and r.candidates in plan.candidates
        and r.seed < plan.seeds
        and same_settings(r.config.get("settings"), settings[r.model])
    ]
    return sorted(records, key=lambda r: (plan.models.index(r.model), r.split, r.candidates, r.shots, r.seed))


COUNTS = ("entities", "triples", "relations", "tasks", *SPLITS)


def show_datasets(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Table 1: the size of a benchmark, with the paper's counts."""
    benchmark = workspace.benchmark
    rows = [[benchmark.name, *(f"{n:,}" for n in counts(benchmark).values())]]
    if published := plan.published_data.get(benchmark.name):
        rows.append([f"*{benchmark.name}, as published*", *(f"*{published[name]:,}*" for name in COUNTS)])
    note = (
        "triples are those of the background; relations are background and task relations; tasks are split three ways"
    )
    return StudyOutput([Table("data sets", ["data set", *COUNTS], rows, note)])


def counts(benchmark: Benchmark) -> dict[str, int]:
    """The counts of the paper's Table 1, and the tasks of each split."""
    splits = {split: len(benchmark.split(split)) for split in SPLITS}
    graph, tasks = benchmark.graph, sum(splits.values())
    sizes = {"entities": len(graph.entities), "triples": graph.triple_count, "relations": len(graph.relations) + tasks}
    return {**sizes, "tasks": tasks, **splits}


DATASETS = Study(show_datasets, pending=lambda plan, workspace: [], run=lambda plan, workspace: None)


def show_rivals(plan: Plan, workspace: Workspace) -> StudyOutput:
    """The leaderboard of each benchmark."""
    names = dict.fromkeys(name for each in plan.rivals for name in each.benchmarks)
    return StudyOutput([leaderboard(workspace.store, name, plan.names) for name in names])


def pending_rivals(plan: Plan, workspace: Workspace) -> list[str]:
    """A line for each model and benchmark with missing records: which, and the command that makes them."""
    lines = []
    for rivals, benchmark, model, missing in _missing_rivals(plan, workspace):
        shots, candidates, seeds = (list(dict.fromkeys(str(cell[i]) for cell in missing)) for i in range(3))
        words = {"model": model, "file": model.replace("-", "_"), "benchmark": benchmark}
        words["protocols"] = " ".join(
            ["--split test", *(f"-k {k}" for k in shots), *(f"--candidates {c}" for c in candidates)]
        )
        words["seeds"] = " ".join(f"--seed {seed}" for seed in seeds)
        what = f"K = {', '.join(shots)}; {', '.join(candidates)}; seeds {', '.join(seeds)}"
        needs = f" (needs {rivals.needs.format(**words)})" if rivals.needs else ""
        lines.append(f"{benchmark}, {model}: {what}{needs}: {rivals.command.format(**words)}")
    return lines


def run_rivals(plan: Plan, workspace: Workspace) -> None:
    """Evaluate what needs nothing special; name the commands of the rest."""
    for rivals in (each for each in plan.rivals if not each.needs):
        part = Plan(title="", about="", expect="", splits=["test"], **rivals.model_dump(include=SHARED))
        for name in rivals.benchmarks if any(_missing_rivals(plan, workspace, rivals)) else []:
            try:
                benchmark = workspace.benchmark if name == workspace.benchmark.name else open_benchmark(name)
            except FewlinkError as error:
                workspace.tell(f"left out: {error}")
                continue
            there = dataclasses.replace(workspace, benchmark=benchmark, work=workspace.work.parent / name)
            run_jobs(pending_jobs(part, there), there)
    for line in pending_rivals(plan, workspace):
        workspace.tell(f"not run: {line}")


SHARED = {"models", "shots", "candidates", "seeds"}  # of rivals and plans
RIVALS = Study(show_rivals, pending_rivals, run_rivals)


def _missing_rivals(
    plan: Plan, workspace: Workspace, only: Rivals | None = None
) -> Iterator[tuple[Rivals, str, str, Sequence[tuple[int, str, int]]]]:
    """Models without all their records: how they are measured, the benchmark, the model, and K, candidates and seed."""
    held = {
        (r.benchmark, r.model, r.shots, r.candidates, r.seed)
        for r in workspace.store.records
        if (r.split, r.references) == ("test", "first")
    }
    for rivals in plan.rivals if only is None else [only]:
        cells = list(itertools.product(rivals.shots, rivals.candidates, range(rivals.seeds)))
        for benchmark, model in itertools.product(rivals.benchmarks, rivals.models):
            if missing := [cell for cell in cells if (benchmark, model, *cell) not in held]:
                yield rivals, benchmark, model, missing


def show_selection(plan: Plan, workspace: Workspace) -> StudyOutput:
    curves, candidates = _finished_curves(plan, workspace), plan.candidates[0]
    pictures = {}
    for model in plan.models:
        if lines := step_lines([curve for curve in curves if curve.model == model]):
            title = f"{workspace.benchmark.name}, {model}, {candidates} candidates"
            pictures[f"{model}-mrr"] = charts.lines(lines, title=title, x_label="steps", y_label="MRR")
    return StudyOutput([by_selection(curves, plan.published.get(workspace.benchmark.name))], pictures)


def pending_curves(plan: Plan, workspace: Workspace) -> list[str]:
    return [f"{model}, seeds {', '.join(map(str, seeds))}" for model, seeds in _missing_curves(plan, workspace).items()]


def run_curves(plan: Plan, workspace: Workspace) -> None:
    """Train each model to its end, and evaluate it on dev and test at every evaluation of its run."""
    watch = _curve_watch(plan, workspace)
    for model, seeds in _missing_curves(plan, workspace).items():
        settings = plan.settings_of(model)
        if not isinstance(settings, ModelSettings):
            raise FewlinkError(f"{model} has no steps to choose among: choose few-shot models")
        workspace.tell(f"{model}, seeds {', '.join(map(str, seeds))}")
        for trained in run_models(settings, plan.shots[0], seeds, workspace, watch=watch).values():
            assert trained.run is not None
            workspace.store.add(read_result(LearningCurve, trained.run / CURVE))


SELECTION = Study(show_selection, pending_curves, run_curves)


def _curve_watch(plan: Plan, workspace: Workspace) -> Watch:
    """A function that evaluates a run on dev and test, and adds the point to its learning curve."""
    benchmark, shots, candidates = workspace.benchmark, plan.shots[0], plan.candidates[0]

    def watch(run: Path, step: int, scorer: Scorer) -> None:
        figures = {}
        for split in ("dev", "test"):
            micro = evaluate(benchmark, scorer, Protocol(split, shots, candidates)).metrics()["micro"]
            figures[split] = {metric: round(micro[metric], 4) for metric in COLUMNS.values()}
        point = CurvePoint(step=step, **figures)
        if (run / CURVE).exists():
            curve = read_result(LearningCurve, run / CURVE).with_point(point)
        else:
            settings = RunConfig.read(run).settings
            curve = LearningCurve(
                benchmark=benchmark.name,
                data_sha256=benchmark.fingerprint,
                model=settings.model,
                seed=settings.seed,
                shots=shots,
                candidates=candidates,
                settings=settings.as_dict(),
                points=[point],
            )
        write_json(run / CURVE, curve.as_json())

    return watch


def _missing_curves(plan: Plan, workspace: Workspace) -> dict[str, list[int]]:
    """The seeds of each model that have no learning curve."""
    finished = {(curve.model, curve.seed) for curve in _finished_curves(plan, workspace)}
    missing = {model: [s for s in range(plan.seeds) if (model, s) not in finished] for model in plan.models}
    return {model: seeds for model, seeds in missing.items() if seeds}


def _finished_curves(plan: Plan, workspace: Workspace) -> list[LearningCurve]:
    return [
        curve
        for curve in workspace.store.curves
        if curve.data_sha256 == workspace.benchmark.fingerprint
        and curve.model in plan.models
        and (curve.shots, curve.candidates) == (plan.shots[0], plan.candidates[0])
        and curve.seed < plan.seeds
        and same_settings(curve.settings, plan.settings_of(curve.model))
    ]


MOST = 200  # pairs of either kind
PERPLEXITY = 30.0
SEED = 0


@typing.runtime_checkable
class PairScorer(typing.Protocol):
    """A scorer with a vector for each pair."""

    name: str

    def pair_vectors(self, references: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """The vectors (n, w) of pairs (n, 2), given references (K, 2)."""
        ...


def show_embedding(plan: Plan, workspace: Workspace) -> StudyOutput:
    maps = sorted(_finished(plan, workspace), key=lambda m: (m.relation, plan.models.index(m.model)))
    rows = [
        [m.relation, m.model, str(len(m.points)), charts.figure(m.silhouette), charts.figure(m.silhouette_of_map)]
        for m in maps
    ]
    columns = ["relation", "model", "pairs", "silhouette", "silhouette of the map"]
    note = "silhouette: −1 to 1, of true against false pairs in the model's own space; 0 where they overlap"
    pictures = {f"{m.relation}-{m.model}": charts.scatter(m.points, title=f"{m.relation}, {m.model}") for m in maps}
    return StudyOutput([Table("true and false pairs", columns, rows, note)], pictures)


def pending_maps(plan: Plan, workspace: Workspace) -> list[str]:
    return [f"{model}, {relation}" for model, missing in _missing(plan, workspace).items() for relation in missing]


def run_maps(plan: Plan, workspace: Workspace) -> None:
    """Train the models whose maps are missing, and make these."""
    benchmark, shots = workspace.benchmark, plan.shots[0]
    for model, relations in _missing(plan, workspace).items():
        settings = plan.settings_of(model)
        if not isinstance(settings, ModelSettings):
            raise FewlinkError(f"{model} has no vectors of pairs: choose few-shot models")
        workspace.tell(f"{model}, {', '.join(relations)}")
        scorer = run_models(settings, shots, [SEED], workspace)[SEED].scorer
        if not isinstance(scorer, PairScorer):
            raise FewlinkError(f"{model} has no vectors of pairs: choose few-shot models")
        for task in map(benchmark.task, relations):
            facts = {"benchmark": benchmark.name, "data_sha256": benchmark.fingerprint}
            made = make_map(scorer, task, **facts, shots=shots, seed=SEED)
            workspace.store.add(made.model_copy(update={"settings": settings.as_dict()}))


EMBEDDING = Study(show_embedding, pending_maps, run_maps)


def _missing(plan: Plan, workspace: Workspace) -> dict[str, list[str]]:
    """The relations that have no map, by model."""
    finished = {(m.model, m.relation) for m in _finished(plan, workspace)}
    missing = {model: [r for r in plan.relations if (model, r) not in finished] for model in plan.models}
    return {model: relations for model, relations in missing.items() if relations}


def _finished(plan: Plan, workspace: Workspace) -> list[PairMap]:
    return [
        m
        for m in workspace.store.maps
        if m.data_sha256 == workspace.benchmark.fingerprint
        and m.model in plan.models
        and m.relation in plan.relations
        and m.shots == plan.shots[0]
    ]


def true_and_false(task: Task, shots: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Query pairs (n, 2) of a relation, and a pair of each head with a candidate that is not known to be true."""
    _, queries = task.split(shots)
    random = generator(seed, "map", task.name)
    positive = queries[np.sort(random.permutation(len(queries))[:MOST])]
    negative = []
    for head in positive[:, 0].tolist():
        false = np.setdiff1d(task.range, task.known_tails[head], assume_unique=True)
        if len(false):
            negative.append((head, int(random.choice(false))))
    if not negative:
        raise FewlinkError(f"{task.name} has no candidate that is not known to be true: choose another relation")
    return positive, np.array(negative, np.int32)


def make_map(scorer: PairScorer, task: Task, *, benchmark: str, data_sha256: str, shots: int, seed: int) -> PairMap:
    """A model's map of a relation; the pairs are the same for every model."""
    try:
        from sklearn.manifold import TSNE
        from sklearn.metrics import silhouette_score
    except ImportError:
        raise MissingExtra("a map of pairs", "plots") from None
    references, _ = task.split(shots)
    positive, negative = true_and_false(task, shots, seed)
    vectors = scorer.pair_vectors(references, np.concatenate([positive, negative])).astype(np.float64)
    kinds = ["positive"] * len(positive) + ["negative"] * len(negative)
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    plane = TSNE(perplexity=perplexity, init="pca", random_state=derive(seed, "t-sne") % 2**32).fit_transform(vectors)
    return PairMap(
        benchmark=benchmark,
        model=scorer.name,
        relation=task.name,
        seed=seed,
        shots=shots,
        silhouette=round(float(silhouette_score(vectors, kinds)), 4),
        silhouette_of_map=round(float(silhouette_score(plane, kinds)), 4),
        points=[(round(float(x), 2), round(float(y), 2), kind) for (x, y), kind in zip(plane, kinds, strict=True)],
        command=command_line(),
        version=__version__,
        data_sha256=data_sha256,
    )
