"""Output of ``nvidia-smi``: CSV with or without header and units, its table, and ``-q``.

A repeated query (``-l``) is a series of samples: each quantity of each device becomes a metric. A
single query only lists the devices.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from orchestrator.adapters.result_parsers.bounded_input import as_line
from orchestrator.adapters.result_parsers.text_lines import head_lines, text_lines
from orchestrator.application.ports.result_parsers import Artifact, UnreadableError
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedEnvironment,
    ParsedItem,
    ParsedJob,
    ParsedMetric,
    ParsedProblem,
    Provenance,
)

_MIB_TEXT: Final = 1024 * 1024
_MOST_DEVICES: Final = 64
_TABLE_HEAD = re.compile(r"\|\s*NVIDIA-SMI\s+\S+\s+Driver Version:\s*(\S+)\s+CUDA Version:\s*(\S+)")
_LONG_HEAD = re.compile(r"=+\s*NVSMI LOG\s*=+")
_TABLE_NAME = re.compile(
    r"\|\s+\d+\s{1,6}(\S.{0,60}?)(?:\s+(?:On|Off|N/A))?\s*\|\s*[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:"
)
_TABLE_MEMORY = re.compile(r"\|.*?\b\d+MiB\s*/\s*(\d{1,9})MiB\s*\|")
_LONG_ENTRY = re.compile(r"([A-Z][\w /]{1,40}?)\s*:\s*(\S.{0,200})")
_LONG_DEVICE = re.compile(r"GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
_START: Final = 8


def looks_like_text(lines: Sequence[str]) -> bool:
    """Return whether the first lines are the table or the output of ``-q``."""
    return any(_TABLE_HEAD.match(line) or _LONG_HEAD.match(line) for line in lines[:_START])


class TextDevices:
    """Reads the table or the output of ``-q``."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._machine: dict[str, object] = {}
        self._driver = ""
        self._devices: list[dict[str, object]] = []
        self._section = ""

    def statements(self) -> Iterator[ParsedItem]:
        """Yield the listed devices."""
        see: Callable[[str], None] = self._see_table
        for line in self._lines:
            if _LONG_HEAD.match(line):
                see = self._see_long
            see(line)
        driver = {"driver": self._driver} if self._driver else {}
        devices = [{"vendor": "nvidia", **device, **driver} for device in self._devices]
        yield ParsedEnvironment({"machine": {**self._machine, "devices": devices}})
        if not devices:
            yield ParsedProblem("error", "nvidia-smi lists no device")

    def _see_table(self, line: str) -> None:
        if head := _TABLE_HEAD.match(line):
            self._driver = head.group(1)
            self._machine["driver_cuda"] = head.group(2)
        elif (found := _TABLE_NAME.match(line)) and len(self._devices) < _MOST_DEVICES:
            self._devices.append({"name": found.group(1).strip()})
        elif (found := _TABLE_MEMORY.match(line)) and self._devices:
            self._devices[-1].setdefault("memory_bytes", int(found.group(1)) * _MIB_TEXT)

    def _see_long(self, line: str) -> None:
        if _LONG_DEVICE.fullmatch(line):
            if len(self._devices) < _MOST_DEVICES:
                self._devices.append({})
            return
        entry = _LONG_ENTRY.fullmatch(line)
        if entry is None:
            self._section = line
            return
        key, value = entry.group(1), entry.group(2).strip()
        if key == "Driver Version":
            self._driver = value
        elif key == "CUDA Version":
            self._machine["driver_cuda"] = value
        elif self._devices:
            self._devices[-1].update(_long_fact(self._section, key, value))


def _long_fact(section: str, key: str, value: str) -> Mapping[str, object]:
    if key in ("Product Name", "GPU UUID"):
        return {"name" if key == "Product Name" else "uuid": value}
    memory = re.fullmatch(r"(\d{1,9}) MiB", value)
    if section == "FB Memory Usage" and key == "Total" and memory:
        return {"memory_bytes": int(memory.group(1)) * _MIB_TEXT}
    return {}


MOST_DEVICES: Final = 64
MOST_SAMPLES: Final = 100_000
"""Maximum samples of one quantity of one device."""
_ALL_SAMPLES: Final = 2_000_000
_MOST_CELLS: Final = 200
_FIRST_LOOK: Final = 20
_NONE = "No devices were found"
_BROKEN = "NVIDIA-SMI has failed"
_IDENTITIES: Final = ("uuid", "index", "pci.bus_id", "serial")


