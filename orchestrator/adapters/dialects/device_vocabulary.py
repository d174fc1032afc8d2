"""The shapes in which files without a format write outcomes, devices and figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.adapters.dialects.bounded_input import (
    LINE_LIMIT,
    as_count,
    as_line,
    as_list,
    as_map,
    as_number,
    as_seconds,
    as_text,
)
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedMetric,
    ParsedProblem,
    ParsedTally,
    ParsedTest,
    ParsedUnnamedTests,
    Said,
)

Facts = dict[str, object]
_STATES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("pass", "passed", "ok", "success", "successful", "succeeded"), "passed"),
    **dict.fromkeys(("fail", "failed", "failure", "error", "errored"), "failed"),
    **dict.fromkeys(("skip", "skipped", "n/a", "not run"), "skipped"),
}
_OUTCOMES: Final = {
    "passed": TestOutcome.PASSED, "failed": TestOutcome.FAILED, "skipped": TestOutcome.SKIPPED,
}  # fmt: skip
_COUNTED: Final[Mapping[str, str]] = {
    "passed": "passed", "pass": "passed", "failed": "failed", "fail": "failed",
    "failures": "failed", "error": "error", "errors": "error", "skipped": "skipped",
    "skip": "skipped", "xfailed": "xfailed", "xpassed": "xpassed",
}  # fmt: skip
_SUMS: Final = {"total", "count", "tests", "pass_rate", "success_rate", "duration", "duration_s"}
_NAMES: Final = ("name", "test", "id", "nodeid", "check")
_STATE_KEYS: Final = ("status", "outcome", "result", "state", "passed", "success")
_UNITS: Final = (
    (re.compile(r"(.+?)_tok(?:en)?s_per_s(?:ec(?:ond)?)?"), "tokens/s", "higher"),
    (re.compile(r"(.+?)_(?:samples|images|items)_per_s(?:ec(?:ond)?)?"), "samples/s", "higher"),
    (re.compile(r"(.+?)_per_s(?:ec(?:ond)?)?"), "1/s", "higher"),
    (re.compile(r"(.+?)_tflops"), "TFLOP/s", "higher"),
    (re.compile(r"(.+?)_gflops"), "GFLOP/s", "higher"),
    (re.compile(r"(.+?)_gbps"), "GB/s", "higher"),
    (re.compile(r"(.+?)_ms"), "ms", "lower"),
    (re.compile(r"(.+?)_us"), "us", "lower"),
    (re.compile(r"(.+?)_(?:s|sec|seconds)"), "s", "lower"),
    (re.compile(r"(.+?)_mib"), "MiB", "lower"),
    (re.compile(r"(.+?)_mb"), "MB", "lower"),
    (re.compile(r"(.+?)_gb"), "GB", "lower"),
)
_SPEEDUP = re.compile(r"(?i)(?:.*_)?speed_?up")
_MEMORY: Final = {"memory_mib": 1024**2, "memory_mb": 10**6, "memory_gb": 10**9, "memory_bytes": 1}
_MOST: Final = 100_000


def state_of(value: object) -> str | None:
    """passed, failed or skipped; None of what is none of them."""
    if isinstance(value, bool):
        return "passed" if value else "failed"
    word = as_line(value).strip(" .!✅❌").lower()
    return _STATES.get(word)


def devices_of(value: object) -> list[Facts]:
    """Devices that are told as a word, a list of words, or objects."""
    found: list[Facts] = []
    for each in (value if isinstance(value, list) else [value])[:64]:
        told = as_map(each)
        name = as_line(each) or next((w for k in _NAMES if (w := as_line(told.get(k)))), "")
        if not name or name.lower() in ("cpu", "none", "n/a"):
            continue
        device: Facts = {"name": name}
        vendor = re.match(r"(?i)nvidia|amd|intel|google", name)
        if vendor:
            device["vendor"] = vendor.group().lower()
        for key, factor in _MEMORY.items():
            if size := as_seconds(told.get(key)):
                device["memory_bytes"] = int(size * factor)
        found.append(device)
    return found


def tests_of(part: object, group: str, *, as_checks: bool) -> Iterator[Said]:
    """Outcomes: counted, by name, or as a list of objects; a test is ``group::name``."""
    told = as_map(part)
    if any(k in _COUNTED and _is_count(v) for k, v in told.items()) and _is_sum(told):
        yield from _counted(told)
        return
    rows = [(name, value) for name, value in told.items()]
    rows += [(_name(as_map(each)) or as_line(each), each) for each in as_list(part)]
    left_out = max(len(rows) - _MOST, 0)
    for name, value in rows[:_MOST]:
        said = list(_outcome(name, value, "" if as_checks else group))
        left_out += not said
        yield from said
    if left_out:
        yield ParsedProblem("warning", f"{left_out} of its results are not understood")


def metrics_of(part: object, path: tuple[str, ...] = ()) -> Iterator[Said]:
    """Figures whose names say their unit; the others are counted."""
    items = list(as_map(part).items())
    items += [(_name(as_map(each)) or str(n), each) for n, each in enumerate(as_list(part))]
    left_out = max(len(items) - _MOST, 0)
    for name, value in items[:_MOST]:
        if isinstance(value, dict) and len(path) < 3:
            yield from metrics_of(value, (*path, name))
            continue
        metric = _metric(name, value, path)
        if metric is not None:
            yield metric
        elif not isinstance(value, str):
            left_out += 1
    if left_out:
        where = f" of {'.'.join(path)[:80]}" if path else ""
        yield ParsedProblem("warning", f"{left_out} figures{where} are left out: they have no unit")


def _metric(name: str, value: object, path: tuple[str, ...]) -> ParsedMetric | None:
    values = value if isinstance(value, list) else [value]
    samples = tuple(n for each in values[:_MOST] if (n := as_number(each)) is not None)
    if not samples:
        return None
    params: Facts = {"benchmark": ".".join(path)[:LINE_LIMIT]} if path else {}
    if _SPEEDUP.fullmatch(name):
        return ParsedMetric(name[:LINE_LIMIT], samples, "x", "higher", params)
    for form, unit, direction in _UNITS:
        if found := form.fullmatch(name[:LINE_LIMIT].lower()):
            return ParsedMetric(found.group(1), samples, unit, direction, params)
    return None


def _is_count(value: object) -> bool:
    return not isinstance(value, bool | str) and as_count(value) is not None


def _is_sum(told: Mapping[str, object]) -> bool:
    """Whether the object counts outcomes, and names no test."""
    return set(told) <= {*_COUNTED, *_SUMS}


def _counted(told: Mapping[str, object]) -> Iterator[Said]:
    counts: dict[str, int] = {}
    for key, value in told.items():
        word, number = _COUNTED.get(key), as_count(value)
        if word is not None and number is not None and number < 10**9:
            counts[word] = counts.get(word, 0) + number
    yield ParsedUnnamedTests(counts)
    total = as_count(told.get("total"))
    if total is not None:
        yield ParsedTally("footer", total, counts)


def _outcome(name: str, value: object, group: str) -> Iterator[Said]:
    told = as_map(value)
    state = state_of(value)
    for key in _STATE_KEYS if told else ():
        state = state or state_of(told.get(key))
    name = as_text(name, LINE_LIMIT)
    if not name:
        return
    if state is None:
        metric = _metric(name, value, ())
        if metric is not None:
            yield metric
        return
    keys = ("message", "error", "reason", "detail")
    why = next((w for key in keys if (w := as_line(told.get(key)))), "")
    if not group:
        yield ParsedCheck(name, state, reason=why)
        return
    seconds = as_seconds(told.get("duration_s", told.get("duration")))
    is_skip = state == "skipped"
    reason, message = (why, "") if is_skip else ("", why)
    yield ParsedTest(f"{group}::{name}", _OUTCOMES[state], seconds, reason, message)


def _name(told: Mapping[str, object]) -> str:
    return next((word for key in _NAMES if (word := as_line(told.get(key)))), "")
