"""A benchmark that takes turns: a loop of arithmetic, timed a few times a turn."""

from __future__ import annotations

import time
from pathlib import Path

import seatrial_events

SAMPLES = 9
LOOPS = 60_000
SLOWER = Path(__file__).with_name("slower")
"""How much slower on purpose, as a part: ``0.1``."""


def measure(loops: int) -> float:
    """Milliseconds of processor time that the loop takes."""
    began = time.process_time()
    total = 0
    for n in range(loops):
        total += n * n
    assert total > 0
    return 1000 * (time.process_time() - began)


def main() -> None:
    slower = float(SLOWER.read_text()) if SLOWER.exists() else 0.0
    loops = round(LOOPS * (1 + slower))
    measure(loops)
    for _ in seatrial_events.turns():
        samples = [measure(loops) for _ in range(SAMPLES)]
        seatrial_events.metric("loop", samples, unit="ms", direction="lower")


if __name__ == "__main__":
    main()
