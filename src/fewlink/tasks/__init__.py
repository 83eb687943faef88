"""Few-shot benchmarks: tasks and candidates. Import `tasks.episodes` separately, because it needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewlink.core.memo import lazy_names
from fewlink.tasks.benchmark import SPLITS, Benchmark, Task
from fewlink.tasks.candidates import PROTOCOLS, Candidates, candidates_of, competing_tails, likely_tails
from fewlink.tasks.catalogue import CATALOGUE, open_benchmark

if TYPE_CHECKING:
    from fewlink.tasks.carving import CarveReport as CarveReport
    from fewlink.tasks.carving import CarveSettings as CarveSettings
    from fewlink.tasks.carving import carve as carve

__all__ = [
    "CATALOGUE",
    "PROTOCOLS",
    "SPLITS",
    "Benchmark",
    "Candidates",
    "CarveReport",
    "CarveSettings",
    "Task",
    "candidates_of",
    "carve",
    "competing_tails",
    "likely_tails",
    "open_benchmark",
]
__getattr__ = lazy_names(__name__, {"CarveReport": "carving", "CarveSettings": "carving", "carve": "carving"})
