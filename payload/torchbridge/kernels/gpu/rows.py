"""How kernels that work on rows go about them: one table for all, by the width of a row.

A row that fits is read once and kept in registers; a wider one is read twice, a block at a time.
Tables, not autotuning: these kernels are bound by memory, a choice made by measuring could differ
between two runs, and with it the order of a sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Plan:
    """`height` rows of up to `block` numbers for each program of `warps` warps.

    `wide`: the row does not fit, and is gone through a block at a time.
    """

    height: int
    block: int
    warps: int
    wide: bool = False

    def __str__(self) -> str:
        return f"{self.height}x{self.block}{'-wide' if self.wide else ''}"


# sixteen numbers for each thread of 32 in a warp (32 in the last row), so that nothing spills
FITTING = (
    Plan(16, 128, 4),
    Plan(4, 512, 4),
    Plan(2, 1024, 4),
    Plan(1, 2048, 4),
    Plan(1, 4096, 8),
    Plan(1, 8192, 16),
    Plan(1, 16384, 16),
)
WIDE = Plan(1, 4096, 8, wide=True)


def plans(widest: int) -> list[Plan]:
    """All that `plan` can answer."""
    return [*(one for one in FITTING if one.block <= widest), WIDE]


def plan(width: int, widest: int) -> Plan:
    """For rows of `width` numbers, of which a kernel can keep `widest` in registers."""
    return next((one for one in plans(widest) if width <= one.block), WIDE)


def as_rows(x: Tensor) -> Tensor:
    """x [..., n] as [m, n], each row in one piece: a view where strides allow it, or else a copy.

    Rows may lie at any distance from one another, as those of a slice do.
    """
    rows = x.reshape(-1, x.shape[-1]) if x.numel() else x.reshape(0, x.shape[-1])
    return rows if rows.stride(1) == 1 or rows.shape[1] == 1 else rows.contiguous()


def units(x: Tensor) -> int:
    """Processors of the device of `x`; the interpreter on the CPU counts as three."""
    if not x.is_cuda:
        return 3
    return torch.cuda.get_device_properties(x.device).multi_processor_count
