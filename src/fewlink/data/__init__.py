"""Few-shot benchmarks: tasks and candidates. Import `data.episodes` separately, because it needs torch."""

from fewlink.data.benchmark import SPLITS, Benchmark, Task
from fewlink.data.candidates import PROTOCOLS, Candidates, candidates_of, competing_tails, likely_tails
from fewlink.data.carving import CarveReport, CarveSettings, carve
from fewlink.data.catalogue import CATALOGUE, open_benchmark

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
