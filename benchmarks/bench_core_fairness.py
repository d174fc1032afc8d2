"""Is the benchmark core fair, and does it see? Each work against itself, then a planted slow-down.

Fifty comparisons of a work with itself: of intervals that are 99 % sure, three may miss 1. Then one
arm does 21 units of a work where the other does 20: the interval must lie wholly below 1, in nine
tries of ten. Both arms are the same function on the same tensors, one thread each: where data lie
in memory makes arms of the same work differ for real. Run: `PYTHONPATH=payload python
benchmarks/bench_core_fairness.py`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor, nn

from torchbridge import __version__, evidence
from torchbridge.bench import Arm, Benchmark, Outcome, identical, run_benchmark
from torchbridge.device import describe, pick_device

COMPARISONS, MOST_OUTSIDE = 50, 3
TRIES, LEAST_FOUND = 10, 9
UNITS, PLANTED = 20, 21
SURE = 0.99
NARROW = 0.04  # width of an interval that a slow-down of 5 % does not fit into

Make = Callable[[torch.device, int], Callable[[], Tensor]]


def product(device: torch.device, size: int) -> Callable[[], Tensor]:
    """Return a product of two square matrices of 32 to 160."""
    x = torch.randn(2, 32 * size, 32 * size, device=device)
    return lambda: x[0] @ x[1]


def softmax(device: torch.device, size: int) -> Callable[[], Tensor]:
    """Return a softmax over rows of 1000."""
    x = torch.randn(32 * size, 1000, device=device)
    return lambda: x.softmax(dim=-1)


def norm(device: torch.device, size: int) -> Callable[[], Tensor]:
    """Return a LayerNorm of rows of 512."""
    x = torch.randn(64 * size, 512, device=device)
    return lambda: F.layer_norm(x, (512,))


def perceptron(device: torch.device, size: int) -> Callable[[], Tensor]:
    """Return a perceptron 128-256-10 with GELU."""
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 10)).to(device)
    x = torch.randn(16 * size, 128, device=device)
    return lambda: model(x)


def convolution(device: torch.device, size: int) -> Callable[[], Tensor]:
    """Return a convolution 3 x 3 from 8 to 16 channels."""
    layer = nn.Conv2d(8, 16, 3).to(device)
    x = torch.randn(size, 8, 32, 32, device=device)
    return lambda: layer(x)


def attention(device: torch.device, size: int) -> Callable[[], Tensor]:
    """Return causal attention with four heads of 32."""
    q, k, v = torch.randn(3, 1, 4, 32 * size, 32, device=device)
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)


def sort(device: torch.device, size: int) -> Callable[[], Tensor]:
    """Return a sort of rows of 500."""
    x = torch.randn(4 * size, 500, device=device)
    return lambda: x.sort(dim=-1).values


def gather(device: torch.device, size: int) -> Callable[[], Tensor]:
    """Return a gather of rows of a table of 4000 x 64."""
    table = torch.randn(4000, 64, device=device)
    rows = torch.randint(0, 4000, (500 * size,), device=device)
    return lambda: table[rows]


def transposed_copy(device: torch.device, size: int) -> Callable[[], Tensor]:
    """Return a copy of a transposed square matrix."""
    x = torch.randn(128 * size, 128 * size, device=device)
    return lambda: x.T + 0  # a copy in the other order


def elementwise(device: torch.device, size: int) -> Callable[[], Tensor]:
    """Return a chain of three elementwise operations."""
    x = torch.randn(40_000 * size, device=device)
    return lambda: F.relu(x * 1.5 + 2)


WORKS: tuple[Make, ...] = (
    product,
    softmax,
    norm,
    perceptron,
    convolution,
    attention,
    sort,
    gather,
    transposed_copy,
    elementwise,
)
SMALL: tuple[Make, ...] = (product, softmax, norm, gather)  # some ten microseconds a unit


def same_twice(device: torch.device, count: int) -> Iterator[Benchmark]:
    """Yield `count` benchmarks of a work against itself, each work in growing sizes."""
    for number in range(count):
        make, size = WORKS[number % len(WORKS)], 1 + number // len(WORKS)
        work = make(device, size)
        name = f"a_a/{make.__name__}/{size}"
        arms = {"subject": Arm("A", work), "baseline": Arm("A again", work)}
        yield Benchmark(name=name, **arms, equal=identical, device=device)


def slowed(device: torch.device, number: int) -> Benchmark:
    """Return try `number`: the subject does 21 units of work, the baseline 20."""
    make = SMALL[number % len(SMALL)]
    work = make(device, 1)

    def repeat(times: int) -> Tensor:
        for _ in range(times - 1):
            work()
        return work()

    return Benchmark(
        name=f"a_a/planted/{number}/{make.__name__}",
        subject=Arm(f"{PLANTED} units", lambda: repeat(PLANTED)),
        baseline=Arm(f"{UNITS} units", lambda: repeat(UNITS)),
        equal=identical,
        device=device,
    )


def show(outcome: Outcome, word: str) -> None:
    """Print one line."""
    ratio = outcome.ratio(SURE)
    sure = f"{ratio.confidence:.1%} of {ratio.quads} quads"
    print(f"  {outcome.benchmark.name:<34} {ratio}  {sure:<20} {word}", flush=True)


def outside(device: torch.device, count: int, budget_s: float) -> int:
    """Return how many of `count` works are reported to differ from themselves."""
    missed = 0
    for benchmark in same_twice(device, count):
        outcome = run_benchmark(
            benchmark,
            pairs=1000,
            at_least=16,
            budget_s=budget_s / count,
            confidence=SURE,
            quiet=True,
        )
        missed += not outcome.agrees(SURE)
        show(outcome, "" if outcome.agrees(SURE) else "OUTSIDE")
    return missed


def found(device: torch.device, tries: int, budget_s: float) -> int:
    """Return in how many tries the planted slow-down was found."""
    seen = 0
    for number in range(tries):
        outcome = run_benchmark(
            slowed(device, number),
            pairs=100_000,
            at_least=16,
            budget_s=budget_s / tries,
            precision=NARROW,
            confidence=SURE,
            quiet=True,
        )
        slower = outcome.ratio(SURE).high < 1
        seen += slower
        show(outcome, "found" if slower else "NOT FOUND")
    return seen


@torch.inference_mode()
def main(arguments: list[str] | None = None) -> int:
    """Run both parts; return 0 if the core is fair and finds the slow-down."""
    parser = argparse.ArgumentParser(
        description="Each work against itself, and a planted slow-down"
    )
    parser.add_argument("--comparisons", type=int, default=COMPARISONS)
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--same-budget", type=float, default=100.0, help="seconds of sampling")
    parser.add_argument("--planted-budget", type=float, default=100.0, help="seconds, at most")
    options = parser.parse_args(arguments)
    device, start = pick_device(), time.monotonic()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"A/A through the benchmark core, torchbridge {__version__}, {describe(device)}")
    missed = outside(device, options.comparisons, options.same_budget)
    seen = found(device, options.tries, options.planted_budget)
    least = options.tries - (TRIES - LEAST_FOUND)
    fair = evidence.check(
        "a_a/outside", missed <= MOST_OUTSIDE, value=missed, tolerance=MOST_OUTSIDE
    )
    sees = evidence.check("a_a/planted_found", seen >= least, value=seen, tolerance=least)
    print(
        f"A/A: {missed} of {options.comparisons} outside their {SURE:.0%} interval (at most "
        f"{MOST_OUTSIDE}); {PLANTED} units against {UNITS} found in {seen} of {options.tries} "
        f"(at least {least}); {time.monotonic() - start:.0f} s"
    )
    return 0 if fair and sees else 1


if __name__ == "__main__":
    sys.exit(main())
