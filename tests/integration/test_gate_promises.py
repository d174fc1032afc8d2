"""What the gate promises, with fewer seeds than `make gate-power`, and whether its page is current.

The seeds are fixed, so that these are tests and no lottery.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gate_power import documented
from benchmarks.gate_power.releases import BENCHMARKS, BUDGET, SLOWER, Scenario, simulate
from benchmarks.gate_power.series import observe
from benchmarks.gate_power.tables import PROMISED, TREND_PROMISED, markdown, promises

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("noise", PROMISED)
def test_a_release_without_a_slow_down_raises_no_alarm(noise):
    tally = simulate(Scenario(noise=noise), releases=2)
    assert tally.alarms == 0
    assert tally.first["ok"] == 2


@pytest.mark.parametrize("noise", PROMISED)
def test_one_slow_benchmark_among_a_hundred_is_named(noise):
    tally = simulate(Scenario(noise=noise, slowdown=SLOWER, slow=1), releases=3)
    assert (tally.found, tally.passed, tally.alarms) == (3, 0, 0)


def test_what_is_allowed_is_no_alarm():
    tally = simulate(Scenario(noise="normal", slowdown=0.02, slow=BENCHMARKS), releases=2)
    assert tally.alarms == 0


def test_a_noisy_machine_is_unknown_rather_than_ok():
    noisy = Scenario(noise="normal", slowdown=SLOWER, slow=1, size=0.05)
    tally = simulate(noisy, releases=2)
    assert tally.first["unknown"] > 0
    assert tally.passed == 0


def test_rules_over_fresh_machines_see_less_or_cry_wolf():
    slow = simulate(Scenario(noise="normal", slowdown=SLOWER, slow=1), releases=4)
    found = {name: counts[1] for name, counts in slow.rivals.items()}
    assert max(found["7 % rule"], found["z = 5 rule"]) <= 2
    assert slow.rivals["Mann-Whitney"][0] == 4


@pytest.mark.parametrize("noise", TREND_PROMISED)
def test_trends_raise_few_false_alarms_and_see_steps(noise):
    seen = observe(noise, series=15)
    assert seen.alarms == 0
    assert seen.found[8] >= 13


def test_series_that_wander_are_called_noisy():
    seen = observe("wandering (ρ 0.5)", series=10)
    assert (seen.noisy, seen.sure) == (10, 0)


def test_the_page_is_what_the_present_statistics_come_to():
    of_sample, of_tables = documented.written()
    assert documented.tables() == of_tables, "its tables were edited: run make gate-power"
    assert documented.sample() == of_sample, "the statistics changed: run make gate-power"


def test_every_table_can_be_written_and_every_promise_is_held_against_it():
    quiet = Scenario(noise="normal")
    edge = replace(quiet, slowdown=BUDGET, slow=BENCHMARKS)
    slow = replace(quiet, slowdown=SLOWER, slow=1)
    three = [simulate(one, releases=1) for one in (quiet, edge, slow)]
    both = [three[0], three[2]]
    results = {"families": three, "stopping": both}
    results |= dict.fromkeys(("effects", "sizes", "fixed"), both)
    trends = [observe("normal", series=2)]
    text = markdown(results, trends)
    assert text.count("### ") == 6
    held = list(promises(results, trends))
    assert len(held) == 5
    assert all(one.is_kept for one in held)
    assert not replace(held[0], seen=0.02).is_kept
    assert not replace(held[1], seen=0.9).is_kept
