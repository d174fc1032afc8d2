"""Time calls by CUDA events, or else by the host's clock with synchronisation.

On CUDA the device is idle when a sample begins. Events span the work and any waiting for its
launches; a cold sample's flush is queued before the first event, so that launches overlap it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from torchbridge.bench.benchmark import Arm
from torchbridge.bench.cold import Flush
from torchbridge.device import synchronise

Clock = Callable[[], float]


class Stopwatch:
    """Time arms on one device; `kind` is "device events" or "synchronised clock"."""

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
        """Create one that evicts the caches before each sample."""
        flush = Flush(device)
        return cls(device, flush=flush), flush

    def seconds(self, arm: Arm, calls: int = 1, times: int = 1) -> float:
        """Return the seconds per call: the median over `times` of the mean of `calls` in a row.

        `setup` and flushing are not timed; with either, `calls` and `times` must be 1.
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
        torch.cuda.synchronize(self.device)  # all streams: the work may use others
        return start.elapsed_time(end) / 1e3
