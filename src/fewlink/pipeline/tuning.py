"""Fine-tuning of TRAIL's shipped weights on the known relations of a benchmark, in limited time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from fewlink.base import memory
from fewlink.base.errors import FewlinkError
from fewlink.data import Benchmark
from fewlink.trail.family import FAMILY, graphs_of
from fewlink.trail.learner import TrailLearner, TrailSettings
from fewlink.training.checkpoints import State, load_last, recover, save_last
from fewlink.training.family import NoVectors
from fewlink.training.run import make_folder
from fewlink.training.trainer import exactly

TUNING = TrailSettings(relations=1, queries=4, candidates=512, learning_rate=3e-4, average=0.99, steps=2000)
SHAPE = ("model", "width", "layers", "relation_layers")  # settings that the shipped weights decide
LEAST_STEPS = 50
STEP = 4  # a step takes at least so many times the time to score its queries
TIMED = 2  # blocks of steps
SAFETY = 0.9  # share of the time that is planned for
SAVE_EVERY, TELL_EVERY = 20.0, 10.0  # seconds
Weights = Mapping[str, Tensor]


def tuning_settings(changes: list[str]) -> TrailSettings:
    """How the shipped weights are fine-tuned, with changes; `steps` are the most."""
    settings = TUNING.adjusted(changes)
    for name in SHAPE:
        if getattr(settings, name) != getattr(TUNING, name):
            raise FewlinkError(f"the shipped weights have {name} = {getattr(TUNING, name)}: fit cannot change it")
    return settings


def least_heads(settings: TrailSettings) -> int:
    """Fine-tuning that is of use takes at least the time to score so many heads."""
    return LEAST_STEPS * STEP * settings.relations * settings.queries


def check(benchmark: Benchmark, settings: TrailSettings) -> None:
    """Raise if there is nothing to learn from, or too little memory."""
    FAMILY.check(benchmark, settings)
    needed = FAMILY.memory(benchmark.graph, NoVectors(), settings, training=True)
    memory.ensure("fine-tuning", needed, settings.device)


def fitting_steps(benchmark: Benchmark, settings: TrailSettings, start: Weights, seconds: float) -> tuple[int, float]:
    """The number of steps that fit into these seconds, and the seconds of a step; raises if they are too few."""
    began = time.perf_counter()
    with exactly(settings.device):
        learner = TrailLearner(graphs_of(benchmark, settings), settings, start)
        for first, count in ((0, learner.most), (learner.most, TIMED * learner.most)):
            begin = time.perf_counter()
            float(learner.advance(first, count)[0].sum())
            pace = (time.perf_counter() - begin) / count
            if LEAST_STEPS * pace > 2 * seconds:
                break
    steps = min(settings.steps, int(SAFETY * max(0.0, seconds - (time.perf_counter() - began)) / pace))
    if steps < LEAST_STEPS:
        raise FewlinkError(f"a step takes {pace:.2g} s, so there is time for {steps}; {LEAST_STEPS} are the least")
    return steps, pace


def tune(
    benchmark: Benchmark,
    settings: TrailSettings,
    start: Weights,
    folder: Path,
    *,
    seconds: float,
    tell: Callable[[str], None],
) -> int:
    """Fine-tune weights on the known relations, into checkpoints in a folder; continues what is there.

    It ends after all steps or these seconds, and returns the number of steps taken.
    """
    begin = saved = told = time.monotonic()
    make_folder(folder)
    recover(folder)
    learner, step = TrailLearner(graphs_of(benchmark, settings), settings, start), 0
    if last := load_last(folder):
        learner.take([last[:2]])
        step = last[2].step
    with exactly(settings.device):
        while step < settings.steps and time.monotonic() - begin < seconds:
            count = min(learner.most, settings.steps - step)
            loss = float(learner.advance(step, count)[0][:, 0].mean())
            step, now = step + count, time.monotonic()
            if not math.isfinite(loss):
                raise FewlinkError(f"the loss is {loss} in step {step}")
            if now - saved >= SAVE_EVERY:
                save_last(folder, *learner.state(0), State(step, step))
                saved = now
            if now - told >= TELL_EVERY:
                tell(f"fine-tuning  step {step}/{settings.steps}  loss {loss:.3f}")
                told = now
    save_last(folder, *learner.state(0), State(step, step))
    return step
