"""Meta-training, the paper's Algorithm 1: an episode, its loss, a step of Adam; now and then an evaluation on dev.

All randomness is a pure function of (seed, step), so a run that is killed and continued on the CPU ends in the same
bytes as one that was never stopped, given the same number of threads. Several seeds train side by side on a GPU, and
several processes share the relations of each step and the queries of each evaluation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fewlink import memory, together
from fewlink.embeddings.table import Embeddings
from fewlink.errors import FewlinkError
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.models import check_fits
from fewlink.progress import progress, silent
from fewlink.scorers import Scorer
from fewlink.tasks.benchmark import Benchmark
from fewlink.training.board import Board
from fewlink.training.checkpoints import State, load_last, load_state, mend, only_one, save_best, save_last
from fewlink.training.learner import Learner, sampler
from fewlink.training.needs import needs
from fewlink.training.run import (
    RunConfig,
    add_line,
    check_weights,
    keep_lines,
    make_folder,
    refuse_other_folder,
    start_or_continue,
)
from fewlink.training.settings import AnySettings, TrailSettings
from fewlink.training.trail_learner import TrailLearner
from fewlink.training.trail_learner import check as check_trail
from fewlink.training.trail_vectors import TrailVectors

AnyVectors = Embeddings | TrailVectors
ADVICE = "train with a smaller learning_rate or with clip; the last checkpoint is whole"
Event = dict[str, Any]
Watch = Callable[[Path, int, Scorer], None]


@dataclass(frozen=True)
class RunResult:
    """What training came to: `best` are the dev figures of step `best_step`, `stopped` is "steps" or "patience"."""

    run: Path
    step: int
    best_step: int
    best: dict[str, float]
    stopped: str
    seconds: float


def train(
    benchmark: Benchmark,
    embeddings: AnyVectors,
    settings: AnySettings,
    run: Path | str,
    *,
    on_event: Callable[[Event], None] | None = None,
) -> RunResult:
    """Meta-train a model into a run folder, or continue one that is there with the same settings.

    `on_event` receives, after each evaluation, the line of metrics.jsonl with `event` = "evaluated", `seed`, `steps`,
    `best_step` and `best_mrr`; and where a run is continued, `event` = "continued" with `seed`, `step` and `steps`.
    """
    return train_together(benchmark, embeddings, settings, {settings.seed: Path(run)}, on_event=on_event)[0]


def train_together(
    benchmark: Benchmark,
    embeddings: AnyVectors,
    settings: AnySettings,
    runs: Mapping[int, Path | str],
    *,
    on_event: Callable[[Event], None] | None = None,
    watch: Watch | None = None,
) -> list[RunResult]:
    """Meta-train a model with each of several seeds into its own run folder; `settings.seed` is not used.

    On a GPU they train side by side; on the CPU, where one run fills the cores, and those of TRAIL, one after another.
    Of evaluations that are equally good the first is the best. `watch(run, step, scorer)` sees the model of each
    evaluation before its checkpoint is saved: where a run is continued it sees every step again that was not.
    """
    tell, places = on_event or (lambda event: None), {seed: Path(run) for seed, run in runs.items()}
    check(benchmark, settings)
    _refuse_other_kind(embeddings, settings)
    check_vectors(benchmark, embeddings)
    together.use(settings.device)
    side_by_side = len(runs) if settings.device != "cpu" else 1
    needed = needs(benchmark.graph, embeddings, settings, runs=side_by_side, training=True)
    less = "views=1" if isinstance(settings, TrailSettings) else "neighbours=10"
    memory.ensure(f"training {settings.model}", needed, settings.device, f"use less of it, as with --set {less}")
    with contextlib.ExitStack() as held, exactly(settings.device):
        together.from_first(lambda: _prepare(benchmark, embeddings, settings, places, held))
        states = _states(places)
        for seed, state in states.items():
            if state.step:
                tell({"event": "continued", "seed": seed, "step": state.step, "steps": settings.steps})
        while group := _next_group(states, settings):
            trainer = Trainer(benchmark, embeddings, settings, group)
            trainer.load(places)
            while not any(_finished(state, settings) for state in trainer.states):
                trainer.until_evaluation()
                for index, (seed, state) in enumerate(zip(group, trainer.states, strict=True)):
                    if watch is not None:
                        watch(places[seed], state.step, trainer.learner.scorer(index))
                trainer.save(places)
                for seed, state in zip(group, trainer.states, strict=True):
                    more = {"steps": settings.steps, "best_step": state.best_step, "best_mrr": state.best["mrr"]}
                    tell({"event": "evaluated", "seed": seed, **state.line, **more})
            states = _states(places)
    return [_result(places[seed], state, settings) for seed, state in states.items()]


class Trainer:
    """Runs at the same step, side by side: they train, are evaluated and saved together."""

    def __init__(
        self, benchmark: Benchmark, embeddings: AnyVectors, settings: AnySettings, seeds: Sequence[int]
    ) -> None:
        self.benchmark, self.settings, self.seeds = benchmark, settings, seeds
        self.learner = make_learner(benchmark, embeddings, settings, seeds)
        self.states = [State() for _ in seeds]
        self.boards: dict[int, Board] = {}

    def load(self, runs: Mapping[int, Path]) -> None:
        """Continue from the last checkpoints, where there are any."""
        found = together.from_first(lambda: [load_last(runs[seed]) for seed in self.seeds])
        saved = [last for last in found if last is not None]
        if saved:
            for seed, (weights, _, _) in zip(self.seeds, saved, strict=True):
                check_weights(self.learner.state(0)[0], weights, runs[seed])
            self.learner.take([(weights, moments) for weights, moments, _ in saved])
            self.states = [state for _, _, state in saved]

    def until_evaluation(self) -> None:
        """Train up to the next evaluation and make it: each state holds its line of metrics.jsonl."""
        settings, first = self.settings, self.states[0].step
        end = min(settings.steps, (first // settings.evaluate_every + 1) * settings.evaluate_every)
        most = self.learner.most
        began, sampling, losses = time.perf_counter(), 0.0, []
        with progress("training", end - first) if together.rank() == 0 else contextlib.nullcontext(silent) as advance:
            for step in range(first, end, most):
                made, drawing = self.learner.advance(step, min(most, end - step))
                sampling += drawing
                losses.append(made)
                self._look(losses[-1], step)
                advance(step - first, f"step {step:,}")
        trained = time.perf_counter() - began
        means = torch.cat(losses).double().mean(0).T.tolist()  # (S, 3)
        for run, (state, (total, rank, restored)) in enumerate(zip(self.states, means, strict=True)):
            clock = time.perf_counter()
            state.step = end
            figures = self.evaluate(run)
            passed = time.perf_counter() - clock
            state.seconds += trained + passed
            state.line = {
                "step": end,
                "loss": total,
                "rank_loss": rank,
                "reconstruction_loss": restored,
                "learning_rate": settings.learning_rate * settings.decay_at(end - 1),
                "dev": figures,
                "steps_per_second": (end - first) / trained,
                "side_by_side": len(self.seeds),
                "seconds": {"sampling": sampling, "step": trained - sampling, "evaluation": passed, "saving": 0.0},
            }

    def evaluate(self, run: int) -> dict[str, float]:
        """Micro figures of a run on dev by the common evaluator; its state learns whether they are the best."""
        state = self.states[run]
        for name, weight in self.learner.weights.items():
            if not math.isfinite(float(weight.detach()[run].sum())):
                raise FewlinkError(f"{name} is not finite after step {state.step} of seed {self.seeds[run]}: {ADVICE}")
        protocol = Protocol("dev", self.settings.shots, self.settings.evaluate_candidates)
        figures = evaluate(self.benchmark, self.learner.scorer(run), protocol).metrics()["micro"]
        if not state.best or figures["mrr"] > state.best["mrr"]:
            state.best_step, state.best, state.waited = state.step, figures, 0
        else:
            state.waited += 1
        return figures

    def save(self, runs: Mapping[int, Path]) -> None:
        """Write each run's checkpoints and line; of several processes the first does."""
        if together.rank():
            return
        for index, (seed, state) in enumerate(zip(self.seeds, self.states, strict=True)):
            began = time.perf_counter()
            run, (weights, moments) = runs[seed], self.learner.state(index)
            save_last(run, weights, moments, state)
            if state.is_best:
                save_best(run, weights, state.step)
            state.line["seconds"]["saving"] = time.perf_counter() - began
            add_line(run, state.line)
            self.boards.setdefault(seed, Board(run)).add(state.line)

    def _look(self, losses: Tensor, first: int) -> None:
        """Stop at the first loss (steps, 3, S) that is not a number."""
        bad = (~torch.isfinite(losses[:, 0])).nonzero().tolist()
        if bad:
            step, run = bad[0]
            raise FewlinkError(
                f"the loss is {float(losses[step, 0, run])} in step {first + step + 1}"
                f" of seed {self.seeds[run]}: {ADVICE}"
            )


