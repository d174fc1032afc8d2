"""Shared parts of the Triton kernels: supported devices, tile shapes, and when they are faster.

Their modules can be imported without Triton: the registry then refuses the kernels with a reason.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.kernels.registry import REGISTRY, Kernel, Request

try:
    import triton
    import triton.language as tl
    from triton import jit
except ImportError:
    triton = tl = None

    def jit(function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function unchanged, in place of Triton's decorator."""
        return function


VENDORS = frozenset({"nvidia", "amd"})
DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16})
LEAST_CAPABILITY = (8, 0)  # asynchronous copies, bfloat16
AMD_TARGETS = ("gfx90a", "gfx942")

FEW_ROWS = 64  # for one weight: the time goes into reading the weight
FEW_WIDE_ROWS = 16  # of float32 where no matrix instruction multiplies it
MANY, SOME, MIXED = "many rows", "some rows", "mixed dtypes"
ODD, ACROSS = "odd widths", "transposed weights"
SLOW = {
    MANY: f"for more than {FEW_ROWS} rows the library multiplies faster",
    ODD: "reads fast where widths are multiples of 16 only, one number at a time elsewhere",
    ACROSS: "transposed weights would be copied at every call",
}
ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def refusal(request: Request) -> str | None:
    """Return why the Triton kernels do not run on the request's hardware; None if they do."""
    hardware = request.hardware
    if hardware.vendor == "nvidia" and (hardware.capability or (0, 0)) < LEAST_CAPABILITY:
        return f"needs sm_80; this is {hardware.target}"
    if hardware.vendor == "amd" and hardware.target not in AMD_TARGETS:
        return f"is built for {' and '.join(AMD_TARGETS)}; this is {hardware.target}"
    return None if triton else "triton is not installed"


def register(
    operation: str,
    run: Callable[..., Any],
    library: Callable[..., Any],
    library_refuses: Callable[[Request], str | None] | None = None,
    **fields: Any,
) -> None:
    """Register a Triton kernel (`fields` of the kernel) with precedence over the library's."""
    fields = {"rank": 1, "vendors": VENDORS, "dtypes": DTYPES, "refuse": refuse_matrices} | fields
    REGISTRY.register(Kernel(operation, "triton", run, **fields))
    REGISTRY.register(Kernel(operation, "torch", library, refuse=library_refuses))


def rows_variant(
    rows: int, experts: int = 1, x: Tensor | None = None, *weights: Tensor | None
) -> str:
    """Return the variant of a request, from its number of rows, x, weights and biases.

    Without rows, as for a traced call, it only distinguishes mixed dtypes.
    """
    given = [one for one in (x, *weights) if one is not None]
    if any(one.dtype != given[0].dtype for one in given):
        return MIXED
    if rows > FEW_ROWS * experts:
        return MANY
    sized = [one for one in given if one.ndim > 1 and rows]
    if any(one.stride(-1) != 1 for one in sized if one is not x):
        return ACROSS
    if any(one.shape[-1] % 16 or one.stride(-2) % 16 for one in sized):
        return ODD
    return SOME if rows > FEW_WIDE_ROWS * experts else ""


def refuse_matrices(request: Request) -> str | None:
    """Return why a multiplying kernel cannot serve a request; None if it can."""
    return "x and the weights must have one dtype" if request.variant == MIXED else refusal(request)


def yields_few_rows(request: Request) -> str | None:
    """Return why the library's way is preferred to the kernel for few rows, or None."""
    if request.variant in SLOW:
        return SLOW[request.variant]
    wide = request.dtype == torch.float32 and request.hardware.vendor == "nvidia"
    if request.variant == SOME and wide:  # TF32 drops 13 bits
        return f"for more than {FEW_WIDE_ROWS} rows the library multiplies float32 faster"
    return None


def activation_of(name: str) -> Callable[[Tensor], Tensor]:
    """Return the library's function of that name.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in ACTIVATION:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATION)}, got {name!r}")
    return ACTIVATION[name]


def launching(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which Triton launches on the device of `x`; it does nothing on the
    CPU.
    """
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


def rowwise(matrix: Tensor) -> Tensor:
    """Return the matrix with contiguous rows, copied if needed."""
    return matrix if matrix.stride(-1) == 1 else matrix.contiguous()


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tile sizes: a program computes `m` x `n` results in steps of `k` along the depth.

    `rows` is the maximum number of rows it is meant for, 0 for any. Tables are fixed, because
    autotuning cannot be captured in a CUDA graph.
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int
    bits: int  # of a number that is multiplied
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}/{self.warps}w{self.stages}s"

    def blocks(self) -> dict[str, int]:
        """Return the kernel's tile constants."""
        return {"block_m": self.m, "block_n": self.n, "block_k": self.k}

    def launch(self) -> dict[str, int]:
        """Return the kernel's tile constants and compiler options."""
        return {**self.blocks(), "num_warps": self.warps, "num_stages": self.stages}


def pick_tiles(table: Iterable[Tiles], dtype: torch.dtype, rows: int) -> Tiles:
    """Return the table's tiles for this dtype with the smallest bound on rows >= `rows`.

    Raises:
        ValueError: the table has none.
    """
    able = [one for one in table if one.bits == dtype.itemsize * 8 and not 0 < one.rows < rows]
    if not able:
        raise ValueError(f"no tiles for {rows} rows of {dtype}")
    return min(able, key=lambda one: one.rows or math.inf)


@jit
def place(
    program, rows, columns, block_m: tl.constexpr, block_n: tl.constexpr, group: tl.constexpr
):
    """Return the tile (m, n) of a program, `group` lines of tiles at a time for reuse in L2."""
    lines = tl.cdiv(rows, block_m)
    across = tl.cdiv(columns, block_n)
    first = program // (group * across) * group
    height = tl.minimum(lines - first, group)
    within = program % (group * across)
    return first + within % height, within // height


@jit
def load_tile(starts, here, steps, depth):
    """Load numbers at `starts` [n] + `steps` [k]; 0 if not `here` [n] or beyond `depth`."""
    mask = here[:, None] & (steps < depth)[None, :]
    return tl.load(starts[:, None] + steps[None, :], mask=mask, other=0.0)


@jit
def activate(x, name: tl.constexpr):
    """Apply the named activation to float32 numbers; NaN stays NaN."""
    if name == "relu":
        x = tl.where(x < 0, 0.0, x)
    elif name == "silu":
        x = x * tl.sigmoid(x)
    elif name == "gelu":
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif name == "gelu_tanh":  # (1 + tanh(a)) / 2 is sigmoid(2 a)
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    else:
        tl.static_assert(False, "no such activation")
    return x
