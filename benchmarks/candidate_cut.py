"""What is lost where only some candidates are ranked, as in large graphs: hidden tails that are left out, and MRR.

python benchmarks/candidate_cut.py FOLDER NAME … [--relations 10] [--heads 20] [--references 3 30] [--shares .1 .03 .01]

Of a large graph, the entities of the rarest types and relations of the references' tails are ranked, at most 500,000:
a tenth of 5 million entities, a hundredth of 50 million. Graphs that no model may be trained on are too small for that,
so a share of their entities takes its place. Relations are hidden in turn. `found` is the share of asked tails among
the candidates, `MRR` that of TRAIL, where a tail that is not among them counts as not found. Tails of the references
are always candidates: `found, new` and `new` are the same share, and the number, of asked tails that are none of these.
Writes records/candidate-cut.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.models.contract import Question, realistic_rank
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.shipped import shipped_scorer
from fewlink.tasks.candidates import of_rare_kinds, open_candidates
from measure import print_table, write_record

sys.path.append(str(Path(__file__).resolve().parent.parent / "experiments"))

from unseen_graphs import Hidden, hidden_relations, suite

WHOLE = 1.0  # the share without a cut


def measured(scorer: TrailScorer, hidden: Hidden, count: int, heads: int, shares: list[float]) -> list[dict[str, Any]]:
    """For each share: whether each asked tail is a candidate (q,), one over its rank (q,), whether it is new (q,)."""
    references = hidden.pool[:count]
    asked = hidden.asked[:heads]
    graph = scorer.graph.graph
    every = open_candidates(graph, references)
    scores = scorer(Question("", references, asked[:, 0], every)).numpy()
    rows = []
    for share in shares:
        most = int(share * len(graph.entities))
        kept = every if share == WHOLE else of_rare_kinds(graph, np.unique(references[:, 1]), most)
        inside = np.isin(every, kept)
        gains = np.zeros(len(asked))
        for place, (head, tail) in enumerate(asked.tolist()):
            known = hidden.task.pairs[hidden.task.pairs[:, 0] == head, 1]
            rivals = scores[place][inside & ~np.isin(every, known)]
            own = scores[place][inside & (every == tail)]
            if len(own):
                gains[place] = 1 / realistic_rank((rivals > own).sum(), (rivals == own).sum())
        new = ~np.isin(asked[:, 1], references[:, 1])
        rows.append({"found": np.isin(asked[:, 1], kept), "gains": gains, "new": new, "candidates": len(kept)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--relations", type=int, default=10)
    parser.add_argument("--heads", type=int, default=20)
    parser.add_argument("--references", type=int, nargs="+", default=[3, 30])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.03, 0.01])
    options = parser.parse_args()
    shares = [WHOLE, *options.shares]
    rows = list[dict[str, Any]]()
    for listed in suite(options.folder, options.graphs):
        graph = listed.graph()
        scorer = shipped_scorer(graph)
        relations = hidden_relations(graph, listed.name)[: options.relations]
        without = [(scorer.without(hidden.name), hidden) for hidden in relations]
        for count in options.references:
            found = [measured(own, hidden, count, options.heads, shares) for own, hidden in without]
            for share, of_share in zip(shares, zip(*found, strict=True), strict=True):
                new, inside = (np.concatenate([each[name] for each in of_share]) for name in ("new", "found"))
                rows.append(
                    {
                        "graph": listed.name,
                        "entities": len(graph.entities),
                        "references": count,
                        "share": share,
                        "relations": len(relations),
                        "candidates": float(np.mean([each["candidates"] for each in of_share])),
                        "found": float(np.mean([each["found"].mean() for each in of_share])),
                        "MRR": float(np.mean([each["gains"].mean() for each in of_share])),
                        "found, new": float(inside[new].mean()) if new.any() else None,
                        "new": int(new.sum()),
                    }
                )
        print_table(rows[-len(shares) * len(options.references) :])
    print_table(rows)
    write_record("candidate-cut", {"load": os.getloadavg()[0], "rows": rows})


if __name__ == "__main__":
    main()
