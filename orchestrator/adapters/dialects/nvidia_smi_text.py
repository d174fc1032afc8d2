"""The two texts that ``nvidia-smi`` prints for people: its table, and its long form (``-q``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from orchestrator.domain.parsed_results import ParsedEnvironment, ParsedProblem, Said

_MIB: Final = 1024 * 1024
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
    """Whether the first lines are one of the two."""
    return any(_TABLE_HEAD.match(line) or _LONG_HEAD.match(line) for line in lines[:_START])


class TextDevices:
    """Reads either text."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._machine: dict[str, object] = {}
        self._driver = ""
        self._devices: list[dict[str, object]] = []
        self._section = ""

    def said(self) -> Iterator[Said]:
        """The devices that it lists."""
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
            self._devices[-1].setdefault("memory_bytes", int(found.group(1)) * _MIB)

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
        return {"memory_bytes": int(memory.group(1)) * _MIB}
    return {}
