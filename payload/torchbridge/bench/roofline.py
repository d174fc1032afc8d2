"""Compare work with the peaks of its device and with a copy bandwidth measured in the same run."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from torchbridge.bench.benchmark import Arm, Work
from torchbridge.bench.stopwatch import Stopwatch
from torchbridge.hardware import Hardware
from torchbridge.peaks import peak_bandwidth, peak_flops
from torchbridge.timing import Spread

COPIES = 15


@dataclass(frozen=True, slots=True)
class Roofline:
    """Fractions of the device's peaks that work reaches; None where peak or work is unknown.

    `compute` and `memory` are of the peak FLOP/s and bandwidth by the device's properties, `peak`
    is the larger of them; `copy` is of the bandwidth of a measured copy.
    """

    peak: float | None
    compute: float | None
    memory: float | None
    copy: float | None

    @classmethod
    def from_work(
        cls, work: Work, seconds: float, hardware: Hardware, copied: float | None
    ) -> Roofline:
        """Compute from work and seconds; `copied` is the measured bandwidth in bytes/s, or None."""
        compute = _fraction(work.flops, seconds, peak_flops(hardware, work.number))
        memory = _fraction(work.bytes, seconds, peak_bandwidth(hardware))
        known = compute if not work.bytes else memory if not work.flops else None
        if compute is not None and memory is not None:
            known = max(compute, memory)
        return cls(known, compute, memory, _fraction(work.bytes, seconds, copied))

    def __str__(self) -> str:
        """List the known fractions; empty if there is none."""
        of = {
            "the device's peak rate of operations, by its properties": self.compute,
            "its peak bandwidth, by its properties": self.memory,
            "the copy bandwidth measured here": self.copy,
        }
        return ", ".join(f"{part:.1%} of {what}" for what, part in of.items() if part is not None)


def _fraction(amount: float, seconds: float, peak: float | None) -> float | None:
    return amount / seconds / peak if amount and peak else None


@functools.cache
def measured_bandwidth(device: torch.device) -> float:
    """Measure bytes/s read and written by copying a tensor, once per process.

    It is the median of `COPIES` copies far larger than the caches, each with cold caches.
    """
    watch, flush = Stopwatch.cold(device)
    source = torch.zeros_like(flush.buffer)
    target = torch.ones_like(source)
    arm = Arm("copy", lambda: target.copy_(source))
    for _ in range(3):
        watch.seconds(arm)
    return (
        2 * source.nbytes / Spread.from_samples([watch.seconds(arm) for _ in range(COPIES)]).median
    )
