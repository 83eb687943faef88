"""Everything recorded still holds: scores to 1e-4, percentages to a tenth of a point, and ranks that no tie decides.

`python -m tests.goldens.record NAME` records again what a change alters on purpose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.goldens.running import RECORDS, nell_one
from tests.goldens.things import THINGS

SCORES = 1e-4  # scores that differ by less count as equal
TOLERANCES = {
    **{"score": SCORES, "weight": 1e-3, "fit": 1e-3, "oddness": 1e-3},
    **{"probability": 1e-3, "base_probability": 1e-3},
    "mrr": 5e-3,  # of few queries, or after steps of training, which magnify the rounding of sums
}
ROUNDING = 1e-6  # relative, for all other numbers
TIED_QUERIES = 0.02  # share of a relation's queries whose rank a tie may decide


@pytest.mark.slow
@pytest.mark.parametrize("name", THINGS)
def test_it_is_as_recorded(name: str, tmp_path: Path) -> None:
    if name == "evaluate-nell-one" and nell_one() is None:
        pytest.skip("NELL-One is not beside the checkout")
    expected = json.loads((RECORDS / f"{name}.json").read_text())
    found = json.loads(json.dumps(THINGS[name](tmp_path)))
    differing = list(differences(found, expected, name))
    assert not differing, "\n".join([f"{len(differing)} differences", *differing[:20]])


def differences(found: Any, expected: Any, where: str) -> Iterator[str]:
    """A line for each difference between what was found and what was recorded."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        if "ranks of queries" in expected:
            yield from _different_ranks(found["ranks of queries"], expected["ranks of queries"], where)
            return
        for key in dict.fromkeys([*expected, *found]):
            if key in found and key in expected:
                yield from differences(found[key], expected[key], f"{where} / {key}")
            else:
                yield f"{where}: {key} is {'new' if key in found else 'missing'}"
    elif _are_ranked(expected) and _are_ranked(found):
        yield from _different_rows(found, expected, where)
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
            yield from differences(mine, theirs, f"{where}[{number}]")
    elif not _equal(found, expected, where.rpartition(" / ")[2]):
        yield f"{where}: {expected!r} was recorded, {found!r} was found"


def _equal(found: Any, expected: Any, field: str) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (found, expected))
    if not numbers:
        return bool(found == expected)
    return math.isclose(found, expected, rel_tol=ROUNDING, abs_tol=TOLERANCES.get(field, ROUNDING))


def _are_ranked(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and {"rank", "score"} <= {*value[0]}


def _different_rows(found: Sequence[Any], expected: Sequence[Any], where: str) -> Iterator[str]:
    """Differences of ranked pairs; rows whose scores are tied may change places, also with those that were cut off."""
    mine, theirs = ({(row["head"], row["tail"]): row for row in rows} for rows in (found, expected))
    if len(found) != len(expected):
        yield f"{where}: {len(expected)} rows were recorded, {len(found)} were found"
    for pair in {**theirs, **mine}:
        place = f"{where} / {' → '.join(pair)}"
        if pair not in mine or pair not in theirs:
            rows, row = (theirs, theirs[pair]) if pair in theirs else (mine, mine[pair])
            if not _is_tied(row, rows):
                yield f"{place} is {'missing' if pair in theirs else 'new'}"
            continue
        ranks = (mine[pair]["rank"], theirs[pair]["rank"])
        if ranks[0] != ranks[1] and not _is_tied(theirs[pair], theirs):
            yield f"{place}: rank {ranks[1]} was recorded, {ranks[0]} was found"
        yield from differences({**mine[pair], "rank": 0}, {**theirs[pair], "rank": 0}, place)


def _is_tied(row: Mapping[str, Any], rows: Mapping[Any, Mapping[str, Any]]) -> bool:
    """Whether another row has the same score as this one."""
    return any(other is not row and abs(other["score"] - row["score"]) <= SCORES for other in rows.values())


def _different_ranks(
    found: Mapping[str, Sequence[float]], expected: Mapping[str, Sequence[float]], where: str
) -> Iterator[str]:
    """Differences of the ranks of queries; a few may move a little, because ties hang on rounding."""
    if {*found} != {*expected}:
        yield f"{where}: other queries"
        return
    moved = [query for query in expected if found[query] != expected[query]]
    for query in moved:
        far = any(abs(a - b) > 1 + b / 20 for a, b in zip(found[query], expected[query], strict=True))
        if far or len(moved) > TIED_QUERIES * len(expected):
            yield f"{where} / {query}: ranks {expected[query]} were recorded, {found[query]} were found"
