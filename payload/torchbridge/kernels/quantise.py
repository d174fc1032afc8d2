"""Quantise rows to float8 with one scale each, by the library or by one Triton kernel (e4m3).

scale = largest / amax, 1 for a row of zeros, at most 2^126; q = x * scale, saturated; infinities
become NaN. Both ways agree bit for bit except for the sign of NaN. The library's way takes about
eight passes over x; under torch.compile it is one kernel, fused with what produced x. In Triton a
row that fits in registers is read once, a wider one twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchbridge.float8 import (
    LARGEST_SCALE,
    FP8Dtype,
    FP8QuantizedTensor,
    Granularity,
    format_of,
    get_fp8_dtype,
    native_dtype,
)
from torchbridge.kernels.registry import Request, kernel_for
from torchbridge.kernels.tiles import VENDORS, jit, launching, refusal, register, tl, triton

WIDEST = 16384  # numbers of a row that are kept in registers
ENCODINGS = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)


def quantise_rows(
    x: Tensor, dtype: torch.dtype | None = None, *, path: str = "auto"
) -> FP8QuantizedTensor:
    """Quantise x [m, n] to float8 with one scale per row, as `FP8QuantizedTensor.from_tensor`.

    `dtype` is a float8 dtype in the encoding of x's device, by default its e4m3; `path` as in
    `kernel_for`. No gradient.

    Raises:
        KernelRefused: the requested kernel cannot compute this on this device.
        ValueError: `x` is not a matrix.
    """
    if x.ndim != 2:
        raise ValueError(f"a matrix has rows, shape {tuple(x.shape)} has not")
    dtype = native_dtype(FP8Dtype.E4M3, x.device) if dtype is None else dtype
    variant = str(dtype).removeprefix("torch.float8_")
    kernel = kernel_for("quantise_rows", (x.detach(),), path, variant, ruled=False)
    return kernel.run(x, dtype)


def by_library(x: Tensor, dtype: torch.dtype) -> FP8QuantizedTensor:
    """Quantise rows by torch's operations."""
    return FP8QuantizedTensor.from_tensor(x, format_of(dtype), granularity=Granularity.ROW)


@dataclass(frozen=True, slots=True)
class Plan:
    """Launch shape: `height` rows of up to `block` numbers per program of `warps` warps.

    `wide`: the row exceeds the registers and is processed in blocks.
    """

    height: int
    block: int
    warps: int
    wide: bool = False

    def __str__(self) -> str:
        return f"{self.height}x{self.block}{'-wide' if self.wide else ''}"


# sixteen numbers for each thread of 32 in a warp (32 in the last row), so that nothing spills
PLANS = (
    Plan(16, 128, 4),
    Plan(4, 512, 4),
    Plan(2, 1024, 4),
    Plan(1, 2048, 4),
    Plan(1, 4096, 8),
    Plan(1, 8192, 16),
    Plan(1, WIDEST, 16),
    Plan(1, 4096, 8, wide=True),
)


def plan(width: int) -> Plan:
    """Return the launch shape for rows of `width` numbers."""
    return next((one for one in PLANS[:-1] if width <= one.block), PLANS[-1])


