"""Machines: what a provider rents, how it is reached, and what can go wrong on the way.

Errors are typed by what the caller should do next::

    MachineError
    |- ProviderError              a provider refused or failed
    |  |- CapacityError           none left here now: try the next place
    |  |- QuotaError              our limit is reached: skip the region, or the project
    |  |- NotOfferedError         the provider does not sell this: declare it not available
    |  |- ProviderUnavailableError  throttled or broken: the same call later, with the same token
    |  `- CredentialsError        stop, and tell a person
    |     (ConfigError: the request itself is wrong: stop, and tell a person)
    `- ShellError                 the machine could not be spoken to
       |- UnreachableError        no connection now: look again until the deadline
       |- HostKeyError            another machine answered: never connect
       |- AuthenticationError     the machine refuses our key
       |- ConnectionLostError     cut in the middle: the answer is unknown, attach again
       `- CommandTimeoutError     no answer in time: the answer is unknown
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol, runtime_checkable

from orchestrator.domain.document_problems import Path, Problem
from orchestrator.domain.matrix import Platform


class Extent(StrEnum):
    """How far a refusal reaches beyond the place that was asked."""

    PLACE = "place"
    ZONE = "zone"
    """Every place of the zone."""
    MARKET = "market"
    """Every place of the same region and market."""
    REGION = "region"
    PROJECT = "project"
    """Everything that this provider has for us."""


class MachineError(Exception):
    """Something about a machine went wrong; the message is written for a person."""


class ProviderError(MachineError):
    """A provider refused or failed.

    Args:
        message: For a person: what was asked, where, what came back, what to do.
        code: The provider's own word for it, ``VcpuLimitExceeded``.
        extent: How far it reaches.
    """

    def __init__(self, message: str, *, code: str = "", extent: Extent = Extent.PLACE) -> None:
        super().__init__(message)
        self.code = code
        self.extent = extent


class CapacityError(ProviderError):
    """The place has no such machine left now: try the next place."""


class QuotaError(ProviderError):
    """Our own limit with the provider is reached."""


class NotOfferedError(ProviderError):
    """The provider does not sell this machine at all."""


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """What a provider's error code means."""

    error: type[ProviderError]
    extent: Extent = Extent.PLACE
    advice: str = ""
    """For a person: what to do next."""


class ProviderUnavailableError(ProviderError):
    """The provider throttles or fails: repeat the same call later, with the same token."""


class CredentialsError(ProviderError):
    """The provider does not accept who we are."""


class PartialInventoryError(ProviderUnavailableError):
    """A policy denies some regions, and nothing is known of what is there.

    Args:
        message: For a person.
        machines: What the other regions have.
        denied: The refusal by region.
    """

    def __init__(
        self, message: str, machines: tuple[Machine, ...], denied: Mapping[str, str]
    ) -> None:
        super().__init__(message)
        self.machines = machines
        self.denied = denied


class ConfigError(ProviderError):
    """The request itself is wrong; repeating it cannot help."""


class PlatformError(ConfigError):
    """A key of a platform has a value that its provider cannot have, in whatever account.

    Args:
        path: Keys and indexes within the platform.
        message: The value, and what is possible.
    """

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{'.'.join(map(str, path))}: {message}")
        self.problem = Problem(path, message)


def platform_problems(
    platform: Platform, readers: Iterable[Callable[[Platform], object]]
) -> tuple[Problem, ...]:
    """The first problem that each reader of the platform's keys raises as a PlatformError."""
    found: list[Problem] = []
    for read in readers:
        try:
            read(platform)
        except PlatformError as error:
            found.append(error.problem)
    return tuple(found)


class ShellError(MachineError):
    """The machine could not be spoken to."""


class UnreachableError(ShellError):
    """No connection could be made now."""


class HostKeyError(ShellError):
    """Another host key than the pinned one was presented; nothing was sent."""


class AuthenticationError(ShellError):
    """The machine refused our key."""


class ConnectionLostError(ShellError):
    """The connection broke in the middle of a command, whose outcome is unknown."""


class CommandTimeoutError(ShellError):
    """A command gave no answer in time; its outcome is unknown."""


