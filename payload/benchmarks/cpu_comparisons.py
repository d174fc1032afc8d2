"""The benchmarks on the CPU whose speed-ups `cpu_speedup_thresholds` checks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from torchbridge.bench import Arm, Benchmark, Equality, close_to, identical

TOKENS = {512: (8, 128), 1024: (4, 128)}  # batch and sequence by hidden size
PROMPT_TOKENS, NEW_TOKENS = 32, 50


class NotHereError(Exception):
    """This machine lacks what a benchmark needs; the message says what."""


def moe_benchmark(hidden: int, baseline: str, device: torch.device) -> Benchmark:
    """Compare the MoE layer (8 experts, top-2, float32) with all experts or a loop over masks."""
    from benchmarks.moe_arms import Shape, own_benchmarks

    batch, sequence = TOKENS[hidden]
    shape = Shape(hidden, 4 * hidden, batch=batch, sequence=sequence)
    benchmarks = {benchmark.baseline.name: benchmark for benchmark in own_benchmarks(shape, device)}
    return replace(benchmarks[baseline], name=f"thresholds/moe/{hidden}/{baseline}", threshold=None)


def strong_moe_benchmark(hidden: int, opponent: str, device: torch.device) -> Benchmark:
    """Compare the gated layer with transformers' experts, or torch's grouped product.

    Raises:
        NotHereError: the library is missing.
    """
    from benchmarks import gpu_baselines, moe_arms

    batch, sequence = TOKENS[hidden]
    shape = moe_arms.Shape.gated(hidden, batch=batch, sequence=sequence)
    layer = moe_arms.make_layer(shape, device, moe_arms.SwiGLUMoE)
    x = moe_arms.make_tokens(shape, device)
    baseline = Arm(opponent, gpu_baselines.opponents(opponent, layer, x))
    benchmark = moe_arms.layer_benchmark(layer, x, shape, baseline)
    return replace(benchmark, name=f"thresholds/strong/moe/{hidden}/{opponent}")


def loss_benchmark(opponent: str, device: torch.device) -> Benchmark:
    """Compare loss and both gradients: 1,024 tokens of width 512, 32,000 classes, float32."""
    from benchmarks import gpu_baselines

    sizes = {"tokens": 1024, "width": 512, "classes": 32_000}
    return gpu_baselines.cross_entropy(opponent, device, False, **sizes)


def generate_benchmark(device: torch.device) -> Benchmark:
    """Compare generation of `gpt2_benchmark` with transformers' generate()."""
    benchmark = gpt2_benchmark(device, "hf_generate")
    return replace(benchmark, name="thresholds/strong/gpt2/hf_generate")


def narrow_benchmark(opponent: str, device: torch.device) -> Benchmark:
    """Compare bfloat16 decoding of GPT-2 124M with int8 weights."""
    from benchmarks import gpu_baselines

    return gpu_baselines.decode(opponent, device, False, compiled=False)


def gpt2_benchmark(device: torch.device, opponent: str = "hf_kv_loop") -> Benchmark:
    """Compare a static cache with transformers' cache: GPT-2 124M, batch 1, prompt 32, 50 tokens.

    Raises:
        NotHereError: transformers is missing.
    """
    if importlib.util.find_spec("transformers") is None:
        raise NotHereError("transformers is not installed")
    from benchmarks.gpt2 import subject
    from benchmarks.plain_generation import PROMPT, make_baseline
    from torchbridge.llm import GPT2Config

    baseline = make_baseline(GPT2Config(), device)
    ids = torch.tensor([(PROMPT * PROMPT_TOKENS)[:PROMPT_TOKENS]], device=device)
    theirs = {**baseline.loops, baseline.name: baseline.generate}[opponent]
    path, ours = subject(baseline.model, PROMPT_TOKENS + NEW_TOKENS, compiled=False)
    return Benchmark(
        name="thresholds/gpt2",
        subject=Arm(path, lambda: ours(ids, NEW_TOKENS)),
        baseline=Arm(opponent, lambda: theirs(ids, NEW_TOKENS)),
        equal=identical,
        device=device,
        params={"dtype": "float32", "prompt": PROMPT_TOKENS, "new_tokens": NEW_TOKENS},
    )


def training_benchmark(device: torch.device) -> Benchmark:
    """Compare the default training loop of UC4 with a plain one, from the same weights and seed.

    The losses must agree within the rounding of the dtype that the loop chooses.
    """
    from benchmarks import plain_training, training
    from torchbridge.hardware import probe
    from torchbridge.train import choose_precision

    dtype = choose_precision(probe(device)).dtype or torch.float32
    works = training.works(device)

    def equal(losses: Any, expected: Any) -> Equality:
        apart = plain_training.apart(losses, expected, training.EPOCHS)
        limit = plain_training.TOLERANCE[dtype]
        return Equality(apart <= limit, apart, limit, unit="loss")

    return Benchmark(
        name="thresholds/training",
        subject=Arm(f"auto, {dtype}", torch.enable_grad()(works["auto"])),
        baseline=Arm("plain_loop", torch.enable_grad()(works["plain_loop"])),
        equal=equal,
        device=device,
        params={"epochs": training.EPOCHS, "rows": plain_training.SAMPLES},
    )


def window_benchmark(device: torch.device) -> Benchmark:
    """Compare FlexAttention, window 128 of 2048, with SDPA and a dense mask.

    Raises:
        NotHereError: FlexAttention cannot be compiled here.
    """
    from benchmarks import attention
    from torchbridge.attention import why_not_on

    if reason := why_not_on(device):
        raise NotHereError(f"FlexAttention: {reason}")
    torch.manual_seed(0)
    window = attention.flexes(attention.Shape(1, 2048, 4), device)[0]
    return Benchmark(
        name="thresholds/attention/window_128",
        subject=Arm("flex", window.subject, compiled=True),
        baseline=Arm(window.baseline_name, window.baseline),
        equal=close_to(attention.TOLERANCE[torch.float32]),
        device=device,
        params={"dtype": "float32", "sequence": 2048, "window": 128, "heads": 4},
    )


def level_benchmarks(device: torch.device, model: str) -> Iterator[tuple[str, Benchmark | int]]:
    """Yield (level, model at this level against eager mode), lowest level first.

    If a level runs the same operators as eager mode, their count is yielded instead.
    """
    from benchmarks import optimisation_levels as benchmark
    from torchbridge.backends import create_backend

    for level, ours, eager, x in benchmark.levels(model, create_backend(device=device)):
        same = benchmark.same_operators(ours, eager, x)
        yield (
            level,
            same
            or Benchmark(
                name=f"thresholds/levels/{model}/{level}",
                subject=Arm(level, partial(ours, x), compiled=hasattr(ours, "_orig_mod")),
                baseline=Arm("eager", partial(eager, x)),
                equal=close_to(benchmark.LIMITS[level]),
                device=device,
                params={"batch": len(x), "level": level},
            ),
        )


def models() -> list[str]:
    """Return the names of the models in `benchmarks.optimisation_levels`."""
    from benchmarks.optimisation_levels import MODELS

    return list(MODELS)


def fp8_storage() -> tuple[float, float]:
    """Return the bytes of a float8 weight, and of its scales, over those of bfloat16."""
    from torchbridge.fp8 import FP8InferenceLinear

    linear = nn.Linear(1024, 1024, bias=False, dtype=torch.bfloat16)
    ours = FP8InferenceLinear(linear)
    bytes_of = [t.untyped_storage().nbytes() for t in (ours.weight, ours.weight_scale)]
    whole = linear.weight.untyped_storage().nbytes()
    return bytes_of[0] / whole, bytes_of[1] / whole
