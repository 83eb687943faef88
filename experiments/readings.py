"""What the paper's text and the authors' program leave open, one change at a time: the tables, and a reading again.

    python experiments/readings.py                                             # the stored tables
    python experiments/readings.py --repeat paper+transe --device cuda         # train a reading again
    python experiments/readings.py --repeat paper --every 500 --steps 20000    # with more evaluations on the way
    python experiments/readings.py --repeat paper+negatives-released --tiny    # on built-in data

A reading is a base and its changes, joined by `+`; readings.toml describes them. Each run is evaluated on dev and test
as it goes, and its curve is a record: what the figures are after fewer steps, or at a step that is chosen otherwise,
follows from it. The inquiry is finished; its curves are in results/nell-one.
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from common import (
    COLUMNS,
    HERE,
    Experiment,
    Result,
    Table,
    figures,
    in_order,
    options,
    print_tables,
    published_row,
    run,
    short,
    spread,
)
from fewlink.core.errors import FewlinkError, choose
from fewlink.core.files import read_json, write_json
from fewlink.core.recipes import Vectors
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.evaluation.records import RecordStore
from fewlink.models import trained_family
from fewlink.models.contract import Scorer
from fewlink.models.settings import ModelSettings

GOAL = 0.30  # the MRR on test that the inquiry asked for
SHOTS = 3
STEPS = (6_000, 20_000, 40_000, 200_000)
CHOICES = {"dev": "dev", "test": "test", "five": "mean of the five best"}  # what the step is chosen on
OF_EACH = {"five": 5, "each": 1}  # choices for each metric by itself: how many of its best evaluations
SELECTIONS = {  # of learning curves: the choice, and what it is called
    "chosen-on-dev": ("dev", "dev"),
    "chosen-on-test": ("test", "test"),
    "best-of-each": ("each", "test, each metric by itself"),
}
TINY = ("steps=20", "evaluate_every=10", "batch=8")
CURVE = "curve.json"  # in a run folder: the curve so far


class CurvePoint(BaseModel):
    """Micro averages on dev and test at a step."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    step: int
    dev: dict[str, float]
    test: dict[str, float]


class LearningCurve(Result):
    """The metrics of a run at each of its evaluations."""

    what = "a learning curve"
    suffix = ".curves.jsonl"
    figures = frozenset({"points"})
    parts: ClassVar[tuple[str, ...]] = ("candidates",)

    candidates: str
    points: list[CurvePoint] = Field(min_length=1)

    def up_to(self, step: int) -> Self:
        """The curve as far as a step."""
        return self.model_copy(update={"points": [point for point in self.points if point.step <= step]})

    def figures_of(self, split: str, choice: str) -> Mapping[str, float]:
        """The figures on a split at the first step that is best on `dev` or `test`, or of the `five` best steps, or of
        the best of `each` metric."""
        if choice in OF_EACH:
            rows = [getattr(point, split) for point in self.points]
            best = {metric: sorted((row[metric] for row in rows), reverse=True) for metric in rows[0]}
            return {metric: statistics.fmean(values[: OF_EACH[choice]]) for metric, values in best.items()}
        chosen = max(self.points, key=lambda point: getattr(point, choice)["mrr"])
        return dict(getattr(chosen, split))

    def selected(self, selection: str) -> Mapping[str, float]:
        """The figures on test for one of `SELECTIONS`."""
        return self.figures_of("test", SELECTIONS[selection][0])


class ReadingCurve(LearningCurve):
    """The curve of a run, the readings that it is of, and how many of its steps each of them has."""

    what = "the curve of a reading"
    suffix = ".readings.jsonl"
    parts = ("candidates", "references", "vectors")

    vectors: dict[str, Any]
    references: str  # of dev and test relations: the first ones, or drawn with the seed
    readings: dict[str, int]


def plan() -> dict[str, Any]:
    """The readings and questions of readings.toml."""
    return tomllib.loads((HERE / "readings.toml").read_text("utf-8"))


def curves_of(name: str, curves: Iterable[ReadingCurve]) -> list[ReadingCurve]:
    """The stored curves of a reading as far as its steps, by seed and table of vectors."""
    found = [curve.up_to(curve.readings[name]) for curve in curves if name in curve.readings]
    return sorted(found, key=lambda curve: (curve.seed, curve.vectors["sha256"]))


