"""Disturb controllers, and read the clouds' books: ``python -m tests.chaos [SECONDS] [SEED]``.

A quarter of the time real controllers get signals; then controllers of the emulated clouds and of
the cloud in memory are killed and stopped at random boundaries. No machine may be left, no result
lost or doubled, and the summary of the clouds' runs has to be the undisturbed one. Ends with 1 and
the seed if one did not come to that.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.boundaries import CLOUDS, Undisturbed, disturbed
from tests.chaos.signals import signalled

SECONDS = 180.0


def main() -> int:
    """Print a line for each part, and the sum."""
    words = sys.argv[1:]
    seconds = float(words[0]) if words else SECONDS
    seed = int(words[1]) if len(words) > 1 else random.randrange(10**6)
    print(f"chaos for about {seconds:.0f} s; the seed is {seed}", flush=True)
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="chaos-") as made:
        folder = Path(made)
        try:
            _signals(folder, random.Random(seed), seconds=seconds / 4)
            _boundaries(folder, seed, until=end)
        except AssertionError as error:
            print(f"FAILED with the seed {seed}: {error}", flush=True)
            return 1
    print("After each run no machine was left, and no result lost or doubled.")
    return 0


def _signals(folder: Path, chance: random.Random, *, seconds: float) -> None:
    begun = time.monotonic()
    (folder / "signals").mkdir()
    sent = signalled(folder / "signals", chance, seconds=seconds)
    _say("real controllers, 4 cells", sent.total(), sent, begun)


def _boundaries(folder: Path, seed: int, *, until: float) -> None:
    """Take the clouds in turn until the time is over, each at least once."""
    expected = {cloud: Undisturbed.on(cloud, folder / cloud) for cloud in CLOUDS}
    number = 0
    fallen = {cloud: Counter[str]() for cloud in CLOUDS}
    runs = Counter[str]()
    begun = time.monotonic()
    while number == 0 or time.monotonic() < until:
        for cloud in CLOUDS:
            chance = random.Random(f"{seed} {cloud} {number}")
            where = folder / f"{cloud}-{number}"
            try:
                found = disturbed(cloud, where, expected[cloud], chance)
            except AssertionError as error:
                raise AssertionError(f"{cloud}, run {number}: {error}") from error
            fallen[cloud] += Counter({blow.value: count for blow, count in found.items()})
            runs[cloud] += 1
        number += 1
    for cloud, blows in fallen.items():
        _say(f"{cloud}, {runs[cloud]} runs", blows.total(), blows, begun)


def _say(what: str, total: int, by_kind: Counter[str], begun: float) -> None:
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(by_kind.items()))
    took = time.monotonic() - begun
    print(f"{what}: {total} faults ({kinds or 'none'}) in {took:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
