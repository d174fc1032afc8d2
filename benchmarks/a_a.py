"""A/A test on this computer, on the real path: is a payload ever judged slower than itself?

Twenty times the same payload is candidate and baseline; then twenty times the candidate is 10 %
slower on purpose. The controller, the agent, the pairing and the gate are the real ones.
Floors: no false FAIL, and FAIL every time for the slower one, naming the benchmark.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.home import a_home
from tests.e2e.pairing import Judged, Speed

ROUNDS = 20
SLOWER = 0.1
MOST = 160
"""Number of pairs: enough for a computer that does other work as well."""


def judged(speed: Speed, slower: float, number: int) -> Judged:
    """Judge one run and print a line, because a run takes minutes."""
    one = speed.judge(slower)
    print(
        f"{slower:.0%} slower, {number:2}: {one.decision:12} {one.pairs:3} pairs, "
        f"measured {one.slowdown:+.2%}, {one.seconds:.1f} s",
        flush=True,
    )
    if one.decision != ("FAIL" if slower else "PASS"):
        print(f"    {one.benchmark}", flush=True)
    return one


def told(found: Sequence[Judged]) -> str:
    """Return the results of a series as one line."""
    counts = ", ".join(
        f"{n} {word}" for word, n in sorted(Counter(o.decision for o in found).items())
    )
    measured = [one.slowdown for one in found]
    return (
        f"{counts}; measured {min(measured):+.2%} to {max(measured):+.2%}, "
        f"median {statistics.median(measured):+.2%}; "
        f"{statistics.median(one.pairs for one in found):g} pairs"
    )


def main() -> int:
    """Run both series; return 1 if a floor is missed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with (
        tempfile.TemporaryDirectory() as folder,
        a_home(Path(folder) / "home") as home,
    ):
        speed = Speed(home, Path(folder), max_pairs=MOST)
        found = [
            (judged(speed, 0.0, number), judged(speed, SLOWER, number))
            for number in range(1, rounds + 1)
        ]
    same, slower = [one for one, _ in found], [one for _, one in found]
    false = sum(one.decision == "FAIL" for one in same)
    right = sum(one.decision == "FAIL" and "loop/loop" in one.benchmark for one in slower)
    print(f"the same payload: {told(same)}")
    print(f"{SLOWER:.0%} slower:      {told(slower)}")
    print(
        f"a_a: {false} false FAIL of {rounds} (floor 0), {right} right FAIL of {rounds} (floor all)"
    )
    return 0 if false == 0 and right == rounds else 1


if __name__ == "__main__":
    sys.exit(main())
