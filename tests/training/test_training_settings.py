"""The settings of the models: the paper's defaults, valid values, descriptions."""

from __future__ import annotations

from typing import Any

import pytest

from fewlink.core.errors import FewlinkError
from fewlink.models import families
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.gana.settings import GANASettings
from fewlink.models.metar.settings import MetaRSettings
from fewlink.models.settings import ModelSettings
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
    once = FewShotSettings(decay=0.5, decay_every=3, decays=1)
    assert [once.decay_at(step) for step in (0, 2, 3, 8)] == [1.0, 1.0, 0.5, 0.5]
    assert FewShotSettings(decays=0).decay_at(10**6) == 1.0


@pytest.mark.parametrize(
    ("kind", "values", "token"),
    [
        (FewShotSettings, {"model": "fsrll"}, "model"),
        (FewShotSettings, {"shots": 0}, "shots"),
        (FewShotSettings, {"evaluate_candidates": "open"}, "evaluate_candidates"),
        (FewShotSettings, {"decay": 1.5}, "decay"),
        (FewShotSettings, {"clip": -1}, "clip"),
        (FewShotSettings, {"smallest_range": -1}, "smallest_range"),
        (FewShotSettings, {"temperature": 0.0}, "temperature"),
        (FewShotSettings, {"dropout": 1.0}, "dropout"),
        (MetaRSettings, {"beta": -1.0}, "beta"),
        (MetaRSettings, {"dropout": 1.0}, "dropout"),
        (MetaRSettings, {"start": "zero"}, "start"),
        (MetaRSettings, {"model": "metr"}, "model"),
        (MetaRSettings, {"model": "gana"}, "gana"),
        (GANASettings, {"layers": 0}, "layers"),
        (GANASettings, {"dropout": 1.0}, "dropout"),
        (TrailSettings, {"queries": 2000}, "candidates"),
    ],
)
def test_invalid_values_are_refused_by_name(kind: type[ModelSettings], values: dict[str, Any], token: str) -> None:
    with pytest.raises(FewlinkError, match=token):
        kind(**values)


@pytest.mark.parametrize("family", ["fewshot", "metar", "gana", "trail", "ultra", "embedding"])
def test_every_setting_has_a_description(family: str) -> None:
    kind = families()[family].settings
    assert kind is not None and [name for name, field in kind.model_fields.items() if not field.description] == []
