"""``results.json`` of a device's own trial: a flat JSON object with figures and a verdict.

No format has this name: the keys that such files share are known here, and the others are told as
not understood. What such a file claims is held against what it says of the device: a verdict
PASS where no device was available proves nothing about that device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.adapters.dialects.bounded_input import as_line, as_map, head_text
from orchestrator.adapters.dialects.device_vocabulary import (
    Facts,
    devices_of,
    metrics_of,
    state_of,
    tests_of,
)
from orchestrator.adapters.dialects.json_stream import JsonReader
from orchestrator.adapters.dialects.timestamps import said_of_time
from orchestrator.application.ports.dialects import Artifact
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedEnd,
    ParsedEnvironment,
    ParsedJob,
    ParsedMetric,
    ParsedProblem,
    ParsedTest,
    ParsedUnnamedTests,
    Provenance,
    Said,
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
    """Implements `Dialect`."""

    name = "device-results"
    version = 2
    provenance = Provenance.STRUCTURED

    def match(self, artifact: Artifact) -> float:
        """See the port."""
        head = head_text(artifact)
        if not head.startswith("{") or not _AVAILABLE.search(head):
            return 0.0
        is_named = _NAMED.search(artifact.name) is not None
        if _VERSION.search(head):
            return 0.8 if is_named else 0.6
        return 0.5 if is_named else 0.3

    def read(self, artifact: Artifact) -> Iterator[Said]:
        """See the port."""
        reader = JsonReader(artifact, {()})
        for _, root in reader.parts():
            yield from _Document(as_map(root)).said(is_torn=reader.is_torn)
        yield from reader.problems


class _Document:
    """One document."""

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

    def said(self, *, is_torn: bool) -> Iterator[Said]:
        """All of it."""
        missing = self._missing
        if self._devices and not missing:
            self._machine["devices"] = self._devices
        facts = {**self._facts, "machine": self._machine} if self._machine else self._facts
        if facts:
            yield ParsedEnvironment(facts)
        for written in self._times:
            yield from said_of_time(written)
        told = [each for key, part in self._parts for each in _said_of_part(key, part)]
        yield ParsedJob(kind=_kind(told))
        yield from told
        yield from self._judge(missing)
        if self._strange:
            keys = ", ".join(self._strange[:10])
            yield ParsedProblem("warning", f"not understood: {keys}")
        if not is_torn:
            yield ParsedEnd(inferred=True)

    @property
    def _missing(self) -> str:
        """The device that was not there, where no other was."""
        absent = [name for name, is_there in self._available.items() if not is_there]
        return absent[0].upper() if absent and not any(self._available.values()) else ""

    def _judge(self, missing: str) -> Iterator[Said]:
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
        """Whether the key is known."""
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


def _said_of_part(key: str, part: object) -> Iterator[Said]:
    if key in _BENCHMARKS:
        yield from metrics_of(part)
    else:
        yield from tests_of(part, key, as_checks=key in _CHECKS)


def _kind(told: list[Said]) -> str:
    if any(isinstance(each, ParsedTest | ParsedUnnamedTests) for each in told):
        return "suite"
    only_metrics = any(isinstance(each, ParsedMetric) for each in told)
    return "benchmark" if only_metrics else "demo"
