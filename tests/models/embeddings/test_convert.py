"""Other formats: round trips, missing names, and PyKEEN state dicts read without running their code."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fewlink.core.errors import FewlinkError, InputError
from fewlink.models.embeddings import (
    Embeddings,
    from_nell_one,
    from_numpy,
    from_pykeen,
    to_numpy,
)

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)
VECTORS = arrays.arrays(np.float32, st.tuples(st.integers(1, 6), st.just(4)), elements=FLOATS)
SAME_FOLDER = hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


@given(VECTORS)
@SAME_FOLDER
def test_numpy_round_trip(tmp_path: Path, vectors: np.ndarray) -> None:
    table = Embeddings(torch.from_numpy(vectors), torch.ones(2, 4), "distmult")
    to_numpy(table, tmp_path / "e.npy", tmp_path / "r.npy")
    back = from_numpy(tmp_path / "e.npy", tmp_path / "r.npy", "distmult", inverses=True)
    assert torch.equal(back.entities, table.entities) and torch.equal(back.relations, table.relations)


def test_numpy_pickles_and_missing_files_raise(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object))
    for name in ("o.npy", "absent.npy"):
        with pytest.raises(FewlinkError, match=name):
            from_numpy(tmp_path / name, tmp_path / name, "complex")


def test_numbers_that_are_not_finite_are_refused_with_the_name(tmp_path: Path, release: Path) -> None:
    np.save(tmp_path / "e.npy", np.array([[1, 2], [np.nan, 3], [4, np.inf]], np.float32))
    np.save(tmp_path / "r.npy", np.ones((1, 2), np.float32))
    with pytest.raises(InputError, match=r"e\.npy: .*nan.*'b' and 1 more"):
        from_numpy(tmp_path / "e.npy", tmp_path / "r.npy", "distmult", entity_names=["a", "b", "c"])
    with pytest.raises(InputError, match=r"e\.npy: .*3 rows.*2 entities"):
        from_numpy(tmp_path / "e.npy", tmp_path / "r.npy", "distmult", entity_names=["a", "b"])
    (release / "entity2vec.ComplEx").write_text("1 2 3 4\n5\t6 7 8\n9 10 inf 12\n")
    with pytest.raises(InputError, match=r"entity2vec\.ComplEx: .*inf.*'a'"):
        from_nell_one(release, ["b", "a"], ["r"])
    assert from_nell_one(release, ["b", "c"], ["r"]).dim == 4


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    table = Embeddings(torch.ones(2, 4), torch.ones(2, 4), "distmult")
    with pytest.raises(FewlinkError, match=str(tmp_path / "file")):
        to_numpy(table, tmp_path / "file" / "e.npy", tmp_path / "file" / "r.npy")


def test_no_damage_of_a_state_dict_shows_a_traceback(tmp_path: Path) -> None:
    folder = folder_with_names(tmp_path / "m")
    keys = ("entity_representations.0._embeddings.weight", "relation_representations.0._embeddings.weight")
    torch.save({keys[0]: torch.ones(2, 4), keys[1]: torch.ones(1, 4)}, folder / "model.pt")
    content, rng = (folder / "model.pt").read_bytes(), np.random.default_rng(0)
    assert from_pykeen(folder, ["a", "b"], ["r"], "distmult").dim == 4
    for _ in range(300):
        damaged = bytearray(content)
        for at in rng.integers(0, len(content), rng.integers(1, 4)):
            damaged[at] = rng.integers(256)
        (folder / "model.pt").write_bytes(damaged[: len(content) if rng.random() < 0.7 else rng.integers(len(content))])
        with contextlib.suppress(FewlinkError):
            from_pykeen(folder, ["a", "b"], ["r"], "distmult")


@pytest.fixture
def release(tmp_path: Path) -> Path:
    (tmp_path / "entity2vec.ComplEx").write_text("1 2 3 4\n5\t6 7 8\n9 10 11 12\n")
    (tmp_path / "relation2vec.ComplEx").write_text("1 0 0 0\n0 1 0 0\n")
    (tmp_path / "ent2ids").write_text(json.dumps({"a": 2, "b": 0, "c": 1}))
    (tmp_path / "relation2ids").write_text(json.dumps({"r": 1, "r_inv": 0}))
    return tmp_path


def test_nell_one_text_has_the_order_of_the_names(release: Path) -> None:
    table = from_nell_one(release, ["b", "a"], ["r"])
    assert table.entities.tolist() == [[1, 2, 3, 4], [9, 10, 11, 12]]
    assert table.relations.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]


def test_nell_one_text_without_inverses_is_completed(release: Path) -> None:
    (release / "relation2ids").write_text(json.dumps({"r": 0, "s": 1}))
    (release / "relation2vec.ComplEx").write_text("1 2 3 4\n0 1 0 0\n")
    assert from_nell_one(release, ["a"], ["r"]).relations.tolist() == [[1, 2, 3, 4], [1, 2, -3, -4]]


def test_nell_one_errors_name_file_and_line(release: Path) -> None:
    with pytest.raises(FewlinkError, match=r"7 of 8 names, the first: 0, 1, 2, 3, 4$"):
        from_nell_one(release, ["a", *map(str, range(7))], ["r"])
    (release / "entity2vec.ComplEx").write_text("1 2 3 4\n5 6\n")
    with pytest.raises(FewlinkError, match="ComplEx:2: "):
        from_nell_one(release, ["a"], ["r"])
    with pytest.raises(FewlinkError, match=r"entity2vec\.TransE"):
        from_nell_one(release, ["a"], ["r"], "transe")


PYKEEN: list[tuple[str, dict[str, Any], bool]] = [
    ("ComplEx", {"embedding_dim": 4}, False),
    ("ComplEx", {"embedding_dim": 4}, True),
    ("TransE", {"embedding_dim": 4, "scoring_fct_norm": 2}, False),
    ("DistMult", {"embedding_dim": 4}, False),
    ("RESCAL", {"embedding_dim": 4}, False),
]


@pytest.mark.parametrize(("name", "options", "inverse"), PYKEEN)
def test_imported_pykeen_models_score_alike(name: str, options: dict[str, Any], inverse: bool, tmp_path: Path) -> None:
    pipeline = pytest.importorskip("pykeen.pipeline").pipeline
    result = pipeline(
        dataset="nations",
        dataset_kwargs={"create_inverse_triples": inverse},
        model=name,
        model_kwargs=options,
        training_kwargs={"num_epochs": 2, "use_tqdm": False, "batch_size": 256},
        evaluation_kwargs={"use_tqdm": False, "batch_size": 64},
        random_seed=0,
        device="cpu",
    )
    result.save_to_directory(tmp_path / "m")
    torch.save(result.model.state_dict(), tmp_path / "m" / "model.pt")
    entities, relations = (
        sorted(ids, key=ids.__getitem__) for ids in (result.training.entity_to_id, result.training.relation_to_id)
    )
    triples = torch.stack([torch.arange(14).repeat(4), torch.arange(56) % 55, torch.arange(56) % 13], dim=1)
    numbers = triples * torch.tensor([1, 2, 1]) if inverse else triples  # PyKEEN's inverse of 2r is 2r + 1
    expected = result.model.score_hrt(numbers).squeeze(1)
    norm = options.get("scoring_fct_norm")
    table = from_pykeen(tmp_path / "m", entities, relations, name.lower(), norm=norm)
    torch.testing.assert_close(table.score(*triples.T), expected)
    backwards = result.model.score_hrt_inverse(numbers.clone()).squeeze(1) if inverse else expected
    torch.testing.assert_close(table.score(triples[:, 2], triples[:, 1] + 55, triples[:, 0]), backwards)
    reversed_table = from_pykeen(tmp_path / "m", entities[::-1], relations, name.lower(), norm=norm)
    assert torch.equal(reversed_table.entities, table.entities.flip(0))


class RunsCode:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def folder_with_names(folder: Path) -> Path:
    for what, names in (("entity", "ab"), ("relation", "r")):
        place = folder / "training_triples"
        place.mkdir(parents=True, exist_ok=True)
        with gzip.open(place / f"{what}_to_id.tsv.gz", "wt") as file:
            file.write("id\tlabel\n" + "".join(f"{i}\t{n}\n" for i, n in enumerate(names)))
    return folder


def test_code_in_a_pickle_never_runs(tmp_path: Path) -> None:
    folder = folder_with_names(tmp_path / "m")
    torch.save({"model": RunsCode(tmp_path / "ran"), "weights": torch.ones(2)}, folder / "model.pt")
    with pytest.raises(InputError, match=r"model\.pt"):
        from_pykeen(folder, ["a", "b"], ["r"], "complex")
    assert not (tmp_path / "ran").exists()


def test_a_pykeen_folder_needs_one_state_dict(tmp_path: Path) -> None:
    folder = folder_with_names(tmp_path / "m")
    with pytest.raises(InputError, match="state_dict"):
        from_pykeen(folder, ["a", "b"], ["r"], "complex")
    for name in ("one.pt", "two.pt"):
        torch.save({}, folder / name)
    with pytest.raises(InputError, match=r"one\.pt, two\.pt"):
        from_pykeen(folder, ["a", "b"], ["r"], "complex")
