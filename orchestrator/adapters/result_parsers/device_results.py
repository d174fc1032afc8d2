"""``results.json`` of a device's own retest: a flat JSON object with figures and a verdict.

The format has no specification: common keys are read, and the others are reported as not
understood. The file's verdict is compared with its device facts: a verdict PASS where no device was
available proves nothing about that device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.adapters.result_parsers.bounded_input import (
    LINE_LIMIT,
    as_count,
    as_line,
    as_list,
    as_map,
    as_number,
    as_seconds,
    as_text,
    head_text,
    parsed_time,
)
from orchestrator.adapters.result_parsers.json_stream import JsonReader
from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedEnd,
    ParsedEnvironment,
    ParsedItem,
    ParsedJob,
    ParsedMetric,
    ParsedProblem,
    ParsedTally,
    ParsedTest,
    ParsedUnnamedTests,
    Provenance,
)

_AVAILABLE = re.compile(r'"(?:xpu|cuda|gpu|rocm|hip|mps|tpu|hpu|npu|ipex)_available"\s*:\s*')
_VERSION = re.compile(r'"(?:py)?torch_version"\s*:|"platform"\s*:')
_FLAG = re.compile(r"(xpu|cuda|gpu|rocm|hip|mps|tpu|hpu|npu|ipex)_(?:is_)?available")
_NAMED = re.compile(r"(?i)(?:^|[/\\_.-])results\.json$")
_SOFTWARE: Final = {
    "python": "python", "python_version": "python",
    "torch": "torch", "torch_version": "torch", "pytorch": "torch", "pytorch_version": "torch",
    "cuda_version": "cuda", "hip_version": "hip", "rocm_version": "hip", "xla_version": "xla",
}  # fmt: skip
_MACHINE: Final = {"platform": "os", "os": "os", "kernel": "kernel", "hostname": "hostname"}
_INNER: Final = {
    "environment", "env", "system", "system_info", "platform_info", "device_info", "hardware",
    "info", "versions",
}  # fmt: skip
_DEVICES: Final = {"device", "devices", "device_name", "gpu", "gpus", "gpu_name", "xpu_devices"}
_TESTS: Final = {"tests", "results", "test_results"}
_CHECKS: Final = {"validation", "validations", "checks"}
_BENCHMARKS: Final = {"benchmarks", "benchmark", "performance", "metrics", "timings"}
_VERDICTS: Final = ("status", "overall_status", "overall", "verdict", "outcome", "result")
_TIMES: Final = {"timestamp", "date"}
_SILENT: Final = {"version", "name", "title", "description", "notes"}


class DeviceResults:
    """Parses a device's ``results.json`` (`Dialect`)."""

    name = "device-results"
    version = 3
    provenance = Provenance.STRUCTURED

    def match(self, artifact: Artifact) -> float:
        """Return how likely it is the format, by its first bytes: 0 is no, 1 names its producer."""
        head = head_text(artifact)
        if not head.startswith("{") or not _AVAILABLE.search(head):
            return 0.0
        is_named = _NAMED.search(artifact.name) is not None
        if _VERSION.search(head):
            return 0.8 if is_named else 0.6
        return 0.5 if is_named else 0.3

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the parsed items of the artifact in their order, in bounded memory."""
        reader = JsonReader(artifact, {()})
        for _, root in reader.parts():
            yield from _Document(as_map(root)).statements()
        yield from reader.problems
        if not reader.is_torn:
            yield reader.ended(ParsedEnd(inferred=True))


class _Document:
    """Collects what one JSON document has about the machine, its parts and its verdict."""

    def __init__(self, root: Mapping[str, object]) -> None:
        self._facts: Facts = {}
        self._machine: Facts = {}
        self._available: dict[str, bool] = {}
        self._devices: list[Facts] = []
        self._parts: list[tuple[str, object]] = []
        self._strange: list[str] = []
        self._verdict = ""
        self._times: list[object] = []
        self._sort(root, depth=0)

    def statements(self) -> Iterator[ParsedItem]:
        """Yield the environment, the times, the job with its results, and the problems."""
        missing = self._missing
        if self._devices and not missing:
            self._machine["devices"] = self._devices
        facts = {**self._facts, "machine": self._machine} if self._machine else self._facts
        if facts:
            yield ParsedEnvironment(facts)
        for written in self._times:
            yield from parsed_time(written)
        told = [each for key, part in self._parts for each in _statements_of_part(key, part)]
        yield ParsedJob(kind=_kind(told))
        yield from told
        yield from self._judge(missing)
        if self._strange:
            keys = ", ".join(self._strange[:10])
            yield ParsedProblem("warning", f"not understood: {keys}")

    @property
    def _missing(self) -> str:
        """Return the name of an unavailable device; empty if another device was available."""
        absent = [name for name, is_there in self._available.items() if not is_there]
        return absent[0].upper() if absent and not any(self._available.values()) else ""

    def _judge(self, missing: str) -> Iterator[ParsedItem]:
        state = state_of(self._verdict)
        if state is None:
            if self._verdict:
                self._strange.append(f"status {self._verdict[:80]}")
            if missing:
                yield ParsedProblem("warning", f"it says that no {missing} was available")
            return
        if not missing or state != "passed":
            yield ParsedCheck("status", state, value=self._verdict)
            return
        os = as_line(self._machine.get("os"))
        where = f" (platform {os})" if os else ""
        reason = f"no {missing} was available"
        yield ParsedCheck("status", "skipped", value=self._verdict, reason=reason)
        yield ParsedProblem(
            "error",
            f"it says {self._verdict}, and that no {missing} was available{where}: what passed "
            "did not run on one",
        )

    def _sort(self, mapping: Mapping[str, object], *, depth: int) -> None:
        for key, value in mapping.items():
            lower = key.lower()
            if isinstance(value, dict) and lower in (*_INNER, "platform") and depth < 3:
                self._sort(value, depth=depth + 1)
            elif lower in _TIMES:
                self._times.append(value)
            elif not self._take(lower, value) and lower not in _SILENT:
                self._strange.append(key[:80])

    def _take(self, key: str, value: object) -> bool:
        """Read the value of a key; return whether the key is known."""
        if (flag := _FLAG.fullmatch(key)) and isinstance(value, bool):
            self._available[flag.group(1)] = value
        elif key in _SOFTWARE:
            self._note(self._facts, _SOFTWARE[key], value)
        elif key in _MACHINE:
            self._note(self._machine, _MACHINE[key], value)
        elif key in _DEVICES:
            self._devices += devices_of(value)
        elif key in _TESTS | _CHECKS | _BENCHMARKS and isinstance(value, dict | list):
            self._parts.append((key, value))
        else:
            return self._take_verdict(key, value)
        return True

    def _take_verdict(self, key: str, value: object) -> bool:
        if key not in _VERDICTS or not isinstance(value, str | bool):
            return False
        word = value if isinstance(value, str) else ("PASS" if value else "FAIL")
        self._verdict = self._verdict or as_line(word)
        return True

    def _note(self, facts: Facts, key: str, value: object) -> None:
        if word := as_line(value):
            facts.setdefault(key, word)


def _statements_of_part(key: str, part: object) -> Iterator[ParsedItem]:
    if key in _BENCHMARKS:
        yield from metrics_of(part)
    else:
        yield from tests_of(part, key, as_checks=key in _CHECKS)


def _kind(statements: list[ParsedItem]) -> str:
    if any(isinstance(each, ParsedTest | ParsedUnnamedTests) for each in statements):
        return "suite"
    only_metrics = any(isinstance(each, ParsedMetric) for each in statements)
    return "benchmark" if only_metrics else "demo"


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
    """Return ``passed``, ``failed`` or ``skipped``; None for other values."""
    if isinstance(value, bool):
        return "passed" if value else "failed"
    word = as_line(value).strip(" .!✅❌").lower()
    return _STATES.get(word)


def devices_of(value: object) -> list[Facts]:
    """Return the devices of a word, a list of words, or objects."""
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


def tests_of(part: object, group: str, *, as_checks: bool) -> Iterator[ParsedItem]:
    """Yield outcomes: counts, by name, or from a list of objects; a test is ``group::name``."""
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


def metrics_of(part: object, path: tuple[str, ...] = ()) -> Iterator[ParsedItem]:
    """Yield the metrics whose names contain their unit; the others are counted."""
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


def _is_sum(counts: Mapping[str, object]) -> bool:
    """Return whether the object only counts outcomes and names no test."""
    return set(counts) <= {*_COUNTED, *_SUMS}


def _counted(part: Mapping[str, object]) -> Iterator[ParsedItem]:
    counts: dict[str, int] = {}
    for key, value in part.items():
        word, number = _COUNTED.get(key), as_count(value)
        if word is not None and number is not None and number < 10**9:
            counts[word] = counts.get(word, 0) + number
    yield ParsedUnnamedTests(counts)
    total = as_count(part.get("total"))
    if total is not None:
        yield ParsedTally("footer", total, counts)


def _outcome(name: str, value: object, group: str) -> Iterator[ParsedItem]:
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


def _name(entry: Mapping[str, object]) -> str:
    return next((word for key in _NAMES if (word := as_line(entry.get(key)))), "")
