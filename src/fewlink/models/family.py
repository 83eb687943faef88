"""The contract of a model family, and the one registry of families and models.

A family brings everything that is particular to its models: their names and settings, how their vectors are pretrained
and opened, how they learn, how they score and how much memory they need. Everything else asks the registry. Families
and scorers of other packages are found through the entry points `fewlink.families` and `fewlink.scorers`.
"""

from __future__ import annotations

import functools
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, Protocol

from torch import Tensor

from fewlink.core.errors import FewlinkError, choose
from fewlink.core.memory import Parts
from fewlink.core.recipes import Recipe, Vectors, model_of, recipe, recipe_texts
from fewlink.core.settings import Settings
from fewlink.data.benchmark import Benchmark
from fewlink.graph import Graph
from fewlink.scorers import Scorer

DEFAULT = "trail"  # the model that is trained if none is named
BUILT_IN = (
    "fewlink.models.baselines.learning_free",
    "fewlink.models.baselines.embedding",
    "fewlink.models.fsrl.family",
    "fewlink.models.metar.family",
    "fewlink.models.gana.family",
    "fewlink.models.trail.family",
    "fewlink.models.ultra.family",
    "fewlink.models.names.scorer",
)  # modules with a FAMILY; the only place that names families
FAMILIES, SCORERS = "fewlink.families", "fewlink.scorers"  # groups of entry points

Reporter = Callable[[dict[str, Any]], None]
RunState = tuple[dict[str, Tensor], dict[str, Tensor]]  # parameters, and the optimizer's moments


class ModelSettings(Settings, ABC):
    """What the trainer reads of any model's settings."""

    model: str
    shots: int
    relations: int
    learning_rate: float
    steps: int
    evaluate_every: int
    patience: int
    evaluate_candidates: str
    seed: int
    device: str

    @abstractmethod
    def decay_at(self, step: int) -> float:
        """What the learning rate of a step, the first of which is 0, is multiplied with."""


class PretrainedVectors(Protocol):
    """The vectors of a graph that a model reads."""

    @property
    def model(self) -> str: ...
    @property
    def dim(self) -> int: ...
    def digest(self) -> str: ...
    def save(self, folder: Path, fingerprint: str, *, graph: str = "") -> Any: ...


class Learner(Protocol):
    """Runs of one model that differ in their seed, trained together.

    `most` is how many steps are taken between looks at the loss; `weights` maps each name to a tensor (runs, …).
    """

    most: int

    @property
    def weights(self) -> Mapping[str, Tensor]: ...

    def advance(self, first: int, count: int) -> tuple[Tensor, float]:
        """Take steps from step `first` on; losses (count, 3, runs), and the seconds spent on sampling."""
        ...

    def scorer(self, run: int) -> Scorer: ...
    def state(self, run: int) -> RunState: ...
    def take(self, states: Sequence[RunState]) -> None:
        """Continue from the states of all runs."""
        ...


@dataclass(frozen=True)
class Prepared:
    """A scorer, the configuration that its result records keep, and the run it comes from, if any."""

    scorer: Scorer
    config: dict[str, Any]
    run: Path | None = None


class Family(ABC):
    """A family of models.

    `settings`: the class of their settings, None where there is nothing to set; `seeded`: whether a seed changes the
    scores; `any_shots`: whether one trained model takes any number of references.
    """

    name: ClassVar[str]
    settings: ClassVar[type[Settings] | None] = None
    seeded: ClassVar[bool] = True
    any_shots: ClassVar[bool] = False

    @property
    @abstractmethod
    def models(self) -> Mapping[str, str]:
        """What each model is, in a line, by name."""

    def parts(self, model: str) -> dict[str, Any]:
        """What a model is composed of, by kind of part."""
        return {}

    def ablations(self) -> dict[str, list[str]]:
        """The models that a whole model is compared with to see what its parts are worth, itself first, by its name."""
        return {}

    def part_texts(self) -> dict[str, str]:
        """What each part computes, in a line, by its name."""
        return {}

    def recipe(self, model: str, name: str | None = None) -> Recipe[Any]:
        """The named recipe or, by default, the model's own; without one, the defaults of the settings."""
        if self.settings is None:
            raise FewlinkError(f"{model} has no settings, and takes no recipe")
        which = name or model
        if name is None and which not in recipe_texts():
            return Recipe(which, "", "", self.settings(model=model))  # type: ignore[call-arg]
        if model_of(which) not in self.models:
            raise FewlinkError(f"recipe '{which}' is for {model_of(which)}, not for {model}")
        found = recipe(which, self.settings)
        if (own := found.settings.as_dict()["model"]) != model:
            raise FewlinkError(f"recipe '{found.name}' is for {own}, not for {model}")
        return found


