"""The contract of a model family.

A family defines everything specific to its models: names, settings, pretrained vectors, training, scoring and memory.
`fewlink.models.registry` finds the family of a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.machine import Parts
from fewlink.core.recipes import Recipe, Vectors, model_of, recipe, recipe_texts
from fewlink.core.settings import Settings
from fewlink.graph import Graph
from fewlink.models.contract import Scorer
from fewlink.models.settings import ModelSettings
from fewlink.tasks.benchmark import Benchmark

Reporter = Callable[[dict[str, Any]], None]


class PretrainedVectors(Protocol):
    """The vectors of a graph that a model reads."""

    @property
    def model(self) -> str: ...
    @property
    def dim(self) -> int: ...
    def digest(self) -> str: ...
    def save(self, folder: Path, fingerprint: str, *, graph: str = "") -> Any: ...


class NoVectors:
    """Stands for the vectors of models that read the graph alone."""

    model = "none"
    dim = 0

    def digest(self) -> str:
        return ""

    def save(self, folder: Path, fingerprint: str, *, graph: str = "") -> None:
        """Write nothing."""


SettingsT = TypeVar("SettingsT", bound=ModelSettings)


class RunState(NamedTuple):
    """The weights of a run and the state of its optimizer, each by name."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]


@dataclass(frozen=True)
class StepResult:
    """The result of some training steps.

    losses            by name, each (steps, runs); training minimises `loss`, and the others are its terms
    sampling_seconds  the time spent on sampling episodes, or on waiting for them
    """

    losses: dict[str, Tensor]
    sampling_seconds: float


class Learner(Protocol):
    """Trains runs of one model that differ in their seed.

    steps_at_once  the number of steps to run between two checks of the loss
    weights        by name, each (runs, …)
    """

    steps_at_once: int

    @property
    def weights(self) -> Mapping[str, Tensor]: ...

    def run_steps(self, first: int, count: int) -> StepResult:
        """Run `count` training steps, beginning with step `first`."""
        ...

    def scorer(self, run: int) -> Scorer:
        """A scorer with the current weights of a run."""
        ...

    def state(self, run: int) -> RunState: ...

    def load_state(self, states: Sequence[RunState]) -> None:
        """Continue from these states, one for each run."""
        ...


@dataclass(frozen=True)
class Prepared:
    """A scorer, the configuration for its result records, and the run folder it was opened from, if any."""

    scorer: Scorer
    config: dict[str, Any]
    run: Path | None = None


class Family(ABC):
    """A family of models.

    settings   the class of the models' settings; None if there is nothing to set
    seeded     whether a seed changes the scores
    any_shots  whether one trained model takes any number of references
    """

    name: ClassVar[str]
    settings: type[Settings] | None = None
    seeded: ClassVar[bool] = True
    any_shots: ClassVar[bool] = False

    @property
    @abstractmethod
    def models(self) -> Mapping[str, str]:
        """A one-line description of each model, by name."""

    def recipe(self, model: str, name: str | None = None) -> Recipe[Any]:
        """The named recipe; by default the model's own, or one with default settings if it has none."""
        if self.settings is None:
            raise FewlinkError(f"{model} has no settings: leave out the recipe")
        if name is None:
            if model not in recipe_texts():
                return Recipe(model, "", "", self.settings(model=model))
            name = model
        recipe_model = model_of(name)
        if recipe_model != model:
            raise FewlinkError(f"recipe '{name}' is for {recipe_model}, not for {model}: choose another recipe")
        return recipe(name, self.settings)


class BaselineFamily(Family):
    """Models that are prepared for one benchmark and its references, without a run folder."""

    @abstractmethod
    def prepare(
        self,
        model: str,
        benchmark: Benchmark,
        settings: Any,
        *,
        shots: int,
        draw: int = 0,
        seed: int = 0,
        on_epoch: Reporter | None = None,
    ) -> Prepared:
        """The scorer of a model, trained if necessary; `settings` has the family's class, or is None."""


