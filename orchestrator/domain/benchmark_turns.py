"""Turns of a paired benchmark: arm, order and sensor readings of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

SUBJECT = "subject"
BASELINE = "baseline"
ARMS = (SUBJECT, BASELINE)
"""Arms of a paired benchmark."""
_TURNS = 2**31
_READINGS = 50
_NAME_CHARS = 100


class InterleavedTurn(NamedTuple):
    """Arm and turn of a metric; the arm is empty where it was not measured in turns."""

    arm: str = ""
    number: int | None = None
    readings: Mapping[str, float] = {}


def turn_of(data: Mapping[str, object]) -> InterleavedTurn:
    """Return arm and turn of a metric event.

    An unknown arm, or a missing turn, is a plain metric.
    """
    arm, number = data.get("arm"), data.get("turn")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < _TURNS:
        return InterleavedTurn()
    if not isinstance(arm, str) or arm not in ARMS:
        return InterleavedTurn()
    return InterleavedTurn(arm, number, dict(_readings(data.get("readings"))))


def _readings(said: object) -> Iterator[tuple[str, float]]:
    """Return numeric readings; missing ones must not become zero."""
    for name, value in list(said.items() if isinstance(said, dict) else ())[:_READINGS]:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and math.isfinite(value):
            yield str(name).replace("\x00", "\ufffd")[:_NAME_CHARS], float(value)
