"""Recipes: named settings of models, stored as TOML files in the package."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, TypeVar

from fewlink.core.errors import FewlinkError, InputError, choose, read_file
from fewlink.core.settings import Settings

S = TypeVar("S", bound=Settings)
OWN = ("seed", "device")  # set for each run, never part of a recipe
PARTS = ("about", "chosen", "settings", "vectors")


@dataclass(frozen=True)
class Vectors:
    """How the vectors of a few-shot model are pretrained: recipe, triples, and changed settings."""

    recipe: str = "complex"
    with_train_tasks: bool = False
    set: Sequence[str] = ()


@dataclass(frozen=True)
class Recipe(Generic[S]):
    """What the recipe is for, how it was chosen, its settings, and the vectors of a few-shot model."""

    name: str
    about: str
    chosen: str
    settings: S
    vectors: Vectors = Vectors()


def recipe(which: str, kind: type[S]) -> Recipe[S]:
    """A recipe by name or from a TOML file; `kind` is the class of its settings."""
    content, path = _read(which)
    values = _settings(content, path)
    try:
        settings = kind.from_dict(values)
        vectors = _vectors(content.get("vectors", {}))
    except FewlinkError as error:
        raise InputError(path, str(error)) from None
    for part in ("about", "chosen"):
        if not isinstance(content.get(part, ""), str):
            raise InputError(path, f"'{part}' is not text")
    return Recipe(path.stem, content.get("about", ""), content.get("chosen", ""), settings, vectors)


def recipe_texts() -> dict[str, str]:
    """The TOML text of every recipe in the package, by name."""
    entries = sorted((files("fewlink") / "recipes").iterdir(), key=lambda entry: entry.name)
    return {e.name.removesuffix(".toml"): e.read_text("utf-8") for e in entries if e.name.endswith(".toml")}


def model_of(which: str) -> str:
    """The model of a recipe, given by name or as a file."""
    return str(_settings(*_read(which)).get("model", ""))


def current_name(model: str, settings: Mapping[str, Any] | None) -> str:
    """The name that the model of a stored run or result has in this version.

    `settings` are those stored with it, None where none are. Version 0.1 wrote `trail` for `trail-0.1`, whose settings
    have `views`; those of `trail` have none.
    """
    if model == "trail-no-trails":
        return "trail-0.1-no-paths"
    of_0_1 = settings is None or "views" in settings
    return re.sub(r"^trail(?=$|-no-)", "trail-0.1", model) if of_0_1 else model


def former_name(model: str) -> str:
    """The name that version 0.1 wrote for a model."""
    return re.sub(r"^trail-0\.1", "trail", model)


def renamed(value: Any) -> Any:
    """A stored result with the name that its model has in this version; a map of version 0.1 has no settings."""
    if not isinstance(value, dict) or not isinstance(value.get("model"), str):
        return value
    config = value.get("config")
    settings = config.get("settings", {}) if isinstance(config, dict) else value.get("settings")
    settings = settings if isinstance(settings, dict) else None
    model = current_name(value["model"], settings)
    if model == value["model"]:
        return value
    if not settings:
        return {**value, "model": model}
    changed = {"settings": {**settings, "model": model}}
    return {**value, "model": model, **({"config": {**config, **changed}} if config else changed)}


def same_settings(stored: dict[str, Any] | None, settings: Settings | None) -> bool:
    """Whether a record's settings are these, apart from K, seed, device and settings that only one of them has."""
    if settings is None or stored is None:
        return not stored and settings is None
    current = settings.as_dict()
    return all(stored[name] == current[name] for name in stored.keys() & current.keys() - {*OWN, "shots"})


def measured() -> dict[str, dict[str, str]]:
    """The measured results of each recipe, generated from the project's stored records."""
    return dict(json.loads((files("fewlink") / "recipes" / "measured.json").read_text("utf-8")))


def _read(which: str) -> tuple[dict[str, Any], Path]:
    """The content and the path of a recipe's file."""
    path = Path(which)
    try:
        text = read_file(path).decode() if path.suffix == ".toml" else choose("recipe", which, recipe_texts())
    except UnicodeDecodeError as error:
        raise InputError(path, f"cannot be read ({error})") from None
    path = path if path.suffix == ".toml" else Path(f"{which}.toml")
    try:
        content = tomllib.loads(text)
        for part in content:
            choose("part of a recipe", part, dict.fromkeys(PARTS))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(path, f"is not TOML ({error})") from None
    except FewlinkError as error:
        raise InputError(path, str(error)) from None
    return content, path


def _settings(content: dict[str, Any], path: Path) -> dict[str, Any]:
    settings = content.get("settings")
    if not isinstance(settings, dict):
        raise InputError(path, "has no table [settings]")
    return settings


def _vectors(content: Any) -> Vectors:
    if not isinstance(content, dict):
        raise FewlinkError("'vectors' is not a table")
    kinds = {"recipe": (str, "a name"), "with_train_tasks": (bool, "true or false"), "set": (list, "a list")}
    for name, value in content.items():
        kind, allowed = choose("setting of vectors", name, kinds)
        if not isinstance(value, kind):
            raise FewlinkError(f"vectors.{name} is {value!r}: it must be {allowed}")
    if not all(isinstance(change, str) for change in content.get("set", ())):
        raise FewlinkError(f'vectors.set is {content["set"]!r}: it must be a list of texts, such as "dim=50"')
    return Vectors(**content)


def as_toml(about: str, chosen: str, settings: Settings) -> str:
    """A recipe as TOML text: its model and dimension, and the settings that differ from the defaults."""
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    lines = [f"about = {_toml(about)}", f"chosen = {_toml(chosen)}", "", "[settings]"]
    for name, value in settings.as_dict().items():
        if name in ("model", "dim") or (value != defaults[name] and name not in OWN):
            lines.append(f"{name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, float):
        return repr(float(f"{value:.3g}"))
    return json.dumps(value, ensure_ascii=False)  # TOML writes strings, integers and booleans as JSON does
