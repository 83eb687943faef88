"""Axes of charts: ticks, their labels, and scales from values to places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
Scale = Callable[[float], float]


class Axis(NamedTuple):
    """A kind of axis: the bound that values must exceed, its ticks from low to high, its scale and its tick labels."""

    above: float
    ticks: Callable[[float, float], list[float]]
    scale: Callable[[float, float, float, float], Scale]
    label: Callable[[float, Sequence[float]], str]


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers (1, 2, 2.5 or 5 times a power of ten apart) that enclose low and high."""
    if high <= low:
        low, high = (low - abs(low) / 2, low + abs(low) / 2) if low else (0.0, 1.0)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{n * step:.10g}") for n in range(first, last + 1)]


def powers_of_ten(low: float, high: float) -> list[float]:
    """Powers of ten that enclose low and high, both above zero; at least two."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    return [10.0**n for n in range(first, max(last, first + 1) + 1)]


def scale(low: float, high: float, start: float, end: float) -> Scale:
    """The linear map from [low, high] to [start, end]; to the middle if low and high are equal."""
    if high == low:
        return lambda value: (start + end) / 2
    return lambda value: start + (value - low) / (high - low) * (end - start)


def log_scale(low: float, high: float, start: float, end: float) -> Scale:
    """The same for logarithms."""
    linear = scale(math.log10(low), math.log10(high), start, end)
    return lambda value: linear(math.log10(value))


def power_label(value: float, ticks: Sequence[float]) -> str:
    """A power of ten: .01 to 1000 in digits, others as 10⁴."""
    power = round(math.log10(value))
    return f"{value:g}" if -2 <= power <= 3 else "10" + str(power).translate(SUPERSCRIPTS)


def tick_label(value: float, ticks: Sequence[float]) -> str:
    """A tick with as many decimals as all ticks need, without a leading zero."""
    decimals = max(len(f"{tick:.6g}".partition(".")[2]) for tick in ticks)
    text = f"{value:,.{decimals}f}" if value else "0"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


LINEAR = Axis(-math.inf, ticks, scale, tick_label)
LOGARITHMIC = Axis(0.0, powers_of_ten, log_scale, power_label)
