"""A machine that cannot be reached is an error of infrastructure, whatever the clock says."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import pairwise

import pytest

from orchestrator.application.cell.flow import run_cell
from orchestrator.application.cell.flow_context import Timings
from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.machine import (
    AuthenticationError,
    ClosedPortError,
    HostKeyError,
    ProviderUnavailableError,
    SshAddress,
    UnreachableError,
)
from orchestrator.domain.matrix import Host, Limits
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import CellRecord
from runners import registry
from runners.fake import FakeWorkspace
from tests.integration.fake_world import BEGIN, FakeWorld
from tests.integration.test_cell_flow import check_invariants

SAID = "u@h:22: no connection ([Errno 111] Connection refused)"


@pytest.fixture
def here(tmp_path):
    world = FakeWorld(tmp_path)
    yield world
    world.close()


class Shut(FakeWorkspace):
    """Its machine answers from a phase of the cell on no more."""

    def __init__(self, here: FakeWorld, computer, error: Exception, since: CellState) -> None:
        super().__init__(computer)
        self._here, self._error, self._since = here, error, since

    def _touch(self) -> None:
        cells = self._here.database.stores.cells
        if any(cell.has_reached(self._since) for cell in cells.of_run("run")):
            raise self._error
        super()._touch()


def shut(here: FakeWorld, error: Exception, *, since: CellState, rented: bool, **limits) -> Cause:
    """How the last attempt of a cell ends whose machine does not answer from a phase on."""
    here.limits = Limits(max_usd=Decimal(10), **{"infra_retries": 0, **limits})

    def workspace(endpoint):
        return Shut(here, here.cloud.computer(endpoint.machine_id), error, since)

    def traits(name: str):
        return replace(registry.traits(name), rented=rented)

    timings = Timings(boot_s=60, own_boot_s=20, prepare_s=60, contact_timeout_s=30)
    here.world = replace(here.world, open_workspace=workspace, traits=traits, timings=timings)
    here.engine._flow = partial(run_cell, here.world)
    [cell] = here.launch()
    here.engine.run(cell)
    check_invariants(here)
    *_, attempt = here.record().cells[0].attempts
    assert attempt.cause is not None
    return attempt.cause


@pytest.mark.parametrize("max_minutes", [0.25, 600])
@pytest.mark.parametrize("rented", [True, False])
@pytest.mark.parametrize(
    ("since", "reason"),
    [
        (CellState.BOOTING, "ssh"),
        (CellState.PREPARING, "ssh"),
        (CellState.RUNNING, "lost"),
    ],
)
def test_a_machine_that_cannot_be_reached_is_never_out_of_time(
    here, since, reason, rented, max_minutes
):
    cause = shut(here, UnreachableError(SAID), since=since, rented=rented, max_minutes=max_minutes)
    assert (cause.outcome, cause.reason) == (Outcome.ERRORED, reason)
    assert SAID in cause.detail
    if not rented:
        seconds = (here.clock.now() - BEGIN).total_seconds()
        assert seconds < 50, "a host of one's own is not waited for as if it had to boot"


@pytest.mark.parametrize("rented", [True, False])
@pytest.mark.parametrize(
    ("error", "reason"), [(AuthenticationError("not you"), "auth"), (HostKeyError("x"), "host_key")]
)
def test_a_machine_that_refuses_us_is_no_timeout_either(here, error, reason, rented):
    cause = shut(here, error, since=CellState.BOOTING, rented=rented, max_minutes=2)
    assert (cause.outcome, cause.reason) == (Outcome.ERRORED, reason)


@pytest.mark.parametrize(
    ("error", "hosts", "rented", "attempts"),
    [
        (ClosedPortError(SAID), ("a",), False, 1),
        (HostKeyError("another"), ("a",), False, 1),
        (ClosedPortError(SAID), ("a", "b"), False, 3),
        (HostKeyError("another"), ("a", "b"), False, 3),
        (UnreachableError("no answer"), ("a",), False, 3),
        (ClosedPortError(SAID), ("a",), True, 3),
        (HostKeyError("another"), ("a",), True, 3),
    ],
)
def test_a_definite_answer_of_the_only_host_is_not_asked_for_again(
    here, error, hosts, rented, attempts
):
    here.locations = hosts
    cause = shut(here, error, since=CellState.BOOTING, rented=rented, infra_retries=2)
    assert len(here.record().cells[0].attempts) == attempts
    assert ("there is no other host to try" in cause.detail) == (attempts == 1)
    feed = [str(item.data) for item in here.database.stores.run_events.after("run", 0)]
    wait = "1m 00s" if rented else "20s"
    which = "try 1 of 3, " if attempts > 1 else ""
    told = [data for data in feed if f"{error.in_short} ({which}up to {wait})" in data]
    assert len(told) == (1 if isinstance(error, UnreachableError) else 0)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ClosedPortError(SAID), "connection refused (up to 1m 00s)"),
        (UnreachableError("gone", in_short="no route"), "no route (up to 1m 00s)"),
        (UnreachableError("gone"), "no answer (up to 1m 00s)"),
        (AuthenticationError("not you"), "cannot sign in"),
    ],
)
def test_a_machine_that_is_waited_for_is_said_to_do_what_it_did(here, error, said):
    shut(here, error, since=CellState.BOOTING, rented=True)
    feed = [item.data for item in here.database.stores.run_events.after("run", 0)]
    assert [data["notice"] for data in feed if "notice" in data] == [f"{said}: {error}"]


@pytest.mark.parametrize(
    ("error", "since", "rented", "is_held"),
    [
        (ClosedPortError(SAID), CellState.BOOTING, False, False),
        (AuthenticationError("not you"), CellState.BOOTING, False, False),
        (HostKeyError("another"), CellState.BOOTING, False, False),
        (UnreachableError(SAID), CellState.PREPARING, False, True),
        (ClosedPortError(SAID), CellState.BOOTING, True, True),
    ],
)
def test_a_host_of_ones_own_is_held_from_its_first_answer_on(here, error, since, rented, is_held):
    shut(here, error, since=since, rented=rented)
    [lease] = here.record().cells[0].leases
    assert lease.state == "gone"
    assert (lease.seconds > 0) == is_held


TUNNEL = ("tunnel", "vm-1")
BASTION = Host(address="b", user="u", key_file="k", host_key="ssh-ed25519 AAAA")
FIRST, SECOND = "ssh-ed25519 AAAAfirst", "ssh-ed25519 AAAAsecond"


class Republishing:
    """A provider whose guests publish a second host key after some looks."""

    def __init__(self, inner, looks: int, silent: int = 0) -> None:
        self._inner, self._looks = inner, looks
        self._silent = silent
        """At which look it does not answer."""
        self.asked = 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def inspect(self, machine_id):
        self.asked += 1
        machine = self._inner.inspect(machine_id)
        if machine.endpoint is None:
            return machine
        self._looks -= 1
        if self._looks + 1 == self._silent:
            raise ProviderUnavailableError("throttled")
        key = FIRST if self._looks >= 0 else SECOND
        way = SshAddress("10.0.0.1", "u", host_key=key, proxy_command=TUNNEL)
        return replace(machine, endpoint=way)


def made_anew(here: FakeWorld, *, looks: int, accepted: str = SECOND, **limits) -> CellRecord:
    """A cell whose machine has a host key that is not the one that it published at first."""
    here.limits = Limits(max_usd=Decimal(10), **limits)
    keys = []

    def workspace(endpoint):
        keys.append(endpoint.host_key)
        if endpoint.host_key != accepted:
            return Shut(here, here.computers()[-1], HostKeyError("another"), CellState.QUEUED)
        return FakeWorkspace(here.computers()[-1])

    provider = Republishing(here.world.provider("fake"), looks)
    here.world = replace(here.world, open_workspace=workspace, provider=lambda _: provider)
    here.engine._flow = partial(run_cell, here.world)
    [cell] = here.launch()
    here.engine.run(cell)
    check_invariants(here)
    assert set(keys[keys.index(accepted) :] if accepted in keys else keys) <= {accepted, FIRST}
    return here.record().cells[0]


def test_a_host_key_that_the_guest_made_anew_is_believed_until_the_first_contact(here):
    """Google's guest agent makes new keys at the first boot, after the first were published."""
    cell = made_anew(here, looks=4)
    assert cell.outcome is Outcome.PASSED
    assert len(cell.attempts) == 1


