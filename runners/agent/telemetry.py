"""Sensor readings: clocks, power, temperature, throttling, load. A missing sensor has no value."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import Dict, Iterator, List, Optional

from . import bounded_process

_NVIDIA_FIELDS = "clocks.sm,power.draw,temperature.gpu,clocks_throttle_reasons.active"
_NVIDIA_TIMEOUT_S = 5.0
_NVIDIA_EVERY_S = 1.0
"""Minimum seconds between two queries of nvidia-smi, because one takes a large part of a second."""
_HARMLESS = 0x1 | 0x2
"""Throttle reasons that are ignored: idle, and clocks that were set by a user."""
_CPUS = Path("/sys/devices/system/cpu")
_THERMAL = Path("/sys/class/thermal")
_CPUINFO = Path("/proc/cpuinfo")

Readings = Dict[str, float]

LAUNCH = "launch"
"""Name of the reading that numbers the processes of an arm."""


class Gauges:
    """Reads the machine's gauges; a gauge that failed once is not read again."""

    def __init__(self) -> None:
        self._nvidia = shutil.which("nvidia-smi")
        self._device: Readings = {}
        self._asked_at: Optional[float] = None

    def read(self) -> Readings:
        """Return the present readings by name, which contains the unit."""
        return {**_cpu(), **self._accelerator()}

    def _accelerator(self) -> Readings:
        now = time.monotonic()
        due = self._asked_at is None or now - self._asked_at >= _NVIDIA_EVERY_S
        if self._nvidia is not None and due:
            words = (f"--query-gpu={_NVIDIA_FIELDS}", "--format=csv,noheader,nounits")
            answer = bounded_process.run((self._nvidia, *words), timeout_s=_NVIDIA_TIMEOUT_S)
            self._device = parse_nvidia(answer.text) if answer.ok else {}
            self._asked_at = time.monotonic()
            if not answer.ok:
                self._nvidia = None
        return self._device


def parse_nvidia(text: str) -> Readings:
    """Parse nvidia-smi's CSV: lowest clock, total power, highest temperature of all devices."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == 4]
    clocks = _numbers(row[0] for row in rows)
    power = _numbers(row[1] for row in rows)
    heat = _numbers(row[2] for row in rows)
    reasons = [int(row[3], 16) for row in rows if re.fullmatch(r"0x[0-9A-Fa-f]{1,16}", row[3])]
    found: Readings = {}
    if clocks:
        found["sm_clock_mhz"] = min(clocks)
    if power:
        found["power_w"] = round(sum(power), 2)
    if heat:
        found["gpu_temperature_c"] = max(heat)
    if reasons:
        found["throttled"] = float(any(reason & ~_HARMLESS for reason in reasons))
    return found


def _cpu() -> Readings:
    found: Readings = {"load_1m": round(os.getloadavg()[0], 2)}
    clocks = _numbers(_texts(_CPUS, "cpu[0-9]*/cpufreq/scaling_cur_freq"))
    if clocks:
        found["cpu_mhz"] = round(sum(clocks) / len(clocks) / 1_000, 1)
    else:
        said = _numbers(re.findall(r"^cpu MHz\s*:\s*([0-9.]+)", _text(_CPUINFO), re.MULTILINE))
        if said:
            found["cpu_mhz"] = round(sum(said) / len(said), 1)
    heat = [degrees / 1_000 for degrees in _numbers(_texts(_THERMAL, "thermal_zone*/temp"))]
    if heat:
        found["cpu_temperature_c"] = max(heat)
    return found


def _texts(folder: Path, pattern: str) -> Iterator[str]:
    return (_text(path) for path in folder.glob(pattern))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _numbers(texts: "Iterator[str] | List[str]") -> List[float]:
    """Return the numbers; a missing gauge has the text ``[N/A]``."""
    found = (text.strip() for text in texts)
    return [float(text) for text in found if re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,6})?", text)]
