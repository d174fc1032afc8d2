"""Turns of a paired benchmark: arm, order and sensor readings of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

SUBJECT = "subject"
BASELINE = "baseline"
ARMS = (SUBJECT, BASELINE)
"""The sides of a paired benchmark."""
_TURNS = 2**31
_READINGS = 50
_NAME_CHARS = 100


class InterleavedTurn(NamedTuple):
    """Of a metric; one that was not measured in turns has an empty arm."""

    arm: str = ""
    number: int | None = None
    readings: Mapping[str, float] = {}


def turn_of(data: Mapping[str, object]) -> InterleavedTurn:
    """Read a metric event; one with an unknown arm, or without a turn, is a plain metric."""
    arm, number = data.get("arm"), data.get("turn")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < _TURNS:
        return InterleavedTurn()
    if not isinstance(arm, str) or arm not in ARMS:
        return InterleavedTurn()
    return InterleavedTurn(arm, number, dict(_readings(data.get("readings"))))


def _readings(said: object) -> Iterator[tuple[str, float]]:
    """The numbers among them: what a gauge could not tell must not become a zero."""
    for name, value in list(said.items() if isinstance(said, dict) else ())[:_READINGS]:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and math.isfinite(value):
            yield str(name).replace("\x00", "\ufffd")[:_NAME_CHARS], float(value)
