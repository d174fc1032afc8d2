"""Time of a function call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def median_of(work: Callable[[], object], rounds: int) -> float:
    """Return the median time of some calls, in seconds."""
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
