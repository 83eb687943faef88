"""Meta-training of several runs side by side: stacked parameters, the joint objective, steps of the optimizer."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fewlink.core import distributed
from fewlink.core.errors import FewlinkError
from fewlink.core.seeds import derive
from fewlink.models.embeddings.table import Embeddings
from fewlink.models.family import RunState, StepResult
from fewlink.models.fsrl.adaptation import AdaptingScorer, adapted, adapts, held_out
from fewlink.models.fsrl.assembly import TUNED, initial_model, inputs_of
from fewlink.models.fsrl.captured import CapturedStep
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.neighbourhood import Neighbourhood, Neighbours
from fewlink.models.fsrl.objective import Objective, objective
from fewlink.models.fsrl.scorer import FewShotScorer
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.one_table import references_seen
from fewlink.tasks.benchmark import Benchmark
from fewlink.tasks.candidates import competing_tails
from fewlink.tasks.episodes import EpisodeBatch, Episodes, EpisodeSampler, Layout, compact

OWN_SETTINGS = ("seed", "negatives_from", "neighbour_rule", "standardise", "evaluate_candidates")
TABLES = ("relations", "entities")  # of the neighbours, which each run chooses for itself
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
STEPS_AT_ONCE = {"cpu": 16, "cuda": 256}  # steps whose episodes are sampled together


class LearnerRun(NamedTuple):
    """The vectors that a run reads, and its settings with its seed.

    Runs that train side by side may differ in their vectors and in `OWN_SETTINGS`.
    """

    vectors: Embeddings
    settings: FewShotSettings

    @property
    def shared(self) -> str:
        """What runs must have in common to train side by side, as text."""
        return shared_settings(self.settings, self.vectors.dim)


def shared_settings(settings: FewShotSettings, dim: int) -> str:
    """What runs with vectors of `dim` numbers must have in common to train side by side, as text."""
    shared = {name: value for name, value in settings.as_dict().items() if name not in OWN_SETTINGS}
    return json.dumps([dim, shared], sort_keys=True)


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
    """Trains S runs of one model that differ in their seed, their vectors or other `OWN_SETTINGS`.

    `weights` has a tensor (S, …) for each parameter, by its name in `ModelWithInputs`. Several runs train together by
    `vmap`, with one product for all of them. On a GPU, a step is captured once as a CUDA graph and replayed.
    """

    def __init__(self, benchmark: Benchmark, runs: Sequence[LearnerRun]) -> None:
        self.runs = runs
        settings = runs[0].settings
        if any(run.shared != runs[0].shared for run in runs):
            raise FewlinkError("runs with other settings cannot train side by side: train them one after another")
        self.settings = settings
        self.device = settings.device
        self.seeds: Sequence[int] = [run.settings.seed for run in runs]
        self.on_gpu = self.device != "cpu"
        self.sampler = JoinedSampler(benchmark, [run.settings for run in runs])
        models = [
            ModelWithInputs(initial_model(run.vectors.dim, run.settings), inputs)
            for run, inputs in zip(runs, _inputs(benchmark, runs), strict=True)
        ]
        models = [model.to(self.device) for model in models]
        self.module = models[0].train()
        rates = dict.fromkeys((name for name, _ in self.module.named_parameters()), settings.learning_rate)
        if settings.embedding_rate:
            rates |= dict.fromkeys((f"around.{name}" for name in TUNED), settings.embedding_rate)
        self.weights = {name: nn.Parameter(_stacked(models, name)) for name in rates}
        tables = [f"around.neighbours.{table}" for table in TABLES]
        if not settings.embedding_rate and len({(id(run.vectors), run.settings.standardise) for run in runs}) > 1:
            tables += [f"around.{name}" for name in TUNED]
        self.tables = {name: _shared(models, name) for name in tables}
        groups = [
            {"params": [self.weights[n] for n in rates if rates[n] == rate], "rate": rate, "lr": self._rate(rate)}
            for rate in dict.fromkeys(rates.values())
        ]
        self.optimizer = torch.optim.Adam(groups, fused=True, capturable=self.on_gpu)
        relations = settings.relations // distributed.count()
        self.graph = benchmark.graph
        self.layout = Layout(
            len(runs),
            relations,
            settings.shots,
            settings.batch,
            settings.negatives,
            self.device,
            reference_negatives(settings),
        )
        self.held_out = held_out(settings.shots, reference_negatives(settings), self.device)
        max_steps = STEPS_AT_ONCE["cuda" if self.on_gpu else "cpu"]
        self.steps_at_once = max(1, min(max_steps, self.sampler.at_once // self.layout.relations))
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
                self._captured = CapturedStep(self, ids)
            return self._captured.replay(first, ids)
        losses = []
        for i in range(ids.shape[1]):
            torch.manual_seed(derive(self.seeds[0], "step", first + i, distributed.rank()))  # for dropout
            losses.append(self.step(first + i, self.layout.batch(ids[:, i])))
        return torch.stack(losses)

    def step(self, number: int | Tensor, batch: EpisodeBatch) -> Tensor:
        """Run one step of the optimizer; return the losses (3, S) before it."""
        alone = len(self.seeds) == 1 and not self.on_gpu and not adapts(self.settings.model)
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

    def losses(self, batch: EpisodeBatch) -> Objective:
        """The losses (S,) of a batch, each with the parameters of its run."""
        settings = self.settings
        if settings.mixed_precision and self.on_gpu:
            with torch.autocast("cuda", torch.bfloat16):
                scores, reconstruction = self._scores(batch)
            scores = scores.float()
            reconstruction = reconstruction.float()
        else:
            scores, reconstruction = self._scores(batch)
        return objective(
            scores,
            reconstruction,
            settings.batch,
            loss=settings.loss,
            margin=settings.margin,
            weight=settings.reconstruction,
            temperature=settings.temperature,
        )

    def _scores(self, batch: EpisodeBatch) -> tuple[Tensor, Tensor]:
        if reference_negatives(self.settings):
            return self._adapted_scores(batch)
        values = {**self.weights, **self.tables}
        if len(self.seeds) == 1:
            single = {name: value.squeeze(0) for name, value in values.items()}
            scores, reconstruction = functional_call(self.module, single, tuple(tensor[0] for tensor in batch))
            return scores.unsqueeze(0), reconstruction.unsqueeze(0)
        side_by_side = vmap(lambda v, *tensors: functional_call(self.module, v, tensors), randomness="different")
        return side_by_side(values, *batch)  # type: ignore[no-any-return]

    def _adapted_scores(self, batch: EpisodeBatch) -> tuple[Tensor, Tensor]:
        """Scores (S, R, Q) and reconstruction losses (S, R), each episode with parameters adapted to its references."""
        relations = self.layout.relations
        settings = self.settings
        ids = batch.ids.unflatten(1, (relations, -1))  # (S, R, u)
        begins = torch.arange(relations, device=ids.device).view(-1, 1, 1) * ids.shape[-1]
        references, pairs = (positions - begins for positions in (batch.references, batch.pairs))  # within the episode
        held_ids = ids[..., : settings.shots * (2 + settings.adaptation_negatives)]
        weights = {
            name: weight.unsqueeze(1).expand(-1, relations, *weight.shape[1:]) for name, weight in self.weights.items()
        }

        def call(weights: dict[str, Tensor], tables: dict[str, Tensor], *tensors: Tensor) -> tuple[Tensor, Tensor]:
            return functional_call(self.module, {**weights, **tables}, tensors)  # type: ignore[no-any-return]

        def by_episode(weights: Mapping[str, Tensor], *tensors: Tensor, shared: bool) -> tuple[Tensor, Tensor]:
            """Outputs (S, R, …) for parameters and tensors (S, R, …), or tensors that all episodes share."""
            episodes = vmap(call, (0, None, 0, *([None] * 2 if shared else [0] * 2)), randomness="different")
            runs = vmap(episodes, (0, 0, 0, *([None] * 2 if shared else [0] * 2)), randomness="different")
            return runs(dict(weights), self.tables, *tensors)  # type: ignore[no-any-return]

        def scores_of(values: Mapping[str, Tensor]) -> Tensor:
            return by_episode(values, held_ids, *self.held_out, shared=True)[0]

        values = adapted(weights, scores_of, settings, "model.")
        scores, reconstruction = by_episode(values, ids, references.unsqueeze(2), pairs.unsqueeze(2), shared=False)
        return scores.squeeze(2), reconstruction.squeeze(2)

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

    def scorer(self, run: int) -> FewShotScorer | AdaptingScorer:
        """The scorer of a run with its current parameters."""
        with torch.no_grad():
            for name, parameter in self.module.model.named_parameters():
                parameter.copy_(self.weights[f"model.{name}"][run])
        trained = {name: weight.detach()[run] for name, weight in self.weights.items()}
        own = {**{name: table[run] for name, table in self.tables.items()}, **trained}
        vectors = {name: own.get(f"around.{name}", getattr(self.module.around, name)) for name in TUNED}
        sampled = {name: self.tables[f"around.neighbours.{name}"][run] for name in TABLES}
        neighbours = Neighbours(self.settings.neighbours, self.module.around.neighbours.offsets, **sampled)
        around = Neighbourhood(**vectors, neighbours=neighbours)
        seen = references_seen(self.runs[run].vectors)
        scorer = FewShotScorer(self.settings.model, self.module.model, around, seen)
        if not adapts(self.settings.model):
            return scorer
        return AdaptingScorer(scorer, self.graph, self.runs[run].settings)

    def state(self, run: int) -> RunState:
        """The parameters and the optimizer's moments of a run."""
        weights = {_saved_name(name): weight.detach()[run] for name, weight in self.weights.items()}
        moments = {}
        for name, weight in self.weights.items():
            for entry, value in self.optimizer.state[weight].items():
                moments[f"{_saved_name(name)}.{entry}"] = value if value.dim() == 0 else value[run]
        return RunState(weights, moments)

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


