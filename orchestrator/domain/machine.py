"""Machines: launch, endpoints, states and errors of providers.

Errors are typed by what the caller has to do next::

MachineError |- ProviderError a provider refused or failed | |- CapacityError no capacity at this
place now: try the next place | |- QuotaError our quota is used up: skip the region or the project |
|- NotOfferedError the provider does not sell this: the cell is not available | |-
ProviderUnavailableError throttled or broken: repeat the call later, same token | `-
CredentialsError stop, and notify a person | (ConfigError: the request itself is wrong: stop, and
notify a person) `- ShellError the connection to the machine failed |- UnreachableError no
connection now: try again until the deadline |- HostKeyError another machine answered: never connect
|- AuthenticationError the machine refuses our key |- ConnectionLostError broken during a command:
the result is unknown, attach again `- CommandTimeoutError no answer in time: the result is unknown
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol, runtime_checkable

from orchestrator.domain.document_problems import Path, Problem
from orchestrator.domain.matrix import Host, Platform


class Extent(StrEnum):
    """The places that a refusal applies to, starting with the requested place."""

    PLACE = "place"
    ZONE = "zone"
    """Every place in the same zone."""
    MARKET = "market"
    """Every place with the same region and market."""
    REGION = "region"
    PROJECT = "project"
    """Every place of the same provider."""


class MachineError(Exception):
    """An operation on a machine failed; the message is for a person."""


class ProviderError(MachineError):
    """A provider refused a request or failed.

    Args:
        message: For a person: the request, the place, the answer and advice.
        code: The provider's error code, such as ``VcpuLimitExceeded``.
        extent: The places that the refusal applies to.
    """

    def __init__(self, message: str, *, code: str = "", extent: Extent = Extent.PLACE) -> None:
        super().__init__(message)
        self.code = code
        self.extent = extent


class CapacityError(ProviderError):
    """The place has no capacity now; another place may have some."""


class QuotaError(ProviderError):
    """The account's quota with the provider is exhausted."""


class NotOfferedError(ProviderError):
    """The provider does not sell this machine."""


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """The meaning of an error code of a provider."""

    error: type[ProviderError]
    extent: Extent = Extent.PLACE
    advice: str = ""
    """What to do next, for a person."""


class ProviderUnavailableError(ProviderError):
    """The provider throttles or fails; repeat the same call later, with the same token."""


class CredentialsError(ProviderError):
    """The provider rejects the credentials."""


class PartialInventoryError(ProviderUnavailableError):
    """Some regions or zones did not answer or are forbidden, so that their resources are unknown.

    Args:
        machines: The resources of the other regions and zones.
        gaps: The reason by region or zone.
    """

    def __init__(self, machines: tuple[Machine, ...], gaps: Mapping[str, str]) -> None:
        why = next(iter(gaps.values()))
        super().__init__(f"nothing is known of what is in {', '.join(gaps)}: {why}")
        self.machines = machines
        self.gaps = gaps

    def hides(self, place: str) -> bool:
        """Whether a machine at the place would be missing from the inventory."""
        return any(place.startswith(gap) for gap in self.gaps)


def whole_inventory(machines: tuple[Machine, ...], gaps: Mapping[str, str]) -> tuple[Machine, ...]:
    """Return the machines. Raises PartialInventoryError if there are gaps."""
    if gaps:
        raise PartialInventoryError(machines, gaps)
    return machines


class ForeignMachineError(ProviderError):
    """A lease names a machine that was not launched for it; that machine is not terminated."""


class ConfigError(ProviderError):
    """The request is invalid; repeating it does not help."""


class PlatformError(ConfigError):
    """A platform's key has a value that the provider never accepts.

    Args:
        path: Keys and indexes within the platform.
        message: The value and the possible values.
    """

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{'.'.join(map(str, path))}: {message}")
        self.problem = Problem(path, message)


def platform_problems(
    platform: Platform, readers: Iterable[Callable[[Platform], object]]
) -> tuple[Problem, ...]:
    """Return the first PlatformError of each reader of platform keys, without repetitions."""
    found: dict[Problem, None] = {}
    for read in readers:
        try:
            read(platform)
        except PlatformError as error:
            found[error.problem] = None
    return tuple(found)


