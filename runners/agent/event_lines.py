"""Validates the lines of ``$SEATRIAL_EVENTS``; reads the event stream again after a restart."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Set, Tuple, Union

from . import processes
from .events import Data, EventWriter
from .evidence_text import JsonValue
from .tail_json_lines import JsonLinesTail, Line


@dataclass
class History:
    """The part of an event stream that an agent needs after a restart."""

    last_seq: int = 0
    began_at: Optional[float] = None
    ended: bool = False
    finished: Set[str] = field(default_factory=set)
    done: Dict[str, Set[str]] = field(default_factory=dict)


def read(path: Path) -> History:
    """Read the events written so far; a missing file is an empty history."""
    history = History()
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return history
    with stream:
        for line in stream:
            event = _parsed(line)
            if event is not None:
                _note(history, event)
    return history


def is_final(data: Mapping[str, object]) -> bool:
    """Return whether a test record settles its test: a teardown report or a synthetic record."""
    return data.get("record") == "report" and (data.get("when") == "teardown" or "cause" in data)


def _parsed(line: bytes) -> Optional[Mapping[str, object]]:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("seq"), int) else None


def _note(history: History, event: Mapping[str, object]) -> None:
    seq, ts, job, data = (event.get(key) for key in ("seq", "ts", "job", "data"))
    history.last_seq = max(history.last_seq, seq if isinstance(seq, int) else 0)
    if history.began_at is None and isinstance(ts, (int, float)):
        history.began_at = float(ts)
    history.ended = history.ended or event.get("kind") == "end"
    if not isinstance(job, str) or not isinstance(data, dict):
        return
    if event.get("kind") == "phase" and data.get("name") == "finished":
        history.finished.add(job)
    if event.get("kind") == "test" and is_final(data):
        history.done.setdefault(job, set()).add(str(data.get("nodeid")))


ParsedEvent = Tuple[str, Dict[str, JsonValue]]
"""An event's kind and its data."""

Scalar = Union[None, bool, int, float, str]
Fields = Mapping[str, object]

READY = "ready"
"""Name of the event that an arm sends when it has warmed up and waits for its first turn."""

_NAME_CHARS = 500
_TEXT_CHARS = 4_000
_SAMPLES = 100_000
_PARAMS = 100
_WHOLE = 2**63
_WORD = re.compile("[A-Za-z]{3}")
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
_LARGEST = 1e300
"""Largest magnitude of a float: sums and squares of larger values are not finite."""


class BadLineError(ValueError):
    """A line is invalid; the text gives the reason."""


def understand(line: Fields) -> ParsedEvent:
    """Turn one line into an event.

    Raises:
        BadLineError: the line has none of the three forms, or an invalid value.
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
    wrong = _outside(line, data) if data["outcome"] == "passed" else ""
    if wrong:
        data["outcome"], data["reason"] = "failed", f"said to have passed, but {wrong}"
    return data


def _outside(line: Fields, data: Fields) -> str:
    """Return why a value is not within its tolerance, as text; empty if it is.

    Without a tolerance it has to be equal to the expected value.
    """
    if data.get("tolerance") is None:
        return _difference(line) if "value" in line and "expected" in data else ""
    for key in ("value", "expected"):
        if data.get(key) is None and (key in line or "expected" in data):
            return f"there is a tolerance, and {key} is null or missing, so nothing was compared"
    if "expected" not in data:  # the limit that the job itself compared with
        is_none = _is_no_number(data["value"])
        return f"there is a tolerance, and value is {data['value']!r}" if is_none else ""
    value, expected = _truth(data["value"]), _truth(data["expected"])
    if isinstance(value, str) and value == expected:
        return ""
    if isinstance(value, bool) or isinstance(expected, bool):
        return "" if value == expected else f"{value!r} is not {expected!r}"
    return _distance_problem(data)


def _difference(data: Fields) -> str:
    """Return a sentence if the value and the expected value differ; empty if they are equal.

    A text is not compared with a number or a boolean, except for null and texts such as ``nan``.
    """
    value, expected = _comparable(data["value"]), _comparable(data["expected"])
    is_text = isinstance(value, str), isinstance(expected, str)
    is_none = any(map(_is_no_number, (value, expected)))
    if value == expected or (is_text[0] is not is_text[1] and not is_none):
        return ""
    return f"{data['value']!r} is not {data['expected']!r}, and there is no tolerance"


def _comparable(value: object) -> object:
    """Return the boolean or number that a text represents; any other value unchanged."""
    value = _truth(value)
    number = _number(value) if isinstance(value, str) else None
    return value if number is None else number


def _is_no_number(value: object) -> bool:
    """Return whether a value represents a number that is not finite: null or ``nan``."""
    try:
        is_text = isinstance(value, str) and _WORD.search(value) is not None
        return value is None or (is_text and not math.isfinite(float(str(value))))
    except ValueError:
        return False


def _distance_problem(data: Fields) -> str:
    numbers = []
    for key in ("value", "expected", "tolerance"):
        number = _number(data[key])
        if number is None:
            return f"there is a tolerance, and {key} is {data[key]!r:.80}, which is no number"
        numbers.append(number)
    if abs(numbers[0] - numbers[1]) <= numbers[2]:
        return ""
    return f"{data['value']!r} is more than {data['tolerance']!r} away from {data['expected']!r}"


def _truth(value: object) -> object:
    """Return the boolean that a text such as ``True`` represents; any other value unchanged."""
    named = {"true": True, "false": False}
    return named.get(value.strip().lower(), value) if isinstance(value, str) else value


def _number(value: object) -> Union[int, float, None]:
    """Return a number, or the number that a text represents; None if the value is neither."""
    try:
        if isinstance(value, str):
            value = int(value) if _WHOLE_NUMBER.fullmatch(value) else float(value)
        return _finite(value, "a figure")
    except ValueError:
        return None


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
    """Read ``ready``, or the number of a turn that has ended."""
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
    if isinstance(value, float) and not math.isfinite(value):
        raise BadLineError(f"{key} holds {value!r}, which is no finite number")
    if abs(value) >= (_WHOLE if isinstance(value, int) else _LARGEST):
        raise BadLineError(f"{key} holds {value!r:.40}, which is too large")
    return value


UNUSABLE = "unusable-events"
"""The failed check of a job with unreadable event lines: one of them may have been a failure."""

_PROCESS = "_seatrial_process"
"""Key of the id of the process that ended, in lines that Seatrial's own modules write."""
_LINES = 50_000
_WARNINGS = 20


