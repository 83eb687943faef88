"""Settings of embeddings: valid values, and the schedules of the learning rate."""

from __future__ import annotations

from typing import Any

import pytest

from fewlink.core.errors import FewlinkError
from fewlink.embeddings import EmbeddingSettings


@pytest.mark.parametrize(
    "values",
    [
        {"model": "complx"},
        {"dim": 99},
        {"dim": 10.5},
        {"regime": "one-vs-al"},
        {"loss": "margin", "regime": "one-vs-all"},
        {"loss": "margin", "regime": "k-vs-all"},
        {"corrupt": "each", "regime": "one-vs-all"},
        {"negatives": 0},
        {"learning_rate": float("nan")},
        {"n3": -0.1},
        {"held_out": 0.9},
        {"norm": 3},
        {"device": "cuda:²"},
        {"mixed_precision": True},
    ],
)
def test_invalid_values_are_refused_by_name(values: dict[str, Any]) -> None:
    with pytest.raises(FewlinkError, match=next(iter(values))):
        EmbeddingSettings(**values)


def test_the_dimension_fits_the_model() -> None:
    assert EmbeddingSettings(model="transe", dim=7).dim == 7


def test_schedules_by_hand() -> None:
    rates = {
        name: [EmbeddingSettings(schedule=name, learning_rate=2.0).rate_at(s, 4) for s in (0, 2, 4)]
        for name in ("constant", "linear", "cosine")
    }
    assert rates["constant"] == [2, 2, 2]
    assert rates["linear"] == [2, 1, 0]
    assert rates["cosine"] == pytest.approx([2, 1, 0])
