"""Errors of settings name the wrong field and the allowed values."""

from __future__ import annotations

from typing import Any

import pytest

from fewlink.core.errors import FewlinkError
from fewlink.models.embeddings import EmbeddingSettings


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"model": "complx"}, "complex"),
        ({"dim": 99}, "dim"),
        ({"dim": 10.5}, "dim"),
        ({"regime": "one-vs-al"}, "regime"),
        ({"negatives": 0}, "negatives"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"n3": -0.1}, "n3"),
        ({"norm": 3}, "norm"),
        ({"device": "gpu"}, "device"),
        ({"device": "cuda:"}, "device"),
        ({"device": "cuda:²"}, "device"),
        ({"mixed_precision": True}, "mixed_precision"),
        ({"learning_rat": 0.1}, "learning_rate"),
    ],
)
def test_invalid_values_raise(values: dict[str, Any], field: str) -> None:
    with pytest.raises(FewlinkError, match=field):
        EmbeddingSettings(**values)


def test_schedules_by_hand() -> None:
    rates = {
        name: [EmbeddingSettings(schedule=name, learning_rate=2.0).rate_at(s, 4) for s in (0, 2, 4)]
        for name in ("constant", "linear")
    }
    assert rates["constant"] == [2, 2, 2]
    assert rates["linear"] == [2, 1, 0]
