"""Probabilities adjusted by decisions: rejected pairs lower them, accepted ones do not raise them, order is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fewlink.curation.store import ProjectFile
from fewlink.linker.probability import LAST, PRIOR_MORE, Adjustment, ProjectReading, adjustment, adjustment_of

P = np.array([0.02, 0.3, 0.3, 0.9])
NONE, ALL = np.zeros(4, bool), np.ones(4, bool)


def fitted(*decisions: tuple[float, bool, bool]) -> Adjustment:
    made = adjustment(decisions)
    assert made is not None
    return made


def test_a_worked_example() -> None:
    """One decision of p = ½ that was rejected: 2.5 a = −σ(a), so a = −0.1819."""
    made = fitted((0.5, False, False))
    assert made.shift == pytest.approx(-0.1819, abs=1e-4) and made.more == pytest.approx(PRIOR_MORE)
    assert made(np.array([0.5]), np.array([False]))[0] == pytest.approx(1 / (1 + np.exp(0.1819)), abs=1e-5)


def test_rejected_pairs_lower_probabilities_and_keep_their_order() -> None:
    few, many = (fitted(*[(0.3, False, False)] * n) for n in (2, LAST))
    before, little, much = P, few(P, NONE), many(P, NONE)
    assert (little < before).all() and (much < little).all()
    assert (np.diff(much) >= 0).all() and few.decisions == 2


def test_accepted_pairs_do_not_raise_probabilities() -> None:
    assert np.allclose(fitted(*[(0.3, True, False)] * LAST)(P, NONE), P)


def test_the_last_decisions_count() -> None:
    old, new = [(0.3, False, False)] * 30, [(0.3, True, False)] * LAST
    assert fitted(*old, *new) == fitted(*new) and fitted(*new).decisions == LAST


def test_heads_with_a_tail_are_told_apart() -> None:
    one_each = fitted(*[(0.5, True, False)] * 20, *[(0.5, False, True)] * 20)
    assert (one_each(P, ALL) < P).all() and (one_each(P, NONE) > one_each(P, ALL)).all()
    several = fitted(*[(0.3, True, True)] * 20)
    assert several.more > 0 and (several(P, ALL) > several(P, NONE)).all()


def test_a_project_is_read_with_its_probabilities(tmp_path: Path) -> None:
    with ProjectFile(tmp_path / "a") as file:
        file.add_project("cures", [("a", "b")])
        file.decide("cures", [("accepted", "c", "d", 0.4), ("rejected", "c", "e", 0.3)], "ann")
        file.decide("cures", [("rejected", "a", "e", 0.2), ("accepted", "x", "y")], "bob")  # the last has none
        file.decide("cures", [("accepted", "u", "v", 0.9)], "bob")
        file.undo("cures", who="bob")
        states = file.decisions("cures")
    assert adjustment_of(states) == fitted((0.4, True, False), (0.3, False, True), (0.2, False, True))
    read = ProjectReading.of(tmp_path / "a")
    assert read.references == (("a", "b"), ("c", "d"), ("x", "y")) and read.rejected == (("c", "e"), ("a", "e"))
    assert read.adjustment == adjustment_of(states) and read.answered() == {"a", "x", "c"}
    (note,) = read.notes(adjusted=True)
    assert "3 decisions" in note and "cures" in note and read.notes(adjusted=False) == []
