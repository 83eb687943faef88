"""Few-shot benchmarks: tasks, candidates, episodes."""

from fewlink.tasks.benchmark import SPLITS, Benchmark, Task
from fewlink.tasks.candidates import PROTOCOLS, Candidates, candidates_of, likely_tails
from fewlink.tasks.carving import CarveReport, CarveSettings, carve
from fewlink.tasks.catalogue import CATALOGUE, open_benchmark
from fewlink.tasks.episodes import Episode, EpisodeSampler

__all__ = [
    "CATALOGUE",
    "PROTOCOLS",
    "SPLITS",
    "Benchmark",
    "Candidates",
    "CarveReport",
    "CarveSettings",
    "Episode",
    "EpisodeSampler",
    "Task",
    "candidates_of",
    "carve",
    "likely_tails",
    "open_benchmark",
]