class NvidiaSmi:
    """Parses the output of ``nvidia-smi`` (`Dialect`)."""

    name = "nvidia-smi-csv"
    version = 1
    provenance = Provenance.STRUCTURED

    def match(self, artifact: Artifact) -> float:
        """Return how likely it is the format, by its first bytes: 0 is no, 1 names its producer."""
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

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the parsed items of the artifact in their order, in bounded memory.

        Raises UnreadableError.
        """
        first = _first(text_lines(artifact))
        if not first:
            raise UnreadableError("it holds no line of nvidia-smi")
        lines = (line.strip() for line in text_lines(artifact))
        if first[0].startswith((_NONE, _BROKEN)):
            yield from _nothing(first[0])
        elif looks_like_text(first):
            yield from TextDevices(lines).statements()
        else:
            yield from _statements_of_rows(first, lines)


def _first(lines: Iterator[str]) -> list[str]:
    told = (line.strip() for line in islice(lines, _FIRST_LOOK * 2))
    return list(islice((line for line in told if line), _FIRST_LOOK))


def _nothing(line: str) -> Iterator[ParsedItem]:
    yield ParsedEnvironment({"machine": {"devices": []}})
    yield ParsedProblem("error", f"nvidia-smi found no device: {as_line(line)}")


def _statements_of_rows(first: Sequence[str], lines: Iterator[str]) -> Iterator[ParsedItem]:
    header = columns(first[0])
    heads = header or guessed_columns(first)
    if not heads:
        raise UnreadableError("its columns are not nvidia-smi's")
    rows = _Rows(heads)
    for number, line in enumerate(lines, 1):
        if line and not (header and line == first[0]):
            rows.add(number, line)
    yield from rows.statements()


@dataclass(slots=True)
class _Device:
    """One device with its samples."""

    facts: dict[str, object]
    rows: int = 0
    samples: dict[str, array[float]] = field(default_factory=dict)


class _Rows:
    """Collects the rows of a CSV."""

    def __init__(self, heads: Sequence[QueryColumn]) -> None:
        self._heads = heads[:_MOST_CELLS]
        names = [head.name for head in heads]
        self._identity = next((name for name in _IDENTITIES if name in names), None)
        self._is_series = "timestamp" in names
        self._devices: dict[str, _Device] = {}
        self._left_out: dict[str, int] = {}
        self._kept = 0

    def add(self, number: int, line: str) -> None:
        """Read one row of the CSV; count a row that is no sample as left out."""
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

    def statements(self) -> Iterator[ParsedItem]:
        """Yield the devices, the problems, and for a series its metrics."""
        facts = [dict(device.facts) for device in self._devices.values()]
        yield ParsedEnvironment({"machine": {"devices": facts}})
        for why, count in self._left_out.items():
            yield ParsedProblem("warning", f"{count} left out: {why}")
        if not facts:
            yield ParsedProblem("error", "it has a header, and no device below it")
        if self._is_series or any(device.rows > 1 for device in self._devices.values()):
            yield from self._series()

    def _series(self) -> Iterator[ParsedItem]:
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

    def _device(self, row: Mapping[QueryColumn, str]) -> _Device | None:
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

    def _sample(self, device: _Device, head: QueryColumn, cell: str) -> None:
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


_MIB: Final = 1024 * 1024
_UNITS: Final[Mapping[str, int]] = {
    "B": 1, "KiB": 1024, "MiB": _MIB, "GiB": 1024 * _MIB, "MB": 10**6, "GB": 10**9,
}  # fmt: skip
_ALIASES: Final[Mapping[str, str]] = {
    "gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id", "gpu_serial": "serial",
    "power.draw.average": "power.draw", "power.draw.instant": "power.draw",
    "clocks.gr": "clocks.current.graphics", "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory", "clocks.video": "clocks.current.video",
}  # fmt: skip
DIRECTIONS: Final[Mapping[str, str]] = {
    "temperature.gpu": "lower", "temperature.memory": "lower", "power.draw": "lower",
    "utilization.gpu": "higher", "utilization.memory": "higher", "memory.used": "lower",
    "clocks.current.graphics": "higher", "clocks.current.sm": "higher",
    "clocks.current.memory": "higher", "clocks.current.video": "higher", "fan.speed": "lower",
}  # fmt: skip
"""Quantities that are sampled, with their better direction."""
_KNOWN: Final = {
    *DIRECTIONS, "timestamp", "index", "name", "uuid", "serial", "driver_version", "memory.total",
    "memory.free", "memory.reserved", "compute_cap", "pci.bus_id", "pstate", "count",
    "power.limit", "vbios_version", "persistence_mode", "compute_mode", "ecc.mode.current",
    "clocks.max.sm", "clocks.max.memory", "clocks.max.graphics", "mig.mode.current",
}  # fmt: skip
_GENERAL: Final = {"timestamp", "index", "name", "serial", "count"}
"""Column names that occur in any table."""
_HEAD = re.compile(r"([a-z][a-z0-9_.]{1,60})(?: \[([A-Za-z%/]{1,10})\])?")
_AMOUNT = re.compile(r"(-?\d{1,15}(?:\.\d{1,9})?)(?: ?(%|[A-Za-z]{1,5}))?")
_ABSENT = re.compile(r"(?i)\[?(?:n/a|not supported|unknown error|not found|.*error.*|err!)\]?")
_GUESSES: Final = (
    ("uuid", re.compile(r"GPU-[0-9a-fA-F-]{8,40}")),
    ("name", re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|GRID|TITAN)\b.{0,60}")),
    ("driver_version", re.compile(r"\d{3}\.\d{1,3}(?:\.\d{1,3})?")),
    ("memory.total", re.compile(r"\d{3,7} MiB")),
    ("pci.bus_id", re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")),
    ("timestamp", re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?")),
    ("compute_cap", re.compile(r"\d{1,2}\.\d")),
    ("pstate", re.compile(r"P\d{1,2}")),
    ("index", re.compile(r"\d")),
)


@dataclass(frozen=True, slots=True)
class QueryColumn:
    """A column of `nvidia-smi --query-gpu`."""

    name: str
    unit: str = ""
    place: int = 0


def columns(line: str) -> list[QueryColumn]:
    """Return the columns of a header line; empty for other lines."""
    cells = [cell.strip() for cell in line[:10_000].split(",")]
    found = [_HEAD.fullmatch(cell) for cell in cells]
    if not all(found):
        return []
    heads = [
        QueryColumn(_ALIASES.get(head.group(1), head.group(1)), head.group(2) or "", place)
        for place, head in enumerate(found)
        if head
    ]
    known = {head.name for head in heads} & _KNOWN
    return heads if known - _GENERAL and len(known) * 2 >= len(heads) else []


def guessed_columns(lines: Sequence[str]) -> list[QueryColumn]:
    """Return the likely columns of rows without a header; empty if they do not fit a GPU."""
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    if not 2 <= len(rows[0]) <= _MOST_CELLS or any(len(row) != len(rows[0]) for row in rows):
        return []
    heads: list[QueryColumn] = []
    for place, cell in enumerate(rows[0]):
        taken = {head.name for head in heads}
        fitting = (name for name, form in _GUESSES if form.fullmatch(cell) and name not in taken)
        heads.append(QueryColumn(next(fitting, f"column {place + 1}"), "", place))
    names = {head.name for head in heads}
    return heads if names & {"uuid", "name"} and len(names & _KNOWN) > 1 else []


def is_absent(cell: str) -> bool:
    """Return whether the cell has no value, such as ``[N/A]``."""
    return _ABSENT.fullmatch(cell) is not None


def amount(cell: str) -> tuple[float | None, str]:
    """Return a number and its unit; (None, "") for other cells."""
    found = _AMOUNT.fullmatch(cell)
    return (float(found.group(1)), found.group(2) or "") if found else (None, "")


def device_fact(head: QueryColumn, cell: str) -> dict[str, object]:
    """Return the device fact of a cell; empty if the cell has none."""
    if is_absent(cell):
        return {}
    plain = {"name": "name", "uuid": "uuid", "driver_version": "driver"}
    if head.name in plain:
        return {plain[head.name]: cell[:200]}
    if head.name == "compute_cap" and re.fullmatch(r"\d{1,2}\.\d{1,2}", cell):
        return {"compute_capability": cell}
    if head.name == "memory.total":
        number, unit = amount(cell)
        factor = _UNITS.get(unit or head.unit or "MiB")
        if number is not None and factor and number >= 0:
            return {"memory_bytes": int(number * factor)}
    return {}
