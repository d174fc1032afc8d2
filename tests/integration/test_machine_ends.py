"""A machine that ended by itself is billed until it ended, however late that was noticed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial

import pytest

from orchestrator.application.cell.flow import run_cell
from orchestrator.domain.cell import CellState
from orchestrator.domain.machine import Machine, MachineState
from orchestrator.domain.matrix import Limits
from orchestrator.domain.money import machine_seconds, usd_for
from tests.integration.fake_world import FakeWorld
from tests.integration.test_cell_flow import check_invariants

NOTICED_AFTER_S = 53


@pytest.fixture
def here(tmp_path):
    world = FakeWorld(tmp_path, limits=Limits(max_usd=Decimal(10), infra_retries=0))
    yield world
    world.close()


class Dated:
    """A provider that tells when its machine ended, though it is asked long afterwards."""

    def __init__(self, inner, taken: list[datetime]) -> None:
        self._inner, self._taken = inner, taken

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def inspect(self, machine_id: str) -> Machine:
        machine = self._inner.inspect(machine_id)
        is_over = machine.state in (MachineState.STOPPING, MachineState.TERMINATED)
        return replace(machine, ended_at=self._taken[0]) if is_over and self._taken else machine


@pytest.mark.parametrize("ahead_s", [600, -600])
def test_a_cloud_whose_clock_is_wrong_adds_nothing_to_a_bill_and_takes_nothing_off(here, ahead_s):
    told: list[datetime] = []

    def note(world: FakeWorld) -> None:
        told[:] = [world.clock.now() + timedelta(seconds=ahead_s)]

    provider = Dated(here.world.provider("fake"), told)
    here.world = replace(here.world, provider=lambda _: provider)
    here.engine._flow = partial(run_cell, here.world)
    here.on_tick.append(note)
    [cell] = here.launch()
    here.engine.run(cell)
    shown = here.record().cells[0]
    [lease] = here.database.stores.leases.of_attempt(shown.attempts[0].id)
    [released] = [step.at for step in shown.transitions if str(step.to_state) == "releasing"]
    assert released <= lease.billed_until <= lease.gone_at
    spent_s = (lease.billed_until - lease.launched_at).total_seconds()
    assert lease.cost_usd == usd_for(Decimal(spent_s), lease.price_usd_per_hour)


@pytest.mark.parametrize("state", [CellState.BOOTING, CellState.RUNNING])
def test_a_preempted_machine_is_billed_by_its_providers_clock(here, state):
    here.cloud.boot_looks = 5
    taken: list[datetime] = []

    def take(world: FakeWorld) -> None:
        if not taken and world.record().cells[0].state is state:
            taken.append(world.clock.now())
            world.cloud.preempt(world.cloud.live()[0].id)
            world.clock.step(NOTICED_AFTER_S)

    provider = Dated(here.world.provider("fake"), taken)
    here.world = replace(here.world, provider=lambda _: provider)
    here.engine._flow = partial(run_cell, here.world)
    here.on_tick.append(take)
    [cell] = here.launch()
    here.engine.run(cell)
    check_invariants(here)
    shown = here.record().cells[0]
    assert shown.reason == "preempted"
    [lease] = here.database.stores.leases.of_attempt(shown.attempts[0].id)
    assert (lease.gone_at - taken[0]).total_seconds() >= NOTICED_AFTER_S
    spent_s = (taken[0] - lease.launched_at).total_seconds()
    assert machine_seconds(lease, here.clock.now()) == spent_s
