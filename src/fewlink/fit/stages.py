"""The stages of a fit: their record and time limit, and fine-tuning, the longest of them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fewlink.core import memory
from fewlink.core.errors import FewlinkError, InputError, reading, wrong_format
from fewlink.core.progress import duration
from fewlink.core.storage import read_json, with_sha256, without_sha256, write_json
from fewlink.core.threads import torch_threads
from fewlink.data import Benchmark
from fewlink.fit.held_out import RULES
from fewlink.graph import Graph
from fewlink.models.family import NoVectors, RunState
from fewlink.models.trail.episodes import Batch
from fewlink.models.trail.family import FAMILY, graphs_of
from fewlink.models.trail.learner import TrailLearner
from fewlink.models.trail.network import Tasks
from fewlink.models.trail.settings import TrailSettings
from fewlink.propagation.edges import graph_part
from fewlink.scorers import Scorer
from fewlink.training.checkpoints import (
    CALIBRATION,
    FIT,
    State,
    add_best,
    check_complete,
    id_of,
    load_last,
    locked_run,
    recover,
    run_id,
    save_best,
    save_last,
    weights_digest,
)
from fewlink.training.run import RunConfig, is_run, make_folder
from fewlink.training.trainer import exactly

FORMAT = "fewlink-fit/2"
TITLES = {
    "answering": "writing a run that answers",
    "carving": "carving tasks out of the graph",
    "measuring": "measuring on held-out relations",
    "tuning": "fine-tuning",
    "choosing": "measuring the fine-tuned weights on the same queries",
    "card": "test figures and model card",
}
SHIPPED, TUNED = "shipped", "fine-tuned"
FIRST = (SHIPPED, RULES)  # what is measured before fine-tuning
STOPPED = "stopped"  # the seconds of stages that did not end

TUNING = TrailSettings(relations=1, queries=4, candidates=512, learning_rate=3e-4, average=0.99, steps=2000)
SHAPE = ("model", "width", "layers", "relation_layers")  # settings that the shipped weights decide
LEAST_STEPS = 50
WHOLE, PART = 60_000, 15_000  # edges up to which a step on a CPU reads the whole graph; to which a part is grown
STEP = 4  # a step takes at least so many times the time to score its queries
TIMED = 3  # blocks of steps after which it is known how many fit
SAVE_EVERY, TELL_EVERY = 20.0, 10.0  # seconds
Weights = Mapping[str, Tensor]
Tell = Callable[[str], None]


class Unmeasured(Exception):
    """Why nothing was measured."""


class Stages:
    """Stages in limited time: those that are done are not repeated, also not by a later call.

    `record` is written to fit.json after each stage; `begin` is the moment when the present stage began; `tell` gets
    lines of progress.
    """

    def __init__(self, run: Path, record: dict[str, Any], tell: Tell, begin: float) -> None:
        self.run, self.record, self.tell, self.begin = run, record, tell, begin

    @property
    def limit(self) -> float:
        """The time of all calls, in seconds."""
        return 60 * float(self.record["asked"]["minutes"])

    @property
    def used(self) -> float:
        return float(sum(self.record["seconds"].values()) + time.monotonic() - self.begin)

    @property
    def left(self) -> float:
        return float(self.limit - self.used)

    def moment(self, share: float) -> float:
        """The moment of the clock at which this share of the time is used."""
        return time.monotonic() + share * self.limit - self.used

    def check_time(self) -> None:
        """Raise if the time is used up."""
        if self.left <= 0:
            raise Unmeasured(
                f"nothing was measured, since {duration(self.limit)} were used up before; "
                "the same command with more --minutes continues"
            )

    @contextlib.contextmanager
    def stage(self, name: str, *, silent: bool = False) -> Iterator[bool]:
        """Whether a stage is still to be done. Its seconds count, whether it ends or not; the record is written."""
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
            if not done:  # nothing of the stage but its time is kept
                self.record.clear()
                self.record.update(before)
            seconds = self.record["seconds"]
            seconds[name if done else STOPPED] = spent + (0.0 if done else seconds.get(STOPPED, 0.0))
            if (self.run / FIT).exists():
                self.write_record()

    def write_record(self) -> None:
        write_json(self.run / FIT, with_sha256({**self.record, "id": self.id}))

    @property
    def id(self) -> str:
        """The id of the run: the same for all calls that continue a fit."""
        asked = {name: value for name, value in self.record["asked"].items() if name != "minutes"}
        return run_id(self.run) or id_of(asked)

    def replace_run(self, config: RunConfig, weights: Weights, step: int) -> None:
        """Make the run answer with another configuration and its weights, in one step: writing the configuration.

        The calibration of what answered before is removed.
        """
        if is_run(self.run) and not (before := RunConfig.read(self.run)).weights:  # of an earlier version
            dataclasses.replace(before, weights=weights_digest(self.run)).write(self.run)
        digest = add_best(self.run, weights, step)
        dataclasses.replace(config, weights=digest).write(self.run, self.id, without=(CALIBRATION,))
        (self.run / CALIBRATION).unlink(missing_ok=True)
        save_best(self.run, weights, step)

    def note(self, text: str) -> None:
        self.record["notes"].append(text)
        self.tell(f"note: {text}")


def read_record(run: Path) -> dict[str, Any] | None:
    """The record of a fit, or None if it has not started."""
    path = run / FIT
    if not path.exists():
        check_complete(run, FIT)
        return None
    content = read_json(path)
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise wrong_format(path, found, FORMAT, "choose another folder")
    remedy = "restore it from a copy, or fit again into another folder"
    content = without_sha256(content, path, remedy=remedy)
    mine, other = run_id(run), content.pop("id", "")
    if mine and other and mine != other:
        raise InputError(path, f"belongs to another run ({other}, not {mine}): {remedy}")
    with reading(path, remedy):
        numbers = [content["asked"].get("minutes", 0.0), *content["seconds"].values()]
        if not all(isinstance(number, int | float) for number in numbers) or not isinstance(content["notes"], list):
            raise TypeError("seconds are numbers, and notes a list")
    return dict(content)


def continued(before: dict[str, Any], new: dict[str, Any], minutes: float) -> dict[str, Any]:
    """The record to continue with: from the beginning where nothing was measured, or with more time to fine-tune in.

    The time used before stays used.
    """
    seconds, more = before["seconds"], minutes > before["asked"]["minutes"]
    used = {STOPPED: sum(seconds.values())}
    if "answering" not in seconds or ("measuring" not in seconds and minutes != before["asked"]["minutes"]):
        return {**new, "seconds": used if used[STOPPED] else {}}
    if "card" in seconds and more:
        kept = {name: seconds[name] for name in ("answering", "carving", "measuring") if name in seconds}
        before["seconds"] = {**kept, STOPPED: used[STOPPED] - sum(kept.values())}
        before["plan"]["tuning"] = True
        before["ranks"] = {
            name: ranks for name, ranks in before["ranks"].items() if name in (*FIRST, before["deployed"])
        }
    return before


@contextlib.contextmanager
def locked_folder(run: Path) -> Iterator[None]:
    """Lock the folder for this process; a folder that stays empty is removed."""
    make_folder(run)
    mine = False
    try:
        with locked_run(run):
            mine = True
            yield
    finally:
        if mine:
            with contextlib.suppress(OSError):  # not empty
                run.rmdir()


def check_fit_folder(run: Path) -> None:
    """Raise if a folder holds anything but a fit."""
    if run.exists() and not run.is_dir():
        raise FewlinkError(f"{run} is a file: choose another folder")
    others = [path for path in run.iterdir() if not path.name.startswith((".lock", f".{FIT}."))] if run.exists() else []
    if others and not (run / FIT).exists():
        check_complete(run, FIT)
        raise FewlinkError(f"{run} exists and was not made by fewlink fit: choose another folder")


def check_same_arguments(run: Path, before: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Raise if a fit was started with other arguments."""
    files = {"graph": "another graph", "types": "other types", "names": "other names"}
    for name, value in arguments.items():
        if before.get(name) != value:
            difference = files.get(name, f"{name} = {before.get(name)}, not {value}")
            raise InputError(run, f"was fitted with {difference}: give the same, or choose another folder")


