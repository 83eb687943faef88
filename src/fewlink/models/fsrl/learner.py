"""Runs that train side by side: the joint objective (Eqs. 9 and 10), stacked parameters, the optimizer's step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fewlink.core import distributed
from fewlink.core.errors import FewlinkError, choose
from fewlink.core.seeds import derive
from fewlink.data.benchmark import Benchmark
from fewlink.data.episodes import EpisodeBatch, EpisodeSampler, Layout, compact
from fewlink.embeddings.table import Embeddings
from fewlink.graph import Graph
from fewlink.models.family import RunState, StepResult
from fewlink.models.fsrl.model import FewShotModel, FewShotScorer, build
from fewlink.models.fsrl.neighbourhood import Neighbourhood, Neighbours
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.weights import check_weights


class Objective(NamedTuple):
    """Each (runs,): `total` is what is minimised, `rank` and `reconstruction` what it is made of."""

    total: Tensor
    rank: Tensor
    reconstruction: Tensor


def hinge(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Eq. 9, [ξ + s⁻ − s⁺]₊, its sums taken as means so that γ means the same for any batch.

    Shapes: positive (runs, …, B), negative (runs, …, B, N); to (runs,).
    """
    return (margin + negative - positive.unsqueeze(-1)).clamp_min(0).flatten(1).mean(1)


