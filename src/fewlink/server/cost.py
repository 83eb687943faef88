"""What work costs, in seconds, learnt from the times it took."""

from __future__ import annotations

import math
import threading

DOWN, UP = 0.5, 0.2  # weights of an observation in the average: one slow moment does not count much


class CostModel:
    """Seconds of one unit of work of each kind and size, as moving averages of observed times.

    Sizes are kept by powers of two. The cost of a size that was not observed is bounded by that of others: a larger one
    costs at least as much, and a smaller one at least in proportion.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, dict[int, float]] = {}
        self._lock = threading.Lock()

    def observe(self, kind: str, size: float, units: int, seconds: float) -> None:
        """So many units took this long together."""
        if units < 1 or not math.isfinite(seconds):
            return
        each, place = max(seconds, 0.0) / units, _place(size)
        with self._lock:
            known = self._seconds.setdefault(kind, {})
            before = known.get(place)
            weight = DOWN if before is not None and each < before else UP
            known[place] = each if before is None else before + weight * (each - before)

    def knows(self, kind: str) -> bool:
        """Whether anything of this kind was observed."""
        return kind in self._seconds

    def unit(self, kind: str, size: float, default: float = 0.0) -> float:
        """Estimated seconds of one unit; `default` if nothing of this kind was observed."""
        place = _place(size)
        with self._lock:
            known = self._seconds.get(kind, {})
            if place in known:
                return known[place]
            bounds = [known[min(at)]] if (at := [p for p in known if p > place]) else []
            if at := [p for p in known if p < place]:
                bounds.append(known[max(at)] * 2.0 ** (place - max(at)))
        return min(bounds, default=default)


def _place(size: float) -> int:
    return max(0, math.ceil(math.log2(max(size, 1.0))))
