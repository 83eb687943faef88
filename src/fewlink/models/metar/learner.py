"""The learner of MetaR and GANA, which trains on contrasted episodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fewlink.core import distributed
from fewlink.core.seeds import derive
from fewlink.models.contract import Scorer
from fewlink.models.family import RunState, StepResult
from fewlink.models.metar.settings import MetaLearnerSettings
from fewlink.models.weights import moments_of, restore_moments
from fewlink.tasks.episodes import ContrastedEpisodes, ContrastedSampler

ENTITIES = "entities"  # the weight that holds the entities' vectors
STEPS_AT_ONCE = {"cpu": 16, "cuda": 128}  # steps whose episodes are sampled together


class MetaLearner:
    """Trains one run of a model whose forward pass returns the loss of contrasted episodes.

    The entities' vectors have the learning rate `embedding_rate`, and all other weights `learning_rate`. A step never
    waits for the device. `make_scorer` returns a scorer with the current weights.
    """

    def __init__(
        self,
        model: nn.Module,
        sampler: ContrastedSampler,
        settings: MetaLearnerSettings,
        make_scorer: Callable[[], Scorer],
    ) -> None:
        self.model = model
        self.sampler = sampler
        self.settings = settings
        self.make_scorer = make_scorer
        on_gpu = distributed.use_device(settings.device) != "cpu"
        rates: dict[float, list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            rate = settings.embedding_rate if name == ENTITIES else settings.learning_rate
            rates.setdefault(rate, []).append(parameter)
        groups = [{"params": parameters, "lr": rate} for rate, parameters in rates.items()]
        self.optimizer = torch.optim.Adam(groups, fused=True, capturable=on_gpu)
        self.share = settings.relations // distributed.count()
        self.steps_at_once = STEPS_AT_ONCE["cuda" if on_gpu else "cpu"]

    @property
    def weights(self) -> Mapping[str, Tensor]:
        return {name: value.unsqueeze(0) for name, value in self.model.state_dict().items()}

    def episodes(self, first: int, count: int) -> list[ContrastedEpisodes]:
        """This process's share of the episodes of each of `count` steps, beginning with step `first`."""
        steps = torch.arange(first, first + count).unsqueeze(1) * self.settings.relations
        numbers = steps + distributed.rank() * self.share + torch.arange(self.share)
        drawn = self.sampler.contrasted(numbers.flatten())
        return [ContrastedEpisodes(*parts) for parts in zip(*(part.split(self.share) for part in drawn), strict=True)]

    def run_steps(self, first: int, count: int) -> StepResult:
        """Run `count` steps, beginning with step `first`."""
        self.model.train()
        began = time.perf_counter()
        episodes = self.episodes(first, count)
        sampling_seconds = time.perf_counter() - began
        losses = []
        for step, share in enumerate(episodes, first):
            torch.manual_seed(derive(self.settings.seed, "step", step, distributed.rank()))  # for dropout
            losses.append(self.step(step, share))
        return StepResult({"loss": torch.stack(losses).unsqueeze(-1)}, sampling_seconds)

    def step(self, number: int, episodes: ContrastedEpisodes) -> Tensor:
        """Run one step of the optimizer; return the loss before it."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(*episodes)
        loss.backward()
        value: Tensor = loss.detach().clone()
        distributed.average_([value, *(p.grad for p in self.model.parameters() if p.grad is not None)])
        self.optimizer.step()
        return value

    def scorer(self, run: int) -> Scorer:
        return self.make_scorer()

    def state(self, run: int) -> RunState:
        """The weights and the optimizer's moments."""
        weights = {name: value.detach() for name, value in self.model.state_dict().items()}
        return RunState(weights, moments_of(self.model, self.optimizer))

    def load_state(self, states: Sequence[RunState]) -> None:
        """Continue from a state."""
        ((weights, moments),) = states
        self.model.load_state_dict(weights)
        restore_moments(self.model, self.optimizer, moments)
