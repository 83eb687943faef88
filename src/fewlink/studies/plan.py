"""A study's recipe: what is run, with which settings, what the paper reports and what is expected here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fewlink.base.errors import FewlinkError, InputError
from fewlink.base.resolver import choose
from fewlink.base.settings import Settings
from fewlink.training import family_of

Figures = dict[str, float]


class Tiny(BaseModel):
    """The same study in seconds: fewer models and seeds on built-in data, settings for each kind of model."""

    model_config = ConfigDict(extra="forbid")

    benchmark: str = "umls"
    models: list[str] = Field(default_factory=list)
    shots: list[int] = Field(default_factory=list)
    seeds: int = Field(default=1, ge=1)
    relations: list[str] = Field(default_factory=list)
    settings: dict[str, list[str]] = Field(default_factory=dict)  # by family


class Plan(BaseModel):
    """What a study runs: every model with every number of references and every seed, on these splits and candidates.

    `settings` are changes from a model's own recipe; `relations` are those that are looked at one by one. `published`
    are the paper's figures by benchmark, model, split (or number of a relation) and metric; `published_data` counts.
    """

    model_config = ConfigDict(extra="forbid")

    title: str
    about: str
    expect: str
    benchmark: str = "nell-one"
    models: list[str] = Field(default_factory=list)
    splits: list[str] = Field(default_factory=lambda: ["dev", "test"])
    candidates: list[str] = Field(default_factory=lambda: ["paper", "full"])
    shots: list[int] = Field(default_factory=lambda: [3])
    seeds: int = Field(default=5, ge=1)
    relations: list[str] = Field(default_factory=list)
    settings: dict[str, list[str]] = Field(default_factory=dict)
    published: dict[str, dict[str, dict[str, Figures]]] = Field(default_factory=dict)
    published_data: dict[str, dict[str, int]] = Field(default_factory=dict)
    tiny: Tiny = Tiny()

    def settings_of(self, model: str) -> Settings | None:
        """The settings that a model is trained with; None where there is nothing to train."""
        family = family_of(model)
        if family.settings is None:
            return None
        settings: Settings = family.recipe(model).settings.adjusted(self.settings.get(model, []))
        return settings

    def made_tiny(self) -> Plan:
        """The same study in seconds, on built-in data."""
        models = self.tiny.models or self.models
        return self.model_copy(
            update={
                "benchmark": self.tiny.benchmark,
                "models": models,
                "shots": self.tiny.shots or self.shots,
                "seeds": self.tiny.seeds,
                "relations": self.tiny.relations,
                "settings": {m: self.tiny.settings.get(family_of(m).name, []) for m in models},
            }
        )

    def with_only(self, models: Sequence[str], shots: Sequence[int], seeds: int | None) -> Plan:
        """The part of the study that has these models, numbers of references and seeds; all where none are named."""
        for model in models:
            choose("model of this study", model, dict.fromkeys(self.models))
        for value, least in ((min(shots, default=1), "shots"), (1 if seeds is None else seeds, "seeds")):
            if value < 1:
                raise FewlinkError(f"{least} must be at least 1, got {value}")
        kept = [m for m in self.models if m in models] or self.models
        return self.model_copy(
            update={"models": kept, "shots": list(shots) or self.shots, "seeds": self.seeds if seeds is None else seeds}
        )


def plan_names() -> list[str]:
    return [entry.name.removesuffix(".toml") for entry in _entries()]


def read_plan(which: str) -> Plan:
    """The plan of a study, by name or from a TOML file of the same form."""
    path = Path(which)
    if path.suffix == ".toml":
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(path, f"cannot be read ({error})") from None
    else:
        text = choose("study", which, {e.name.removesuffix(".toml"): e for e in _entries()}).read_text("utf-8")
        path = Path(f"{which}.toml")
    try:
        plan = Plan.model_validate(tomllib.loads(text))
        for model in [*plan.models, *plan.tiny.models]:
            family_of(model)
        for whole in (plan, plan.made_tiny()):
            for model in whole.models:
                whole.settings_of(model)
    except tomllib.TOMLDecodeError as error:
        raise InputError(path, f"is not TOML ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except FewlinkError as error:
        raise InputError(path, str(error)) from None
    return plan


def _entries() -> Iterator[Any]:
    entries = (files("fewlink") / "studies" / "recipes").iterdir()
    return iter(sorted((e for e in entries if e.name.endswith(".toml")), key=lambda e: e.name))
