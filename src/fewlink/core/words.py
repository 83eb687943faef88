"""Counts, shares and lists in words."""

from collections.abc import Sequence


def plural(count: int, one: str, many: str = "") -> str:
    """A count and its noun, such as `1 line` or `2,000 lines`. `many` is the plural if it has no plain s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share as a percentage, such as `87 %`."""
    return f"{100 * share:.0f} %"


def listed(names: Sequence[str]) -> str:
    """Items as a list in a sentence, such as `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
