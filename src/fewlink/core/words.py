"""Counts, shares and lists in words."""

from collections.abc import Sequence


def plural(count: int, one: str, many: str = "") -> str:
    """Such as `1 line` or `2,000 lines`; `many` is the plural if it is more than an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """Such as `87 %`."""
    return f"{100 * share:.0f} %"


def listed(names: Sequence[str]) -> str:
    """Such as `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
