"""What a clumsy cloud can be told to do, and what it rents out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    Extent,
    MachineState,
    NotOfferedError,
    Place,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NEVER = math.inf
REMEMBERED_S = 3600.0
"""So long a cloud still knows what has ended."""


@dataclass(slots=True)
class HandClock:
    """Stands still until somebody turns it."""

    seconds: float = 0.0
    """Since `BEGIN`."""

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)

    def step(self, seconds: float) -> None:
        self.seconds += seconds


class Flavour(StrEnum):
    """How a launch leads to a machine."""

    PLAIN = "plain"
    """The answer is a machine that is billed, as EC2's."""
    REQUESTED = "requested"
    """The answer is an order, which may be refused later, as GCE's."""
    QUEUED = "queued"
    """The order is a resource of its own, which lingers until it is deleted, as a TPU's."""


class Answer(StrEnum):
    """What a launch call meets."""

    OK = "ok"
    THROTTLED = "throttled"
    """Before it had any effect."""
    LOST = "lost"
    """After its effect."""
    BROKEN = "broken"
    """After its effect, with an error that no adapter should let through."""
    CAPACITY = "capacity"
    CAPACITY_ZONE = "capacity of the zone"
    QUOTA_MARKET = "quota of the market"
    QUOTA_REGION = "quota of the region"
    QUOTA_PROJECT = "quota of the project"
    AUTH_REGION = "credentials in the region"
    AUTH_PROJECT = "credentials"
    CONFIG = "config"
    NOT_OFFERED = "not offered"


REFUSALS: Mapping[Answer, tuple[type[ProviderError], Extent]] = {
    Answer.THROTTLED: (ProviderUnavailableError, Extent.PLACE),
    Answer.LOST: (ProviderUnavailableError, Extent.PLACE),
    Answer.CAPACITY: (CapacityError, Extent.PLACE),
    Answer.CAPACITY_ZONE: (CapacityError, Extent.ZONE),
    Answer.QUOTA_MARKET: (QuotaError, Extent.MARKET),
    Answer.QUOTA_REGION: (QuotaError, Extent.REGION),
    Answer.QUOTA_PROJECT: (QuotaError, Extent.PROJECT),
    Answer.AUTH_REGION: (CredentialsError, Extent.REGION),
    Answer.AUTH_PROJECT: (CredentialsError, Extent.PROJECT),
    Answer.CONFIG: (ConfigError, Extent.PLACE),
    Answer.NOT_OFFERED: (NotOfferedError, Extent.PLACE),
}
WITH_EFFECT = frozenset({Answer.OK, Answer.LOST, Answer.BROKEN})
BEFORE_THE_TOKEN = frozenset(
    {Answer.THROTTLED, Answer.AUTH_REGION, Answer.AUTH_PROJECT, Answer.QUOTA_PROJECT}
)
"""Answered even where the token has its machine already; any other is then the machine."""


class Fate(StrEnum):
    """What becomes of a machine if nobody ends it."""

    LIVES = "lives"
    PREEMPTED = "preempted"
    STILLBORN = "stillborn"
    REFUSED = "refused late"
    OVER_QUOTA = "quota, late"


class Verb(StrEnum):
    """What a cloud can be asked."""

    LAUNCH = "launch"
    INSPECT = "inspect"
    TERMINATE = "terminate"
    INVENTORY = "inventory"
    PLACES = "places"


@dataclass(frozen=True, slots=True)
class Outage:
    """A verb is unavailable for a while."""

    verb: Verb
    begins_s: int
    lasts_s: int


@dataclass(frozen=True, slots=True)
class Nature:
    """How slow and how forgetful the cloud is; the first value of each is the tamest."""

    flavour: Flavour = Flavour.PLAIN
    grants_in_s: int = 0
    """Until an order is granted, or refused late; nothing where there are no orders."""
    boots_in_s: int = 0
    ends_in_s: int = 0
    shows_after_s: int = 0
    """Until `inspect` knows a new thing, which `terminate` does not find either until then."""
    lists_after_s: int = 0
    """Until `inventory` lists it."""
    shows_gone_s: int = 0
    """So long `inspect` says that something is ending which is gone."""
    lists_gone_s: int = 0
    """So long `inventory` lists what is gone as if it ran."""
    deaf: int = 0
    """So many terminates of each thing are accepted and do nothing."""
    has_timer: bool = True
    """Its machines end by themselves when they expire."""
    leaves_disks: bool = False
    lists_requests: bool = False
    """Each order is also a thing of its own, listed at once, which ends with its machine."""


@dataclass(frozen=True, slots=True)
class Script:
    """Everything that a cloud does wrong."""

    nature: Nature = Nature()
    answers: tuple[Answer, ...] = ()
    """Of the launch calls, in their order; OK after the last."""
    fates: tuple[tuple[Fate, int], ...] = ()
    """Of the machines, in the order they are made, and when: seconds after they are granted."""
    delays_s: tuple[int, ...] = ()
    """How long calls take, in their order; nothing after the last."""
    outages: tuple[Outage, ...] = ()


@dataclass(slots=True, kw_only=True)
class Thing:
    """A machine, or what hangs on one."""

    id: str
    kind: str
    place: Place
    tags: Mapping[str, str]
    made_at: float
    listed_at: float
    shown_at: float
    granted_at: float = NEVER
    ready_at: float = NEVER
    ends_at: float = NEVER
    """By its fate or its timer."""
    why: str = ""
    """Of that end."""
    is_plain: bool = True
    """It was never an order."""
    lingers: bool = False
    """After that it is still there until somebody deletes it."""
    ends_in_s: float = 0.0
    deaf: int = 0
    terminated_at: float = NEVER
    """When a terminate was heard."""
    hangs_on: Thing | None = None
    shown_to: set[str] = field(default_factory=set)
    """Whose lines an answer about it came through."""
    stays: bool = False
    """It does not go with what it hangs on."""

    @property
    def token(self) -> str:
        return self.tags.get("seatrial-token", "")

    @property
    def is_machine(self) -> bool:
        return self.hangs_on is None and bool(self.token)

    def gone_at(self) -> float:
        """When nothing of it is left."""
        if self.hangs_on is not None and not self.stays:
            return min(self.hangs_on.gone_at(), self.terminated_at)
        if self.ends_at <= self.terminated_at and not self.lingers:
            return self.ends_at
        return self.terminated_at + self.ends_in_s

    def billed_until(self) -> float:
        """When its meter stops: what lingers after its own end costs nothing."""
        return min(self.ends_at, self.gone_at())

    def billed_s(self, now: float) -> float:
        """What the cloud's meter says."""
        return max(0.0, min(now, self.billed_until()) - self.granted_at)

    def state(self, now: float) -> tuple[MachineState, str]:
        """How it is, and why it ended by itself."""
        why = self.why if self.ends_at <= min(self.terminated_at, now) else ""
        if now >= self.gone_at():
            return MachineState.TERMINATED, why
        if now >= min(self.ends_at, self.terminated_at):
            return MachineState.STOPPING, why
        if not self.is_machine:
            return MachineState.READY, ""
        if now < self.granted_at and not self.is_plain:
            return MachineState.REQUESTED, ""
        return MachineState.READY if now >= self.ready_at else MachineState.BOOTING, ""
