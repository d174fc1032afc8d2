"""Kernels to compile for chips that are not here, and the processes that do so. Needs triton."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor

import torch
import triton
import triton.language as tl

from suites.kernel_chips import TARGETS, Compiled, compile_for
from suites.specimens import SPECIMENS, Specimen, pointers


@triton.jit
def scale(x, y, n, block: tl.constexpr):
    """y[i] = 2 x[i] for i < n"""
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def share(x, y, block: tl.constexpr):
    """y[i] = x[i] / sum(x): all numbers are held until the last was read."""
    i = tl.arange(0, block)
    value = tl.load(x + i)
    tl.store(y + i, value / tl.sum(value, 0))


@triton.jit
def product(a, b, c, depth, side: tl.constexpr, step: tl.constexpr):
    """c = a b^T, one tile: a and b [side, depth], c [side, side]"""
    row, inner = tl.arange(0, side), tl.arange(0, step)
    total = tl.zeros((side, side), tl.float32)
    for start in range(0, depth, step):
        left = tl.load(a + row[:, None] * depth + (start + inner)[None, :])
        right = tl.load(b + row[None, :] * depth + (start + inner)[:, None])
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * side + row[None, :], total.to(c.dtype.element_ty))


def crowded(block: int) -> Specimen:
    """`share` of more numbers than one warp has registers for."""
    types = pointers("x y", torch.float32)
    return Specimen(f"share-{block}", share, types, {"block": block}, num_warps=1)


def product_of(side: int, step: int, dtype: torch.dtype = torch.float16, **how: int) -> Specimen:
    """`product` of a tile of this size."""
    types = pointers("a b c", dtype) | {"depth": "i32"}
    sizes = {"side": side, "step": step}
    return Specimen(f"product-{side}x{step}", product, types, sizes, multiplies=True, **how)


def compile_of(module: str, name: str, target: str, **changes: int) -> Compiled:
    """A module's specimen for a target; of the stages only the text that has its instructions."""
    found = next(one for one in SPECIMENS[module] if one.name == name)
    made = compile_for(dataclasses.replace(found, **changes), TARGETS[target])
    text = {stage: code for stage, code in made.asm.items() if stage in ("ptx", "amdgcn")}
    return dataclasses.replace(made, asm=text)


class Compilers:
    """Processes that compile side by side, for the files in `cache`."""

    def __init__(self, cache: str) -> None:
        self._pool = ProcessPoolExecutor(
            max(1, min(8, len(os.sched_getaffinity(0)))),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_keep,
            initargs=(cache,),
        )

    def submit(self, module: str, name: str, target: str) -> Future[Compiled]:
        """`compile_of` in one of them."""
        return self._pool.submit(compile_of, module, name, target)

    def close(self) -> None:
        """What has not begun is not compiled."""
        self._pool.shutdown(cancel_futures=True)


def _keep(cache: str) -> None:
    os.environ["TRITON_CACHE_DIR"] = cache
