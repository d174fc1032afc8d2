"""What comparisons come to, for all benchmarks of a run at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.adapters.statistics.paired import PairedStatistics
from orchestrator.domain.gate.performance import Benchmark, Ruling, decide, pairs_needed
from orchestrator.domain.gate.verdict import RuleOutcome

OK, VIOLATED, UNKNOWN = RuleOutcome.OK, RuleOutcome.VIOLATED, RuleOutcome.UNKNOWN


def measured(slower: float = 0.0, *, noise: float = 0.01, pairs: int = 24, seed: int = 1):
    """A benchmark whose log ratios have exactly this mean."""
    ratios = np.random.default_rng(seed).standard_normal(pairs)
    ratios = noise * np.sqrt(2) * (ratios - ratios.mean()) / ratios.std()
    baseline = np.ones(pairs)
    return Benchmark(
        subject=(baseline * np.exp(ratios) * (1 + slower)).tolist(),
        baseline=baseline.tolist(),
        direction="lower",
        budget=0.03,
    )


def ruled(*benchmarks: Benchmark, min_pairs: int = 10) -> tuple[Ruling, ...]:
    return decide(benchmarks, PairedStatistics(), min_pairs=min_pairs, alpha=0.01, fdr=0.05)


def outcome(*benchmarks: Benchmark) -> list[RuleOutcome]:
    return [one.outcome for one in ruled(*benchmarks)]


def test_a_slow_down_beyond_the_budget_is_a_violation_and_one_within_is_none():
    slow, allowed, fine, faster = (measured(by) for by in (0.06, 0.02, 0.0, -0.1))
    assert outcome(slow, allowed, fine, faster) == [VIOLATED, OK, OK, OK]


def test_no_benchmark_is_no_ruling():
    assert ruled() == ()


def test_noise_is_never_a_pass():
    loud = ruled(measured(0.0, noise=0.1))[0]
    assert (loud.outcome, loud.reason) == (UNKNOWN, "too noisy to tell")
    assert loud.pairs_needed is not None
    assert loud.pairs_needed > 100


def test_what_seems_too_slow_and_is_not_certain_is_unknown():
    unsure = ruled(measured(0.035))[0]
    assert unsure.outcome is UNKNOWN
    assert "not certain" in unsure.reason
    assert unsure.pairs_needed is not None
    more = measured(0.035, pairs=unsure.pairs_needed)
    assert ruled(more)[0].outcome is VIOLATED


def test_exactly_at_the_budget_no_number_of_pairs_would_tell():
    beyond = ruled(measured(0.03000001))[0]
    assert (beyond.outcome, beyond.pairs_needed) == (UNKNOWN, None)


def test_too_few_pairs_are_no_evidence():
    few = ruled(measured(0.2, pairs=8))[0]
    assert (few.outcome, few.comparison, few.pairs_needed) == (UNKNOWN, None, 10)
    assert few.reason == "8 pairs of turns, and the policy wants 10"


def test_samples_that_say_nothing_are_unknown_with_the_reason():
    broken = ruled(replace(measured(), baseline=[0.0] * 24))[0]
    assert (broken.outcome, broken.pairs_needed) == (UNKNOWN, None)
    assert broken.reason == "24 of 48 turns measured no positive number"


def test_without_a_budget_it_is_shown_and_cannot_fail():
    shown, few = ruled(replace(measured(0.5), budget=None), replace(measured(pairs=3), budget=None))
    assert (shown.outcome, shown.adjusted, few.outcome) == (OK, None, OK)
    assert shown.comparison is not None
    assert shown.comparison.slowdown == pytest.approx(0.5, abs=0.01)


def test_the_more_is_tested_the_clearer_a_slow_down_must_be():
    slow = measured(0.04)
    assert outcome(slow) == [VIOLATED]
    fine = [measured(seed=seed) for seed in range(99)]
    assert outcome(slow, *fine)[0] is UNKNOWN
    alone, among = ruled(slow)[0], ruled(slow, *fine)[0]
    assert alone.comparison is not None
    assert among.comparison is not None
    assert alone.comparison.detectable < among.comparison.detectable
    assert among.adjusted == pytest.approx(100 * among.comparison.p)


def test_what_has_no_budget_does_not_count_among_the_tests():
    slow = measured(0.04)
    shown = [replace(measured(seed=seed), budget=None) for seed in range(99)]
    assert outcome(slow, *shown)[0] is VIOLATED


def test_higher_is_better_is_judged_the_other_way_round():
    rates = replace(measured(0.06), direction="higher")
    assert outcome(rates) == [OK]
    slower = replace(rates, subject=rates.baseline, baseline=rates.subject)
    assert outcome(slower) == [VIOLATED]


def test_a_budget_of_nothing_can_be_kept_and_broken():
    faster, slower = (replace(measured(by), budget=0.0) for by in (-0.05, 0.05))
    assert outcome(faster, slower) == [OK, VIOLATED]


def test_sizing_follows_the_noise_and_the_effect():
    assert pairs_needed(0.0141, 0.02) == 11
    assert pairs_needed(0.0282, 0.02) > 3 * pairs_needed(0.0141, 0.02)
    assert pairs_needed(0.0141, 0.01) > 3 * pairs_needed(0.0141, 0.02)
    assert pairs_needed(0.0141, 0.02, alpha=0.0005) > pairs_needed(0.0141, 0.02)
    assert pairs_needed(0.0, 0.02) == 3
    with pytest.raises(ValueError, match="cannot be sized"):
        pairs_needed(0.01, 0.0)
