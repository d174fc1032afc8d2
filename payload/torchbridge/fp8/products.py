"""torch's scaled matrix multiplies under one signature, and what they want of their operands.

A kernel gets a [M, K] by rows, b [K, N] by columns, and inverse (dequantisation) scales: single
ones [], of rows [M, 1] and [1, N], or of 128-blocks [M or M / 128, K / 128] and [N or N / 128,
K / 128]. Their layouts are those of torch's own checks (aten/src/ATen/native/cuda/ScaledBlas.cpp).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.fp8.scaling import BLOCK

ALIGNMENT = 16  # of inner and outer width on CUDA; zeros are added, and cut off again
# Scales of a multiple of four blocks are laid out the same by all versions of torch and cuBLAS.
WHOLE = 4 * BLOCK


@dataclass(frozen=True, slots=True)
class Path:
    """How a product is computed; `fallback` says why not by the device's kernel.

    `kernel` is torch's name of it, `writes` the dtype of its output, `fast_accum` whether it sums
    in fewer bits, `adds` whether it adds a bias as it writes (with single scales). `splits` says
    why a product with 128-block scales takes a call per 128 columns; None where one call takes
    them, or where there are none.
    """

    name: str
    fallback: str | None = None
    kernel: str | None = None
    writes: torch.dtype = torch.float32
    fast_accum: bool = False
    splits: str | None = None
    adds: bool = False


Kernel = Callable[..., Tensor]  # of a, b, their inverse scales, a path, and perhaps a bias


def padded(matrix: Tensor, height: int = 1, width: int = ALIGNMENT) -> Tensor:
    """Contiguous, with zeros up to multiples of `height` rows and `width` columns."""
    below, beside = -matrix.shape[0] % height, -matrix.shape[1] % width
    if below or beside:  # padding is not implemented for float8; its zero is the byte 0
        matrix = F.pad(matrix.view(torch.uint8), (0, beside, 0, below)).view(matrix.dtype)
    return matrix.contiguous()


def _private(
    a: Tensor, b: Tensor, a_inverse: Tensor, b_inverse: Tensor, path: Path, bias: Tensor | None
) -> Tensor:
    scales = a_inverse.contiguous(), b_inverse.contiguous()
    options = {"out_dtype": path.writes, "use_fast_accum": path.fast_accum}
    return _PRIVATE(a, b, *scales, bias=bias, **options)


def _public(
    a: Tensor, b: Tensor, a_inverse: Tensor, b_inverse: Tensor, path: Path, bias: Tensor | None
) -> Tensor:
    kind = F.ScalingType.RowWise if a_inverse.ndim else F.ScalingType.TensorWise
    options = {"output_dtype": path.writes, "use_fast_accum": path.fast_accum, "bias": bias}
    return F.scaled_mm(a, b, a_inverse, kind, b_inverse, kind, **options)


def _private_blocks(
    a: Tensor, b: Tensor, a_inverse: Tensor, b_inverse: Tensor, path: Path
) -> Tensor:
    """It tells the kind of scales from their shapes and strides; those of b are transposed."""
    left = _row_scales(a_inverse) if _of_rows(a, a_inverse) else a_inverse.contiguous()
    right = _row_scales(b_inverse) if _of_rows(b.t(), b_inverse) else b_inverse.contiguous()
    return _PRIVATE(a, b, left, right.t(), out_dtype=path.writes)


def _public_blocks(
    a: Tensor, b: Tensor, a_inverse: Tensor, b_inverse: Tensor, path: Path
) -> Tensor:
    """It is told the kind; scales of tiles are transposed, for both operands."""
    left, a_kind = _told_blocks(a, a_inverse)
    right, b_kind = _told_blocks(b.t(), b_inverse)
    return F.scaled_mm(a, b, left, a_kind, right, b_kind, output_dtype=path.writes)


def _told_blocks(matrix: Tensor, inverse: Tensor) -> tuple[Tensor, object]:
    """The scales as F.scaled_mm wants them, and its name for their kind."""
    if _of_rows(matrix, inverse):
        return _row_scales(inverse), F.ScalingType.BlockWise1x128
    return inverse.contiguous().t(), F.ScalingType.BlockWise128x128


def _of_rows(matrix: Tensor, inverse: Tensor) -> bool:
    return matrix.shape[0] == inverse.shape[0]


def _row_scales(inverse: Tensor) -> Tensor:
    """[M, K / 128] with the rows next to each other."""
    return inverse.t().contiguous().t()


_PRIVATE = getattr(torch, "_scaled_mm", None)
KERNELS: dict[str, Kernel] = {}  # in order of preference: torch.compile knows the private one
BLOCK_KERNELS: dict[str, Kernel] = {}  # the public one takes e4m3 only, so it is not the first
if _PRIVATE is not None:
    KERNELS["torch._scaled_mm"] = _private
    BLOCK_KERNELS["torch._scaled_mm by blocks"] = _private_blocks
if hasattr(F, "scaled_mm"):
    KERNELS["F.scaled_mm"] = _public
    BLOCK_KERNELS["F.scaled_mm by blocks"] = _public_blocks
