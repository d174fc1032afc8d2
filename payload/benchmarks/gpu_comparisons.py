"""Benchmarks of the promised speed-ups on a CUDA device, against the usual alternatives.

`BENCHMARKS` has a function for each, called with a device and whether to be small; it raises
`NotHereError`, or the library's own error, if this machine cannot run it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.cpu_comparisons import NotHereError
from benchmarks.kernels import NEAR, drawn, dtype_on
from torchbridge.bench import Arm, Benchmark, Work, identical

Make = Callable[[torch.device, bool], Benchmark]
BACKENDS = {  # of scaled_dot_product_attention, by what torch calls them
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
}


def moe(
    hidden: int, tokens: int, way: str, goal: float | None, device: torch.device, small: bool
) -> Benchmark:
    """Compare our layer with Hugging Face's Mixtral experts, including routing.

    With a `goal` ours is captured, because launches dominate; without, both run as they are.

    Raises:
        NotHereError: transformers is missing, or older than its experts in one tensor.
    """
    from benchmarks.moe_arms import Shape, hf_benchmarks, why_no_hf

    if reason := why_no_hf():
        raise NotHereError(reason)
    hidden, tokens = (64, 8) if small else (hidden, tokens)
    sizes = {"batch": tokens, "sequence": 1, "dtype": str(dtype_on(device)).split(".")[-1]}
    graph = goal is not None
    benchmarks = hf_benchmarks(Shape.gated(hidden, **sizes), device, goals={way: goal}, graph=graph)
    benchmark = next(one for one in benchmarks if one.baseline.name == f"hf_{way}")
    return benchmark if graph else replace(benchmark, name=f"{benchmark.name}/no_graph")


def gpt2(device: torch.device, small: bool) -> Benchmark:
    """Compare 50 greedy tokens of GPT-2 124M, batch 1, with Hugging Face's generate(), exactly.

    Raises:
        NotHereError: transformers is missing.
    """
    from benchmarks.gpt2 import subject
    from benchmarks.plain_generation import PROMPT, make_baseline
    from torchbridge.llm import GPT2Config

    if importlib.util.find_spec("transformers") is None:
        raise NotHereError("transformers is not installed")
    sizes = {"vocabulary": 600, "positions": 64, "layers": 2, "heads": 2, "width": 32}
    baseline = make_baseline(GPT2Config(**sizes) if small else GPT2Config(), device)
    ids = torch.tensor([PROMPT], device=device) % (600 if small else 50257)
    new = 5 if small else 50
    path, ours = subject(baseline.model, ids.shape[1] + new, compiled=not small)
    return Benchmark(
        name="gpt2/hf_generate",
        subject=Arm(path, lambda: ours(ids, new)),
        baseline=Arm(baseline.name, lambda: baseline.generate(ids, new)),
        equal=identical,
        device=device,
        params={"dtype": "float32", "new_tokens": new},
        goal=3.0,
        work=Work(bytes=new * sum(p.nbytes for p in baseline.model.parameters())),
    )


def fp8_linear(size: int, device: torch.device, small: bool) -> Benchmark:
    """Compare a float8 layer, including quantisation, with bfloat16, both compiled."""
    from benchmarks.fp8 import fp8_arms

    return fp8_arms((64,) * 3 if small else (size,) * 3, device, compiled=not small)


def attention(backend: str, causal: bool, device: torch.device, small: bool) -> Benchmark:
    """Compare our fastest exact path with one back-end of SDPA."""
    from torchbridge.attention import FULL, Causal, attend

    batch, heads, length, width = (1, 2, 64, 16) if small else (4, 16, 4096, 128)
    q, k, v = drawn(device, 3, batch, heads, length, width)
    pattern = Causal() if causal else FULL
    _, path = attend(q, k, v, pattern=pattern)
    attend(q, k, v, pattern=pattern, path=f"sdpa_{backend}")  # raises where it is refused
    kind = SDPBackend.__members__[BACKENDS[backend]]

    def library() -> Tensor:
        with sdpa_kernel(kind):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    flops = 4 * batch * heads * length**2 * width * (0.5 if causal else 1.0)
    return Benchmark(
        name=f"attention/{'causal' if causal else 'full'}/{backend}",
        subject=Arm(f"attend, {path.name}", lambda: attend(q, k, v, pattern=pattern)[0]),
        baseline=Arm(f"sdpa_{backend}", library),
        equal=NEAR,
        device=device,
        params={"dtype": str(q.dtype).removeprefix("torch."), "sequence": length, "batch": batch},
        goal=0.99 if path.backend == backend else 1.0,  # the very same kernel is no faster
        work=Work(flops, 4 * q.nbytes, number="bf16"),
    )


BENCHMARKS: dict[str, Make] = {
    **{
        f"moe/{hidden}/{way}": partial(moe, hidden, 4096, way.split("/")[0], goal)
        for hidden in (512, 1024)
        for way, goal in (
            ("grouped_mm", 1.0),
            ("grouped_mm/no_graph", None),
            ("eager", 2.0),
            ("eager/no_graph", None),
        )
    },
    "moe/decode": partial(moe, 1024, 64, "eager", 2.0),
    "gpt2": gpt2,
    "fp8/4096": partial(fp8_linear, 4096),
    "fp8/8192": partial(fp8_linear, 8192),
    **{
        f"attention/{'causal' if causal else 'full'}/{backend}": partial(attention, backend, causal)
        for causal in (False, True)
        for backend in BACKENDS
    },
}
