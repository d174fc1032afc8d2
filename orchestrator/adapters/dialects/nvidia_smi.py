"""What ``nvidia-smi`` prints: its CSV with or without header and units, its table, its ``-q``.

A query that was repeated (``-l``) is a series of samples, and each quantity of each device becomes
a metric. Asked once, it only tells which devices there are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from orchestrator.adapters.dialects.bounded_input import as_line
from orchestrator.adapters.dialects.nvidia_smi_fields import (
    DIRECTIONS,
    Column,
    amount,
    columns,
    device_fact,
    guessed_columns,
    is_absent,
)
from orchestrator.adapters.dialects.nvidia_smi_text import TextDevices, looks_like_text
from orchestrator.adapters.dialects.text_lines import head_lines, text_lines
from orchestrator.application.ports.dialects import Artifact, UnreadableError
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedEnvironment,
    ParsedJob,
    ParsedMetric,
    ParsedProblem,
    Provenance,
    Said,
)

MOST_DEVICES: Final = 64
MOST_SAMPLES: Final = 100_000
"""Of one quantity of one device."""
_ALL_SAMPLES: Final = 2_000_000
_MOST_CELLS: Final = 200
_FIRST_LOOK: Final = 20
_NONE = "No devices were found"
_BROKEN = "NVIDIA-SMI has failed"
_IDENTITIES: Final = ("uuid", "index", "pci.bus_id", "serial")


class NvidiaSmi:
    """Implements `Dialect`."""

    name = "nvidia-smi-csv"
    version = 1
    provenance = Provenance.STRUCTURED

    def match(self, artifact: Artifact) -> float:
        """See the port."""
        lines = _first(iter(head_lines(artifact)))
        if not lines:
            return 0.0
        if lines[0].startswith((_NONE, _BROKEN)):
            return 0.8
        if columns(lines[0]):
            return 0.95
        if looks_like_text(lines):
            return 0.85
        return 0.7 if guessed_columns(lines) else 0.0

    def read(self, artifact: Artifact) -> Iterator[Said]:
        """See the port."""
        first = _first(text_lines(artifact))
        if not first:
            raise UnreadableError("it holds no line of nvidia-smi")
        lines = (line.strip() for line in text_lines(artifact))
        if first[0].startswith((_NONE, _BROKEN)):
            yield from _nothing(first[0])
        elif looks_like_text(first):
            yield from TextDevices(lines).said()
        else:
            yield from _said_of_rows(first, lines)


def _first(lines: Iterator[str]) -> list[str]:
    told = (line.strip() for line in islice(lines, _FIRST_LOOK * 2))
    return list(islice((line for line in told if line), _FIRST_LOOK))


def _nothing(line: str) -> Iterator[Said]:
    yield ParsedEnvironment({"machine": {"devices": []}})
    yield ParsedProblem("error", f"nvidia-smi found no device: {as_line(line)}")


def _said_of_rows(first: Sequence[str], lines: Iterator[str]) -> Iterator[Said]:
    header = columns(first[0])
    heads = header or guessed_columns(first)
    if not heads:
        raise UnreadableError("its columns are not nvidia-smi's")
    rows = _Rows(heads)
    for number, line in enumerate(lines, 1):
        if line and not (header and line == first[0]):
            rows.add(number, line)
    yield from rows.said()


@dataclass(slots=True)
class _Device:
    """One device, and what was measured on it."""

    facts: dict[str, object]
    rows: int = 0
    samples: dict[str, array[float]] = field(default_factory=dict)


class _Rows:
    """Collects rows."""

    def __init__(self, heads: Sequence[Column]) -> None:
        self._heads = heads[:_MOST_CELLS]
        names = [head.name for head in heads]
        self._identity = next((name for name in _IDENTITIES if name in names), None)
        self._is_series = "timestamp" in names
        self._devices: dict[str, _Device] = {}
        self._left_out: dict[str, int] = {}
        self._kept = 0

    def add(self, number: int, line: str) -> None:
        """One row."""
        if line.startswith((_NONE, _BROKEN)):
            self._leave_out(f"from line {number} on nvidia-smi says: {line[:100]}")
            return
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(self._heads):
            self._leave_out("lines have another number of cells than the first one")
            return
        row = {head: cell for head, cell in zip(self._heads, cells, strict=True) if cell}
        device = self._device(row)
        if device is None:
            self._leave_out(f"lines tell of more than {MOST_DEVICES} devices")
            return
        device.rows += 1
        for head, cell in row.items():
            self._sample(device, head, cell)

    def said(self) -> Iterator[Said]:
        """All of it."""
        facts = [dict(device.facts) for device in self._devices.values()]
        yield ParsedEnvironment({"machine": {"devices": facts}})
        for why, count in self._left_out.items():
            yield ParsedProblem("warning", f"{count} left out: {why}")
        if not facts:
            yield ParsedProblem("error", "it has a header, and no device below it")
        if self._is_series or any(device.rows > 1 for device in self._devices.values()):
            yield from self._series()

    def _series(self) -> Iterator[Said]:
        yield ParsedJob(kind="benchmark", title="Device samples")
        for key, device in self._devices.items():
            params: dict[str, object] = {"device": as_line(device.facts.get("name")) or key}
            if len(self._devices) > 1:
                params["id"] = key
            for name, samples in device.samples.items():
                quantity, _, unit = name.partition(" ")
                direction = DIRECTIONS[quantity]
                yield ParsedMetric(quantity, tuple(samples), unit, direction, params)
        yield ParsedEnd(inferred=True)

    def _device(self, row: Mapping[Column, str]) -> _Device | None:
        words = {head.name: cell for head, cell in row.items()}
        key = words.get(self._identity or "name", "")
        if self._identity is None and not self._is_series:
            key = f"{len(self._devices)}"
        device = self._devices.get(key)
        if device is None and len(self._devices) < MOST_DEVICES:
            device = self._devices[key] = _Device({"vendor": "nvidia"})
        if device is not None and device.rows < _FIRST_LOOK:
            for head, cell in row.items():
                device.facts.update(device_fact(head, cell))
        return device

    def _sample(self, device: _Device, head: Column, cell: str) -> None:
        if head.name not in DIRECTIONS or is_absent(cell):
            return
        value, unit = amount(cell)
        if value is None:
            return
        name = f"{head.name} {head.unit or unit}".strip()
        samples = device.samples.setdefault(name, array("d"))
        if len(samples) >= MOST_SAMPLES or self._kept >= _ALL_SAMPLES:
            self._leave_out(f"samples beyond {MOST_SAMPLES} of one quantity")
            return
        samples.append(value)
        self._kept += 1

    def _leave_out(self, why: str) -> None:
        if why in self._left_out or len(self._left_out) < _FIRST_LOOK:
            self._left_out[why] = self._left_out.get(why, 0) + 1
