"""The tables as Markdown, and the promises about their figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from benchmarks.gate_power.noise import BY_LAUNCH
from benchmarks.gate_power.releases import BENCHMARKS, BUDGET, SAMPLING, SLOWER, Tally
from benchmarks.gate_power.rivals import RIVALS
from benchmarks.gate_power.series import AGO, RULES, Seen
from orchestrator.domain.gate.performance import pairs_needed

Results = Mapping[str, Sequence[Tally]]
PROMISED = (
    "normal",
    "heavy tails (t3)",
    "3 % outliers",
    "linear drift",
    "warming up",
    BY_LAUNCH,
)
"""Noise of turns for which the gate's power is promised."""
TREND_PROMISED = ("normal", "heavy tails (t3)", "3 % outliers")


@dataclass(frozen=True, slots=True)
class Promise:
    """A floor: the required and the computed figure."""

    words: str
    seen: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the promise holds."""
        return (self.at_most is None or self.seen <= self.at_most) and (
            self.at_least is None or self.seen >= self.at_least
        )


def promises(results: Results, trends: Sequence[Seen]) -> Iterator[Promise]:
    """Yield every promise."""
    for tally in results["families"]:
        noise = tally.scenario.noise
        if tally.scenario.slow == 0:
            words = f"false alarms per release, {noise}"
            yield Promise(words, tally.alarms / tally.releases, at_most=0.01)
        elif tally.slow and noise in PROMISED:
            words = f"slow-downs of 5 % found, {noise}"
            yield Promise(words, tally.found / tally.slow, at_least=0.95)
    for tally in results["stopping"]:
        if tally.scenario.slow == 0:
            words = f"false alarms per release, precision {tally.scenario.precision:.2%}"
            yield Promise(words, tally.alarms / tally.releases, at_most=0.01)
    for seen in trends:
        if seen.noise in TREND_PROMISED:
            words = f"false trend alarms per series, {seen.noise}"
            yield Promise(words, seen.alarms / seen.series, at_most=0.03)
            words = f"steps found after {AGO[-1]} runs, {seen.noise}"
            yield Promise(words, seen.found[AGO[-1]] / seen.series, at_least=0.9)


def markdown(results: Results, trends: Sequence[Seen]) -> str:
    """Return the generated section of the documentation."""
    parts = (
        _families(results["families"]),
        _effects(results["effects"]),
        _sizes(results["sizes"]),
        _fixed(results["fixed"]),
        _stopping(results["stopping"]),
        _trends(trends),
    )
    return "\n\n".join("\n".join(part) for part in parts)


def _families(tallies: Sequence[Tally]) -> Iterable[str]:
    yield "### The gate, and rules over fresh machines, by noise"
    yield ""
    yield (
        f"{BENCHMARKS} benchmarks a release, budget {BUDGET:.0%}, turns with 1 % noise. "
        f"*False*: releases with an alarm though nothing is slower. *At budget*: the same where "
        f"all {BENCHMARKS} are slower by exactly what is allowed. *Found*: the only benchmark "
        f"that is {SLOWER:.0%} slower is named. *Let through*: it counts as ok."
    )
    yield ""
    rivals = [f"{name}: false | found" for name in RIVALS]
    yield from _head(
        "noise of turns", "false", "at budget", "found", "let through", "pairs", *rivals
    )
    for quiet, edge, slow in zip(tallies[::3], tallies[1::3], tallies[2::3], strict=True):
        yield _row(
            quiet.scenario.noise,
            _share(quiet.alarms, quiet.releases),
            _share(edge.alarms, edge.releases),
            _share(slow.found, slow.slow),
            _share(slow.passed, slow.slow),
            f"{fmean(slow.pairs):.0f}",
            *(
                cell
                for name in RIVALS
                for cell in (
                    _share(quiet.rivals[name][0], quiet.releases),
                    _share(slow.rivals[name][1], slow.slow),
                )
            ),
        )


def _effects(tallies: Sequence[Tally]) -> Iterable[str]:
    yield "### By how much slower one benchmark is (normal noise, 1 %)"
    yield ""
    yield from _head("slower by", "violated", "ok", "unknown", *RIVALS)
    for tally in tallies:
        slow, words = tally.scenario.slowdown, ""
        if not tally.scenario.is_regression:
            words = " (allowed)"
        yield _row(
            f"{slow:.0%}{words}",
            _share(tally.first["violated"], tally.releases),
            _share(tally.first["ok"], tally.releases),
            _share(tally.first["unknown"], tally.releases),
            *(_share(tally.rivals[name][2], tally.releases) for name in RIVALS),
        )


def _sizes(tallies: Sequence[Tally]) -> Iterable[str]:
    yield "### By noise of the machine (one benchmark 5 % slower)"
    yield ""
    yield from _head("noise of turns", "found", "let through", "pairs", "detectable")
    for tally in tallies:
        yield _row(
            f"{tally.scenario.size:.1%}",
            _share(tally.found, tally.slow),
            _share(tally.passed, tally.slow),
            f"{fmean(tally.pairs):.0f}",
            f"{median(tally.detectable):.1%}",
        )


def _fixed(tallies: Sequence[Tally]) -> Iterable[str]:
    strict = 0.05 / BENCHMARKS
    need = pairs_needed(0.01 * math.sqrt(2), math.log(1.05 / 1.03), alpha=strict)
    yield "### By a fixed number of pairs (noise 1 %, one benchmark 5 % slower)"
    yield ""
    yield f"The sizing rule asks for {need} pairs of turns for a power of 95 %."
    yield ""
    yield from _head("pairs", "found", "let through", "detectable")
    for tally in tallies:
        yield _row(
            str(tally.scenario.pairs),
            _share(tally.found, tally.slow),
            _share(tally.passed, tally.slow),
            f"{median(tally.detectable):.1%}",
        )


def _stopping(tallies: Sequence[Tally]) -> Iterable[str]:
    yield f"### By the precision at which the agent stops (noise 1 %, {_range()})"
    yield ""
    yield from _head("precision", "pairs", "false", "found", "let through")
    for quiet, slow in zip(tallies[::2], tallies[1::2], strict=True):
        yield _row(
            f"{quiet.scenario.precision:.2%}",
            f"{fmean(quiet.pairs):.0f}",
            _share(quiet.alarms, quiet.releases),
            _share(slow.found, slow.slow),
            _share(slow.passed, slow.slow),
        )


def _range() -> str:
    return f"{SAMPLING.min_pairs} to {SAMPLING.max_pairs} pairs"


def _trends(trends: Sequence[Seen]) -> Iterable[str]:
    yield "### Trends (80 runs, noise 2 %, a step of 5 %)"
    yield ""
    yield (
        "*False*: series without a step in which one is seen; *of these sure*: and that are not "
        "called noisy. *After n runs*: steps told of within two runs of their place, in series "
        "that are not called noisy. The rules look at every night after the first twenty; *found* "
        "is one alarm within eight nights."
    )
    yield ""
    found = [f"after {ago} runs" for ago in AGO]
    rules = [f"{name}: false | found" for name in RULES]
    yield from _head("noise of runs", "false", "of these sure", "called noisy", *found, *rules)
    for seen in trends:
        yield _row(
            seen.noise,
            _share(seen.alarms, seen.series),
            _share(seen.sure, seen.series),
            _share(seen.noisy, seen.series),
            *(_share(seen.found[ago], seen.series) for ago in AGO),
            *(_share(count, seen.series) for name in RULES for count in seen.rules[name]),
        )


def _head(*names: str) -> Iterator[str]:
    columns = " | ".join(names)
    yield f"| {columns} |"
    yield "|---" + "|---:" * (columns.count("|")) + "|"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"
