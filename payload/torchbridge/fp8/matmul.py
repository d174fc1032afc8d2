"""Multiply two scaled float8 matrices, or explain why a device cannot.

Which torch kernels run on a device is found by running them and comparing the results. A kernel
gets a [M, K] row-major, b [K, N] column-major, and inverse (dequantisation) scales: single [], per
row [M, 1] and [1, N], or per 128-block [M or M / 128, K / 128] and [N or N / 128, K / 128]. The
layouts are those that torch checks (aten/src/ATen/native/cuda/ScaledBlas.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.float8 import BLOCK, FP8QuantizedTensor, spread
from torchbridge.kernels.registry import first_words, without_autocast

ALIGNMENT = 16  # of inner and outer width on CUDA; zeros are added, and cut off again
# Scales of a multiple of four blocks are laid out the same by all versions of torch and cuBLAS.
WHOLE = 4 * BLOCK


@dataclass(frozen=True, slots=True)
class Path:
    """The path by which a product is computed.

    `fallback` is the reason not to use the device's kernel, or None. `kernel` is torch's name of
    the kernel, `writes` its output dtype, `fast_accum` whether it accumulates in fewer bits, `adds`
    whether it adds a bias (single scales only). `splits` is the reason why a product with 128-block
    scales takes one call per 128 columns, or None.
    """

    name: str
    fallback: str | None = None
    kernel: str | None = None
    writes: torch.dtype = torch.float32
    fast_accum: bool = False
    splits: str | None = None
    adds: bool = False


def padded(matrix: Tensor, height: int = 1, width: int = ALIGNMENT) -> Tensor:
    """Return the matrix, contiguous and zero-padded to multiples of `height` and `width`.

    A contiguous matrix that fits is not copied.
    """
    below, beside = -matrix.shape[0] % height, -matrix.shape[1] % width
    if below or beside:  # padding is not implemented for float8; its zero is the byte 0
        matrix = F.pad(matrix.view(torch.uint8), (0, beside, 0, below)).view(matrix.dtype)
    return matrix.contiguous()


def _multiply(
    a: Tensor, b: Tensor, a_inverse: Tensor, b_inverse: Tensor, path: Path, bias: Tensor | None
) -> Tensor:
    """Multiply by torch's kernel, with single scales or one scale per row."""
    scales = a_inverse.contiguous(), b_inverse.contiguous()
    options = {"out_dtype": path.writes, "use_fast_accum": path.fast_accum}
    return _KERNEL(a, b, *scales, bias=bias, **options)


def _multiply_blocks(
    a: Tensor, b: Tensor, a_inverse: Tensor, b_inverse: Tensor, path: Path
) -> Tensor:
    """Multiply by torch's kernel with 128-block scales; shapes and strides determine the kind."""

    def laid_out(matrix: Tensor, inverse: Tensor) -> Tensor:
        """Return the scales in the layout of the kernel: column-major if there is one per row."""
        of_rows = matrix.shape[0] == inverse.shape[0]
        return inverse.t().contiguous().t() if of_rows else inverse.contiguous()

    return _KERNEL(
        a, b, laid_out(a, a_inverse), laid_out(b.t(), b_inverse).t(), out_dtype=path.writes
    )


_KERNEL = getattr(torch, "_scaled_mm", None)  # no public name that torch.compile knows
WHOLE_SCALES, BLOCK_SCALES = "torch._scaled_mm", "torch._scaled_mm by blocks"
PATHS = ("auto", "scaled_mm", "dequantised")
Heights = tuple[int, int]  # rows of a and of b (1 or 128) that share a block scale


def scaled_matmul(
    a: FP8QuantizedTensor,
    b: FP8QuantizedTensor,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype = torch.float32,
    path: str = "auto",
    fast_accum: bool = False,
) -> tuple[Tensor, Path]:
    """Multiply a [M, K] by b [N, K] transposed, add bias [N]; return ([M, N], path taken).

    Paths: `scaled_mm` multiplies float8; `dequantised` multiplies dequantised values, which is
    slower than not quantising, on the CPU in float32, elsewhere in a 16-bit `out_dtype`, else
    float32; `auto` takes the first if it runs. With `fast_accum` a kernel accumulates in the units'
    own precision (about 14 bits on Hopper) if it can; with 128-block scales none can.

    Raises:
        ValueError: the path is unknown, or the inner sizes differ.
        RuntimeError: the requested path cannot run on this device.
    """
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"inner widths differ: {tuple(a.shape)} times {tuple(b.shape)} transposed")
    single = a.scale.ndim == b.scale.ndim == 0
    dtypes = a.data.dtype, b.data.dtype, out_dtype
    how = {"single": single, "path": path, "fast_accum": fast_accum, "heights": _heights(a, b)}
    taken = find_path(a.data.device, *dtypes, **how)
    within = bias if bias is not None and _adds(taken, a, b, bias) else None
    if taken.kernel is None:
        narrow = out_dtype.itemsize == 2 and a.data.device.type != "cpu"
        out = _dequantised(a, b, out_dtype if narrow else torch.float32)
    else:
        out = _by_kernel(a, b, taken, within)
    out = out.to(out_dtype)
    return (out if within is bias else out + bias), taken