def tuning_settings(changes: list[str]) -> TrailSettings:
    """How the shipped weights are fine-tuned, with changes; `steps` are the most."""
    settings = TUNING.adjusted(changes)
    for name in SHAPE:
        if getattr(settings, name) != getattr(TUNING, name):
            raise FewlinkError(f"the shipped weights have {name} = {getattr(TUNING, name)}: fit cannot change it")
    return settings


def trail_scorer(benchmark: Benchmark, settings: TrailSettings, weights: Weights, run: Path, names: bool) -> Scorer:
    """TRAIL with these weights on what is known of a benchmark; with `names`, those of its entities count."""
    scorer = FAMILY.scorer(benchmark, NoVectors(), settings, dict(weights), run=run)
    return scorer if names else scorer.without_names()


def least_heads(graph: Graph, settings: TrailSettings) -> int:
    """Fine-tuning that is of use takes at least the time to score so many heads."""
    edges = 2 * graph.triple_count
    share = 2 * PART / edges if settings.device == "cpu" and edges > WHOLE else 1.0
    return int(LEAST_STEPS * STEP * settings.relations * settings.queries * share)


def check(benchmark: Benchmark, settings: TrailSettings) -> None:
    """Raise if there is nothing to learn from, or too little memory."""
    FAMILY.check(benchmark, settings)
    needed = FAMILY.training_memory(benchmark, NoVectors(), settings)
    memory.ensure("fine-tuning", needed, settings.device)


