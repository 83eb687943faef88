"""The weight of names beside the graph: a small learnt function of the evidence in the references' names.

score = TRAIL's score + r^1.5 · Σ w·column + s^1.5 · v·column. The first columns compare a candidate's name with the
head's, and r says how well the references' tails are found by likeness to their heads (`by_head`); the last one
compares it with those of the references' tails, and s says how well these are found by likeness to each other
(`by_tails`). No weight is negative: where the names of the references say nothing, r and s are 0 and the score is
TRAIL's. The weights are learnt with the softmax loss that TRAIL is trained with, so that the sum is a logit again.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fewlink import __version__
from fewlink.core.errors import InputError
from fewlink.core.storage import with_sha256, without_sha256, write_json
from fewlink.models.names.columns import COLUMNS, OF_HEAD, ReferenceNames

FORMAT = "fewlink-names/1"
BUILT_IN = "names.json"
POWER = 1.5  # of r and s, so that names that are sometimes found by chance count little


@dataclass(frozen=True)
class Gate:
    """`weights` (COLUMNS,): w and v; `facts`: how they were learnt."""

    weights: np.ndarray
    facts: dict[str, Any] = field(default_factory=dict)

    def column_weights(self, known: ReferenceNames) -> np.ndarray:
        """The weight of each column (COLUMNS,), given the evidence in the references' names."""
        gates = np.array([known.by_head if name in OF_HEAD else known.by_tails for name in COLUMNS])
        return np.asarray(self.weights * gates**POWER)

    def write(self, path: Path) -> None:
        """Write the gate as a file that `read_gate` reads."""
        weights = dict(zip(COLUMNS, np.round(self.weights, 4).tolist(), strict=True))
        write_json(path, with_sha256({"format": FORMAT, "version": __version__, **self.facts, "weights": weights}))


def read_gate(text: str, name: str) -> Gate:
    """The gate in the text of a file; `name` is the file's, for errors."""
    try:
        content = without_sha256(json.loads(text), Path(name), remedy="install fewlink again")
        found = content["format"]
        if found != FORMAT:
            raise InputError(name, f"has format {found!r}, this version of fewlink reads {FORMAT!r}: install it again")
        weights = np.array([content["weights"][column] for column in COLUMNS], float)
        facts = {key: value for key, value in content.items() if key not in ("format", "weights")}
        return Gate(weights, facts)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(name, f"is damaged ({type(error).__name__}: {error}): install fewlink again") from None


@functools.cache
def shipped_gate() -> Gate:
    """The gate that comes with this version of fewlink."""
    return read_gate((files("fewlink") / "builtin" / BUILT_IN).read_text("utf-8"), BUILT_IN)