class TrainedFamily(Family, Generic[SettingsT]):
    """Models that are meta-trained into run folders: a family defines its names, settings, learner and scorer.

    By default its models read the graph alone. `OneTableFamily` has the methods for pretrained vectors.

    reads_vectors      whether the models read pretrained vectors
    side_by_side       whether several seeds train together on a GPU
    any_graph          whether a trained model reads any graph
    several_graphs     whether a model also learns from the graphs in its setting `also`
    last_is_best       whether the last weights are kept, regardless of their figures on dev
    memory_advice      a setting that needs less memory
    shipped_models     models with built-in weights, for `shipped`
    checkpoint_models  models with weights that their authors publish, for `from_checkpoint`
    """

    settings: type[SettingsT]
    reads_vectors: ClassVar[bool] = False
    side_by_side: ClassVar[bool] = False
    any_graph: ClassVar[bool] = False
    several_graphs: ClassVar[bool] = False
    last_is_best: ClassVar[bool] = False
    memory_advice: ClassVar[str] = ""
    shipped_models: ClassVar[tuple[str, ...]] = ()
    checkpoint_models: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def learner(self, benchmark: Benchmark, vectors: Any, settings: SettingsT, seeds: Sequence[int]) -> Learner:
        """The learner of runs with these seeds."""

    @abstractmethod
    def scorer(
        self, benchmark: Benchmark, vectors: Any, settings: SettingsT, weights: dict[str, Tensor], *, run: Path
    ) -> Scorer:
        """The scorer of a run with these weights, on the settings' device."""

    def check(self, benchmark: Benchmark, settings: SettingsT) -> None:
        """Raise if the benchmark has nothing to learn from."""

    def training_facts(self, benchmark: Benchmark, settings: SettingsT) -> dict[str, Any]:
        """Facts besides settings, vectors and benchmark that a continued run must share."""
        return {}

    def memory(
        self, graph: Graph, vectors: Any, settings: SettingsT, *, runs: int = 1, training: bool = False
    ) -> Parts:
        """Bytes by purpose, to train `runs` runs side by side or to answer with one."""
        return {}

    def training_memory(self, benchmark: Benchmark, vectors: Any, settings: SettingsT, *, runs: int = 1) -> Parts:
        """Bytes by purpose, to train on all graphs that a run learns from."""
        return self.memory(benchmark.graph, vectors, settings, runs=runs, training=True)

    def vectors_name(self, settings: SettingsT, wanted: Vectors, benchmark: Benchmark) -> str:
        """A folder name for pretrained vectors; settings that share vectors have the same name."""
        return "none"

    def pretrain(
        self,
        benchmark: Benchmark,
        settings: SettingsT,
        wanted: Vectors,
        folder: Path,
        on_epoch: Callable[[str], Reporter] | None = None,
    ) -> None:
        """Train the vectors of a model into a folder, unless the folder has them already.

        `on_epoch` makes a reporter from the title of each table.
        """

    def open_vectors(self, folder: Path, fingerprint: str | None = None) -> Any:
        """The vectors in a folder."""
        return NoVectors()

    def check_vectors(self, benchmark: Benchmark, vectors: PretrainedVectors) -> None:
        """Raise if vectors do not fit the benchmark, or may have been trained on its dev and test answers."""
        if not isinstance(vectors, NoVectors):
            raise FewlinkError(f"{self.name} reads no vectors: leave them out")

    def fold_in(self, vectors: Any, benchmark: Benchmark, entities: int, relations: int) -> Any:
        """Vectors for an extended benchmark, which had this many entities and background relations before."""
        return vectors

    def check_fold_in(self, run: Path, weights: Mapping[str, Tensor]) -> None:
        """Raise if a run with these weights cannot score entities that were added later."""

    def shipped(self, model: str, benchmark: Benchmark, device: str) -> Prepared:
        """The scorer of one of `shipped_models` on the known graph of a benchmark."""
        raise FewlinkError(f"{model} has no built-in weights: train it")

    def from_checkpoint(self, model: str, benchmark: Benchmark, file: Path, device: str) -> Prepared:
        """The scorer of one of `checkpoint_models` with the weights in a file."""
        raise FewlinkError(f"{model} has no published weights: train it")