class JoinedSampler:
    """Samples the episodes of runs whose false tails are drawn from different candidates, in the order of the runs."""

    def __init__(self, benchmark: Benchmark, settings: Sequence[FewShotSettings]) -> None:
        sources = list(dict.fromkeys(each.negatives_from for each in settings))
        runs = {source: [i for i, each in enumerate(settings) if each.negatives_from == source] for source in sources}
        self._samplers = [
            sampler(benchmark, settings[own[0]], [settings[i].seed for i in own]) for own in runs.values()
        ]
        places = torch.tensor([i for own in runs.values() for i in own])
        self._order = places.argsort().to(settings[0].device)
        self.at_once = max(1, min(each.at_once for each in self._samplers) // len(sources))

    def __call__(self, numbers: Tensor) -> Episodes:
        """The episodes of these numbers (n,), for every run."""
        parts = [each(numbers) for each in self._samplers]
        if len(parts) == 1:
            return parts[0]
        return Episodes(*(torch.cat(column).index_select(0, self._order) for column in zip(*parts, strict=True)))


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
        reference_negatives=reference_negatives(settings),
        seeds=seeds,
        device=settings.device,
    )


def reference_negatives(settings: FewShotSettings) -> int:
    """The number of false tails of each reference in an episode: 0 unless the model adapts to several references."""
    return settings.adaptation_negatives if adapts(settings.model) and settings.shots > 1 else 0