def _adds(path: Path, a: FP8QuantizedTensor, b: FP8QuantizedTensor, bias: Tensor) -> bool:
    """Return whether the kernel can add this bias: not if the bias requires a gradient."""
    whole = b.shape[0] % ALIGNMENT == 0 and 0 not in (*a.shape, b.shape[0])
    return path.adds and whole and bias.dtype == path.writes and not bias.requires_grad


def find_path(
    device: torch.device,
    a_dtype: torch.dtype,
    b_dtype: torch.dtype,
    out_dtype: torch.dtype,
    *,
    single: bool,
    path: str = "auto",
    fast_accum: bool = False,
    heights: Heights | None = None,
) -> Path:
    """Return how products of these dtypes are computed; `single`: both have a single scale.

    `heights` are the rows that share a block scale, in a and in b.

    Raises:
        ValueError: the path is unknown.
        RuntimeError: the requested path cannot run on this device.
    """
    if path not in PATHS:
        raise ValueError(f"path {path!r} is none of {', '.join(PATHS)}")
    if path == "dequantised":
        return Path("dequantised")
    found = _find(str(device), a_dtype, b_dtype, out_dtype, single, fast_accum, heights)
    if path == "scaled_mm" and found.fallback:
        raise RuntimeError(f"{found.fallback}; path='dequantised' computes the same slowly")
    return found


@torch.compiler.assume_constant_result  # found by running real tensors, once
def _find(device: str, *of: object) -> Path:
    return _search(device, *of)


def _heights(a: FP8QuantizedTensor, b: FP8QuantizedTensor) -> Heights | None:
    """Return the rows that share a block scale in each operand; None if one has no block scales."""
    if a.scale.ndim == 0 or b.scale.ndim == 0 or a.shape[1] <= BLOCK:
        return None  # with a single block of columns, its scales are those of rows
    if 1 in (a.scale.shape[1], b.scale.shape[1]):
        return None
    left, right = (1 if one.scale.shape[0] == one.shape[0] else BLOCK for one in (a, b))
    return left, right