class ShellError(MachineError):
    """The connection to the machine failed.

    Args:
        message: For a person: the place, the answer and advice.
        in_short: The failure in a few words; by default the words of the class.
    """

    in_short = "no answer"

    def __init__(self, message: str, *, in_short: str = "") -> None:
        super().__init__(message)
        self.in_short = in_short or self.in_short


class UnreachableError(ShellError):
    """No connection could be established."""


class ClosedPortError(UnreachableError):
    """The machine refused the connection, because no program listens at the port."""

    in_short = "connection refused"


class NoSessionError(UnreachableError):
    """The machine is connected, but allows no further session."""

    in_short = "no further session"


class HostKeyError(ShellError):
    """The machine presented another host key than the pinned one; nothing was sent."""

    in_short = "another host key"


class AuthenticationError(ShellError):
    """The machine rejected our key."""

    in_short = "cannot sign in"


class ConnectionLostError(ShellError):
    """The connection broke during a command; the result of the command is unknown."""

    in_short = "connection lost"


class CommandTimeoutError(ShellError):
    """A command exceeded its time limit; its result is unknown."""


@runtime_checkable
class Refusing(Protocol):
    """A provider on which a controller may be unable to run jobs."""

    @property
    def refusal(self) -> str:
        """Why the controller runs no jobs on it, with advice; empty if it does."""
        ...


class MachineState(StrEnum):
    """State of a machine as its provider reports it."""

    REQUESTED = "requested"
    """The machine is requested and not granted; the provider may still refuse."""
    BOOTING = "booting"
    READY = "ready"
    STOPPING = "stopping"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class LocalEndpoint:
    """The endpoint of the computer that the controller runs on."""

    hostname: str
    account: str = ""
    """The account that runs the jobs; empty for the controller's own user."""
    kind: str = "local"


@dataclass(frozen=True, slots=True)
class SshEndpoint:
    """SSH endpoint with a pinned host key."""

    address: str
    user: str
    host_key: str
    """The accepted host key, as in known_hosts: ``ssh-ed25519 AAAA...``."""
    key_file: str = ""
    """File name of the private key in ``HOME/keys``; empty if the lease has the key."""
    port: int = 22
    lease: str = ""
    """Id of the lease whose key pair is used."""
    bastion: Host | None = None
    """The host that connections go through; its private key is a file in ``HOME/keys``."""
    proxy_command: tuple[str, ...] = ()
    """A program with its arguments; its standard input and output are connected to the SSH port."""
    kind: str = "ssh"

    @property
    def label(self) -> str:
        """``user@address:port``, with the bastion or program that the connection goes through."""
        shown = f"[{self.address}]" if ":" in self.address else self.address
        way = f"{self.user}@{shown}:{self.port}"
        if self.bastion is not None:
            return f"{way} through {self.bastion.user}@{self.bastion.place}"
        return f"{way} through {self.proxy_command[0]}" if self.proxy_command else way


@dataclass(frozen=True, slots=True)
class FakeEndpoint:
    """The endpoint of a machine that exists only in memory."""

    machine_id: str
    kind: str = "fake"


Endpoint = LocalEndpoint | SshEndpoint | FakeEndpoint


