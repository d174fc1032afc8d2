"""What the API answers about machines: leases, decisions, what was seen, and how to enter."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from orchestrator.api.models import ResponseModel, Usd
from orchestrator.application.janitor import Standing
from orchestrator.domain.cell import PlaceAnswer
from orchestrator.domain.machine import MachineState


class BillResponse(ResponseModel):
    """What was or will be paid; the parts come to the total."""

    machine_usd: Usd
    disk_usd: Usd
    address_usd: Usd
    total_usd: Usd


class MachineResponse(ResponseModel):
    """A machine as the ledger has it."""

    provider: str
    place: str
    id: str
    """As its provider calls it; empty where none was given."""
    address: str
    state: str
    """Of the lease: reserved, launching, held, releasing or gone."""
    price_usd_per_hour: Usd | None
    seconds: float
    """From the launch call until it was gone, or until now."""
    instance_type: str
    market: str
    """``spot`` or ``on-demand``."""
    region: str
    zone: str
    image_id: str
    image_name: str
    simulated: bool
    """Its provider is an emulation: no gate accepts what it produced."""


class LeaseResponse(MachineResponse):
    """One row of the ledger."""

    attempt: int
    cost_usd: Usd
    """What was settled, or what it comes to so far."""
    bill: BillResponse
    """The parts of the cost."""
    billed_s: int
    """Seconds of the machine's price: whole ones, and at least the offer's minimum."""
    priced: str
    """Where its prices are from, and of when."""
    refusal: str
    """The provider's answer where it gave no machine."""


class DecisionResponse(ResponseModel):
    """One line of why a cell's machine is where it is."""

    at: datetime
    attempt: int
    place: str
    verdict: PlaceAnswer
    reason: str
    """One word; empty where the place was chosen."""
    detail: str
    """The provider's answer, or what is known."""


class DeviceResponse(ResponseModel):
    """One accelerator, as the machine's own tool names it."""

    vendor: str
    name: str
    uuid: str
    compute_capability: str
    driver: str


class AttestationResponse(ResponseModel):
    """Who produced the results."""

    facts: dict[str, str]
    """The provider's: instance id and type, zone, market, image id and name."""
    devices: list[DeviceResponse]
    torch: str
    simulated: bool
    """The provider is an emulation: no gate accepts these results."""
    mismatch: str
    """How the devices differ from what the matrix asked for; empty when they do not."""


class SightResponse(ResponseModel):
    """One thing that a cloud shows, and what is made of it."""

    provider: str
    id: str
    kind: str
    """``machine``, or what else costs or lingers: ``disk``, ``firewall`` ..."""
    state: MachineState
    standing: Standing
    """``orphan``, ``expired`` and ``idle`` are ended by the janitor; the others are not."""
    run: str
    cell: str
    """Its name in the run; of another controller's machine, its id."""
    attempt: str
    token: str
    controller: str
    expires_at: datetime | None
    first_seen: datetime | None
    """When it was first seen without an owner."""
    ends_after: datetime | None
    """When the janitor will end it, if nothing changes."""
    detail: str
    facts: dict[str, str]
    simulated: bool


class SurveyResponse(ResponseModel):
    """Everything that the clouds show of this project."""

    items: list[SightResponse]
    unread: dict[str, str]
    """Providers that could not be asked, with the reason: nothing is known of these."""


class AccessResponse(ResponseModel):
    """How to sign in on a cell's machine, as the controller itself does."""

    address: str
    port: int
    user: str
    host_key: str
    """The only one that is to answer, as in known_hosts."""
    private_key: str = Field(repr=False)
    """OpenSSH PEM; empty where the key is a file below the controller's ``HOME/keys``."""
    key_file: str
    """Name of that file; empty where the lease has the key."""
