"""Report checks and metrics as JSON lines to the file `SEATRIAL_EVENTS`; without it do nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any


def check(name: str, outcome: bool | str, **details: Any) -> bool:
    """Report a check with details (`value`, `unit`, `tolerance`, `reason`); False if it failed."""
    if not isinstance(outcome, str):  # a bool, NumPy's and a tensor's too
        outcome = "passed" if outcome else "failed"
    _append({"check": name, "outcome": outcome, **details})
    return outcome != "failed"


def metric(
    name: str, samples: Sequence[float], *, unit: str, direction: str, **params: Any
) -> None:
    """Report a metric with all of its samples; `direction`: whether higher or lower is better.

    Raises:
        TypeError: a parameter is neither a number nor a string.
    """
    for param, value in params.items():
        if not isinstance(value, (str, int, float)):
            raise TypeError(f"{name}: param {param} must be a number or a text, not {value!r}")
    line = {"metric": name, "samples": list(samples), "unit": unit, "direction": direction}
    _append({**line, "params": params})


def degraded(reason: str) -> None:
    """Report that the job ran in a degraded way, and why."""
    _append({"degraded": reason})


def turn(state: int | str) -> None:
    """Report a turn of a paired benchmark: "ready" before the first, then each that has ended."""
    _append({"turn": state})


def _append(line: dict[str, Any]) -> None:
    path = os.environ.get("SEATRIAL_EVENTS")
    if not path:
        return
    with open(path, "ab", buffering=0) as events:  # one write per line: lines never interleave
        events.write(json.dumps(line).encode() + b"\n")
