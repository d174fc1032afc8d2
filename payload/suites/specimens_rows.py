"""Specimens of the kernels for rows: every plan in bfloat16, the widest in the other dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from suites.specimens import Specimen, arguments, pointer
from torchbridge.kernels.gpu import norms, quantise, softmax
from torchbridge.kernels.gpu.rows import Plan, plan, plans

_SIZES = ("rows", "width", "stride", "upstream_stride", "steps")
_FLOAT32 = ("mean", "inverse", "weight_part", "bias_part")


WIDEST = plan(quantise.WIDEST, quantise.WIDEST)


def _of(module: Any, name: str, how: Plan) -> Any:
    """Its kernel for rows of this plan."""
    return getattr(module, f"{name}_wide" if how.wide else name)


def _norm(
    kernel: Any, how: Plan, dtype: torch.dtype, centred: bool, *, plain: bool = False
) -> Specimen:
    """One of RMSNorm or LayerNorm (`centred`), `plain` without weight and bias."""
    absent = set() if centred else {"mean", "bias", "bias_part"}
    absent |= {"weight", "bias", "weight_part", "bias_part"} if plain else set()
    constants = {"centred": centred, "height": how.height, "block": how.block}
    names = [name for name in arguments(kernel) if name not in constants]
    types = {name: pointer(dtype) for name in names}
    types |= dict.fromkeys(_FLOAT32, pointer(torch.float32)) | dict.fromkeys(_SIZES, "i32")
    types["eps"] = "fp32"
    operation, what = "layer_norm" if centred else "rms_norm", kernel.__name__
    return Specimen(
        f"{operation}-{what}-{how}-{pointer(dtype)[1:]}{'-plain' if plain else ''}",
        kernel,
        {name: types[name] for name in names if name not in absent},
        constants | {name: None for name in names if name in absent},
        num_warps=how.warps,
        dtype=dtype,
        operation=operation,
        gradient=not what.startswith("forward"),
        odd=frozenset({"rows", "steps"}),
    )


def _norms() -> Iterator[Specimen]:
    """Every plan in bfloat16; the other dtypes where the rows that fit are widest."""
    for centred in (False, True):
        for how in plans(norms.FORWARD_WIDEST):
            yield _norm(_of(norms, "forward", how), how, torch.bfloat16, centred)
        for how in plans(norms.BACKWARD_WIDEST):
            yield _norm(_of(norms, "backward", how), how, torch.bfloat16, centred)
        yield _norm(norms.weight_sums, norms.TILE, torch.bfloat16, centred)
    for dtype in (torch.float32, torch.float16):
        yield _norm(norms.forward, plan(norms.FORWARD_WIDEST, norms.FORWARD_WIDEST), dtype, True)
        yield _norm(norms.backward, plan(norms.BACKWARD_WIDEST, norms.BACKWARD_WIDEST), dtype, True)
    yield _norm(norms.forward, plan(4096, norms.FORWARD_WIDEST), torch.bfloat16, True, plain=True)
    yield _norm(norms.backward, plan(4096, norms.BACKWARD_WIDEST), torch.bfloat16, True, plain=True)


def _softmax(kernel: Any, how: Plan, dtype: torch.dtype) -> Specimen:
    constants = {"height": how.height, "block": how.block}
    names = [name for name in arguments(kernel) if name not in constants]
    sizes = ("rows", "width", "stride", "upstream_stride")
    return Specimen(
        f"softmax-{kernel.__name__}-{how}-{pointer(dtype)[1:]}",
        kernel,
        {name: "i32" if name in sizes else pointer(dtype) for name in names},
        constants,
        num_warps=how.warps,
        dtype=dtype,
        operation="softmax",
        gradient=kernel.__name__.startswith("backward"),
        odd=frozenset({"rows"}),
    )


def _softmaxes(dtype: torch.dtype, shapes: list[Plan]) -> list[Specimen]:
    kernels = ("forward", "backward")
    return [_softmax(_of(softmax, name, how), how, dtype) for how in shapes for name in kernels]


# every plan in bfloat16; the other dtypes where the rows that fit are widest
SOFTMAX = [
    *_softmaxes(torch.bfloat16, plans(softmax.WIDEST)),
    *_softmaxes(torch.float32, [plan(softmax.WIDEST, softmax.WIDEST)]),
    *_softmaxes(torch.float16, [plan(softmax.WIDEST, softmax.WIDEST)]),
]


def _quantised(how: Plan, dtype: torch.dtype, encoding: torch.dtype) -> Specimen:
    kernel = _of(quantise, "quantise", how)
    constants = {"height": how.height, "block": how.block}
    types = dict.fromkeys(("rows", "width", "stride"), "i32")
    types |= {"x": pointer(dtype), "q": pointer(encoding), "scale": "*fp32"}
    types |= dict.fromkeys(("limit", "largest_scale"), "fp32")
    name = str(encoding).removeprefix("torch.float8_")
    return Specimen(
        f"{name}-{how}-{pointer(dtype)[1:]}",
        kernel,
        {name: types[name] for name in arguments(kernel) if name not in constants},
        constants,
        num_warps=how.warps,
        dtype=dtype,
        needs=(8, 9),
        operation="quantise_rows",
        variant=name,
        odd=frozenset({"rows"}),
    )


# every plan in bfloat16; the other dtypes where the rows that fit are widest
QUANTISED = [
    _quantised(how, dtype, encoding)
    for encoding in quantise.ENCODINGS
    for dtype in (torch.bfloat16, torch.float32, torch.float16)
    for how in (plans(quantise.WIDEST) if dtype is torch.bfloat16 else [WIDEST])
]


SPECIMENS = {"norms": list(_norms()), "softmax": SOFTMAX, "quantise": QUANTISED}
