"""The text of metrics, as Prometheus reads it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fewlink.server.metrics import Registry, number, open_files, resident_bytes


def test_the_text_of_each_kind_of_metric() -> None:
    registry = Registry()
    requests = registry.counter("requests_total", "Requests.", ("path", "status"))
    seconds = registry.histogram("seconds", "How long.", ("path",), buckets=(0.1, 1.0))
    registry.gauge("info", 'A "model"\nof two lines.', lambda: 1, {"model": 'a "b"\\\nc'})
    registry.gauge("missing", "Not there.", lambda: float(Path("/no/such/file").read_text()))
    registry.counter("empty_total", "Nothing yet.")
    requests.add("/a", "200")
    requests.add("/a", "200", amount=2)
    for value in (0.1, 0.5, 7.0):
        seconds.observe(value, "/a")
    assert registry.text() == (
        "# HELP requests_total Requests.\n# TYPE requests_total counter\n"
        'requests_total{path="/a",status="200"} 3\n'
        "# HELP seconds How long.\n# TYPE seconds histogram\n"
        'seconds_bucket{path="/a",le="0.1"} 1\nseconds_bucket{path="/a",le="1"} 2\n'
        'seconds_bucket{path="/a",le="+Inf"} 3\nseconds_sum{path="/a"} 7.6\nseconds_count{path="/a"} 3\n'
        '# HELP info A "model"\\nof two lines.\n# TYPE info gauge\n'
        'info{model="a \\"b\\"\\\\\\nc"} 1\n'
        "# HELP missing Not there.\n# TYPE missing gauge\nmissing NaN\n"
        "# HELP empty_total Nothing yet.\n# TYPE empty_total counter\nempty_total 0\n"
    )


def test_a_name_is_used_once() -> None:
    registry = Registry()
    registry.counter("a_total", "")
    with pytest.raises(ValueError, match="a_total is registered already"):
        registry.histogram("a_total", "")


def test_numbers() -> None:
    assert [number(value) for value in (1.0, 0.25, math.inf, -math.inf, math.nan)] == [
        "1",
        "0.25",
        "+Inf",
        "-Inf",
        "NaN",
    ]


def test_facts_of_the_process() -> None:
    assert resident_bytes() > 1 << 20 and open_files() >= 3