def softmax(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """−log of the softmax of the true tail among itself and the negatives; shapes as in `hinge`, no margin."""
    every = torch.cat([positive.unsqueeze(-1), negative], -1)  # (runs, …, B, 1 + N)
    return (every.logsumexp(-1) - positive).flatten(1).mean(1)


LOSSES = {"hinge": hinge, "softmax": softmax}


def objective(
    scores: Tensor,
    reconstruction: Tensor,
    queries: int,
    *,
    loss: str,
    margin: float,
    weight: float,
    temperature: float = 1.0,
) -> Objective:
    """L_joint = L_rank + γ L_re (Eq. 10), γ being `weight`, of the scores divided by the temperature.

    Shapes: scores (runs, episodes, B + B·N), first those of the B queries, then of the N negatives of each query in
    turn; reconstruction (runs, episodes).
    """
    scores = scores / temperature
    positive = scores[..., :queries]
    negative = scores[..., queries:].unflatten(-1, (queries, -1))  # (runs, episodes, B, N)
    rank = choose("loss", loss, LOSSES)(positive, negative, margin)
    restored = reconstruction.mean(-1)
    return Objective(rank + weight * restored, rank, restored)


TABLES = ("relations", "entities")  # of the neighbours, drawn by the seed, so each run has its own
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
WARM_UP = 3
AT_ONCE = {"cpu": 16, "cuda": 256}  # steps whose episodes are drawn together
TUNED = ("entities", "relations")  # the pretrained vectors: `around.NAME` among the weights of runs that tune them


class ModelWithInputs(nn.Module):
    """A model with its inputs, so that parameters of both can be replaced by name."""

    def __init__(self, model: FewShotModel, around: Neighbourhood) -> None:
        super().__init__()
        self.model, self.around = model, around

    def forward(self, ids: Tensor, references: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        scores, reconstruction = self.model(ids, references, pairs, self.around)
        return scores, reconstruction


class FewShotLearner:
    """S runs of one model that differ in their seed.

    `weights` maps each parameter's name in `ModelWithInputs` to a tensor (S, …); of several runs, one product serves
    all. On a GPU a step is recorded once as a CUDA graph and replayed.
    """

    def __init__(
        self, benchmark: Benchmark, embeddings: Embeddings, settings: FewShotSettings, seeds: Sequence[int]
    ) -> None:
        self.settings, self.seeds, self.device = settings, seeds, settings.device
        self.on_gpu = self.device != "cpu"
        self.sampler = sampler(benchmark, settings, seeds)
        own = [settings.replace(seed=seed) for seed in seeds]
        models = [ModelWithInputs(*assemble(benchmark.graph, embeddings, each, self.device)) for each in own]
        self.module = models[0].train()
        rates = dict.fromkeys((name for name, _ in self.module.named_parameters()), settings.learning_rate)
        if settings.embedding_rate:
            rates |= dict.fromkeys((f"around.{name}" for name in TUNED), settings.embedding_rate)
        self.weights = {name: nn.Parameter(_stacked(models, name)) for name in rates}
        self.tables = {name: _beside(models, name) for name in (f"around.neighbours.{table}" for table in TABLES)}
        groups = [
            {"params": [self.weights[n] for n in rates if rates[n] == rate], "rate": rate, "lr": self._rate(rate)}
            for rate in dict.fromkeys(rates.values())
        ]
        self.optimizer = torch.optim.Adam(groups, fused=True, capturable=self.on_gpu)
        sizes = (settings.relations // distributed.count(), settings.shots, settings.batch, settings.negatives)
        self.layout = Layout(len(seeds), *sizes, self.device)
        most = AT_ONCE["cuda" if self.on_gpu else "cpu"]
        self.steps_at_once = max(1, min(most, self.sampler.at_once // self.layout.relations))
        self._captured: CapturedStep | None = None

    def ids(self, first: int, count: int) -> Tensor:
        """The entities (S, count, U) of steps: of a step's relations, those that are this process's share."""
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
        """Take a step for each of the entities (S, steps, U), the first being step `first`; losses (steps, 3, S)."""
        self.module.train()
        if self.on_gpu and distributed.count() == 1:
            if self._captured is None or self._captured.most < ids.shape[1]:
                self._captured = CapturedStep(self, ids)
            return self._captured.replay(first, ids)
        losses = []
        for i in range(ids.shape[1]):
            torch.manual_seed(derive(self.seeds[0], "step", first + i, distributed.rank()))  # for dropout
            losses.append(self.step(first + i, self.layout.batch(ids[:, i])))
        return torch.stack(losses)

    def step(self, number: int | Tensor, batch: EpisodeBatch) -> Tensor:
        """One step of the optimizer; the losses (3, S) of the batch before it."""
        losses = self.losses(compact(batch) if len(self.seeds) == 1 and not self.on_gpu else batch)
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

    def losses(self, batch: EpisodeBatch) -> Objective:
        """The losses (S,) of a batch, each run's by its own parameters."""
        settings = self.settings
        half = torch.autocast("cuda", torch.bfloat16) if settings.mixed_precision and self.on_gpu else None
        with half or contextlib.nullcontext():
            scores, reconstruction = self._scores(batch)
        return objective(
            scores.float() if half else scores,
            reconstruction.float() if half else reconstruction,
            settings.batch,
            loss=settings.loss,
            margin=settings.margin,
            weight=settings.reconstruction,
            temperature=settings.temperature,
        )

    def _scores(self, batch: EpisodeBatch) -> tuple[Tensor, Tensor]:
        values = {**self.weights, **self.tables}
        if len(self.seeds) == 1:
            alone = {name: value.squeeze(0) for name, value in values.items()}
            scores, reconstruction = functional_call(self.module, alone, tuple(part[0] for part in batch))
            return scores.unsqueeze(0), reconstruction.unsqueeze(0)
        side_by_side = vmap(lambda v, *parts: functional_call(self.module, v, parts), randomness="different")
        return side_by_side(values, *batch)  # type: ignore[no-any-return]

    def _clip(self) -> None:
        """Scale each run's gradient to the norm `clip` if it is longer; in new tensors, since two may share one."""
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
        """The scorer of one run, with its parameters as they are now."""
        with torch.no_grad():
            for name, parameter in self.module.model.named_parameters():
                parameter.copy_(self.weights[f"model.{name}"][run])
        trained = {name: weight.detach()[run] for name, weight in self.weights.items()}
        vectors = {name: trained.get(f"around.{name}", getattr(self.module.around, name)) for name in TUNED}
        drawn = {name: self.tables[f"around.neighbours.{name}"][run] for name in TABLES}
        neighbours = Neighbours(self.settings.neighbours, self.module.around.neighbours.offsets, **drawn)
        around = Neighbourhood(**vectors, neighbours=neighbours)
        return FewShotScorer(self.settings.model, self.module.model, around)

    def state(self, run: int) -> RunState:
        """The parameters and the optimizer's moments of one run."""
        weights = {_saved(name): weight.detach()[run] for name, weight in self.weights.items()}
        moments = {}
        for name, weight in self.weights.items():
            for part, value in self.optimizer.state[weight].items():
                moments[f"{_saved(name)}.{part}"] = value if value.dim() == 0 else value[run]
        return RunState(weights, moments)

    def load_state(self, states: Sequence[RunState]) -> None:
        """Continue from the states of all runs, in place: a captured CUDA graph goes on using the tensors."""
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(torch.stack([weights[_saved(name)] for weights, _ in states]))
        for name, weight in self.weights.items():
            kept = self.optimizer.state[weight]
            for part in MOMENTS:
                if (label := f"{_saved(name)}.{part}") in states[0][1]:
                    values = [moments[label].to(self.device) for _, moments in states]
                    value = values[0].clone() if part == "step" else torch.stack(values)
                    kept[part] = kept[part].copy_(value) if part in kept else value
                elif part in kept:
                    kept[part].zero_()


class CapturedStep:
    """A step of a learner as a CUDA graph; its entities and its number are read from the device."""

    def __init__(self, learner: FewShotLearner, ids: Tensor) -> None:
        """Capture a step for blocks of up to ids.shape[1] steps; the learner is left unchanged."""
        self.learner, device = learner, ids.device
        self.ids, self.most = ids.clone(), ids.shape[1]
        self.at, self.number = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self.losses = torch.zeros(self.most, 3, len(learner.seeds), device=device)
        self.graph = torch.cuda.CUDAGraph()
        before = [_copied(learner.state(run)) for run in range(len(learner.seeds))]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                self.at.zero_()
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(self.graph, stream=aside):
            self._step()
        learner.load_state(before)

    def replay(self, first: int, ids: Tensor) -> Tensor:
        """Take a step for each of the entities (S, steps, U), from step `first` on; losses (steps, 3, S)."""
        count = ids.shape[1]
        self.ids[:, :count].copy_(ids)
        self.at.zero_()
        self.number.fill_(first)
        torch.manual_seed(derive(self.learner.seeds[0], "step", first))  # for dropout
        for _ in range(count):
            self.graph.replay()
        return self.losses[:count].clone()

    def _step(self) -> None:
        now = self.learner.layout.batch(self.ids.index_select(1, self.at).squeeze(1))
        losses = self.learner.step(self.number, now)
        self.losses.index_copy_(0, self.at, losses.unsqueeze(0))
        self.at += 1
        self.number += 1


def assemble(
    graph: Graph, embeddings: Embeddings, settings: FewShotSettings, device: str
) -> tuple[FewShotModel, Neighbourhood]:
    """A model with its initial parameters, a pure function of the seed, and its inputs."""
    around = Neighbourhood.of(
        graph,
        embeddings.single_precision() if settings.embedding_rate else embeddings,
        most=settings.neighbours,
        rule=settings.neighbour_rule,
        seed=settings.seed,
        standardise=settings.standardise,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(settings.seed, "start"))
        model = build(settings.model, embeddings.dim, steps=settings.matching_steps, dropout=settings.dropout)
    return model.to(device), around.to(device)


def load_weights(model: FewShotModel, around: Neighbourhood, weights: dict[str, Tensor], run: Path) -> None:
    """Put the weights of a checkpoint into a model, and into its vectors where they were tuned."""
    tuned = {name: weights[f"around.{name}"] for name in TUNED if f"around.{name}" in weights}
    for name, table in tuned.items():
        getattr(around, name).copy_(table)
    own = {name: weight for name, weight in weights.items() if not name.startswith("around.")}
    check_weights(model.state_dict(), own, run)
    model.load_state_dict(own)


def sampler(benchmark: Benchmark, settings: FewShotSettings, seeds: Sequence[int]) -> EpisodeSampler:
    """The episodes of the train relations that are large enough."""
    tasks = [task for task in benchmark.split("train") if len(task.range) >= settings.smallest_range]
    if not tasks and benchmark.split("train"):
        raise FewlinkError(f"no train relation has {settings.smallest_range} candidates: lower smallest_range")
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


def _stacked(models: Sequence[ModelWithInputs], name: str) -> Tensor:
    return torch.stack([attrgetter(name)(model).detach() for model in models])


def _beside(models: Sequence[ModelWithInputs], name: str) -> Tensor:
    """As `_stacked`, for inputs that do not change: a single run shares them."""
    return attrgetter(name)(models[0]).unsqueeze(0) if len(models) == 1 else _stacked(models, name)


def _copied(state: RunState) -> RunState:
    weights, optimizer = ({name: tensor.clone() for name, tensor in tensors.items()} for tensors in state)
    return RunState(weights, optimizer)


def _saved(name: str) -> str:
    """A parameter's name in a checkpoint: the model's own, and `around.…` for vectors that were tuned."""
    return name.removeprefix("model.")