@dataclass(frozen=True, slots=True)
class SshAddress:
    """SSH address of a rented machine; the lease has the keys."""

    address: str
    user: str
    port: int = 22
    host_key: str = ""
    """The host key that the machine reported through its provider; empty if ours was injected."""
    proxy_command: tuple[str, ...] = ()
    """As `SshEndpoint.proxy_command`; empty if the address is reached directly."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, or another billable resource, as its provider reports it."""

    id: str
    """The provider's id, such as ``us-east-1/i-0abc``."""
    token: str
    state: MachineState
    endpoint: SshAddress | Endpoint | None = None
    """The address to connect to; None until it is known."""
    detail: str = ""
    """The provider's description of the state."""
    ended: str = ""
    """Why it ended without our request: ``preempted``, ``capacity``, ``deadline`` or ``failed``;
    otherwise empty."""
    ended_at: datetime | None = None
    """When billing ended, by the provider's clock, or else when the end was first reported.

    None while it is billed, or if the end is unknown.
    """
    extent: Extent = Extent.PLACE
    """Extent of the refusal that ended it, if it was refused."""
    kind: str = "machine"
    """``machine``, or another billable resource: ``disk``, ``address``, ``firewall`` and others."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Its tags, among those of `LaunchRequest.tags`."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts from the provider: ``instance_id, instance_type, zone, market, image_id, image_name``.
    """
    simulated: bool = False
    """Whether the provider is an emulation."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place where a machine may be launched, with its prices."""

    name: str
    """Unique within the platform: a location, a host's ``address:port``, or ``local``."""
    exclusive: bool = False
    """Whether only one lease at a time may use it, as for a host of a pool."""
    price_usd_per_hour: Decimal | None = None
    """US dollars per hour of the machine alone; None if the price is unknown."""
    disk_usd_per_hour: Decimal = Decimal(0)
    address_usd_per_hour: Decimal = Decimal(0)
    minimum_s: int = 0
    """Minimum number of seconds for which the machine is billed."""
    priced: str = ""
    """Source and date of the prices."""
    priced_at: datetime | None = None
    """When the machine's price was read; None if the price does not age."""
    region: str = ""
    zone: str = ""
    market: str = ""
    """``spot`` or ``on-demand``."""
    instance_type: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the launch that only the provider knows, such as fields of a host."""

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Total US dollars per hour; None if the machine's price is unknown."""
        if self.price_usd_per_hour is None:
            return None
        return self.price_usd_per_hour + self.disk_usd_per_hour + self.address_usd_per_hour

    def is_within(self, other: Place, extent: Extent) -> bool:
        """Whether a refusal with this extent at the other place applies to this place."""
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
    """The SSH keys of a lease, created before its machine."""

    public_key: str
    """The key that the machine accepts, ``ssh-ed25519 AAAA...``."""
    private_key: str = field(repr=False)
    """The private key (OpenSSH PEM); never leaves the controller."""
    host_public_key: str
    """The host key that the machine presents."""
    host_private_key: str = field(repr=False)
    """The private host key; injected into the machine if the provider supports that."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """The request for exactly one machine."""

    token: str
    """Idempotency token; repeated requests with the same token create only one machine."""
    place: Place
    platform: Platform
    """The platform of the matrix."""
    tags: Mapping[str, str]
    """``seatrial-project, -controller, -run, -cell, -attempt, -token, -expires-at`` (epoch)."""
    login: Login | None = None
    """The SSH keys; None if the provider's machines have their own keys."""
    expires_at: datetime | None = None
    """When the machine terminates itself, if its cloud or its own timer supports that."""
    asked_at: datetime | None = None
    """Time of the first request; equal in all repetitions."""


class Provider(Protocol):
    """Rents and returns machines. Methods do not wait until the cloud has finished."""

    def launch(self, request: LaunchRequest) -> Machine:
        """Request a machine; the same token returns the same machine. Raises ProviderError."""
        ...

    def inspect(self, machine_id: str) -> Machine:
        """Return the machine with its current state, token and tags; TERMINATED if it is unknown.

        Callers terminate the machine of a lease only if the token is that of the lease.
        """
        ...

    def terminate(self, machine_id: str) -> None:
        """Request the termination of the machine; no error if it is already gone."""
        ...

    def inventory(self) -> Iterable[Machine]:
        """Return every resource of this project that still exists, of every kind."""
        ...


