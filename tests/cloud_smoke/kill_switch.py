"""A machine that nobody owns: does it end when it was told to?

It is rented straight from the provider, as a controller does that dies right after the call: no
ledger knows of it, and its project is one that no janitor sweeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from orchestrator.adapters.ssh_key_pairs import new_login
from orchestrator.domain.machine import (
    CapacityError,
    LaunchRequest,
    Machine,
    MachineState,
    Offers,
    Place,
    Provider,
    ProviderUnavailableError,
    QuotaError,
)
from tests.cloud_smoke.checks import Check
from tests.cloud_smoke.clouds import KILL_PROJECT, PLATFORMS, provider
from tests.platforms import as_platform

NAME = "kill-switch"
LOOK_S = 5.0
GRANT_S = 180.0
GRACE_S = 360.0
"""How long after its end it may still be there: a guest shuts down, a cloud takes its time."""
_REFUSED = frozenset({"capacity", "quota"})


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A machine that is to end by itself."""

    cloud: str
    provider: Provider
    machine: Machine
    expires_at: datetime


def abandon(cloud: str, *, minutes: float) -> Abandoned | Check:
    """Rent one that expires in so many minutes, wherever there is one; or say why not."""
    rents = provider(cloud, KILL_PROJECT)
    assert isinstance(rents, Offers)
    refused: list[str] = []
    for place in rents.places(as_platform(PLATFORMS[cloud])):
        request = _request(cloud, place, minutes)
        try:
            machine = _granted(rents, _repeated(lambda r=request: rents.launch(r)))
        except (CapacityError, QuotaError) as error:
            refused.append(f"{place.name}: {error.code or error}")
            continue
        if machine.ended in _REFUSED or machine.state is MachineState.TERMINATED:
            refused.append(f"{place.name}: {machine.ended or machine.detail}")
            continue
        assert request.expires_at
        return Abandoned(cloud, rents, machine, request.expires_at)
    return Check(cloud, NAME, "not shown", f"no machine was available: {'; '.join(refused)}")


def outlived(one: Abandoned, *, grace_s: float = GRACE_S) -> Check:
    """Watch it until it is gone, or has outlived its time by the grace."""
    for machine in _looks(one.provider, one.machine, until=one.expires_at, more_s=grace_s):
        if machine.state is MachineState.TERMINATED:
            late = (datetime.now(UTC) - one.expires_at).total_seconds()
            early = " EARLY" if late < -30 else ""
            verdict = "FAILED" if early else "ok"
            said = f"gone {late:.0f} s after its time{early}; {machine.ended or machine.detail}"
            return Check(one.cloud, NAME, verdict, said)
    return Check(one.cloud, NAME, "FAILED", f"still there {grace_s:.0f} s after its time")


def _request(cloud: str, place: Place, minutes: float) -> LaunchRequest:
    expires = (datetime.now(UTC) + timedelta(minutes=minutes)).replace(microsecond=0)
    token = f"smoke-{uuid4().hex[:12]}"
    tags = {
        "seatrial-project": KILL_PROJECT,
        "seatrial-controller": "smoke",
        "seatrial-run": "smoke",
        "seatrial-cell": cloud,
        "seatrial-attempt": "smoke",
        "seatrial-token": token,
        "seatrial-expires-at": str(int(expires.timestamp())),
    }
    platform = PLATFORMS[cloud]
    return LaunchRequest(
        token, place, as_platform(platform), tags, login=new_login(), expires_at=expires
    )


def _repeated(launch: Callable[[], Machine]) -> Machine:
    """The same call with the same token, while nobody knows how it went."""
    for wait_s in (1.0, 4.0, 15.0):
        try:
            return launch()
        except ProviderUnavailableError:
            time.sleep(wait_s)
    return launch()


def _granted(rents: Provider, machine: Machine) -> Machine:
    limit = datetime.now(UTC) + timedelta(seconds=GRANT_S)
    for seen in _looks(rents, machine, until=limit):
        # Gone without a reason, so early, is only not visible yet.
        if seen.state is MachineState.TERMINATED and not seen.ended:
            continue
        machine = seen
        if machine.state is not MachineState.REQUESTED:
            break
    return machine


def _looks(
    rents: Provider, machine: Machine, *, until: datetime, more_s: float = 0.0
) -> Iterator[Machine]:
    end = until + timedelta(seconds=more_s)
    while datetime.now(UTC) < end:
        with suppress(ProviderUnavailableError):
            seen = rents.inspect(machine.id)
            yield seen
        time.sleep(LOOK_S)
