"""Scores from tables, tables on disk, and errors for tables of another graph."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from fewlink.core.errors import FewlinkError
from fewlink.models.embeddings import Embeddings, interaction
from fewlink.models.embeddings.table import save_tensors


def table(model: str = "complex", dim: int = 4) -> Embeddings:
    random = torch.Generator().manual_seed(0)
    width = interaction(model).relation_width(dim)
    return Embeddings(
        torch.randn(5, dim, generator=random), torch.randn(4, width, generator=random), model, facts={"a": 1}
    )


@pytest.mark.parametrize("model", ["rescal", "transe", "distmult", "complex"])
def test_score_all_equals_score(model: str) -> None:
    vectors = table(model)
    heads, relations, candidates = torch.tensor([0, 3]), torch.tensor([1, 2]), torch.tensor([4, 0, 2])
    expected = torch.stack([vectors.score(heads, relations, c.expand(2)) for c in candidates], dim=1)
    torch.testing.assert_close(vectors.score_all(heads, relations, candidates), expected)
    assert vectors.score_all(heads, relations).shape == (2, 5)


def test_round_trip_and_a_table_of_another_graph(tmp_path: Path) -> None:
    vectors = table()
    vectors.save(tmp_path / "t", "abc", graph="umls", entity_names=list("abcde"), relation_names=["r", "s"])
    back = Embeddings.open(tmp_path / "t", "abc")
    assert torch.equal(back.entities, vectors.entities) and torch.equal(back.relations, vectors.relations)
    assert (back.model, back.norm, back.facts) == ("complex", 2, {"a": 1})
    Embeddings.open(tmp_path / "t")
    with pytest.raises(FewlinkError, match=r"umls.*abc.*xyz"):
        Embeddings.open(tmp_path / "t", "xyz")


def test_weights_have_the_permissions_of_other_files(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        table().save(tmp_path / "t", "abc")
        save_tensors({"a": torch.zeros(2)}, tmp_path / "a.safetensors")
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644} and len(files) == 5


def test_a_file_of_tensors_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tensors({"a": torch.zeros(2)}, tmp_path / "a.safetensors")
    before = (tmp_path / "a.safetensors").read_bytes()

    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("fewlink.models.embeddings.table.save_file", full)
    with pytest.raises(FewlinkError, match=r"a.safetensors .*No space left on device"):
        save_tensors({"a": torch.ones(2)}, tmp_path / "a.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_wrong_shapes_raise(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match="inverse"):
        Embeddings(torch.zeros(3, 4), torch.zeros(3, 4), "complex")
    with pytest.raises(FewlinkError, match="4 names for 5 entities"):
        table().save(tmp_path / "t", "abc", entity_names=list("abcd"))
    assert not (tmp_path / "t").exists()
