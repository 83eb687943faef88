"""Models: the contract of a family, the registry, and one package for each family."""

from fewlink.models.registry import (
    DEFAULT_MODEL,
    checkpoint_models,
    families,
    family_of,
    model_names,
    ready_model_names,
    shipped_models,
    trained_family,
    trained_model_names,
    training_recipe,
)

__all__ = [
    "DEFAULT_MODEL",
    "checkpoint_models",
    "families",
    "family_of",
    "model_names",
    "ready_model_names",
    "shipped_models",
    "trained_family",
    "trained_model_names",
    "training_recipe",
]