@jit
def quantise(
    x, q, scale, rows, width, stride, limit, largest_scale,
    height: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Compute scale = limit / amax and q = x * scale for rows that fit in registers."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    column = tl.arange(0, block)
    live = (row < rows)[:, None] & (column < width)[None, :]
    value = tl.load(x + row[:, None] * stride + column[None, :], mask=live, other=0.0)
    value = value.to(tl.float32)
    unreal = tl.max((value != value).to(tl.int32), 1)
    factor = _scale(tl.max(tl.abs(value), 1), unreal, limit, largest_scale)
    tl.store(scale + row, factor, mask=row < rows)
    target = q + row[:, None] * width + column[None, :]
    tl.store(target, _narrow(value * factor[:, None], limit, q), mask=live)


@jit
def quantise_wide(
    x, q, scale, rows, width, stride, limit, largest_scale,
    height: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Compute `quantise` for one row that does not fit in registers."""
    row = tl.program_id(0).to(tl.int64)
    highest = tl.zeros((block,), tl.float32)
    unreal = tl.zeros((block,), tl.int32)
    for start in range(0, width, block):
        column = start + tl.arange(0, block)
        value = tl.load(x + row * stride + column, mask=column < width, other=0.0).to(tl.float32)
        highest = tl.maximum(highest, tl.abs(value))
        unreal = tl.maximum(unreal, (value != value).to(tl.int32))
    factor = _scale(tl.max(highest, 0), tl.max(unreal, 0), limit, largest_scale)
    tl.store(scale + row, factor)
    for start in range(0, width, block):
        column = start + tl.arange(0, block)
        value = tl.load(x + row * stride + column, mask=column < width, other=0.0).to(tl.float32)
        narrow = _narrow(value * factor, limit, q)
        tl.store(q + row * width + column, narrow, mask=column < width)


@jit
def _scale(amax, unreal, limit, largest_scale):
    """Return the scale that maps `amax` to `limit`; NaN if `unreal` marks a NaN in the row."""
    inverse = tl.div_rn(1.0, tl.where(amax == 0.0, 1.0, amax))  # as torch divides a number by amax
    factor = tl.minimum(limit * inverse, largest_scale)
    factor = tl.where(amax == 0.0, 1.0, factor)
    return tl.where(unreal != 0, float("nan"), factor)


@jit
def _narrow(scaled, limit, q):
    """Saturate and round to q's dtype; NaN stays NaN."""
    held = tl.minimum(tl.maximum(scaled, -limit), limit)
    return tl.where(scaled != scaled, float("nan"), held).to(q.dtype.element_ty)


def in_triton(x: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> FP8QuantizedTensor:
    """Compute `quantise_rows` in Triton for x of any strides; `dtype` is an encoding of e4m3.

    Raises:
        ValueError: `x` is not a matrix, or the dtype is not e4m3.
    """
    if x.ndim != 2 or dtype not in ENCODINGS:
        raise ValueError(f"e4m3 of a matrix is computed, not {dtype} of shape {tuple(x.shape)}")
    (rows, width), how, limit = x.shape, plan(x.shape[1]), torch.finfo(dtype).max
    given = x.detach()
    given = given if given.stride(1) == 1 or width == 1 else given.contiguous()
    q = torch.empty(x.shape, dtype=dtype, device=x.device)
    scale = torch.ones(rows, 1, dtype=torch.float32, device=x.device)  # as is, without columns
    if x.numel():
        with launching(x):
            (quantise_wide if how.wide else quantise)[(triton.cdiv(rows, how.height),)](
                given, q, scale, rows, width, given.stride(0), limit, LARGEST_SCALE,
                height=how.height, block=how.block, num_warps=how.warps,
            )  # fmt: skip
    return FP8QuantizedTensor(q, scale, x.dtype)


def _refuse_encoding(request: Request) -> str | None:
    native = {get_fp8_dtype(fmt, request.hardware) for fmt in FP8Dtype}
    names = sorted(str(one).removeprefix("torch.float8_") for one in native)
    if request.variant in names:
        return None
    hardware = request.hardware
    where = hardware.target if hardware.vendor in VENDORS else hardware.vendor
    return f"{where} computes with {' and '.join(names)}, not {request.variant}"


def _refuse(request: Request) -> str | None:
    if not request.variant.startswith("e4m3"):
        return f"computes e4m3, not {request.variant}"
    return _refuse_encoding(request) or refusal(request)


register(
    "quantise_rows",
    in_triton,
    by_library,
    _refuse_encoding,
    features=frozenset({"fp8"}),
    differentiable=False,
    refuse=_refuse,
)
