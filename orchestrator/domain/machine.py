"""Machines: launch, endpoints, states and errors of providers.

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
from orchestrator.domain.matrix import Host, Platform


class Extent(StrEnum):
    """The extent of a refusal beyond the requested place."""

    PLACE = "place"
    ZONE = "zone"
    """Every place of the zone."""
    MARKET = "market"
    """Every place of the same region and market."""
    REGION = "region"
    PROJECT = "project"
    """Every place of this provider."""


class MachineError(Exception):
    """A machine operation failed; the message is written for a person."""


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
    """The place has no capacity now; another place may."""


class QuotaError(ProviderError):
    """The account's quota with the provider is exhausted."""


class NotOfferedError(ProviderError):
    """The provider does not sell this machine."""


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """The meaning of a provider's error code."""

    error: type[ProviderError]
    extent: Extent = Extent.PLACE
    advice: str = ""
    """What to do next, for a person."""


class ProviderUnavailableError(ProviderError):
    """The provider throttles or fails; repeat the same call later, with the same token."""


class CredentialsError(ProviderError):
    """The provider rejects the credentials."""


class PartialInventoryError(ProviderUnavailableError):
    """Some regions or zones are silent, or denied by a policy: their resources are unknown.

    Args:
        machines: What the others have.
        gaps: The reason by region or zone.
    """

    def __init__(self, machines: tuple[Machine, ...], gaps: Mapping[str, str]) -> None:
        why = next(iter(gaps.values()))
        super().__init__(f"nothing is known of what is in {', '.join(gaps)}: {why}")
        self.machines = machines
        self.gaps = gaps

    def hides(self, place: str) -> bool:
        """Return whether a machine at the place would not be listed."""
        return any(place.startswith(gap) for gap in self.gaps)


def whole_inventory(machines: tuple[Machine, ...], gaps: Mapping[str, str]) -> tuple[Machine, ...]:
    """Return the machines. Raises PartialInventoryError if there are gaps."""
    if gaps:
        raise PartialInventoryError(machines, gaps)
    return machines


class ForeignMachineError(ProviderError):
    """A lease names a machine that was not launched for it; it is not ended."""


class ConfigError(ProviderError):
    """The request is invalid; repeating it does not help."""


class PlatformError(ConfigError):
    """A platform's key has a value that its provider never accepts.

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
    """Return the first PlatformError of each reader of the platform's keys, each once."""
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
        message: For a person: where, what came back, what to do.
        in_short: What kept the machine from being reached, if it is not the class's own.
    """

    in_short = "no answer"

    def __init__(self, message: str, *, in_short: str = "") -> None:
        super().__init__(message)
        self.in_short = in_short or self.in_short


class UnreachableError(ShellError):
    """No connection could be established."""


class ClosedPortError(UnreachableError):
    """The machine answers that nothing listens at its port."""

    in_short = "connection refused"


class NoSessionError(UnreachableError):
    """The machine is connected, and refuses another session beside those that are open."""

    in_short = "no further session"


class HostKeyError(ShellError):
    """The machine presented another host key than the pinned one; nothing was sent."""

    in_short = "another host key"


class AuthenticationError(ShellError):
    """The machine rejected our key."""

    in_short = "cannot sign in"


class ConnectionLostError(ShellError):
    """The connection broke during a command, whose outcome is unknown."""

    in_short = "connection lost"


class CommandTimeoutError(ShellError):
    """A command exceeded its time limit; its outcome is unknown."""


@runtime_checkable
class Refusing(Protocol):
    """A provider on which a controller may run no jobs at all."""

    @property
    def refusal(self) -> str:
        """Why it runs none, and what to do instead; empty if it does."""
        ...


class MachineState(StrEnum):
    """State of a machine as its provider reports it."""

    REQUESTED = "requested"
    """Requested and not granted; the provider may still refuse."""
    BOOTING = "booting"
    READY = "ready"
    STOPPING = "stopping"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class LocalEndpoint:
    """The computer that the controller runs on."""

    hostname: str
    account: str = ""
    """The account that jobs run as; empty for the controller's own user."""
    kind: str = "local"


