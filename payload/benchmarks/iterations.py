"""Overheads counted in iterations: each is a sample, the device waited for, two come before."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from torchbridge import evidence
from torchbridge.timing import Spread, timed

LEAST, UNCOUNTED = 5, 2  # iterations, also past the budget; and before they count


@dataclass(frozen=True, slots=True)
class Iterated:
    """`work` is timed so often, on what `fresh` makes anew for each iteration.

    `right` tells of the first result whether it is what the work is for.
    """

    name: str
    iterations: int
    work: Callable[..., object]
    right: Callable[[object], bool]
    fresh: Callable[[], object] | None = None

    def once(self, device: torch.device) -> tuple[float, object]:
        """Seconds, and what came of it."""
        made = [] if self.fresh is None else [self.fresh()]
        results: list[object] = []
        return timed(lambda: results.append(self.work(*made)), device), results[0]


def run(
    prefix: str,
    metrics: Sequence[Iterated],
    device: torch.device,
    *,
    budget_s: float,
    params: dict[str, object],
) -> bool:
    """Check, time, print and emit each; False if a result was wrong (nothing is timed then)."""
    good, share_s = True, budget_s / len(metrics)
    for one in metrics:
        result, *_ = [one.once(device)[1] for _ in range(UNCOUNTED)]
        if not evidence.check(f"{prefix}/{one.name}/right", one.right(result)):
            print(f"  {one.name:<34} WRONG: nothing is timed")
            good = False
            continue
        samples_ms, until = [], time.perf_counter() + share_s
        while len(samples_ms) < one.iterations:
            if len(samples_ms) >= LEAST and time.perf_counter() > until:
                break
            samples_ms.append(1e3 * one.once(device)[0])
        emit(prefix, one.name, samples_ms, params)
    return good


def emit(prefix: str, name: str, samples_ms: Sequence[float], params: dict[str, object]) -> None:
    """One metric and one line."""
    spread, made = Spread.of(samples_ms), len(samples_ms)
    told = {**params, "iterations": made}
    evidence.metric(f"{prefix}/{name}", samples_ms, unit="ms", direction="lower", **told)
    quartiles = f"{spread.low:.4f} to {spread.high:.4f}"
    print(f"  {name:<34} {spread.median:>9.4f} ms  ({quartiles}), {made} iterations", flush=True)
