"""Times calls by the device's own events where it has them, else by a clock around waited-for work.

On CUDA the device is idle when a sample begins. What the events then span is the work and, where
the device is faster than its launches, the waiting for them; a cold sample's flush is queued before
the first event, so that launches are made while the device still writes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from torchbridge.bench.cold import Flush
from torchbridge.bench.duel import Arm
from torchbridge.device import synchronise

Clock = Callable[[], float]


class Stopwatch:
    """Times arms on one device. `kind` says how: "device events" or "synchronised clock"."""

    def __init__(
        self,
        device: torch.device,
        *,
        flush: Callable[[], object] | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.device = device
        self.clock = clock
        self._flush = flush
        self._events = clock is time.perf_counter and device.type == "cuda"
        self.kind = "device events" if self._events else "synchronised clock"

    @classmethod
    def cold(cls, device: torch.device) -> tuple[Stopwatch, Flush]:
        """One whose every sample begins with nothing in the caches."""
        flush = Flush(device)
        return cls(device, flush=flush), flush

    def seconds(self, arm: Arm, calls: int = 1, times: int = 1) -> float:
        """Of one call: the mean of `calls` in a row, of which the median of so many `times`.

        `setup` and flushing are not in it; with either, one call is all that can be asked for.
        """
        if arm.setup is not None:
            arm.setup()
        synchronise(self.device)
        if self._flush is not None:
            self._flush()
        once = self._by_events if self._events else self._by_clock
        return statistics.median(once(arm, calls) for _ in range(times)) / calls

    def _by_clock(self, arm: Arm, calls: int) -> float:
        if self._flush is not None:
            synchronise(self.device)
        start = self.clock()
        for _ in range(calls):
            arm.work()
        synchronise(self.device)
        return self.clock() - start

    def _by_events(self, arm: Arm, calls: int) -> float:
        with torch.cuda.device(self.device):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(calls):
                arm.work()
            end.record()
        torch.cuda.synchronize(self.device)  # of all streams: work may have queued on others
        return start.elapsed_time(end) / 1e3