class Checks:
    """Follows one job's own lines."""

    def __init__(
        self,
        tail: JsonLinesTail,
        events: EventWriter,
        job: str,
        *,
        hear: Optional[Callable[[str, Data], None]] = None,
    ) -> None:
        """Prepare to follow.

        Args:
            tail: Reader of the file with the lines.
            events: Receives the problems of bad lines, and every line without `hear`.
            job: Id of the job that writes the lines.
            hear: Receives every valid line with its kind, instead of the event stream.
        """
        self._tail = tail
        self._events = events
        self._job = job
        self._hear = hear or self._emit
        self._taken = 0
        self._bad = 0
        self._unusable = ""
        self._scales: Dict[str, Tuple[object, object]] = {}

    def poll(self) -> bool:
        """Read the new lines; return whether there were any."""
        return self._take(self._tail.poll())

    def drain(self) -> None:
        """Read the remaining lines after the job's end."""
        self._take(self._tail.drain())
        lost = self._tail.lost
        self._tail.close()
        if lost:
            text = f"$SEATRIAL_EVENTS {lost} while the job ran: lines may be lost; append to it"
            self._events.log("warning", text, self._job)
            self.unread(text)
        if self._bad > _WARNINGS:
            text = f"{self._bad} lines in $SEATRIAL_EVENTS were bad; {_WARNINGS} are named above"
            self._events.log("warning", text, self._job)
        if self._taken > _LINES:
            text = f"$SEATRIAL_EVENTS held {self._taken} lines; those after {_LINES} were left out"
            self._events.log("warning", text, self._job)
            self.unread(text)
        if self._unusable:
            self.fail(UNUSABLE, self._unusable)

    def fail(self, check: str, reason: str) -> None:
        """Add a failed check of the agent's own, which fails the job."""
        self._hear("check", {"check": check, "outcome": "failed", "reason": reason})

    def unread(self, text: str) -> None:
        """Fail the job at its end, because a part of its output was dropped."""
        self._unusable = self._unusable or text

    def _take(self, lines: List[Line]) -> bool:
        for number, line, wrong in lines:
            self._taken += 1
            if self._taken > _LINES:
                continue
            if line is not None and line.get(_PROCESS) in [str(pid) for pid in processes.started]:
                continue  # its exit code says so
            try:
                if line is None:
                    raise BadLineError(wrong)
                kind, data = understand(line)
                if kind == "metric":
                    self._check_scale(data)
            except BadLineError as error:
                self._complain(number, error)
            else:
                self._hear(kind, data)
        return bool(lines)

    def _check_scale(self, data: Data) -> None:
        """Check that each metric has one unit and direction.

        Raises:
            BadLineError: it had others before.
        """
        scale = data["unit"], data["direction"]
        key = json.dumps([data["metric"], data["params"]], sort_keys=True)
        known = self._scales.setdefault(key, scale)
        if scale != known:
            both = " and ".join(f"{unit!r} ({better} is better)" for unit, better in (known, scale))
            raise BadLineError(f"the metric {data['metric']!r} is in {both}: name them differently")

    def _emit(self, kind: str, data: Data) -> None:
        if kind != "turn":  # of a benchmark that runs without turns
            self._events.emit(kind, self._job, data)

    def _complain(self, number: int, error: BadLineError) -> None:
        self._bad += 1
        text = f"line {number} of $SEATRIAL_EVENTS is left out: {error}"
        self.unread(text)
        if self._bad <= _WARNINGS:
            self._events.log("warning", text, self._job)
