"""Streams, events and timed regions: the device's own, or the processor's clock without one."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchbridge.hardware import probe


class HostStream:
    """The calling thread: work is done when it returns. A context like `torch.cuda.Stream`."""

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def __enter__(self) -> HostStream:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class HostEvent:
    """A moment by the processor's clock, with the names of `torch.cuda.Event`."""

    def __init__(self) -> None:
        self._at: float | None = None

    def record(self) -> None:
        """Now."""
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def elapsed_time(self, later: HostEvent) -> float:
        """Milliseconds until `later`.

        Raises:
            RuntimeError: one of the two was not recorded.
        """
        if self._at is None or later._at is None:
            raise RuntimeError("both events must be recorded before time is taken between them")
        return 1e3 * (later._at - self._at)


@dataclass(frozen=True, slots=True)
class Region:
    """A timed region's milliseconds, one per pass through it."""

    samples_ms: tuple[float, ...]

    @property
    def count(self) -> int:
        """Passes through it."""
        return len(self.samples_ms)

    @property
    def total_ms(self) -> float:
        """Of all passes."""
        return sum(self.samples_ms)

    @property
    def median_ms(self) -> float:
        """Of one pass."""
        return statistics.median(self.samples_ms)


class HIPUtilities:
    """Streams, events and regions of one device.

    `clock` says whose time it is: that of the `device`'s events, or the `cpu`'s.
    """

    def __init__(self, device: torch.device, *, profiling: bool = False) -> None:
        self.device, self.profiling = device, profiling
        self.clock = "device" if device.type == "cuda" else "cpu"
        self._streams: list[Any] = []
        self._regions: dict[str, list[float]] = {}

    def create_stream(self) -> Any:
        """A `torch.cuda.Stream` of the device, or a `HostStream`; kept until `cleanup`."""
        stream = torch.cuda.Stream(self.device) if self.clock == "device" else HostStream()
        self._streams.append(stream)
        return stream

    def create_event(self) -> Any:
        """A `torch.cuda.Event` that keeps time, or a `HostEvent`."""
        return torch.cuda.Event(enable_timing=True) if self.clock == "device" else HostEvent()

    @property
    def streams(self) -> int:
        """Kept."""
        return len(self._streams)

    @contextlib.contextmanager
    def profile_region(self, name: str) -> Iterator[None]:
        """Time what is done inside, until the device has done it; nothing without `profiling`."""
        if not self.profiling:
            yield
            return
        start, end = self.create_event(), self.create_event()
        start.record()
        try:
            yield
        finally:
            end.record()
            end.synchronize()
            self._regions.setdefault(name, []).append(start.elapsed_time(end))

    def profiling_summary(self) -> dict[str, Region]:
        """By name, in the order of their first passes."""
        return {name: Region(tuple(samples)) for name, samples in self._regions.items()}

    def clear_profiling_data(self) -> None:
        """Forget all regions."""
        self._regions.clear()

    def device_properties(self) -> dict[str, Any]:
        """Of the device behind it."""
        found = probe(self.device)
        return {
            "vendor": found.vendor,
            "name": found.name,
            "target": found.target,
            "memory_bytes": found.memory_bytes,
            "units": found.units,
            "clock": self.clock,
        }

    def cleanup(self) -> None:
        """Wait for all streams, let them go, forget all regions."""
        for stream in self._streams:
            stream.synchronize()
        self._streams.clear()
        self.clear_profiling_data()
