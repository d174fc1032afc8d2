"""Specimens: the variants of a kernel that its launcher can choose, to compile without a device."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e4m3fnuz: "fp8e4b8",
    torch.int32: "i32",
    torch.int64: "i64",
}


@dataclass(frozen=True, slots=True)
class Specimen:
    """One variant of a kernel: what Triton needs to compile it, and what must come of it.

    `signature` has the type of every argument that is no constant ("*bf16", "i32", "fp32"), in any
    order. All of them are taken to be divisible by 16, as the launcher finds them with the widths
    of real models, but those in `odd`: at other widths it may spill. `operation`, `dtype`,
    `gradient` and `variant` are what the registry is asked with; `targets` are those that the
    launcher's table has it for, all if empty.
    """

    name: str  # unique in its module
    kernel: Any  # a triton.jit function
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 2
    multiplies: bool = False  # must use the target's matrix instruction
    dtype: torch.dtype = torch.float32  # of its input
    needs: tuple[int, int] | None = None  # compute capability on NVIDIA, at least
    operation: str = ""
    gradient: bool = False
    variant: str = ""
    targets: tuple[str, ...] = ()
    odd: frozenset[str] = frozenset()
    options: Mapping[str, Any] = field(default_factory=dict)  # further ones of the compiler

    def __str__(self) -> str:
        return self.name


def pointer(dtype: torch.dtype) -> str:
    """Triton's name of a pointer to numbers of `dtype`: "*bf16"."""
    return f"*{TYPES[dtype]}"


def arguments(kernel: Any) -> tuple[str, ...]:
    """The names of a kernel's arguments, compiled or interpreted."""
    return tuple(inspect.signature(kernel.fn).parameters)


def launching(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Within it kernels run on the device of `x`: Triton takes the current one, whatever it gets.

    On the CPU, where only Triton's interpreter gets to, it does nothing.
    """
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()
