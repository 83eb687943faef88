from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field

from fewlink.core.memo import Memo


@dataclass(eq=False)
class Numbers(Memo):
    values: list[int]
    made: list[str] = field(default_factory=list)


def total(numbers: Numbers, times: int = 1, *, plus: int = 0) -> int:
    numbers.made.append("total")
    return times * sum(numbers.values) + plus


def product(numbers: Numbers) -> int:
    numbers.made.append("product")
    return numbers.values[0] * numbers.values[1]


def test_what_is_derived_is_computed_once_for_each_function_and_arguments() -> None:
    numbers = Numbers([2, 5])
    for _ in range(2):
        assert numbers.once(total) == 7
        assert numbers.once(total, 2) == 14
        assert numbers.once(total, 2, plus=1) == 15
        assert numbers.once(total, 2, plus=3) == 17
        assert numbers.once(product) == 10
    assert numbers.made == ["total"] * 4 + ["product"]
    assert Numbers([1, 1]).once(total) == 2


def test_copies_and_pickles_leave_out_what_was_derived() -> None:
    numbers = Numbers([2, 5])
    assert numbers.once(total) == 7
    for other in (copy.copy(numbers), copy.deepcopy(numbers), pickle.loads(pickle.dumps(numbers))):  # noqa: S301
        other.values = [1, 1]
        assert other.once(total) == 2
    assert numbers.once(total) == 7
