"""The contract of a model family.

A family brings everything that is particular to its models: their names and settings, how their vectors are pretrained
and opened, how they are trained, how they score and how much memory they need. `fewlink.models.registry` finds the
family of a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.memory import Parts
from fewlink.core.recipes import Recipe, Vectors, model_of, recipe, recipe_texts
from fewlink.core.settings import Settings
from fewlink.data.benchmark import Benchmark
from fewlink.graph import Graph
from fewlink.models.settings import ModelSettings
from fewlink.scorers import Scorer

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

    model, dim = "none", 0

    def digest(self) -> str:
        return ""

    def save(self, folder: Path, fingerprint: str, *, graph: str = "") -> None:
        """Writes nothing."""


SettingsT = TypeVar("SettingsT", bound=ModelSettings)
VectorsT = TypeVar("VectorsT", bound=PretrainedVectors)


class RunState(NamedTuple):
    """What training a run continues from: its weights, and the state of its optimizer, by name."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]


@dataclass(frozen=True)
class StepResult:
    """The outcome of some training steps.

    `losses`: by name, each (steps, runs); `loss` is the one that is minimised, others are its terms.
    `sampling_seconds`: the time spent on drawing episodes, or on waiting for them.
    """

    losses: dict[str, Tensor]
    sampling_seconds: float


class Learner(Protocol):
    """Trains runs of one model that differ in their seed.

    `steps_at_once`: the number of steps to run between two checks of the loss. `weights`: each (runs, …), by name.
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
    """A scorer, the configuration that its result records keep, and the run it comes from, if any."""

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

    def components(self, model: str) -> dict[str, str]:
        """The names of a model's components, by kind."""
        return {}

    def component_texts(self) -> dict[str, str]:
        """What each component computes, in one line, by name."""
        return {}

    def ablations(self) -> dict[str, list[str]]:
        """For each complete model, by name: itself and its ablations."""
        return {}

    def recipe(self, model: str, name: str | None = None) -> Recipe[Any]:
        """The named recipe or, by default, the model's own; without one, the defaults of the settings."""
        if self.settings is None:
            raise FewlinkError(f"{model} has no settings and takes no recipe")
        if name is None and model not in recipe_texts():
            return Recipe(model, "", "", self.settings(model=model))
        which = name or model
        if (own := model_of(which)) != model:
            raise FewlinkError(f"recipe '{which}' is for {own}, not for {model}")
        return recipe(which, self.settings)


class BaselineFamily(Family):
    """Models that are made for one benchmark and its references, without a run folder."""

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
        """The scorer of a model, trained if it needs training; `settings` are of the family's class, or None."""


