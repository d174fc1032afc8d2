"""Specimens of the kernels that multiply matrices, and of what stands between products."""

from __future__ import annotations

from typing import Any

import torch

from suites.specimens import Specimen, pointer, tiled
from torchbridge.kernels.gpu import cross_entropy, gated_linear, grouped_mm, moe
from torchbridge.kernels.gpu.tiles import Tiles


def _gated_linears() -> list[Specimen]:
    half, small = [tiles for tiles in gated_linear.TABLE if tiles.bits == 16], gated_linear.TABLE[0]
    bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
    wanted = [(tiles, bf16, {}) for tiles in half]
    wanted += [(tiles, fp32, {}) for tiles in gated_linear.TABLE if tiles.bits == 32]
    wanted += [(tiles, bf16, {"keep": True}) for tiles in half if not tiles.rows]
    wanted += [(small, bf16, {"activation": name}) for name in gated_linear.ACTIVATIONS[:-1]]
    wanted += [(half[-1], fp16, {"gated": False, "biased": True, "keep": True})]
    found = [one for tiles, dtype, how in wanted for one in _forward_specimens(tiles, dtype, **how)]
    return [*found, *(_backward_specimen(name) for name in gated_linear.ACTIVATIONS)]


def _forward_specimens(tiles: Tiles, dtype: torch.dtype, **flags: Any) -> list[Specimen]:
    names = ("x", "gate", "up", "bias", "y", "gate_kept", "up_kept")
    sizes = ("rows", "columns", "depth", "x_stride", "gate_stride", "up_stride")
    constants = {"activation": "silu", "gated": True, "biased": False, "keep": False, **flags}
    shown = "-".join(str(value) if isinstance(value, str) else key for key, value in flags.items())
    return tiled(
        "-".join(filter(None, ("gated_linear", pointer(dtype)[1:], shown))),
        gated_linear.gated_linear_kernel,
        tiles,
        dtype,
        signature={**dict.fromkeys(names, pointer(dtype)), **dict.fromkeys(sizes, "i32")},
        constexprs={**constants, "group": gated_linear.GROUP},
        operation="gated_linear",
        gradient=constants["keep"],
        odd=frozenset({"rows"}),
    )


def _backward_specimen(activation: str) -> Specimen:
    names = ("upstream", "gate_kept", "up_kept", "gate_grad", "up_grad")
    return Specimen(
        f"gate_gradient-{activation}",
        gated_linear.gate_gradient_kernel,
        {**dict.fromkeys(names, "*bf16"), "count": "i32"},
        {"activation": activation, "gated": True, "block": gated_linear.ELEMENTS},
        dtype=torch.bfloat16,
        operation="gated_linear",
        gradient=True,
    )


def _grouped() -> list[Specimen]:
    found = []
    for tiles in grouped_mm.TABLE:
        narrow = (torch.bfloat16, torch.float16) if tiles.m == 128 else (torch.bfloat16,)
        for dtype in narrow if tiles.bits == 16 else (torch.float32,):
            for across in (False, True):
                found += _grouped_forward(tiles, dtype, across)
            found += _grouped_backward(tiles, dtype)
    return found


def _grouped_forward(tiles: Tiles, dtype: torch.dtype, across: bool) -> list[Specimen]:
    sizes = ("count", "experts", "width", "depth", "row_stride")
    return tiled(
        f"grouped-{pointer(dtype)[1:]}{'-across' * across}",
        grouped_mm.grouped_kernel,
        tiles,
        dtype,
        signature={
            **dict.fromkeys(("rows", "weights", "out"), pointer(dtype)),
            **dict.fromkeys(sizes, "i32"),
            "ends": "*i32",
        },
        constexprs={"across": across, "padded": 8, "group": grouped_mm.GROUP},
        operation="grouped_mm",
        odd=frozenset({"count", "experts"}),
    )


def _grouped_backward(tiles: Tiles, dtype: torch.dtype) -> list[Specimen]:
    sizes = ("width", "depth", "upstream_stride", "row_stride")
    return tiled(
        f"grouped_gradient-{pointer(dtype)[1:]}",
        grouped_mm.grouped_gradient_kernel,
        tiles,
        dtype,
        signature={
            **dict.fromkeys(("upstream", "rows", "out"), pointer(dtype)),
            **dict.fromkeys(sizes, "i32"),
            "ends": "*i32",
        },
        constexprs={"group": grouped_mm.GROUP},
        operation="grouped_mm",
        gradient=True,
    )


