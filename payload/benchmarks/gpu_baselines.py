"""The strongest baselines: what a user who knows the libraries would use instead of torchbridge.

Each row is a benchmark of `benchmarks.gpu`; missing packages are refused by name. Baselines get the
same means: a CUDA graph or the compiler, bfloat16, a static cache.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import gpu_comparisons, moe_arms
from benchmarks.cpu_comparisons import NotHereError
from benchmarks.gpu_comparisons import Make
from benchmarks.kernels import NEAR, drawn, dtype_on, path_on
from torchbridge.bench import Arm, Benchmark, Equality, Work

SMALL_GPT2 = {"vocabulary": 600, "positions": 64, "layers": 2, "heads": 2, "width": 32}
TEXT_TOKENS = 64  # that narrow models are told


def package(name: str) -> Any:
    """Import a module of an optional library.

    Raises:
        NotHereError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:  # what imports a GPU's libraries fails in its own ways
        raise NotHereError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def needs_cuda(name: str, device: torch.device) -> None:
    """Raise NotHereError unless `device` is CUDA, which the library's kernels need."""
    if device.type != "cuda":
        raise NotHereError(f"{name} has kernels for CUDA, not for {device.type}")


def as_graph(work: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """Capture `work` as a CUDA graph; a call replays it and copies the outputs. Eager on the CPU.

    Raises:
        NotHereError: it cannot be recorded.
    """
    if device.type != "cuda":
        return work
    try:
        return moe_arms.recorded(work, device)
    except RuntimeError as error:
        raise NotHereError(f"the baseline cannot be recorded: {error}") from error


def as_compiled(work: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """Compile `work`, on CUDA with torch's CUDA graphs."""
    if device.type != "cuda":
        return torch.compile(work, backend="aot_eager", dynamic=False)
    return torch.compile(work, mode="reduce-overhead", dynamic=False)


HELPED = {"graph": as_graph, "compile": as_compiled}


def moe(
    hidden: int, tokens: int, opponent: str, how: str, device: torch.device, small: bool
) -> Benchmark:
    """Compare our captured layer with experts of torch, transformers or vLLM, also accelerated."""
    hidden, tokens = (64, 8) if small else (hidden, tokens)
    sizes = {"batch": tokens, "sequence": 1, "dtype": str(dtype_on(device)).split(".")[-1]}
    shape = moe_arms.Shape.gated(hidden, **sizes)
    layer = moe_arms.make_layer(shape, device, moe_arms.SwiGLUMoE)
    x = moe_arms.make_tokens(shape, device)
    work = HELPED[how](opponents(opponent, layer, x), device)
    baseline = Arm(f"{opponent}, {how}", work, compiled=how == "compile")
    replay = moe_arms.captured(layer, x)
    subject = Arm("layer as a graph", replay) if replay else None
    benchmark = moe_arms.layer_benchmark(layer, x, shape, baseline, subject=subject, goal=1.0)
    return replace(benchmark, name=f"moe/{hidden}/{tokens}/{opponent}/{how}")


def opponents(name: str, layer: Any, x: Tensor) -> Callable[[], Tensor]:
    """Compute the layer's experts by another library, with its weights."""
    if name == "torch_grouped_mm":
        return partial(moe_arms.plain_grouped_mm, layer, x)
    if name == "vllm":
        fused = package("vllm.model_executor.layers.fused_moe").fused_experts
        return partial(_vllm, fused, layer, x)
    if name == "unsloth":
        needs_cuda("Unsloth", x.device)
        return partial(_unsloth, package("unsloth.kernels.moe.grouped_gemm.interface"), layer, x)
    if reason := moe_arms.why_no_hf():
        raise NotHereError(reason)
    return moe_arms.hf_arms(layer, x)[name.removeprefix("hf_")]


def _unsloth(library: Any, layer: Any, x: Tensor) -> Tensor:
    """Compute by Unsloth's grouped product, which gathers and restores the rows itself."""
    routing, bank = layer.router(x), layer.experts
    weights, chosen = routing["expert_weights"], routing["expert_indices"].flatten()
    how = {
        "m_sizes": (chosen[:, None] == torch.arange(len(bank), device=x.device)).sum(dim=0),
        "gather_indices": chosen.argsort(stable=True),
        "topk": weights.shape[1],
        "autotune": True,
    }
    hidden = library.grouped_gemm(x, bank.up, permute_x=True, is_first_gemm=True, **how)
    gate, value = hidden.chunk(2, dim=-1)
    hidden = F.silu(gate) * value
    rows = library.grouped_gemm(hidden, bank.down, permute_y=True, is_first_gemm=False, **how)
    return (rows.unflatten(0, weights.shape) * weights.to(rows.dtype).unsqueeze(-1)).sum(dim=1)


def _vllm(fused: Callable[..., Tensor], layer: Any, x: Tensor) -> Tensor:
    routing = layer.router(x)
    weights, experts = routing["expert_weights"].float(), routing["expert_indices"].int()
    return fused(x, layer.experts.up, layer.experts.down, weights, experts)


def moe_training(opponent: str, device: torch.device, small: bool) -> Benchmark:
    """Compare forward and all gradients for 4,096 tokens of width 1,024."""
    tokens = 64 if small else 4096
    sizes = {"batch": tokens, "sequence": 1, "dtype": str(dtype_on(device)).split(".")[-1]}
    shape = moe_arms.Shape.gated(64 if small else 1024, **sizes)
    layer = moe_arms.make_layer(shape, device, moe_arms.SwiGLUMoE)
    x = moe_arms.make_tokens(shape, device).requires_grad_()
    upstream = torch.randn_like(x)
    if opponent == "torch_grouped_mm":
        theirs, weights = partial(moe_arms.plain_grouped_mm, layer, x), layer.experts.parameters()
    else:
        if reason := moe_arms.why_no_hf():
            raise NotHereError(reason)
        theirs, weights = moe_arms.hf_trained(layer, opponent.removeprefix("hf_"), x)
    arms = {"layer": (partial(layer, x), layer.experts.parameters()), opponent: (theirs, weights)}
    made = [
        Arm(name, _slopes(work, [x, *params], upstream)) for name, (work, params) in arms.items()
    ]
    return Benchmark(
        name=f"training/moe/{opponent}",
        subject=made[0],
        baseline=made[1],
        equal=NEAR,
        device=device,
        params=sizes | {"hidden": shape.hidden, "path": layer.path_taken or ""},
        goal=1.0,
        work=Work(flops=18.0 * tokens * 2 * shape.hidden * shape.expert_hidden, number="bf16"),
    )


def _slopes(
    work: Callable[[], Tensor], leaves: list[Tensor], upstream: Tensor
) -> Callable[[], tuple[Tensor, ...]]:
    @torch.enable_grad()
    def slopes() -> tuple[Tensor, ...]:
        output = work()
        return (output.detach(), *torch.autograd.grad(output, leaves, upstream))

    return slopes


def decode(opponent: str, device: torch.device, small: bool, *, compiled: bool = True) -> Benchmark:
    """Compare 50 greedy tokens of GPT-2 124M in bfloat16, batch 1, with other decodes.

    Greedy texts of random weights diverge at near-ties, so models are compared on one text.
    """
    from benchmarks import gpt2 as own
    from benchmarks.plain_generation import PROMPT, make_baseline
    from torchbridge.llm import GPT2Config

    package("transformers")
    baseline = make_baseline(GPT2Config(**SMALL_GPT2) if small else GPT2Config(), device)
    model = baseline.model.to(torch.bfloat16)
    ids = torch.tensor([PROMPT], device=device) % (600 if small else 50257)
    new = 5 if small else 50
    compiled &= not small
    name, other, rival = rivals(opponent, model, baseline, ids.shape[1] + new, compiled)
    path, ours = own.generation(model, ids.shape[1] + new, compiled)
    text = torch.randint(0, model.config.vocabulary, (1, TEXT_TOKENS - new), device=device)
    return Benchmark(
        name=f"decode/bf16/{opponent}",
        subject=Arm(f"bfloat16, {path}", partial(ours, ids, new)),
        baseline=Arm(name, partial(other, ids, new)),
        equal=lambda *_: agreeing(model, rival, text, "int8_bfloat16"),
        device=device,
        params={"dtype": "bfloat16", "new_tokens": new},
        goal=1.0,
        work=Work(bytes=new * sum(p.nbytes for p in model.parameters())),
    )


def agreeing(ours: Any, theirs: Any, text: Tensor, limits: str) -> Equality:
    """Check that both models agree on every token of a text within `limits`."""
    from benchmarks.gpt2 import LIMITS
    from torchbridge.llm import teacher_forced

    found, limit = teacher_forced(ours, theirs, text), LIMITS[limits]
    return Equality(found.kl <= limit.kl, found.kl, limit.kl, "nats")


def rivals(
    opponent: str, model: Any, baseline: Any, capacity: int, compiled: bool
) -> tuple[str, Callable[..., Tensor], Any]:
    """Return the baseline's name, its generation, and its model as ids -> logits."""
    from benchmarks import gpt2 as own
    from torchbridge.llm import CompiledDecode, KVCache, generate, quantise_int8

    if opponent == "hf_static":
        theirs = baseline.generate.args[0].to(torch.bfloat16)
        more = {"cache_implementation": "static"}
        return "hf_generate, static cache", partial(_hf_static, theirs, more), _logits(theirs)
    if opponent == "ours_int8":
        narrow = quantise_int8(model)
        path, generation = own.generation(narrow, capacity, compiled)
        return f"our int8, {path}", generation, narrow
    if opponent == "compile":  # as gpt-fast has it: a static cache and the whole step compiled
        cache = KVCache.for_model(model, 1, capacity)
        step = CompiledDecode(model, "inductor" if compiled else "eager")
        step.compile(cache)
        return step.path_taken, partial(generate, model, cache=cache, decode=step), model
    narrow = _torchao(model, opponent)
    path, generation = own.generation(narrow, capacity, compiled)
    return f"{opponent} in our GPT-2, {path}", generation, narrow


def _logits(theirs: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda ids: theirs(ids).logits


def _hf_static(model: nn.Module, more: dict[str, Any], ids: Tensor, new: int) -> Tensor:
    settings = {"do_sample": False, "attention_mask": torch.ones_like(ids), **more}
    return model.generate(ids, max_new_tokens=new, **settings)


def _torchao(model: nn.Module, kind: str) -> nn.Module:
    """Return a copy with linear layers quantised by torchao; the token table is unchanged."""
    library = package("torchao.quantization")
    configs = {
        "torchao_int8": library.Int8WeightOnlyConfig,
        "torchao_int4": partial(library.Int4WeightOnlyConfig, group_size=64),
    }
    narrow = copy.deepcopy(model)
    try:
        library.quantize_(narrow, configs[kind]())
    except Exception as error:  # of a missing extension, each version raises its own
        raise NotHereError(f"{kind}: {type(error).__name__}: {error}") from error
    return narrow


def cross_entropy(
    opponent: str,
    device: torch.device,
    small: bool,
    *,
    tokens: int = 16_384,
    width: int = 2048,
    classes: int = 131_072,
) -> Benchmark:
    """Compare loss and both gradients at 128k classes with torch or Liger."""
    from torchbridge import kernels as ours

    if small:
        tokens, width, classes = 32, 64, 1000
    x = drawn(device, tokens, width).requires_grad_()
    weight = drawn(device, classes, width, scale=width**-0.5).requires_grad_()
    target = torch.randint(0, classes, (tokens,), device=device)
    if opponent == "liger":
        needs_cuda("Liger", device)
    theirs = losses(opponent)

    def both(loss: Callable[[], Tensor]) -> Callable[[], tuple[Tensor, ...]]:
        @torch.enable_grad()
        def work() -> tuple[Tensor, ...]:
            value = loss()
            return (value.detach(), *torch.autograd.grad(value, (x, weight)))

        return work

    mine = partial(ours.linear_cross_entropy, x, weight, target, path=path_on(device))
    return Benchmark(
        name=f"kernels/linear_cross_entropy/{opponent}",
        subject=Arm(path_on(device), both(mine)),
        baseline=Arm(opponent, both(partial(theirs, x, weight, target))),
        equal=NEAR,
        device=device,
        params={"tokens": tokens, "width": width, "classes": classes},
        goal=1.0,
        memory_goal=1.0,
        work=Work(flops=6 * tokens * width * classes, number="bf16"),
    )


def losses(opponent: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return another library's mean loss of x [T, d], weight [V, d], target [T].

    Raises:
        NotHereError: it is not here.
    """
    if opponent == "liger":
        library = package("liger_kernel.transformers")
        fused = library.LigerFusedLinearCrossEntropyLoss()
        return lambda x, weight, target: fused(weight, x, target)
    if opponent == "plain":
        return lambda x, weight, target: F.cross_entropy(F.linear(x, weight).float(), target)
    if not hasattr(F, "linear_cross_entropy"):
        raise NotHereError(f"torch {torch.__version__} has no linear_cross_entropy")
    options = torch.nn.LinearCrossEntropyOptions()
    return partial(F.linear_cross_entropy, options=options)


def attention(kind: str, opponent: str, device: torch.device, small: bool) -> Benchmark:
    """Compare our path for a window, ALiBi or packed documents with a dense mask or varlen."""
    from torchbridge.attention import attend

    batch, heads, length, width = (1, 2, 64, 16) if small else (2, 16, 8192, 128)
    q, k, v = drawn(device, 3, batch, heads, length, width)
    pattern, mask, ends = pattern_of(kind, heads, length, device, small)
    if opponent == "dense_mask":
        work = partial(F.scaled_dot_product_attention, q, k, v, attn_mask=mask.to(q.dtype))
    else:
        needs_cuda("varlen_attn", device)
        varlen = package("torch.nn.attention.varlen").varlen_attn
        work = partial(_varlen, varlen, q, k, v, ends if kind == "documents" else None)
    _, path = attend(q, k, v, pattern=pattern)
    return Benchmark(
        name=f"attention/{kind}/{opponent}",
        subject=Arm(f"attend, {path.name}", lambda: attend(q, k, v, pattern=pattern)[0]),
        baseline=Arm(opponent, work),
        equal=NEAR,
        device=device,
        params={"sequence": length, "batch": batch, "heads": heads},
        goal=1.0,
    )


def pattern_of(
    kind: str, heads: int, length: int, device: torch.device, small: bool
) -> tuple[Any, Tensor, Tensor]:
    """Return our pattern, the scores' additive mask, and the ends of documents."""
    from torchbridge import attention as ours

    window, parts = (16, 4) if small else (1024, 8)
    place = torch.arange(length, device=device)
    distance = place[:, None] - place[None, :]
    ids = place // (length // parts)
    ends = torch.arange(0, length + 1, length // parts, device=device, dtype=torch.int32)
    if kind == "alibi":
        slopes = torch.tensor(ours.alibi_slopes(heads), device=device)
        return ours.ALiBi(heads), -slopes[:, None, None] * distance.abs(), ends
    if kind == "window":
        seen = (distance >= 0) & (distance < window)
        pattern = ours.CausalSlidingWindow(window)
    else:
        seen, pattern = ids[:, None] == ids[None, :], ours.DocumentMasking(ids)
    return pattern, torch.zeros(length, length, device=device).masked_fill(~seen, -torch.inf), ends


def _varlen(varlen: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, ends: Tensor) -> Tensor:
    """Attend within documents packed as [tokens, heads, width], one sample after the other."""
    batch, _, length, _ = q.shape
    packed = [one.transpose(1, 2).flatten(0, 1) for one in (q, k, v)]
    starts = torch.arange(batch, device=q.device, dtype=torch.int32)[:, None] * length
    places = torch.cat([(starts + ends[:-1]).flatten(), starts.new_tensor([batch * length])])
    longest = length // (len(ends) - 1)
    output = varlen(*packed, places, places, longest, longest)
    return output.unflatten(0, (batch, length)).transpose(1, 2)


def flash(version: str, causal: bool, device: torch.device, small: bool) -> Benchmark:
    """Compare our fastest exact path with the FlashAttention that torch's switch enables in SDPA.

    The switch stays on in this process, which runs only this benchmark.
    """
    needs_cuda(version, device)
    switch = getattr(torch.nn.attention, "activate_flash_attention_impl", None)
    if switch is None:
        raise NotHereError(f"torch {torch.__version__} has no activate_flash_attention_impl")
    try:
        switch(version)
    except Exception as error:  # of what is not installed, or not for this chip
        raise NotHereError(f"{version}: {type(error).__name__}: {error}") from error
    benchmark = gpu_comparisons.attention("flash", causal, device, small)
    name = benchmark.name.replace("flash", version)
    return replace(
        benchmark, name=name, baseline=replace(benchmark.baseline, name=f"SDPA, {version}")
    )


def fp8(granularity: str, device: torch.device, small: bool) -> Benchmark:
    """Compare a float8 layer with row or block scales, including quantisation, with bfloat16."""
    from benchmarks.fp8 import fp8_arms

    size = (256,) * 3 if small else (4096,) * 3
    return fp8_arms(size, device, granularity=granularity, compiled=not small)


def fp8_torchao(device: torch.device, small: bool) -> Benchmark:
    """Compare a float8 layer with row scales with torchao's, same weights, both compiled."""
    from benchmarks.fp8 import PRODUCT_LIMIT, Layers, close_within_fp8

    needs_cuda("torchao's float8", device)
    library = package("torchao.quantization")
    inner, outer, batch = size = (256,) * 3 if small else (4096,) * 3
    layers = Layers.create(size, torch.bfloat16, "row", device)
    theirs = nn.Sequential(copy.deepcopy(layers.plain))
    per_row = library.PerRow()
    library.quantize_(theirs, library.Float8DynamicActivationFloat8WeightConfig(per_row))
    ours, other = (torch.compile(one, fullgraph=True) for one in (layers.float8, theirs))
    x = torch.randn(batch, inner, device=device, dtype=torch.bfloat16)

    def equal(mine: Tensor, expected: Tensor) -> Equality:
        """Check agreement within the rounding of both e4m3 products."""
        found = close_within_fp8(mine, expected)
        return replace(found, equal=found.error <= 2 * PRODUCT_LIMIT, tolerance=2 * PRODUCT_LIMIT)

    return Benchmark(
        name="fp8/torchao",
        subject=Arm("float8, a scale per row", lambda: ours(x), compiled=True),
        baseline=Arm("torchao float8", lambda: other(x), compiled=True),
        equal=equal,
        device=device,
        params={"in": inner, "out": outer, "batch": batch},
        goal=1.0,
        work=Work(flops=2.0 * inner * outer * batch, number="fp8"),
    )


BENCHMARKS: dict[str, Make] = {
    **{
        f"moe/{hidden}/{opponent}/{how}": partial(moe, hidden, 4096, opponent, how)
        for hidden in (512, 1024)
        for opponent, how in (
            ("hf_grouped_mm", "graph"),
            ("hf_grouped_mm", "compile"),
            ("torch_grouped_mm", "graph"),
            ("unsloth", "graph"),
            ("vllm", "graph"),
        )
    },
    **{
        f"moe/decode/{opponent}/{how}": partial(moe, 1024, 64, opponent, how)
        for opponent, how in (
            ("hf_grouped_mm", "graph"),
            ("hf_grouped_mm", "compile"),
            ("torch_grouped_mm", "graph"),
            ("unsloth", "graph"),
            ("vllm", "graph"),
        )
    },
    **{
        f"training/moe/{opponent}": partial(moe_training, opponent)
        for opponent in ("hf_grouped_mm", "hf_eager", "torch_grouped_mm")
    },
    **{
        f"decode/bf16/{opponent}": partial(decode, opponent)
        for opponent in ("hf_static", "compile", "ours_int8", "torchao_int8", "torchao_int4")
    },
    **{
        f"kernels/linear_cross_entropy/{opponent}": partial(cross_entropy, opponent)
        for opponent in ("torch", "liger", "plain")
    },
    **{
        f"attention/{kind}/{opponent}": partial(attention, kind, opponent)
        for kind, opponent in (
            ("window", "dense_mask"),
            ("alibi", "dense_mask"),
            ("documents", "dense_mask"),
            ("documents", "varlen"),
        )
    },
    **{
        f"attention/{'causal' if causal else 'full'}/{version}": partial(flash, version, causal)
        for causal in (False, True)
        for version in ("FA3", "FA4")
    },
    "fp8/row": partial(fp8, "row"),
    "fp8/block": partial(fp8, "block"),
    "fp8/torchao": fp8_torchao,
}