class MachineState(StrEnum):
    """State of a machine as its provider reports it."""

    REQUESTED = "requested"
    """Asked for, and not granted yet: the provider may still refuse."""
    BOOTING = "booting"
    READY = "ready"
    STOPPING = "stopping"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class LocalEndpoint:
    """The machine is the computer that the controller runs on."""

    hostname: str
    account: str = ""
    """Whom everything there runs as; empty for the controller's own user."""
    kind: str = "local"


@dataclass(frozen=True, slots=True)
class SshEndpoint:
    """How to open an SSH connection that can only reach the machine that was meant."""

    address: str
    user: str
    host_key: str
    """The one accepted host key, as in known_hosts: ``ssh-ed25519 AAAA...``."""
    key_file: str = ""
    """Name of the private key below ``HOME/keys``; empty where a lease has it."""
    port: int = 22
    lease: str = ""
    """The lease whose key pair opens it."""
    kind: str = "ssh"


@dataclass(frozen=True, slots=True)
class FakeEndpoint:
    """A machine that exists in memory only."""

    machine_id: str
    kind: str = "fake"


Endpoint = LocalEndpoint | SshEndpoint | FakeEndpoint


@dataclass(frozen=True, slots=True)
class SshAddress:
    """Where a rented machine listens; whoever holds its lease has the keys."""

    address: str
    user: str
    port: int = 22
    host_key: str = ""
    """As the machine published it to its provider; empty where the injected one holds."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine as its provider describes it now, or another resource that lingers like one."""

    id: str
    """Whatever the provider needs to find it again, ``us-east-1/i-0abc``."""
    token: str
    state: MachineState
    endpoint: SshAddress | Endpoint | None = None
    """How to reach it; None until that is known."""
    detail: str = ""
    """The provider's own words about the state."""
    ended: str = ""
    """Why it ended by itself: ``preempted``, ``capacity``, ``deadline``, ``failed``, or empty."""
    ended_at: datetime | None = None
    """Since when nothing is billed for it, by its provider's clock; where the provider tells no
    time, when it first told the state. None while it is billed, and where nothing is known."""
    extent: Extent = Extent.PLACE
    """How far the reason of its end reaches, where that was a refusal."""
    kind: str = "machine"
    """``machine``, or what else costs or lingers: ``disk``, ``address``, ``firewall`` ..."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Those of `LaunchRequest.tags` that it carries."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What it is: ``instance_id, instance_type, zone, market, image_id, image_name``."""
    simulated: bool = False
    """Its provider is an emulation."""


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere a machine may be launched, with what it costs there."""

    name: str
    """Unique within the platform: a location, a host's ``address:port``, or ``local``."""
    exclusive: bool = False
    """Only one lease at a time may hold it (a host of a pool)."""
    price_usd_per_hour: Decimal | None = None
    """Of the machine alone; None when it is unknown."""
    disk_usd_per_hour: Decimal = Decimal(0)
    address_usd_per_hour: Decimal = Decimal(0)
    minimum_s: int = 0
    """What is billed at least, in seconds of the machine's price."""
    priced: str = ""
    """Where the prices are from, and of when."""
    priced_at: datetime | None = None
    """When the machine's price was read; None where it does not age."""
    region: str = ""
    zone: str = ""
    market: str = ""
    """``spot`` or ``on-demand``."""
    instance_type: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """What else the provider needs to launch exactly here (host fields ...)."""

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Everything together; None when the machine's price is unknown."""
        if self.price_usd_per_hour is None:
            return None
        return self.price_usd_per_hour + self.disk_usd_per_hour + self.address_usd_per_hour

    def is_within(self, other: Place, extent: Extent) -> bool:
        """Whether a refusal at the other place reaches this one."""
        match extent:
            case Extent.PLACE:
                return self.name == other.name
            case Extent.ZONE:
                return self.zone == other.zone
            case Extent.MARKET:
                return (self.region, self.market) == (other.region, other.market)
            case Extent.REGION:
                return self.region == other.region
        return True


