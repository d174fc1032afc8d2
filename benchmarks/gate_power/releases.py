"""Simulated releases of a hundred benchmarks, decided by the product's own functions.

Turns are taken in the agent's order (subject, baseline, baseline, subject), until its own rule has
enough of them; the ruling is `decide` with the statistics of the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.gate_power.noise import BY_LAUNCH, PAIRS_A_LAUNCH, TURNS, Values, generator
from benchmarks.gate_power.rivals import RIVALS, nights
from orchestrator.adapters.statistics import PairedStatistics
from orchestrator.domain.gate.performance import BenchmarkResult, BudgetedBenchmark, decide
from orchestrator.domain.gate.policy import PerformanceRule
from orchestrator.domain.gate.verdict import RuleOutcome
from orchestrator.domain.matrix import Baseline
from runners.agent.paired_benchmark import known_to

BENCHMARKS = 100
BUDGET = 0.03
SLOWER = 0.05
"""Slow-down that must be detected."""
QUIET = 300
"""Number of releases without a slow-down: no alarm in them means at most 1 %, with 95 %."""
EFFECTS = (0.0, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1)
RULE = PerformanceRule(budgets=())
SAMPLING = Baseline()
"""Number of turns: the precision is a fifth of the budget, as the page advises."""
_OUTCOMES = ("ok", "violated", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row: the benchmarks of many simulated releases."""

    noise: str
    slowdown: float = 0.0
    slow: int = 0
    """Number of benchmarks that are slower by `slowdown`; all others are unchanged."""
    size: float = 0.01
    precision: float | None = SAMPLING.half_width
    """The agent's precision; None takes exactly `pairs`."""
    pairs: int = SAMPLING.max_pairs
    """The maximum number of pairs, or their exact number."""
    releases: int = 100

    @property
    def launch(self) -> int:
        """Number of pairs that one start of both arms takes."""
        return PAIRS_A_LAUNCH if self.noise == BY_LAUNCH else SAMPLING.max_pairs

    @property
    def is_regression(self) -> bool:
        """Whether some benchmarks are slower than allowed."""
        return self.slow > 0 and self.slowdown > BUDGET


@dataclass(slots=True)
class Tally:
    """Results of a scenario."""

    scenario: Scenario
    releases: int = 0
    alarms: int = 0
    """Number of releases with a false alarm."""
    slow: int = 0
    found: int = 0
    passed: int = 0
    """Number of slow benchmarks that were not found."""
    first: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_OUTCOMES, 0))
    """Number of outcomes of the first benchmark, by outcome."""
    pairs: list[int] = field(default_factory=list)
    detectable: list[float] = field(default_factory=list)
    p: float = 0.0
    """Sum of all ratios, which shows whether the computation changed."""
    rivals: dict[str, list[int]] = field(default_factory=dict)
    """By rule: releases with a false alarm, slow benchmarks found, alarms of the first one."""


def simulate(scenario: Scenario, *, releases: int | None = None) -> Tally:
    """Simulate `releases` releases, or as many as the scenario requests."""
    tally, statistics = Tally(scenario), PairedStatistics()
    tally.rivals = {name: [0, 0, 0] for name in RIVALS}
    slow = np.arange(BENCHMARKS) < scenario.slow
    for number in range(releases or scenario.releases):
        rng = generator(*_place(scenario), number)
        subject, baseline = _turns(rng, scenario, slow)
        benchmarks = [_sampled(scenario, *both) for both in zip(subject, baseline, strict=True)]
        rulings = decide(
            benchmarks,
            statistics,
            min_pairs=min(RULE.min_pairs, scenario.pairs),
            alpha=float(RULE.alpha),
            fdr=float(RULE.fdr),
        )
        _count(tally, rulings, slow)
        _count_rivals(tally, rng, subject, slow)
    return tally


def _place(scenario: Scenario) -> tuple[str | int, ...]:
    """Return the key of the random numbers: the same turns, however many are taken."""
    return (
        scenario.noise,
        round(scenario.size * 1e6),
        round(scenario.slowdown * 1e6),
        scenario.slow,
    )