def make_learner(
    benchmark: Benchmark, vectors: AnyVectors, settings: AnySettings, seeds: Sequence[int]
) -> Learner | TrailLearner:
    """What moves the parameters of these seeds."""
    if isinstance(settings, TrailSettings) and isinstance(vectors, TrailVectors):
        return TrailLearner(benchmark, vectors, settings, seeds)
    assert isinstance(vectors, Embeddings) and not isinstance(settings, TrailSettings)
    return Learner(benchmark, vectors, settings, seeds)


def check(benchmark: Benchmark, settings: AnySettings) -> None:
    """Refuse what cannot be trained or evaluated before anything is written."""
    if isinstance(settings, TrailSettings):
        check_trail(benchmark, settings)
    else:
        sampler(benchmark, settings, [settings.seed])
    if not benchmark.split("dev"):
        raise FewlinkError(f"{benchmark.name} has no dev relations to choose the best model on")
    for task in benchmark.split("dev"):
        task.split(settings.shots)
    if settings.relations % together.count():
        raise FewlinkError(
            f"{together.count()} processes cannot share {settings.relations} relations of a step evenly: "
            f"--set relations={together.count()}, or a multiple"
        )


def _refuse_other_kind(vectors: AnyVectors, settings: AnySettings) -> None:
    if isinstance(settings, TrailSettings) != isinstance(vectors, TrailVectors):
        raise FewlinkError(f"{settings.model} does not take vectors of this kind: see fewlink.pretrain_views")


