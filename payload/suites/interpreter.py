"""Runs Triton kernels on the device, or in Triton's interpreter on the CPU.

On its first import Triton decides whether kernels are interpreted or compiled. Therefore
interpreted kernels run in one child process, and the process of the suite can still compile.
Tensors are sent to the child and back by pickling, with their strides.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import io
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from torchbridge.device import pick_device

PACKAGE = "torchbridge.kernels"
NARROW = {
    "bf16": (torch.bfloat16, 16),
    "fp8e4nv": (torch.float8_e4m3fn, 8),
    "fp8e4b8": (torch.float8_e4m3fnuz, 8),
}
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton not installed"
)


def run(function: str, *args: Any, **kwargs: Any) -> Any:
    """Return the result of a function of the kernel package, for example "experts.in_triton"."""
    return _send(_call, function, args, kwargs)


def differentiate(
    function: str, upstream: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor, list[Tensor]]:
    """Return the function's output, and the gradients of all arguments that require one.

    `upstream` is the gradient of the output.
    """
    return _send(_differentiate, function, upstream, args, kwargs)


def run_far_apart(function: str) -> tuple[Tensor, Tensor]:
    """Return the float8 numbers of rows [3, 64] with a stride of 2^30, and of contiguous copies.

    The last row begins 2^31 numbers after the first, which a 32-bit offset cannot reach. The
    process that computes creates the rows: untouched memory takes no room there and cannot be sent.
    """
    return _send(_far_apart, function)


def _far_apart(function: str) -> tuple[Tensor, Tensor]:
    device = "cpu" if os.environ.get("TRITON_INTERPRET") else pick_device()
    near = torch.randn(3, 64, device=device).to(torch.bfloat16)
    far = torch.empty(2**31 + 64, dtype=near.dtype, device=device).as_strided((3, 64), (2**30, 1))
    far.copy_(near)
    return tuple(_find(function)(rows).data.float() for rows in (far, near))


def interpreted() -> bool:
    """Whether kernels run in the interpreter here, not on a device."""
    return pick_device().type != "cuda"


def _send(work: Callable[..., Any], *given: Any) -> Any:
    if not interpreted():
        return work(*given)
    trouble = _trouble()
    if trouble:
        pytest.skip(trouble)
    return _unpacked(_child().submit(_work, _packed((work, given))).result())


@functools.cache
def _child() -> ProcessPoolExecutor:
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=spawn, initializer=_interpret)


@functools.cache
def _trouble() -> str | None:
    return _child().submit(_loop).result()


def _loop() -> str | None:
    """Return why the interpreter fails on a loop (old Triton with new numpy); None if it works."""
    from suites.triton_kernels import product

    ones = torch.ones(16, 16)
    try:
        product[(1,)](ones, ones, torch.empty(16, 16), 16, side=16, step=16)
    except Exception as error:
        return f"Triton's interpreter does not loop with numpy {np.__version__}: {error}"
    return None


def _interpret() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    np.seterr(all="ignore")  # kernels compute infinities on purpose
    _round_to_nearest(importlib.import_module("triton.runtime.interpreter"))


def _round_to_nearest(interpreter: Any) -> None:
    """Make the interpreter convert float32 as torch and the chips do: to nearest, ties to even.

    The interpreter itself truncates to bfloat16, and its float8 is wrong for NaN and where rounding
    carries into the exponent.
    """
    own = interpreter._convert_float  # noqa: SLF001  the replaced function is not public

    def convert(number: Any, source: Any, target: Any, rounding: Any) -> Any:
        if str(source) != "fp32" or str(target) not in NARROW:
            return own(number, source, target, rounding)
        dtype, size = NARROW[str(target)]
        narrow = torch.from_numpy(np.array(number, np.float32)).to(dtype)
        return narrow.view(getattr(torch, f"uint{size}")).numpy().reshape(number.shape)

    interpreter._convert_float = convert  # noqa: SLF001


def _work(task: bytes) -> bytes:
    work, given = _unpacked(task)
    return _packed(work(*given))


def _packed(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpacked(packed: bytes) -> Any:
    return torch.load(io.BytesIO(packed), weights_only=False)


def _find(function: str) -> Callable[..., Any]:
    module, _, name = function.rpartition(".")
    return getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)


def _call(function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return _find(function)(*args, **kwargs)


def _differentiate(
    function: str, upstream: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    given = [*args, *kwargs.values()]
    leaves = [one for one in given if isinstance(one, Tensor) and one.requires_grad]
    output = _find(function)(*args, **kwargs)
    return output.detach(), list(torch.autograd.grad(output, leaves, upstream))


def needs_products(dtype: torch.dtype) -> None:
    """Skip the test if the interpreter multiplies matrices of this dtype wrongly."""
    if dtype == torch.bfloat16 and interpreted():
        pytest.skip("Triton's interpreter multiplies bfloat16 matrices wrongly; needs a device")
