"""Random damages of every kind of stored folder: refused with an error of fewlink, or loaded exactly as before.

FEWLINK_DAMAGES=2000 makes more of them than continuous integration does.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.conftest import quickly
from tests.verification.damage import FAILED, STORES, Trial, Trials

COUNT = int(os.environ.get("FEWLINK_DAMAGES", "300"))


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    with quickly():
        return Trials(tmp_path_factory.mktemp("stores"))


def failures(found: list[Trial]) -> str:
    return "\n".join(f"{each.store} {each.how}: {each.outcome} {each.text}" for each in found if each.outcome in FAILED)


def test_no_damage_loads_silently(trials: Trials) -> None:
    found = trials.run(COUNT, seed=1)
    assert not failures(found), failures(found)
    assert {each.store for each in found if each.outcome == "refused"} == {*STORES}


def test_nothing_crafted_shows_a_traceback(trials: Trials) -> None:
    found = trials.run(COUNT // 3, seed=2, crafted=True)
    assert not failures(found), failures(found)


def test_a_reader_that_does_not_check_fails_the_trials(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trials.content, "completion", "other content")
    only = Trials.__new__(Trials)
    only.folder, only.stores, only.content = trials.folder, [STORES["completion"]], trials.content
    (Path(trials.folder) / "work").mkdir(exist_ok=True)
    outcomes = {each.outcome for each in only.run(30)}
    assert "silent" in outcomes  # a damage without effect, which is compared with other content
