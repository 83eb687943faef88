"""The script that fits the shipped calibration: relations are hidden from the graphs they are asked in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
from tests.conftest import quickly

import calibration as script
from fewlink.data import open_benchmark
from fewlink.prediction.calibration import Sample, open_calibration
from fewlink.prediction.trust import FEATURES

ROOT = Path(__file__).resolve().parents[2]


def test_relations_are_hidden_and_none_is_of_test() -> None:
    benchmark = open_benchmark("umls")
    asked = list(script.hidden_relations(benchmark, 8))
    names = [task.name for _, task in asked]
    dev, test = ({task.name for task in benchmark.split(split)} for split in ("dev", "test"))
    assert len(asked) == len(dev) + 8 and dev <= set(names) and not test & {n.removesuffix("⁻¹") for n in names}
    for graph, task in asked:
        relation = graph.relations.find(task.name.removesuffix("⁻¹"))
        assert relation is None or not (graph.relation_ids == relation).any()


def test_figures_by_hand() -> None:
    right, first = np.array([True, False, False]), np.array([True, True, True])
    sample = Sample(np.ones((3, len(FEATURES))), right, first, np.array([4, 4, 5]), np.ones(3))
    made = script.figures(sample, [""] * 4 + ["a", "b"], np.array([0.6, 0.8, 0.1]), np.array([False, False, True]))
    assert made["over relations"] == 0.15 and made["over relations, low trust left out"] == 0.2
    assert (made["hit rate of low trust"], made["hit rate of others"], made["low trust"]) == (0.0, 0.5, 0.333)
    assert made["rows"] == [["a", 2, 0.7, 0.5, 0.0], ["b", 1, 0.1, 0.0, 1.0]]


def test_the_whole_script(tmp_path: Path) -> None:
    shutil.copy(str(files("fewlink") / "builtin" / "trail.safetensors"), tmp_path / "without-umls.safetensors")
    words = ["--relations", "4", "--queries", "2", "--out", tmp_path / "made.json"]
    environment = {**os.environ, "FEWLINK_BENCH_RECORDS": str(tmp_path)}
    command = [sys.executable, ROOT / "benchmarks" / "calibration.py", tmp_path, "umls", *words]
    with quickly():
        subprocess.run([str(word) for word in command], check=True, env=environment, capture_output=True)
    made = open_calibration(tmp_path / "made.json")
    record = json.loads((tmp_path / "calibration.json").read_text())["results"]
    assert made.relations == record["all"]["relations"] == len(record["graphs"]["umls"]["rows"]) == 8
    assert (tmp_path / "umls.npz").exists()
