"""Where float8 begins to win on a device, measured: a few sizes, timed once.

Nothing is written to disk: what `calibrate` finds is kept in this process, and returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from torchbridge.fp8.jobs import Job

Measure = Callable[[Job, torch.device], float]  # time of the plain arm over float8's
SIZES = ((16, 4096, 4096), (512, 1024, 1024), (1024, 2048, 2048), (4096, 4096, 4096))

_FOUND: dict[str, Crossover] = {}


@dataclass(frozen=True, slots=True)
class Measured:
    """A job, and how much longer than float8 its plain arm took."""

    job: Job
    ratio: float


@dataclass(frozen=True, slots=True)
class Crossover:
    """Measurements on one device."""

    device: str
    measured: tuple[Measured, ...]

    def nearest(self, job: Job) -> Measured | None:
        """The measurement of the sizes nearest to `job`'s, by their ratios."""
        return min(self.measured, key=lambda one: _distance(one.job, job), default=None)


def calibrate(
    device: torch.device,
    sizes: Iterable[tuple[int, int, int]] = SIZES,
    *,
    granularity: str = "tensor",
    dtype: torch.dtype = torch.bfloat16,
    measure: Measure | None = None,
) -> Crossover:
    """Time float8 against `dtype` for each (rows, inner, columns), and remember it for `device`.

    `measure` gives the ratio of one job: by default both arms compiled (on the CPU: as they are)
    and taking turns, a second each, their outputs compared first.

    Raises:
        RuntimeError: the arms do not compute the same.
    """
    if measure is None:
        from torchbridge.fp8.layer_timing import measured_ratio as measure  # it needs the layers
    jobs = [Job(*size, dtype, dtype, granularity, kept=True) for size in sizes]
    name = _name(device)
    found = Crossover(name, tuple(Measured(job, measure(job, device)) for job in jobs))
    _FOUND[name] = found
    return found


def crossover_of(device: torch.device) -> Crossover | None:
    """What `calibrate` found for the device, in this process."""
    return _FOUND.get(_name(device)) if _FOUND else None


def forget_crossovers() -> None:
    """Predict from peaks alone again."""
    _FOUND.clear()


def _name(device: torch.device) -> str:
    """With its number: "cuda" is the current one."""
    return str(torch.empty(0, device=device).device)


def _distance(one: Job, other: Job) -> float:
    """Sum of the sizes' ratios, as powers of two; other numbers or scales are further off."""
    pairs = ((one.rows, other.rows), (one.inner, other.inner), (one.columns, other.columns))
    between = sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in pairs)
    return between + (one.granularity != other.granularity) + (one.dtype != other.dtype)