def _experts() -> list[Specimen]:
    found = [_index_specimen()]
    for tiles in moe.TABLE:
        dtype = torch.bfloat16 if tiles.bits == 16 else torch.float32
        found += _up_specimens(tiles, dtype, "silu", gated=True) + _down_specimens(tiles, dtype)
    small, fp16 = moe.TABLE[0], torch.float16
    for name in moe.ACTIVATIONS[:-1]:
        found += _up_specimens(small, fp16, name, gated=False)
    return [*found, *_down_specimens(small, fp16), _sum_specimen(torch.bfloat16)]


def _index_specimen() -> Specimen:
    names = ("experts", "order", "blocks")
    sizes = ("assignments", "num_experts", "count", "block_m")
    signature = {**dict.fromkeys(names, "*i32"), "experts": "*i64", **dict.fromkeys(sizes, "i32")}
    return Specimen(
        "expert_index",
        moe.expert_index_kernel,
        signature,
        moe.COUNTED,
        dtype=torch.bfloat16,  # of the rows; the kernel does not see them
        operation="moe_experts",
        odd=frozenset({"num_experts", "count", "assignments"}),
    )


def _up_specimens(tiles: Tiles, dtype: torch.dtype, activation: str, *, gated: bool) -> list:
    numbers = dict.fromkeys(("x", "up", "bias", "hidden"), pointer(dtype))
    sizes = dict.fromkeys(("top_k", "depth", "width", "count", "x_stride"), "i32")
    return tiled(
        f"expert_up-{pointer(dtype)[1:]}-{activation}{'-gated' * gated}",
        moe.expert_up_kernel,
        tiles,
        dtype,
        signature={**numbers, "order": "*i32", "blocks": "*i32", **sizes},
        constexprs={"activation": activation, "gated": gated, "biased": True},
        operation="moe_experts",
        odd=frozenset({"top_k", "count"}),
    )


def _down_specimens(tiles: Tiles, dtype: torch.dtype) -> list:
    numbers = dict.fromkeys(("hidden", "down", "bias", "weights"), pointer(dtype))
    sizes = dict.fromkeys(("depth", "width", "count"), "i32")
    pointers = {"order": "*i32", "blocks": "*i32", "parts": "*fp32"}
    return tiled(
        f"expert_down-{pointer(dtype)[1:]}",
        moe.expert_down_kernel,
        tiles,
        dtype,
        signature={**numbers, **pointers, **sizes},
        constexprs={"biased": True},
        operation="moe_experts",
        odd=frozenset({"count"}),
    )


def _sum_specimen(dtype: torch.dtype) -> Specimen:
    return Specimen(
        f"expert_sum-{pointer(dtype)[1:]}",
        moe.expert_sum_kernel,
        {"parts": "*fp32", "experts": "*i64", "y": pointer(dtype), "width": "i32",
         "num_experts": "i32"},
        {"top_k": 2, "columns": moe.COLUMNS},
        dtype=dtype,
        operation="moe_experts",
        odd=frozenset({"num_experts"}),
    )  # fmt: skip


def _cross_entropy(dtype: torch.dtype, gradient: bool) -> Specimen:
    pointers = {"logits": pointer(dtype), "target": "*i64", "scale": "*fp32", "losses": "*fp32"}
    numbers = dict.fromkeys(("size", "room", "stride", "scale_stride", "ignore"), "i32")
    return Specimen(
        f"cross_entropy-{pointer(dtype)[1:]}{'-gradient' * gradient}",
        cross_entropy.cross_entropy_kernel,
        {**pointers, **numbers, "smoothing": "fp32", "z_loss": "fp32"},
        {"gradient": gradient, "block": cross_entropy.BLOCK},
        num_warps=cross_entropy.WARPS,
        dtype=dtype,
        operation="linear_cross_entropy",
        gradient=gradient,
        odd=frozenset({"size", "scale_stride", "ignore"}),
    )


CROSS_ENTROPY = [_cross_entropy(dtype, gradient=True) for dtype in cross_entropy.DTYPES]
CROSS_ENTROPY += [_cross_entropy(torch.bfloat16, gradient=False)]
CROSS_ENTROPY += [
    Specimen(
        f"multiply-{pointer(dtype)[1:]}",
        cross_entropy.multiply_kernel,
        {"x": pointer(dtype), "factor": "*fp32", "size": "i32"},
        {"block": 4 * cross_entropy.BLOCK},
        num_warps=cross_entropy.WARPS,
        dtype=dtype,
        operation="linear_cross_entropy",
        gradient=True,
    )
    for dtype in cross_entropy.DTYPES
]

SPECIMENS = {
    "gated_linear": _gated_linears(),
    "grouped_mm": _grouped(),
    "moe": _experts(),
    "cross_entropy": CROSS_ENTROPY,
}
