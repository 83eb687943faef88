"""Prediction by name: ranked, calibrated and explained tails from a handful of references.

Names are loaded on first use, so that a command's help does not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewlink.core.memo import lazy_names

if TYPE_CHECKING:
    from fewlink.linker.calibration import Calibration as Calibration
    from fewlink.linker.explanation import Explanation as Explanation
    from fewlink.linker.linker import Linker as Linker
    from fewlink.linker.linker import load as load
    from fewlink.linker.measuring import calibrate as calibrate
    from fewlink.linker.measuring import write_card as write_card
    from fewlink.linker.names import Entity as Entity
    from fewlink.linker.names import Names as Names
    from fewlink.linker.predictions import Prediction as Prediction
    from fewlink.linker.predictions import Predictions as Predictions
    from fewlink.linker.query import Query as Query

_HOMES = {
    "Calibration": "calibration",
    "Entity": "names",
    "Explanation": "explanation",
    "Linker": "linker",
    "Names": "names",
    "Prediction": "predictions",
    "Predictions": "predictions",
    "Query": "query",
    "calibrate": "measuring",
    "load": "linker",
    "write_card": "measuring",
}
__all__ = [*_HOMES]
__getattr__ = lazy_names(__name__, _HOMES)