def check_vectors(benchmark: Benchmark, embeddings: AnyVectors) -> None:
    """Refuse vectors that do not fit the graph, or that saw relations this benchmark has in dev or test."""
    if isinstance(embeddings, TrailVectors):
        embeddings.check(benchmark)
        return
    check_fits(benchmark.graph, embeddings)
    made = embeddings.facts.get("benchmark")
    if embeddings.facts.get("with_train_tasks") and made != benchmark.fingerprint:
        raise FewlinkError(
            f"the vectors were trained with the train relations of another benchmark than {benchmark.name}, and may "
            "have seen its answers: pretrain on this one"
        )


def _prepare(
    benchmark: Benchmark,
    embeddings: AnyVectors,
    settings: AnySettings,
    runs: Mapping[int, Path],
    held: contextlib.ExitStack,
) -> None:
    """Make every run folder ready, and keep it for this process as long as it is `held`."""
    for run in runs.values():
        refuse_other_folder(run)
    for seed, run in runs.items():
        make_folder(run)
        held.enter_context(only_one(run))
        config = RunConfig.of(benchmark, embeddings, dataclasses.replace(settings, seed=seed))
        start_or_continue(run, config, embeddings)
        mend(run)
        keep_lines(run, load_state(run).line)


def _states(runs: Mapping[int, Path]) -> dict[int, State]:
    return together.from_first(lambda: {seed: load_state(run) for seed, run in runs.items()})


def _finished(state: State, settings: AnySettings) -> bool:
    return state.step >= settings.steps or state.waited >= settings.patience


def _next_group(states: Mapping[int, State], settings: AnySettings) -> list[int]:
    """The seeds to train next: on a GPU all that are furthest behind, on the CPU the first of them."""
    waiting = {seed: state.step for seed, state in states.items() if not _finished(state, settings)}
    group = [seed for seed, step in waiting.items() if step == min(waiting.values())]
    return group[:1] if settings.device == "cpu" or isinstance(settings, TrailSettings) else group


def _result(run: Path, state: State, settings: AnySettings) -> RunResult:
    stopped = "patience" if state.waited >= settings.patience else "steps"
    return RunResult(run, state.step, state.best_step, dict(state.best), stopped, state.seconds)


@contextlib.contextmanager
def exactly(device: str) -> Iterator[None]:
    """Leave torch's generators as they were; on the CPU, sums over threads in one order only."""
    deterministic: Any = torch.utils.deterministic
    before, filled = torch.get_deterministic_debug_mode(), deterministic.fill_uninitialized_memory
    with torch.random.fork_rng(devices=[] if device == "cpu" else [torch.device(device)]):
        if device == "cpu":
            deterministic.fill_uninitialized_memory = False
            torch.set_deterministic_debug_mode("error")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)
            deterministic.fill_uninitialized_memory = filled
