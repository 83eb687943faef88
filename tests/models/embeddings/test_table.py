"""Scores from tables, tables on disk, and errors for tables of another graph."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fewlink.core.errors import FewlinkError
from fewlink.models.embeddings import Embeddings, interaction


def table(model: str = "complex", dim: int = 4) -> Embeddings:
    random = torch.Generator().manual_seed(0)
    width = interaction(model).relation_width(dim)
    return Embeddings(
        torch.randn(5, dim, generator=random), torch.randn(4, width, generator=random), model, facts={"a": 1}
    )


@pytest.mark.parametrize("model", ["rescal", "transe", "distmult", "complex"])
def test_scores_of_many_equal_single_comparisons(model: str) -> None:
    vectors = table(model)
    heads, relations, candidates = torch.tensor([0, 3]), torch.tensor([1, 2]), torch.tensor([4, 0, 2])
    queries = vectors.queries(heads, relations)
    expected = torch.stack([vectors.interaction.compare(queries, vectors.entities[c]) for c in candidates], dim=1)
    torch.testing.assert_close(vectors.score_all(heads, relations, candidates), expected)
    assert vectors.score_all(heads, relations).shape == (2, 5)


def test_round_trip_and_a_table_of_another_graph(tmp_path: Path) -> None:
    vectors = table()
    vectors.save(tmp_path / "t", "abc", graph="umls", relation_names=["r", "s"])
    back = Embeddings.open(tmp_path / "t", "abc")
    assert torch.equal(back.entities, vectors.entities) and torch.equal(back.relations, vectors.relations)
    assert (back.model, back.norm, back.facts) == ("complex", 2, {"a": 1})
    Embeddings.open(tmp_path / "t")
    with pytest.raises(FewlinkError, match=r"umls.*abc.*xyz"):
        Embeddings.open(tmp_path / "t", "xyz")


def test_wrong_shapes_raise(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match="inverse"):
        Embeddings(torch.zeros(3, 4), torch.zeros(3, 4), "complex")
    with pytest.raises(FewlinkError, match="16"):
        Embeddings(torch.zeros(2, 4), torch.zeros(2, 4), "rescal")
