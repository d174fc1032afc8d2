"""GPT-2 124M, batch 1, 50 greedy tokens: a static cache against loops and generate() around others.

The baselines have the same random weights and must give the same tokens before anything is timed:
`hf_kv_loop` and `hf_generate`, around transformers' model and its cache, or `plain_kv_loop`, a loop
with a growing cache, where transformers is missing. bfloat16 and int8 weights make another model:
they are told the text that the float32 one is told, and timed against it.

For other benchmarks: `subject(model, capacity, compiled=...)` is our generation, `make_baseline`
of `benchmarks.plain_generation` what it is compared with. Run: `python -m benchmarks.gpt2`.
"""

from __future__ import annotations

import argparse
import copy
import sys
from functools import partial

import torch
from torch import Tensor

from benchmarks.plain_generation import PROMPT, Baseline, Generate, make_baseline
from torchbridge import __version__, evidence
from torchbridge.bench import Arm, Benchmark, Equality, Outcome, Work, identical, run_benchmark
from torchbridge.device import describe, pick_device
from torchbridge.graphs import why_no_graphs
from torchbridge.llm import (
    GPT2,
    Agreement,
    CompiledDecode,
    GPT2Config,
    GraphedDecode,
    KVCache,
    LLMOptimizer,
    attention_path,
    decode_path,
    generate,
    quantise_int8,
    stepwise,
    teacher_forced,
)
from torchbridge.memory import model_bytes

GOALS = {"cpu": 1.10}  # of the baseline's speed; on other devices 3x
THRESHOLD = 0.9  # fails when the whole confidence interval is below
TEXT_SHAPE = (2, 96)  # of the text that models are told; the decode path sees a quarter of one row
LIMITS = {  # of random weights, whose best two tokens are often within a hundredth of each other
    "bfloat16": Agreement(top1=0.85, kl=3e-4, max_difference=0.25),
    "int8": Agreement(top1=0.75, kl=1.5e-3, max_difference=0.6),
    "int8_bfloat16": Agreement(top1=0.75, kl=2e-3, max_difference=0.6),
}


