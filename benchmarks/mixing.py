"""A relation that the graph has, after `fewlink fit`: held-out pairs by the shipped weights and by the fitted run.

    python benchmarks/mixing.py links codex-s --minutes 10 TRAIN VALID TEST [--split test]
    python benchmarks/mixing.py hidden NAME --minutes 10 GRAPH [--names NAMES]

`links` fits TRAIN and ranks both ends of the triples of a split among all entities, as ordinary link prediction does.
`hidden` first hides up to 15 pairs, at most a tenth, of up to 20 relations with at least 30 pairs, then fits the rest
and ranks both ends of what it hid; GRAPH is a file, or the name of a benchmark or built-in graph. Measurements are
stored in records/mixing.json by name.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewlink.core.seeds import generator
from fewlink.fitting.fit import fit
from fewlink.fitting.held_out import estimate
from fewlink.graph import Graph, compile_graph
from fewlink.linker import Linker, load
from fewlink.models.contract import GraphScorer, Question, RelationScorer, Scorer
from fewlink.models.trail.shipped import shipped
from fewlink.tasks.catalogue import open_graph
from links import rank_links, read_splits
from measure import RECORDS, write_record

RELATIONS = 20
PAIRS = 15
SHARE = 0.1
FEWEST = 30


class KnownRelations:
    """A linker in the place of a table of vectors: all known pairs of a relation are its references."""

    def __init__(self, linker: Linker) -> None:
        assert isinstance(linker.scorer, GraphScorer)
        self.scorer = linker.scorer
        self.graph = linker.graph
        self.entities = torch.zeros(len(self.graph.entities), 0)
        self.relations = torch.zeros(2 * len(self.graph.relations), 0)
        self.everyone = np.arange(len(self.graph.entities), dtype=np.int32)
        self.triples = self.graph.triples()
        self.latest: tuple[int, Scorer | None] = (-1, None)

    def score_all(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Scores (rows, entities)."""
        scores = torch.empty(len(heads), len(self.entities))
        for relation in relations.unique().tolist():
            rows = relations == relation
            scores[rows] = torch.as_tensor(self.model(relation)(self.question(relation, heads[rows].numpy()))).float()
        return scores

    def question(self, relation: int, heads: np.ndarray) -> Question:
        inverse, number = divmod(relation, len(self.graph.relations))
        pairs = self.triples[self.triples[:, 1] == number][:, [0, 2]]
        pairs = np.ascontiguousarray(pairs[:, ::-1] if inverse else pairs)
        return Question(self.graph.relations[number], pairs, heads.astype(np.int32), self.everyone)

    def model(self, relation: int) -> Scorer:
        """The model that answers about a relation, as `Linker.model_for` chooses it."""
        inverse, number = divmod(relation, len(self.graph.relations))
        if self.latest[0] != number:
            assert isinstance(self.scorer, GraphScorer)
            self.latest = number, self.scorer.without(self.graph.relations[number])
        model = self.latest[1]
        assert model is not None
        return model.inverted() if inverse and isinstance(model, RelationScorer) else model


def opened(which: Path, names: Path | None) -> Graph:
    """The known graph of a benchmark or built-in graph by its name, or a file of triples."""
    if which.exists() and which.is_file():
        return compile_graph([which], names=names, literals="keep")
    return open_graph(str(which)).known_graph


def hide(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The triples (n, 3) that stay and the ones that are hidden; every entity keeps a triple."""
    rng = generator(0, "mixing")
    triples = graph.triples()
    counts = np.bincount(triples[:, 1], minlength=len(graph.relations))
    left = graph.degrees.copy()
    hidden = np.zeros(len(triples), bool)
    for relation in rng.permutation(np.flatnonzero(counts >= FEWEST))[:RELATIONS].tolist():
        places = rng.permutation(np.flatnonzero(triples[:, 1] == relation))
        most = min(PAIRS, int(SHARE * counts[relation]))
        for place in places.tolist():
            ends = triples[place, [0, 2]]
            if hidden[triples[:, 1] == relation].sum() < most and (left[ends] > 1).all():
                hidden[place] = True
                left[ends] -= 1
    return triples[~hidden], triples[hidden]


def measure(linkers: dict[str, Linker], triples: np.ndarray, known: np.ndarray, split: str) -> dict[str, Any]:
    """MRR over queries and over relations, for each linker, and the gain of the second over the first."""
    triples = triples[np.argsort(triples[:, 1], kind="stable")]
    relations = np.tile(triples[:, 1], 2)
    found = {}
    by_relation = {}
    for name, linker in linkers.items():
        began = time.monotonic()
        ranks = rank_links(KnownRelations(linker), triples, known, split).tasks[0].ranks  # type: ignore[arg-type]
        by_relation[name] = np.array([(1 / ranks[relations == each]).mean() for each in np.unique(relations)])
        found[name] = {
            "mrr": float((1 / ranks).mean()),
            "hits@10": float((ranks <= 10).mean()),
            "over_relations": float(by_relation[name].mean()),
            "seconds": round(time.monotonic() - began, 1),
        }
        print(name, found[name], flush=True)
    first, second = by_relation.values()
    rise = estimate((second - first).tolist())
    return {
        **found,
        "gain": rise.mean,
        "error": rise.error,
        "relations": len(first),
        "queries": len(relations),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("links", "hidden"))
    parser.add_argument("name")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--names", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--split", choices=("valid", "test"), default="test")
    parser.add_argument("--run", type=Path, help="keep the run in this folder, and continue it if it exists")
    parser.add_argument("--machine", default="", help="a remark on the machine for the record")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        if words.kind == "links":
            graph, splits = read_splits(*words.files)
            rest = splits["train"]
            asked = splits[words.split]
            known = np.concatenate([*splits.values()])
        else:
            graph = opened(words.files[0], words.names)
            rest, asked = hide(graph)
            known = graph.triples()
        file = place / f"{words.name}.tsv"
        lines = ("\t".join((graph.entities[h], graph.relations[r], graph.entities[t])) for h, r, t in rest.tolist())
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        options: dict[str, Any] = {"literals": "keep"}
        if graph.labels:
            options["names"] = place / "names.tsv"
            named = (f"{entity}\t{graph.name(number)}\n" for number, entity in enumerate(graph.entities))
            options["names"].write_text("".join(named), "utf-8")
        made = fit(file, words.run or place / words.name, minutes=words.minutes, tell=print, **options)
        linkers = {"shipped": load(file, **options), "fitted": load(made.run)}
        of_fit = linkers["fitted"].graph
        to_entity = np.array([of_fit.entities.id(name) for name in graph.entities])
        to_relation = np.array([of_fit.relations.id(name) for name in graph.relations])
        asked, known = (
            np.stack([to_entity[each[:, 0]], to_relation[each[:, 1]], to_entity[each[:, 2]]], 1)
            for each in (asked, known)
        )
        facts = {
            "split": words.split if words.kind == "links" else "hidden",
            "triples": len(rest),
            "minutes": words.minutes,
            "minutes_used": round(made.seconds / 60, 1),
            "deployed": made.deployed,
            "mixed": made.mixed,
            "expected": made.figures,
            "weights": shipped().facts["sha256"],
            "machine": words.machine,
        }
        measured = measure(linkers, asked, known, words.split)
    file = RECORDS / "mixing.json"
    rows = json.loads(file.read_text("utf-8"))["results"]["rows"] if file.exists() else []
    row = {"graph": words.name, **facts, **measured}
    rows = [each for each in rows if (each["graph"], each["split"]) != (row["graph"], row["split"])]
    write_record("mixing", {"rows": [*rows, row]})


if __name__ == "__main__":
    main()
