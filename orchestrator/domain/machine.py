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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Protocol, runtime_checkable


class MachineError(Exception):
    """Something about a machine went wrong; the message is written for a person."""


class ProviderError(MachineError):
    """A provider refused or failed."""


class CapacityError(ProviderError):
    """The place has no such machine left now: try the next place."""


class QuotaError(ProviderError):
    """Our own limit with the provider is reached."""


class NotOfferedError(ProviderError):
    """The provider does not sell this machine at all."""


class ProviderUnavailableError(ProviderError):
    """The provider throttles or fails: repeat the same call later, with the same token."""


class CredentialsError(ProviderError):
    """The provider does not accept who we are."""


class ConfigError(ProviderError):
    """The request itself is wrong; repeating it cannot help."""


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
    """Where a machine is in its life, as its provider tells it."""

    BOOTING = "booting"
    READY = "ready"
    STOPPING = "stopping"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class LocalReach:
    """The machine is the computer that the controller runs on."""

    hostname: str
    kind: str = "local"


@dataclass(frozen=True, slots=True)
class SshReach:
    """How to open an SSH connection that can only reach the machine that was meant."""

    address: str
    user: str
    host_key: str
    """The one accepted host key, as in known_hosts: ``ssh-ed25519 AAAA...``."""
    key_file: str
    """Name of the private key below ``HOME/keys``."""
    port: int = 22
    kind: str = "ssh"


@dataclass(frozen=True, slots=True)
class FakeReach:
    """A machine that exists in memory only."""

    machine_id: str
    kind: str = "fake"


Reach = LocalReach | SshReach | FakeReach


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine as its provider describes it now."""

    id: str
    token: str
    state: MachineState
    reach: Reach | None = None
    """How to reach it; None until that is known."""
    detail: str = ""
    """The provider's own words about the state."""


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere a machine may be launched, with what it costs there."""

    name: str
    """Unique within the platform: a location, a host's ``address:port``, or ``local``."""
    exclusive: bool = False
    """Only one lease at a time may hold it (a host of a pool)."""
    price_usd_per_hour: Decimal | None = None
    """None when the price is unknown."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What the provider needs to launch exactly here (market, host fields ...)."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything a provider needs to launch one machine, exactly once."""

    token: str
    """Idempotency token: the same token never makes a second machine."""
    place: Place
    platform: Mapping[str, object]
    """The platform's keys as the matrix gave them."""
    tags: Mapping[str, str]
    """Project, controller, run, cell, attempt and ``expires-at``."""


class Provider(Protocol):
    """Rents and returns machines. No verb waits for a cloud: each returns at once."""

    def launch(self, request: LaunchRequest) -> Machine:
        """Ask for a machine; the same token answers with the same machine. Raises ProviderError."""
        ...

    def inspect(self, machine_id: str) -> Machine:
        """Say how the machine is now; GONE if the provider does not know it."""
        ...

    def terminate(self, machine_id: str) -> None:
        """Begin to give the machine back; gone already is no error."""
        ...

    def inventory(self) -> Iterable[Machine]:
        """Every machine that carries this project's tag and is not gone."""
        ...


@runtime_checkable
class Offers(Protocol):
    """A provider that can say where a platform may be launched."""

    def places(self, platform: Mapping[str, object]) -> tuple[Place, ...]:
        """Places in the order to try them. Raises ConfigError for an impossible platform."""
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


class MachineBook(Protocol):
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
class Completed:
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
    ) -> Completed:
        """Run a POSIX shell command. Any exit status is an answer; raises ShellError otherwise."""
        ...

    def close(self) -> None:
        """Drop the connection; the machine keeps what was started detached."""
        ...
