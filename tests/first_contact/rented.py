"""A machine that a call rents for minutes, and what is left of it: nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta

from orchestrator.adapters.ssh_key_pairs import new_login
from orchestrator.domain.machine import (
    CapacityError,
    LaunchRequest,
    Machine,
    MachineState,
    Offers,
    Place,
    Provider,
    ProviderError,
    QuotaError,
)
from tests.cloud_smoke.clouds import left, provider
from tests.first_contact.calls import PROJECT, Contact
from tests.platforms import as_platform

CLEAN_S = 600.0
LOOK_S = 2.0


@contextmanager
def renting(cloud: str, contact: Contact, number: int) -> Iterator[Provider]:
    """A provider of the first contact's own project; whatever happens, nothing of it stays."""
    rents = provider(cloud, PROJECT)
    try:
        yield rents
    finally:
        _clean(cloud, rents, contact, number)


def request_for(
    platform: Mapping[str, object], place: Place, contact: Contact, *, seconds: float, token: str
) -> LaunchRequest:
    """A launch request, as a controller makes it."""
    expires = (contact.now() + timedelta(seconds=seconds)).replace(microsecond=0)
    tags = {
        "seatrial-project": PROJECT,
        "seatrial-controller": "first-contact",
        "seatrial-run": "first-contact",
        "seatrial-cell": "first-contact",
        "seatrial-attempt": "first-contact",
        "seatrial-token": token,
        "seatrial-expires-at": str(int(expires.timestamp())),
    }
    return LaunchRequest(
        token, place, as_platform(platform), tags, login=new_login(), expires_at=expires
    )


def launched(
    rents: Provider,
    platform: Mapping[str, object],
    contact: Contact,
    number: int,
    *,
    seconds: float,
) -> tuple[LaunchRequest, Machine] | None:
    """A machine at the first place that has one; None where every place refuses."""
    assert isinstance(rents, Offers)
    for index, place in enumerate(rents.places(as_platform(platform))):
        token = f"contact-{number}-{index}-{int(contact.now().timestamp())}"
        request = request_for(platform, place, contact, seconds=seconds, token=token)
        try:
            machine = rents.launch(request)
        except (CapacityError, QuotaError) as error:
            contact.keep(number, f"launch at {place.name}", repr(error))
            continue
        contact.keep(number, f"launch at {place.name}", machine)
        return request, machine
    return None


def looks(
    rents: Provider, machine: Machine, contact: Contact, *, seconds: float
) -> Iterator[Machine]:
    """How it is, again and again, for so long."""
    end = contact.now() + timedelta(seconds=seconds)
    while contact.now() < end:
        with suppress(ProviderError):
            yield rents.inspect(machine.id)
        contact.sleep(LOOK_S)


def scanned_key(host: str, port: int) -> str:
    """The ed25519 host key that a machine presents; empty where it does not answer."""
    done = subprocess.run(
        ["ssh-keyscan", "-T", "5", "-t", "ed25519", "-p", str(port), host],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    return " ".join(lines[0].split()[1:3]) if lines else ""


def _clean(cloud: str, rents: Provider, contact: Contact, number: int) -> None:
    end = contact.now() + timedelta(seconds=CLEAN_S)
    while contact.now() < end:
        found = [one for one in left(cloud, PROJECT) if one.state is not MachineState.TERMINATED]
        if not found:
            return
        for one in found:
            with suppress(ProviderError):  # in use until its machine is gone
                rents.terminate(one.id)
        contact.sleep(LOOK_S)
    contact.keep(number, "what is left", [one.id for one in left(cloud, PROJECT)])
    raise RuntimeError(
        f"something of {PROJECT} is left: `SEATRIAL_PROJECT={PROJECT} seatrial machines --orphans "
        "--terminate` ends it"
    )