@dataclass(frozen=True, slots=True)
class SshEndpoint:
    """SSH endpoint with a pinned host key."""

    address: str
    user: str
    host_key: str
    """The accepted host key, as in known_hosts: ``ssh-ed25519 AAAA...``."""
    key_file: str = ""
    """File name of the private key below ``HOME/keys``; empty if the lease holds it."""
    port: int = 22
    lease: str = ""
    """The lease whose key pair is used."""
    bastion: Host | None = None
    """The host that connections go through; its key is a file below ``HOME/keys``."""
    proxy_command: tuple[str, ...] = ()
    """Program and arguments whose standard input and output are a connection to the SSH port."""
    kind: str = "ssh"

    @property
    def label(self) -> str:
        """``user@address:port``, and the bastion or program that is in between."""
        shown = f"[{self.address}]" if ":" in self.address else self.address
        way = f"{self.user}@{shown}:{self.port}"
        if self.bastion is not None:
            return f"{way} through {self.bastion.user}@{self.bastion.place}"
        return f"{way} through {self.proxy_command[0]}" if self.proxy_command else way


@dataclass(frozen=True, slots=True)
class FakeEndpoint:
    """A machine that exists only in memory."""

    machine_id: str
    kind: str = "fake"


Endpoint = LocalEndpoint | SshEndpoint | FakeEndpoint


@dataclass(frozen=True, slots=True)
class SshAddress:
    """SSH address of a rented machine; its lease holds the keys."""

    address: str
    user: str
    port: int = 22
    host_key: str = ""
    """Published by the machine through its provider; empty if the injected one applies."""
    proxy_command: tuple[str, ...] = ()
    """As `SshEndpoint.proxy_command`; empty if the address is reached itself."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as its provider describes it, or another billable resource."""

    id: str
    """The provider's reference, as ``us-east-1/i-0abc``."""
    token: str
    state: MachineState
    endpoint: SshAddress | Endpoint | None = None
    """How to connect; None until it is known."""
    detail: str = ""
    """The provider's description of the state."""
    ended: str = ""
    """Why it ended without a request: ``preempted``, ``capacity``, ``deadline``, ``failed``, or
    empty.
    """
    ended_at: datetime | None = None
    """When billing ended by the provider's clock; without such a time, when the state was first
    reported. None while it is billed or unknown.
    """
    extent: Extent = Extent.PLACE
    """Extent of the refusal that ended it, where there was one."""
    kind: str = "machine"
    """``machine``, or another billable resource: ``disk``, ``address``, ``firewall`` ..."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """The tags of `LaunchRequest.tags` that it has."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts of the provider: ``instance_id, instance_type, zone, market, image_id, image_name``."""
    simulated: bool = False
    """Whether its provider is an emulation."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place for a launch, with its prices."""

    name: str
    """Unique within the platform: a location, a host's ``address:port``, or ``local``."""
    exclusive: bool = False
    """Whether only one lease at a time may hold it (a host of a pool)."""
    price_usd_per_hour: Decimal | None = None
    """Price of the machine alone; None when it is unknown."""
    disk_usd_per_hour: Decimal = Decimal(0)
    address_usd_per_hour: Decimal = Decimal(0)
    minimum_s: int = 0
    """Minimum billed seconds of the machine's price."""
    priced: str = ""
    """Source and date of the prices."""
    priced_at: datetime | None = None
    """When the machine's price was read; None if it does not age."""
    region: str = ""
    zone: str = ""
    market: str = ""
    """``spot`` or ``on-demand``."""
    instance_type: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """Provider-specific launch options (fields of a host ...)."""

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Total price per hour; None when the machine's price is unknown."""
        if self.price_usd_per_hour is None:
            return None
        return self.price_usd_per_hour + self.disk_usd_per_hour + self.address_usd_per_hour

    def is_within(self, other: Place, extent: Extent) -> bool:
        """Whether a refusal at the other place applies to this one."""
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
    """SSH keys of a lease, generated before its machine exists."""

    public_key: str
    """The key that the machine accepts, ``ssh-ed25519 AAAA...``."""
    private_key: str = field(repr=False)
    """The private key (OpenSSH PEM); never leaves the controller."""
    host_public_key: str
    """The host key that the machine presents."""
    host_private_key: str = field(repr=False)
    """Injected where the provider supports it."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A request for exactly one machine."""

    token: str
    """Idempotency token: the same token never creates a second machine."""
    place: Place
    platform: Platform
    """The row of the matrix."""
    tags: Mapping[str, str]
    """``seatrial-project, -controller, -run, -cell, -attempt, -token, -expires-at`` (epoch)."""
    login: Login | None = None
    """None if the provider's machines have their own keys."""
    expires_at: datetime | None = None
    """When the machine terminates itself, where its cloud or its timer supports that."""
    asked_at: datetime | None = None
    """Time of the first request, equal in every repetition."""


