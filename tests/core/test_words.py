from __future__ import annotations

from fewlink.core.words import listed, percent, plural


def test_counts_and_shares_in_words() -> None:
    assert [plural(count, "line") for count in (0, 1, 2000)] == ["0 lines", "1 line", "2,000 lines"]
    assert [plural(count, "entity", "entities") for count in (1, 2)] == ["1 entity", "2 entities"]
    assert [percent(share) for share in (0.0, 0.666, 1.0)] == ["0 %", "67 %", "100 %"]


def test_a_list_of_names_in_words() -> None:
    assert [listed(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
