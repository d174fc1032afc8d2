"""Predict whether a matrix product is faster in float8, including quantisation.

The time of a kernel is the maximum of FLOPs / peak rate, bytes / peak bandwidth (peaks.py) and
launch time; that of a variant is the sum over its kernels. The prediction is accurate to an order
of magnitude and names the limiting resource.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch

from torchbridge.float8 import BLOCK
from torchbridge.fp8.matmul import Path
from torchbridge.hardware import Hardware
from torchbridge.kernels.registry import hardware_of
from torchbridge.peaks import peak_bandwidth, peak_flops

NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
# Seconds that a kernel takes at least, on devices where it is launched from the host.
LAUNCH_S = {"nvidia": 4e-6, "amd": 4e-6, "intel": 4e-6}
Work = tuple[float, int]  # operations of a kernel, bytes that it moves
SCALE_KERNELS = 8  # kernels on one number each, which compute a scale from a magnitude


@dataclass(frozen=True, slots=True)
class Job:
    """A product of x [rows, inner] and weight [columns, inner] transposed, in `dtype` or float8.

    `weight_dtype` is the dtype of the stored weight; `kept`: it is quantised already; `stored`: it
    exists in float8 only; `training`: both gradients are computed; `split`: a float8 product takes
    one call per 128 columns of the inner dimension; `fused`: quantisation is compiled into few
    kernels, else it takes one kernel per operation.
    """

    rows: int
    inner: int
    columns: int
    dtype: torch.dtype = torch.bfloat16
    weight_dtype: torch.dtype = torch.bfloat16
    granularity: str = "tensor"
    training: bool = False
    kept: bool = False
    stored: bool = False
    split: bool = False
    fused: bool = True

    @property
    def sizes(self) -> str:
        """The sizes as text: rows x inner x columns."""
        return f"{self.rows} x {self.inner} x {self.columns}"

    @property
    def operations(self) -> float:
        """FLOPs of one product."""
        return 2.0 * self.rows * self.inner * self.columns

    @property
    def _numbers(self) -> tuple[int, int, int]:
        """How many numbers x, weight and output have."""
        rows, inner, columns = self.rows, self.inner, self.columns
        return rows * inner, columns * inner, rows * columns

    def plain(self) -> list[Work]:
        """Return the kernels without float8: the products and the cast of the weight."""
        size, (x, weight, out) = self.dtype.itemsize, self._numbers
        kernels = [(self.operations, (x + weight + out) * size)] * (3 if self.training else 1)
        if self.stored or self.weight_dtype != self.dtype:
            kept = 1 if self.stored else self.weight_dtype.itemsize
            kernels.append((0.0, weight * (kept + size)))
        return kernels

    def float8(self) -> list[Work]:
        """Return the kernels with float8: quantisation, products, and sums of split products."""
        kernels = [(0.0, moved) for moved in self.quantising()]
        for operands, out, size, summed in self._products():
            calls = -(-summed // BLOCK) if self.split else 1
            moved = operands // calls + out * (4 if self.split else size)
            kernels += [(self.operations / calls, moved)] * calls
            kernels += [(0.0, 12 * out)] * (calls if self.split else 0)  # in float32
        return kernels

    def _products(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield per product: numbers of operands and results, bytes per result, summed length."""
        x, weight, out = self._numbers
        yield x + weight, out, self.dtype.itemsize, self.inner
        if self.training:  # by the input, and by the weight in its own dtype
            yield out + weight, x, self.dtype.itemsize, self.columns
            yield out + x, weight, self.weight_dtype.itemsize, self.rows

    def quantising(self) -> list[int]:
        """Return the bytes moved by each quantisation kernel.

        Gradients also need each operand transposed: copied if it has a single scale, else quantised
        again.
        """
        x, weight, out = self._numbers
        size, weight_size = self.dtype.itemsize, self.weight_dtype.itemsize
        kernels = self._quantised(x, size)
        if not (self.kept or self.stored):
            kernels += self._quantised(weight, weight_size)
        if self.training:
            kernels += self._quantised(out, size)
            for count, width in ((x, size), (weight, weight_size), (out, size)):
                again = self.granularity != "tensor"
                kernels += self._quantised(count, width) if again else [2 * count]
        return kernels

    def _quantised(self, count: int, size: int) -> list[int]:
        """Return the bytes moved by each kernel that quantises `count` numbers of `size` bytes.

        A single scale needs a pass over the whole tensor first. Scales of rows and blocks need no
        such pass; in eager mode only those of rows, by a kernel of `torchbridge.kernels`.
        """
        if self.granularity == "row" or (self.fused and self.granularity != "tensor"):
            return [(size + 1) * count]
        if self.fused:
            return [size * count, (size + 1) * count]
        wide = [] if size == 4 else [size + 4] * 2  # to float32, for the scale and for the numbers
        each = [2 * size, 4, 8, 5, 8, 9, 5]  # abs, amax; multiply, isinf, clamp, where, cast
        return [moved * count for moved in wide + each] + [4] * SCALE_KERNELS


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether float8 is chosen, and why.

    `plain` is the other arm, named after its dtype, or "weight_only" if the weight exists in float8
    only.
    """

    float8: bool
    reason: str
    plain: Path

    def describe(self, path: str) -> str:
        """Return "path (reason)" for logs."""
        return f"{path} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted seconds of both arms."""

    float8_s: float
    plain_s: float

    @property
    def ratio(self) -> float:
        """Plain time over float8 time; above 1 float8 is faster."""
        return self.plain_s / self.float8_s


