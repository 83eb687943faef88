"""Plans of studies: the models and protocols to run, the published figures, and a version that runs in seconds."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fewlink.core.errors import FewlinkError, InputError, choose, read_file, reading
from fewlink.core.settings import Settings
from fewlink.models import families, family_of

Figures = dict[str, float]
OTHER = "other"  # the question of readings that the plan does not name
Split = Literal["train", "dev", "test"]
Candidates = Literal["paper", "full", "open", "released"]


class Tiny(BaseModel):
    """A version of a plan that runs in seconds: fewer models and seeds on built-in data, with settings by family."""

    model_config = ConfigDict(extra="forbid")

    benchmark: str = "umls"
    models: list[str] = Field(default_factory=list)
    shots: list[int] = Field(default_factory=list)
    seeds: int = Field(default=1, ge=1)
    relations: list[str] = Field(default_factory=list)
    readings: list[str] = Field(default_factory=list)
    settings: dict[str, list[str]] = Field(default_factory=dict)


class Rivals(BaseModel):
    """Models of a leaderboard with the same benchmarks, references, candidates and seeds.

    needs    a requirement of the command, such as a GPU; the study itself runs models that need nothing
    command  the command that creates the missing records of a model, with the fields {model}, {file} (the model's name
             with underscores), {benchmark}, {protocols} and {seeds}
    source   the origin of the model
    learnt   the data that it was trained on
    why      the reason for omissions
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
        """The rivals restricted to these choices; an empty or None choice keeps all."""
        return self.model_copy(
            update={
                "models": [name for name in self.models if not models or name in models],
                "shots": [count for count in self.shots if not shots or count in shots],
                "seeds": min(seeds, self.seeds),
                "benchmarks": [name for name in self.benchmarks if benchmark is None or name == benchmark],
            }
        )


class Reading(BaseModel):
    """A way to read what the paper leaves open: a base, which names a model, or a change of a base.

    settings    changes of the model's settings, as name=value
    vectors     changes of its pretrained vectors, by the fields of `fewlink.core.recipes.Vectors`
    candidates  the tails that are ranked
    references  the references of dev and test relations: the first ones, or drawn with the seed
    """

    model_config = ConfigDict(extra="forbid")

    about: str
    model: str = ""
    settings: list[str] = Field(default_factory=list)
    vectors: dict[str, Any] = Field(default_factory=dict)
    candidates: Candidates | None = None
    references: Literal["first", "drawn"] | None = None


class Question(BaseModel):
    """A thing that the paper leaves open, and its readings: a base and its changes, joined by `+`."""

    model_config = ConfigDict(extra="forbid")

    title: str
    readings: list[str]


class Plan(BaseModel):
    """A plan of a study: every model with every number of references and seed, on these splits and candidates.

    settings        changes to the recipes, by model
    relations       the relations of pair maps or later links
    published       the paper's figures by benchmark, model, split (or number of a relation) and metric
    published_data  the paper's counts by benchmark
    rivals          the models of a leaderboard, in place of `models`
    readings        bases and changes, by name; the first is the base of a change that is given alone
    questions       the readings to compare
    only            the readings to run and show; by default all
    overrides       changes of the settings of every reading
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
    readings: dict[str, Reading] = Field(default_factory=dict)
    questions: list[Question] = Field(default_factory=list)
    only: list[str] = Field(default_factory=list)
    overrides: list[str] = Field(default_factory=list)
    tiny: Tiny = Tiny()

    @property
    def names(self) -> list[str]:
        """All models of the plan."""
        return list(dict.fromkeys([*self.models, *(model for each in self.rivals for model in each.models)]))

    def settings_of(self, model: str) -> Settings | None:
        """The settings to train a model with; None if it has no settings."""
        family = family_of(model)
        if family.settings is None:
            return None
        settings: Settings = family.recipe(model).settings.adjusted(self.settings.get(model, []))
        return settings

    def as_tiny(self) -> Plan:
        """The version of the plan that runs in seconds on built-in data."""
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
                "questions": [Question(title="tiny", readings=self.tiny.readings)] if self.questions else [],
                "overrides": self.tiny.settings.get("fewshot", []),
            }
        )

    def with_readings(self, names: Sequence[str], steps: int | None) -> Plan:
        """The plan with these readings only, by default all, trained for this many steps, by default their own."""
        if not self.questions:
            raise FewlinkError("this study has no readings: leave out --readings and --steps")
        known = dict.fromkeys([*self.readings, "best"])
        for word in (word for name in names for word in name.split("+")):
            choose("reading", word, known)
        bases = [name for name, reading in self.readings.items() if reading.model]
        only = [name if name.split("+")[0] in bases else f"{bases[0]}+{name}" for name in names]
        planned = [name for question in self.questions for name in question.readings]
        others = [name for name in only if name not in planned]
        questions = [*self.questions, *([Question(title=OTHER, readings=others)] if others else [])]
        overrides = [*self.overrides, *([f"steps={steps}"] if steps is not None else [])]
        return self.model_copy(update={"questions": questions, "only": only, "overrides": overrides})

    def with_only(
        self, models: Sequence[str], shots: Sequence[int], seeds: int | None, benchmark: str | None = None
    ) -> Plan:
        """The plan restricted to these models, numbers of references and seeds, with rivals on one benchmark.

        An empty or None choice keeps all.
        """
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


def read_plan(source: str | Path) -> Plan:
    """Read a plan from a file (a `Path`, or a text that ends with .toml), or by the name of its study."""
    if isinstance(source, Path) or source.endswith(".toml"):
        path = Path(source)
        with reading(path, "write it again"):
            text = read_file(path).decode()
    else:
        text = choose("study", source, plan_texts())
        path = Path(f"{source}.toml")
    try:
        plan = Plan.model_validate(tomllib.loads(text))
        for family in plan.tiny.settings:
            choose("family", family, families())
        for version in (plan, plan.as_tiny()):
            for model in version.models:
                version.settings_of(model)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(path, f"is not valid TOML ({error}): correct it") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except FewlinkError as error:
        raise InputError(path, str(error)) from None
    return plan


def plan_texts() -> dict[str, str]:
    """The TOML text of every built-in plan, by name."""
    entries = sorted((files("fewlink") / "studies" / "recipes").iterdir(), key=lambda entry: entry.name)
    plans = [entry for entry in entries if entry.name.endswith(".toml")]
    return {plan.name.removesuffix(".toml"): plan.read_text("utf-8") for plan in plans}


def published_figures() -> dict[str, dict[str, dict[str, Figures]]]:
    """The paper's figures by benchmark, model, split and metric."""
    figures: dict[str, dict[str, dict[str, Figures]]] = {}
    for name in ("ablation", "overall"):
        for benchmark, models in read_plan(name).published.items():
            figures.setdefault(benchmark, {}).update(models)
    return figures
