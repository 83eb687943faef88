"""Training settings are the paper's, say which field is wrong, and are changed by name."""

from __future__ import annotations

from typing import Any

import pytest

from fewlink.core.errors import FewlinkError
from fewlink.models.fsrl.model import FewShotSettings


def test_the_defaults_are_the_papers() -> None:
    settings = FewShotSettings()
    assert (settings.model, settings.margin, settings.reconstruction, settings.negatives) == ("fsrl", 5.0, 1e-4, 1)
    assert (settings.neighbours, settings.matching_steps, settings.loss) == (30, 2, "hinge")
    assert (settings.relations, settings.shared_negatives, settings.smallest_range) == (1, False, 0)
    assert (settings.embedding_rate, settings.dropout, settings.temperature) == (0, 0, 1)
    assert not (settings.standardise or settings.mixed_precision)
    rates = [settings.learning_rate * settings.decay_at(step) for step in (0, 9_999, 10_000, 19_999, 20_000)]
    assert rates == pytest.approx([1e-3, 1e-3, 2.5e-4, 2.5e-4, 6.25e-5])


def test_the_decay_has_an_end() -> None:
    once, never = FewShotSettings(decay=0.5, decay_every=3, decays=1), FewShotSettings(decays=0)
    assert [once.decay_at(step) for step in range(9)] == [1.0] * 3 + [0.5] * 6
    assert never.decay_at(10**6) == 1.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "fsrll"}, "did you mean 'fsrl'"),
        ({"shots": 0}, "shots is 0: it must be at least 1"),
        ({"batch": 1.5}, "batch is 1.5: it must be a whole number"),
        ({"steps": True}, "steps is True: it must be a whole number"),
        ({"loss": "hing"}, "did you mean 'hinge'"),
        ({"neighbour_rule": "last"}, "unknown neighbour_rule"),
        ({"evaluate_candidates": "open"}, "Choices: full, paper"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"decay": 1.5}, "decay is 1.5: it must be 1 or less"),
        ({"clip": -1}, "clip is -1: it must be a finite number, 0 or more"),
        ({"relations": 0}, "relations is 0: it must be at least 1"),
        ({"shared_negatives": 1}, "shared_negatives is 1: it must be true or false"),
        ({"smallest_range": -1}, "smallest_range is -1: it must be a finite number, 0 or more"),
        ({"decays": -1}, "decays is -1: it must be a finite number, 0 or more"),
        ({"embedding_rate": -0.1}, "embedding_rate is -0.1"),
        ({"embedding_rate": float("nan")}, "embedding_rate is nan"),
        ({"temperature": 0.0}, "temperature is 0.0: it must be a finite number over 0"),
        ({"dropout": 1.0}, "dropout is 1.0: it must be 0 or more and less than 1"),
        ({"dropout": float("nan")}, "dropout is nan"),
        ({"standardise": "yes"}, "standardise is 'yes': it must be true or false"),
        ({"mixed_precision": 1}, "mixed_precision is 1: it must be true or false"),
        ({"device": "gpu"}, "cpu, cuda or cuda:N"),
        ({"learning_rat": 0.1}, "did you mean 'learning_rate'"),
    ],
)
def test_refusals(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FewlinkError, match=message):
        FewShotSettings.from_dict(values)


def test_round_trip_and_changes() -> None:
    settings = FewShotSettings(model="gmatching-max", shots=5).adjusted(["steps=7", "margin=2", "loss=softmax"])
    assert (settings.shots, settings.steps, settings.margin, settings.loss) == (5, 7, 2.0, "softmax")
    more = settings.adjusted(["relations=4", "shared_negatives=true", "dropout=0.3", "embedding_rate=1e-4"])
    assert (more.relations, more.shared_negatives, more.dropout, more.embedding_rate) == (4, True, 0.3, 1e-4)
    assert FewShotSettings.from_dict(settings.as_dict()) == settings
    for change, message in (("steps", "name=value"), ("steps=x", "of type int"), ("step=3", "did you mean 'steps'")):
        with pytest.raises(FewlinkError, match=message):
            settings.adjusted([change])
