"""Training TRAIL: episodes of one or several graphs, the loss, the optimizer, and the average of the weights."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fewlink.core import distributed
from fewlink.core.seeds import derive
from fewlink.graph import Graph
from fewlink.models.contract import Scorer
from fewlink.models.family import RunState, StepResult
from fewlink.models.trail.episodes import Batch, Episodes, EpisodeSource
from fewlink.models.trail.network import Shape, TrailNetwork
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.weights import moments_of, restore_moments

RAW = "raw."  # weights before averaging, among the moments of a checkpoint


class TrailLearner:
    """One run. `graphs[0]` is the graph to answer on; episodes come from all graphs.

    `start`: weights to begin with. `shares`: how often a step reads each graph; by default in proportion to the root of
    the number of its relations.
    """

    workers = 6  # processes that draw episodes for a GPU

    def __init__(
        self,
        graphs: Sequence[Graph],
        settings: TrailSettings,
        start: Mapping[str, Tensor] | None = None,
        shares: Sequence[float] | None = None,
    ) -> None:
        self.settings = settings
        self.device = torch.device(distributed.use_device(settings.device))
        self.steps_at_once = 50 if self.device.type == "cuda" else 1
        sources = [self.source(graph) for graph in graphs]
        self.graphs = [source.graph.to(self.device) for source in sources]
        shares = shares or [len(source.pairs) ** 0.5 for source in sources]
        self.episodes = Episodes(sources, shares, settings, distributed.rank(), distributed.count())
        torch.manual_seed(derive(settings.seed, "weights"))
        self.network = self.new_network().to(self.device)
        if start is not None:
            self.network.load_state_dict(start)
        self.averaged = {name: value.clone() for name, value in self.network.state_dict().items()}
        on_gpu = self.device.type == "cuda"
        self.rate = torch.tensor(settings.learning_rate, device=self.device)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=self.rate if on_gpu else settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=on_gpu,
            capturable=on_gpu,
        )
        self._recorded: dict[tuple[int, int], RecordedStep] = {}
        self.pool = torch.cuda.graph_pool_handle() if on_gpu else None  # memory that all recorded steps share
        self._stream: Iterator[Batch] | None = None
        self._next = -1

    def source(self, graph: Graph) -> EpisodeSource:
        """The episodes of a graph."""
        return EpisodeSource(graph, ReadGraph.of(graph, names=self.settings.names), self.settings)

    def new_network(self) -> nn.Module:
        """A network with random weights."""
        return network_of(self.settings)

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32

    @property
    def weights(self) -> Mapping[str, Tensor]:
        return {name: value[None] for name, value in self.averaged.items()}

    def run_steps(self, first: int, count: int) -> StepResult:
        """Run `count` steps, beginning with step `first`."""
        self.network.train()
        losses = []
        sampling_seconds = 0.0
        for step in range(first, first + count):
            began = time.perf_counter()
            batch = self._batch(step).to(self.device)
            sampling_seconds += time.perf_counter() - began
            losses.append(self.step(step, batch))
        return StepResult({"loss": torch.stack(losses).unsqueeze(-1)}, sampling_seconds)

    def step(self, number: int, batch: Batch) -> Tensor:
        """Move the weights along a batch; the loss before the move."""
        rate = self.settings.learning_rate * self.settings.decay_at(number)
        if self.device.type == "cuda" and distributed.count() == 1:
            self.rate.fill_(rate)
            loss = self._recorded_step(batch)
        else:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            loss = self.move(batch)
        keep = min(self.settings.average, (number + 1) / (number + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.averaged.values()), list(self.network.state_dict().values()), 1 - keep)
        return loss

    def move(self, batch: Batch) -> Tensor:
        """Take a step of the optimizer at the rate that is set; the loss before the step, a scalar."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        value = loss.detach().clone()
        if distributed.count() > 1:
            distributed.average_([value, *(p.grad for p in self.network.parameters() if p.grad is not None)])
        nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip)
        self.optimizer.step()
        return value

    def loss(self, batch: Batch) -> Tensor:
        """−log of the softmax of each query's answer among its candidates, the mean over queries."""
        scores = self.network(self.graphs[batch.graph], batch.tasks, self.dtype)  # (L, Q, C)
        scores = scores.masked_fill(batch.excluded, -torch.inf)
        return cross_entropy(scores.flatten(0, 1), batch.answers.flatten())

    def scorer(self, run: int) -> Scorer:
        network = network_of(self.settings).to(self.device)
        network.load_state_dict(self.averaged)
        return TrailScorer(self.settings.model, network, self.graphs[0])

    def state(self, run: int) -> RunState:
        """The averaged weights; the optimizer's moments and the weights before averaging."""
        raw = {RAW + name: value.clone() for name, value in self.network.state_dict().items()}
        return RunState(dict(self.averaged), {**moments_of(self.network, self.optimizer), **raw})

    def load_state(self, states: Sequence[RunState]) -> None:
        """Continue from a state."""
        ((weights, moments),) = states
        self.averaged = {name: weights[name].to(self.device) for name in self.averaged}
        raw = {name[len(RAW) :]: value for name, value in moments.items() if name.startswith(RAW)}
        self.network.load_state_dict(raw)
        restore_moments(self.network, self.optimizer, moments)
        self._recorded.clear()

    def _batch(self, step: int) -> Batch:
        """The batch of a step; for a GPU drawn ahead by other processes."""
        if self.device.type == "cpu":
            return self.episodes[step]
        if self._stream is None or step != self._next:
            self._stream = iter(
                torch.utils.data.DataLoader(
                    self.episodes,
                    sampler=range(step, self.settings.steps),
                    batch_size=None,
                    num_workers=self.workers,
                    prefetch_factor=8,
                    pin_memory=True,
                    multiprocessing_context="fork",
                )
            )
        self._next = step + 1
        return next(self._stream)

    def _recorded_step(self, batch: Batch) -> Tensor:
        """`move` as a CUDA graph, recorded once for each graph and number of references."""
        key = batch.graph, batch.tasks.references.pairs.shape[1]
        if key not in self._recorded:
            self._recorded[key] = RecordedStep(self, batch)
            return self._recorded[key].first
        return self._recorded[key](batch)


class RecordedStep:
    """A training step on batches of one shape, recorded as a CUDA graph. The first batch is trained on as it is."""

    def __init__(self, learner: TrailLearner, batch: Batch) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.first = learner.move(batch)  # compiles the kernels
        torch.cuda.current_stream().wait_stream(side)
        self.batch = batch.clone()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=learner.pool, capture_error_mode="thread_local"):
            self.loss = learner.move(self.batch)

    def __call__(self, batch: Batch) -> Tensor:
        for own, new in zip(self.batch.tensors, batch.tensors, strict=True):
            own.copy_(new, non_blocking=True)
        self.graph.replay()
        return self.loss.clone()


def network_of(settings: TrailSettings) -> TrailNetwork:
    """A network of the shape in the settings, with random weights."""
    return TrailNetwork(Shape(settings.width, settings.layers, settings.relation_layers))