def predict(job: Job, hardware: Hardware) -> Prediction | None:
    """Predict the seconds of both arms; None if the device's peak rates are unknown."""
    rates = [peak_flops(hardware, one) for one in ("fp8", _number(job.dtype, hardware))]
    bandwidth, launch = peak_bandwidth(hardware), LAUNCH_S.get(hardware.vendor, 0.0)
    if None in rates or not bandwidth:
        return None

    def seconds(kernels: list[Work], rate: float) -> float:
        return sum(max(work / rate, moved / bandwidth, launch) for work, moved in kernels)

    return Prediction(seconds(job.float8(), rates[0]), seconds(job.plain(), rates[1]))


def choose(job: Job, hardware: Hardware) -> Choice:
    """Choose the variant that is predicted to be faster: float8 or plain.

    It is plain without float8 units. It is also plain without a prediction, unless the weight
    exists in float8 only: casting such a weight in each call moves more bytes than it saves.
    """
    plain = "weight_only" if job.stored else NAMES.get(job.dtype, str(job.dtype)[6:])
    predicted = predict(job, hardware)
    if (reason := no_units(hardware)) is not None:
        float8 = False
    elif predicted is None:
        target = hardware.target or hardware.name
        float8, reason = job.stored, f"not predicted: the peaks of {target} are unknown"
    else:
        float8, ratio = predicted.ratio > 1, predicted.ratio
        verdict = f"faster than {plain}" if float8 else "slower in float8"
        reason = f"predicted {max(ratio, 1 / ratio):.2f}x {verdict}"
        reason = f"{reason}, {job.sizes} on {hardware.target}"
    return Choice(float8, reason, Path(plain, reason))


def no_units(hardware: Hardware) -> str | None:
    """Return why the hardware cannot multiply float8; None if it can."""
    return None if hardware.has("fp8") else f"no FP8 units on {hardware.target or hardware.vendor}"


def choose_for(device: torch.device, rows: int, *of: object) -> Choice:
    """Call `choose` for `Job(rows, *of)` on a device.

    `rows` is rounded up to a power of two, so that up to there one choice and one compiled graph
    suffice.
    """
    power = 1
    while power < rows:
        power *= 2
    return _choose_at(str(device), power, *of, torch.compiler.is_compiling())


@torch.compiler.assume_constant_result  # of sizes, which are the graph's too
def _choose_at(device: str, *of: object) -> Choice:
    return _choose_for(Job(*of), device)


@lru_cache(maxsize=1024)
def _choose_for(job: Job, device: str) -> Choice:
    return choose(job, hardware_of(torch.device(device)))


def _number(dtype: torch.dtype, hardware: Hardware) -> str:
    """Return the number format whose peak rate applies to a product of `dtype`."""
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return "tf32" if hardware.has("tf32") else "fp32"
    return NAMES.get(dtype, str(dtype))
