"""Meta-training, the paper's Algorithm 1: sample episodes, take a step of the optimizer, evaluate on dev.

All randomness is a pure function of (seed, step). A run that is killed and continued on the CPU therefore ends in the
same bytes as an uninterrupted one with the same number of threads, and a kill loses at most a minute of training.
Several seeds train side by side on a GPU. Several processes share the relations of each step and the queries of each
evaluation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fewlink.core import distributed, machine
from fewlink.core.errors import FewlinkError
from fewlink.core.machine import use_device
from fewlink.core.progress import progress, silent
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.models import trained_family
from fewlink.models.checkpoints import State, load_last, load_state, recover, save_best, save_last
from fewlink.models.contract import Scorer
from fewlink.models.family import PretrainedVectors, RunState
from fewlink.models.folder import locked_run
from fewlink.models.run import RunConfig
from fewlink.models.settings import ModelSettings
from fewlink.models.weights import check_weights
from fewlink.tasks.benchmark import Benchmark
from fewlink.training.run import MetricsLog, check_folder, make_folder, start_or_continue, truncate_metrics

ADVICE = "train with a smaller learning_rate or with clip; the last checkpoint is intact"
SAVE_EVERY = 30.0  # seconds of training between two evaluations
Event = dict[str, Any]
Watch = Callable[[Path, int, Scorer], None]


@dataclass(frozen=True)
class RunResult:
    """The result of training: `best` has the dev figures of `best_step`; `stopped` is "steps" or "patience"."""

    run: Path
    step: int
    best_step: int
    best: dict[str, float]
    stopped: str
    seconds: float


def train_run(
    benchmark: Benchmark,
    vectors: PretrainedVectors,
    settings: ModelSettings,
    run: Path | str,
    *,
    on_event: Callable[[Event], None] | None = None,
    save_every: float = SAVE_EVERY,
) -> RunResult:
    """Meta-train a model into a run folder, or continue the run in that folder with the same settings.

    The options are those of `train_runs`.
    """
    runs = {settings.seed: Path(run)}
    return train_runs(benchmark, vectors, settings, runs, on_event=on_event, save_every=save_every)[0]


def train_runs(
    benchmark: Benchmark,
    vectors: PretrainedVectors,
    settings: ModelSettings,
    runs: Mapping[int, Path | str],
    *,
    on_event: Callable[[Event], None] | None = None,
    watch: Watch | None = None,
    save_every: float = SAVE_EVERY,
) -> list[RunResult]:
    """Meta-train a model with several seeds, each into its own run folder; `settings.seed` is ignored.

    The runs train side by side on a GPU if the family supports it, otherwise one after another. Among equally good
    evaluations, the first is the best.

    on_event    receives, after each evaluation, the line of metrics.jsonl with `event` = "evaluated", `model`, `seed`,
                `steps`, `best_step` and `best_mrr`; for a continued run, first `event` = "continued" with `model`,
                `seed`, `step` and `steps`
    watch       is called as watch(run, step, scorer) at each evaluation, before the checkpoint is saved; a continued
                run calls it again for evaluations that were not saved
    save_every  the seconds between two checkpoints, besides those at evaluations
    """
    folders = {seed: Path(run) for seed, run in runs.items()}

    def notify(event: str, seed: int, **facts: Any) -> None:
        if on_event is not None:
            on_event({"event": event, "model": settings.model, "seed": seed, "steps": settings.steps, **facts})

    family = trained_family(settings.model)
    check(benchmark, settings)
    family.check_vectors(benchmark, vectors)
    use_device(settings.device)
    side_by_side = len(runs) if settings.device != "cpu" else 1
    needed = family.training_memory(benchmark, vectors, settings, runs=side_by_side)
    advice = f"use less memory, for example with --set {family.memory_advice}" if family.memory_advice else ""
    machine.ensure(f"training {settings.model}", needed, settings.device, advice)
    with contextlib.ExitStack() as locks, deterministic(settings.device):
        distributed.from_first(functools.partial(_prepare, benchmark, vectors, settings, folders, locks))
        states = _load_states(folders)
        for seed, state in states.items():
            if state.step:
                notify("continued", seed, step=state.step)
        while group := _next_group(states, settings):
            trainer = Trainer(benchmark, vectors, settings, group, save_every)
            trainer.load(folders)
            distributed.from_first(functools.partial(trainer.write_configs, vectors, folders))
            while not any(_finished(state, settings) for state in trainer.states):
                trainer.train_until_evaluation(folders)
                for index, (seed, state) in enumerate(zip(group, trainer.states, strict=True)):
                    if watch is not None:
                        watch(folders[seed], state.step, trainer.learner.scorer(index))
                trainer.save(folders)
                for seed, state in zip(group, trainer.states, strict=True):
                    notify("evaluated", seed, **state.line, best_step=state.best_step, best_mrr=state.best["mrr"])
            states = _load_states(folders)
    return [_result(folders[seed], state, settings) for seed, state in states.items()]


class Trainer:
    """Trains, evaluates and saves S runs that are at the same step."""

    def __init__(
        self,
        benchmark: Benchmark,
        vectors: PretrainedVectors,
        settings: ModelSettings,
        seeds: Sequence[int],
        save_every: float = SAVE_EVERY,
    ) -> None:
        self.benchmark = benchmark
        self.settings = settings
        self.save_every = save_every
        self.seeds = seeds
        self.learner = trained_family(settings.model).learner(benchmark, vectors, settings, seeds)
        self.states = [State() for _ in seeds]
        self.logs: dict[int, MetricsLog] = {}

    def load(self, runs: Mapping[int, Path]) -> None:
        """Load the last checkpoints, if there are any."""
        last = distributed.from_first(lambda: [load_last(runs[seed]) for seed in self.seeds])
        saved = [each for each in last if each is not None]
        if saved:
            for seed, (weights, _, _) in zip(self.seeds, saved, strict=True):
                check_weights(self.learner.state(0).weights, weights, runs[seed])
            self.learner.load_state([RunState(weights, optimizer) for weights, optimizer, _ in saved])
            self.states = [state for _, _, state in saved]

    def write_configs(self, vectors: PretrainedVectors, runs: Mapping[int, Path]) -> None:
        """Write the configurations of the runs: a continued run may have other limits, or another device."""
        for seed in self.seeds:
            RunConfig.of(self.benchmark, vectors, self.settings.replace(seed=seed)).write(runs[seed])

    def train_until_evaluation(self, runs: Mapping[int, Path]) -> None:
        """Train up to the next evaluation, evaluate, and set the metrics line of each state.

        The progress is saved into the run folders at least once a minute.
        """
        settings = self.settings
        start = self.states[0].step
        first = self.states[0].since.get("step", start)  # of the last evaluation, even if the run was stopped since
        end = min(settings.steps, (first // settings.evaluate_every + 1) * settings.evaluate_every)
        began = time.perf_counter()
        sums, sampling_seconds = self._train(runs, first, end)
        training_seconds = time.perf_counter() - began
        for run, state in enumerate(self.states):
            began = time.perf_counter()
            state.step = end
            state.since = {}
            figures = self.evaluate(run)
            evaluation_seconds = time.perf_counter() - began
            state.seconds += training_seconds + evaluation_seconds
            state.line = {
                "step": end,
                **{name: float(total[run]) / (end - first) for name, total in sums.items()},
                "learning_rate": settings.learning_rate * settings.decay_at(end - 1),
                "dev": figures,
                "steps_per_second": (end - start) / training_seconds,
                "side_by_side": len(self.seeds),
                "seconds": {
                    "sampling": sampling_seconds,
                    "step": training_seconds - sampling_seconds,
                    "evaluation": evaluation_seconds,
                    "saving": 0.0,
                },
            }

    def _train(self, runs: Mapping[int, Path], first: int, end: int) -> tuple[dict[str, Tensor], float]:
        """Train up to step `end`; return the sums (S,) of the losses since step `first`, and the sampling seconds."""
        step = self.states[0].step
        before = [state.since.get("losses", {}) for state in self.states]
        sums = {name: torch.tensor([run[name] for run in before], dtype=torch.float64) for name in before[0]}
        sampling_seconds = 0.0
        step_seconds = 0.0
        saved_at = time.perf_counter()
        reporter = contextlib.nullcontext(silent) if distributed.rank() else progress("training", self.settings.steps)
        with reporter as report:
            while step < end:
                report(step, f"step {step:,} of {self.settings.steps:,}")
                began = time.perf_counter()
                count = min(self._steps_at_once(step_seconds), end - step)
                result = self.learner.run_steps(step, count)
                step_seconds = (time.perf_counter() - began) / count
                self._check_losses(result.losses["loss"], step)
                for name, losses in result.losses.items():
                    sums[name] = sums.get(name, 0) + losses.double().sum(0).cpu()
                step += count
                sampling_seconds += result.sampling_seconds
                if time.perf_counter() - saved_at >= self.save_every:
                    self._save_between_evaluations(runs, step, first, sums)
                    saved_at = time.perf_counter()
        return sums, sampling_seconds

    def _steps_at_once(self, step_seconds: float) -> int:
        """The steps of a block; on the CPU, where steps are slow, it ends before the next checkpoint is due."""
        if self.settings.device != "cpu":
            return self.learner.steps_at_once
        until_save = int(self.save_every / step_seconds) if step_seconds else 1
        return max(1, min(self.learner.steps_at_once, until_save))

    def evaluate(self, run: int) -> dict[str, float]:
        """Evaluate a run on dev and record in its state whether it is the best so far; return the micro figures."""
        state = self.states[run]
        for name, weight in self.learner.weights.items():
            if not math.isfinite(float(weight.detach()[run].sum())):
                raise FewlinkError(f"{name} is not finite after step {state.step} of seed {self.seeds[run]}: {ADVICE}")
        protocol = Protocol("dev", self.settings.shots, self.settings.evaluate_candidates)
        figures = evaluate(self.benchmark, self.learner.scorer(run), protocol).metrics()["micro"]
        last_is_best = trained_family(self.settings.model).last_is_best
        if last_is_best or not state.best or figures["mrr"] > state.best["mrr"]:
            state.best_step = state.step
            state.best = figures
            state.waited = 0
        else:
            state.waited += 1
        return figures

    def save(self, runs: Mapping[int, Path]) -> None:
        """Write the checkpoints and metrics of each run; only the first process writes."""
        if distributed.rank():
            return
        for index, (seed, state) in enumerate(zip(self.seeds, self.states, strict=True)):
            began = time.perf_counter()
            weights, moments = self.learner.state(index)
            save_last(runs[seed], weights, moments, state)
            if state.is_best:
                save_best(runs[seed], weights, state.step)
            state.line["seconds"]["saving"] = time.perf_counter() - began
            self.logs.setdefault(seed, MetricsLog(runs[seed])).add(state.line)

    def _save_between_evaluations(
        self, runs: Mapping[int, Path], step: int, first: int, sums: Mapping[str, Tensor]
    ) -> None:
        """Write `last/` of each run at a step, with the sum (S,) of each loss since step `first`."""
        if distributed.rank():
            return
        for index, (seed, state) in enumerate(zip(self.seeds, self.states, strict=True)):
            losses = {name: float(total[index]) for name, total in sums.items()}
            between = dataclasses.replace(state, step=step, since={"step": first, "losses": losses})
            save_last(runs[seed], *self.learner.state(index), between)

    def _check_losses(self, losses: Tensor, first: int) -> None:
        """Raise if a loss (steps, S) is not finite."""
        bad = (~torch.isfinite(losses)).nonzero().tolist()
        if bad:
            step, run = bad[0]
            raise FewlinkError(
                f"the loss is {float(losses[step, run])} in step {first + step + 1} of seed {self.seeds[run]}: {ADVICE}"
            )


def check(benchmark: Benchmark, settings: ModelSettings) -> None:
    """Raise if the model cannot be trained or evaluated on the benchmark."""
    trained_family(settings.model).check(benchmark, settings)
    if not benchmark.split("dev"):
        raise FewlinkError(
            f"{benchmark.name} has no dev relations to choose the best weights on: choose a benchmark that has some"
        )
    for task in benchmark.split("dev"):
        task.split(settings.shots)
    if settings.relations % distributed.count():
        raise FewlinkError(
            f"{distributed.count()} processes cannot share {settings.relations} relations of a step evenly: "
            f"give --set relations={distributed.count()}, or a multiple of it"
        )


def _prepare(
    benchmark: Benchmark,
    vectors: PretrainedVectors,
    settings: ModelSettings,
    runs: Mapping[int, Path],
    locks: contextlib.ExitStack,
) -> None:
    """Prepare every run folder, and lock it until `locks` is closed."""
    for run in runs.values():
        check_folder(run)
    if len({run.resolve() for run in runs.values()}) < len(runs):
        raise FewlinkError("two seeds have the same folder: give each seed its own")
    for seed, run in runs.items():
        make_folder(run)
        locks.enter_context(locked_run(run))
        config = RunConfig.of(benchmark, vectors, settings.replace(seed=seed))
        start_or_continue(run, config, vectors)
        recover(run)
        truncate_metrics(run, load_state(run).line)


def _load_states(runs: Mapping[int, Path]) -> dict[int, State]:
    return distributed.from_first(lambda: {seed: load_state(run) for seed, run in runs.items()})


def _finished(state: State, settings: ModelSettings) -> bool:
    return state.step >= settings.steps or state.waited >= settings.patience


def _next_group(states: Mapping[int, State], settings: ModelSettings) -> list[int]:
    """The seeds to train next: the unfinished ones that are furthest behind, or only the first of these.

    Several seeds train together on a GPU if the family supports it.
    """
    unfinished = {seed: state.step for seed, state in states.items() if not _finished(state, settings)}
    group = [seed for seed, step in unfinished.items() if step == min(unfinished.values())]
    side_by_side = settings.device != "cpu" and trained_family(settings.model).side_by_side
    return group if side_by_side else group[:1]


def _result(run: Path, state: State, settings: ModelSettings) -> RunResult:
    stopped = "patience" if state.waited >= settings.patience else "steps"
    return RunResult(run, state.step, state.best_step, dict(state.best), stopped, state.seconds)


@contextlib.contextmanager
def deterministic(device: str) -> Iterator[None]:
    """Make torch deterministic on the CPU; restore its mode and its random generators afterwards."""
    options: Any = torch.utils.deterministic
    mode = torch.get_deterministic_debug_mode()
    fills_memory = options.fill_uninitialized_memory
    with torch.random.fork_rng(devices=[] if device == "cpu" else [torch.device(device)]):
        if device == "cpu":
            options.fill_uninitialized_memory = False
            torch.set_deterministic_debug_mode("error")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(mode)
            options.fill_uninitialized_memory = fills_memory