def _turns(rng: np.random.Generator, scenario: Scenario, slow: Values) -> tuple[Values, Values]:
    """Return the logarithms of the turns of both arms, by benchmark."""
    pairs = SAMPLING.max_pairs
    turns = TURNS[scenario.noise](rng, (BENCHMARKS, 2 * pairs), scenario.size)
    place = np.arange(2 * pairs) % 4
    subject, baseline = turns[:, (place == 0) | (place == 3)], turns[:, (place == 1) | (place == 2)]
    return subject + np.log1p(scenario.slowdown) * slow[:, np.newaxis], baseline


def _sampled(scenario: Scenario, subject: Values, baseline: Values) -> BudgetedBenchmark:
    pairs, launch = scenario.pairs, scenario.launch
    if scenario.precision is not None:
        ratios = (subject - baseline).tolist()
        pairs = SAMPLING.min_pairs
        while pairs < scenario.pairs and known_to(ratios[:pairs], launch) > scenario.precision:
            pairs += 2
    return BudgetedBenchmark(
        subject=np.exp(subject[:pairs]).tolist(),
        baseline=np.exp(baseline[:pairs]).tolist(),
        direction="lower",
        budget=BUDGET,
        launches=[pair // launch for pair in range(pairs)],
    )


def _count(tally: Tally, rulings: tuple[BenchmarkResult, ...], slow: Values) -> None:
    tally.releases += 1
    outcomes = np.array([one.outcome.value for one in rulings])
    regressed = slow if tally.scenario.is_regression else np.zeros_like(slow)
    violated = outcomes == RuleOutcome.VIOLATED.value
    tally.alarms += bool(np.any(violated & ~regressed))
    tally.slow += int(regressed.sum())
    tally.found += int(np.sum(violated & regressed))
    tally.passed += int(np.sum((outcomes == RuleOutcome.OK.value) & regressed))
    tally.first[rulings[0].outcome.value] += 1
    for one in rulings:
        if one.comparison is not None:
            tally.pairs.append(one.comparison.pairs)
            tally.detectable.append(one.comparison.detectable)
            tally.p += one.comparison.p


def _count_rivals(tally: Tally, rng: np.random.Generator, subject: Values, slow: Values) -> None:
    scenario = tally.scenario
    regressed = slow if scenario.is_regression else np.zeros_like(slow)
    seen = nights(rng, TURNS[scenario.noise], scenario.size, subject)
    for name, rule in RIVALS.items():
        alarms = rule(seen)
        tally.rivals[name][0] += bool(np.any(alarms & ~regressed))
        tally.rivals[name][1] += int(np.sum(alarms & regressed))
        tally.rivals[name][2] += bool(alarms[0])


def scenarios() -> Mapping[str, tuple[Scenario, ...]]:
    """Return all scenarios, by table."""
    one = {"noise": "normal", "slow": 1, "slowdown": SLOWER}
    return {
        "families": tuple(
            scenario
            for noise in TURNS
            for scenario in (
                Scenario(noise=noise, releases=QUIET),
                Scenario(noise=noise, slowdown=BUDGET, slow=BENCHMARKS),
                Scenario(noise=noise, slowdown=SLOWER, slow=1, releases=200),
            )
        ),
        "effects": tuple(Scenario(**one | {"slowdown": by}) for by in EFFECTS),
        "sizes": tuple(Scenario(**one, size=size) for size in (0.005, 0.01, 0.02, 0.03)),
        "fixed": tuple(
            Scenario(**one, precision=None, pairs=pairs) for pairs in (10, 15, 20, 30, 60)
        ),
        "stopping": tuple(
            scenario
            for precision in (0.015, 0.0075, 0.006, 0.005)
            for scenario in (
                Scenario(noise="normal", precision=precision),
                Scenario(**one, precision=precision),
            )
        ),
    }
