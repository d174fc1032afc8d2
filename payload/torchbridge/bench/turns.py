"""Run a benchmark as one of two resident processes that measure in turn.

Who compares two versions of a payload starts a process of each, names a pipe in `SEATRIAL_TURNS`
and writes one line per turn: its number, or "end". The process reports "ready", then its metrics
and the end of each turn, and sleeps in between.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from torchbridge import evidence
from torchbridge.bench.benchmark import Arm
from torchbridge.bench.run import repeats, warm_to_steady
from torchbridge.bench.stopwatch import Stopwatch

_PIPE = "SEATRIAL_TURNS"
_END = "end"


def turns() -> Iterator[int]:
    """Yield once per turn the number of earlier turns; without `SEATRIAL_TURNS` yield once.

    Load and warm up before the first, measure and emit within.
    """
    path = os.environ.get(_PIPE)
    if not path:
        yield 0
        return
    with Path(path).open(encoding="ascii") as words:
        evidence.turn("ready")
        for count, line in enumerate(iter(words.readline, "")):
            word = line.strip()
            if word == _END:
                return
            yield count
            evidence.turn(int(word))


def take_turns(
    arms: Mapping[str, Arm],
    device: torch.device,
    *,
    samples: int = 9,
    budget_s: float = 5.0,
    **params: str | int | float,
) -> dict[str, list[float]]:
    """Warm up each arm for at most `budget_s` seconds, then take `samples` of each in every turn.

    The arms run one after the other. Each turn reports the metric `<name>/latency` of each. Returns
    all samples by name, in milliseconds.
    """
    watch = Stopwatch(device)
    steady = {name: warm_to_steady(watch, arm, budget_s) for name, arm in arms.items()}
    each = {name: repeats([arm], device, steady[name]) for name, arm in arms.items()}
    params = {"device": str(device), "clock": watch.kind, **params}
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for _ in turns():
        for name, arm in arms.items():
            ms = [1e3 * watch.seconds(arm, *each[name]) for _ in range(samples)]
            evidence.metric(f"{name}/latency", ms, unit="ms", direction="lower", **params)
            taken[name] += ms
    return taken