class Provider(Protocol):
    """Rents and returns machines. Methods return immediately, without waiting for the cloud."""

    def launch(self, request: LaunchRequest) -> Machine:
        """Request a machine; the same token returns the same machine. Raises ProviderError."""
        ...

    def inspect(self, machine_id: str) -> Machine:
        """Return the machine's present state, with its token and tags; TERMINATED if it is unknown.

        A machine of a lease is ended only if its token is the lease's.
        """
        ...

    def terminate(self, machine_id: str) -> None:
        """Begin to terminate the machine; no error where it is already gone."""
        ...

    def inventory(self) -> Iterable[Machine]:
        """Return every resource of this project that still exists, of every kind."""
        ...


@runtime_checkable
class Offers(Protocol):
    """A provider that lists places for a platform."""

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Return places in the order to try them. Raises ConfigError for an impossible platform."""
        ...


@runtime_checkable
class OwnHosts(Protocol):
    """A provider of running hosts, which can be reached before a launch."""

    def endpoints(self, platform: Platform) -> tuple[SshEndpoint, ...]:
        """Return how to connect to each host of the platform. Raises ConfigError."""
        ...


@runtime_checkable
class Credentialed(Protocol):
    """A provider that knows without network access whether it is configured."""

    def is_configured(self) -> bool:
        """Whether credentials and other settings are present."""
        ...


@runtime_checkable
class ConsoleLog(Protocol):
    """A provider with access to boot logs."""

    def console(self, machine_id: str) -> str:
        """Return the end of the boot log; empty when there is none yet. Raises ProviderError."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderTraits:
    """Properties of a provider that are known without loading it."""

    name: str
    keys: frozenset[str]
    """Its platform keys, in addition to the common ones."""
    required: frozenset[str] = frozenset()
    connect: frozenset[str] = frozenset({"public", "private"})
    """Values of ``connect`` that it has, where it takes that key."""
    rented: bool = True
    """Whether it costs money, so that a matrix with it needs ``limits.max_usd``."""
    notice: str = ""
    """How its machines are notified of preemption: ``aws``, ``gcp``, or not at all."""
    metadata_guard: bool = False
    """Whether jobs are kept from the metadata server; a TPU's library reads its topology there."""
    caution: str = ""
    """A warning that every plan shows."""
    check: Callable[[Platform], Iterable[Problem]] = lambda _platform: ()
    """Checks the values of platform keys, from built-in tables alone."""
    extra: str = ""
    """The distribution's extra with its client libraries; empty if it needs none."""
    setting: str = ""
    """The setting without which it is not configured: nothing is imported to find that out."""

    @property
    def takes_untrusted(self) -> bool:
        """Whether untrusted code may run on its machines.

        Each is rented for one attempt, and its jobs are kept from the metadata server.
        """
        return self.rented and self.metadata_guard


class StaticHosts(Protocol):
    """Stores the machines of a provider without a cloud."""

    def write(self, provider: str, machine: Machine) -> None:
        """Insert or replace the machine under its provider and id."""
        ...

    def read(self, provider: str, machine_id: str) -> Machine | None:
        """Return the stored machine, or None."""
        ...

    def erase(self, provider: str, machine_id: str) -> None:
        """Delete the machine; no error where it is unknown."""
        ...

    def pages(self, provider: str) -> tuple[Machine, ...]:
        """Yield every stored machine of the provider."""
        ...


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A finished command on a machine."""

    status: int
    stdout: bytes
    stderr: bytes


class Conversation(Protocol):
    """A command that runs on a machine with its input and output open. One thread uses it."""

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Write to its input.

        Raises ConnectionLostError if it has ended, CommandTimeoutError if it does not read.
        """
        ...

    def receive(self, *, timeout_s: float) -> bytes:
        """Return the next piece of its output; empty once it has ended.

        Raises ConnectionLostError without an answer of the machine, CommandTimeoutError if nothing
        came in time.
        """
        ...

    def status(self) -> int | None:
        """Return the command's exit code once `receive` returned the end; None without a code."""
        ...

    def complaint(self) -> str:
        """The end of the command's standard error."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that is readable once there is output, or the command has ended."""
        ...

    def close(self) -> None:
        """End the command; detached processes continue. Closed already is no error."""
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
        """Run a POSIX shell command.

        Return any exit status. Raises ShellError if it could not run.
        """
        ...

    def open(self, command: str, *, timeout_s: float = 60.0) -> Conversation:
        """Start a POSIX shell command and leave its input and output open.

        Raises ShellError if it could not be started.
        """
        ...

    def close(self) -> None:
        """Close the connection; detached processes continue."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAccess(SshEndpoint):
    """SSH address and key, as the controller uses them."""

    private_key: str = field(default="", repr=False)
    """OpenSSH PEM; empty if the key is the controller's file `key_file`."""
