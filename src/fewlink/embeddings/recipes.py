"""Named settings that were chosen with care, kept as TOML files in the package."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from fewlink.choices import choose
from fewlink.embeddings.settings import EmbeddingSettings
from fewlink.errors import InputError


@dataclass(frozen=True)
class Recipe:
    """What it is for, how it was chosen, and the settings themselves."""

    name: str
    about: str
    chosen: str
    settings: EmbeddingSettings


def recipe(which: str) -> Recipe:
    """A recipe by name, or from a TOML file of the same form."""
    path = Path(which)
    if path.suffix == ".toml":
        try:
            return _parse(path.stem, path.read_text("utf-8"), path)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(path, f"cannot be read ({error})") from None
    known = recipe_texts()
    return _parse(which, choose("recipe", which, known), Path(f"{which}.toml"))


def recipe_texts() -> dict[str, str]:
    """The TOML text of every recipe in the package, by name."""
    entries = sorted((files("fewlink") / "recipes").iterdir(), key=lambda entry: entry.name)
    return {e.name.removesuffix(".toml"): e.read_text("utf-8") for e in entries if e.name.endswith(".toml")}


def measured() -> dict[str, dict[str, str]]:
    """What each recipe reached, by name, as generated from the project's stored results."""
    return dict(json.loads((files("fewlink") / "recipes" / "measured.json").read_text("utf-8")))


def _parse(name: str, text: str, path: Path) -> Recipe:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(path, f"is not TOML ({error})") from None
    for part in ("about", "settings"):
        if part not in content:
            raise InputError(path, f"has no '{part}'")
    settings = EmbeddingSettings.from_dict(content["settings"])
    return Recipe(name, content["about"], content.get("chosen", ""), settings)


def as_toml(about: str, chosen: str, settings: EmbeddingSettings) -> str:
    """A recipe as TOML text: the settings that differ from the defaults; seed and device are the run's own."""
    plain = EmbeddingSettings(model=settings.model, dim=settings.dim).as_dict()
    lines = [f"about = {_toml(about)}", f"chosen = {_toml(chosen)}", "", "[settings]"]
    for name, value in settings.as_dict().items():
        if name in ("model", "dim") or (value != plain[name] and name not in ("seed", "device")):
            lines.append(f"{name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, float):
        return repr(float(f"{value:.3g}"))
    return json.dumps(value, ensure_ascii=False)  # TOML writes strings, whole numbers and booleans as JSON does
