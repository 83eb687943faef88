"""From a file of triples to a run that answers at once, and is then measured, calibrated and improved in limited time.

First a run is written that answers with the shipped weights on the whole graph. Then the graph is carved into a
benchmark, the weights and `rules` are measured on held-out relations, the weights are fine-tuned, and the best of the
three is deployed. Stages that do not fit in the time, or for which the graph is too small, are skipped and reported.

RUN/serving/     the whole graph        RUN/fit.json   arguments, what was measured and deployed, and times
RUN/benchmark/   the carved benchmark   RUN/.fit/      fine-tuned weights, until they are deployed or dropped
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fewlink.core.errors import FewlinkError
from fewlink.core.progress import duration
from fewlink.core.storage import sha256_file
from fewlink.core.threads import torch_threads
from fewlink.data import SPLITS, Benchmark, open_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.fitting.held_out import (
    cut_benchmark,
    figures_of,
    first_relations,
    gain,
    hold_out,
    measure,
    score_relations,
)
from fewlink.fitting.record import (
    FORMAT,
    MEASURED_FIRST,
    SHIPPED,
    STOPPED,
    TUNED,
    check_fit_folder,
    check_same_arguments,
    continued,
    locked_folder,
    read_record,
    record_id,
    write_record,
)
from fewlink.fitting.time_plan import RULES, Plan, plan_measuring
from fewlink.fitting.tuning import (
    MIN_STEPS,
    Log,
    Weights,
    check_tunable,
    heads_of_shortest_tuning,
    trail_scorer,
    tune,
    tuning_settings,
)
from fewlink.graph import CompileReport, Graph, compile_graph
from fewlink.linker.calibration import TOP, calibrate_on_dev, shipped_calibration
from fewlink.linker.card import CARD
from fewlink.linker.linker import Linker
from fewlink.linker.measuring import measure_and_write
from fewlink.models.baselines.learning_free import learning_free
from fewlink.models.family import NoVectors
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.trail.shipped import shipped
from fewlink.scorers import Scorer
from fewlink.scorers.cached import CachedScorer
from fewlink.training.checkpoints import add_best, load_best, save_best
from fewlink.training.folder import BENCHMARK, CALIBRATION, FIT
from fewlink.training.run import OF_DEPLOYED, Deployed, RunConfig
from fewlink.training.train import carve_for_run

WORK = ".fit"
TITLES = {
    "answering": "writing a run that answers",
    "carving": "carving tasks out of the graph",
    "measuring": "measuring on held-out relations",
    "tuning": "fine-tuning",
    "choosing": "measuring the fine-tuned weights on the same queries",
    "card": "test figures and model card",
}
TEXTS = {SHIPPED: "the shipped weights", TUNED: "the fine-tuned weights", RULES: "the learning-free rules"}
MEASURED_BEFORE_TUNING, MEASURED_ALONE = 0.3, 0.55  # shares of the time that measuring held-out relations may reach
MEASURED_FOR_CARD = 0.88  # share of the time after which no further test relation is measured
SLOWDOWN, CARD_PACE = (
    1.2,
    0.5,
)  # expected time of a held-out relation after tuning, and of one for the card, by the pace
CALIBRATION_SHARE = 0.25  # of the time left
MIN_CLEAR_RELATIONS = 6  # with fewer, what replaces the shipped weights must be better by more than the standard error
MIN_UNUSED_SECONDS_TO_REPORT = 5.0


class NothingMeasured(Exception):
    """Why nothing was measured."""


@dataclass(frozen=True)
class Fitted:
    """A fitted run: its card, metrics by split and protocol, MRR and Hits@10 on held-out relations by scorer, what is
    deployed and why, and the seconds it took. If nothing was measured, there is no card and there are no metrics."""

    run: Path
    card: Path | None
    figures: dict[str, dict[str, float]]
    held_out: dict[str, dict[str, float]]
    deployed: str
    why: str
    seconds: float
    minutes: float
    notes: tuple[str, ...]

    @property
    def deployed_text(self) -> str:
        """What is deployed, and why, in words."""
        return f"{TEXTS[self.deployed]} ({self.why})"


def fit(
    graph: Path | str,
    out: Path | str,
    *,
    types: Path | None = None,
    names: Path | Literal[False] | None = None,
    minutes: float = 10.0,
    seed: int = 0,
    change: Sequence[str] = (),
    on_error: str = "stop",
    device: str = "cpu",
    tell: Log | None = None,
    begin: float | None = None,
) -> Fitted:
    """Fit a run to a file of triples in at most `minutes`; an interrupted fit answers, and can be continued.

    The names of entities are evidence unless `names=False`. The time of all calls for a folder counts; more `minutes`
    continue a fit that has ended. `change` are settings of TRAIL as NAME=VALUE; given steps are taken in any time.
    `tell` receives lines of progress; `begin` is the time of `time.monotonic` from which the limit counts, by default
    now.
    """
    begin, run = time.monotonic() if begin is None else begin, Path(out)
    if not 0 < minutes < float("inf"):
        raise FewlinkError(f"minutes is {minutes}: it must be a finite number over 0")
    settings = tuning_settings([f"seed={seed}", f"device={device}", *change])
    check_fit_folder(run)
    report = CompileReport()
    whole = compile_graph([Path(graph)], types=types, names=names or None, on_error=on_error, report=report)
    arguments: dict[str, Any] = {
        "graph": whole.fingerprint,
        "types": sha256_file(Path(types)) if types else "",
        "names": sha256_file(Path(names)) if names else "",
        "seed": seed,
        "set": sorted(change),
    }
    if names is False:
        arguments["reads names"] = False
    with locked_folder(run):
        record: dict[str, Any] = {"format": FORMAT, "asked": arguments, "notes": report.remarks(), "seconds": {}}
        if before := read_record(run):
            check_same_arguments(run, before["asked"], arguments)
            record = continued(before, record, minutes)
        record["asked"]["minutes"] = minutes
        steps_given = any(each.partition("=")[0] == "steps" for each in change)
        return Fit(run, record, whole, settings, steps_given, tell or (lambda line: None), begin).finish()


class Fit:
    """One call of `fit`: stages in limited time; a later call does not repeat those that are done.

    run          the folder
    record       what is known of the fit by now, written to fit.json after each stage
    whole        the graph
    settings     how the weights are fine-tuned
    steps_given  whether the user set the number of steps
    tell         receives lines of progress
    begin        the time of the monotonic clock at which the present stage began
    scored       scorers that keep their scores of the queries on held-out relations
    """

    def __init__(
        self,
        run: Path,
        record: dict[str, Any],
        whole: Graph,
        settings: TrailSettings,
        steps_given: bool,
        tell: Log,
        begin: float,
    ) -> None:
        self.run, self.record, self.tell, self.begin = run, record, tell, begin
        self.whole, self.settings, self.steps_given = whole, settings, steps_given
        self.scored: dict[str, CachedScorer] = {}
        self.shipped: Weights = shipped().weights
        self.names = bool(record["asked"].get("reads names", True))

    def finish(self) -> Fitted:
        """Do what is not done yet."""
        record = self.record
        if record["seconds"] and "card" not in record["seconds"]:
            self.tell(f"{self.run} continues: {duration(self.used)} of {duration(self.limit)} are used up")
        with self.stage("answering") as pending:
            if pending:
                self.answer()
                self.tell(f"{self.run} answers from now on with the shipped weights; the rest measures and improves it")
        if "card" not in record["seconds"]:
            try:
                self.improve()
                reason = self.reason_to_end()
            except NothingMeasured as error:
                record["why"] = reason = str(error)
                write_record(self.run, self.record)
                self.tell(f"deployed: {TEXTS[SHIPPED]} ({reason})")
            if self.left > MIN_UNUSED_SECONDS_TO_REPORT:
                self.tell(f"{duration(self.left)} of {duration(self.limit)} were not needed: {reason}")
        if "card" in record["seconds"]:
            shutil.rmtree(self.run / WORK, ignore_errors=True)
        return Fitted(
            run=self.run,
            card=self.run / CARD if record["figures"] else None,
            figures=record["figures"],
            held_out=record["held_out"],
            deployed=record["deployed"],
            why=record["why"],
            seconds=sum(record["seconds"].values()),
            minutes=record["asked"]["minutes"],
            notes=tuple(record["notes"]),
        )

    def improve(self) -> None:
        """The stages after the run answers."""
        record, benchmark = self.record, None
        with self.stage("carving") as pending:
            if pending:
                self.check_time()
                benchmark = self.carve()
        benchmark = benchmark or open_benchmark(self.run / BENCHMARK)
        with torch_threads(self.plan.threads):
            held = hold_out(benchmark, self.plan, self.settings.shots)
            with self.stage("measuring") as pending:
                if pending:
                    self.check_time()
                    self.measure_shipped(benchmark, held)
            held = first_relations(held, record["relations"])
            with self.stage("tuning", silent=not self.plan.tuning) as pending:
                if pending:
                    record["steps"] = self.tune(benchmark, held)
            with self.stage("choosing", silent=not record["steps"]) as pending:
                if pending:
                    self.choose(benchmark, held)
            with self.stage("card") as pending:
                if pending:
                    self.write_card(benchmark, held)

    def answer(self) -> None:
        """Write a run that answers on the whole graph with the shipped weights; config.json comes last."""
        record = self.record
        record.update(deployed=SHIPPED, why="nothing was measured yet", held_out={}, ranks={}, figures={})
        write_record(self.run, self.record)
        nothing = {split: list[Any]() for split in SPLITS}
        whole = Benchmark(self.run.resolve().name, self.whole, nothing, source=OF_DEPLOYED)
        Deployed(whole, NoVectors()).save(self.run, record_id(self.run, record))
        self.deploy(whole, SHIPPED)

    def carve(self) -> Benchmark:
        """Carve the graph, and plan what is measured of the benchmark in the time left."""
        run, record, settings = self.run, self.record, self.settings
        try:
            carved, remarks = carve_for_run(
                self.whole, run, settings.seed, lambda benchmark: _check_shots(benchmark, settings.shots)
            )
        except FewlinkError as error:
            raise NothingMeasured(f"nothing can be measured on this graph: {error}") from None
        tuning_heads = 0 if self.steps_given else heads_of_shortest_tuning(self.whole, settings)
        plan = plan_measuring(carved, self.scorer(carved, self.shipped), settings.shots, self.left, tuning_heads)
        benchmark = cut_benchmark(carved, plan, settings.shots)
        record["notes"] += remarks
        if benchmark.fingerprint != carved.fingerprint:
            record["notes"].append(
                f"at most {plan.relations} relations of dev and of test are measured, with at most "
                f"{plan.queries} queries each"
            )
        for note in record["notes"]:
            self.tell(f"note: {note}")
        record["plan"] = dataclasses.asdict(plan)
        benchmark.save(run / BENCHMARK)
        self.deploy(benchmark, SHIPPED)
        return benchmark

    def measure_shipped(self, benchmark: Benchmark, held: Benchmark) -> None:
        """Measure the shipped weights and the rules on held-out relations, and deploy and calibrate the better one."""
        record, shots, begin = self.record, self.settings.shots, time.monotonic()
        self.scored = {name: self.scored_by(held, name, self.shipped) for name in MEASURED_FIRST}
        share = MEASURED_BEFORE_TUNING if self.plan.tuning or self.steps_given else MEASURED_ALONE
        until = max(self.moment(share), begin + share * self.left)
        held = score_relations(held, [*self.scored.values()], shots, ("dev",), until)
        record["relations"] = len(held.split("dev"))
        record["pace"] = (time.monotonic() - begin) / record["relations"]
        record["ranks"] = {name: _ranks(held, scorer, shots) for name, scorer in self.scored.items()}
        queries = sum(map(len, record["ranks"][SHIPPED]))
        self.tell(
            f"what to expect of a new relation: means over {record['relations']} held-out ones ({queries} queries)"
        )
        self.tell_figures(SHIPPED, RULES)
        best = self.best()
        self.deploy(benchmark, best)
        self.calibrate(benchmark, held, best)
        record.update(deployed=best, why="the better one on held-out relations, before fine-tuning")

    def tune(self, benchmark: Benchmark, held: Benchmark) -> int:
        """Fine-tune weights on all but the held-out relations; the number of steps taken."""
        record, settings = self.record, self.settings
        try:
            check_tunable(held, settings)
            if not (self.plan.tuning or self.steps_given):
                raise FewlinkError(f"there is no time for {MIN_STEPS} steps, the fewest that help")
            tuned = record["deployed"] == TUNED  # by a fit that ended
            start = load_best(self.run)[0] if tuned else self.shipped
            later = SLOWDOWN * len(held.split("dev")) + CARD_PACE * self.relations_of_card(benchmark, held)
            limit = None if self.steps_given else self.moment(MEASURED_FOR_CARD) - later * record["pace"]
            if steps := tune(held, settings, start, self.run / WORK, until=limit, tell=self.tell):
                return steps
            raise FewlinkError("no time was left")
        except FewlinkError as error:
            record["not_tuned"] = str(error)
            return 0

    def choose(self, benchmark: Benchmark, held: Benchmark) -> None:
        """Measure the fine-tuned weights on the same queries, and deploy what did best."""
        record, shots, before = self.record, self.settings.shots, self.record["deployed"]
        why = f"no fine-tuning: {record.get('not_tuned')}"
        if record["steps"]:
            weights, step = load_best(self.run / WORK)
            scorer = CachedScorer(self.scorer(held, weights))
            until = (
                self.moment(MEASURED_FOR_CARD) - CARD_PACE * self.relations_of_card(benchmark, held) * record["pace"]
            )
            held = score_relations(held, [scorer], shots, ("dev",), until)
            if (relations := len(held.split("dev"))) < len(record["ranks"][SHIPPED]):
                self.note(f"scorers are compared on {relations} of the held-out relations: there was no time for more")
            ranks = {name: each[:relations] for name, each in record["ranks"].items()}
            new = _ranks(held, scorer, shots)
            why = f"{step} further steps of fine-tuning did not help"
            if TUNED not in ranks or figures_of(new)["mrr"] > figures_of(ranks[TUNED])["mrr"]:
                ranks[TUNED], self.scored[TUNED] = new, scorer
                why = "{:+.3f} ± {:.3f} MRR".format(*gain(ranks[SHIPPED], new)) + f" after {step} steps of fine-tuning"
                before = "" if before == TUNED else before  # these are other weights
            record["ranks"] = ranks
            self.tell_figures(TUNED)
        best = self.best()
        if best != before:
            self.deploy(benchmark, best, [task.name for task in held.split("train")])
            self.calibrate(benchmark, held, best)
        rise, error = gain(record["ranks"][SHIPPED], record["ranks"][RULES])
        if best == RULES or (best == SHIPPED and rise > 0):
            unclear = "" if best == RULES else ", which is too few relations to tell"
            why = f"the rules: {rise:+.3f} ± {error:.3f} MRR compared with the shipped weights{unclear}; {why}"
        record.update(deployed=best, why=why)
        self.tell(f"deployed: {TEXTS[best]} ({why})")

    def write_card(self, benchmark: Benchmark, held: Benchmark) -> None:
        """Measure as many dev and test relations as fit in the time, and write the model card."""
        record, shots = self.record, self.settings.shots
        linker = Linker.load(self.run, bench=benchmark, device=self.settings.device, as_measured=True)
        kept = self.scored.get(record["deployed"]) if held.graph is benchmark.graph else None
        scorer = linker.scorer = kept or CachedScorer(linker.scorer)
        measured = score_relations(benchmark, [scorer], shots, ("dev", "test"), self.moment(MEASURED_FOR_CARD))
        counts = {split: (len(measured.split(split)), len(benchmark.split(split))) for split in ("dev", "test")}
        if any(some < all_ for some, all_ in counts.values()):
            linker.benchmark = linker.measured = measured
            texts = " and ".join(f"{some} of {all_} {split} relations" for split, (some, all_) in counts.items())
            self.note(f"the metrics are those of {texts}: there was no time for more")
        _, evaluations = measure_and_write(linker, test=bool(measured.split("test")), graph=self.whole)
        record["figures"] = {
            f"{each.protocol.split} {each.protocol.candidates}": each.metrics()["micro"] for each in evaluations
        }

    def deploy(self, benchmark: Benchmark, name: str, train: Sequence[str] = ()) -> None:
        """Let the run answer with the rules, the shipped weights, or weights fine-tuned on the relations `train`."""
        weights, step = load_best(self.run / WORK) if name == TUNED else (self.shipped, 0)
        config = RunConfig.of(benchmark, NoVectors(), self.settings.replace(steps=step or self.settings.steps))
        known = {**config.benchmark, "train": [*train] if name == TUNED else []}
        instead = RULES if name == RULES else ""
        config = dataclasses.replace(config, benchmark=known, names=self.names, answers_with=instead)
        replace_run(self.run, config, weights, step, record_id(self.run, self.record))
        if name == SHIPPED and (calibration := shipped_calibration()):  # until one is measured
            dataclasses.replace(calibration, benchmark=benchmark.fingerprint, step=0).save(self.run)

    def calibrate(self, benchmark: Benchmark, held: Benchmark, name: str) -> None:
        """Calibrate the deployed scorer on the held-out relations."""
        weights, step = load_best(self.run)
        scorer = self.scored.get(name) or self.scored_by(held, name, weights)
        known = None if name == RULES else shipped_calibration()  # of TRAIL's scores
        until = time.monotonic() + CALIBRATION_SHARE * max(0.0, self.left)
        calibration = calibrate_on_dev(held, scorer, self.settings.shots, TOP, step, known, until)
        dataclasses.replace(calibration, benchmark=benchmark.fingerprint).save(self.run)

    def scored_by(self, held: Benchmark, name: str, weights: Weights) -> CachedScorer:
        rules = name == RULES
        return CachedScorer(learning_free(RULES, known_graph(held)) if rules else self.scorer(held, weights))

    def scorer(self, benchmark: Benchmark, weights: Weights) -> Scorer:
        return trail_scorer(benchmark, self.settings, weights, self.run, self.names)

    def best(self) -> str:
        """The scorer with the highest MRR on held-out relations; if these are few, it must clearly beat `SHIPPED`."""
        ranks = self.record["ranks"]
        self.record["held_out"] = {name: figures_of(each) for name, each in ranks.items()}
        rises = {name: gain(ranks[SHIPPED], each) for name, each in ranks.items()}
        few = len(ranks[SHIPPED]) < MIN_CLEAR_RELATIONS
        clear = [name for name, (rise, error) in rises.items() if name == SHIPPED or not few or rise > error]
        return str(max(clear, key=lambda name: rises[name][0]))

    def relations_of_card(self, benchmark: Benchmark, held: Benchmark) -> int:
        """The number of relations that the card measures; those of dev are not measured again if they were held out."""
        splits = ("test",) if held.graph is benchmark.graph else ("dev", "test")
        return sum(len(benchmark.split(split)) for split in splits)

    @property
    def plan(self) -> Plan:
        return Plan(**self.record["plan"])

    def reason_to_end(self) -> str:
        """Why the rest of the time is not used."""
        if not (steps := self.record["steps"]):
            return str(self.record["not_tuned"])
        if steps >= self.settings.steps:
            return f"all {steps:,} steps of fine-tuning are done; --set steps=N runs more"
        return "the last measurements took less time than expected"

    def tell_figures(self, *names: str) -> None:
        for name in names:
            figures = figures_of(self.record["ranks"][name])
            self.tell(f"  {name:<10}  MRR {figures['mrr']:.3f}  Hits@10 {figures['hits@10']:.3f}")

    # Time

    @property
    def limit(self) -> float:
        """The time limit of all calls together, in seconds."""
        return 60 * float(self.record["asked"]["minutes"])

    @property
    def used(self) -> float:
        """Seconds used by all calls so far."""
        return float(sum(self.record["seconds"].values()) + time.monotonic() - self.begin)

    @property
    def left(self) -> float:
        """Seconds left."""
        return float(self.limit - self.used)

    def moment(self, share: float) -> float:
        """The time of the monotonic clock at which this share of the limit is used."""
        return time.monotonic() + share * self.limit - self.used

    def check_time(self) -> None:
        """Raise if the time is used up."""
        if self.left <= 0:
            raise NothingMeasured(
                f"nothing was measured, because all {duration(self.limit)} were used up before; "
                "run the same command with more --minutes to continue"
            )

    @contextlib.contextmanager
    def stage(self, name: str, *, silent: bool = False) -> Iterator[bool]:
        """Yields whether a stage is still to be done. Its seconds count even if it fails; the record is written."""
        seconds = self.record["seconds"]
        if name in seconds:
            yield False
            return
        if not silent:
            self.tell(f"{duration(self.used)} of {duration(self.limit)}  {TITLES[name]}")
        before, done = copy.deepcopy(self.record), False
        try:
            yield True
            done = True
        finally:
            spent, self.begin = time.monotonic() - self.begin, time.monotonic()
            if not done:  # keep only the time of the stage
                self.record.clear()
                self.record.update(before)
            seconds = self.record["seconds"]
            seconds[name if done else STOPPED] = spent + (0.0 if done else seconds.get(STOPPED, 0.0))
            if (self.run / FIT).exists():
                write_record(self.run, self.record)

    def note(self, text: str) -> None:
        self.record["notes"].append(text)
        self.tell(f"note: {text}")


def replace_run(run: Path, config: RunConfig, weights: Weights, step: int, id: str) -> None:
    """Switch a run to another configuration and its weights, in one step: writing the configuration.

    The calibration of the previous weights is removed.
    """
    digest = add_best(run, weights, step)
    dataclasses.replace(config, weights=digest).write(run, id, without=(CALIBRATION,))
    (run / CALIBRATION).unlink(missing_ok=True)
    save_best(run, weights, step)


def _ranks(benchmark: Benchmark, scorer: Scorer, shots: int) -> list[list[float]]:
    """The ranks of the queries of each held-out relation."""
    return [task.ranks.tolist() for task in measure(benchmark, scorer, shots).tasks]


def _check_shots(benchmark: Benchmark, shots: int) -> None:
    """Raise if a dev or test relation has no query beside its references."""
    for task in (*benchmark.split("dev"), *benchmark.split("test")):
        task.split(shots)