@dataclass(frozen=True, slots=True)
class Login:
    """The keys of one lease, made before its machine: who may enter, and who answers."""

    public_key: str
    """The one key that the machine lets in, ``ssh-ed25519 AAAA...``."""
    private_key: str = field(repr=False)
    """Its other half (OpenSSH PEM); never leaves the controller."""
    host_public_key: str
    """What the machine is to answer with."""
    host_private_key: str = field(repr=False)
    """Injected where the provider can; worthless once the machine is gone."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything a provider needs to launch one machine, exactly once."""

    token: str
    """Idempotency token: the same token never makes a second machine."""
    place: Place
    platform: Platform
    """The row of the matrix."""
    tags: Mapping[str, str]
    """``seatrial-project, -controller, -run, -cell, -attempt, -token, -expires-at`` (epoch)."""
    login: Login | None = None
    """None where the provider's machines have keys of their own."""
    expires_at: datetime | None = None
    """After this it must end by itself, where its cloud or its own timer can see to that."""
    asked_at: datetime | None = None
    """When it was asked for first: what counts from then is the same in every repetition."""


class Provider(Protocol):
    """Rents and returns machines. No verb waits for a cloud: each returns at once."""

    def launch(self, request: LaunchRequest) -> Machine:
        """Ask for a machine; the same token answers with the same machine. Raises ProviderError."""
        ...

    def inspect(self, machine_id: str) -> Machine:
        """Say how the machine is now; TERMINATED if the provider does not know it."""
        ...

    def terminate(self, machine_id: str) -> None:
        """Begin to give the machine back; gone already is no error."""
        ...

    def inventory(self) -> Iterable[Machine]:
        """Everything that carries this project's tag and is not gone, of every kind."""
        ...


@runtime_checkable
class Offers(Protocol):
    """A provider that can say where a platform may be launched."""

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Places in the order to try them. Raises ConfigError for an impossible platform."""
        ...


@runtime_checkable
class Credentialed(Protocol):
    """A provider that knows, without asking the network, whether it is set up here."""

    def is_configured(self) -> bool:
        """Whether credentials and whatever else it needs are at hand."""
        ...


@runtime_checkable
class ConsoleLog(Protocol):
    """A provider that shows what a machine wrote while it booted."""

    def console(self, machine_id: str) -> str:
        """The last part of it; empty when there is none yet. Raises ProviderError."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderTraits:
    """What the rest of the system must know of a provider before it is loaded."""

    name: str
    keys: frozenset[str]
    """Platform keys that it takes beside the ones every platform has."""
    required: frozenset[str] = frozenset()
    rented: bool = True
    """Costs money, so that a matrix that names it needs ``limits.max_usd``."""
    notice: str = ""
    """How its machines hear that they will be taken away: ``aws``, ``gcp``, or not at all."""
    caution: str = ""
    """What a person must know before a machine of it is rented; shown with every plan."""
    check: Callable[[Platform], Iterable[Problem]] = lambda _platform: ()
    """Values of a platform's keys that the provider cannot have; answers from its tables alone."""
    extra: str = ""
    """Of Seatrial's distribution, with its client libraries; empty where it needs none."""


class StaticHostStore(Protocol):
    """Where a provider without a cloud of its own remembers the machines it handed out."""

    def write(self, provider: str, machine: Machine) -> None:
        """Store or replace the machine under its provider and id."""
        ...

    def read(self, provider: str, machine_id: str) -> Machine | None:
        """The stored machine, or None."""
        ...

    def erase(self, provider: str, machine_id: str) -> None:
        """Forget it; unknown is no error."""
        ...

    def pages(self, provider: str) -> tuple[Machine, ...]:
        """Every machine stored for the provider."""
        ...


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command that ran to its end on a machine."""

    status: int
    stdout: bytes
    stderr: bytes


class Shell(Protocol):
    """How commands and bytes reach a machine."""

    def run(
        self,
        command: str,
        *,
        stdin: Iterable[bytes] = (),
        timeout_s: float = 60.0,
        output_limit_bytes: int = 64 * 1024 * 1024,
    ) -> CommandResult:
        """Run a POSIX shell command. Any exit status is an answer; raises ShellError otherwise."""
        ...

    def close(self) -> None:
        """Drop the connection; the machine keeps what was started detached."""
        ...
