"""What TRAIL owes to its parts, on relations of graphs that it was never trained on, and on folds of NELL-One.

    python experiments/unseen_graphs.py GRAPHS --models trail --relations 4 --results ablations \
        --label without-same --without same --weights pretrained/main-*.safetensors    (and contain, vectors)
    python benchmarks/trail_ablations.py names ablations results/unseen-graphs

    python benchmarks/pretrain.py train GRAPHS short --variants main few-references no-skew few-graphs --steps 1000 \
        --set relations=2
    python experiments/unseen_graphs.py GRAPHS --models trail --relations 4 --results ablations \
        --label short-main --weights short/main-*.safetensors    (and so on for each variant)
    python benchmarks/trail_ablations.py training ablations

    python benchmarks/pretrain.py evaluate folds pretrained/main-*.safetensors --on nell-one/0 nell-one/1 --split dev \
        --model trail
    python benchmarks/pretrain.py evaluate folds pretrained/main-*.safetensors --on nell-one/0 nell-one/1 --split dev \
        --model without-same --names on --without same    (and contain, vectors)
    python benchmarks/pretrain.py evaluate folds short/main-*.safetensors --on nell-one/0 nell-one/1 --split dev \
        --model short-main --names on    (and so on for each variant)
    python benchmarks/trail_ablations.py folds folds

What TRAIL reads of names is left out of the weights of the whole training. A part of training is left out in short
trainings, which are compared with a short training with all parts. `names` and `training` take the relations and graphs
that all measurements have, and write records/trail-ablations.json or records/trail-training-ablations.json: for each
network and seed the mean MRR over graphs, by the references. `folds` writes the networks that it finds to
records/trail-fold-ablations.json, in place of those there: the MRR over queries of each fold.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from measure import print_table, read_record, write_record

sys.path.append(str(Path(__file__).resolve().parent.parent / "experiments"))

from unseen_graphs import SIZES, SKEWED, UnseenRecord, mean_of, read_unseen

OF_NAMES = {  # by the label in records
    "trail": "whole training",
    "trail-no-names": "names not read",
    "without-same": "*has the same name* not read",
    "without-contain": "*contains the name* not read",
    "without-vectors": "cosines of names not read",
}
OF_TRAINING = {
    "short-main": "short training",
    "short-few-references": "… with at most 16 references",
    "short-no-skew": "… without skewed sets",
    "short-few-graphs": "… on NELL-One and FB15k-237 only",
}
NETWORKS = {**OF_NAMES, **OF_TRAINING}
FOLDS = "trail-fold-ablations"
SETS = tuple(dict.fromkeys([*SIZES, *SKEWED.values(), *SKEWED]))


def shared(records: Iterable[UnseenRecord]) -> dict[str, set[str]]:
    """The relations of each graph that all of a graph's records have."""
    found: dict[str, set[str]] = {}
    for record in records:
        found[record.graph] = found.get(record.graph, set(record.relations)) & set(record.relations)
    return found


def of_folds(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """For each network and seed the MRR of each fold; networks that were not measured again are those of the record."""
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    weights: dict[tuple[str, int], str] = {}
    for path in (path for folder in folders for path in folder.rglob("*.jsonl")):
        for record in map(json.loads, path.read_text("utf-8").splitlines()):
            fold = "fold " + record["benchmark"].split("-fold-")[1][0]
            found[record["model"], record["seed"]][fold] = round(record["metrics"]["micro"]["mrr"], 5)
            weights[record["model"], record["seed"]] = record["config"]["measured"]["weights"]["sha256"]
    rows = [
        {
            "network": NETWORKS[model],
            "seed": seed,
            "weights": weights[model, seed],
            **dict(sorted(found[model, seed].items())),
        }
        for model, seed in found
    ]
    before = (read_record(FOLDS) or {"rows": []})["rows"]
    rows += [row for row in before if row["network"] not in {own["network"] for own in rows}]
    return sorted(rows, key=lambda row: (list(NETWORKS.values()).index(row["network"]), row["seed"]))


def of_graphs(folders: Iterable[Path], networks: dict[str, str]) -> dict[str, Any]:
    """The graphs and relations that all measurements of these networks have, and the means of each over them."""
    runs: dict[tuple[str, int], list[UnseenRecord]] = defaultdict(list)
    for folder in folders:
        for record in read_unseen(folder):
            if record.model in networks:
                runs[record.model, record.seed].append(record)
    if not runs:
        raise SystemExit(f"no records of {', '.join(networks)} in these folders")
    graphs = set.intersection(*({record.graph for record in own} for own in runs.values()))
    relations = shared(record for own in runs.values() for record in own if record.graph in graphs)
    rows = []
    for (model, seed), own in sorted(runs.items(), key=lambda run: (list(networks).index(run[0][0]), run[0][1])):
        row = {"network": networks[model], "seed": seed}
        for of in SETS:
            by_graph = (
                mean_of(
                    record.relations[name][of]["mrr"]
                    for name in relations[record.graph]
                    if of in record.relations[name]
                )
                for record in own
                if record.graph in graphs
            )
            row[of] = mean_of(by_graph)
        rows.append({key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()})
    return {"graphs": sorted(graphs), "relations": sum(map(len, relations.values())), "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["names", "training", "folds"])
    parser.add_argument("folders", type=Path, nargs="+", help="of records of unseen_graphs, or of pretrain.py evaluate")
    options = parser.parse_args()
    if options.what == "folds":
        found: dict[str, Any] = {"shots": 3, "candidates": "full", "split": "dev", "rows": of_folds(options.folders)}
        name = FOLDS
    else:
        networks = OF_NAMES if options.what == "names" else OF_TRAINING
        found = {"hardware": "NVIDIA H200", **of_graphs(options.folders, networks)}
        name = "trail-ablations" if options.what == "names" else "trail-training-ablations"
    print_table(found["rows"])
    write_record(name, found)


if __name__ == "__main__":
    main()