def _inputs(benchmark: Benchmark, runs: Sequence[LearnerRun]) -> list[Neighbourhood]:
    """The inputs of each run; runs with the same vectors or the same neighbours share them."""
    vectors: dict[tuple[int, bool], Neighbourhood] = {}
    neighbours: dict[tuple[str, int], Neighbours] = {}
    inputs = []
    for run in runs:
        settings = run.settings
        table = (id(run.vectors), settings.standardise)
        chosen = (settings.neighbour_rule, settings.seed)
        if table not in vectors or chosen not in neighbours:
            made = inputs_of(benchmark.graph, run.vectors, settings)
            vectors.setdefault(table, made)
            neighbours.setdefault(chosen, made.neighbours)
        own = vectors[table]
        inputs.append(Neighbourhood(own.entities, own.relations, neighbours[chosen]))
    return inputs


def _stacked(models: Sequence[ModelWithInputs], name: str) -> Tensor:
    return torch.stack([attrgetter(name)(model).detach() for model in models])


def _shared(models: Sequence[ModelWithInputs], name: str) -> Tensor:
    """Stacked inputs that do not change; those of a single run are not copied."""
    return attrgetter(name)(models[0]).unsqueeze(0) if len(models) == 1 else _stacked(models, name)


def _saved_name(name: str) -> str:
    """The name of a parameter in a checkpoint: that in the model, or `around.…` for tuned vectors."""
    return name.removeprefix("model.")
