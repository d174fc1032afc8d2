"""The names and values of ``nvidia-smi --query-gpu``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
"""What can be sampled, and which way is better."""
_KNOWN: Final = {
    *DIRECTIONS, "timestamp", "index", "name", "uuid", "serial", "driver_version", "memory.total",
    "memory.free", "memory.reserved", "compute_cap", "pci.bus_id", "pstate", "count",
    "power.limit", "vbios_version", "persistence_mode", "compute_mode", "ecc.mode.current",
    "clocks.max.sm", "clocks.max.memory", "clocks.max.graphics", "mig.mode.current",
}  # fmt: skip
_GENERAL: Final = {"timestamp", "index", "name", "serial", "count"}
"""Words that any table may have."""
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
class Column:
    """One of the quantities that were asked for."""

    name: str
    unit: str = ""
    place: int = 0


def columns(line: str) -> list[Column]:
    """The header; empty where the line is none."""
    cells = [cell.strip() for cell in line[:10_000].split(",")]
    found = [_HEAD.fullmatch(cell) for cell in cells]
    if not all(found):
        return []
    heads = [
        Column(_ALIASES.get(head.group(1), head.group(1)), head.group(2) or "", place)
        for place, head in enumerate(found)
        if head
    ]
    known = {head.name for head in heads} & _KNOWN
    return heads if known - _GENERAL and len(known) * 2 >= len(heads) else []


def guessed_columns(lines: Sequence[str]) -> list[Column]:
    """What rows without a header seem to hold; empty where nothing says that they are a GPU's."""
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    if len(rows[0]) < 2 or any(len(row) != len(rows[0]) for row in rows):
        return []
    heads: list[Column] = []
    for place, cell in enumerate(rows[0]):
        taken = {head.name for head in heads}
        fitting = (name for name, form in _GUESSES if form.fullmatch(cell) and name not in taken)
        heads.append(Column(next(fitting, f"column {place + 1}"), "", place))
    names = {head.name for head in heads}
    return heads if names & {"uuid", "name"} and len(names & _KNOWN) > 1 else []


def is_absent(cell: str) -> bool:
    """``[N/A]`` and its kin."""
    return _ABSENT.fullmatch(cell) is not None


def amount(cell: str) -> tuple[float | None, str]:
    """A number and its unit."""
    found = _AMOUNT.fullmatch(cell)
    return (float(found.group(1)), found.group(2) or "") if found else (None, "")


def device_fact(head: Column, cell: str) -> dict[str, object]:
    """What a cell says of the device itself."""
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
