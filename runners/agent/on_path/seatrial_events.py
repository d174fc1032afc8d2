"""Events of a job beside its exit code. Optional: the same lines can be written by hand.

Outside a Seatrial job (``SEATRIAL_EVENTS`` unset) every function does nothing and returns False, so
a demo or benchmark runs the same without Seatrial.
"""
# ruff: noqa: INP001 - not a package: this folder is on the jobs' import path

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Iterator, Mapping, Optional, Sequence, Union

Scalar = Union[None, bool, int, float, str]


def check(
    name: str,
    outcome: str,
    *,
    value: Scalar = None,
    expected: Scalar = None,
    unit: Optional[str] = None,
    tolerance: Scalar = None,
    reason: Optional[str] = None,
) -> bool:
    """Report the result of one check.

    Args:
        name: Its stable name within the job.
        outcome: ``passed``, ``failed`` or ``skipped`` (then give the reason).
        value: The measured value.
        expected: The expected value. A check with a tolerance that is reported as passed fails if
            the value differs by more than that, or cannot be compared.
        unit: Unit of the value.
        tolerance: Limit of the value, or of its distance from the expected value.
        reason: Why, for a person.

    Returns:
        Whether the event was written; False outside of a Seatrial job.
    """
    if outcome not in ("passed", "failed", "skipped"):
        raise ValueError(f"outcome must be passed, failed or skipped, not {outcome!r}")
    held = {"value": value, "expected": expected, "tolerance": tolerance}
    more = {**held, "unit": unit, "reason": reason}
    return _say({"check": name, "outcome": outcome, **_given(more)})


def metric(
    name: str,
    samples: Sequence[float],
    *,
    unit: str,
    direction: str,
    params: Optional[Mapping[str, Scalar]] = None,
) -> bool:
    """Report a measurement: every sample, not a summary of them.

    Args:
        name: Its stable name within the job.
        samples: The measurements, in the order they were taken.
        unit: Their unit.
        direction: ``higher`` or ``lower``: which is better.
        params: Parameters of the measurement.

    Returns:
        Whether the event was written; False outside of a Seatrial job.
    """
    if direction not in ("higher", "lower"):
        raise ValueError(f"direction must be higher or lower, not {direction!r}")
    line = {"metric": name, "samples": [float(sample) for sample in samples], "unit": unit}
    return _say({**line, "direction": direction, "params": dict(params or {})})


def degraded(reason: str) -> bool:
    """Report that the job ran on a fallback, such as the CPU instead of a GPU."""
    return _say({"degraded": reason})


def turns() -> Iterator[int]:
    """Iterate over this process's turns: one pass of the loop is one turn.

    Import, load and warm up before the loop; measure and call `metric` within it. While another
    process has its turn, this one sleeps. Outside of a pairing there is exactly one pass, so the
    same program also runs alone. For jobs with ``turns = true`` in payload.toml.

    Yields:
        The number of turns that this process had before.
    """
    path = os.environ.get("SEATRIAL_TURNS")
    if not path:
        yield 0
        return
    with Path(path).open(encoding="ascii") as words:
        _say({"turn": "ready"})
        for count, word in enumerate(iter(words.readline, "")):
            if word == "end\n":
                return
            yield count
            _say({"turn": int(word)})


def _given(fields: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    return {key: value for key, value in fields.items() if value is not None}


def _say(line: Mapping[str, object]) -> bool:
    path = os.environ.get("SEATRIAL_EVENTS")
    if not path:
        return False
    raw = (json.dumps(line) + "\n").encode("ascii")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        while raw:
            raw = raw[os.write(fd, raw) :]
    finally:
        os.close(fd)
    return True
