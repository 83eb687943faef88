"""Prediction by name: ranked, calibrated and explained tails from a handful of references.

Names are loaded on first use, so that a command's help does not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewlink.core.memo import lazy_names

if TYPE_CHECKING:
    from fewlink.linker.linker import Linker as Linker
    from fewlink.linker.linker import load as load
    from fewlink.linker.names import Entity as Entity
    from fewlink.linker.names import Names as Names
    from fewlink.linker.predictions import Prediction as Prediction
    from fewlink.linker.predictions import Predictions as Predictions
    from fewlink.linker.probability import Calibration as Calibration
    from fewlink.linker.query import Query as Query
    from fewlink.linker.reasons import Explanation as Explanation

_HOMES = {
    "Calibration": "probability",
    "Entity": "names",
    "Explanation": "reasons",
    "Linker": "linker",
    "Names": "names",
    "Prediction": "predictions",
    "Predictions": "predictions",
    "Query": "query",
    "load": "linker",
}
__all__ = [*_HOMES]
__getattr__ = lazy_names(__name__, _HOMES)
