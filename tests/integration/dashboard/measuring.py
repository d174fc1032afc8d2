"""Runs that measure something, for the pages of benchmarks and of comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from orchestrator.domain.outcome import Outcome
from tests.integration.api_context import MATRIX
from tests.integration.dashboard.desk import PageDesk

_JOBS = 'jobs:\n  - {select: "*", on: all}\n'
TORCH = {"torch": "2.9.0", "cuda": "12.8", "python": "3.12.4"}


def levels(before: int, after: int, factor: float, *, base: float = 20.0) -> list[float]:
    """Values with a little noise, and a step."""
    noise = np.random.default_rng(1).standard_normal(before + after) * 0.005
    steps = np.where(np.arange(before + after) < before, 1.0, factor)
    return [float(value) for value in base * steps * np.exp(noise)]


def measured(
    pages: PageDesk,
    key: str,
    values: Mapping[str, Sequence[float]],
    *,
    probed: Mapping[str, object] = TORCH,
    cells: Sequence[str] = ("here",),
    **more: object,
) -> str:
    """A run some minutes later that is done, whose cells measured these samples by name."""
    pages.api.clock.move(minutes=10)
    platforms = "".join(f"  - {{id: {cell}, provider: fake}}\n" for cell in cells)
    matrix = f"{MATRIX.partition('platforms:')[0]}platforms:\n{platforms}{_JOBS}"
    run = str(pages.api.launch(key, matrix=matrix)["id"])
    said = {"unit": "ms", "direction": "lower", **more}
    for cell in cells:
        agent = pages.api.begin(run, cell)
        lines = [agent.line("environment", **probed)] if probed else []
        lines += [
            agent.line("metric", "demo", metric=name, samples=list(samples), **said)
            for name, samples in values.items()
        ]
        assert agent.send(*lines)
    pages.api.finish(run, *cells, outcome=Outcome.PASSED)
    return run


def nights(pages: PageDesk, values: Sequence[float], **more: object) -> list[str]:
    """Runs one after the other that measured `speed` with three samples."""
    return [
        measured(pages, f"night-{at}", {"speed": [0.999 * one, one, 1.001 * one]}, **more)
        for at, one in enumerate(values)
    ]
