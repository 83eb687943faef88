"""The benchmark of large graphs: medians and ratios by hand."""

from __future__ import annotations

from pathlib import Path

import large_models
from measure import Cost

ROOT = Path(__file__).resolve().parents[2]


def costs(*steps: float, peak: int) -> list[Cost]:
    return [Cost(9.0, 9.0, peak, {"step ms": step}) for step in steps]


def test_a_row_has_both_medians_and_their_ratio() -> None:
    costs_of = {"train FSRL": [costs(5.0, 1.0, 3.0, peak=4_000_000_000), costs(8.0, 2.0, 1.0, peak=1_000_000_000)]}
    assert large_models.rows(costs_of, ["wiki", "nell"]) == [
        {"what": "FSRL, a step", "unit": "ms", "wiki": 3.0, "nell": 2.0, "ratio": 1.5},
        {"what": "train FSRL", "unit": "GB", "wiki": 4.0, "nell": 1.0, "ratio": 4.0},
    ]
