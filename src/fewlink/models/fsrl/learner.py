"""Meta-training of several runs side by side: stacked parameters, the joint objective, steps of the optimizer."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fewlink.core import distributed
from fewlink.core.errors import FewlinkError
from fewlink.core.seeds import derive
from fewlink.graph import neighbour_table
from fewlink.models.captured import CapturedStep
from fewlink.models.embeddings.table import Embeddings
from fewlink.models.family import RunState, StepResult
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.neighbourhood import Neighbourhood, Neighbours
from fewlink.models.fsrl.scorer import TUNED, FewShotScorer, initial_model, inputs_of
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.vectors import references_seen
from fewlink.tasks.benchmark import Benchmark
from fewlink.tasks.candidates import competing_tails
from fewlink.tasks.episodes import EpisodeBatch, EpisodeLayout, EpisodeSampler, compact

SAMPLED = ("relations", "entities")  # of the neighbours, which each seed draws for itself
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
STEPS_AT_ONCE = {"cpu": 16, "cuda": 256}  # steps whose episodes are sampled together


class Objective(NamedTuple):
    """Each (runs,): `total` is minimised; `rank` and `reconstruction` are its terms."""

    total: Tensor
    rank: Tensor
    reconstruction: Tensor


def objective(scores: Tensor, reconstruction: Tensor, settings: FewShotSettings) -> Objective:
    """L_joint = L_rank + γ L_re (Eq. 10) of the scores divided by the temperature.

    Shapes: scores (runs, episodes, B + B·N), those of the B queries, then of the N negatives of each query in turn;
    reconstruction (runs, episodes).
    """
    scores = scores / settings.temperature
    positive = scores[..., : settings.batch]
    negative = scores[..., settings.batch :].unflatten(-1, (settings.batch, -1))  # (runs, episodes, B, N)
    with_margin = settings.loss == "hinge"
    rank = hinge(positive, negative, settings.margin) if with_margin else softmax(positive, negative)
    restored = reconstruction.mean(-1)
    return Objective(rank + settings.reconstruction * restored, rank, restored)


def hinge(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Eq. 9, [ξ + s⁻ − s⁺]₊, with means for sums, so that γ is independent of the batch size.

    Shapes: positive (runs, …, B), negative (runs, …, B, N); to (runs,).
    """
    return (margin + negative - positive.unsqueeze(-1)).clamp_min(0).flatten(1).mean(1)


def softmax(positive: Tensor, negative: Tensor) -> Tensor:
    """−log of the softmax of the true tail among itself and the negatives; shapes as in `hinge`."""
    every = torch.cat([positive.unsqueeze(-1), negative], -1)  # (runs, …, B, 1 + N)
    return (every.logsumexp(-1) - positive).flatten(1).mean(1)


