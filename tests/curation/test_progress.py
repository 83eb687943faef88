"""The progress of a project: right so far, the spread of accepted tails, and the tail that crowds out the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from fewlink.curation.progress import Progress, TailCount
from fewlink.curation.store import ProjectFile


def progress(*counts: int, rejected: int = 0) -> Progress:
    tails = tuple(TailCount(f"t{place}", count) for place, count in enumerate(counts))
    return Progress(sum(counts), rejected, tails)


def test_right_so_far_is_the_share_of_accepted_pairs() -> None:
    assert progress().right is None and progress().warning() is None
    assert progress(2, 1, rejected=1).right == 0.75
    assert progress(rejected=3).right == 0


@pytest.mark.parametrize(
    ("counts", "crowds"),
    [
        ((7,), False),  # too few to tell
        ((8,), True),
        ((5, 3), False),
        ((6, 2), True),  # more than two thirds
        ((6, 3), False),  # exactly two thirds
        ((9, 1), True),
        ((20, 20, 20), False),
    ],
)
def test_a_tail_crowds_out_the_rest_beyond_two_thirds(counts: tuple[int, ...], crowds: bool) -> None:
    assert (progress(*counts).crowding is not None) == crowds
    assert (progress(*counts).warning() is not None) == crowds


def test_the_warning_names_the_tail() -> None:
    assert (progress(9, 1).warning(str.upper) or "").startswith("9 of 10 accepted pairs have the tail T0:")
    assert (progress(9).warning() or "").startswith("all 9 accepted pairs have the tail t0:")


def test_only_current_decisions_count(tmp_path: Path) -> None:
    with ProjectFile(tmp_path / "a.decisions") as file:
        file.add_project("cures", [("a", "b"), ("c", "b")])
        file.decide("cures", [("accepted", "d", "x"), ("accepted", "e", "b"), ("accepted", "f", "b")], "ann")
        file.decide("cures", [("rejected", "d", "x"), ("rejected", "g", "b")], "bob")
        found = file.progress("cures")
        assert found == Progress(2, 2, (TailCount("b", 2),)) and found.right == 0.5
        file.undo("cures", who="bob")
        file.undo("cures", who="bob")
        assert file.progress("cures") == Progress(3, 0, (TailCount("b", 2), TailCount("x", 1)))
