"""Meta-training, the paper's Algorithm 1: an episode, its loss, a step of Adam; now and then an evaluation on dev.

All randomness is a pure function of (seed, step), so a run that is killed and continued on the CPU ends in the same
bytes as one that was never stopped, given the same number of threads.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewlink.ahead import ahead
from fewlink.embeddings.table import Embeddings
from fewlink.errors import FewlinkError
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.models import FewShotScorer
from fewlink.seeds import derive
from fewlink.tasks.benchmark import Benchmark, Task
from fewlink.tasks.episodes import Episode, EpisodeSampler
from fewlink.training.checkpoints import State, load_last, mend, only_one, save_best, save_last
from fewlink.training.objective import Objective, objective
from fewlink.training.run import (
    RunConfig,
    add_line,
    assemble,
    keep_lines,
    load_weights,
    make_folder,
    start_or_continue,
)
from fewlink.training.settings import TrainingSettings

LOOK_EVERY = 64  # steps between looks at the loss on a GPU, where each look waits for the device
ADVICE = "train with a smaller learning_rate or with clip; the last checkpoint is whole"
Event = dict[str, Any]


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
    embeddings: Embeddings,
    settings: TrainingSettings,
    run: Path,
    *,
    on_event: Callable[[Event], None] | None = None,
) -> RunResult:
    """Meta-train a model into a run folder, or continue one that is there with the same settings.

    `on_event` receives, after each evaluation, the line of metrics.jsonl with `event` = "evaluated", `steps`,
    `best_step` and `best_mrr`; and where a run is continued, `event` = "continued" with `step` and `steps`.
    """
    run = Path(run)
    tell = on_event or (lambda event: None)
    trainer = Trainer(benchmark, embeddings, settings)
    make_folder(run)
    with only_one(run), trainer.exactly():
        start_or_continue(run, RunConfig.of(benchmark, embeddings, settings), embeddings)
        mend(run)
        trainer.load(run)
        keep_lines(run, trainer.state.line)
        if trainer.state.step:
            tell({"event": "continued", "step": trainer.state.step, "steps": settings.steps})
        while not trainer.finished:
            line = trainer.until_evaluation()
            began = time.perf_counter()
            trainer.save(run)
            line["seconds"]["saving"] = time.perf_counter() - began
            trainer.state.seconds += line["seconds"]["saving"]
            add_line(run, line)
            state = trainer.state
            more = {"steps": settings.steps, "best_step": state.best_step, "best_mrr": state.best["mrr"]}
            tell({"event": "evaluated", **line, **more})
    return trainer.result(run)


class Trainer:
    """Model, optimizer and counters: all that a continued run needs, and the step that changes them."""

    def __init__(self, benchmark: Benchmark, embeddings: Embeddings, settings: TrainingSettings) -> None:
        self.benchmark, self.settings, self.device = benchmark, settings, settings.device
        for task in _dev_tasks(benchmark):
            task.split(settings.shots)
        self.sampler = EpisodeSampler(
            benchmark.split("train"),
            len(benchmark.graph.entities),
            shots=settings.shots,
            batch=settings.batch,
            negatives=settings.negatives,
            seed=settings.seed,
        )
        self.model, self.surroundings = assemble(benchmark.graph, embeddings, settings, settings.device)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = torch.optim.Adam(self.parameters.values(), settings.learning_rate, fused=True)
        self.state = State()

    @property
    def finished(self) -> bool:
        return self.state.step >= self.settings.steps or self.state.waited >= self.settings.patience

    def until_evaluation(self) -> dict[str, Any]:
        """Train up to the next evaluation and make it; its line of metrics.jsonl."""
        settings, first = self.settings, self.state.step
        end = min(settings.steps, (first // settings.evaluate_every + 1) * settings.evaluate_every)
        began = clock = time.perf_counter()
        losses, sampling = torch.zeros(end - first, 3, device=self.device), 0.0
        episodes = (self.lesson(self.sampler(step)) for step in range(first, end))
        for index, lesson in enumerate(episodes if self.device == "cpu" else ahead(episodes)):
            sampling += time.perf_counter() - clock
            losses[index] = torch.stack(self.step(first + index, *lesson))
            if self.device != "cpu" and index % LOOK_EVERY == LOOK_EVERY - 1:
                self._look(losses[: index + 1, 0], first)
            clock = time.perf_counter()
        self._look(losses[:, 0], first)
        trained = time.perf_counter() - began
        self.state.step = end
        figures = self.evaluate()
        passed = time.perf_counter() - began
        total, rank, restored = losses.double().mean(0).tolist()
        self.state.seconds += passed
        self.state.line = {
            "step": end,
            "loss": total,
            "rank_loss": rank,
            "reconstruction_loss": restored,
            "learning_rate": settings.rate_at(end - 1),
            "dev": figures,
            "steps_per_second": (end - first) / trained,
            "seconds": {
                "sampling": sampling,
                "step": trained - sampling,
                "evaluation": passed - trained,
                "saving": 0.0,
            },
        }
        return self.state.line

    def lesson(self, episode: Episode) -> tuple[Tensor, Tensor]:
        """References (1, K, 2) and pairs (1, B + B·N, 2): queries, then each query's head with its polluted tails."""
        heads = np.repeat(episode.queries[:, 0], episode.negatives.shape[1])
        polluted = np.stack([heads, episode.negatives.reshape(-1)], 1)
        pairs = np.concatenate([episode.queries, polluted]).astype(np.int64)
        references = episode.references.astype(np.int64)
        return tuple(torch.from_numpy(x).unsqueeze(0).to(self.device) for x in (references, pairs))  # type: ignore[return-value]

    def step(self, number: int, references: Tensor, pairs: Tensor) -> Objective:
        """Move the parameters along one episode; its losses before the move."""
        settings = self.settings
        torch.manual_seed(derive(settings.seed, "step", number))  # dropout, where a model has it
        scores, reconstruction = self.model(references, pairs, self.surroundings)  # (1, B + B·N), (1,)
        losses = objective(
            scores,
            reconstruction,
            settings.batch,
            loss=settings.loss,
            margin=settings.margin,
            weight=settings.reconstruction,
        )
        if self.device == "cpu" and not math.isfinite(losses.total.item()):
            raise FewlinkError(f"the loss is {losses.total.item()} in step {number + 1}: {ADVICE}")
        self.optimizer.zero_grad()
        losses.total.backward()
        if settings.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters.values(), settings.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate_at(number)
        self.optimizer.step()
        return Objective(*(loss.detach() for loss in losses))

    def evaluate(self) -> dict[str, float]:
        """Micro figures on dev by the common evaluator; the state learns whether they are the best."""
        state = self.state
        for name, parameter in self.parameters.items():
            if not math.isfinite(float(parameter.detach().sum())):
                raise FewlinkError(f"{name} is not finite after step {state.step}: {ADVICE}")
        protocol = Protocol("dev", self.settings.shots, self.settings.evaluate_candidates)
        scorer = FewShotScorer(self.settings.model, self.model, self.surroundings)
        figures = evaluate(self.benchmark, scorer, protocol).metrics()["micro"]
        self.model.train()
        if not state.best or figures["mrr"] > state.best["mrr"]:
            state.best_step, state.best, state.waited = state.step, figures, 0
        else:
            state.waited += 1
        return figures

    def _look(self, losses: Tensor, first: int) -> None:
        """Stop at the first loss that is not a number."""
        bad = (~torch.isfinite(losses)).nonzero()
        if len(bad):
            raise FewlinkError(f"the loss is {float(losses[bad[0]])} in step {first + int(bad[0]) + 1}: {ADVICE}")

    def save(self, run: Path) -> None:
        weights = self.model.state_dict()
        moments = {
            f"{name}.{part}": value
            for name, parameter in self.parameters.items()
            for part, value in self.optimizer.state[parameter].items()
        }
        save_last(run, weights, moments, self.state)
        if self.state.is_best:
            save_best(run, weights, self.state.step)

    def load(self, run: Path) -> None:
        """Take up the last checkpoint, where there is one."""
        if (found := load_last(run)) is None:
            return
        weights, moments, self.state = found
        load_weights(self.model, weights, run)
        states: dict[int, dict[str, Tensor]] = {}
        for index, name in enumerate(self.parameters):
            parts = ("step", "exp_avg", "exp_avg_sq")
            if f"{name}.step" in moments:
                states[index] = {part: moments[f"{name}.{part}"].clone() for part in parts}
        self.optimizer.load_state_dict({"state": states, "param_groups": self.optimizer.state_dict()["param_groups"]})

    def result(self, run: Path) -> RunResult:
        state = self.state
        stopped = "patience" if state.waited >= self.settings.patience else "steps"
        return RunResult(run, state.step, state.best_step, dict(state.best), stopped, state.seconds)

    @contextlib.contextmanager
    def exactly(self) -> Iterator[None]:
        """Leave torch's generators as they were; on the CPU, sums over threads in one order only."""
        deterministic: Any = torch.utils.deterministic
        before, filled = torch.get_deterministic_debug_mode(), deterministic.fill_uninitialized_memory
        with torch.random.fork_rng(devices=[] if self.device == "cpu" else [torch.device(self.device)]):
            if self.device == "cpu":
                deterministic.fill_uninitialized_memory = False
                torch.set_deterministic_debug_mode("error")
            try:
                yield
            finally:
                torch.set_deterministic_debug_mode(before)
                deterministic.fill_uninitialized_memory = filled


def _dev_tasks(benchmark: Benchmark) -> Sequence[Task]:
    tasks = benchmark.split("dev")
    if not tasks:
        raise FewlinkError(f"{benchmark.name} has no dev relations to choose the best model on")
    return tasks
