"""Few-shot benchmarks: tasks and candidates. Import `data.episodes` separately, because it needs torch."""

from fewlink.tasks.benchmark import SPLITS, Benchmark, Task
from fewlink.tasks.candidates import PROTOCOLS, Candidates, candidates_of, competing_tails, likely_tails
from fewlink.tasks.carving import CarveReport, CarveSettings, carve
from fewlink.tasks.catalogue import CATALOGUE, open_benchmark

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
