"""From a file of triples to a run that answers at once, and is then measured, calibrated and improved in limited time.

The graph is carved into a benchmark, and the run answers with the shipped weights on the whole graph. Then these
weights and `rules` are measured on held-out relations, the weights are fine-tuned, and what did best is deployed.

RUN/benchmark/   the carved benchmark   RUN/fit.json   arguments, what was measured and deployed, and times
RUN/serving/     the whole graph        RUN/.fit/      fine-tuned weights, until they are deployed or dropped
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fewlink.base.errors import FewlinkError, InputError
from fewlink.base.progress import duration
from fewlink.base.storage import read_json, sha256_file, write_json
from fewlink.base.threads import torch_threads
from fewlink.baselines.learning_free import learning_free
from fewlink.data import SPLITS, Benchmark, open_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.evaluation import Evaluation
from fewlink.graph import CompileReport, Graph, compile_graph
from fewlink.pipeline.held_out import RULES, Plan, gain, measure, plan_measuring, scored_once
from fewlink.pipeline.train import carve_for_run
from fewlink.pipeline.tuning import LEAST_STEPS, Weights, check, fitting_steps, least_heads, tune, tuning_settings
from fewlink.prediction.calibration import TOP, calibrate_on_dev, shipped_calibration
from fewlink.prediction.card import measure_and_write
from fewlink.prediction.linker import Linker
from fewlink.prediction.pretrained import CARD
from fewlink.scorers import Scorer
from fewlink.trail.family import FAMILY
from fewlink.trail.learner import TrailSettings
from fewlink.trail.shipped import shipped
from fewlink.training.checkpoints import load_best, locked, save_best
from fewlink.training.family import NoVectors
from fewlink.training.run import BENCHMARK, CONFIG, FIT, Deployed, RunConfig, make_folder

FORMAT = "fewlink-fit/2"
WORK = ".fit"
SHIPPED, TUNED = "shipped", "fine-tuned"
TITLES = {
    "answering": "carving tasks and writing a run that answers",
    "measuring": "measuring on held-out relations",
    "tuning": "fine-tuning",
    "choosing": "measuring the fine-tuned weights on the same queries",
    "card": "test figures and model card",
}
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Fitted:
    """A finished run: its card, metrics by split and protocol, MRR and Hits@10 on held-out relations by scorer, which
    weights are deployed and why, and the seconds it took."""

    run: Path
    card: Path
    figures: dict[str, dict[str, float]]
    held_out: dict[str, dict[str, float]]
    deployed: str
    why: str
    seconds: float
    minutes: float
    notes: tuple[str, ...]


def fit(
    graph: Path | str,
    out: Path | str,
    *,
    types: Path | None = None,
    names: Path | None = None,
    minutes: float = 10.0,
    seed: int = 0,
    change: Sequence[str] = (),
    on_error: str = "stop",
    device: str = "cpu",
    tell: Tell | None = None,
) -> Fitted:
    """Fit a run to a file of triples in at most about `minutes`; an interrupted fit answers, and can be continued.

    `change` are settings of TRAIL as NAME=VALUE; given steps are taken whatever the time. `tell` receives lines of
    progress.
    """
    begin, run = time.monotonic(), Path(out)
    if not 0 < minutes < float("inf"):
        raise FewlinkError(f"minutes is {minutes}: it must be a finite number over 0")
    settings = tuning_settings([f"seed={seed}", f"device={device}", *change])
    _check_folder(run)
    report = CompileReport()
    whole = compile_graph([Path(graph)], types=types, names=names, on_error=on_error, report=report)
    arguments = {
        "graph": whole.fingerprint,
        **{name: sha256_file(Path(path)) if path else "" for name, path in (("types", types), ("names", names))},
        **{"minutes": minutes, "seed": seed, "set": sorted(change)},
    }
    with _locked(run):
        new: dict[str, Any] = {"format": FORMAT, "asked": arguments, "notes": report.remarks(), "seconds": {}}
        record = _read(run) or new
        _check_same_arguments(run, record["asked"], arguments)
        if "answering" not in record["seconds"]:
            record = new
        steps_given = any(each.partition("=")[0] == "steps" for each in change)
        return Fit(run, record, whole, settings, steps_given, tell or (lambda line: None), begin).finish()


@dataclass
class Fit:
    """The stages of a fit. `record` is written to fit.json after each stage; those that are done are not repeated.

    `steps_given`: whether the user set the number of steps; `begin`: when the present stage began; `later`: relations
    that are measured after fine-tuning.
    """

    run: Path
    record: dict[str, Any]
    whole: Graph
    settings: TrailSettings
    steps_given: bool
    tell: Tell
    begin: float
    later: int = 0
    shipped: Weights = field(default_factory=lambda: shipped().weights)

    def finish(self) -> Fitted:
        """Do what is not done yet."""
        record = self.record
        done, benchmark = "answering" in record["seconds"], None
        if done and "card" not in record["seconds"]:
            self.tell(f"{self.run} continues")
        with self.stage("answering") as pending:
            if pending:
                benchmark = self.answer()
        if not done:
            self.tell(f"{self.run} answers from now on with the shipped weights; the rest measures and improves it")
        if "card" not in record["seconds"]:
            with torch_threads(self.plan.threads):
                self.improve(benchmark or open_benchmark(self.run / BENCHMARK))
        return Fitted(
            run=self.run,
            card=self.run / CARD,
            **{name: record[name] for name in ("figures", "held_out", "deployed", "why")},
            seconds=sum(record["seconds"].values()),
            minutes=record["asked"]["minutes"],
            notes=tuple(record["notes"]),
        )

    def improve(self, benchmark: Benchmark) -> None:
        """The stages after the run answers."""
        record, shots = self.record, self.settings.shots
        held = self.plan.hold_out(benchmark, shots)
        self.later = sum(len(each) for each in (held.split("dev"), benchmark.split("dev"), benchmark.split("test")))
        with self.stage("measuring") as pending:
            if pending:
                self.measure_shipped(benchmark, held)
        with self.stage("tuning", silent=not self.plan.tuning) as pending:
            if pending:
                record["steps"] = self.tune(held)
        with self.stage("choosing", silent=not record["steps"]) as pending:
            if pending:
                self.choose(benchmark, held)
        with self.stage("card"):
            linker = Linker.load(self.run, bench=benchmark, device=self.settings.device, as_measured=True)
            linker.scorer = scored_once(benchmark, linker.scorer, shots, ("dev", "test"))
            _, evaluations = measure_and_write(linker, test=True, graph=self.whole)
            record["figures"] = {
                f"{each.protocol.split} {each.protocol.candidates}": each.metrics()["micro"] for each in evaluations
            }
            shutil.rmtree(self.run / WORK, ignore_errors=True)

    def answer(self) -> Benchmark:
        """Carve the graph, plan what is measured, and write a run with the shipped weights; config.json comes last."""
        run, record, settings = self.run, self.record, self.settings
        carved, remarks = carve_for_run(
            self.whole, run, settings.seed, lambda benchmark: _check_shots(benchmark, settings.shots)
        )
        least = 0 if self.steps_given else least_heads(settings)
        scorer, seconds = self.scorer(carved, self.shipped), 60 * record["asked"]["minutes"]
        plan = plan_measuring(carved, scorer, settings.shots, seconds, least)
        benchmark = plan.cut_benchmark(carved, settings.shots)
        record["notes"] += remarks
        if benchmark.fingerprint != carved.fingerprint:
            record["notes"].append(
                f"at most {plan.relations} relations of dev and of test are measured, with at most "
                f"{plan.queries} queries each"
            )
        for note in record["notes"]:
            self.tell(f"note: {note}")
        record["plan"] = dataclasses.asdict(plan)
        write_json(run / FIT, record)
        benchmark.save(run / BENCHMARK)
        Deployed(Benchmark(benchmark.name, self.whole, {split: [] for split in SPLITS}), NoVectors()).save(run)
        self.deploy(benchmark, settings, self.shipped, 0, [])
        return benchmark

    def measure_shipped(self, benchmark: Benchmark, held: Benchmark) -> None:
        """Measure the shipped weights and the rules on the held-out relations, and calibrate the weights there."""
        record, shots = self.record, self.settings.shots
        scorer = scored_once(held, self.scorer(held, self.shipped), shots)
        evaluations = {
            SHIPPED: measure(held, scorer, shots),
            RULES: measure(held, learning_free(RULES, known_graph(held)), shots),
        }
        record["held_out"] = {name: _figures(each) for name, each in evaluations.items()}
        record["ranks"] = {name: _ranks(each) for name, each in evaluations.items()}
        self.calibrate(benchmark, held, scorer, 0)
        relations, queries = len(record["ranks"][SHIPPED]), evaluations[SHIPPED].queries
        self.tell(f"what to expect of a new relation: means over {relations} held-out ones, {queries} queries in all")
        for name, figures in record["held_out"].items():
            self.tell(f"  {name:<10}  {_text(figures)}")

    def tune(self, held: Benchmark) -> int:
        """Fine-tune the shipped weights on all but the held-out relations; the number of steps taken."""
        record, settings = self.record, self.settings
        try:
            if "settings" not in record:
                check(held, settings)
                if not self.plan.tuning:
                    raise FewlinkError(f"there is no time for {LEAST_STEPS} steps, the least that is of use")
                if not self.steps_given:
                    steps, pace = fitting_steps(held, settings, self.shipped, self.seconds_left)
                    self.tell(f"fine-tuning  {steps} steps, about {duration(steps * pace)}")
                    settings = dataclasses.replace(settings, steps=steps)
                record["settings"] = settings.as_dict()
                write_json(self.run / FIT, record)
            settings = TrailSettings.from_dict({**record["settings"], "device": settings.device})
            seconds = math.inf if self.steps_given else self.seconds_left
            if steps := tune(held, settings, self.shipped, self.run / WORK, seconds=seconds, tell=self.tell):
                return steps
            raise FewlinkError("no time was left")
        except FewlinkError as error:
            record["not_tuned"] = str(error)
            return 0

    def choose(self, benchmark: Benchmark, held: Benchmark) -> None:
        """Deploy the fine-tuned weights if they are better on the same queries; otherwise the shipped ones stay."""
        record, shots = self.record, self.settings.shots
        record["deployed"] = SHIPPED
        if not record["steps"]:
            record["why"] = f"no fine-tuning: {record['not_tuned']}"
        else:
            weights, step = load_best(self.run / WORK)
            scorer = scored_once(held, self.scorer(held, weights), shots)
            after = measure(held, scorer, shots)
            record["held_out"][TUNED], record["ranks"][TUNED] = _figures(after), _ranks(after)
            rise, error = gain(record["ranks"][SHIPPED], record["ranks"][TUNED])
            self.tell(f"  {TUNED:<10}  {_text(record['held_out'][TUNED])}")
            change = f"{rise:+.3f} ± {error:.3f} MRR after {step} steps of fine-tuning"
            if rise > error:
                record["deployed"], record["why"] = TUNED, change
                train = [task.name for task in held.split("train")]
                self.deploy(benchmark, TrailSettings.from_dict(record["settings"]), weights, step, train)
                self.calibrate(benchmark, held, scorer, step)
            else:
                record["why"] = f"{change}, which is not clearly better"
        self.tell(f"deployed: the {record['deployed']} weights ({record['why']})")
        rise, error = gain(record["ranks"][record["deployed"]], record["ranks"][RULES])
        if rise > error:
            self.note(f"the learning-free {RULES} do better on these relations: {rise:+.3f} ± {error:.3f} MRR")

    def deploy(
        self, benchmark: Benchmark, settings: TrailSettings, weights: Weights, step: int, train: list[str]
    ) -> None:
        """Make the run answer with these weights, which were trained on the relations `train`."""
        save_best(self.run, weights, step)
        config = RunConfig.of(benchmark, NoVectors(), settings)
        config = dataclasses.replace(config, benchmark={**config.benchmark, "train": train})
        write_json(self.run / CONFIG, config.as_dict())

    def calibrate(self, benchmark: Benchmark, held: Benchmark, scorer: Scorer, step: int) -> None:
        """Fit probabilities to predictions on the held-out relations, for the weights of a step."""
        calibration = calibrate_on_dev(held, scorer, self.settings.shots, TOP, step, shipped_calibration())
        dataclasses.replace(calibration, benchmark=benchmark.fingerprint).save(self.run)

    def scorer(self, benchmark: Benchmark, weights: Weights) -> Scorer:
        return FAMILY.scorer(benchmark, NoVectors(), self.settings, dict(weights), parts={}, run=self.run)

    @property
    def plan(self) -> Plan:
        return Plan(**self.record["plan"])

    @property
    def seconds_left(self) -> float:
        """For fine-tuning: of the time limit, less what was spent and what is still to be measured."""
        spent = sum(self.record["seconds"].values()) + time.monotonic() - self.begin
        return float(60 * self.record["asked"]["minutes"] - spent - self.later * self.plan.seconds)

    @contextlib.contextmanager
    def stage(self, name: str, *, silent: bool = False) -> Iterator[bool]:
        """Whether a stage is still to be done; if it then succeeds, its seconds and the record are written."""
        if name in self.record["seconds"]:
            yield False
            return
        if not silent:
            self.tell(TITLES[name])
        yield True
        self.record["seconds"][name] = time.monotonic() - self.begin
        self.begin = time.monotonic()
        write_json(self.run / FIT, self.record)

    def note(self, text: str) -> None:
        self.record["notes"].append(text)
        self.tell(f"note: {text}")


def _check_shots(benchmark: Benchmark, shots: int) -> None:
    for task in (*benchmark.split("dev"), *benchmark.split("test")):
        task.split(shots)


def _figures(evaluation: Evaluation) -> dict[str, float]:
    macro = evaluation.metrics()["macro"]
    return {name: macro[name] for name in ("mrr", "hits@1", "hits@10")}


def _ranks(evaluation: Evaluation) -> list[list[float]]:
    """The ranks of the queries of each relation."""
    return [task.ranks.tolist() for task in evaluation.tasks]


def _text(figures: Mapping[str, float]) -> str:
    return f"MRR {figures['mrr']:.3f}  Hits@10 {figures['hits@10']:.3f}"


def _read(run: Path) -> dict[str, Any] | None:
    """The record of a fit, or None if it has not started."""
    path = run / FIT
    if not path.exists():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(path, f"is not of the format {FORMAT}: choose another folder")
    return content


@contextlib.contextmanager
def _locked(run: Path) -> Iterator[None]:
    """Lock the folder for this process; a folder that stays empty is removed."""
    make_folder(run)
    try:
        with locked(run):
            yield
    finally:
        with contextlib.suppress(OSError):  # not empty
            run.rmdir()


def _check_folder(run: Path) -> None:
    """Raise if a folder holds anything but a fit."""
    if run.exists() and not run.is_dir():
        raise FewlinkError(f"{run} is a file: choose another folder")
    others = [path for path in run.iterdir() if not path.name.startswith(f".{FIT}.")] if run.exists() else []
    if others and not (run / FIT).exists():
        raise FewlinkError(f"{run} exists and was not made by fewlink fit: choose another folder")


def _check_same_arguments(run: Path, before: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Raise if a fit was started with other arguments."""
    files = {"graph": "another graph", "types": "other types", "names": "other names"}
    for name, value in arguments.items():
        if before.get(name) != value:
            difference = files.get(name, f"{name} = {before.get(name)}, not {value}")
            raise InputError(run, f"was fitted with {difference}: give the same, or choose another folder")
