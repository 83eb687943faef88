"""How long requests take, from observed times."""

from __future__ import annotations

import pytest
from tests.server.servers import small

from fewlink.linker.query import References
from fewlink.server.estimates import RECENT, Estimates


def test_new_references_cost_more_until_they_are_recent() -> None:
    estimates, references = Estimates(small()), References(((0, 3), (2, 1)))
    size = estimates.size(references, 100)
    assert size == 300
    estimates.observe_ranking(references, size, 2, 1.0)  # for want of another time all is for the references
    assert estimates.references(references) == 0.0
    estimates.observe_ranking(references, size, 5, 1.0)
    assert estimates.head(size) == pytest.approx(0.2)
    other = References(((4, 3), (2, 1)))
    assert estimates.references(other) == pytest.approx(1.0, abs=0.01)
    for number in range(3 * RECENT):
        estimates.is_recent(number, use=True)
    assert estimates.references(references) == pytest.approx(1.0, abs=0.01)


def test_rejected_pairs_count_and_reasons_cost_for_each_row() -> None:
    estimates, references = Estimates(small()), References(((0, 3),), rejected=((0, 1), (2, 1)))
    assert estimates.size(references, 10) == 40
    estimates.observe_explanation(references, 3.0)
    estimates.observe_explanation(references, 0.5)
    assert estimates.explanation(references, 4) == pytest.approx(2.0)
    other = References(((2, 3),))
    assert estimates.explanation(other, 4) == pytest.approx(5.0)


def test_trust_is_free_without_a_calibration() -> None:
    assert Estimates(small()).trust(References(((0, 3), (2, 1))), 5) == 0.0
