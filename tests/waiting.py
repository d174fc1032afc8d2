"""Waiting for what a real process or server does: for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(met: Callable[[], object], *, within_s: float = 120.0) -> None:
    """Look again and again until the condition is met; fails where it takes too long."""
    end = time.monotonic() + within_s
    while not met():
        assert time.monotonic() < end, f"it did not happen within {within_s:.0f} s"
        time.sleep(0.02)
