"""Fine-tune the built-in weights on the relations of one graph within a time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fewlink.core import machine
from fewlink.core.errors import FewlinkError
from fewlink.core.progress import duration
from fewlink.core.threads import torch_threads
from fewlink.models.checkpoints import State, load_last, recover, save_last
from fewlink.models.contract import Scorer
from fewlink.models.family import NoVectors, RunState
from fewlink.models.trail.family import FAMILY, graphs_of
from fewlink.models.trail.learn import Batch, TrailLearner
from fewlink.models.trail.network import Tasks
from fewlink.models.trail.settings import TrailSettings
from fewlink.propagation.edges import graph_part
from fewlink.tasks import Benchmark
from fewlink.training.run import make_folder
from fewlink.training.trainer import deterministic

TUNING = TrailSettings(relations=1, queries=4, candidates=512, learning_rate=3e-4, average=0.95, steps=100)
SHAPE = ("model", "width", "layers", "relation_layers")  # settings that the built-in weights determine
MIN_STEPS = 50  # fewer do not move the weights measurably
MAX_WHOLE_EDGES = 30_000  # on a CPU, steps on a larger graph read neighbourhoods
NEIGHBOURHOOD_EDGES = 15_000  # which they read then
TIMED_BLOCKS = 3  # blocks of steps after which the pace is known
SAVE_EVERY = 20.0  # seconds
TELL_EVERY = 10.0  # seconds
NO_VECTORS = NoVectors()
Weights = Mapping[str, Tensor]
Log = Callable[[str], None]


def tuning_settings(changes: list[str]) -> TrailSettings:
    """The settings of fine-tuning with these changes; `steps` is the maximum number of steps."""
    settings = TUNING.adjusted(changes)
    for name in SHAPE:
        if getattr(settings, name) != getattr(TUNING, name):
            raise FewlinkError(f"fit cannot change {name}: it is {getattr(TUNING, name)} in the built-in weights")
    return settings


def trail_scorer(
    benchmark: Benchmark, settings: TrailSettings, weights: Weights, run: Path, vectors: NoVectors = NO_VECTORS
) -> Scorer:
    """TRAIL with these weights on the known graph of a benchmark, perhaps mixed with an embedding model."""
    return FAMILY.scorer(benchmark, vectors, settings, dict(weights), run=run)


def check_tunable(benchmark: Benchmark, settings: TrailSettings) -> None:
    """Raise if the benchmark has nothing to learn from, or memory is too small."""
    FAMILY.check(benchmark, settings)
    if not reads_neighbourhoods(benchmark, settings):
        machine.ensure("fine-tuning", FAMILY.training_memory(benchmark, NoVectors(), settings), settings.device)


def reads_neighbourhoods(benchmark: Benchmark, settings: TrailSettings) -> bool:
    """Whether a step reads only a part of the graph: on a CPU, if the graph is large."""
    edges = max(2 * graph.triple_count for graph in graphs_of(benchmark, settings))
    return settings.device == "cpu" and edges > MAX_WHOLE_EDGES


class NeighbourhoodLearner(TrailLearner):
    """A learner for large graphs on a CPU: each episode reads only the neighbourhood of its references and heads.

    A step takes a fraction of the time. Candidates outside the neighbourhood do not compete, and a query whose answer
    lies outside does not count.
    """

    part_edges = NEIGHBOURHOOD_EDGES

    def loss(self, batch: Batch) -> Tensor:
        sums = [self._sum_of_losses(episode) for episode in batch.episodes()]
        return torch.stack([loss for loss, _ in sums]).sum() / max(1, sum(queries for _, queries in sums))

    def _sum_of_losses(self, episode: Batch) -> tuple[Tensor, int]:
        """The sum of the losses of the queries whose answer lies in the neighbourhood, and their number."""
        references, *asked = episode.tasks
        read = self.graphs[episode.graph]
        used = torch.cat([references.ends[references.marks.amax(1) > 0], episode.tasks.heads.flatten()])
        visible = references.visible[0].numpy() > 0  # walks over the asked relation would lead to the answers
        part = graph_part(read.graph, used.numpy(), self.part_edges, visible)
        ends, heads, candidates = (torch.from_numpy(part.places(each.numpy())) for each in (references.ends, *asked))
        outside = candidates < 0  # (1, C)
        local = references._replace(ends=ends.clamp(min=0))  # padding has no marks and no edges
        scores = self.network(read.part(part), Tasks(local, heads, candidates.clamp(min=0)), self.dtype)  # (1, Q, C)
        lost = outside.gather(1, episode.answers)  # (1, Q)
        excluded = (episode.excluded | outside[:, None]) & ~lost[..., None]
        losses = cross_entropy(
            scores.masked_fill(excluded, -torch.inf).flatten(0, 1), episode.answers.flatten(), reduction="none"
        )
        return (losses * ~lost.flatten()).sum(), int((~lost).sum())


def learner_of(benchmark: Benchmark, settings: TrailSettings, start: Weights) -> TrailLearner:
    """The learner for a benchmark: for a large graph on a CPU, the one that reads neighbourhoods."""
    kind = NeighbourhoodLearner if reads_neighbourhoods(benchmark, settings) else TrailLearner
    return kind(graphs_of(benchmark, settings), settings, start)


def tune(
    benchmark: Benchmark,
    settings: TrailSettings,
    start: Weights,
    folder: Path,
    *,
    until: float | None,
    tell: Log,
) -> int:
    """Fine-tune weights on the known relations; an interrupted call continues from the checkpoint in `folder`.

    Runs all steps, or as many as it can until a time of the monotonic clock; the learning rate then falls over the
    number of steps expected at the pace so far. Returns the number of steps, and raises if too few are possible.
    `tell` receives an estimate of the time once the pace is known.
    """
    make_folder(folder)
    recover(folder)
    learner = learner_of(benchmark, settings, start)
    step = 0
    if last := load_last(folder):
        learner.load_state([RunState(*last[:2])])
        step = last[2].step
    begin = saved = told = time.monotonic()
    total = settings.steps
    first = step
    pace = 0.0
    with deterministic(settings.device), torch_threads(1):  # a second thread slows small operations down
        while step < total and (until is None or time.monotonic() + pace * learner.steps_at_once < until):
            count = min(learner.steps_at_once, total - step)
            loss = float(learner.run_steps(step, count).losses["loss"].mean())
            step = step + count
            now = time.monotonic()
            if not math.isfinite(loss):
                raise FewlinkError(f"the loss is {loss} at step {step}")
            if until is not None:
                pace = (now - begin) / (step - first)
                total = step + max(0, min(settings.steps - step, int((until - now) / pace)))
                if total < MIN_STEPS and step - first >= TIMED_BLOCKS * learner.steps_at_once:
                    raise FewlinkError(
                        f"a step takes {pace:.2g} s: the time allows {total} steps, and at least {MIN_STEPS} are needed"
                    )
                learner.settings = settings.replace(steps=max(total, 1))
            if step - first == TIMED_BLOCKS * learner.steps_at_once < total:
                pace = (now - begin) / (step - first)
                tell(f"fine-tuning  {total:,} steps take about {duration(pace * (total - step))} more")
            if now - saved >= SAVE_EVERY:
                save_last(folder, *learner.state(0), State(step, step))
                saved = now
            if now - told >= TELL_EVERY:
                tell(f"fine-tuning  step {step:,} of about {total:,}")
                told = now
    if not step:
        raise FewlinkError("no time was left")
    save_last(folder, *learner.state(0), State(step, step))
    return step
