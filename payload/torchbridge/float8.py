"""Float8 formats, quantisation scales and quantised tensors.

`scale` is always the quantisation scale: q = x * scale and x = q / scale. A matrix [M, K] has one
scale, one per row, one per 128 columns of a row, or one per tile of 128 x 128; the last two limit
the effect of an outlier to its block. `torchbridge.fp8` computes with these tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.hardware import Hardware, probe

BLOCK = 128
_FNUZ_TARGETS = ("gfx940", "gfx941", "gfx942")  # CDNA3; later chips compute with OCP's encoding
LARGEST_SCALE = 2.0**126  # its inverse is still a normal float32


class FP8Dtype(str, Enum):
    """Float8 formats: E4M3 for weights and activations, E5M2 (5 exponent bits) for gradients.

    Encodings: https://arxiv.org/abs/2209.05433, standardised by OCP.
    """

    E4M3 = "e4m3fn"
    E5M2 = "e5m2"

    @property
    def max(self) -> float:
        """Largest finite number: 448 or 57344."""
        return torch.finfo(get_fp8_dtype(self)).max

    @property
    def mantissa_bits(self) -> int:
        """Number of mantissa bits, 3 or 2; rounding errs by at most 2 ** -(bits + 1), relative."""
        return 3 if self is FP8Dtype.E4M3 else 2


def get_fp8_dtype(fmt: FP8Dtype, hardware: Hardware | None = None) -> torch.dtype:
    """Return torch's dtype for `fmt`: OCP's encoding, or the one that `hardware` computes natively.

    AMD's CDNA3 computes fnuz encodings: no negative zero, another exponent bias, e4m3 up to 240.
    """
    fnuz = hardware is not None and hardware.target.startswith(_FNUZ_TARGETS)
    if FP8Dtype(fmt) is FP8Dtype.E4M3:
        return torch.float8_e4m3fnuz if fnuz else torch.float8_e4m3fn
    return torch.float8_e5m2fnuz if fnuz else torch.float8_e5m2


def native_dtype(fmt: FP8Dtype, device: torch.device) -> torch.dtype:
    """Return torch's dtype for `fmt` in the encoding that `device` computes natively."""
    return _native_dtype(fmt, device.index) if device.type == "cuda" else get_fp8_dtype(fmt)


@torch.compiler.assume_constant_result
def _native_dtype(fmt: FP8Dtype, index: int | None) -> torch.dtype:
    return get_fp8_dtype(fmt, _hardware(index))


@lru_cache
def _hardware(index: int | None) -> Hardware:
    return probe(torch.device("cuda", index))


# made once: torch.compile cannot go through an Enum
_FORMATS = {
    get_fp8_dtype(fmt, hardware): fmt
    for fmt in FP8Dtype
    for hardware in (None, Hardware.amd("gfx942"))
}


def format_of(dtype: torch.dtype) -> FP8Dtype:
    """Return the format of a float8 dtype in either encoding.

    Raises:
        ValueError: the dtype is not one of e4m3 and e5m2.
    """
    if dtype not in _FORMATS:
        raise ValueError(f"{dtype} is not e4m3 or e5m2")
    return _FORMATS[dtype]


class Granularity(str, Enum):
    """The group of numbers that share one scale."""

    TENSOR = "tensor"  # scale []
    ROW = "row"  # scale [M, 1]
    BLOCK = "block"  # scale [M, ceil(K / 128)]
    TILE = "tile"  # scale [ceil(M / 128), ceil(K / 128)]


def amax_of(x: Tensor, granularity: Granularity = Granularity.TENSOR) -> Tensor:
    """Return the largest magnitude of each group that shares a scale, in float32.

    `x` is [M, K], or of any shape for TENSOR; the result has the shape of the scales.

    Raises:
        ValueError: `x` is not a matrix, and the granularity is not TENSOR.
    """
    magnitude = x.detach().abs().float()
    if granularity is Granularity.TENSOR:
        return magnitude.amax() if x.numel() else magnitude.new_zeros(())
    if x.ndim != 2:
        raise ValueError(f"{granularity.value} scales need a matrix, not shape {tuple(x.shape)}")
    if granularity is Granularity.ROW:
        return F.pad(magnitude, (0, 1)).amax(dim=1, keepdim=True)  # the pad: also without columns
    rows, columns = magnitude.shape
    height = BLOCK if granularity is Granularity.TILE else 1
    padded = F.pad(magnitude, (0, -columns % BLOCK, 0, -rows % height))
    return padded.unflatten(1, (-1, BLOCK)).unflatten(0, (-1, height)).amax(dim=(1, 3))


