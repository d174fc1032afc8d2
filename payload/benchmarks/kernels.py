"""Benchmarks of our kernels against torch.compile of the same formula.

The page of `benchmarks.gpu` lists the kernels to keep, which are the faster ones. On the CPU the
library's operations replace the kernels, to test the benchmarks. `BENCHMARKS` has a function for
each, called with a device and whether to be small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge import kernels as ours
from torchbridge.bench import Arm, Benchmark, Equality, Work, close_to
from torchbridge.fp8 import FP8Dtype, FP8QuantizedTensor, Granularity

Make = Callable[[torch.device, bool], Benchmark]
NEAR = close_to(2e-2)  # bfloat16's rounding, of the largest number


def path_on(device: torch.device) -> str:
    """Return the path: our kernel by name, or on the CPU the library's."""
    return "auto" if device.type == "cpu" else "triton"


def dtype_on(device: torch.device) -> torch.dtype:
    """Return bfloat16, or float32 on the CPU."""
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def drawn(device: torch.device, *shape: int, scale: float = 1.0) -> Tensor:
    """Draw normal numbers in the device's dtype, different at each call."""
    return (scale * torch.randn(shape, device=device)).to(dtype_on(device))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the function as one graph of fixed shapes."""
    return torch.compile(function, fullgraph=True, dynamic=False)


def against_compiled(
    name: str,
    kernel: Callable[[], object],
    formula: Callable[..., object],
    inputs: tuple[Tensor, ...],
    **settings: Any,
) -> Benchmark:
    """Compare a kernel with the compiled formula of `inputs`, with cold caches."""
    x = inputs[0]
    params = {"dtype": str(x.dtype).removeprefix("torch."), "shape": "x".join(map(str, x.shape))}
    fused = compiled(formula)
    return Benchmark(
        name=f"kernels/{name}/compile",
        subject=Arm(path_on(x.device), kernel),
        baseline=Arm("torch.compile", lambda: fused(*inputs), compiled=True),
        device=x.device,
        params=params,
        goal=1.0,
        cold=True,
        **{"equal": NEAR, **settings},
    )


def quantise_rows(device: torch.device, small: bool) -> Benchmark:
    """Compare float8 quantisation of rows with torch.compile of the library's operations."""
    x = drawn(device, *((32, 256) if small else (8192, 8192)))

    def formula(x: Tensor) -> tuple[Tensor, Tensor]:
        quantised = FP8QuantizedTensor.from_tensor(x, FP8Dtype.E4M3, granularity=Granularity.ROW)
        return quantised.data, quantised.scale

    def kernel() -> tuple[Tensor, Tensor]:
        quantised = ours.quantise_rows(x, path=path_on(device))
        return quantised.data, quantised.scale

    def equal(mine: Any, theirs: Any) -> Equality:
        """Check that scales are equal, and numbers equal or rounded to neighbours."""
        scales = close_to(1e-3)(mine[1], theirs[1])
        apart = int((_steps(mine[0]) - _steps(theirs[0])).abs().max())
        return Equality(apart <= 1, apart, 1, "steps") if scales.equal else scales

    work = Work(bytes=x.nbytes + x.numel())
    return against_compiled("quantise_rows", kernel, formula, (x,), equal=equal, work=work)


def _steps(numbers: Tensor) -> Tensor:
    """Map float8 numbers to their order, so that neighbours differ by 1."""
    code = numbers.view(torch.uint8).short()
    return torch.where(code >= 128, 128 - code, code)


def linear_cross_entropy(
    tokens: int, memory_goal: float | None, device: torch.device, small: bool
) -> Benchmark:
    """Compare loss and both gradients at 128k classes with torch.compile."""
    tokens, width, classes = (32, 64, 1000) if small else (tokens, 2048, 131_072)
    x = drawn(device, tokens, width).requires_grad_()
    weight = drawn(device, classes, width, scale=width**-0.5).requires_grad_()
    target = torch.randint(0, classes, (tokens,), device=device)

    def formula(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(x, weight).float(), target)

    fused = compiled(formula)

    def gradients(loss: Tensor) -> tuple[Tensor, ...]:
        return (loss.detach(), *torch.autograd.grad(loss, (x, weight)))

    @torch.enable_grad()
    def kernel() -> tuple[Tensor, ...]:
        return gradients(ours.linear_cross_entropy(x, weight, target, path=path_on(device)))

    @torch.enable_grad()
    def library() -> tuple[Tensor, ...]:
        return gradients(fused(x, weight, target))

    benchmark = against_compiled("linear_cross_entropy", kernel, formula, (x, weight, target))
    baseline = Arm("torch.compile", library, compiled=True)
    work = Work(flops=6 * tokens * width * classes, number="bf16")
    settings = {"goal": 1.5, "memory_goal": memory_goal, "work": work, "cold": False}
    return replace(benchmark, baseline=baseline, **settings)


def moe_experts(device: torch.device, small: bool) -> Benchmark:
    """Compare 64 tokens, 8 experts, top-2 with torch.compile of all experts for all tokens."""
    tokens, width, experts = (8, 64, 4) if small else (64, 1024, 8)
    x = drawn(device, tokens, width)
    up = drawn(device, experts, 4 * width, width, scale=width**-0.5)
    down = drawn(device, experts, width, 4 * width, scale=0.5 * width**-0.5)
    chosen = torch.rand(tokens, experts, device=device).topk(2).indices
    weights = drawn(device, tokens, 2).abs()

    def formula(x: Tensor, chosen: Tensor, weights: Tensor, up: Tensor, down: Tensor) -> Tensor:
        rows = torch.relu(torch.einsum("td,ehd->eth", x, up))
        shares = x.new_zeros(tokens, experts).scatter(1, chosen, weights)
        return torch.einsum("eth,edh,te->td", rows, down, shares)

    inputs = (x, chosen, weights, up, down)
    kernel = partial(ours.moe_experts, *inputs, path=path_on(device))
    work = Work(8 * tokens * 2 * width * width * 2, up.nbytes + down.nbytes, number="bf16")
    return against_compiled("moe_experts", kernel, formula, inputs, work=work)


BENCHMARKS: dict[str, Make] = {
    "quantise_rows/compile": quantise_rows,
    "linear_cross_entropy/compile": partial(linear_cross_entropy, 16_384, 0.3),
    "linear_cross_entropy/compile/4096": partial(linear_cross_entropy, 4096, None),
    "moe_experts/compile": moe_experts,
}
