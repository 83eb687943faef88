"""How much of what measures TRAIL is in the graphs that it was trained on, and whether it finds that more easily.

    python benchmarks/overlap.py GRAPHS

GRAPHS is a folder of graphs with an INDEX.tsv, with the folder codex-s beside it. Several graphs come from Wikidata and
share its identifiers, so a triple can be in two of them. Counts, for each graph that TRAIL is measured on, the triples
that a graph of `pretrain.POOL` contains, those between entities that one of these graphs joins by any relation, and the
same among the pairs that are asked about. Then ranks both ends of
CoDEx-S's test triples, all known pairs as references: those that the pool contains and the others, by TRAIL's built-in
weights and by ComplEx, which is trained on CoDEx-S alone. Writes records/overlap.json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.graph import Graph, compile_graph
from fewlink.models.embeddings.trainer import train
from fewlink.models.trail.shipped import shipped_scorer
from links import rank_links, read_splits
from measure import print_table, write_record
from pretrain import POOL, Links

sys.path.append(str(Path(__file__).resolve().parent.parent / "experiments"))

from common import link_settings
from unseen_graphs import hidden_relations, suite

Names = tuple[str, str, str]
Rows = list[dict[str, Any]]


def named(graph: Graph, triples: np.ndarray) -> list[Names]:
    """Triples (n, 3) by name."""
    entities = list(graph.entities)
    relations = list(graph.relations)
    return [(entities[h], relations[r], entities[t]) for h, r, t in triples.tolist()]


def pool_of(folder: Path) -> dict[str, set[Names]]:
    """The triples of each graph that TRAIL was trained on, by name."""
    graphs = {name: compile_graph([folder / f"{name}.tsv.xz"], literals="keep") for name in POOL}
    return {name: set(named(graph, graph.triples())) for name, graph in graphs.items()}


def joined(triples: Iterable[Names]) -> set[frozenset[str]]:
    """The pairs of entities that a triple joins."""
    return {frozenset((head, tail)) for head, _, tail in triples}


def counted(graph: str, part: str, triples: Iterable[Names], pool: dict[str, set[Names]]) -> dict[str, Any]:
    """How many triples the pool contains or joins by any relation, and which of its graphs contain most."""
    own = set(triples)
    shared = {name: len(own & others) for name, others in pool.items() if own & others}
    everything = set().union(*pool.values())
    pairs = joined(own) & joined(everything)
    most = {name: shared[name] for name in sorted(shared, key=lambda name: -shared[name])[:2]}
    return {
        "graph": graph,
        "part": part,
        "triples": len(own),
        "in training graphs": len(own & everything),
        "joined in training graphs": sum(frozenset((head, tail)) in pairs for head, _, tail in own),
        "most in": most,
    }


def codex_mrr(graph: Graph, splits: dict[str, np.ndarray], inside: np.ndarray) -> Rows:
    """The MRR of CoDEx-S's test triples that training graphs contain, and of the others."""
    known = np.concatenate(list(splits.values()))
    test = splits["test"]
    order = np.argsort(test[:, 1], kind="stable")
    test = test[order]
    inside = inside[order]
    entities = len(graph.entities)
    relations = len(graph.relations)
    vectors = train(splits["train"], entities, relations, link_settings("complex", entities))
    models = {"trail-built-in": Links(shipped_scorer(graph), graph), "complex": vectors}
    rows = []
    for name, model in models.items():
        for part, kept in (("in training graphs", inside), ("in none", ~inside), ("all", np.ones_like(inside))):
            found: Any = rank_links(model, test[kept], known, "test").metrics()["micro"]  # type: ignore[arg-type]
            rows.append({"model": name, "part": part, "triples": int(kept.sum()), "mrr": round(found["mrr"], 4)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    pool = pool_of(options.folder)
    rows = Rows()
    for listed in suite(options.folder):
        graph = listed.graph()
        rows.append(counted(listed.name, "all", named(graph, graph.triples()), pool))
        hidden = hidden_relations(graph, listed.name)
        asked = np.concatenate([np.insert(each.asked, 1, each.relation, axis=1) for each in hidden])
        rows.append(counted(listed.name, "asked", named(graph, asked), pool))
    codex = options.folder.parent / "codex-s"
    graph, splits = read_splits(codex / "train.tsv", codex / "valid.tsv", codex / "test.tsv")
    rows += [counted("codex-s", split, named(graph, triples), pool) for split, triples in splits.items()]
    print_table(rows)
    everything = set().union(*pool.values())
    inside = np.array([triple in everything for triple in named(graph, splits["test"])])
    mrr = codex_mrr(graph, splits, inside)
    print_table(mrr)
    write_record("overlap", {"overlap": rows, "codex-s, test": mrr})


if __name__ == "__main__":
    main()