class BaselineFamily(Family):
    """Models that are made for one benchmark and its references, with no run folder."""

    @abstractmethod
    def prepare(
        self,
        model: str,
        benchmark: Benchmark,
        settings: Settings | None,
        *,
        shots: int,
        draw: int = 0,
        seed: int = 0,
        on_epoch: Reporter | None = None,
    ) -> Prepared:
        """The scorer of a model, trained if it has to be."""


class TrainedFamily(Family):
    """Models that are meta-trained into run folders.

    `side_by_side`: whether several seeds train together on a GPU; `memory_advice`: a setting that needs less memory;
    `own_benchmark_only`: whether a model only works with the train relations it was trained on; `any_graph`: whether a
    trained model reads any graph; `last_is_best`: whether the last weights are kept, whatever dev says;
    `several_graphs`: whether a model also learns from the graphs of its setting `also`; `shipped_models`: those that
    `shipped` makes ready, with weights that come with the package; `checkpoint_models`: those that `from_checkpoint`
    makes ready, with weights that their authors publish.
    """

    settings: ClassVar[type[ModelSettings]]
    side_by_side: ClassVar[bool] = False
    own_benchmark_only: ClassVar[bool] = False
    any_graph: ClassVar[bool] = False
    last_is_best: ClassVar[bool] = False
    several_graphs: ClassVar[bool] = False
    shipped_models: ClassVar[tuple[str, ...]] = ()
    checkpoint_models: ClassVar[tuple[str, ...]] = ()
    memory_advice: ClassVar[str] = ""

    @abstractmethod
    def check(self, benchmark: Benchmark, settings: Any) -> None:
        """Raise if the benchmark has nothing to learn from."""

    def run_parts(self, benchmark: Benchmark, settings: Any) -> dict[str, Any]:
        """What a run is composed of: the parts of its model, and what else it is trained on."""
        return self.parts(settings.model)

    @abstractmethod
    def vectors_name(self, settings: Any, wanted: Vectors, benchmark: Benchmark) -> str:
        """A folder name for vectors, equal for all settings that share them."""

    @abstractmethod
    def pretrain(
        self,
        benchmark: Benchmark,
        settings: Any,
        wanted: Vectors,
        folder: Path,
        on_epoch: Callable[[str], Reporter] | None = None,
    ) -> None:
        """Train the vectors of a model into a folder; vectors that are there are kept, if they are the same.

        `on_epoch` makes a reporter from the title of each table.
        """

    @abstractmethod
    def open_vectors(self, folder: Path, fingerprint: str | None = None, *, for_training: bool = True) -> Any:
        """The vectors in a folder."""

    def answering_digest(self, vectors: Any) -> str:
        """The digest of those vectors that `open_vectors` opens for answers, which may be fewer than for training."""
        return str(vectors.digest())

    @abstractmethod
    def check_vectors(self, benchmark: Benchmark, vectors: Any) -> None:
        """Raise if vectors do not fit the benchmark, or may have seen its dev and test answers."""

    @abstractmethod
    def fold_in(self, vectors: Any, benchmark: Benchmark, entities: int, relations: int) -> Any:
        """Vectors for a benchmark that had so many entities and background relations when they were trained."""

    def parts_of_0_1(self, model: str) -> dict[str, Any]:
        """The parts of a model in runs of version 0.1, which do not name them."""
        return self.parts(model)

    def upgraded(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights or optimizer states that an older version saved, under the names of this one."""
        return tensors

    def check_fold_in(self, run: Path, weights: Mapping[str, Tensor]) -> None:
        """Raise if a run with these weights cannot answer about entities that were added later."""

    @abstractmethod
    def memory(self, graph: Graph, vectors: Any, settings: Any, *, runs: int = 1, training: bool = False) -> Parts:
        """Bytes by purpose: what `runs` side by side need for training, or what one run needs to answer."""

    def training_memory(self, benchmark: Benchmark, vectors: Any, settings: Any, *, runs: int = 1) -> Parts:
        """Bytes that training on all that a run learns from needs, by purpose."""
        return self.memory(benchmark.graph, vectors, settings, runs=runs, training=True)

    @abstractmethod
    def learner(self, benchmark: Benchmark, vectors: Any, settings: Any, seeds: Sequence[int]) -> Learner:
        """What trains runs of these seeds."""

    @abstractmethod
    def scorer(
        self,
        benchmark: Benchmark,
        vectors: Any,
        settings: Any,
        weights: dict[str, Tensor],
        *,
        parts: Mapping[str, Any],
        run: Path,
    ) -> Scorer:
        """The scorer with these weights on the settings' device; `parts` are those the run was trained with."""

    def shipped(self, model: str, benchmark: Benchmark, device: str) -> Prepared:
        """The scorer of one of `shipped_models` on what is known of a benchmark; the record names the weights."""
        raise FewlinkError(f"no weights of {model} come with fewlink: train it")

    def from_checkpoint(self, model: str, benchmark: Benchmark, file: Path, device: str) -> Prepared:
        """The scorer of one of `checkpoint_models` with the weights in a file; the record names the file."""
        raise FewlinkError(f"{model} reads no weights of its authors: train it")


class NoVectors:
    """In the place of vectors, for models that read the graph alone."""

    model, dim = "none", 0

    def digest(self) -> str:
        return ""

    def save(self, folder: Path, fingerprint: str, *, graph: str = "") -> None:
        """Nothing is written."""


class VectorFreeFamily(TrainedFamily):
    """Models that are meta-trained into run folders and need no vectors."""

    def vectors_name(self, settings: Any, wanted: Vectors, benchmark: Benchmark) -> str:
        return "none"

    def pretrain(
        self,
        benchmark: Benchmark,
        settings: Any,
        wanted: Vectors,
        folder: Path,
        on_epoch: Callable[[str], Reporter] | None = None,
    ) -> None:
        """There is nothing to pretrain."""

    def open_vectors(self, folder: Path, fingerprint: str | None = None, *, for_training: bool = True) -> NoVectors:
        return NoVectors()

    def check_vectors(self, benchmark: Benchmark, vectors: Any) -> None:
        if not isinstance(vectors, NoVectors):
            raise FewlinkError(f"{self.name} reads the graph alone: give no vectors")

    def fold_in(self, vectors: Any, benchmark: Benchmark, entities: int, relations: int) -> NoVectors:
        return NoVectors()


@functools.cache
def families() -> dict[str, Family]:
    """All families by name: the built-in ones, then those of other packages."""
    found: dict[str, Family] = {}
    for module in BUILT_IN:
        family = importlib.import_module(module).FAMILY
        found[family.name] = family
    for point in entry_points(group=FAMILIES):
        family = load_entry_point(point)
        if not isinstance(family, Family):
            raise plugin_error(point, "is not a model family")
        taken = {model for other in found.values() for model in other.models}
        for name in ({family.name} & {*found}) | (taken & {*family.models}):
            raise plugin_error(point, f"has the name '{name}', which is taken")
        found[family.name] = family
    for point in entry_points(group=SCORERS):
        if sum(point.name in family.models for family in found.values()) > 1:
            raise plugin_error(point, f"has the name '{point.name}', which is taken")
    return found


def load_entry_point(point: EntryPoint) -> Any:
    """The object of an entry point, of a class of families an instance; raises an error that names the package."""
    try:
        loaded = point.load()
        return loaded() if isinstance(loaded, type) and issubclass(loaded, Family) else loaded
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise plugin_error(point, f"cannot be loaded ({message})") from error


def plugin_error(point: EntryPoint, problem: str) -> FewlinkError:
    """An error in a line that names the entry point and the package it comes from."""
    package = point.dist.name if point.dist else point.value.partition(":")[0]
    return FewlinkError(f"'{point.name}' of the package {package} {problem}: fix or uninstall the package")


def family_of(model: str) -> Family:
    """The family of a model."""
    return choose("model", model, {name: family for family in families().values() for name in family.models})


def trained_family(model: str) -> TrainedFamily:
    """The family of a model that is trained into a run folder."""
    return choose("model", model, {name: family for family in _trained_families() for name in family.models})


def shipped_models() -> dict[str, TrainedFamily]:
    """The family of each model that is ready without training."""
    return {model: family for family in _trained_families() for model in family.shipped_models}


def checkpoint_models() -> dict[str, TrainedFamily]:
    """The family of each model that is ready with a file of published weights."""
    return {model: family for family in _trained_families() for model in family.checkpoint_models}


def _trained_families() -> list[TrainedFamily]:
    return [family for family in families().values() if isinstance(family, TrainedFamily)]


def training_recipe(model: str | None, name: str | None = None) -> Recipe[Any]:
    """The recipe of a model that is trained into a run folder: by name, or the model's own; by default TRAIL's."""
    if name is not None and model is None:
        model = model_of(name)
        if not isinstance(family_of(model), TrainedFamily):
            raise FewlinkError(f"recipe '{name}' is for {model}, which is not trained into a run: see fewlink pretrain")
    return trained_family(model or DEFAULT).recipe(model or DEFAULT, name)