class TrainedFamily(Family, Generic[SettingsT, VectorsT]):
    """Models that are meta-trained into run folders; generic in their settings and in the vectors they read.

    reads_vectors      whether the models read pretrained vectors
    side_by_side       whether several seeds train together on a GPU
    any_graph          whether a trained model reads any graph
    several_graphs     whether a model also learns from the graphs of its setting `also`
    last_is_best       whether the last weights are kept, whatever their figures on dev
    memory_advice      a setting that takes less memory
    shipped_models     the models that `shipped` returns: their weights come with the package
    checkpoint_models  the models that `from_checkpoint` returns: their authors publish the weights
    """

    settings: type[SettingsT]
    reads_vectors: ClassVar[bool] = True
    side_by_side: ClassVar[bool] = False
    any_graph: ClassVar[bool] = False
    several_graphs: ClassVar[bool] = False
    last_is_best: ClassVar[bool] = False
    memory_advice: ClassVar[str] = ""
    shipped_models: ClassVar[tuple[str, ...]] = ()
    checkpoint_models: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def check(self, benchmark: Benchmark, settings: SettingsT) -> None:
        """Raise if the benchmark has nothing to learn from."""

    def training_facts(self, benchmark: Benchmark, settings: SettingsT) -> dict[str, Any]:
        """What a run is trained with besides its settings, vectors and benchmark; a continued run needs the same."""
        return dict(self.components(settings.model))

    @abstractmethod
    def vectors_name(self, settings: SettingsT, wanted: Vectors, benchmark: Benchmark) -> str:
        """A folder name for vectors, equal for all settings that share them."""

    @abstractmethod
    def pretrain(
        self,
        benchmark: Benchmark,
        settings: SettingsT,
        wanted: Vectors,
        folder: Path,
        on_epoch: Callable[[str], Reporter] | None = None,
    ) -> None:
        """Train the vectors of a model into a folder, unless they are there already.

        `on_epoch` makes a reporter from the title of each table.
        """

    @abstractmethod
    def open_vectors(self, folder: Path, fingerprint: str | None = None) -> VectorsT:
        """The vectors in a folder."""

    @abstractmethod
    def check_vectors(self, benchmark: Benchmark, vectors: PretrainedVectors) -> None:
        """Raise if vectors do not fit the benchmark, or may have been trained on its dev and test answers."""

    @abstractmethod
    def fold_in(self, vectors: VectorsT, benchmark: Benchmark, entities: int, relations: int) -> VectorsT:
        """Vectors for a benchmark that has grown since it had this many entities and background relations."""

    def check_fold_in(self, run: Path, weights: Mapping[str, Tensor]) -> None:
        """Raise if a run with these weights cannot answer about entities that were added later."""

    @abstractmethod
    def memory(
        self, graph: Graph, vectors: VectorsT, settings: SettingsT, *, runs: int = 1, training: bool = False
    ) -> Parts:
        """Bytes by purpose: to train `runs` side by side, or to answer with one run."""

    def training_memory(self, benchmark: Benchmark, vectors: VectorsT, settings: SettingsT, *, runs: int = 1) -> Parts:
        """Bytes by purpose: to train on all graphs that a run learns from."""
        return self.memory(benchmark.graph, vectors, settings, runs=runs, training=True)

    @abstractmethod
    def learner(self, benchmark: Benchmark, vectors: VectorsT, settings: SettingsT, seeds: Sequence[int]) -> Learner:
        """The learner of runs with these seeds."""

    @abstractmethod
    def scorer(
        self, benchmark: Benchmark, vectors: VectorsT, settings: SettingsT, weights: dict[str, Tensor], *, run: Path
    ) -> Scorer:
        """The scorer with these weights of a run, on the settings' device."""

    def shipped(self, model: str, benchmark: Benchmark, device: str) -> Prepared:
        """The scorer of one of `shipped_models` on the known graph of a benchmark."""
        raise FewlinkError(f"no weights of {model} come with fewlink: train it")

    def from_checkpoint(self, model: str, benchmark: Benchmark, file: Path, device: str) -> Prepared:
        """The scorer of one of `checkpoint_models` with the weights in a file."""
        raise FewlinkError(f"{model} reads no published weights: train it")


class VectorFreeFamily(TrainedFamily[SettingsT, NoVectors]):
    """Models that are meta-trained into run folders and read the graph alone."""

    reads_vectors = False

    def vectors_name(self, settings: SettingsT, wanted: Vectors, benchmark: Benchmark) -> str:
        return "none"

    def pretrain(
        self,
        benchmark: Benchmark,
        settings: SettingsT,
        wanted: Vectors,
        folder: Path,
        on_epoch: Callable[[str], Reporter] | None = None,
    ) -> None:
        """Trains nothing."""

    def open_vectors(self, folder: Path, fingerprint: str | None = None) -> NoVectors:
        return NoVectors()

    def check_vectors(self, benchmark: Benchmark, vectors: PretrainedVectors) -> None:
        if not isinstance(vectors, NoVectors):
            raise FewlinkError(f"{self.name} reads the graph alone: give no vectors")

    def fold_in(self, vectors: NoVectors, benchmark: Benchmark, entities: int, relations: int) -> NoVectors:
        return vectors
