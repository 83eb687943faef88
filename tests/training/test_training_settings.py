"""The settings of the models: the paper's defaults, valid values, descriptions."""

from __future__ import annotations

from typing import Any

import pytest

from fewlink.core.errors import FewlinkError
from fewlink.models import families
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.metar.settings import MetaRSettings
from fewlink.models.trail.settings import TrailSettings


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
    "values",
    [
        {"model": "fsrll"},
        {"shots": 0},
        {"evaluate_candidates": "open"},
        {"decay": 1.5},
        {"clip": -1},
        {"smallest_range": -1},
        {"temperature": 0.0},
        {"dropout": 1.0},
    ],
)
def test_invalid_values_are_refused_by_name(values: dict[str, Any]) -> None:
    with pytest.raises(FewlinkError, match=next(iter(values))):
        FewShotSettings(**values)


@pytest.mark.parametrize("family", ["fewshot", "metar", "trail", "ultra", "embedding"])
def test_every_setting_has_a_description(family: str) -> None:
    kind = families()[family].settings
    assert kind is not None and [name for name, field in kind.model_fields.items() if not field.description] == []


def test_settings_that_depend_on_each_other() -> None:
    for make, field in (
        (lambda: TrailSettings(queries=2000), "candidates"),
        (lambda: MetaRSettings(model="metr"), "metr"),
    ):
        with pytest.raises(FewlinkError, match=field):
            make()
