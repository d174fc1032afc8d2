"""What comparisons come to, for all benchmarks of a run at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.adapters.statistics import PairedStatistics
from orchestrator.domain.gate.performance import (
    FEWEST_LAUNCHES,
    BenchmarkResult,
    BudgetedBenchmark,
    PairedComparison,
    decide,
    pairs_needed,
)
from orchestrator.domain.gate.verdict import RuleOutcome
from runners.agent import paired_benchmark

OK, VIOLATED, UNKNOWN = RuleOutcome.OK, RuleOutcome.VIOLATED, RuleOutcome.UNKNOWN


def measured(slower: float = 0.0, *, noise: float = 0.01, pairs: int = 24, seed: int = 1):
    """A benchmark whose log ratios have exactly this mean."""
    ratios = np.random.default_rng(seed).standard_normal(pairs)
    ratios = noise * np.sqrt(2) * (ratios - ratios.mean()) / ratios.std()
    baseline = np.ones(pairs)
    return BudgetedBenchmark(
        subject=(baseline * np.exp(ratios) * (1 + slower)).tolist(),
        baseline=baseline.tolist(),
        direction="lower",
        budget=0.03,
    )


def resident(slower: float, *, launches: int, seed: int, level: float = 0.02) -> BudgetedBenchmark:
    """Six pairs a launch, quiet ones; each launch is some per cent faster or slower by itself."""
    rng = np.random.default_rng(seed)
    levels = level * np.repeat(rng.standard_normal(launches), 6)
    ratios = levels + 0.003 * rng.standard_normal(6 * launches)
    return BudgetedBenchmark(
        subject=(np.exp(ratios) * (1 + slower)).tolist(),
        baseline=[1.0] * (6 * launches),
        direction="lower",
        budget=0.03,
        launches=np.repeat(np.arange(1.0, launches + 1), 6).tolist(),
    )


def compared(one: BudgetedBenchmark) -> PairedComparison:
    found = ruled(one, min_pairs=3)[0].comparison
    assert found is not None
    return found


def ruled(*benchmarks: BudgetedBenchmark, min_pairs: int = 10) -> tuple[BenchmarkResult, ...]:
    return decide(benchmarks, PairedStatistics(), min_pairs=min_pairs, alpha=0.01, fdr=0.05)


def outcome(*benchmarks: BudgetedBenchmark) -> list[RuleOutcome]:
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


@pytest.mark.parametrize("launches", [4, 5, 10, 30])
def test_pairs_of_one_process_are_not_as_many_witnesses(launches):
    at_budget = [resident(0.03, launches=launches, seed=seed) for seed in range(100)]
    believed = [replace(one, launches=()) for one in at_budget]
    assert outcome(*believed).count(VIOLATED) > 10
    assert outcome(*at_budget).count(VIOLATED) <= 1


@pytest.mark.parametrize("launches", [4, 5, 10, 30])
def test_each_end_is_passed_no_more_often_than_alpha_whatever_launches_share(launches):
    found = [compared(resident(0.03, launches=launches, seed=seed)) for seed in range(400)]
    assert sum(one.low > 0.03 for one in found) <= 10
    assert sum(one.high < 0.03 for one in found) <= 10
    assert all(one.launches == launches for one in found)


def test_a_slow_down_of_all_processes_is_found():
    assert outcome(resident(0.08, launches=20, seed=1)) == [VIOLATED]
    assert outcome(resident(0.0, launches=40, seed=1, level=0.01)) == [OK]


def test_few_launches_leave_it_to_the_pairs():
    few = resident(0.05, launches=3, seed=1)
    assert compared(few) == compared(replace(few, launches=()))
    assert compared(few).launches == 0
    assert FEWEST_LAUNCHES == paired_benchmark.FEWEST


TURN = st.floats(0.5, 2.0)
TAKEN = st.lists(st.tuples(TURN, TURN, st.integers(1, 8)), min_size=3, max_size=40)


@given(TAKEN, st.sampled_from([None, 0.0, 0.03]), st.sampled_from(["lower", "higher"]))
def test_launches_never_make_anything_more_certain(taken, budget, direction):
    subject, baseline, launches = zip(*taken, strict=True)
    one = BudgetedBenchmark(
        subject=subject,
        baseline=baseline,
        direction=direction,
        budget=budget,
        launches=launches,
    )
    pairs, both = compared(replace(one, launches=())), compared(one)
    assert (both.slowdown, both.pairs) == (pairs.slowdown, pairs.pairs)
    assert both.low <= pairs.low <= both.slowdown <= pairs.high <= both.high
    assert both.p >= pairs.p
    assert both.detectable >= pairs.detectable
    assert both.launches in {0, len(set(launches))}
    renamed = [10 - launch for launch in launches]
    assert compared(replace(one, launches=renamed)) == both
    assume(abs(both.p - 0.01) > 1e-9)
    assert (both.low > (budget or 0.0)) == (both.p < 0.01)


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
