"""Prediction by name: ranked, calibrated and explained tails from a handful of references.

Names are loaded on first use, so that `prediction.query` is read without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewlink.base.memo import lazy_names

if TYPE_CHECKING:
    from fewlink.prediction.calibration import Calibration as Calibration
    from fewlink.prediction.card import write_card as write_card
    from fewlink.prediction.explanation import Explanation as Explanation
    from fewlink.prediction.linker import Linker as Linker
    from fewlink.prediction.names import Entity as Entity
    from fewlink.prediction.names import Names as Names
    from fewlink.prediction.opening import calibrate as calibrate
    from fewlink.prediction.opening import load as load
    from fewlink.prediction.predictions import Prediction as Prediction
    from fewlink.prediction.predictions import Predictions as Predictions

_HOMES = {
    "Calibration": "calibration",
    "Entity": "names",
    "Explanation": "explanation",
    "Linker": "linker",
    "Names": "names",
    "Prediction": "predictions",
    "Predictions": "predictions",
    "calibrate": "opening",
    "load": "opening",
    "write_card": "card",
}
__all__ = [*_HOMES]
__getattr__ = lazy_names(__name__, _HOMES)