def test_a_host_key_that_no_guest_published_is_never_spoken_to(here):
    cell = made_anew(here, looks=10_000, infra_retries=1)
    assert (cell.outcome, cell.reason) == (Outcome.ERRORED, "host_key")
    assert len(cell.attempts) == 2, "another machine may have the right one"
    assert (here.clock.now() - BEGIN).total_seconds() < 900, "nobody pays for a long wait"


@pytest.mark.parametrize(
    ("looks", "silent", "outcome"),
    [(8, 0, Outcome.PASSED), (8, 2, Outcome.PASSED), (10_000, 0, Outcome.ERRORED)],
)
def test_a_host_key_made_anew_after_the_first_contact_is_believed_once_it_is_published(
    here, looks, silent, outcome
):
    """The guest agent is some seconds late; until it publishes, nobody is spoken to."""
    here.limits = Limits(max_usd=Decimal(10), infra_retries=0)
    spoken_to: list[str] = []
    refused_at: list[int] = []

    class Anew(FakeWorkspace):
        """Of a guest that has another host key after the first contact."""

        def __init__(self, endpoint) -> None:
            super().__init__(here.computers()[-1])
            self._key = endpoint.host_key

        def _touch(self) -> None:
            if FIRST in spoken_to and self._key == FIRST:
                refused_at.append(provider.asked)
                raise HostKeyError("another")
            spoken_to.append(self._key)
            super()._touch()

    provider = Republishing(here.world.provider("fake"), looks, silent)
    here.world = replace(here.world, open_workspace=Anew, provider=lambda _: provider)
    here.engine._flow = partial(run_cell, here.world)
    [cell] = here.launch()
    here.engine.run(cell)
    check_invariants(here)
    assert here.record().cells[0].outcome is outcome
    assert here.record().cells[0].reason == ("" if outcome is Outcome.PASSED else "host_key")
    assert (here.clock.now() - BEGIN).total_seconds() < 900
    assert spoken_to[:1] == [FIRST]
    assert set(spoken_to[1:]) == ({SECOND} if outcome is Outcome.PASSED else set())
    assert len(refused_at) > 2
    assert all(after - before <= 1 for before, after in pairwise(refused_at)), "one look per poll"