def subject(model: GPT2, capacity: int, *, compiled: bool) -> tuple[str, Generate]:
    """Return the name of our decode path and our generation with a static cache.

    The model is prepared for its device in place. `compiled` on CUDA is captured, too.
    """
    make_ready(model)
    slots = min(-(-capacity // 8) * 8, model.config.positions)  # rows of a mask that CUDA can load
    cache = KVCache.for_model(model, 1, slots)
    if not compiled:
        return "static cache, eager", partial(generate, model, cache=cache)
    decode, seconds = ready_decode(model, cache)
    print(f"Decode: {decode.path_taken}, {seconds:.1f} s to make, which is in no time below")
    evidence.metric("gpt2/compile", [seconds], unit="s", direction="lower", path=decode.path_taken)
    path = f"static cache, {decode.path_taken}"
    return path, partial(generate, model, cache=cache, decode=decode)


def make_ready(model: GPT2) -> None:
    """Apply the optimizer's passes in place, once, and print them."""
    for one in LLMOptimizer(device=model.device).optimize(model).prepared.passes:
        print(f"Pass {one.name}: {one.evidence if one.applied else f'not applied, {one.reason}'}")


def ready_decode(model: GPT2, cache: KVCache) -> tuple[CompiledDecode | GraphedDecode, float]:
    """Return the compiled step for this cache, captured on CUDA, and the seconds taken.

    If the compiled step cannot be captured, the eager one is; the evidence says so.
    """
    if why_no_graphs(cache.device):
        decode = CompiledDecode(model)
        return decode, decode.compile(cache)
    try:
        graphed = GraphedDecode(model, cache, backend="inductor")
    except Exception as error:  # the compiler's own kinds differ from torch to torch
        reason = f"the decode step is not compiled: {type(error).__name__}"
        print(f"{reason}: {error}")
        evidence.degraded(reason)
        graphed = GraphedDecode(model, cache)
    return graphed, graphed.seconds


def against(baseline: Baseline, ids: Tensor, new: int, compiled: bool, budget_s: float) -> bool:
    """Compare our generation with each loop and the baseline, token for token."""
    path, ours = subject(baseline.model, ids.shape[1] + new, compiled=compiled)
    device = baseline.model.device
    params = {"dtype": "float32", "new_tokens": new, "prompt": ids.shape[1], "path": path}
    good = True
    for name, generation in {**baseline.loops, baseline.name: baseline.generate}.items():
        benchmark = Benchmark(
            name=f"gpt2/{'compiled' if compiled else 'static'}/{name}",
            subject=Arm(path, partial(ours, ids, new)),
            baseline=Arm(name, partial(generation, ids, new)),
            equal=identical,
            device=device,
            params=params | {"threads": torch.get_num_threads()},
            threshold=THRESHOLD,
            goal=GOALS.get(device.type, 3.0),
            work=Work(bytes=new * model_bytes(baseline.model)),
        )
        good &= report(run_benchmark(benchmark, at_least=6, budget_s=budget_s), new)
    return good


def report(outcome: Outcome, new: int) -> bool:
    """Emit tokens per second; return False if the benchmark failed."""
    if outcome.samples:
        speeds = [new / s for s in outcome.seconds("subject")]
        name = f"{outcome.benchmark.name}/tokens_per_s"
        params = {"baseline": outcome.benchmark.baseline.name, **outcome.benchmark.params}
        evidence.metric(name, speeds, unit="tokens/s", direction="higher", **params)
    return outcome.ok


def narrow_models(model: GPT2) -> dict[str, GPT2]:
    """Return the models with fewer bits, built from a model before `lay_out`."""
    half = copy.deepcopy(model).to(torch.bfloat16)
    return {
        "bfloat16": half,
        "int8_bfloat16": quantise_int8(half),
        "int8": quantise_int8(model),
    }


def judge(name: str, model: GPT2, reference: GPT2, text: Tensor) -> Agreement:
    """Compare a narrow model's whole texts and decode steps; return the worse of each measure."""
    part = text[:1, : text.shape[1] // 4]
    whole = teacher_forced(model, reference, text)
    steps = teacher_forced(stepwise(model), reference, part)
    print(f"\n{name}, told the text that float32 is told\n  at once: {whole}")
    print(f"  a token at a time: {steps}")
    worst = Agreement(
        top1=whole.top1,  # the part is too short for a share
        kl=max(whole.kl, steps.kl),
        max_difference=max(whole.max_difference, steps.max_difference),
        positions=whole.positions,
    )
    missed = worst.misses(LIMITS[name])
    evidence.metric(f"gpt2/{name}/kl", [worst.kl], unit="nats", direction="lower")
    evidence.metric(f"gpt2/{name}/top1", [worst.top1], unit="share", direction="higher")
    evidence.check(
        f"gpt2/{name}/agreement", not missed, value=worst.kl, unit="nats", tolerance=LIMITS[name].kl
    )
    print(f"  {'; '.join(missed) or 'within its limits'}")
    return worst


def measure_narrow(
    name: str, model: GPT2, reference: GPT2, text: Tensor, *, compiled: bool, budget_s: float
) -> bool:
    """Measure agreement, bytes and speed of a narrow model; False if it deviates too far."""
    worst = judge(name, model, reference, text)
    before, after = model_bytes(reference), model_bytes(model)
    print(f"  weights {before / 1e6:.1f} MB are {after / 1e6:.1f} MB ({after / before:.1%})")
    evidence.metric(f"gpt2/{name}/bytes", [after], unit="bytes", direction="lower")
    if products := decode_path(model, 1, compiled=compiled):
        print(f"  int8 products: {products.name}, {products.reason}")
    ids, new = text[:1, : len(PROMPT)], 10
    arms = [generation(one, len(PROMPT) + new, compiled) for one in (model, reference)]
    missed = worst.misses(LIMITS[name])
    benchmark = Benchmark(
        name=f"gpt2/{name}",
        subject=Arm(f"{name}, {arms[0][0]}", partial(arms[0][1], ids, new)),
        baseline=Arm(f"float32, {arms[1][0]}", partial(arms[1][1], ids, new)),
        equal=lambda *_: Equality(not missed, worst.kl, LIMITS[name].kl, "nats"),
        device=reference.device,
        params={"new_tokens": new, "threads": torch.get_num_threads()},
    )
    return run_benchmark(benchmark, at_least=4, pairs=20, budget_s=budget_s).ok


def generation(model: GPT2, capacity: int, compiled: bool) -> tuple[str, Generate]:
    """Return the decode path and generation of a model as it is, as `subject`."""
    cache = KVCache.for_model(model, 1, capacity)
    if not compiled:
        return "eager", partial(generate, model, cache=cache)
    decode, _ = ready_decode(model, cache)
    return decode.path_taken, partial(generate, model, cache=cache, decode=decode)


def main(arguments: list[str] | None = None) -> int:
    """Run all arms; return 0 if every check passed."""
    parser = argparse.ArgumentParser(description="GPT-2 124M generation against named baselines")
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds per benchmark")
    parser.add_argument("--compile", action="store_true", help="on the CPU too")
    options = parser.parse_args(arguments)
    device = pick_device()
    print(f"GPT-2 generation, torchbridge {__version__}, {describe(device)}")
    baseline = make_baseline(GPT2Config(), device)
    count = sum(p.numel() for p in baseline.model.parameters())
    print(f"Parameters: {count:,}, random weights; baseline: {baseline.name}")
    good = evidence.check("gpt2/parameters", count == 124_439_808, value=count, tolerance=0)
    compiled = options.compile or device.type != "cpu"
    text = torch.randint(0, 50257, TEXT_SHAPE, generator=torch.Generator().manual_seed(8))
    narrow = narrow_models(baseline.model)
    make_ready(baseline.model)
    for name, model in narrow.items():
        settings = {"compiled": compiled, "budget_s": options.budget / 2}
        good &= measure_narrow(name, model, baseline.model, text.to(device), **settings)
    ids = torch.tensor([(PROMPT * 6)[:32]], device=device)
    print(f"\nAttention: {attention_path(baseline.model, ids)}")
    for one in [False, True] if compiled else [False]:
        good &= against(baseline, ids, options.tokens, one, options.budget)
    print("\nPASS" if good else "\nFAIL: a check above failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
