"""Counters, gauges and histograms, and their text in the exposition format of Prometheus."""

from __future__ import annotations

import math
import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Counter:
    """A number of events for each combination of values of its labels."""

    kind = "counter"

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        self.name, self.about, self.labels = name, about, tuple(labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}
        self._lock = threading.Lock()

    def add(self, *values: str, amount: float = 1.0) -> None:
        with self._lock:
            self._values[values] = self._values.get(values, 0.0) + amount

    def samples(self) -> list[str]:
        with self._lock:
            return [sample(self.name, dict(zip(self.labels, v, strict=True)), n) for v, n in self._values.items()]


class Gauge:
    """A number that is read when the metrics are asked for; NaN if it cannot be read. A total only grows."""

    def __init__(
        self, name: str, about: str, read: Callable[[], float], labels: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.about, self.read, self.labels = name, about, read, dict(labels or {})
        self.kind = "counter" if name.endswith("_total") else "gauge"

    def samples(self) -> list[str]:
        try:
            value = float(self.read())
        except (OSError, ValueError):
            value = math.nan
        return [sample(self.name, self.labels, value)]


class Histogram:
    """How many observations were at most each bound, and their sum, for each combination of values of its labels."""

    kind = "histogram"

    def __init__(self, name: str, about: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS) -> None:
        self.name, self.about, self.labels, self.bounds = name, about, tuple(labels), tuple(buckets)
        self._counts: dict[tuple[str, ...], list[int]] = {}  # of each bucket, and of what is above all bounds
        self._sums: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()

    def observe(self, value: float, *labels: str) -> None:
        with self._lock:
            counts = self._counts.setdefault(labels, [0] * (len(self.bounds) + 1))
            counts[bisect_left(self.bounds, value)] += 1
            self._sums[labels] = self._sums.get(labels, 0.0) + value

    def samples(self) -> list[str]:
        lines = []
        with self._lock:
            for values, counts in self._counts.items():
                labels, total = dict(zip(self.labels, values, strict=True)), 0
                for bound, count in zip((*self.bounds, math.inf), counts, strict=True):
                    total += count
                    lines.append(sample(f"{self.name}_bucket", {**labels, "le": number(bound)}, total))
                lines.append(sample(f"{self.name}_sum", labels, self._sums[values]))
                lines.append(sample(f"{self.name}_count", labels, total))
        return lines


Metric = Counter | Gauge | Histogram


class Registry:
    """The metrics of a process. Each name is used once."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def counter(self, name: str, about: str, labels: Sequence[str] = ()) -> Counter:
        metric = Counter(name, about, labels)
        self._add(metric)
        return metric

    def gauge(self, name: str, about: str, read: Callable[[], float], labels: Mapping[str, str] | None = None) -> None:
        self._add(Gauge(name, about, read, labels))

    def histogram(
        self, name: str, about: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        metric = Histogram(name, about, labels, buckets)
        self._add(metric)
        return metric

    def _add(self, metric: Metric) -> None:
        if metric.name in self._metrics:
            raise ValueError(f"metric {metric.name} is registered already")
        self._metrics[metric.name] = metric

    def text(self) -> str:
        """All metrics in the text exposition format."""
        lines: list[str] = []
        for name, metric in self._metrics.items():
            about = metric.about.replace("\\", r"\\").replace("\n", r"\n")
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {metric.kind}", *metric.samples()]
        return "\n".join(lines) + "\n"


def sample(name: str, labels: Mapping[str, str], value: float) -> str:
    """One line of the text format."""
    said = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{said}}} {number(value)}" if said else f"{name} {number(value)}"


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(int(value)) if value == int(value) else repr(value)


def resident_bytes() -> float:
    """The memory of this process that is in use, in bytes; raises OSError where the system does not say."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))


def open_files() -> float:
    """The number of files and sockets that this process has open."""
    return float(sum(1 for _ in Path("/proc/self/fd").iterdir()))
