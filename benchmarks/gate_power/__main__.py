"""Compute the tables, compare them with the promises, and write them into the documentation.

Run it as `python -m benchmarks.gate_power`, or `make gate-power`: up to 20 minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from benchmarks.gate_power import documented
from benchmarks.gate_power.noise import NIGHTS
from benchmarks.gate_power.releases import Tally, scenarios, simulate
from benchmarks.gate_power.series import Seen, observe
from benchmarks.gate_power.tables import Promise, markdown, promises


def compute() -> tuple[dict[str, list[Tally]], list[Seen]]:
    """Return all rows of all tables, and print each row when it is computed."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        trends = [pool.submit(observe, noise) for noise in NIGHTS]
        rows = {
            table: [pool.submit(simulate, scenario) for scenario in some]
            for table, some in scenarios().items()
        }
        for table, some in rows.items():
            for row in some:
                done = row.result()
                print(f"{table}: {done.scenario.noise}, {done.releases} releases", flush=True)
        return (
            {table: [row.result() for row in some] for table, some in rows.items()},
            [row.result() for row in trends],
        )


def told(promise: Promise) -> str:
    """Return one promise as a sentence."""
    limit = (
        f"at most {promise.at_most:.0%}"
        if promise.at_most is not None
        else f"at least {promise.at_least:.0%}"
    )
    word = "kept" if promise.is_kept else "BROKEN"
    return f"{word:6} {promise.words}: {promise.seen:.1%} ({limit})"


def main() -> int:
    """Compute; return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-write", action="store_true", help="leave the documentation as it is")
    args = parser.parse_args()
    begun = time.monotonic()
    results, trends = compute()
    text = markdown(results, trends)
    print(f"\n{text}\n")
    held = list(promises(results, trends))
    print("\n".join(map(told, held)))
    if not args.no_write:
        documented.write(text)
    print(summary(held, time.monotonic() - begun))
    return 0 if all(one.is_kept for one in held) else 1


def summary(held: list[Promise], seconds: float) -> str:
    """Return the last line: the worst figure of each kind."""
    kinds: dict[str, list[float]] = {}
    for one in held:
        kinds.setdefault(one.words.partition(",")[0], []).append(
            one.seen if one.at_most is not None else -one.seen
        )
    worst = ", ".join(f"{kind} {abs(max(seen)):.1%}" for kind, seen in kinds.items())
    broken = sum(not one.is_kept for one in held)
    return f"gate-power: {worst}; {len(held) - broken} of {len(held)} kept, {seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
