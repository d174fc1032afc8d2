"""What a job says by itself in ``$SEATRIAL_EVENTS``: checked, line by line."""

from __future__ import annotations

import math
from typing import Callable, Dict, Mapping, Optional, Tuple, Union

from .masking import JsonValue

Said = Tuple[str, Dict[str, JsonValue]]
"""An event's kind and its data."""

Scalar = Union[None, bool, int, float, str]
Fields = Mapping[str, object]

READY = "ready"
"""What an arm says when it has warmed up and waits for its first turn."""

_NAME_CHARS = 500
_TEXT_CHARS = 4_000
_SAMPLES = 100_000
_PARAMS = 100
_WHOLE = 2**63


class BadLineError(ValueError):
    """A line that cannot be taken; the text says what is wrong with it."""


def understand(line: Fields) -> Said:
    """Turn one line into an event.

    Raises:
        BadLineError: it is none of the three forms, or a value in it is unusable.
    """
    if "check" in line:
        return "check", _check(line)
    if "metric" in line:
        return "metric", _metric(line)
    if "degraded" in line:
        return "check", {"degraded": _words(line, "degraded", _TEXT_CHARS)}
    if "turn" in line:
        return "turn", {"turn": _turn(line["turn"])}
    raise BadLineError("neither check nor metric nor degraded")


def _check(line: Fields) -> Dict[str, JsonValue]:
    data: Dict[str, JsonValue] = {"check": _words(line, "check", _NAME_CHARS)}
    data["outcome"] = _one_of(line, "outcome", ("passed", "failed", "skipped"))
    for key in ("value", "expected", "tolerance"):
        _copy(line, data, key, _scalar)
    for key in ("unit", "reason"):
        _copy(line, data, key, _optional_text)
    away = _outside(data)
    if away and data["outcome"] == "passed":
        data["outcome"], data["reason"] = "failed", f"said to have passed, but {away}"
    return data


def _outside(data: Fields) -> str:
    """How a value is too far from what was expected; empty where it is not, or not known."""
    given = [data.get(key) for key in ("value", "expected", "tolerance")]
    numbers = [x for x in given if isinstance(x, (int, float)) and not isinstance(x, bool)]
    if len(numbers) < len(given):
        return ""
    value, expected, tolerance = numbers
    if abs(value - expected) <= tolerance:
        return ""
    return f"{value!r} is more than {tolerance!r} away from {expected!r}"


def _metric(line: Fields) -> Dict[str, JsonValue]:
    data: Dict[str, JsonValue] = {"metric": _words(line, "metric", _NAME_CHARS)}
    samples = line.get("samples")
    if not isinstance(samples, list) or not samples:
        raise BadLineError("samples must be a list of numbers that is not empty")
    if len(samples) > _SAMPLES:
        raise BadLineError(f"{len(samples)} samples; {_SAMPLES} are the most")
    data["samples"] = [_finite(sample, "samples") for sample in samples]
    data["unit"] = _words(line, "unit", _NAME_CHARS)
    data["direction"] = _one_of(line, "direction", ("higher", "lower"))
    data["params"] = _params(line.get("params"))
    return data


def _turn(value: object) -> Union[int, str]:
    """Read ``ready``, or the number of a turn that is over."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value == READY:
        return READY
    raise BadLineError(f"turn must be {READY!r} or a whole number, not {value!r:.80}")


def _params(raw: object) -> Dict[str, JsonValue]:
    if raw is None:
        return {}
    if not isinstance(raw, dict) or len(raw) > _PARAMS:
        raise BadLineError(f"params must be an object with at most {_PARAMS} entries")
    return {str(key)[:_NAME_CHARS]: _scalar(value, f"params.{key}") for key, value in raw.items()}


def _copy(
    line: Fields, data: Dict[str, JsonValue], key: str, check: Callable[[object, str], Scalar]
) -> None:
    if line.get(key) is not None:
        data[key] = check(line[key], key)


def _words(line: Fields, key: str, longest: int) -> str:
    value = line.get(key)
    if not isinstance(value, str) or not value.strip():
        raise BadLineError(f"{key} must be a text that is not empty")
    if len(value) > longest:
        raise BadLineError(f"{key} is longer than {longest} characters")
    return value


def _one_of(line: Fields, key: str, allowed: Tuple[str, ...]) -> str:
    value = line.get(key)
    if not isinstance(value, str) or value not in allowed:
        raise BadLineError(f"{key} must be one of {', '.join(allowed)}, not {value!r:.80}")
    return value


def _optional_text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise BadLineError(f"{key} must be a text")
    return value[:_TEXT_CHARS]


def _scalar(value: object, key: str) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value[:_TEXT_CHARS]
    return _finite(value, key)


def _finite(value: object, key: str) -> Union[int, float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadLineError(f"{key} must hold a number, not {value!r:.80}")
    good: Optional[bool] = abs(value) < _WHOLE if isinstance(value, int) else math.isfinite(value)
    if not good:
        raise BadLineError(f"{key} holds {value!r:.40}, which is no finite number")
    return value
