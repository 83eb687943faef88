"""From a file of triples to a run that answers at once, and is then measured, calibrated and improved in limited time.

First a run is written that answers with the shipped weights on the whole graph. Then the graph is carved into a
benchmark, the weights and `rules` are measured on held-out relations, the weights are fine-tuned, and what did best is
deployed. No stage refuses for lack of time or data: what cannot be done is left out, and said.

RUN/serving/     the whole graph        RUN/fit.json   arguments, what was measured and deployed, and times
RUN/benchmark/   the carved benchmark   RUN/.fit/      fine-tuned weights, until they are deployed or dropped
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fewlink.core.errors import FewlinkError
from fewlink.core.progress import duration
from fewlink.core.storage import sha256_file
from fewlink.core.threads import torch_threads
from fewlink.data import SPLITS, Benchmark, open_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.fit.held_out import RULES, Plan, ask, figures_of, first_relations, gain, measure, plan_measuring
from fewlink.fit.stages import (
    FIRST,
    FORMAT,
    LEAST_STEPS,
    SHIPPED,
    TUNED,
    Stages,
    Tell,
    Unmeasured,
    Weights,
    check,
    check_fit_folder,
    check_same_arguments,
    check_shots,
    continued,
    least_heads,
    locked_folder,
    read_record,
    trail_scorer,
    tune,
    tuning_settings,
)
from fewlink.graph import CompileReport, Graph, compile_graph
from fewlink.linker.calibration import TOP, calibrate_on_dev, shipped_calibration
from fewlink.linker.card import measure_and_write
from fewlink.linker.linker import Linker
from fewlink.linker.saving import CARD
from fewlink.models.baselines.learning_free import learning_free
from fewlink.models.family import NoVectors
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.trail.shipped import shipped
from fewlink.scorers import Scorer
from fewlink.scorers.cached import CachedScorer
from fewlink.training.checkpoints import BENCHMARK, load_best
from fewlink.training.run import OF_DEPLOYED, Deployed, RunConfig
from fewlink.training.train import carve_for_run

WORK = ".fit"
TEXTS = {SHIPPED: "the shipped weights", TUNED: "the fine-tuned weights", RULES: "the learning-free rules"}
MEASURED, MEASURED_ALONE = 0.3, 0.55  # shares of the time until which held-out relations are asked, with tuning or not
ASKED = 0.88  # share of the time after which no test relation is asked
SLOWER, CARD_SHARE = 1.2, 0.5  # times the pace so far that held-out relations may take later, and those of the card
CALIBRATED = 0.25  # share of the time left in which relations are asked about to calibrate
ENOUGH_RELATIONS = 6  # with fewer, what replaces the shipped weights must be better by more than the standard error
ENOUGH_BACK = 5.0  # seconds that are worth a line when they are given back


@dataclass(frozen=True)
class Fitted:
    """A fitted run: its card, metrics by split and protocol, MRR and Hits@10 on held-out relations by scorer, what is
    deployed and why, and the seconds it took. Where nothing was measured there is no card and there are no metrics."""

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
        """What answers, and why, in words."""
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
    tell: Tell | None = None,
    begin: float | None = None,
) -> Fitted:
    """Fit a run to a file of triples in at most `minutes`; an interrupted fit answers, and can be continued.

    The names of entities are evidence unless `names=False`. The time of all calls for a folder counts; more `minutes`
    continue a fit that has ended. `change` are settings of TRAIL as NAME=VALUE; given steps are taken in any time.
    `tell` receives lines of progress; `begin` is the moment of `time.monotonic` from which time counts: now by default.
    """
    begin, run = time.monotonic() if begin is None else begin, Path(out)
    if not 0 < minutes < float("inf"):
        raise FewlinkError(f"minutes is {minutes}: it must be a finite number over 0")
    settings = tuning_settings([f"seed={seed}", f"device={device}", *change])
    check_fit_folder(run)
    report = CompileReport()
    whole = compile_graph([Path(graph)], types=types, names=names or None, on_error=on_error, report=report)
    arguments = {
        "graph": whole.fingerprint,
        **{name: sha256_file(Path(path)) if path else "" for name, path in (("types", types), ("names", names))},
        **{"seed": seed, "set": sorted(change), **({"reads names": False} if names is False else {})},
    }
    with locked_folder(run):
        record: dict[str, Any] = {"format": FORMAT, "asked": arguments, "notes": report.remarks(), "seconds": {}}
        if before := read_record(run):
            check_same_arguments(run, before["asked"], arguments)
            record = continued(before, record, minutes)
        record["asked"]["minutes"] = minutes
        steps_given = any(each.partition("=")[0] == "steps" for each in change)
        return Fit(run, record, whole, settings, steps_given, tell or (lambda line: None), begin).finish()


class Fit(Stages):
    """The stages of a fit; `steps_given`: whether the user set the number of steps; `scored`: scorers that keep their
    scores of the queries on held-out relations."""

    def __init__(
        self,
        run: Path,
        record: dict[str, Any],
        whole: Graph,
        settings: TrailSettings,
        steps_given: bool,
        tell: Tell,
        begin: float,
    ) -> None:
        super().__init__(run, record, tell, begin)
        self.whole, self.settings, self.steps_given = whole, settings, steps_given
        self.scored: dict[str, CachedScorer] = {}
        self.shipped: Weights = shipped().weights
        self.names = bool(record["asked"].get("reads names", True))

    def finish(self) -> Fitted:
        """Do what is not done yet."""
        record = self.record
        if record["seconds"] and "card" not in record["seconds"]:
            self.tell(f"{self.run} continues: {duration(self.used)} of {duration(self.limit)} are used")
        with self.stage("answering") as pending:
            if pending:
                self.answer()
                self.tell(f"{self.run} answers from now on with the shipped weights; the rest measures and improves it")
        if "card" not in record["seconds"]:
            try:
                self.improve()
                reason = self.reason_to_end()
            except Unmeasured as error:
                record["why"] = reason = str(error)
                self.write_record()
                self.tell(f"deployed: {TEXTS[SHIPPED]} ({reason})")
            if self.left > ENOUGH_BACK:
                self.tell(f"{duration(self.left)} of {duration(self.limit)} are given back: {reason}")
        if "card" in record["seconds"]:
            shutil.rmtree(self.run / WORK, ignore_errors=True)
        return Fitted(
            run=self.run,
            card=self.run / CARD if record["figures"] else None,
            **{name: record[name] for name in ("figures", "held_out", "deployed", "why")},
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
            held = self.plan.hold_out(benchmark, self.settings.shots)
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
        self.write_record()
        nothing = {split: list[Any]() for split in SPLITS}
        whole = Benchmark(self.run.resolve().name, self.whole, nothing, source=OF_DEPLOYED)
        Deployed(whole, NoVectors()).save(self.run, self.id)
        self.deploy(whole, SHIPPED)

    def carve(self) -> Benchmark:
        """Carve the graph, and plan what is measured of the benchmark in the time left."""
        run, record, settings = self.run, self.record, self.settings
        try:
            carved, remarks = carve_for_run(
                self.whole, run, settings.seed, lambda benchmark: check_shots(benchmark, settings.shots)
            )
        except FewlinkError as error:
            raise Unmeasured(f"nothing can be measured on this graph: {error}") from None
        least = 0 if self.steps_given else least_heads(self.whole, settings)
        plan = plan_measuring(carved, self.scorer(carved, self.shipped), settings.shots, self.left, least)
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
        benchmark.save(run / BENCHMARK)
        self.deploy(benchmark, SHIPPED)
        return benchmark

    def measure_shipped(self, benchmark: Benchmark, held: Benchmark) -> None:
        """Measure the shipped weights and the rules on held-out relations, and deploy and calibrate the better one."""
        record, shots, begin = self.record, self.settings.shots, time.monotonic()
        self.scored = {name: self.scored_by(held, name, self.shipped) for name in FIRST}
        share = MEASURED if self.plan.tuning or self.steps_given else MEASURED_ALONE
        until = max(self.moment(share), begin + share * self.left)
        held = ask(held, [*self.scored.values()], shots, ("dev",), until)
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
            check(held, settings)
            if not (self.plan.tuning or self.steps_given):
                raise FewlinkError(f"there is no time for {LEAST_STEPS} steps, the least that is of use")
            tuned = record["deployed"] == TUNED  # by a fit that ended
            start = load_best(self.run)[0] if tuned else self.shipped
            later = SLOWER * len(held.split("dev")) + CARD_SHARE * self.relations_of_card(benchmark, held)
            limit = None if self.steps_given else self.moment(ASKED) - later * record["pace"]
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
            until = self.moment(ASKED) - CARD_SHARE * self.relations_of_card(benchmark, held) * record["pace"]
            held = ask(held, [scorer], shots, ("dev",), until)
            if (relations := len(held.split("dev"))) < len(record["ranks"][SHIPPED]):
                self.note(f"all are compared on {relations} of the held-out relations: there was no time for more")
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
            why = f"the rules: {rise:+.3f} ± {error:.3f} MRR beside the shipped weights{unclear}; {why}"
        record.update(deployed=best, why=why)
        self.tell(f"deployed: {TEXTS[best]} ({why})")

    def write_card(self, benchmark: Benchmark, held: Benchmark) -> None:
        """Measure dev and test relations, as many as there is time for, and write the model card."""
        record, shots = self.record, self.settings.shots
        linker = Linker.load(self.run, bench=benchmark, device=self.settings.device, as_measured=True)
        kept = self.scored.get(record["deployed"]) if held.graph is benchmark.graph else None
        scorer = linker.scorer = kept or CachedScorer(linker.scorer)
        asked = ask(benchmark, [scorer], shots, ("dev", "test"), self.moment(ASKED))
        counts = {split: (len(asked.split(split)), len(benchmark.split(split))) for split in ("dev", "test")}
        if any(some < all_ for some, all_ in counts.values()):
            linker.benchmark = linker.measured = asked
            texts = " and ".join(f"{some} of {all_} {split} relations" for split, (some, all_) in counts.items())
            self.note(f"the metrics are those of {texts}: there was no time for more")
        _, evaluations = measure_and_write(linker, test=bool(asked.split("test")), graph=self.whole)
        record["figures"] = {
            f"{each.protocol.split} {each.protocol.candidates}": each.metrics()["micro"] for each in evaluations
        }

    def deploy(self, benchmark: Benchmark, name: str, train: Sequence[str] = ()) -> None:
        """Make the run answer with the rules, the shipped weights, or the ones fine-tuned on the relations `train`."""
        weights, step = load_best(self.run / WORK) if name == TUNED else (self.shipped, 0)
        config = RunConfig.of(benchmark, NoVectors(), self.settings.replace(steps=step or self.settings.steps))
        known = {**config.benchmark, "train": [*train] if name == TUNED else []}
        instead = RULES if name == RULES else ""
        config = dataclasses.replace(config, benchmark=known, names=self.names, answers_with=instead)
        self.replace_run(config, weights, step)
        if name == SHIPPED and (calibration := shipped_calibration()):  # until one is measured
            dataclasses.replace(calibration, benchmark=benchmark.fingerprint, step=0).save(self.run)

    def calibrate(self, benchmark: Benchmark, held: Benchmark, name: str) -> None:
        """Fit probabilities to predictions of what is deployed on the held-out relations."""
        weights, step = load_best(self.run)
        scorer = self.scored.get(name) or self.scored_by(held, name, weights)
        known = None if name == RULES else shipped_calibration()  # of TRAIL's scores
        until = time.monotonic() + CALIBRATED * max(0.0, self.left)
        calibration = calibrate_on_dev(held, scorer, self.settings.shots, TOP, step, known, until)
        dataclasses.replace(calibration, benchmark=benchmark.fingerprint).save(self.run)

    def scored_by(self, held: Benchmark, name: str, weights: Weights) -> CachedScorer:
        rules = name == RULES
        return CachedScorer(learning_free(RULES, known_graph(held)) if rules else self.scorer(held, weights))

    def scorer(self, benchmark: Benchmark, weights: Weights) -> Scorer:
        return trail_scorer(benchmark, self.settings, weights, self.run, self.names)

    def best(self) -> str:
        """What has the highest MRR on held-out relations; on few of them it must clearly beat the shipped weights."""
        ranks = self.record["ranks"]
        self.record["held_out"] = {name: figures_of(each) for name, each in ranks.items()}
        rises = {name: gain(ranks[SHIPPED], each) for name, each in ranks.items()}
        few = len(ranks[SHIPPED]) < ENOUGH_RELATIONS
        clear = [name for name, (rise, error) in rises.items() if name == SHIPPED or not few or rise > error]
        return str(max(clear, key=lambda name: rises[name][0]))

    def relations_of_card(self, benchmark: Benchmark, held: Benchmark) -> int:
        """The number of relations that are asked for the card; dev is at hand where it is what was held out."""
        splits = ("test",) if held.graph is benchmark.graph else ("dev", "test")
        return sum(len(benchmark.split(split)) for split in splits)

    @property
    def plan(self) -> Plan:
        return Plan(**self.record["plan"])

    def reason_to_end(self) -> str:
        """Why no more time is used."""
        if not (steps := self.record["steps"]):
            return str(self.record["not_tuned"])
        if steps >= self.settings.steps:
            return f"all {steps:,} steps of fine-tuning are done, --set steps=N takes more"
        return "what was measured last took less time than before"

    def tell_figures(self, *names: str) -> None:
        for name in names:
            figures = figures_of(self.record["ranks"][name])
            self.tell(f"  {name:<10}  MRR {figures['mrr']:.3f}  Hits@10 {figures['hits@10']:.3f}")


def _ranks(benchmark: Benchmark, scorer: Scorer, shots: int) -> list[list[float]]:
    """The ranks of the queries of each held-out relation."""
    return [task.ranks.tolist() for task in measure(benchmark, scorer, shots).tasks]
