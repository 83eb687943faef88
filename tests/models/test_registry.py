"""The names of built-in models, which commands check without torch, are those of the families."""

from __future__ import annotations

import subprocess
import sys

from fewlink.models.registry import (
    BUILT_IN,
    checkpoint_models,
    families,
    has_plugins,
    ready_model_names,
    shipped_models,
    trained_model_names,
)


def test_the_listed_names_are_those_of_the_families() -> None:
    assert not has_plugins()
    assert {name: tuple(family.models) for name, family in families().items()} == {
        name: each.models for name, each in BUILT_IN.items()
    }
    trained = {model for family in families().values() if family.settings is not None for model in family.models}
    assert trained == {*trained_model_names()}
    baselines = {model for name in ("learning-free", "embedding") for model in families()[name].models}
    assert {*ready_model_names()} == baselines | {*shipped_models()} | {*checkpoint_models()}


def test_names_are_known_without_torch() -> None:
    code = "import sys, fewlink.models, fewlink.cli; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