def test_no_job_begins_before_a_guest_had_the_time_to_make_its_host_key_anew(here):
    """A machine that is prepared at once: its guest agent comes three seconds later."""
    here.limits = Limits(max_usd=Decimal(10), infra_retries=0)
    contacts: list[datetime] = []

    def key() -> str:
        late = contacts and here.clock.now() >= contacts[0] + timedelta(seconds=3)
        return SECOND if late else FIRST

    class Guest(FakeWorkspace):
        def __init__(self, endpoint) -> None:
            super().__init__(here.computers()[-1])
            self._key = endpoint.host_key

        def _touch(self) -> None:
            if self._key != key():
                raise HostKeyError("another")
            contacts.append(here.clock.now())
            super()._touch()

    class Publishing(Republishing):
        def inspect(self, machine_id):
            machine = self._inner.inspect(machine_id)
            if machine.endpoint is None:
                return machine
            return replace(machine, endpoint=SshAddress("10.0.0.1", "u", host_key=key()))

    provider = Publishing(here.world.provider("fake"), 0)
    here.world = replace(here.world, open_workspace=Guest, provider=lambda _: provider)
    here.engine._flow = partial(run_cell, here.world)
    [cell] = here.launch()
    here.engine.run(cell)
    check_invariants(here)
    assert here.record().cells[0].outcome is Outcome.PASSED, here.record().cells[0].detail


def test_whoever_waits_is_told_why(here):
    told = []

    def look(world: FakeWorld) -> None:
        told.append((world.record().cells[0].state, world.record().cells[0].detail))

    here.on_tick.append(look)
    shut(here, UnreachableError(SAID), since=CellState.BOOTING, rented=False)
    waiting = [detail for state, detail in told if state is CellState.BOOTING]
    assert f"waiting for machine fake-run-0-1-1 to answer; last error: {SAID}" in waiting
    feed = [str(item.data) for item in here.database.stores.run_events.after("run", 0)]
    assert sum(SAID in data for data in feed) == 1


def test_a_machine_that_answers_again_is_no_longer_said_to_be_silent(here):
    def cut_once(world: FakeWorld) -> None:
        for computer in world.computers():
            computer.cut() if 4 < computer.looks < 20 else computer.heal()

    here.on_tick.append(cut_once)
    [cell] = here.launch()
    here.engine.run(cell)
    assert here.record().cells[0].detail == ""
    feed = [str(item.data) for item in here.database.stores.run_events.after("run", 0)]
    assert any("no answer" in data for data in feed)
    assert any("answers now" in data for data in feed)


def test_what_is_not_prepared_in_time_never_ran_too_long(here):
    """The machine answers, and is not done with itself before the deadline."""
    here.limits = Limits(max_usd=Decimal(10), max_minutes=0.25)
    [cell] = here.launch()
    here.cloud.boot_looks = 40
    here.engine.run(cell)
    check_invariants(here)
    shown = here.record().cells[0]
    assert shown.outcome is Outcome.ERRORED
    assert shown.counts.collected == 0


def test_a_machine_is_reached_by_the_way_of_its_provider_and_platform(here):
    here.bastion = BASTION
    ways = []

    def workspace(endpoint):
        ways.append(endpoint)
        return FakeWorkspace(here.computers()[-1])

    provider = Republishing(here.world.provider("fake"), 10_000)
    here.world = replace(here.world, open_workspace=workspace, provider=lambda _: provider)
    here.engine._flow = partial(run_cell, here.world)
    [cell] = here.launch()
    here.engine.run(cell)
    check_invariants(here)
    assert {(way.proxy_command, way.bastion) for way in ways} == {(TUNNEL, BASTION)}
