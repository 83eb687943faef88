"""The leaderboard: every model on five benchmarks, with 1, 3 and 5 references and three kinds of candidates.

    python experiments/leaderboard.py                 # the tables of the stored records
    python experiments/leaderboard.py --todo          # what is not measured, and the command for it
    python experiments/leaderboard.py --tiny

leaderboard.toml says which models are on it, what each was trained on, and what is left out and why.
"""

from __future__ import annotations

import itertools
import statistics
import tomllib
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

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


class Rivals(BaseModel):
    """Models of the leaderboard with the same benchmarks, references, candidates and seeds.

    needs    a requirement of the command, such as a GPU
    command  the command that creates the missing records of a model, with the fields {model}, {file} (the model's name
             with underscores), {benchmark}, {protocols} and {seeds}
    source   the origin of the model
    learnt   the data that it was trained on
    why      the reason for omissions
    """

    model_config = ConfigDict(extra="forbid")

    models: list[str]
    benchmarks: list[str]
    shots: list[int] = list(SHOTS)
    candidates: list[str] = list(CANDIDATES)
    seeds: int = 5
    needs: str = ""
    command: str
    source: str = ""
    learnt: str = ""
    why: str = ""


def rivals() -> list[Rivals]:
    """The groups of models of leaderboard.toml."""
    return [Rivals(**each) for each in tomllib.loads((HERE / "leaderboard.toml").read_text("utf-8"))["rivals"]]


def names() -> list[str]:
    """All models of the leaderboard."""
    return list(dict.fromkeys(model for each in rivals() for model in each.models))


def benchmarks() -> list[str]:
    """All benchmarks of the leaderboard."""
    return list(dict.fromkeys(name for each in rivals() for name in each.benchmarks))


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


def todo(store: RecordStore) -> Iterator[str]:
    """The missing records of each model and benchmark, and the command that creates them."""
    stored = {
        (record.benchmark, record.model, record.shots, record.candidates, record.seed)
        for record in store.records
        if (record.split, record.references) == ("test", "first")
    }
    for group in rivals():
        cells = list(itertools.product(group.shots, group.candidates, range(group.seeds)))
        for benchmark, model in itertools.product(group.benchmarks, group.models):
            missing = [cell for cell in cells if (benchmark, model, *cell) not in stored]
            if not missing:
                continue
            shots, candidates, seeds = (list(dict.fromkeys(str(cell[i]) for cell in missing)) for i in range(3))
            words = {
                "model": model,
                "file": model.replace("-", "_"),
                "benchmark": benchmark,
                "protocols": " ".join(
                    ["--split test", *(f"-k {k}" for k in shots), *(f"--candidates {c}" for c in candidates)]
                ),
                "seeds": " ".join(f"--seed {seed}" for seed in seeds),
            }
            needs = f" (needs {group.needs.format(**words)})" if group.needs else ""
            cell = f"K = {', '.join(shots)}; {', '.join(candidates)}; seeds {', '.join(seeds)}"
            yield f"{benchmark}, {model}: {cell}{needs}: {group.command.format(**words)}"


def main() -> None:
    parser = options(__doc__, benchmark="all of them")
    parser.add_argument("--todo", action="store_true", help="list what is not measured, and the commands")
    given = parser.parse_args()
    experiment = Experiment(given)
    if given.todo:
        print("\n".join(todo(experiment.store)) or "everything is measured")
        return
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
