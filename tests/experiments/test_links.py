"""Ordinary link prediction against a literal loop."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fewlink.core.errors import InputError
from fewlink.models.embeddings import Embeddings
from links import rank_links, read_splits


def random_table(entities: int, relations: int) -> Embeddings:
    random = torch.Generator().manual_seed(0)
    tables = (torch.randint(-1, 2, (n, 4), generator=random).float() for n in (entities, 2 * relations))
    return Embeddings(*tables, "distmult")


def test_ranks_of_heads_and_tails_equal_a_literal_loop() -> None:
    rng = np.random.default_rng(0)
    known = np.unique(np.stack([rng.integers(0, n, 60) for n in (12, 3, 12)], 1), axis=0)
    triples, table = known[:15], random_table(12, 3)
    evaluation = rank_links(table, triples, np.concatenate([known, known]), "test")
    facts = {tuple(t) for t in known.tolist()}
    expected = []
    for forward in (True, False):
        for h, r, t in triples.tolist():
            head, true, row = (h, t, r) if forward else (t, h, r + 3)
            scores = table.score_all(torch.tensor([head]), torch.tensor([row]))[0].tolist()
            others = {x for x in range(12) if x != true and ((h, r, x) if forward else (x, r, t)) not in facts}
            rivals = [scores[x] for x in others]
            expected.append(1 + sum(s > scores[true] for s in rivals) + sum(s == scores[true] for s in rivals) / 2)
    assert evaluation.tasks[0].ranks.tolist() == expected


def test_triples_with_names_unknown_to_training_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("a\tr\tb\nb\tr\tc\n")
    (tmp_path / "test.tsv").write_text("a\tr\tc\na\tr\tnew\na\tq\tb\n")
    (tmp_path / "none.tsv").write_text("x\ty\tz\n")
    graph, splits = read_splits(*(tmp_path / n for n in ("train.tsv", "test.tsv", "test.tsv")))
    assert splits["test"].tolist() == [[graph.entities.id("a"), 0, graph.entities.id("c")]]
    with pytest.raises(InputError, match=r"none.tsv"):
        read_splits(*(tmp_path / n for n in ("train.tsv", "test.tsv", "none.tsv")))
