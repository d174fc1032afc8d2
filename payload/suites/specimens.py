"""Specimens: the variants of a kernel that its launcher can choose, to compile without a device.

They are all tiles and plans in bfloat16, and the widest in the other dtypes. Without Triton there
are none.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchbridge.kernels import cross_entropy, experts, grouped, quantise
from torchbridge.kernels.tiles import ACTIVATION, AMD_TARGETS, Tiles, triton

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
NVIDIA = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")  # the targets from NVIDIA
TYPES = {
    FP32: "fp32",
    FP16: "fp16",
    BF16: "bf16",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e4m3fnuz: "fp8e4b8",
}


@dataclass(frozen=True, slots=True)
class Specimen:
    """One variant of a kernel, with what Triton needs to compile it and the expected result.

    `signature` has the type of each non-constant argument ("*bf16", "i32", "fp32"), in any order.
    Each is assumed to be divisible by 16, as with the widths of real models, except those in `odd`;
    at other widths the kernel may spill. `operation`, `dtype`, `gradient` and `variant` form the
    request to the registry; `targets` are the targets of the launcher's table, all if empty.
    """

    name: str  # unique in its module
    kernel: Any  # a triton.jit function
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 2
    multiplies: bool = False  # must use the target's matrix instruction
    dtype: torch.dtype = FP32  # of its input
    needs: tuple[int, int] | None = None  # least compute capability on NVIDIA
    operation: str = ""
    gradient: bool = False
    variant: str = ""
    targets: tuple[str, ...] = ()
    odd: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.name


def signature(kernel: Any, constants: Mapping[str, Any], **types: str) -> dict[str, str]:
    """Return the types of all non-constant arguments: those in `types`, else "i32"."""
    names = inspect.signature(kernel.fn).parameters
    assert set(types) <= set(names), f"{kernel} takes {', '.join(names)}"
    return {name: types.get(name, "i32") for name in names if name not in constants}


def pointers(names: str, dtype: torch.dtype) -> dict[str, str]:
    """Return the types of pointers to numbers of `dtype` by name: {"x": "*bf16"}."""
    return dict.fromkeys(names.split(), f"*{TYPES[dtype]}")


def tiled(name: str, kernel: Any, tiles: Tiles, dtype: torch.dtype, types, constants, **facts: Any):
    """Return the specimens of a matrix kernel with these tiles; `facts` are further fields.

    Float32 has two specimens, because it is multiplied in full precision: AMD's chips have a matrix
    instruction for it, NVIDIA's do not, since TF32 drops 13 bits.
    """
    constants = {**constants, **tiles.blocks()}
    given = signature(kernel, constants, **types)
    launch = {"num_warps": tiles.warps, "num_stages": tiles.stages, "dtype": dtype}

    def one(suffix: str, multiplies: bool, targets: tuple[str, ...]) -> Specimen:
        told = {"multiplies": multiplies, "targets": targets, **launch, **facts}
        return Specimen(f"{name}-{TYPES[dtype]}-{tiles}{suffix}", kernel, given, constants, **told)

    if tiles.bits == 32:
        return [one("", False, NVIDIA), one("-amd", True, AMD_TARGETS)]
    return [one("", True, ())]


def _dtypes(tiles: Tiles) -> tuple[torch.dtype, ...]:
    """Return the dtypes of tiles: float32, or bfloat16, with float16 for the widest tiles."""
    return (FP32,) if tiles.bits == 32 else (BF16, FP16) if tiles.m == 128 else (BF16,)


def _widest(table: Iterable[Tiles]) -> list[tuple[Tiles, torch.dtype]]:
    """Return all tiles of a table, each with each of its dtypes."""
    return [(tiles, dtype) for tiles in table for dtype in _dtypes(tiles)]


def _grouped() -> list[Specimen]:
    found, ends = [], {"ends": "*i32"}
    for tiles, dtype in _widest(grouped.TABLE):
        facts = {"operation": "grouped_mm", "odd": frozenset({"count", "experts"})}
        types, constants = pointers("rows weights out", dtype) | ends, {"group": grouped.GROUP}
        for across in (False, True):
            found += tiled(
                f"grouped{'-across' * across}",
                grouped.grouped_kernel,
                tiles,
                dtype,
                types,
                {"across": across, "padded": 8, **constants},
                **facts,
            )
        types = pointers("upstream rows out", dtype) | ends
        kernel = grouped.grouped_gradient_kernel
        found += tiled("gradient", kernel, tiles, dtype, types, constants, **facts, gradient=True)
    return found


def _experts() -> list[Specimen]:
    small, lists = experts.TABLE[0], {"order": "*i32", "blocks": "*i32"}
    ups = [(*one, "silu", True) for one in _widest(experts.TABLE)]
    ups += [(small, FP16, name, False) for name in ACTIVATION if name != "silu"]
    facts = {"operation": "moe_experts", "odd": frozenset({"top_k", "count", "num_experts"})}
    facts["odd"] |= {"assignments"}
    found = []
    for kernel, constants, types in (
        (experts.expert_index_kernel, experts.COUNTED, {"experts": "*i64", **lists}),
        (
            experts.expert_sum_kernel,
            {"top_k": 2, "columns": experts.COLUMNS},
            {"parts": "*fp32", "experts": "*i64", "y": "*bf16"},
        ),
    ):
        given = signature(kernel, constants, **types)
        found.append(Specimen(kernel.__name__, kernel, given, constants, dtype=BF16, **facts))
    for tiles, dtype, activation, double in ups:
        constants = {"activation": activation, "gated": double, "biased": True}
        types, kernel = pointers("x up bias hidden", dtype) | lists, experts.expert_up_kernel
        found += tiled(f"up-{activation}", kernel, tiles, dtype, types, constants, **facts)
    for tiles, dtype in [*_widest(experts.TABLE), (small, FP16)]:
        types = pointers("hidden down bias weights", dtype) | lists | {"parts": "*fp32"}
        kernel = experts.expert_down_kernel
        found += tiled("down", kernel, tiles, dtype, types, {"biased": True}, **facts)
    return found


def _cross_entropy() -> list[Specimen]:
    found, launch = [], {"num_warps": cross_entropy.WARPS, "operation": "linear_cross_entropy"}
    for dtype, gradient in ((BF16, True), (FP16, True), (FP32, True), (BF16, False)):
        kernel = cross_entropy.cross_entropy_kernel
        constants = {"gradient": gradient, "block": cross_entropy.ELEMENTS}
        types = pointers("logits", dtype) | pointers("scale losses", FP32) | {"target": "*i64"}
        types |= {"smoothing": "fp32", "z_loss": "fp32"}
        facts = {"dtype": dtype, "odd": frozenset({"size", "scale_stride", "ignore"}), **launch}
        name = f"rows-{TYPES[dtype]}{'-gradient' * gradient}"
        given = signature(kernel, constants, **types)
        found.append(Specimen(name, kernel, given, constants, gradient=gradient, **facts))
    kernel, constants = cross_entropy.multiply_kernel, {"block": 4 * cross_entropy.ELEMENTS}
    for dtype in (BF16, FP16, FP32):
        given = signature(kernel, constants, **pointers("x", dtype), factor="*fp32")
        name = f"multiply-{TYPES[dtype]}"
        found.append(Specimen(name, kernel, given, constants, dtype=dtype, gradient=True, **launch))
    return found


def _quantised() -> list[Specimen]:
    wanted = [(how, BF16) for how in quantise.PLANS]
    wanted += [(quantise.plan(quantise.WIDEST), dtype) for dtype in (FP32, FP16)]
    found = []
    for encoding in quantise.ENCODINGS:
        variant = str(encoding).removeprefix("torch.float8_")
        for how, dtype in wanted:
            kernel = quantise.quantise_wide if how.wide else quantise.quantise
            constants = {"height": how.height, "block": how.block}
            types = pointers("x", dtype) | pointers("q", encoding) | pointers("scale", FP32)
            types |= {"limit": "fp32", "largest_scale": "fp32"}
            found.append(
                Specimen(
                    f"{variant}-{how}-{TYPES[dtype]}",
                    kernel,
                    signature(kernel, constants, **types),
                    constants,
                    num_warps=how.warps,
                    dtype=dtype,
                    needs=(8, 9),
                    operation="quantise_rows",
                    variant=variant,
                    odd=frozenset({"rows"}),
                )
            )
    return found


MAKERS = {  # functions by module of the kernel package
    "cross_entropy": _cross_entropy,
    "experts": _experts,
    "grouped": _grouped,
    "quantise": _quantised,
}
SPECIMENS = {name: make() for name, make in MAKERS.items()} if triton else {}
