"""The registry of model families.

Other packages add families with the entry point `fewlink.families`, and learning-free scorers with `fewlink.scorers`.
The names of the built-in models are listed here so that commands can complete and check them without torch.
"""

from __future__ import annotations

import functools
import importlib
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

from fewlink.core.errors import FewlinkError, choose

if TYPE_CHECKING:
    from fewlink.core.recipes import Recipe
    from fewlink.models.family import Family, TrainedFamily

DEFAULT_MODEL = "trail"
FAMILIES = "fewlink.families"  # entry points
SCORERS = "fewlink.scorers"  # entry points


class BuiltIn(NamedTuple):
    """A family of this package.

    module   the module that defines it as FAMILY
    models   the names of its models
    trained  whether the models are trained into folders
    ready    the names of scorers that `fewlink evaluate` accepts without a run folder
    """

    module: str
    models: tuple[str, ...]
    trained: bool = True
    ready: tuple[str, ...] = ()


BUILT_IN = {
    "learning-free": BuiltIn(
        "fewlink.models.baselines",
        ("random", "popularity", "reference-tails", "rules"),
        trained=False,
        ready=("random", "popularity", "reference-tails", "rules"),
    ),
    "embedding": BuiltIn(
        "fewlink.models.embeddings.family",
        ("rescal", "transe", "distmult", "complex"),
        ready=("rescal", "transe", "distmult", "complex"),
    ),
    "fewshot": BuiltIn(
        "fewlink.models.fsrl.family",
        (
            "gmatching-maxp",
            "gmatching-meanp",
            "gmatching-max",
            "fsrl",
            "fsrl-as1",
            "fsrl-as2a",
            "fsrl-as2b",
            "fsrl-as2c",
            "fsrl-as3",
            "fsrl-released",
            "fsrl-tuned",
        ),
    ),
    "metar": BuiltIn("fewlink.models.metar.family", ("metar", "metar-in-train")),
    "trail": BuiltIn("fewlink.models.trail.family", ("trail",), ready=("trail", "trail-no-names")),
    "ultra": BuiltIn("fewlink.models.ultra.family", ("ultra",), ready=("ultra",)),
    "trix": BuiltIn("fewlink.models.trix.family", ("trix",), ready=("trix",)),
}


def model_names() -> list[str]:
    """The names of all built-in models."""
    return [model for family in BUILT_IN.values() for model in family.models]


def trained_model_names() -> list[str]:
    """The names of the built-in models that `fewlink train` trains."""
    return [model for family in BUILT_IN.values() if family.trained for model in family.models]


def ready_model_names() -> list[str]:
    """The names of the built-in models that are evaluated without a run folder."""
    return [model for family in BUILT_IN.values() for model in family.ready]


def has_plugins() -> bool:
    """Whether other packages provide families or scorers."""
    return bool(entry_points(group=FAMILIES) or entry_points(group=SCORERS))


@functools.cache
def families() -> dict[str, Family]:
    """All families by name: the built-in ones, then those of other packages."""
    from fewlink.models.family import Family

    found: dict[str, Family] = {name: importlib.import_module(each.module).FAMILY for name, each in BUILT_IN.items()}
    for point in entry_points(group=FAMILIES):
        family = load_entry_point(point)
        if not isinstance(family, Family):
            raise plugin_error(point, "is not a model family")
        taken = {model for other in found.values() for model in other.models}
        for name in ({family.name} & {*found}) | (taken & {*family.models}):
            raise plugin_error(point, f"uses the name '{name}', which is taken")
        found[family.name] = family
    for point in entry_points(group=SCORERS):
        if sum(point.name in family.models for family in found.values()) > 1:
            raise plugin_error(point, f"uses the name '{point.name}', which is taken")
    return found


def load_entry_point(point: EntryPoint) -> Any:
    """The object of an entry point; if it is a subclass of `Family`, an instance of it."""
    from fewlink.models.family import Family

    try:
        loaded = point.load()
        return loaded() if isinstance(loaded, type) and issubclass(loaded, Family) else loaded
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise plugin_error(point, f"cannot be loaded ({message})") from error


def plugin_error(point: EntryPoint, problem: str) -> FewlinkError:
    """An error that names an entry point and its package."""
    package = point.dist.name if point.dist else point.value.partition(":")[0]
    return FewlinkError(f"'{point.name}' of the package {package} {problem}: fix or uninstall the package")


def family_of(model: str) -> Family:
    """The family of a model; for a built-in one, no other family is imported."""
    for each in BUILT_IN.values():
        if model in each.models:
            family: Family = importlib.import_module(each.module).FAMILY
            return family
    return choose("model", model, {name: family for family in families().values() for name in family.models})


def trained_family(model: str) -> TrainedFamily[Any]:
    """The family of a model that is trained into a run folder."""
    from fewlink.models.family import TrainedFamily

    family = family_of(model)
    if isinstance(family, TrainedFamily):
        return family
    return choose("model", model, {name: family for family in _trained_families() for name in family.models})


def shipped_models() -> dict[str, TrainedFamily[Any]]:
    """The family of each model with built-in weights, by name."""
    return {model: family for family in _trained_families() for model in family.shipped_models}


def checkpoint_models() -> dict[str, TrainedFamily[Any]]:
    """The family of each model that reads a file of published weights, by name."""
    return {model: family for family in _trained_families() for model in family.checkpoint_models}


def _trained_families() -> list[TrainedFamily[Any]]:
    from fewlink.models.family import TrainedFamily

    return [family for family in families().values() if isinstance(family, TrainedFamily)]


def training_recipe(model: str | None, name: str | None = None) -> Recipe[Any]:
    """The named recipe, or the recipe of a model, by default TRAIL's."""
    from fewlink.core.recipes import model_of

    model = model or (model_of(name) if name is not None else DEFAULT_MODEL)
    return family_of(model).recipe(model, name)