class PartLearner(TrailLearner):
    """A learner on a CPU whose steps read only the neighbourhood of their references and heads, for a large graph.

    A step takes a fraction of the time. Candidates outside of the neighbourhood do not compete, and a query whose
    answer is outside does not count.
    """

    def __init__(self, graphs: Sequence[Graph], settings: TrailSettings, start: Weights, edges: int = PART) -> None:
        super().__init__(graphs, settings, start)
        self.part_edges = edges

    def loss(self, batch: Batch) -> Tensor:
        (references, *asked), read = batch.tasks, self.graphs[batch.graph]
        used = references.ends[references.marks.amax(1) > 0]
        part = graph_part(read.graph, torch.cat([used, asked[0].flatten()]).numpy(), self.part_edges)
        ends, heads, candidates = (torch.from_numpy(part.places(each.numpy())) for each in (references.ends, *asked))
        outside = candidates < 0  # (L, C)
        local = references._replace(ends=ends.clamp(min=0))  # padding has no marks and no edges
        scores = self.network(read.part(part), Tasks(local, heads, candidates.clamp(min=0)), self.dtype)  # (L, Q, C)
        lost = outside.gather(1, batch.answers)  # (L, Q)
        excluded = (batch.excluded | outside[:, None]) & ~lost[..., None]
        losses = cross_entropy(
            scores.masked_fill(excluded, -torch.inf).flatten(0, 1), batch.answers.flatten(), reduction="none"
        )
        return (losses * ~lost.flatten()).sum() / max(1, int((~lost).sum()))


def learner_of(benchmark: Benchmark, settings: TrailSettings, start: Weights) -> TrailLearner:
    """What fine-tunes: on a CPU, of large graphs each step reads a part."""
    graphs = graphs_of(benchmark, settings)
    large = max(2 * graph.triple_count for graph in graphs) > WHOLE
    return (PartLearner if large and settings.device == "cpu" else TrailLearner)(graphs, settings, start)


def tune(
    benchmark: Benchmark,
    settings: TrailSettings,
    start: Weights,
    folder: Path,
    *,
    until: float | None,
    tell: Tell,
) -> int:
    """Fine-tune weights on the known relations, into checkpoints in a folder; continues what is there.

    It takes all steps, or as many as fit until a moment of the clock: the learning rate then falls over as many steps
    as are expected at the pace so far. Returns the number of steps taken; raises if too few would fit.
    """
    make_folder(folder)
    recover(folder)
    learner, step = learner_of(benchmark, settings, start), 0
    if last := load_last(folder):
        learner.load_state([RunState(*last[:2])])
        step = last[2].step
    begin = saved = told = time.monotonic()
    total, first, pace = settings.steps, step, 0.0
    with exactly(settings.device), torch_threads(1):  # small operations of two threads wait for each other
        while step < total and (until is None or time.monotonic() + pace * learner.steps_at_once < until):
            count = min(learner.steps_at_once, total - step)
            loss = float(learner.run_steps(step, count).losses["loss"].mean())
            step, now = step + count, time.monotonic()
            if not math.isfinite(loss):
                raise FewlinkError(f"the loss is {loss} in step {step}")
            if until is not None:
                pace = (now - begin) / (step - first)
                total = step + max(0, min(settings.steps - step, int((until - now) / pace)))
                if total < LEAST_STEPS and step - first >= TIMED * learner.steps_at_once:
                    raise FewlinkError(
                        f"a step takes {pace:.2g} s, so there is time for {total}; {LEAST_STEPS} are the least"
                    )
                learner.settings = settings.replace(steps=max(total, 1))
            if now - saved >= SAVE_EVERY:
                save_last(folder, *learner.state(0), State(step, step))
                saved = now
            if now - told >= TELL_EVERY:
                tell(f"fine-tuning  step {step:,} of about {total:,}  loss {loss:.3f}")
                told = now
    save_last(folder, *learner.state(0), State(step, step))
    return step


def check_shots(benchmark: Benchmark, shots: int) -> None:
    for task in (*benchmark.split("dev"), *benchmark.split("test")):
        task.split(shots)
