"""Few-shot models: neighbour encoders, reference-set aggregators and matchers, and what is composed of them; TRAIL."""

from fewlink.models.catalogue import MODELS, Composition, build
from fewlink.models.fewshot import FewShotModel, FewShotScorer
from fewlink.models.known import Known
from fewlink.models.surroundings import Surroundings, check_fits
from fewlink.models.trail import TRAILS, Trail, build_trail
from fewlink.models.trail_scorer import Reasons, TrailScorer

__all__ = [
    "MODELS",
    "TRAILS",
    "Composition",
    "FewShotModel",
    "FewShotScorer",
    "Known",
    "Reasons",
    "Surroundings",
    "Trail",
    "TrailScorer",
    "build",
    "build_trail",
    "check_fits",
]
