"""Named settings that were chosen with care, kept as TOML files in the package."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, TypeVar

from fewlink.choices import choose
from fewlink.errors import InputError
from fewlink.settings import Settings

S = TypeVar("S", bound=Settings)
OWN = ("seed", "device")  # a run's own: never part of a recipe


@dataclass(frozen=True)
class Recipe(Generic[S]):
    """What it is for, how it was chosen, and the settings themselves.

    `vectors` of a few-shot model's recipe say which pretrained vectors it was chosen with: the name of their `recipe`,
    whether they were trained `with_train_tasks`, and settings to change.
    """

    name: str
    about: str
    chosen: str
    settings: S
    vectors: dict[str, Any] = field(default_factory=dict)


def recipe(which: str, kind: type[S]) -> Recipe[S]:
    """A recipe by name, or from a TOML file of the same form; `kind` is the class of its settings."""
    path = Path(which)
    if path.suffix == ".toml":
        try:
            return _parse(path.stem, path.read_text("utf-8"), path, kind)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(path, f"cannot be read ({error})") from None
    known = recipe_texts()
    return _parse(which, choose("recipe", which, known), Path(f"{which}.toml"), kind)


def recipe_texts() -> dict[str, str]:
    """The TOML text of every recipe in the package, by name."""
    entries = sorted((files("fewlink") / "recipes").iterdir(), key=lambda entry: entry.name)
    return {e.name.removesuffix(".toml"): e.read_text("utf-8") for e in entries if e.name.endswith(".toml")}


def model_of(which: str) -> str:
    """The model a recipe of the package is for."""
    return str(tomllib.loads(choose("recipe", which, recipe_texts()))["settings"]["model"])


def measured() -> dict[str, dict[str, str]]:
    """What each recipe reached, by name, as generated from the project's stored results."""
    return dict(json.loads((files("fewlink") / "recipes" / "measured.json").read_text("utf-8")))


def _parse(name: str, text: str, path: Path, kind: type[S]) -> Recipe[S]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(path, f"is not TOML ({error})") from None
    for part in ("about", "settings"):
        if part not in content:
            raise InputError(path, f"has no '{part}'")
    settings = kind.from_dict(content["settings"])
    return Recipe(name, content["about"], content.get("chosen", ""), settings, content.get("vectors", {}))


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
    return json.dumps(value, ensure_ascii=False)  # TOML writes strings, whole numbers and booleans as JSON does