# Tables


Found = Sequence[tuple[str, str, Sequence[ReadingCurve]]]  # the question, a reading, and its curves


def tables(store: RecordStore) -> list[Table]:
    """Every reading on test and dev, by how the step is chosen, and by the number of steps."""
    stored = store.read(ReadingCurve)
    found = [
        (question["title"], name, curves)
        for question in plan()["questions"]
        for name in question["readings"]
        if (curves := curves_of(name, stored))
    ]
    of_splits = [(make, split) for make in (by_reading, by_choice) for split in ("test", "dev")]
    return [*(make(found, split) for make, split in of_splits), by_steps(found)]


def by_reading(found: Found, split: str) -> Table:
    """A row for each reading, at the step chosen on dev; and which readings reach the goal."""
    rows = []
    reached = []
    for title, name, curves in found:
        chosen = [curve.figures_of(split, "dev") for curve in curves]
        rows.append([title, name, str(len(curves)), f"{steps_of(name, curves):,}", *figures(chosen)])
        if statistics.fmean(row["mrr"] for row in chosen) >= GOAL:
            reached.append(name)
    rows += [["", *row] for row in published_rows(found, split)]
    verdict = f"an MRR of {short(GOAL)} is reached by {', '.join(dict.fromkeys(reached)) or 'no reading'}"
    return Table(f"{split}, step chosen on dev", ["question", "reading", "runs", "steps", *COLUMNS], rows, verdict)


def by_choice(found: Found, split: str) -> Table:
    """A row for each reading and choice of the step."""
    rows = [
        [name, label, str(len(curves)), *figures([curve.figures_of(split, choice) for curve in curves])]
        for _, name, curves in found
        for choice, label in CHOICES.items()
    ]
    rows += published_rows(found, split)
    columns = ["reading", "step chosen on", "runs", *COLUMNS]
    note = "mean of the five best: of each metric's five best evaluations on this split, as the authors' script has it"
    return Table(f"{split}, by what the step is chosen on", columns, rows, note)


def by_steps(found: Found) -> Table:
    """A row for each reading that was trained for long: its MRR on test and dev after fewer steps."""
    rows = []
    for _, name, curves in found:
        for split in ("test", "dev"):
            row = ["" for _ in STEPS]
            for place, steps in enumerate(STEPS):
                if steps_of(name, curves) >= steps and all(curve.points[0].step <= steps for curve in curves):
                    row[place] = spread([curve.up_to(steps).figures_of(split, "dev")["mrr"] for curve in curves])
            if sum(map(bool, row)) > 1:
                rows.append([name, split, str(len(curves)), *row])
    columns = ["reading", "split", "runs", *(f"{steps // 1000}k steps" for steps in STEPS)]
    return Table("MRR after fewer steps, step chosen on dev", columns, rows)


def steps_of(name: str, curves: Sequence[ReadingCurve]) -> int:
    return curves[0].readings[name]


def published_rows(found: Found, split: str) -> list[list[str]]:
    """The paper's rows of the models that have curves."""
    models = dict.fromkeys(curves[0].model for _, _, curves in found)
    return [row for model in models if (row := published_row(model, split, "", ""))]


def by_selection(curves: Sequence[LearningCurve]) -> Table:
    """A row for each model and way to choose its step, with figures on test."""
    rows = []
    for model in in_order(curve.model for curve in curves):
        seeds = [curve for curve in curves if curve.model == model]
        for choice, label in SELECTIONS.values():
            rows.append(
                [model, label, str(len(seeds)), *figures([curve.figures_of("test", choice) for curve in seeds])]
            )
        if as_published := published_row(model, "test", "", ""):
            rows.append(as_published)
    protocols = ", ".join(dict.fromkeys(f"K = {curve.shots}, {curve.candidates}" for curve in curves))
    return Table(f"test, {protocols}, by what the step was chosen on", ["model", "chosen on", "seeds", *COLUMNS], rows)


# Repeating a reading


