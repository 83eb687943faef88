"""The leaderboard: every model on five benchmarks, with 1, 3 and 5 references and three kinds of candidates.

    python experiments/leaderboard.py                 # the tables of the stored records
    python experiments/leaderboard.py --tiny

leaderboard.toml says which models are on it, what each was trained on, and what is left out and why.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import tomllib
from collections.abc import Sequence
from typing import Any

from common import (
    HERE,
    Experiment,
    Table,
    emphasise,
    is_ablation,
    models_of,
    options,
    print_tables,
    run,
    select,
    signed,
    spread,
    values,
)
from fewlink.core.errors import FewlinkError
from fewlink.evaluation.comparison import compare
from fewlink.evaluation.records import RecordStore

CANDIDATES = ("full", "paper", "open")
SHOTS = (1, 3, 5)
TINY_MODELS = ("popularity", "rules")


@functools.cache
def rivals() -> list[dict[str, Any]]:
    """The groups of leaderboard.toml: models with the same benchmarks, references, candidates and seeds.

    `source` is the origin of the models, `learnt` the data that they were trained on, `why` the reason for omissions.
    """
    given = tomllib.loads((HERE / "leaderboard.toml").read_text("utf-8"))["rivals"]
    every = {"shots": SHOTS, "candidates": CANDIDATES, "seeds": 5, "source": "", "learnt": "", "why": ""}
    return [{**every, **each} for each in given]


def names() -> list[str]:
    """All models of the leaderboard."""
    return list(dict.fromkeys(model for each in rivals() for model in each["models"]))


def benchmarks() -> list[str]:
    """All benchmarks of the leaderboard."""
    return list(dict.fromkeys(name for each in rivals() for name in each["benchmarks"]))


def table(store: RecordStore, benchmark: str, models: Sequence[str] = ()) -> Table:
    """A row for each model, sorted by 3-shot `full`, with its MRR on test for each protocol, mean ± deviation.

    The last column is the difference to the best model with stored ranks, with its 95 % interval.
    """
    measured = select(store.records, benchmark=benchmark, split="test", references="first")
    measured = [r for r in measured if r.candidates in CANDIDATES and r.shots in SHOTS]
    records = [r for r in measured if (r.model in models if models else not is_ablation(r.model))]
    protocols = list(itertools.product(CANDIDATES, SHOTS))
    by_model = {
        model: [values(select(records, model=model, candidates=c, shots=k)) for c, k in protocols]
        for model in models_of(records)
    }
    main_place = protocols.index(("full", 3))
    order = sorted(by_model, key=lambda model: -statistics.fmean(by_model[model][main_place] or [-1]))
    best = ""
    differences: dict[str, str] = {}
    for model in order:
        try:
            micro = compare(store, model, best or model, benchmark).micro
        except FewlinkError:  # the model has no ranks
            continue
        best = best or model
        differences[model] = f"{signed(micro.difference)} ({signed(micro.low)} to {signed(micro.high)})"
    rows = []
    for model in order:
        counts = sorted({len(seeds) for seeds in by_model[model] if seeds})
        cell = "best with ranks" if model == best else differences.get(model, "–")
        seeds = "–".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
        rows.append([model, *map(spread, by_model[model]), seeds, cell])
    columns = ["model", *(f"`{c}` {k}" for c, k in protocols), "seeds", f"difference to {best or 'the best'}"]
    return Table(benchmark, columns, emphasise(rows, range(1, len(protocols) + 1)))


def main() -> None:
    parser = options(__doc__, benchmark="all of them")
    given = parser.parse_args()
    experiment = Experiment(given)
    if experiment.tiny:
        experiment.records(experiment.chosen(TINY_MODELS), splits=["test"], candidates=CANDIDATES, shots=SHOTS)
        print_tables([table(experiment.store, experiment.stored_as)])
        return
    chosen = experiment.chosen(names())
    print_tables(
        table(experiment.store, name, chosen) for name in ([given.benchmark] if given.benchmark else benchmarks())
    )


if __name__ == "__main__":
    run(main)
