"""Recipes: named settings of models, stored as TOML files in the package."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field

from fewlink.core.errors import FewlinkError, InputError, choose, read_file
from fewlink.core.settings import Settings

S = TypeVar("S", bound=Settings)
FOLDER = files("fewlink") / "recipes"
PER_RUN_SETTINGS = ("seed", "device")  # settings that each run chooses, never a recipe


class Vectors(Settings):
    """How to pretrain the vectors of a few-shot model."""

    recipe: str = Field(default="complex", description="recipe of the embedding model")
    with_train_tasks: bool = Field(default=False, description="whether to train on the train relations too")
    with_references: int = Field(
        default=0, ge=0, description="references of each dev and test relation, the first ones, to train on too"
    )
    set: Annotated[tuple[str, ...], Field(strict=False)] = Field(default=(), description="changes as name=value")


DEFAULT_VECTORS = Vectors()


@dataclass(frozen=True)
class Recipe(Generic[S]):
    """Named settings of a model; `about` says what they are for, `chosen` how they were chosen."""

    name: str
    about: str
    chosen: str
    settings: S
    vectors: Vectors = DEFAULT_VECTORS


class RecipeFile(Settings):
    """The content of a recipe's TOML file, before its settings and vectors are validated by their classes."""

    settings: dict[str, Any]
    about: str = ""
    chosen: str = ""
    vectors: dict[str, Any] = Field(default_factory=dict)


def recipe(which: str, kind: type[S]) -> Recipe[S]:
    """Load a recipe by name or from a TOML file; `kind` is the class of its settings."""
    content, path = _read(which)
    try:
        settings = kind(**content.settings)
        vectors = Vectors(**content.vectors)
    except FewlinkError as error:
        raise InputError(path, str(error)) from None
    return Recipe(path.stem, content.about, content.chosen, settings, vectors)


def recipe_texts() -> dict[str, str]:
    """The TOML text of every recipe in the package, by name."""
    found = {entry.name: entry for entry in FOLDER.iterdir() if entry.name.endswith(".toml")}
    return {name.removesuffix(".toml"): found[name].read_text("utf-8") for name in sorted(found)}


def model_of(which: str) -> str:
    """The model that a recipe, by name or from a TOML file, is for."""
    return str(_read(which)[0].settings.get("model", ""))


def measured() -> dict[str, dict[str, str]]:
    """The measured results of each recipe, generated from the project's stored records."""
    return dict(json.loads((FOLDER / "measured.json").read_text("utf-8")))


def _read(which: str) -> tuple[RecipeFile, Path]:
    """The content and path of a recipe file."""
    if which.endswith(".toml"):
        path = Path(which)
        content = read_file(path)
    else:
        path = Path(f"{which}.toml")
        content = choose("recipe", which, recipe_texts()).encode()
    try:
        return RecipeFile(**tomllib.loads(content.decode())), path
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(path, f"is not TOML ({error})") from None
    except FewlinkError as error:
        raise InputError(path, str(error)) from None
