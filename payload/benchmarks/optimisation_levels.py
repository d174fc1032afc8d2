"""What each level, and each pass of it, does to real models: numbers first, then time.

An MLP, a ResNet of bottlenecks and a GPT-2 are prepared at one level after the other, each pass for
speed measured and kept only where it helps. A level's outputs are compared with float64, then it
takes turns with the eager model and with the level below; where it runs the very same operators as
one of these, there is nothing to time and that is said. Run: `python -m
benchmarks.optimisation_levels`.

For others: `levels(name, backend, budget_s)`, name one of `MODELS`, yields (level, model, eager, x)
from the lowest level to the highest; `LIMITS[level]` is how far its outputs may be from eager's
(`torchbridge.bench.close_to`), `THRESHOLD` what the ratio's interval must reach at its lower end,
and `same_operators(model, eager, x)` says whether there is anything to time.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from suites.backend_models import bottleneck_resnet, in_float64
from torchbridge import __version__, evidence
from torchbridge.backends import Backend, create_backend
from torchbridge.backends.optimise import LEVELS
from torchbridge.bench import Arm, Benchmark, close_to, run_benchmark
from torchbridge.device import describe, pick_device
from torchbridge.llm import GPT2, GPT2Config
from torchbridge.numbers import relative_error
from torchbridge.passes import PassResult, Prepared

LIMITS = {"conservative": 2e-3, "balanced": 2e-3, "aggressive": 3e-2}  # cuDNN may take TF32
THRESHOLD = 0.97  # of eager's speed, and of the level's below: the lower end of the interval


def mlp(device: torch.device) -> tuple[nn.Module, Tensor]:
    """Return an MLP [64, 512] -> [64, 10] and its input."""
    widths = (512, 256, 128, 10)
    layers = [nn.Linear(i, o) for i, o in itertools.pairwise(widths)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    return model, torch.randn(64, 512)


def resnet(device: torch.device) -> tuple[nn.Module, Tensor]:
    """Return ResNet-50 and its input; on the CPU two blocks per kind, half as wide."""
    if device.type != "cpu":
        return bottleneck_resnet(), torch.randn(32, 3, 224, 224)
    return bottleneck_resnet((2, 2, 2, 2), 32), torch.randn(2, 3, 96, 96)


def gpt2(device: torch.device) -> tuple[nn.Module, Tensor]:
    """Return GPT-2 on whole texts and its input; on the CPU with four layers."""
    config, shape = GPT2Config(dropout=0.0), (8, 512)
    if device.type == "cpu":
        sizes = {"vocabulary": 4096, "positions": 64, "layers": 4, "heads": 4, "width": 256}
        config, shape = GPT2Config(**sizes, dropout=0.0), (4, 64)
    return GPT2(config), torch.randint(0, config.vocabulary, shape)


MODELS: dict[str, Callable[[torch.device], tuple[nn.Module, Tensor]]] = {
    "mlp": mlp,
    "resnet": resnet,
    "gpt2": gpt2,
}


@dataclass(frozen=True, slots=True)
class Stage:
    """A model at a level, with its eager original."""

    level: str
    prepared: Prepared
    eager: nn.Module
    x: Tensor

    @property
    def model(self) -> nn.Module:
        """The prepared model, called with `x`."""
        return self.prepared.model


def stages(name: str, backend: Backend, budget_s: float) -> Iterator[Stage]:
    """Yield a model prepared at each level from the same weights; `budget_s` per measured pass.

    Levels that apply the same passes share one model.
    """
    torch.manual_seed(0)
    model, x = MODELS[name](backend.device)
    eager, x = model.to(backend.device).eval(), x.to(backend.device)
    for level in LEVELS:
        options = {"level": level, "sample_inputs": (x,), "measure_s": budget_s}
        yield Stage(level, backend.prepare_model(copy.deepcopy(eager), **options), eager, x)


def levels(
    name: str, backend: Backend, budget_s: float = 1.0
) -> Iterator[tuple[str, nn.Module, nn.Module, Tensor]]:
    """Yield (level, model, eager, x), lowest level first; `budget_s` per measured pass."""
    for stage in stages(name, backend, budget_s):
        yield stage.level, stage.model, stage.eager, stage.x


class _Trace(TorchDispatchMode):
    """Records the operators that run, with shape, layout and dtype of their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        self.seen.append((func, *((t.shape, t.stride(), t.dtype) for t in tensors)))
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def same_operators(model: nn.Module, other: nn.Module, x: Tensor) -> int:
    """Return how many operators both models run if they are identical; 0 if they differ.

    A compiled model runs its own kernels, so it is never identical.
    """
    if any(hasattr(one, "_orig_mod") for one in (model, other)):
        return 0
    traces = []
    for one in (model, other):
        with _Trace() as trace:
            one(x)
        traces.append(trace.seen)
    return len(traces[0]) if traces[0] == traces[1] else 0


