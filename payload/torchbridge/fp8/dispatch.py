"""Float8 or not: which product is predicted to take less time, its quantising included.

A kernel takes as long as its operations at the device's peak, its bytes at the memory's bandwidth,
or its launch, whichever is longest; an arm is the sum of its kernels (peaks.py; quantising is taken
to be fused, as torch.compile does it). That is right about the order of magnitude and about what
limits: where the two arms are near each other, only a measurement tells (crossover.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from torchbridge.fp8.crossover import Crossover, crossover_of
from torchbridge.fp8.jobs import NAMES, Job
from torchbridge.fp8.products import Path
from torchbridge.hardware import Hardware, probe
from torchbridge.peaks import peak_bandwidth, peak_flops

# Seconds that a kernel takes at least, on devices where it is launched from the host.
LAUNCH_S = {"nvidia": 4e-6, "amd": 4e-6, "intel": 4e-6}


@dataclass(frozen=True, slots=True)
class Choice:
    """Is it float8, and why (or why not); `ratio`: time of the plain arm over float8's, if known.

    `plain` is the other arm: named "bf16" say, or "weight_only" where the weight exists in float8
    alone.
    """

    float8: bool
    reason: str
    plain: Path
    ratio: float | None = None

    @classmethod
    def of(cls, float8: bool, reason: str, plain: str, ratio: float | None = None) -> Choice:
        """With the plain arm's name."""
        return cls(float8, reason, Path(plain, reason), ratio)

    def told(self, taken: str) -> str:
        """The name of what was taken, and why."""
        return f"{taken} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of both arms."""

    float8_s: float
    plain_s: float

    @property
    def ratio(self) -> float:
        """Above 1 float8 is faster."""
        return self.plain_s / self.float8_s


def predict(job: Job, hardware: Hardware) -> Prediction | None:
    """What both arms should take; None where the device's peaks are not known."""
    number = _number(job.dtype, hardware)
    rates = [peak_flops(hardware, one) for one in ("fp8", number)]
    bandwidth, launch = peak_bandwidth(hardware), LAUNCH_S.get(hardware.vendor, 0.0)
    if None in rates or not bandwidth:
        return None

    def seconds(flops: float, rate: float, moved: float) -> float:
        return max(flops / rate, moved / bandwidth, launch)

    def total(rate: float, products: list[int], others: list[int]) -> float:
        of_all = 2.0 * job.rows * job.inner * job.columns * (3 if job.training else 1)
        flops = of_all / len(products)
        multiplied = sum(seconds(flops, rate, moved) for moved in products)
        return multiplied + sum(seconds(0.0, rate, moved) for moved in others)

    float8_s = total(rates[0], job.float8_products(), job.quantising() + job.adding())
    return Prediction(float8_s, total(rates[1], job.plain_products(), job.casting()))


def choose(job: Job, hardware: Hardware, crossover: Crossover | None = None) -> Choice:
    """The arm that should be faster, and why; refined by what was measured, if anything was.

    Without float8 units it is the plain arm. Where nothing can be predicted it is too, unless the
    weight exists in float8 alone: widening that for each call moves more bytes than it spares.
    """
    plain = "weight_only" if job.stored else NAMES.get(job.dtype, str(job.dtype)[6:])
    if not hardware.has("fp8"):
        return Choice.of(False, f"no FP8 units on {hardware.target or hardware.vendor}", plain)
    predicted = predict(job, hardware)
    near = crossover.nearest(job) if crossover else None
    if predicted is None and near is None:
        return Choice.of(job.stored, _unknown(hardware), plain)
    ratio, how = (predicted.ratio, "predicted") if predicted else (near.ratio, "measured")
    if near is not None:
        at = predict(near.job, hardware)
        ratio *= near.ratio / at.ratio if predicted and at else 1.0
        how += f" {'by a measurement ' if predicted else ''}at {near.job.sizes}:"
    told = f"{how} {max(ratio, 1 / ratio):.2f}x {{}}, {job.sizes} on {hardware.target}"
    if ratio > 1:
        return Choice.of(True, told.format(f"faster than {plain}"), plain, ratio)
    return Choice.of(False, told.format("slower in float8"), plain, ratio)


def choose_for(device: torch.device, rows: int, *of: object) -> Choice:
    """`choose` for `Job(rows, *of)` on a device, with what `calibrate` measured there, if it did.

    Rows count as the next power of two: there is one choice for all of them up to there, and one
    compiled graph.
    """
    power = 1
    while power < rows:
        power *= 2
    return _choose_at(str(device), power, *of)


@torch.compiler.assume_constant_result  # of sizes, which are the graph's too
def _choose_at(device: str, *of: object) -> Choice:
    return _choose_for(Job(*of), device, crossover_of(torch.device(device)))


@lru_cache(maxsize=1024)
def _choose_for(job: Job, device: str, crossover: Crossover | None) -> Choice:
    return choose(job, _hardware(device), crossover)


@lru_cache
def _hardware(device: str) -> Hardware:
    return probe(torch.device(device))


def _unknown(hardware: Hardware) -> str:
    return (
        f"not predicted: the peaks of {hardware.target or hardware.name} are not told; "
        "calibrate() measures"
    )


def _number(dtype: torch.dtype, hardware: Hardware) -> str:
    """The kind of number whose peak a product of `dtype` has."""
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return "tf32" if hardware.has("tf32") else "fp32"
    return NAMES.get(dtype, str(dtype))
