"""Prediction by name: ranked, calibrated and explained tails from a handful of references."""

from fewlink.prediction.calibration import Calibration
from fewlink.prediction.card import write_card
from fewlink.prediction.explanation import Explanation
from fewlink.prediction.linker import Linker, calibrate, load
from fewlink.prediction.names import Entity, Names
from fewlink.prediction.predictions import Prediction, Predictions

__all__ = [
    "Calibration",
    "Entity",
    "Explanation",
    "Linker",
    "Names",
    "Prediction",
    "Predictions",
    "calibrate",
    "load",
    "write_card",
]
