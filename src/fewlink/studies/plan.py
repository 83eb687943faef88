"""Plans: what a study runs, the published figures, and a version that runs in seconds."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fewlink.core.errors import FewlinkError, InputError, choose, read_file, reading
from fewlink.core.settings import Settings
from fewlink.models import families, family_of

Figures = dict[str, float]
Split = Literal["train", "dev", "test"]
Candidates = Literal["paper", "full", "open"]


class Tiny(BaseModel):
    """A version that runs in seconds: fewer models and seeds on built-in data, settings by family."""

    model_config = ConfigDict(extra="forbid")

    benchmark: str = "umls"
    models: list[str] = Field(default_factory=list)
    shots: list[int] = Field(default_factory=list)
    seeds: int = Field(default=1, ge=1)
    relations: list[str] = Field(default_factory=list)
    settings: dict[str, list[str]] = Field(default_factory=dict)


class Rivals(BaseModel):
    """Models of a leaderboard that are measured alike: with these benchmarks, references, candidates and seeds.

    `command` makes the records of one model; {model}, {file} (its name with underscores), {benchmark}, {protocols} and
    {seeds} stand for what is missing. The study itself runs what `needs` nothing special. `source`: where the model is
    from; `learnt`: what it has learnt from before it is asked; `why`: the reason if something is left out.
    """

    model_config = ConfigDict(extra="forbid")

    models: list[str]
    benchmarks: list[str]
    shots: list[int] = [1, 3, 5]
    candidates: list[Candidates] = ["full", "paper", "open"]
    seeds: int = Field(default=5, ge=1)
    needs: str = ""
    command: str
    source: str = ""
    learnt: str = ""
    why: str = ""

    def only(
        self, models: Sequence[str], shots: Sequence[int] = (), seeds: int = 5, benchmark: str | None = None
    ) -> Rivals:
        """A part of these rivals; an empty or None choice keeps all."""
        changes = {
            "models": [m for m in self.models if m in models or not models],
            "shots": [k for k in self.shots if k in shots or not shots],
            "seeds": min(seeds, self.seeds),
            "benchmarks": [b for b in self.benchmarks if b == benchmark or benchmark is None],
        }
        return self.model_copy(update=changes)


class Plan(BaseModel):
    """What a study runs: every model with every number of references and every seed, on these splits and candidates.

    `settings` are changes to a model's own recipe; `relations` are those of pair maps. `published` are the paper's
    figures by benchmark, model, split (or number of a relation) and metric, `published_data` its counts by benchmark.
    `rivals`, in the place of `models`, are those of a leaderboard, with benchmarks of their own.
    """

    model_config = ConfigDict(extra="forbid")

    title: str
    about: str
    expect: str
    benchmark: str = "nell-one"
    models: list[str] = Field(default_factory=list)
    splits: list[Split] = ["dev", "test"]
    candidates: list[Candidates] = ["paper", "full"]
    shots: list[int] = [3]
    seeds: int = Field(default=5, ge=1)
    relations: list[str] = Field(default_factory=list)
    settings: dict[str, list[str]] = Field(default_factory=dict)
    published: dict[str, dict[str, dict[str, Figures]]] = Field(default_factory=dict)
    published_data: dict[str, dict[str, int]] = Field(default_factory=dict)
    rivals: list[Rivals] = Field(default_factory=list)
    tiny: Tiny = Tiny()

    @property
    def names(self) -> list[str]:
        """All models of the plan."""
        return list(dict.fromkeys([*self.models, *(model for each in self.rivals for model in each.models)]))

    def settings_of(self, model: str) -> Settings | None:
        """The settings that a model is trained with; None if it has none."""
        family = family_of(model)
        if family.settings is None:
            return None
        settings: Settings = family.recipe(model).settings.adjusted(self.settings.get(model, []))
        return settings

    def as_tiny(self) -> Plan:
        """The same study in seconds, on built-in data."""
        models = self.tiny.models or self.models
        return self.model_copy(
            update={
                "benchmark": self.tiny.benchmark,
                "models": [] if self.rivals else models,
                "rivals": [each.only(models, seeds=1, benchmark=self.tiny.benchmark) for each in self.rivals],
                "shots": self.tiny.shots or self.shots,
                "seeds": self.tiny.seeds,
                "relations": self.tiny.relations,
                "settings": {m: self.tiny.settings.get(family_of(m).name, []) for m in models},
            }
        )

    def with_only(
        self, models: Sequence[str], shots: Sequence[int], seeds: int | None, benchmark: str | None = None
    ) -> Plan:
        """The plan with only these models, numbers of references and seeds, and rivals on this benchmark; an empty or
        None choice keeps all."""
        for model in models:
            choose("model of this study", model, dict.fromkeys(self.names))
        seeds = self.seeds if seeds is None else seeds
        for name, value in (("shots", min(shots, default=1)), ("seeds", seeds)):
            if value < 1:
                raise FewlinkError(f"{name} must be at least 1, got {value}")
        rivals = [each.only(models, shots, seeds, benchmark) for each in self.rivals]
        chosen = [m for m in self.models if m in models] or self.models
        return self.model_copy(
            update={"models": chosen, "rivals": rivals, "shots": list(shots) or self.shots, "seeds": seeds}
        )


def read_plan(which: str | Path) -> Plan:
    """The plan of a study, by its name, or from a file: any path, or a text that ends with .toml."""
    if isinstance(which, Path) or which.endswith(".toml"):
        path = Path(which)
        with reading(path, "write it again"):
            text = read_file(path).decode()
    else:
        text = choose("study", which, plan_texts())
        path = Path(f"{which}.toml")
    try:
        plan = Plan.model_validate(tomllib.loads(text))
        for family in plan.tiny.settings:
            choose("family", family, families())
        for version in (plan, plan.as_tiny()):
            for model in version.models:
                version.settings_of(model)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(path, f"is not TOML ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except FewlinkError as error:
        raise InputError(path, str(error)) from None
    return plan


def plan_texts() -> dict[str, str]:
    """The TOML text of every plan in the package, by name."""
    entries = sorted((files("fewlink") / "studies" / "recipes").iterdir(), key=lambda entry: entry.name)
    return {e.name.removesuffix(".toml"): e.read_text("utf-8") for e in entries if e.name.endswith(".toml")}


def published_figures() -> dict[str, dict[str, dict[str, Figures]]]:
    """The paper's figures by benchmark, model, split and metric."""
    figures: dict[str, dict[str, dict[str, Figures]]] = {}
    for name in ("ablation", "overall"):
        for benchmark, models in read_plan(name).published.items():
            figures.setdefault(benchmark, {}).update(models)
    return figures
