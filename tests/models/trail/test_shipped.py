"""The weights that come with fewlink: their file, a file from a run, and damaged files."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from tests.conftest import graph_of

from fewlink.core.errors import InputError
from fewlink.evaluation import Protocol, evaluate
from fewlink.models import shipped_models
from fewlink.models.contract import Question
from fewlink.models.trail.built_in import CHECKSUMS, built_in_file
from fewlink.models.trail.network import Shape, TrailNetwork
from fewlink.models.trail.shipped import (
    FORMAT,
    METADATA,
    read_weights,
    shipped,
    shipped_scorer,
    write_weights,
)
from fewlink.tasks import open_benchmark

BUILT_IN = files("fewlink") / "builtin"
SMALL = Shape(width=8, layers=2, relation_layers=1)


def test_the_file_is_small_and_known_by_its_sha256() -> None:
    content = (BUILT_IN / "trail.safetensors").read_bytes()
    assert len(content) < 1_000_000
    weights, facts = shipped()
    assert (facts["file"], facts["sha256"]) == ("trail.safetensors", hashlib.sha256(content).hexdigest())
    assert facts["version"] and Shape(**facts["shape"]) == shipped().shape
    assert facts["sha256"] in (BUILT_IN / "trail.md").read_text("utf-8")
    assert weights.keys() == TrailNetwork(shipped().shape).state_dict().keys()


def test_they_score_any_graph() -> None:
    rows = [f"p{i} lives c{i % 3}" for i in range(9)] + [f"c{i} in n{i % 2}" for i in range(3)]
    graph = graph_of(*rows)
    heads, candidates = np.array([graph.entities.id("p2")]), np.arange(len(graph.entities), dtype=np.int32)
    references = np.array([[graph.entities.id("p0"), graph.entities.id("n0")]])
    scores = shipped_scorer(graph)(Question("", references, heads, candidates))
    assert scores.shape == (1, len(candidates)) and scores.isfinite().all()


def test_they_do_better_than_rules_without_training() -> None:
    benchmark, protocol = open_benchmark("umls"), Protocol("dev", 3, "full")
    prepared = shipped_models()["trail"].shipped("trail", benchmark, "cpu")
    assert prepared.scorer.name == "trail-built-in" and prepared.config == {"weights": shipped().facts}
    found = evaluate(benchmark, prepared.scorer, protocol).metrics()["micro"]["mrr"]
    assert found > 0.25  # rules: 0.20


@pytest.mark.parametrize("name", sorted(CHECKSUMS))
def test_built_in_files_are_compared_with_their_checksums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert built_in_file(name)
    monkeypatch.setitem(CHECKSUMS, name, "0" * 64)
    with pytest.raises(InputError, match=f"{name}: is damaged .*: install fewlink again"):
        built_in_file(name)


def test_a_damaged_file_raises(tmp_path: Path) -> None:
    weights = TrailNetwork(SMALL).state_dict()
    content = write_weights(tmp_path / "file", weights, SMALL).read_bytes()
    assert read_weights(content, "file").shape == SMALL
    assert write_weights(tmp_path / "again", weights, SMALL).read_bytes() == content
    facts = {"format": FORMAT, "version": "1", "shape": {"width": 8, "layers": 2, "relation_layers": 1}}

    def saved(tensors: dict[str, torch.Tensor], **changes: object) -> bytes:
        return save(tensors, {METADATA: json.dumps({**facts, **changes})})

    damaged = {
        "cut off": content[:-1],
        "empty": b"",
        "no shape": saved(weights, shape=None),
        "shape of another": saved(weights, shape={"width": 16}),
        "not JSON": save(weights, {METADATA: "1.x"}),
        "other JSON": save(weights, {METADATA: "[]"}),
        "too few": saved({"last.bias": weights["last.bias"]}),
    }
    for what, wrong in damaged.items():
        with pytest.raises(InputError, match=r"file: is damaged .*: install fewlink again") as error:
            read_weights(wrong, "file")
        assert "\n" not in str(error.value), what
    others = {
        f"this version of fewlink reads '{FORMAT}'": save(weights),
        "newer version of fewlink": saved(weights, format="fewlink-trail/3"),
    }
    for words, other in others.items():
        with pytest.raises(InputError, match=re.escape(words)):
            read_weights(other, "file")
