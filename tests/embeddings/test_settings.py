"""Errors of settings name the wrong field and the allowed values."""

from __future__ import annotations

from typing import Any

import pytest

from fewlink.core.errors import FewlinkError
from fewlink.embeddings import EmbeddingSettings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "complx"}, "did you mean 'complex'"),
        ({"dim": 99}, "dim is 99"),
        ({"dim": 10.5}, "dim is 10.5: it must be a whole number"),
        ({"regime": "one-vs-al"}, "unknown regime"),
        ({"loss": "margin", "regime": "one-vs-all"}, "softmax when regime is one-vs-all"),
        ({"loss": "margin", "regime": "k-vs-all"}, "softmax when regime is k-vs-all"),
        ({"corrupt": "each", "regime": "one-vs-all"}, "shared when regime is one-vs-all"),
        ({"negatives": 0}, "negatives is 0: it must be at least 1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"n3": -0.1}, "n3 is -0.1"),
        ({"held_out": 0.9}, "between 0 and 0.5"),
        ({"norm": 3}, "1 or 2"),
        ({"device": "gpu"}, "cpu, cuda or cuda:N"),
        ({"device": "cuda:"}, "cpu, cuda or cuda:N"),
        ({"device": "cuda:²"}, "cpu, cuda or cuda:N"),
        ({"mixed_precision": True}, "cuda device"),
        ({"mixed_precision": 1}, "true or false"),
        ({"learning_rat": 0.1}, "did you mean 'learning_rate'"),
    ],
)
def test_invalid_values_raise(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FewlinkError, match=message):
        EmbeddingSettings.from_dict(values)


def test_round_trip() -> None:
    settings = EmbeddingSettings(model="transe", dim=7, schedule="cosine")
    assert EmbeddingSettings.from_dict(settings.as_dict()) == settings


def test_schedules_by_hand() -> None:
    rates = {
        name: [EmbeddingSettings(schedule=name, learning_rate=2.0).rate_at(s, 4) for s in (0, 2, 4)]
        for name in ("constant", "linear", "cosine")
    }
    assert rates["constant"] == [2, 2, 2]
    assert rates["linear"] == [2, 1, 0]
    assert rates["cosine"] == pytest.approx([2, 1, 0])
