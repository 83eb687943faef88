"""Prediction for people: names in, ranked, calibrated and explained tails out."""

from fewlink.prediction.answers import Prediction, Predictions
from fewlink.prediction.calibration import Calibration, calibrate
from fewlink.prediction.card import write_card
from fewlink.prediction.explanation import Explanation
from fewlink.prediction.fitting import Fitted, fit
from fewlink.prediction.linker import Linker, load
from fewlink.prediction.names import Match, Names

__all__ = [
    "Calibration",
    "Explanation",
    "Fitted",
    "Linker",
    "Match",
    "Names",
    "Prediction",
    "Predictions",
    "calibrate",
    "fit",
    "load",
    "write_card",
]