def _dequantised(
    a: FP8QuantizedTensor, b: FP8QuantizedTensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Multiply the dequantised matrices in `dtype`, also under autocast."""
    with without_autocast(a.data.device):
        return a.dequantize(dtype) @ b.dequantize(dtype).t()


def _by_kernel(
    a: FP8QuantizedTensor, b: FP8QuantizedTensor, path: Path, bias: Tensor | None = None
) -> Tensor:
    """Multiply by one call, or by one per 128 columns of K if no kernel takes block scales.

    With a bias, which only single scales allow, there is one call.
    """
    (rows, inner), columns = a.shape, b.shape[0]
    if 0 in (rows, inner, columns):
        return a.scale.new_zeros(rows, columns)
    if a.scale.ndim == b.scale.ndim == 0:
        return _aligned(a.data, b.data, a.scale.reciprocal(), b.scale.reciprocal(), path, bias)
    if path.kernel == BLOCK_SCALES:
        return _by_blocks(a, b, path)
    a_scale, b_scale = _per_row(a), _per_row(b)
    if a_scale.shape[1] == b_scale.shape[1] == 1:
        return _aligned(a.data, b.data, a_scale.reciprocal(), b_scale.reciprocal(), path)
    total = a.scale.new_zeros(rows, columns)
    for block, start in enumerate(range(0, inner, BLOCK)):
        part = slice(start, start + BLOCK)
        scales = (one[:, min(block, one.shape[1] - 1), None] for one in (a_scale, b_scale))
        inverse = (one.reciprocal() for one in scales)
        total += _aligned(a.data[:, part], b.data[:, part], *inverse, path)
    return total


def _by_blocks(a: FP8QuantizedTensor, b: FP8QuantizedTensor, path: Path) -> Tensor:
    """Multiply by one call, with both matrices padded to whole blocks."""
    (left, a_inverse), (right, b_inverse) = _whole(a), _whole(b)
    out = _multiply_blocks(left, right.t(), a_inverse, b_inverse, path)
    return out[: a.shape[0], : b.shape[0]]


def _whole(matrix: FP8QuantizedTensor) -> tuple[Tensor, Tensor]:
    """Return data and inverse scales padded to whole blocks; added data are 0, added scales 1."""
    of_rows = matrix.scale.shape[0] == matrix.shape[0]
    height = ALIGNMENT if of_rows else BLOCK
    data = padded(matrix.data, height, WHOLE)
    inverse, blocks = matrix.scale.reciprocal(), data.shape[1] // BLOCK
    below = data.shape[0] // (1 if of_rows else BLOCK) - inverse.shape[0]
    return data, F.pad(inverse, (0, blocks - inverse.shape[1], 0, below), value=1.0)


def _per_row(matrix: FP8QuantizedTensor) -> Tensor:
    """Return the scales as [rows, 1] or [rows, blocks of K]."""
    rows = matrix.shape[0]
    scale = matrix.scale.reshape(1, 1) if matrix.scale.ndim == 0 else matrix.scale
    return spread(scale, torch.Size((rows, scale.shape[1]))).expand(rows, -1)


def _aligned(
    a: Tensor,
    b: Tensor,
    a_inverse: Tensor,
    b_inverse: Tensor,
    path: Path,
    bias: Tensor | None = None,
) -> Tensor:
    """Multiply matrices padded to the kernel's widths, which are multiples of 16."""
    rows, columns = a.shape[0], b.shape[0]
    if a_inverse.ndim:  # the scales of the columns that are added do not matter
        b_inverse = F.pad(b_inverse, (0, 0, 0, -columns % ALIGNMENT))
    a, b = padded(a), padded(b, ALIGNMENT)
    out = _multiply(a, b.t(), a_inverse, b_inverse.t(), path, bias)
    return out[:rows, :columns]


@lru_cache
def _search(
    device: str,
    a_dtype: torch.dtype,
    b_dtype: torch.dtype,
    out_dtype: torch.dtype,
    single: bool,
    fast_accum: bool = False,
    heights: Heights | None = None,
) -> Path:
    """Return the path by the kernel if its results are right, else by dequantised matrices."""
    if _KERNEL is None:
        return Path("dequantised", f"torch {torch.__version__} has no scaled_mm")
    wanted = out_dtype if out_dtype.itemsize <= 4 else torch.float32
    dtypes, split = tuple(dict.fromkeys((wanted, torch.bfloat16))), None
    of = device, a_dtype, b_dtype, single
    if heights is not None:
        for dtype in dtypes:
            path = Path("scaled_mm", None, BLOCK_SCALES, dtype)
            trouble = _probe(*of, path, heights)
            if trouble is None:
                return path
            split = split or f"{BLOCK_SCALES} {trouble}"
    first = None
    for fast in (True, False) if fast_accum and heights is None else (False,):
        for dtype in dtypes:
            path = Path("scaled_mm", None, WHOLE_SCALES, dtype, fast)
            trouble = _probe(*of, path)
            if trouble is None:
                adds = single and dtype.itemsize == 2 and _probe(*of, path, adds=True) is None
                return replace(path, splits=split, adds=adds)
            first = first or f"{WHOLE_SCALES} {trouble}"
    scales = "one scale" if single else "a scale per row"
    where = f"for {a_dtype} times {b_dtype} with {scales} on {device}"
    return Path("dequantised", f"{first} {where}")


@torch.inference_mode(False)
@torch.no_grad()
def _probe(
    device: str,
    a_dtype: torch.dtype,
    b_dtype: torch.dtype,
    single: bool,
    path: Path,
    heights: Heights | None = None,
    *,
    adds: bool = False,
) -> str | None:
    """Return why a tiny product (with `adds`, plus a bias) fails or is wrong, or None."""
    if heights is None:
        a, b = _example(device, 16, a_dtype, single), _example(device, 48, b_dtype, single)
    else:
        a = _blocks(device, 20, a_dtype, heights[0])
        b = _blocks(device, 144, b_dtype, heights[1])
    expected, bias = _dequantised(a, b), None
    if adds:
        bias = expected.amax(dim=0).to(path.writes)
        expected += bias
    try:
        actual = _by_kernel(a, b, path, bias).float()
    except torch.OutOfMemoryError:
        raise  # is no property of the kernel, and would be cached
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return f"does not run ({first_words(error)})"
    wrong = (actual - expected).abs().max() > 0.01 * expected.abs().max()
    return "computes wrong numbers" if wrong else None


def _example(device: str, rows: int, dtype: torch.dtype, single: bool) -> FP8QuantizedTensor:
    """Return a test matrix [rows, 32] without equal rows or columns; scales are 2, or 1 to 4."""
    numbers = torch.linspace(-2, 3, rows * 32, device=device).roll(rows).reshape(rows, 32)
    scale = torch.linspace(1, 4, rows, device=device)[:, None]
    if single:
        scale = scale.new_tensor(2.0)
    return FP8QuantizedTensor(numbers.to(dtype), scale, torch.float32)


def _blocks(device: str, rows: int, dtype: torch.dtype, height: int) -> FP8QuantizedTensor:
    """Return a test matrix [rows, 528] with a scale per block; the last block has 16 columns."""
    numbers = torch.linspace(-2, 3, rows * 528, device=device).roll(rows).reshape(rows, 528)
    scale = torch.linspace(1, 4, -(-rows // height) * 5, device=device).reshape(-1, 5)
    return FP8QuantizedTensor(numbers.to(dtype), scale, torch.float32)