@runtime_checkable
class Offers(Protocol):
    """A provider that lists places for a platform."""

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Return the places in the order to try them.

        Raises ConfigError for an impossible platform.
        """
        ...


@runtime_checkable
class OwnHosts(Protocol):
    """A provider of running hosts, which can be reached without a launch."""

    def endpoints(self, platform: Platform) -> tuple[SshEndpoint, ...]:
        """Return the endpoint of each host of the platform. Raises ConfigError."""
        ...


@runtime_checkable
class Credentialed(Protocol):
    """A provider that can say without network access whether it is configured."""

    def is_configured(self) -> bool:
        """Whether the credentials and other settings are present."""
        ...


@runtime_checkable
class ConsoleLog(Protocol):
    """A provider that returns boot logs."""

    def console(self, machine_id: str) -> str:
        """Return the end of the boot log; empty if there is none yet. Raises ProviderError."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderTraits:
    """Properties of a provider that are known without importing it."""

    name: str
    keys: frozenset[str]
    """Its platform keys, without those that every provider has."""
    required: frozenset[str] = frozenset()
    connect: frozenset[str] = frozenset({"public", "private"})
    """Values of the key ``connect`` that it supports, if it has that key."""
    rented: bool = True
    """Whether its machines cost money, so that a matrix needs ``limits.max_usd``."""
    notice: str = ""
    """Source of preemption notices on its machines: ``aws``, ``gcp``, or empty."""
    metadata_guard: bool = False
    """Whether jobs are blocked from the metadata server.

    They are not on TPUs, whose library reads its topology from the server.
    """
    caution: str = ""
    """A warning that is shown in every plan."""
    check: Callable[[Platform], Iterable[Problem]] = lambda _platform: ()
    """Returns problems in the values of platform keys, by built-in tables alone."""
    extra: str = ""
    """Name of the distribution's extra with the client libraries; empty if none is needed."""
    setting: str = ""
    """Name of the setting that it needs to be configured; nothing is imported to check that."""

    @property
    def takes_untrusted(self) -> bool:
        """Whether untrusted code may run on its machines.

        Each machine is rented for one attempt, and its jobs are blocked from the metadata
        server.
        """
        return self.rented and self.metadata_guard


class StaticHosts(Protocol):
    """Stores the machines of providers without a cloud."""

    def write(self, provider: str, machine: Machine) -> None:
        """Store the machine under its provider and id; replace an older record."""
        ...

    def read(self, provider: str, machine_id: str) -> Machine | None:
        """Return the stored machine; None if it is unknown."""
        ...

    def erase(self, provider: str, machine_id: str) -> None:
        """Delete the stored machine; no error if it is unknown."""
        ...

    def pages(self, provider: str) -> tuple[Machine, ...]:
        """Return every stored machine of the provider."""
        ...


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a finished command on a machine."""

    status: int
    stdout: bytes
    stderr: bytes


class Conversation(Protocol):
    """A running command on a machine, with open input and output; used by one thread."""

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Write to the command's input.

        Raises ConnectionLostError if the command has ended, and CommandTimeoutError if it
        does not read.
        """
        ...

    def receive(self, *, timeout_s: float) -> bytes:
        """Return the next piece of the command's output; empty at the end.

        Raises ConnectionLostError if the machine does not answer, and CommandTimeoutError
        if there was no output in time.
        """
        ...

    def status(self) -> int | None:
        """Return the exit code after `receive` returned the end; None if it is not known."""
        ...

    def complaint(self) -> str:
        """Return the end of the command's standard error."""
        ...

    def fileno(self) -> int:
        """Return a file descriptor that is readable on output or at the end of the command."""
        ...

    def close(self) -> None:
        """End the command; detached processes continue. May be called repeatedly."""
        ...


class Shell(Protocol):
    """Runs commands on a machine and transfers bytes."""

    def run(
        self,
        command: str,
        *,
        stdin: Iterable[bytes] = (),
        timeout_s: float = 60.0,
        output_limit_bytes: int = 64 * 1024 * 1024,
    ) -> CommandResult:
        """Run a POSIX shell command, and return its result for any exit status.

        Raises ShellError if the command could not be run.
        """
        ...

    def open(self, command: str, *, timeout_s: float = 60.0) -> Conversation:
        """Start a POSIX shell command with open input and output.

        Raises ShellError if the command could not be started.
        """
        ...

    def close(self) -> None:
        """Close the connection; detached processes continue."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAccess(SshEndpoint):
    """SSH address and key of a machine, as the controller uses them."""

    private_key: str = field(default="", repr=False)
    """The private key (OpenSSH PEM); empty if it is the controller's file `key_file`."""
