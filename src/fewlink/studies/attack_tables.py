"""Tables of stored records about links that were added later: by relation, of probabilities, and of the links found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fewlink.evaluation.ranks import read_ranks
from fewlink.evaluation.records import Record, RecordStore
from fewlink.models.published import PUBLISHED
from fewlink.studies.later_links import ALL, BUILT_IN, CHANCES, FIRST, NAME, SURE, frozen_attack
from fewlink.studies.tables import Table, figure
from fewlink.tasks.carving import FrozenGraph

PREDECESSOR = "trail-0.2-without-attack"
ORDER = ("popularity", "rules", "complex", "ultra", "trix", PREDECESSOR, "trail-0.2-shipped", BUILT_IN)
MIN_LINKS_FOR_COLUMN = 50  # later links of a relation
MAX_LINKS_SHOWN = 15


def stored_tables(store: RecordStore, shots: Iterable[int], frozen: FrozenGraph) -> list[Table]:
    """A table for each number of references, one of probabilities, and one of the links that were found."""
    records = [r for r in store.records if r.benchmark == NAME and r.data_sha256 == frozen.fingerprint]
    records.sort(key=lambda r: _place(r.model))
    by_relation = [relations_table(records, count, frozen) for count in (*shots, ALL)]
    others = [probabilities_table(records), links_table(store)]
    return [*by_relation, *(table for table in others if table.rows)]


def _place(model: str) -> int:
    """The position of a model in tables; models that are not in ORDER come last."""
    name = next((kind for kind in PUBLISHED if model.startswith(kind)), model)
    return ORDER.index(name) if name in ORDER else len(ORDER)


def relations_table(records: list[Record], shots: int, frozen: FrozenGraph) -> Table:
    """MRR and recall@20 of each model, for all links and for each relation with enough of them."""
    sizes = {relation: len(pairs) for relation, pairs in frozen.later.items() if len(pairs) >= MIN_LINKS_FOR_COLUMN}
    large = sorted(sizes, key=lambda relation: -sizes[relation])
    columns = [f"all {sum(map(len, frozen.later.values()))}"]
    columns += [f"{relation.replace('_', ' ')} {sizes[relation]}" for relation in large]
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.shots == shots:
            groups.setdefault(record.model, []).append(record)
    rows = []
    for model, each in groups.items():
        cells = []
        for relation in ["", *large]:
            draws = [r.relations[relation] if relation else r.metrics["micro"] for r in each]
            means = [float(np.mean([draw[metric] for draw in draws])) for metric in ("mrr", f"recall@{FIRST}")]
            cells.append(" · ".join(map(figure, means)))
        rows.append([model, *cells])
    title = f"{shots} references, relation hidden" if shots else "all known pairs, relation in the graph"
    mean_of = "mean of" if shots else "for trail-0.2, which reads 16 pairs, the mean of"
    draw_count = max(map(len, groups.values()), default=0)
    note = f"MRR · recall@{FIRST}"
    if draw_count > 1:
        note += f"; {mean_of} {draw_count} draws of references"
    return Table(title, ["model", *columns], rows, note)


def probabilities_table(records: list[Record]) -> Table:
    """The reliability of the probabilities of answers, over the draws of references."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        rows = [row for row in record.relations.values() if "sure" in row]
        groups.setdefault((record.model, record.shots), []).extend(rows)
    cells = []
    for (model, shots), rows in groups.items():
        if rows:
            sure, sure_right, first, right, expected = (sum(row[key] for row in rows) for key in CHANCES)
            share_right = figure(right / first) if first else ""
            mean_probability = figure(expected / first) if first else ""
            counts = [f"{sure:.0f}", f"{sure_right:.0f}", f"{first:.0f}"]
            cells.append([model, str(shots), *counts, share_right, mean_probability])
    sure_name = f"answers with p ≥ {SURE:g}"
    columns = ["model", "K", sure_name, "of them right", "first answers with a p", "right", "mean p"]
    note = "right: in ATT&CK at the end of 2023 (hidden from the model) or added later; others may still be added"
    return Table("probabilities", columns, cells, note)


class FoundLink(NamedTuple):
    """A link that was added later, and its rank."""

    relation: str
    head: str
    tail: str
    day: str
    rank: float


def found_links(store: RecordStore, model: str = BUILT_IN, shots: int = ALL) -> list[FoundLink]:
    """The later links with their ranks in a stored record with the first draw of references, best first."""
    frozen = frozen_attack()
    for file, record in store.places:
        same = (record.benchmark, record.model, record.shots) == (NAME, model, shots)
        if same and record.references in ("draw-1", "all") and (ranks := read_ranks(file, record)) is not None:
            split_ranks = np.split(ranks.ranks, np.cumsum(ranks.counts)[:-1])
            ranks_of = dict(zip(ranks.relations, split_ranks, strict=True))
            links = [
                FoundLink(relation, frozen.graph.name(head), frozen.graph.name(tail), day, rank)
                for relation in ranks.relations
                for (head, tail), day, rank in zip(
                    frozen.later[relation].tolist(), frozen.days[relation], ranks_of[relation].tolist(), strict=True
                )
            ]
            return sorted(links, key=lambda link: (link.rank, link.day, link.head, link.tail))
    return []


def links_table(store: RecordStore) -> Table:
    """The best-ranked later links with their names, one for each head, of weights that never saw ATT&CK."""
    measured = {record.model for record in store.records}
    model = BUILT_IN if BUILT_IN in measured else PREDECESSOR
    links = found_links(store, model)
    heads: set[str] = set()
    rows: list[list[str]] = []
    for link in links:
        if link.head not in heads and len(rows) < MAX_LINKS_SHOWN:
            rows.append([link.day, link.head, link.relation.replace("_", " "), link.tail, f"{link.rank:g}"])
            heads.add(link.head)
    shares = ", ".join(f"{sum(link.rank <= k for link in links)} in the first {k}" for k in (5, 20, 100))
    first = sum(link.rank == 1 for link in links)
    note = f"of {len(links)} links: {first} first, {shares}" if links else ""
    columns = ["added on", "head", "relation", "tail", "rank"]
    return Table(f"links found by {model}, relation in the graph", columns, rows, note)