def scale_from_amax(amax: Tensor, limit: float, margin: float = 0.0) -> Tensor:
    """Return the scale that maps `amax` to `limit` / 2 ** margin; 1 where amax is 0."""
    scale = limit / (amax * 2.0**margin)
    return torch.where(amax == 0, 1.0, scale.clamp(max=LARGEST_SCALE))


def compute_fp8_scale(
    x: Tensor,
    fmt: FP8Dtype = FP8Dtype.E4M3,
    margin: float = 0.0,
    *,
    granularity: Granularity = Granularity.TENSOR,
) -> Tensor:
    """Compute the quantisation scale of `x` in float32: q = x * scale.

    `margin` leaves a headroom of 2 ** margin above the largest number.
    """
    limit = torch.finfo(native_dtype(fmt, x.device)).max
    return scale_from_amax(amax_of(x, granularity), limit, margin)


def quantize_to_fp8(x: Tensor, scale: Tensor, fmt: FP8Dtype = FP8Dtype.E4M3) -> Tensor:
    """Return x * scale rounded to float8, of x's shape, in the native encoding of its device.

    Finite values out of range saturate; infinities become NaN.
    """
    dtype = native_dtype(fmt, x.device)
    limit = torch.finfo(dtype).max
    scaled = x.detach().float() * spread(scale, x.shape)
    return torch.where(scaled.isinf(), torch.nan, scaled.clamp(-limit, limit)).to(dtype)


def dequantize_from_fp8(
    quantized: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return quantized / scale in `dtype`; `scale` is the quantisation scale."""
    return (quantized.float() / spread(scale, quantized.shape)).to(dtype)


def spread(scale: Tensor, shape: torch.Size) -> Tensor:
    """Expand `scale` so that it broadcasts against `shape`; scales of blocks are repeated.

    Raises:
        ValueError: the scales match neither the sizes nor the blocks of `shape`.
    """
    if scale.ndim == 0:
        return scale
    for dim in range(-scale.ndim, 0):
        size, scales = shape[dim], scale.shape[dim]
        if scales not in (1, size):
            if scales != -(-size // BLOCK):
                raise ValueError(f"scales {tuple(scale.shape)} do not fit shape {tuple(shape)}")
            scale = scale.repeat_interleave(BLOCK, dim=dim).narrow(dim, 0, size)
    return scale


@dataclass(frozen=True, slots=True)
class FP8QuantizedTensor:
    """A quantised tensor: `data` (float8) = x * `scale`; `dtype` is the dtype of x."""

    data: Tensor
    scale: Tensor
    dtype: torch.dtype

    @classmethod
    def from_tensor(
        cls,
        x: Tensor,
        fmt: FP8Dtype = FP8Dtype.E4M3,
        *,
        scale: Tensor | None = None,
        granularity: Granularity = Granularity.TENSOR,
        margin: float = 0.0,
    ) -> FP8QuantizedTensor:
        """Quantise `x` with `scale`, or with a scale computed from `x` if None."""
        if scale is None:
            scale = compute_fp8_scale(x, fmt, margin, granularity=granularity)
        return cls(quantize_to_fp8(x, scale, fmt), scale, x.dtype)

    @property
    def shape(self) -> torch.Size:
        """Shape of the quantised data."""
        return self.data.shape

    @property
    def format(self) -> FP8Dtype:
        """The float8 format, E4M3 or E5M2."""
        return format_of(self.data.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the storages of data and scales."""
        return self.data.untyped_storage().nbytes() + self.scale.untyped_storage().nbytes()

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """Return data / scale in `dtype`, by default the original dtype."""
        return dequantize_from_fp8(self.data, self.scale, dtype or self.dtype)

    def to(self, device: torch.device | str) -> FP8QuantizedTensor:
        """Return a copy on another device."""
        return replace(self, data=self.data.to(device), scale=self.scale.to(device))

    def t(self) -> FP8QuantizedTensor:
        """Return the transposed matrix as a view.

        Raises:
            ValueError: the tensor has more than one scale.
        """
        if self.scale.ndim:
            raise ValueError("only a matrix with a single scale can be transposed; quantise x.t()")
        return replace(self, data=self.data.t())
