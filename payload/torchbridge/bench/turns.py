"""A benchmark as one resident arm of a pairing: it measures when it is told that its turn is.

Whoever pairs two versions of a payload starts a process of each, names a pipe in `SEATRIAL_TURNS`,
and writes a line for every turn: its number, or "end". The process says when it is ready and when a
turn is over, where it says its metrics. While the other arm works, this one sleeps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from torchbridge import evidence
from torchbridge.bench.duel import Arm
from torchbridge.bench.run import repeats, warm_to_steady
from torchbridge.bench.stopwatch import Stopwatch

_PIPE = "SEATRIAL_TURNS"
_END = "end"


def turns() -> Iterator[int]:
    """Once for every turn of this process, with how many it had before; alone there is one turn.

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
    name: str,
    arm: Arm,
    device: torch.device,
    *,
    samples: int = 9,
    budget_s: float = 5.0,
    **params: str | int | float,
) -> list[float]:
    """Warm up for `budget_s` at most, then take `samples` a turn until the turns end.

    Each turn's are the metric `<name>/latency`. Returns all of them, in milliseconds.
    """
    limits = {"samples": samples, "budget_s": budget_s}
    return take_several_turns({name: arm}, device, **limits, **params)[name]


def take_several_turns(
    arms: Mapping[str, Arm],
    device: torch.device,
    *,
    samples: int = 9,
    budget_s: float = 5.0,
    **params: str | int | float,
) -> dict[str, list[float]]:
    """As `take_turns`, of several works by name: each turn has all of them, one after the other."""
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