class ModelWithInputs(nn.Module):
    """A model with its inputs, so that `functional_call` can replace the parameters of both."""

    def __init__(self, model: FewShotModel, around: Neighbourhood) -> None:
        super().__init__()
        self.model = model
        self.around = around

    def forward(self, ids: Tensor, references: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        scores, reconstruction = self.model(ids, references, pairs, self.around)
        return scores, reconstruction


class FewShotLearner:
    """Trains S runs of one model that differ in their seed.

    `weights` has a tensor (S, …) for each parameter, by its name in `ModelWithInputs`. Several runs train together by
    `vmap`, with one product for all of them. On a GPU, a step is captured once as a CUDA graph and replayed.
    """

    def __init__(
        self, benchmark: Benchmark, vectors: Embeddings, settings: FewShotSettings, seeds: Sequence[int]
    ) -> None:
        self.settings = settings
        self.seeds = seeds
        self.device = settings.device
        self.on_gpu = self.device != "cpu"
        self.references_seen = references_seen(vectors)
        self.sampler = sampler(benchmark, settings, seeds)
        models = _models(benchmark, vectors, settings, seeds)
        self.module = models[0].train()
        rates = dict.fromkeys((name for name, _ in self.module.named_parameters()), settings.learning_rate)
        if settings.embedding_rate:
            rates |= dict.fromkeys((f"around.{name}" for name in TUNED), settings.embedding_rate)
        self.weights = {name: nn.Parameter(_stacked(models, name)) for name in rates}
        self.tables = {name: _shared(models, name) for name in (f"around.neighbours.{table}" for table in SAMPLED)}
        groups = [
            {"params": [self.weights[n] for n in rates if rates[n] == rate], "rate": rate, "lr": self._rate(rate)}
            for rate in dict.fromkeys(rates.values())
        ]
        self.optimizer = torch.optim.Adam(groups, fused=True, capturable=self.on_gpu)
        relations = settings.relations // distributed.count()
        self.layout = EpisodeLayout(
            len(seeds), relations, settings.shots, settings.batch, settings.negatives, self.device
        )
        most_steps = STEPS_AT_ONCE["cuda" if self.on_gpu else "cpu"]
        self.steps_at_once = max(1, min(most_steps, self.sampler.at_once // relations))
        self._captured: CapturedStep | None = None

    def ids(self, first: int, count: int) -> Tensor:
        """The entities (S, count, U) of this process's share of `count` steps, beginning with step `first`."""
        share = self.layout.relations
        steps = torch.arange(first, first + count).unsqueeze(1) * self.settings.relations
        numbers = (steps + distributed.rank() * share + torch.arange(share)).flatten()
        return self.layout.ids(self.sampler(numbers))

    def run_steps(self, first: int, count: int) -> StepResult:
        """Run `count` steps, beginning with step `first`."""
        began = time.perf_counter()
        ids = self.ids(first, count)
        sampling_seconds = time.perf_counter() - began
        total, rank, reconstruction = self.learn(first, ids).unbind(1)
        return StepResult({"loss": total, "rank_loss": rank, "reconstruction_loss": reconstruction}, sampling_seconds)

    def learn(self, first: int, ids: Tensor) -> Tensor:
        """Run steps on entities (S, steps, U), beginning with step `first`; return losses (steps, 3, S)."""
        self.module.train()
        if self.on_gpu and distributed.count() == 1:
            if self._captured is None or self._captured.max_steps < ids.shape[1]:
                states = [self._copy(run) for run in range(len(self.seeds))]
                self._captured = CapturedStep(self._captured_step, ids, terms=3)
                self.load_state(states)
            torch.manual_seed(derive(self.seeds[0], "step", first))  # for dropout
            return self._captured.replay(first, ids)
        losses = []
        for i in range(ids.shape[1]):
            torch.manual_seed(derive(self.seeds[0], "step", first + i, distributed.rank()))  # for dropout
            losses.append(self.step(first + i, self.layout.batch(ids[:, i])))
        return torch.stack(losses)

    def step(self, number: int | Tensor, batch: EpisodeBatch) -> Tensor:
        """Run one step of the optimizer; return the losses (3, S) before it."""
        alone = len(self.seeds) == 1 and not self.on_gpu
        losses = self.losses(compact(batch) if alone else batch)
        for weight in self.weights.values():
            weight.grad = None
        losses.total.sum().backward()
        values = torch.stack(losses).detach()
        distributed.average_([values, *(w.grad for w in self.weights.values() if w.grad is not None)])
        if self.settings.clip:
            self._clip()
        self._set_rates(number)
        self.optimizer.step()
        return values

    def _captured_step(self, number: Tensor, ids: Tensor) -> Tensor:
        return self.step(number, self.layout.batch(ids))

    def losses(self, batch: EpisodeBatch) -> Objective:
        """The losses (S,) of a batch, each with the parameters of its run."""
        with torch.autocast("cuda", torch.bfloat16, enabled=self.settings.mixed_precision and self.on_gpu):
            scores, reconstruction = self._scores(batch)
        if self.on_gpu:
            scores = scores.float()
            reconstruction = reconstruction.float()
        return objective(scores, reconstruction, self.settings)

    def _scores(self, batch: EpisodeBatch) -> tuple[Tensor, Tensor]:
        values = {**self.weights, **self.tables}
        if len(self.seeds) == 1:
            single = {name: value.squeeze(0) for name, value in values.items()}
            scores, reconstruction = functional_call(self.module, single, tuple(tensor[0] for tensor in batch))
            return scores.unsqueeze(0), reconstruction.unsqueeze(0)
        side_by_side = vmap(lambda v, *tensors: functional_call(self.module, v, tensors), randomness="different")
        return side_by_side(values, *batch)  # type: ignore[no-any-return]

    def _clip(self) -> None:
        """Scale each run's gradient to at most the norm `clip`, in new tensors because weights may share a gradient."""
        gradients = {weight: weight.grad for weight in self.weights.values() if weight.grad is not None}
        squares = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients.values()]).sum(0)  # (S,)
        scale = (self.settings.clip / (squares.sqrt() + 1e-6)).clamp_max(1)
        for weight, gradient in gradients.items():
            weight.grad = gradient * scale.view(-1, *[1] * (gradient.dim() - 1))

    def _rate(self, rate: float) -> float | Tensor:
        return torch.tensor(rate, device=self.device) if self.on_gpu else rate

    def _set_rates(self, number: int | Tensor) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(number, int):
                rate = group["rate"] * self.settings.decay_at(number)
                group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate
            else:
                times = (number // self.settings.decay_every).clamp_max(self.settings.decays)
                group["lr"].copy_((group["rate"] * self.settings.decay ** times.double()).squeeze())

    def scorer(self, run: int) -> FewShotScorer:
        """The scorer of a run with its current parameters."""
        with torch.no_grad():
            for name, parameter in self.module.model.named_parameters():
                parameter.copy_(self.weights[f"model.{name}"][run])
        vectors = {name: getattr(self.module.around, name) for name in TUNED}
        if self.settings.embedding_rate:
            vectors = {name: self.weights[f"around.{name}"].detach()[run] for name in TUNED}
        sampled = {name: self.tables[f"around.neighbours.{name}"][run] for name in SAMPLED}
        neighbours = Neighbours(self.settings.neighbours, self.module.around.neighbours.offsets, **sampled)
        around = Neighbourhood(**vectors, neighbours=neighbours)
        return FewShotScorer(self.settings.model, self.module.model, around, self.references_seen)

    def state(self, run: int) -> RunState:
        """The parameters and the optimizer's moments of a run."""
        weights = {_saved_name(name): weight.detach()[run] for name, weight in self.weights.items()}
        moments = {}
        for name, weight in self.weights.items():
            for entry, value in self.optimizer.state[weight].items():
                moments[f"{_saved_name(name)}.{entry}"] = value if value.dim() == 0 else value[run]
        return RunState(weights, moments)

    def _copy(self, run: int) -> RunState:
        """The state of a run, which further steps do not change."""
        weights, moments = self.state(run)
        return RunState(
            {name: tensor.clone() for name, tensor in weights.items()},
            {name: tensor.clone() for name, tensor in moments.items()},
        )

    def load_state(self, states: Sequence[RunState]) -> None:
        """Continue from these states, in place because a captured CUDA graph keeps using the tensors."""
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(torch.stack([state.weights[_saved_name(name)] for state in states]))
        for name, weight in self.weights.items():
            current = self.optimizer.state[weight]
            for entry in MOMENTS:
                saved_name = f"{_saved_name(name)}.{entry}"
                if saved_name in states[0].optimizer:
                    values = [state.optimizer[saved_name].to(self.device) for state in states]
                    value = values[0].clone() if entry == "step" else torch.stack(values)
                    current[entry] = current[entry].copy_(value) if entry in current else value
                elif entry in current:
                    current[entry].zero_()


def sampler(benchmark: Benchmark, settings: FewShotSettings, seeds: Sequence[int]) -> EpisodeSampler:
    """The sampler of episodes of train relations with a large enough range, for runs with these seeds."""
    tasks = [task for task in benchmark.split("train") if len(task.range) >= settings.smallest_range]
    if not tasks and benchmark.split("train"):
        raise FewlinkError(f"no train relation has a range of {settings.smallest_range}: lower smallest_range")
    if settings.negatives_from != "full":
        tasks = [
            dataclasses.replace(task, range=competing_tails(settings.negatives_from, task, benchmark.graph))
            for task in tasks
        ]
    return EpisodeSampler(
        tasks,
        len(benchmark.graph.entities),
        shots=settings.shots,
        batch=settings.batch,
        negatives=settings.negatives,
        shared=settings.shared_negatives,
        seeds=seeds,
        device=settings.device,
    )


def _models(
    benchmark: Benchmark, vectors: Embeddings, settings: FewShotSettings, seeds: Sequence[int]
) -> list[ModelWithInputs]:
    """The model of each seed with its inputs; all read the same vectors."""
    inputs = inputs_of(benchmark.graph, vectors, settings.replace(seed=seeds[0]))
    models = []
    for seed in seeds:
        if seed != seeds[0]:
            table = neighbour_table(benchmark.graph, settings.neighbours, settings.neighbour_rule, seed)
            inputs = Neighbourhood(inputs.entities, inputs.relations, Neighbours.of(table))
        model = initial_model(vectors.dim, settings.replace(seed=seed))
        models.append(ModelWithInputs(model, inputs).to(settings.device))
    return models


def _stacked(models: Sequence[ModelWithInputs], name: str) -> Tensor:
    return torch.stack([attrgetter(name)(model).detach() for model in models])


def _shared(models: Sequence[ModelWithInputs], name: str) -> Tensor:
    """Stacked inputs that do not change; those of a single run are not copied."""
    return attrgetter(name)(models[0]).unsqueeze(0) if len(models) == 1 else _stacked(models, name)


def _saved_name(name: str) -> str:
    """The name of a parameter in a checkpoint: that in the model, or `around.…` for tuned vectors."""
    return name.removeprefix("model.")
