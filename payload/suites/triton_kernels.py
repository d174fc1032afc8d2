"""Triton kernels to compile for absent chips, and processes that compile them."""

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
    """Store y[i] = 2 x[i] for i < n."""
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def share(x, y, block: tl.constexpr):
    """Store y[i] = x[i] / sum(x); all numbers stay in registers until the sum is known."""
    i = tl.arange(0, block)
    value = tl.load(x + i)
    tl.store(y + i, value / tl.sum(value, 0))


@triton.jit
def product(a, b, c, depth, side: tl.constexpr, step: tl.constexpr):
    """Store c = a b^T as one tile: a and b [side, depth], c [side, side]."""
    row, inner = tl.arange(0, side), tl.arange(0, step)
    total = tl.zeros((side, side), tl.float32)
    for start in range(0, depth, step):
        left = tl.load(a + row[:, None] * depth + (start + inner)[None, :])
        right = tl.load(b + row[None, :] * depth + (start + inner)[:, None])
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * side + row[None, :], total.to(c.dtype.element_ty))


def crowded(block: int) -> Specimen:
    """Return a specimen of `share` with `block` numbers in one warp, to exceed its registers."""
    types = pointers("x y", torch.float32)
    return Specimen(f"share-{block}", share, types, {"block": block}, num_warps=1)


def product_of(side: int, step: int, dtype: torch.dtype = torch.float16, **how: int) -> Specimen:
    """Return a specimen of `product` with tiles of this size."""
    types = pointers("a b c", dtype) | {"depth": "i32"}
    sizes = {"side": side, "step": step}
    return Specimen(f"product-{side}x{step}", product, types, sizes, multiplies=True, **how)


def compile_of(module: str, name: str, target: str, **changes: int) -> Compiled:
    """Compile a module's specimen for a target; keep only the ptx or amdgcn of its stages."""
    found = next(one for one in SPECIMENS[module] if one.name == name)
    made = compile_for(dataclasses.replace(found, **changes), TARGETS[target])
    text = {stage: code for stage, code in made.asm.items() if stage in ("ptx", "amdgcn")}
    return dataclasses.replace(made, asm=text)


class Compilers:
    """A pool of processes that compile in parallel, with `cache` as Triton's cache folder."""

    def __init__(self, cache: str) -> None:
        self._pool = ProcessPoolExecutor(
            max(1, min(8, len(os.sched_getaffinity(0)))),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_keep,
            initargs=(cache,),
        )

    def submit(self, module: str, name: str, target: str) -> Future[Compiled]:
        """Start `compile_of` in a process of the pool."""
        return self._pool.submit(compile_of, module, name, target)

    def close(self) -> None:
        """Cancel what has not started, and wait for the rest."""
        self._pool.shutdown(cancel_futures=True)


def _keep(cache: str) -> None:
    os.environ["TRITON_CACHE_DIR"] = cache