class Reading:
    """A reading in full: settings, vectors, ranked candidates, and `first` or `drawn` references."""

    def __init__(self, name: str, changes: Sequence[str] = ()) -> None:
        known = plan()["readings"]
        base, *more = (choose("reading", word, known) for word in name.split("+"))
        if "model" not in base or any("model" in change for change in more):
            bases = ", ".join(word for word, reading in known.items() if "model" in reading)
            raise FewlinkError(f"reading '{name}' must be a base ({bases}) and changes, joined by +")
        recipe = trained_family(base["model"]).recipe(base["model"])
        self.settings: ModelSettings = recipe.settings
        self.candidates = "paper"
        self.references = "first"
        vectors = recipe.vectors.as_dict()
        for reading in (base, *more):
            self.settings = self.settings.adjusted(reading.get("settings", []))
            vectors |= reading.get("vectors", {})
            self.candidates = reading.get("candidates", self.candidates)
            self.references = reading.get("references", self.references)
        if vectors["with_references"] and self.references == "drawn":
            raise FewlinkError(f"reading '{name}': vectors that have seen the first references need those at test")
        self.vectors = Vectors(**vectors)
        self.name = name
        to_the_end = "patience=1000000"  # the curve has all steps, whatever happens on dev
        self.settings = self.settings.adjusted([*changes, to_the_end]).replace(shots=SHOTS)

    def point(self, experiment: Experiment, scorer: Scorer, step: int, seed: int) -> CurvePoint:
        """The figures of a scorer on dev and test."""
        found = {}
        for split in ("dev", "test"):
            protocol = Protocol(split, SHOTS, self.candidates, int(self.references == "drawn"), seed)
            micro = evaluate(experiment.benchmark, scorer, protocol).metrics()["micro"]
            found[split] = {metric: round(micro[metric], 4) for metric in COLUMNS.values()}
        return CurvePoint(step=step, **found)


def repeat(reading: Reading, experiment: Experiment) -> list[ReadingCurve]:
    """Train the runs of a reading, evaluate each on dev and test as it goes, and store the curves."""

    def watch(folder: Path, step: int, scorer: Scorer) -> None:
        seed = int(folder.name.removeprefix("seed-"))
        before = read_json(folder / CURVE) if (folder / CURVE).exists() else []
        kept = [point for point in before if point["step"] < step]  # of a run that continues from an earlier step
        write_json(folder / CURVE, [*kept, reading.point(experiment, scorer, step, seed).model_dump()])

    seeds = range(experiment.seeds)
    curves = []
    for seed, prepared in experiment.trained(reading.settings, SHOTS, seeds, reading.vectors, watch).items():
        assert prepared.run is not None
        curve = ReadingCurve(
            benchmark=experiment.benchmark.name,
            data_sha256=experiment.benchmark.fingerprint,
            model=reading.settings.model,
            seed=seed,
            shots=SHOTS,
            candidates=reading.candidates,
            references=reading.references,
            settings=prepared.config["settings"],
            vectors={**reading.vectors.as_dict(), "sha256": str(prepared.config["embeddings"])},
            points=read_json(prepared.run / CURVE),
            readings={reading.name: reading.settings.steps},
        )
        experiment.store.add(curve)
        curves.append(curve)
    return curves


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeat", metavar="READING", help="train this reading; its curves go to --results")
    parser.add_argument("--steps", type=int, help="train for so many steps")
    parser.add_argument("--every", type=int, help="steps between two evaluations")
    given = parser.parse_args()
    if not given.repeat and not given.tiny:
        experiment = Experiment(given)
        own = RecordStore(experiment.store.folder / experiment.name)
        curves = own.read(LearningCurve)
        print_tables([*tables(own), *([by_selection(curves)] if curves else [])])
        return
    if given.results is None and not given.tiny:
        raise FewlinkError("--repeat needs a folder of its own for the curves: give --results FOLDER")
    changes = list(TINY) if given.tiny else []
    changes += [f"{name}={value}" for name, value in (("steps", given.steps), ("evaluate_every", given.every)) if value]
    reading = Reading(given.repeat or "paper", changes)
    repeated = repeat(reading, Experiment(given))
    print_tables(by_choice([("", reading.name, repeated)], split) for split in ("test", "dev"))


if __name__ == "__main__":
    run(main)
