"""Skip what is proven on machines that cost nothing: decided once it is known what they are."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from orchestrator.domain.outcome import Outcome
from runners import registry
from tests.integration import nightly_story as scenery
from tests.integration.memory_engine import SimulatedCrashError
from tests.integration.nightly_story import failing_one, reused, script, whys, with_driver

nights = scenery.nights  # the fixture


@pytest.fixture
def own(nights):
    def traits(name: str):
        return replace(registry.traits(name), rented=False)

    nights.world.cloud.prices["north"] = Decimal(0)
    nights.world.world = replace(nights.world.world, traits=traits)
    return nights


LIFE = ["placing", "booting", "preparing", "releasing", "done"]


def test_on_a_machine_of_one_s_own_the_real_facts_decide(own):
    assert own.night().reason == ""
    second = own.night()
    assert (second.outcome, second.reason, reused(second)) == (
        Outcome.PASSED,
        "reused",
        ["one", "two"],
    )
    assert [str(step.to_state) for step in second.transitions] == LIFE
    assert own.world.database.stores.evidence.position("run-2-0-1").seq == 0
    own.world.on_tick.append(with_driver("580.2"))
    third = own.night()
    assert whys(third) == {"devices changed: none → 1 x nvidia L4; driver changed: none → 580.2"}
    own.world.on_tick[:] = [with_driver("580.3")]
    assert whys(own.night()) == {"driver changed: 580.2 → 580.3"}
    own.world.on_tick[:] = [with_driver("580.2")]
    assert {job.reused_from for job in own.night().jobs} == {"run-3"}


def test_there_too_only_the_others_run(own):
    own.world.on_tick.append(script(failing_one))
    own.night()
    own.world.on_tick.clear()
    again = own.night()
    assert reused(again) == ["two"]
    assert [str(step.to_state) for step in again.transitions][2:4] == ["preparing", "running"]
    tests = own.world.database.stores.results.tests("run-2-0")
    assert [test.job for test in tests] == ["one"]


@pytest.mark.parametrize("step", range(7))
def test_a_crash_at_any_step_there_changes_nothing_either(own, step):
    """After a step that was not written down: a crash before it finds less."""
    own.night()
    cell = own.begin()
    own.world.engine.crash_after = step
    with pytest.raises(SimulatedCrashError):
        own.world.engine.run(cell)
    own.world.engine.run(cell)
    told = own.told()
    assert (told.reason, reused(told)) == ("reused", ["one", "two"])
    assert [str(step.to_state) for step in told.transitions] == LIFE