def tell(name: str, stage: Stage) -> None:
    """Print what each pass did, and its effect."""
    for result in stage.prepared.passes:
        print(f"  {'+' if result.applied else '-'} {describe_pass(result)}")
        if result.name == "compile" and not result.applied and result.effect is None:
            evidence.degraded(f"{name}: not compiled: {result.reason}")
        if result.effect is not None:
            prefix, effect = f"levels/{name}/{stage.level}/{result.name}/effect", result.effect
            params = {"low": effect.low, "high": effect.high, "quads": effect.quads}
            params |= {"device": str(stage.x.device), "kept": int(result.applied)}
            evidence.metric(prefix, [effect.median], unit="x", direction="higher", **params)


def describe_pass(result: PassResult) -> str:
    """Return one line: evidence or reason, and the measured effect."""
    if not result.applied:
        return f"{result.name}: {result.reason}"
    effect = "" if result.effect is None else f"; {result.effect} in {result.effect.quads} quads"
    return f"{result.name}: {result.evidence}{effect}"


def equals_float64(name: str, stage: Stage, expected: Tensor) -> bool:
    """Check the outputs against float64."""
    error = relative_error(stage.model(stage.x), expected)
    limit = LIMITS[stage.level]
    print(f"  relative error {error:.1e} against float64, {limit:g} allowed")
    prefix = f"levels/{name}/{stage.level}/equals_float64"
    return evidence.check(prefix, error <= limit, value=error, unit="relative", tolerance=limit)


def against(
    name: str, stage: Stage, other: nn.Module, title: str, budget_s: float, threshold: float | None
) -> bool:
    """Compare the level with another model; False if outputs differ or the threshold is missed.

    Without a threshold the interval's lower end is only reported.
    """
    prefix = f"levels/{name}/{stage.level}/{title.replace(' ', '_')}"
    if count := same_operators(stage.model, other, stage.x):
        print(f"  runs the same {count} operators as {title}: 1x, nothing to time")
        return evidence.check(f"{prefix}/threshold", True, value=1.0, unit="x", tolerance=THRESHOLD)
    arms = [
        Arm(label, lambda model=model: model(stage.x), compiled=hasattr(model, "_orig_mod"))
        for label, model in ((stage.level, stage.model), (title, other))
    ]
    benchmark = Benchmark(
        name=prefix,
        subject=arms[0],
        baseline=arms[1],
        equal=close_to(LIMITS[stage.level]),
        device=stage.x.device,
        params={"model": name, "level": stage.level, "batch": len(stage.x)},
    )
    outcome = run_benchmark(benchmark, pairs=200, budget_s=budget_s, precision=0.02)
    if not outcome.samples or threshold is None:
        return outcome.ok
    low = outcome.ratio().low
    kept = evidence.check(
        f"{prefix}/threshold", low >= threshold, value=low, unit="x", tolerance=threshold
    )
    word = "kept" if kept else "MISSED"
    print(f"  threshold {threshold:g}x of {title} {word} by the lower end {low:.3f}")
    return kept


@torch.no_grad()
def measure(name: str, backend: Backend, budget_s: float) -> bool:
    """Measure one model at all levels; False if a check failed."""
    good, below, expected = True, None, None
    for stage in stages(name, backend, budget_s / 15):
        if expected is None:
            count = sum(p.numel() for p in stage.eager.parameters())
            print(f"\n{name}: input {tuple(stage.x.shape)}, {count:,} parameters")
            expected = in_float64(stage.eager, stage.x)
        print(f"\n{name}, {stage.level}")
        tell(name, stage)
        if not equals_float64(name, stage, expected):
            return False
        good &= against(name, stage, stage.eager, "eager", budget_s / 5, THRESHOLD)
        if below is not None and below.model is not stage.eager:
            title = f"{below.level} level"
            good &= against(name, stage, below.model, title, budget_s / 5, THRESHOLD)
        below = stage
    return good


def main(arguments: list[str] | None = None) -> int:
    """Run all models; return 0 if all checks passed."""
    parser = argparse.ArgumentParser(description="Levels and passes on real models")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds, compilation apart")
    parser.add_argument("--only", choices=sorted(MODELS), help="one of the models")
    options = parser.parse_args(arguments)
    device = pick_device()
    backend = create_backend()
    print(f"Optimisation levels, torchbridge {__version__}, {backend.name}, {describe(device)}")
    names = [options.only] if options.only else list(MODELS)
    results = [measure(name, backend, options.budget / len(names)) for name in names]
    print(f"\n{sum(results)}/{len(results)} models passed their checks")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
