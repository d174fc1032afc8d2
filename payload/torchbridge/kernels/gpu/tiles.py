"""What the matrix kernels share: shapes of tiles, and which chips have the room. Needs Triton."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from torchbridge.hardware import probe

# chips that multiply out of shared memory, of which they have 227 KiB for one block
ASYNCHRONOUS = ("sm_90", "sm_100", "sm_103")
inlined = triton.jit  # for what kernels call; `triton.jit` itself marks those that are launched


@dataclass(frozen=True, slots=True)
class Tiles:
    """A program computes `m` x `n` results and walks the depth in steps of `k`.

    `rows` is the most rows that it is meant for, 0: any number; `targets` the chips that have the
    room, all if empty.
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int
    bits: int  # of a number that is multiplied
    rows: int = 0
    targets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}/{self.warps}w{self.stages}s"

    def suits(self, target: str, bits: int) -> bool:
        """Is it for numbers of so many bits on this chip?"""
        return self.bits == bits and (not self.targets or target in self.targets)

    def blocks(self) -> dict[str, int]:
        """The constants of a kernel."""
        return {"block_m": self.m, "block_n": self.n, "block_k": self.k}

    def launch(self) -> dict[str, int]:
        """The constants and the compiler's options."""
        return {**self.blocks(), "num_warps": self.warps, "num_stages": self.stages}


@functools.cache
def target_of(device: torch.device) -> str:
    """The chip that kernels are launched on; asked once."""
    return probe(device).target


def candidates(table: Iterable[Tiles], target: str, dtype: torch.dtype, rows: int) -> list[Tiles]:
    """Those of a table for this chip and dtype that are meant for the fewest rows >= `rows`.

    Raises:
        ValueError: the table has none.
    """
    able = [tiles for tiles in table if tiles.suits(target, dtype.itemsize * 8)]
    bounds = sorted(tiles.rows for tiles in able if tiles.rows >= rows)
    wanted = bounds[0] if bounds else 0
    found = [tiles for tiles in able if tiles.rows == wanted]
    if not found:
        raise ValueError(f"no tiles for {rows} rows of {dtype} on {target or 'this device'}")
    return found


@inlined
def place(
    program, rows, columns, block_m: tl.constexpr, block_n: tl.constexpr, group: tl.constexpr
):
    """Which tile (m, n) a program computes: `group` lines of them together, so that L2 has them."""
    lines = tl.cdiv(rows, block_m)
    across = tl.cdiv(columns, block_n)
    first = program // (group * across) * group
    height = tl.minimum(lines - first, group)
    within = program % (group * across)
    return first + within % height, within // height


@inlined
def load_tile(starts, here, steps, depth):
    """Numbers at `starts` [n] + `steps` [k]; zeros where `here` [n] is false or beyond `depth`."""
    mask = here[:, None] & (steps < depth)[None, :]
    return tl.load(starts[:, None] + steps[None, :], mask=mask, other=0.0)


@inlined
def activate(x, name: tl.constexpr):
    """The activation of float32 numbers; a NaN stays one."""
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


@inlined
def slope(x, name: tl.constexpr):
    """The derivative of `activate` at float32 numbers."""
    if name == "relu":
        y = tl.where(x > 0, 1.0, 0.0)
    elif name == "silu":
        part = tl.sigmoid(x)
        y = part * (1 + x * (1 - part))
    elif name == "gelu":
        bell = 0.3989422804014327 * tl.exp(-0.5 * x * x)
        y = 0.5 * (1 + tl.erf(x * 0.7071067811865476)) + x * bell
    elif name == "gelu_tanh":
        part = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
        y = part + x * part * (1 - part) * 1.5957691216057308 * (1 + 0.134145 * x * x)
    else:
        tl.static_assert(False, "no such activation")
    return y
