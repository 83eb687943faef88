"""Fuzzing: a short run over all readers finds nothing, what breaks is found, and inputs depend on the seed only."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import fuzz


def test_no_reader_raises_anything_but_the_projects_own_errors(tmp_path: Path) -> None:
    readers, problems = fuzz.fuzz(2_000, seed=1, out=tmp_path)
    assert problems == []
    assert len(readers) >= 30
    assert all(reader.counts["inputs"] for reader in readers)
    assert sum(reader.counts["accepted"] for reader in readers) > 300  # some changes leave a file valid
    assert sum(reader.counts["refused"] for reader in readers) > 600


def test_a_reader_that_breaks_is_found_and_its_input_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(content: bytes, rng: random.Random) -> object:
        return content.index(b"lives")  # raises ValueError where the word was changed

    monkeypatch.setattr(fuzz, "readers", lambda place: [fuzz.Reader("broken", [fuzz.TSV], broken)])
    readers, problems = fuzz.fuzz(50, out=tmp_path)
    assert readers[0].counts["failures"] == len(problems) == len(list(tmp_path.iterdir())) > 0
    number = problems[0].split()[1].rstrip(":")
    assert problems[0].startswith(f"broken {number}: ValueError: subsection not found (test_fuzz_script.py:")
    again = fuzz.try_input(readers[0], 0, int(number))[0]
    assert (tmp_path / f"broken-0-{number}").read_bytes() == again


def test_an_input_that_takes_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(content: bytes, rng: random.Random) -> object:
        while True:
            pass

    monkeypatch.setattr(fuzz, "LIMIT", 0.2)
    assert fuzz.try_input(fuzz.Reader("endless", [b"x"], endless), 0, 0)[1] == "took over 0.2 s"


@pytest.mark.parametrize("seeds", [[fuzz.TSV, fuzz.NT], [fuzz.STIX]], ids=["text", "json"])
def test_inputs_depend_on_seed_and_number_only(seeds: list[bytes]) -> None:
    def inputs(seed: int) -> list[bytes]:
        return [fuzz.changed(random.Random(f"{seed}/{i}"), seeds[0], seeds) for i in range(50)]

    assert inputs(0) == inputs(0) != inputs(1)
    assert len({*inputs(0)}) > 40
