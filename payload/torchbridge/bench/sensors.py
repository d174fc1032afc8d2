"""Read clocks, power, temperature and load beside each sample.

NVIDIA GPUs are read through NVML, the CPU from /sys and /proc. A value that cannot be read is left
out.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

Readings = dict[str, float]

EVERY_S = 0.05  # samples that are shorter share a reading
_SM_CLOCK, _GPU_TEMPERATURE = 1, 0  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU
_HARMLESS = 0x1 | 0x2  # ignored throttle reasons: idle, and a clock set by a user
_NUMBER = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,6})?")


class Sensors:
    """Sensors of a device and its host, read at most every `EVERY_S` seconds of `clock`."""

    def __init__(
        self,
        device: torch.device,
        *,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the sensors of `device`; `root` is the parent folder of `sys` and `proc`."""
        self._nvidia = NvmlSensors.open(device) if device.type == "cuda" else None
        self._root = root
        self._clock = clock
        self._last: Readings = {}
        self._read_at = -float("inf")

    def read_sensors(self) -> Readings:
        """Return the current readings by name; the name ends with the unit."""
        now = self._clock()
        if now - self._read_at >= EVERY_S:
            self._last = cpu_readings(self._root) | (
                self._nvidia.read_sensors() if self._nvidia else {}
            )
            self._read_at = now
        return self._last


def cpu_readings(root: Path = Path("/")) -> Readings:
    """Read cpu_mhz (mean of the cores), cpu_temperature_c (hottest zone), load_1m and running."""
    found: Readings = {}
    clocks = _numbers(_texts(root, "sys/devices/system/cpu", "cpu[0-9]*/cpufreq/scaling_cur_freq"))
    raw = re.findall(r"^cpu MHz\s*:\s*([0-9.]+)", _text(root / "proc/cpuinfo"), re.MULTILINE)
    if clocks := [khz / 1e3 for khz in clocks] or _numbers(raw):
        found["cpu_mhz"] = round(sum(clocks) / len(clocks), 1)
    if heat := _numbers(_texts(root, "sys/class/thermal", "thermal_zone*/temp")):
        found["cpu_temperature_c"] = max(heat) / 1e3
    load = re.match(r"([0-9.]+) \S+ \S+ ([0-9]+)/", _text(root / "proc/loadavg"))
    if load:
        found |= {"load_1m": float(load[1]), "running": float(load[2])}
    return found


class NvmlSensors:
    """NVML sensors of one CUDA device; a sensor that failed once is not read again."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle
        self._asked: dict[str, tuple[Any, ...]] = {
            "sm_clock_mhz": ("nvmlDeviceGetClockInfo", _SM_CLOCK),
            "gpu_temperature_c": ("nvmlDeviceGetTemperature", _GPU_TEMPERATURE),
            "power_w": ("nvmlDeviceGetPowerUsage",),
            "throttled": ("nvmlDeviceGetCurrentClocksThrottleReasons",),
        }

    @classmethod
    def open(cls, device: torch.device, library: Any = None) -> NvmlSensors | None:
        """Open the sensors of a CUDA device; None if NVML is missing or does not know it."""
        try:
            library = library or ctypes.CDLL("libnvidia-ml.so.1")
            uuid = str(torch.cuda.get_device_properties(device).uuid).removeprefix("GPU-")
            handle = ctypes.c_void_p()
            name = f"GPU-{uuid}".encode("ascii")
            if library.nvmlInit_v2() != 0:
                return None
            if library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)) != 0:
                return None
        except (OSError, AttributeError, RuntimeError, AssertionError):
            return None
        return cls(library, handle)

    def read_sensors(self) -> Readings:
        """Read sm_clock_mhz, gpu_temperature_c, power_w and throttled (0 or 1), if available."""
        raw = {name: self._ask(*question) for name, question in self._asked.items()}
        found = {name: value for name, value in raw.items() if value is not None}
        self._asked = {name: self._asked[name] for name in found}
        scales = {"power_w": 1e-3}
        readings = {name: value * scales.get(name, 1.0) for name, value in found.items()}
        if "throttled" in found:
            readings["throttled"] = float(bool(found["throttled"] & ~_HARMLESS))
        return readings

    def _ask(self, function: str, *which: int) -> int | None:
        value = ctypes.c_ulonglong(0)  # wide enough for all; NVML writes what it needs
        question = getattr(self._library, function, None)
        if question is None or question(self._handle, *which, ctypes.byref(value)) != 0:
            return None
        return value.value


def driver(library: Any = None) -> str | None:
    """Return the version of NVIDIA's driver; None if there is none."""
    text = ctypes.create_string_buffer(80)
    try:
        library = library or ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() or library.nvmlSystemGetDriverVersion(text, len(text)):
            return None
    except (OSError, AttributeError):
        return None
    return text.value.decode("ascii", "replace")


def last_level_cache(device: torch.device, root: Path = Path("/")) -> int | None:
    """Return the bytes of the device's largest cache; None if unknown."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return int(getattr(properties, "L2_cache_size", 0)) or None
    if device.type != "cpu":
        return None
    sizes = _texts(root, "sys/devices/system/cpu", "cpu0/cache/index[0-9]*/size")
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    found = [re.fullmatch(r"([0-9]+)([KMG]?)", size.strip()) for size in sizes]
    return max((int(one[1]) * units.get(one[2], 1) for one in found if one), default=None)


def summary(readings: Iterable[Readings]) -> dict[str, str]:
    """Return the range "minimum to maximum" of each sensor."""
    values: dict[str, list[float]] = {}
    for one in readings:
        for name, value in one.items():
            values.setdefault(name, []).append(value)
    return {name: f"{min(all_):g} to {max(all_):g}" for name, all_ in values.items()}


def _texts(root: Path, folder: str, pattern: str) -> list[str]:
    return [_text(path) for path in sorted((root / folder).glob(pattern))]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _numbers(texts: Iterable[str]) -> list[float]:
    """Return the texts that are numbers, as floats."""
    return [float(text) for text in map(str.strip, texts) if _NUMBER.fullmatch(text)]
