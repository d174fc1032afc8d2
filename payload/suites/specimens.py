"""Specimens: the variants of a kernel that its launcher can choose, to compile without a device."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torchbridge.kernels.gpu import AMD_TARGETS

NVIDIA = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")  # that kernels are compiled for
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


def tiled(name: str, kernel: Any, tiles: Any, dtype: torch.dtype, **facts: Any) -> list:
    """A matrix kernel with these tiles; `facts` are further fields, `constexprs` without blocks.

    Float32 is multiplied as it is, for which AMD's chips have a matrix instruction; NVIDIA's have
    none, since TF32 drops 13 bits. So there are two specimens of it.
    """
    constants = {**facts.pop("constexprs"), **tiles.blocks()}
    launch = {"num_warps": tiles.warps, "num_stages": tiles.stages, "dtype": dtype}

    def one(suffix: str, multiplies: bool, targets: tuple[str, ...]) -> Specimen:
        names = {"multiplies": multiplies, "targets": targets, **launch, **facts}
        return Specimen(f"{name}-{tiles}{suffix}", kernel, constexprs=constants, **names)

    if tiles.bits == 32:
        return [one("", False, NVIDIA), one("-amd", True, AMD_TARGETS)]
    return [one("", True, tiles.targets)]


def all_specimens() -> dict[str, list[Specimen]]:
    """By the module of the kernel package that launches them. Needs Triton."""
    from suites import specimens_matrices, specimens_rows

    return specimens_rows.SPECIMENS | specimens_matrices.SPECIMENS
