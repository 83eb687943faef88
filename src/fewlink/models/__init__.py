"""Few-shot models: neighbour encoders, reference-set aggregators and matchers, and what is composed of them."""

from fewlink.models.catalogue import MODELS, Composition, build
from fewlink.models.fewshot import FewShotModel, FewShotScorer
from fewlink.models.surroundings import Surroundings, check_fits

__all__ = ["MODELS", "Composition", "FewShotModel", "FewShotScorer", "Surroundings", "build", "check_fits"]
