"""Fit a run to a file of triples within a time limit.

`fit` first writes a run that answers on the whole graph with the built-in weights. Then it holds relations out of the
graph, or pairs where relations are few, and measures the weights on them. It fine-tunes the weights on the rest, and
deploys them only if they are better by two standard errors. In the time left it trains an embedding model without some
pairs of relations that stay in the graph, and mixes it in for such relations if that is better by two standard errors;
it is then trained again on the whole graph. Stages for which the time is too short or the graph too small are skipped
and reported.

RUN/serving/     the whole graph, and the embedding model if there is one
RUN/benchmark/   the graph without what is held out, and the held-out relations as dev
RUN/fit.json     the arguments, the measurements, what is deployed, and the seconds of each stage
RUN/.fit/        the fine-tuned weights and the embedding model, until they are deployed or dropped
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewlink.core.errors import FewlinkError
from fewlink.core.files import sha256_file
from fewlink.core.progress import duration
from fewlink.core.threads import torch_threads
from fewlink.core.words import plural
from fewlink.fitting.calibrating import TOP, calibrate_on_dev
from fewlink.fitting.card import write_card
from fewlink.fitting.held_out import (
    CHOOSING,
    EXPECTING,
    KNOWN,
    LARGE,
    MAX_LARGE,
    SHOTS,
    Estimate,
    cut_benchmark,
    figures_by_shots,
    figures_of,
    gain,
    hides_relations,
    hold_out,
    hold_out_of_large,
    rank_held_out,
)
from fewlink.fitting.mixing import (
    WEIGHTS,
    EmbeddingPlan,
    choose_weight,
    plan_training,
    rank_weights,
    recalibrate,
    train_embeddings,
)
from fewlink.fitting.record import (
    RULES,
    SHIPPED,
    STOPPED,
    TUNED,
    check_continues,
    check_fit_folder,
    continued,
    locked_folder,
    read_record,
    record_id,
    write_record,
)
from fewlink.fitting.time_plan import Plan, plan_measuring
from fewlink.fitting.tuning import NO_VECTORS, Log, Weights, check_tunable, trail_scorer, tune, tuning_settings
from fewlink.graph import CompileReport, Graph, compile_graph
from fewlink.graph.source import GraphSource
from fewlink.linker.probability import calibration_of, shipped_calibration
from fewlink.linker.saving import CARD
from fewlink.models.baselines import learning_free
from fewlink.models.checkpoints import add_best, load_best, save_best
from fewlink.models.contract import Scorer
from fewlink.models.embeddings import EmbeddingSettings
from fewlink.models.family import NoVectors
from fewlink.models.folder import BENCHMARK, CALIBRATION, FIT, FIT_FORMAT
from fewlink.models.run import OF_DEPLOYED, Deployed, RunConfig
from fewlink.models.trail.mixture import Mixture
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.trail.shipped import shipped
from fewlink.tasks import SPLITS, Benchmark, open_benchmark

WORK = ".fit"
MIXTURE = "mixture"
TITLES = {
    "answering": "writing a first run",
    "holding out": "holding questions out of the graph",
    "measuring": "measuring the built-in weights on held-out questions",
    "tuning": "fine-tuning",
    "choosing": "measuring the fine-tuned weights on the same questions",
    "mixing": "training an embedding model, to mix it in for relations of the graph",
    "retraining": "training the embedding model on the whole graph",
    "card": "measuring what to expect on other questions, and writing the model card",
}
TEXTS = {SHIPPED: "the built-in weights", TUNED: "the fine-tuned weights", RULES: "the learning-free rules"}
CLEAR = 2  # standard errors by which a scorer must be better than the built-in weights to replace them
MEASURED_BEFORE_TUNING = 0.4  # share of the time after which no further relation is measured before fine-tuning
MEASURED_AFTER_TUNING = 0.9  # the same for the fine-tuned weights; 1 for what to expect
SLOWDOWN = 1.2  # the expected time of a relation after fine-tuning, as a multiple of that before
CALIBRATION_SHARE = 0.25  # of the time left
TRAINING_SHARE = 0.28  # of the time left, for each of two trainings of the embedding model
MOST_OF_ALLOWED = 1.5  # times its share, at most, that the first training may take
WEIGHING_SHARE = 0.6  # of the time that is not needed for the second, after which no further relation is asked about
ENOUGH_TO_RETRAIN = 0.8  # of the time that its first training took
TOO_FEW = 3  # relations: the error of a gain is not known
MIN_UNUSED_SECONDS_TO_REPORT = 5.0  # a fit that ends a moment early needs no explanation


class NothingMeasured(Exception):
    """Raised with the reason if nothing can be measured."""


@dataclass(frozen=True)
class Fitted:
    """A fitted run. If nothing was measured, `card` is None and `figures` and `held_out` are empty.

    run       the folder
    card      the path of the model card
    figures   what to expect, by the number of references ("3", "30", "all", "any"), and of relations that the graph has
              as "known" if they were measured apart: means over relations of MRR, Hits@1 and Hits@10, the standard
              error of MRR as `error` if it is known, and the numbers of relations and queries
    held_out  the same by scorer, on the queries that the scorer was chosen on
    deployed  the scorer that answers: "shipped", "fine-tuned" or "rules"
    why       why it is deployed
    mixed     whether an embedding model is mixed in for relations of the graph, and why
    seconds   the time that all calls for this folder took
    minutes   the time limit
    notes     remarks, one line each
    """

    run: Path
    card: Path | None
    figures: dict[str, dict[str, float]]
    held_out: dict[str, dict[str, float]]
    deployed: str
    why: str
    mixed: str
    seconds: float
    minutes: float
    notes: tuple[str, ...]

    @property
    def deployed_text(self) -> str:
        """The deployed scorer, and why it is deployed, in words."""
        return f"{TEXTS[self.deployed]} ({self.why})"


def fit(
    graph: Path | str | GraphSource,
    out: Path | str,
    *,
    types: Path | None = None,
    names: Path | None = None,
    read_names: bool = True,
    minutes: float = 10.0,
    tune: bool = True,
    mix: bool = True,
    seed: int = 0,
    change: Sequence[str] = (),
    columns: str | Mapping[str, str | int] | None = None,
    on_error: str = "stop",
    literals: str = "drop",
    device: str = "cpu",
    tell: Log | None = None,
    begin: float | None = None,
) -> Fitted:
    """Fit a run to a file of triples in at most `minutes`.

    The run of an interrupted fit answers; the same call continues the fit. The time of all calls for a folder counts
    towards the limit, and a call with more `minutes` continues a fit that has ended. The names of entities are
    evidence unless `read_names=False`, the weights are fine-tuned unless `tune=False`, and an embedding model is mixed
    in where it helps unless `mix=False`. `change` holds settings of TRAIL as NAME=VALUE; a given number of steps is run
    however long it takes. `columns`, `on_error` and `literals` say how to read the file, as for `compile_graph`. `tell`
    receives lines of progress. The limit counts from `begin`, a time of `time.monotonic`, by default now.
    """
    begin = time.monotonic() if begin is None else begin
    run = Path(out)
    if not 0 < minutes < float("inf"):
        raise FewlinkError(f"minutes is {minutes}: it must be finite and greater than 0")
    without_names = ["names=false"] if not read_names else []
    settings = tuning_settings([f"seed={seed}", f"device={device}", *without_names, *change])
    check_fit_folder(run)
    report = CompileReport()
    source = GraphSource.of(graph, types=types, names=names, columns=columns, on_error=on_error, literals=literals)
    whole = compile_graph(source, report=report)
    arguments: dict[str, Any] = {
        "graph": whole.fingerprint,
        "types": sha256_file(source.types) if source.types else "",
        "names": ("" if read_names else "off") + (sha256_file(source.names) if source.names else ""),
        "tune": tune,
        "mix": mix,
        "seed": seed,
        "set": sorted(change),
    }
    with locked_folder(run):
        record: dict[str, Any] = {"format": FIT_FORMAT, "asked": arguments, "notes": report.remarks(), "seconds": {}}
        if before := read_record(run):
            check_continues(run, before, arguments)
            record = continued(before, record, minutes)
        record["asked"]["minutes"] = minutes
        steps_given = any(each.partition("=")[0] == "steps" for each in change)
        return Fit(run, record, whole, settings, steps_given, tell or (lambda line: None), begin).finish()


class Fit:
    """One call of `fit`, stage by stage; a later call skips the stages that are done.

    run          the folder
    record       the state of the fit, written to fit.json after each stage
    whole        the whole graph
    settings     the settings of fine-tuning
    steps_given  whether the user set the number of steps
    tell         receives lines of progress
    begin        the time of the monotonic clock at which the current stage began
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
        self.run = run
        self.record = record
        self.tell = tell
        self.begin = begin
        self.whole = whole
        self.settings = settings
        self.steps_given = steps_given
        self.shipped: Weights = shipped().weights

    @functools.cached_property
    def held(self) -> Benchmark:
        """The graph without what is held out, and the held-out relations as dev."""
        return open_benchmark(self.run / BENCHMARK)

    @functools.cached_property
    def large(self) -> Benchmark:
        """A benchmark that hides some pairs of large relations, which decide the weight of an embedding model."""
        return hold_out_of_large(self.whole, self.run.resolve().name, self.settings.seed)

    def finish(self) -> Fitted:
        """Run the stages that are not done."""
        record = self.record
        if "card" in record["seconds"]:
            self.tell(f"{self.run} is already fitted: nothing was done; choose another --out to fit again")
        else:
            if record["seconds"]:
                self.tell(f"{self.run} continues: {duration(self.used)} of {duration(self.limit)} are used")
            self.stage("answering", self.answer)
            try:
                self.improve()
                reason = self.reason_to_end()
            except NothingMeasured as error:
                record["why"] = reason = str(error)
                write_record(self.run, record)
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
            mixed=record.get("mixed", ""),
            seconds=sum(record["seconds"].values()),
            minutes=record["asked"]["minutes"],
            notes=tuple(record["notes"]),
        )

    def improve(self) -> None:
        """Run the stages that measure and improve the first run."""
        record = self.record
        self.stage("holding out", self.hold_out)
        with torch_threads(self.plan.threads):
            self.stage("measuring", self.measure_shipped)
            self.stage("tuning", self.tune, silent=not record["asked"]["tune"])
            self.stage("choosing", self.choose, silent=not record["steps"])
            self.stage("mixing", self.mix, silent=not record["asked"]["mix"])
            self.stage("retraining", self.deploy_mixture, silent=not record["mixture"])
            self.stage("card", self.write_card)

    def answer(self) -> None:
        """Write a run that answers on the whole graph with the built-in weights; config.json comes last."""
        record = self.record
        record.update(deployed=SHIPPED, why="nothing has been measured yet", held_out={}, ranks={}, figures={})
        write_record(self.run, self.record)
        Deployed(self.deployed, NoVectors()).save(self.run, record_id(self.run, record))
        self.deploy(self.deployed, SHIPPED)
        self.tell(f"{self.run} now answers with the built-in weights; the following stages measure and improve it")

    @property
    def deployed(self) -> Benchmark:
        """The whole graph, which the run answers with."""
        nothing = {split: list[Any]() for split in SPLITS}
        return Benchmark(self.run.resolve().name, self.whole, nothing, source=OF_DEPLOYED)

    def hold_out(self) -> None:
        """Hold out as many questions as can be measured in the time left."""
        self.check_time()
        run = self.run
        record = self.record
        try:
            held = hold_out(self.large.graph, run.resolve().name, self.settings.seed)
        except FewlinkError as error:
            raise NothingMeasured(f"nothing can be measured on this graph: {error}") from None
        plan = plan_measuring(held, [*self.scorers(held).values()], self.left)
        held = cut_benchmark(held, plan.relations, plan.queries)
        held = dataclasses.replace(held, source=os.path.abspath(run / BENCHMARK))
        relations = len(held.split("dev"))
        count = sum(len(task.pairs) - SHOTS[0] for task in held.split("dev"))
        record["notes"].append(
            f"{plural(relations, 'relation is', 'relations are')} held out, with {plural(count, 'query', 'queries')}"
            if hides_relations(held)
            else f"too few relations to hold any out: {count:,} pairs of {relations} relations are held out instead"
        )
        for note in record["notes"]:
            self.tell(f"note: {note}")
        record["plan"] = dataclasses.asdict(plan)
        held.save(run / BENCHMARK)
        self.deploy(held, SHIPPED)

    def measure_shipped(self) -> None:
        """Measure the built-in weights and the rules; deploy and calibrate the better scorer."""
        self.check_time()
        record = self.record
        begin = time.monotonic()
        scorers = self.scorers(self.held)
        until = max(self.moment(MEASURED_BEFORE_TUNING), begin + MEASURED_BEFORE_TUNING * self.left)
        ranks = rank_held_out(self.held, [*scorers.values()], CHOOSING, until)
        record["ranks"] = dict(zip(scorers, ranks, strict=True))
        record["pace"] = (time.monotonic() - begin) / len(ranks[0])
        record["steps"] = 0
        for name, of_scorer in record["ranks"].items():
            self.tell_row(name, figures_of(of_scorer))
        self.answer_with(self.best())
        record["why"] = "better on held-out questions, before fine-tuning"

    def tune(self) -> None:
        """Fine-tune the weights on what is not held out, for as many steps as the time allows."""
        record = self.record
        record["steps"] = 0
        try:
            if not record["asked"]["tune"]:
                raise FewlinkError("it was switched off")
            check_tunable(self.held, self.settings)
            limit = None if self.steps_given else self.moment(1) - 2 * self.card_seconds
            record["steps"] = tune(self.held, self.settings, self.shipped, self.run / WORK, until=limit, tell=self.tell)
        except FewlinkError as error:
            record["not_tuned"] = str(error)

    def choose(self) -> None:
        """Measure the fine-tuned weights on the same queries, and deploy the best scorer."""
        record = self.record
        reason = f"no fine-tuning: {record.get('not_tuned')}"
        if steps := record["steps"]:
            scorer = trail_scorer(self.held, self.settings, load_best(self.run / WORK)[0], self.run)
            measured = len(record["ranks"][SHIPPED])
            first = cut_benchmark(self.held, measured, self.plan.queries)
            (new,) = rank_held_out(first, [scorer], CHOOSING, self.moment(MEASURED_AFTER_TUNING))
            if len(new) < measured:
                self.note(
                    f"scorers are compared on only {len(new)} held-out relations: the time was too short for more"
                )
            record["ranks"] = {name: each[: len(new)] for name, each in record["ranks"].items()} | {TUNED: new}
            reason = gain_text(f"{steps} steps of fine-tuning", gain(record["ranks"][SHIPPED], new), len(new))
            self.tell_row(TUNED, figures_of(new))
        best = self.best()
        if best != record["deployed"] or (best == TUNED and record["steps"]):
            self.answer_with(best)
        if rules := record["ranks"].get(RULES):
            of_rules = gain(record["ranks"][SHIPPED], rules)
            if of_rules.mean > 0:
                reason = f"{gain_text('the rules', of_rules, len(rules))}; {reason}"
        record["why"] = reason
        self.tell(f"deployed: {TEXTS[record['deployed']]} ({reason})")

    def mix(self) -> None:
        """Mix an embedding model in for relations of the graph, if that is clearly better for held-out pairs."""
        record = self.record
        record.update(mixture={}, mixing={})
        try:
            if not record["asked"]["mix"]:
                raise FewlinkError("it was switched off")
            if record["deployed"] == RULES:
                raise FewlinkError("the learning-free rules answer")
            self.weigh_embeddings()
            which = f"relations with at least {record['mixture']['fewest']:,} known pairs"
            record["mixed"] = f"an embedding model is mixed in for {which} ({record['gain']})"
        except FewlinkError as error:
            record["mixed"] = f"no embedding model is mixed in: {error}"
            self.deploy_vectors(NoVectors())
        if record["asked"]["mix"]:
            self.tell(record["mixed"])

    def weigh_embeddings(self) -> None:
        """Train an embedding model without the held-out pairs, choose its weight on half of them, and calibrate it.

        Raises if it is not clearly better to mix it in.
        """
        record = self.record
        held = self.large
        begin = time.monotonic()
        if (relations := len(held.split("dev"))) <= TOO_FEW:
            have = plural(relations, "relation has", "relations have")
            raise FewlinkError(f"{have} {LARGE} pairs or more, too few to be sure of a gain")
        allowed = TRAINING_SHARE * (self.left - self.card_seconds)
        plan = plan_training(held.graph, allowed, self.settings.seed, self.settings.device)
        late = time.monotonic() + MOST_OF_ALLOWED * allowed
        embeddings = train_embeddings(held.graph, plan, self.tell, late)
        seconds = time.monotonic() - begin
        trail = trail_scorer(held, self.settings, load_best(self.run)[0], self.run)
        assert isinstance(trail, TrailScorer)
        until = time.monotonic() + WEIGHING_SHARE * max(0.0, self.left - self.card_seconds - seconds)
        ranks = rank_weights(held, trail, Mixture(embeddings, 1.0, 0), until)
        weight, found = choose_weight(ranks)
        count = len(ranks[0])
        record["mixing"] = {"alone": figures_of(ranks[0]), "mixed": figures_of(ranks[1 + WEIGHTS.index(weight)])}
        for name, figures in record["mixing"].items():
            self.tell_row(name, figures)
        record["gain"] = gain_text(f"a weight of {weight:g}", found, count)
        if not is_clear(found):
            raise FewlinkError(record["gain"])
        mixture = Mixture(embeddings, weight, min(len(task.known) for task in held.split("dev")[:count]))
        calibration = calibration_of(self.run, self.held, load_best(self.run)[1])
        mixture = dataclasses.replace(mixture, recalibration=recalibrate(held, trail, mixture, calibration, count))
        mixture.save(self.run / WORK / MIXTURE, held.graph.fingerprint)
        facts = {"settings": plan.settings.as_dict(), "models": embeddings.dim // plan.settings.dim, "seconds": seconds}
        record["mixture"] = {**facts, **mixture.facts}

    def deploy_mixture(self) -> None:
        """Train the chosen embedding model once more, on the whole graph this time, and deploy it."""
        if not (facts := self.record["mixture"]):
            return
        if self.left < ENOUGH_TO_RETRAIN * facts["seconds"]:
            why = "no time was left to train it on the whole graph"
            self.record.update(mixture={}, mixed=f"no embedding model is mixed in: {why}")
            self.tell(self.record["mixed"])
            return
        plan = EmbeddingPlan(EmbeddingSettings(**facts["settings"]), facts["models"])
        embeddings = train_embeddings(self.whole, plan, self.tell)
        measured = Mixture.open(self.run / WORK / MIXTURE)
        self.deploy_vectors(dataclasses.replace(measured, embeddings=embeddings))

    def deploy_vectors(self, vectors: NoVectors) -> None:
        """Deploy the whole graph with these vectors, unless it is deployed with them already."""
        deployed = Deployed.open(self.run)
        if deployed is None or deployed.vectors.digest() != vectors.digest():
            Deployed(self.deployed, vectors).save(self.run)

    @property
    def card_seconds(self) -> float:
        """The estimated seconds of the last measurement: that of the figures to expect."""
        return float(SLOWDOWN * self.record["pace"] * len(self.record["ranks"][SHIPPED]))

    def write_card(self) -> None:
        """Measure what to expect of the deployed scorer on queries that nothing was chosen on; write the card."""
        record = self.record
        first = cut_benchmark(self.held, len(record["ranks"][SHIPPED]), self.plan.queries)
        (ranks,) = rank_held_out(first, [self.deployed_scorer(self.held)], EXPECTING, self.moment(1))
        record["figures"] = figures_by_shots(ranks)
        if record["mixture"] or (record.get("mixing") and hides_relations(self.held)):
            pairs = cut_benchmark(self.large, MAX_LARGE, self.plan.queries)
            vectors = Mixture.open(self.run / WORK / MIXTURE) if record["mixture"] else NoVectors()
            (ranks,) = rank_held_out(pairs, [self.deployed_scorer(pairs, vectors)], EXPECTING, self.moment(1))
            record["figures"][KNOWN] = figures_of(ranks)
        write_record(self.run, record)
        write_card(self.run, device=self.settings.device)

    def deploy(self, benchmark: Benchmark, name: str) -> None:
        """Make the run answer with the rules, the built-in weights, or the fine-tuned weights."""
        weights, step = load_best(self.run / WORK) if name == TUNED else (self.shipped, 0)
        config = RunConfig.of(benchmark, NoVectors(), self.settings.replace(steps=step or self.settings.steps))
        config = dataclasses.replace(config, answers_with=RULES if name == RULES else "")
        replace_run(self.run, config, weights, step, record_id(self.run, self.record))
        if name == SHIPPED and (calibration := shipped_calibration()):  # until the run has its own
            dataclasses.replace(calibration, benchmark=benchmark.fingerprint, step=0).save(self.run)

    def answer_with(self, name: str) -> None:
        """Deploy a scorer on the graph without what is held out, and calibrate it on relations that are.

        The built-in calibration stays if only pairs of relations are held out.
        """
        held = self.held
        self.deploy(held, name)
        self.record["deployed"] = name
        step = load_best(self.run)[1]
        shipped = None if name == RULES else shipped_calibration()
        if hides_relations(held):
            until = time.monotonic() + CALIBRATION_SHARE * max(0.0, self.left)
            scorer = self.deployed_scorer(held)
            calibrate_on_dev(held, scorer, SHOTS[0], TOP, step, shipped, until).save(self.run)
        elif shipped:
            dataclasses.replace(shipped, benchmark=held.fingerprint, step=step).save(self.run)

    def scorers(self, held: Benchmark) -> dict[str, Scorer]:
        """The scorers to measure before fine-tuning, by name; the rules only where whole relations are hidden."""
        scorers = {SHIPPED: trail_scorer(held, self.settings, self.shipped, self.run)}
        return {**scorers, RULES: learning_free(RULES, held.graph)} if hides_relations(held) else scorers

    def deployed_scorer(self, held: Benchmark, vectors: NoVectors = NO_VECTORS) -> Scorer:
        """The scorer that the run answers with, on the graph without what is held out."""
        if self.record["deployed"] == RULES:
            return learning_free(RULES, held.graph)
        return trail_scorer(held, self.settings, load_best(self.run)[0], self.run, vectors)

    def best(self) -> str:
        """The best of the scorers that are clearly better than the built-in weights; these weights if none is."""
        ranks = self.record["ranks"]
        self.record["held_out"] = {name: figures_of(each) for name, each in ranks.items()}
        gains = {name: gain(ranks[SHIPPED], each) for name, each in ranks.items() if name != SHIPPED}
        clear = {name: each.mean for name, each in gains.items() if is_clear(each)}
        return max(clear, key=lambda name: clear[name], default=SHIPPED)

    @property
    def plan(self) -> Plan:
        return Plan(**self.record["plan"])

    def reason_to_end(self) -> str:
        """Why the fit ended before its time limit."""
        if not (steps := self.record["steps"]):
            return f"no fine-tuning: {self.record['not_tuned']}"
        if steps >= self.settings.steps:
            return f"all {steps:,} steps of fine-tuning are done; --set steps=N sets another number"
        return "the last measurements took less time than expected"

    def tell_row(self, name: str, figures: Mapping[str, float]) -> None:
        relations = int(figures["relations"])
        queries = int(figures["queries"])
        self.tell(
            f"  {name:<10}  MRR {figures['mrr']:.3f}  Hits@10 {figures['hits@10']:.3f}  "
            f"on {plural(relations, 'relation')}, {plural(queries, 'query', 'queries')}"
        )

    # Time

    @property
    def limit(self) -> float:
        """The time limit for all calls together, in seconds."""
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
        """The time of the monotonic clock at which this share of the time limit will be used up."""
        return time.monotonic() + share * self.limit - self.used

    def check_time(self) -> None:
        """Raise `NothingMeasured` if no time is left."""
        if self.left <= 0:
            raise NothingMeasured(
                f"the time limit of {duration(self.limit)} ended before anything was measured; "
                "run the same command with more --minutes to continue"
            )

    def stage(self, name: str, work: Callable[[], None], *, silent: bool = False) -> None:
        """Run a stage unless it is done. If it fails, the record keeps nothing of it but its time."""
        if name in self.record["seconds"]:
            return
        if not silent:
            self.tell(f"{duration(self.used)} of {duration(self.limit)}  {TITLES[name]}")
        before = copy.deepcopy(self.record)
        done = False
        try:
            work()
            done = True
        finally:
            spent = time.monotonic() - self.begin
            self.begin = time.monotonic()
            if not done:
                self.record.clear()
                self.record.update(before)
            seconds = self.record["seconds"]
            seconds[name if done else STOPPED] = spent + (0.0 if done else seconds.get(STOPPED, 0.0))
            if (self.run / FIT).exists():
                write_record(self.run, self.record)

    def note(self, text: str) -> None:
        self.record["notes"].append(text)
        self.tell(f"note: {text}")


def is_clear(found: Estimate) -> bool:
    """Whether a gain is positive and larger than two standard errors."""
    return found.mean > 0 and found.mean >= CLEAR * found.error


def gain_text(scorer: str, found: Estimate, relations: int) -> str:
    """The gain of a scorer over the built-in weights in words, and whether it is clear."""
    if math.isinf(found.error):
        return f"{scorer}: {found.mean:+.3f} MRR on {relations} held-out relations, too few to be sure"
    text = f"{scorer}: {found.mean:+.3f} ± {found.error:.3f} MRR on {relations} held-out relations"
    return text if is_clear(found) else f"{text}, not better by {CLEAR} standard errors"


def replace_run(run: Path, config: RunConfig, weights: Weights, step: int, id: str) -> None:
    """Replace the configuration and weights of a run atomically, and remove the calibration of the old weights.

    The new weights are written beside the old ones; writing the configuration makes them current.
    """
    digest = add_best(run, weights, step)
    dataclasses.replace(config, weights=digest).write(run, id, without=(CALIBRATION,))
    (run / CALIBRATION).unlink(missing_ok=True)
    save_best(run, weights, step)
