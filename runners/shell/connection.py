"""Opens SSH connections: only to the pinned host key, and only with the given private key.

A call connects once. A broken connection is opened again in `runners.shell.ssh`; waiting for a
machine that does not answer, and its limits, are in `orchestrator.application.cell.preparing`.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import io
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import paramiko
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import (
    AuthenticationException,
    BadAuthenticationType,
    IncompatiblePeer,
    PasswordRequiredException,
    SSHException,
)

from orchestrator.domain.copied_fields import filled
from orchestrator.domain.machine import (
    AuthenticationError,
    ClosedPortError,
    ConnectionLostError,
    HostKeyError,
    ShellError,
    SshEndpoint,
    UnreachableError,
)
from orchestrator.domain.matrix import Host
from runners.shell.proxy_command import ProxySocket
from runners.shell.stdin_feeder import Deadline

_UNUSABLE = (SSHException, UnknownKeyType, ValueError, IndexError)


class UserKey(Protocol):
    """Source of a private key, which is loaded at every new connection."""

    @property
    def name(self) -> str:
        """Name of the key, for messages."""
        ...

    def load(self) -> paramiko.PKey:
        """Return the private key. Raises AuthenticationError."""
        ...


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A key in a file."""

    path: Path

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def load(self) -> paramiko.PKey:
        """Read the file. Raises AuthenticationError."""
        try:
            return paramiko.PKey.from_path(self.path)
        except FileNotFoundError:
            reason = "does not exist; put the private key there, or correct the name in the matrix"
        except OSError as error:
            reason = f"cannot be read ({error.strerror}); give its owner read permission"
        except (PasswordRequiredException, TypeError):
            reason = (
                "is protected by a passphrase; make a key without one for this use (ssh-keygen)"
            )
        except _UNUSABLE as error:
            reason = f"holds no private key that can be used ({error or type(error).__name__})"
        raise AuthenticationError(f"the key file {self.path} {reason}")


@dataclass(frozen=True, slots=True)
class LeaseKey:
    """The ed25519 key of a lease in OpenSSH's format; never stored on the controller's disk."""

    lease: str
    supply: Callable[[str], str | None]

    @property
    def name(self) -> str:
        """Description of the key's owner."""
        return f"of lease {self.lease}"

    def load(self) -> paramiko.PKey:
        """Load the key. Raises AuthenticationError, whose text contains no part of the key."""
        text = self.supply(self.lease)
        if text is None:
            raise AuthenticationError(
                f"nobody has the private key of lease {self.lease} any more, so its machine "
                "cannot be entered; end the lease (seatrial machines)"
            )
        try:
            return paramiko.Ed25519Key.from_private_key(io.StringIO(text))
        except (*_UNUSABLE, TypeError):
            # The library's message could contain parts of the key.
            raise AuthenticationError(
                f"the private key of lease {self.lease} is no ed25519 key in OpenSSH's format"
            ) from None


RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")
ALGORITHMS = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": RSA_SIGNATURES,
}
"""Signature algorithms to offer, by key type, so that a server with keys of several types
presents the pinned one.
"""


@dataclass(frozen=True, slots=True)
class HostKey:
    """A public host key."""

    type: str
    blob: bytes

    @classmethod
    def parse(cls, text: str, *, where: str) -> HostKey:
        """Read ``type base64 [comment]`` as known_hosts has it. Raises HostKeyError."""
        words = text.split()
        try:
            key = cls(words[0], base64.b64decode(words[1], validate=True))
        except (IndexError, ValueError):
            raise HostKeyError(
                f"{where}: the pinned host key {text[:80]!r} cannot be read; "
                "write it as known_hosts has it: a type and a base64 word"
            ) from None
        key._check(where)
        return key

    def _check(self, where: str) -> None:
        if self.type not in ALGORITHMS:
            raise HostKeyError(
                f"{where}: host keys of type {self.type!r} are not supported; "
                f"pin the machine's key of one of these types: {', '.join(ALGORITHMS)}"
            )
        name = self.type.encode()
        if not self.blob.startswith(len(name).to_bytes(4, "big") + name) or not self._whole():
            raise HostKeyError(
                f"{where}: the pinned host key is damaged: it says {self.type} but holds "
                "something else; copy it again from the machine"
            )

    def _whole(self) -> bool:
        """Return whether all bytes after the type are one key."""
        try:
            read = paramiko.PKey.from_type_string(self.type, self.blob)
            return read.asbytes() == self.blob
        except (SSHException, UnknownKeyType, ValueError, IndexError, TypeError):
            return False

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The signature algorithms that a server may prove this key with."""
        return ALGORITHMS[self.type]

    @property
    def fingerprint(self) -> str:
        """``SHA256:...`` exactly as ssh-keygen prints it."""
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def mismatch(endpoint: SshEndpoint, *, expected: HostKey, presented: HostKey) -> HostKeyError:
    """Return the error for a machine that proved another key than the pinned one."""
    advice = (
        "It was rented for this cell, and its key was made for it: something else has its address "
        "now, or a program on its image made new host keys"
        if endpoint.lease
        else "If the machine was reinstalled, read its key on its own console (ssh-keygen -lf "
        "/etc/ssh/ssh_host_*_key.pub) and pin that; otherwise find out who has its address"
    )
    return HostKeyError(
        f"{endpoint.label}: another machine may be answering. Expected host key {expected.type} "
        f"{expected.fingerprint}, presented {presented.type} {presented.fingerprint}. Nothing was "
        f"sent to it. {advice}"
    )


CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
)
WINDOW_BYTES = 16 * 1024 * 1024
KEEPALIVE_S = 15
UNACKNOWLEDGED_MS = 30_000

# Every error that matters reaches the caller as an exception; without a handler of their own the
# library's tracebacks would be printed over the progress view.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def connect(
    endpoint: SshEndpoint, *, key: UserKey, bastion_key: UserKey | None = None, timeout_s: float
) -> paramiko.Transport:
    """Open, verify and authenticate a connection.

    Args:
        endpoint: The machine, its pinned host key, and the way to it.
        key: The only private key that is offered to the machine.
        bastion_key: The only one that is offered to the bastion.
        timeout_s: For all of it together.

    Raises:
        UnreachableError: No SSH server answered within `timeout_s`, or the bastion is not the
            pinned one, does not accept its key, or does not forward.
        HostKeyError: The machine's key is not the pinned one; nothing was sent.
        AuthenticationError: The key cannot be used, or the machine does not accept it.
    """
    deadline = Deadline(timeout_s)
    return _connect(endpoint, key, bastion_key, deadline)


def _connect(
    endpoint: SshEndpoint, key: UserKey, bastion_key: UserKey | None, deadline: Deadline
) -> paramiko.Transport:
    pinned = HostKey.parse(endpoint.host_key, where=endpoint.label)
    user_key = key.load()
    transport = _verified(endpoint, pinned, bastion_key, deadline)
    try:
        _authenticate(transport, endpoint, user_key, name=key.name, deadline=deadline)
    except BaseException:
        transport.close()
        raise
    transport.set_keepalive(KEEPALIVE_S)
    return transport


def _verified(
    endpoint: SshEndpoint, pinned: HostKey, bastion_key: UserKey | None, deadline: Deadline
) -> paramiko.Transport:
    """Return a transport to a machine that proved the pinned key."""
    try:
        transport, presented = _negotiate(endpoint, pinned.algorithms, bastion_key, deadline)
    except IncompatiblePeer as error:
        raise _no_common_ground(endpoint, pinned, bastion_key, deadline, error) from error
    if presented != pinned:
        transport.close()
        raise mismatch(endpoint, expected=pinned, presented=presented)
    return transport


def _no_common_ground(
    endpoint: SshEndpoint,
    pinned: HostKey,
    bastion_key: UserKey | None,
    deadline: Deadline,
    error: IncompatiblePeer,
) -> HostKeyError | UnreachableError:
    """Return HostKeyError for a missing key type, UnreachableError for a too old SSH server."""
    every = tuple(name for names in ALGORITHMS.values() for name in names)
    try:
        transport, presented = _negotiate(endpoint, every, bastion_key, deadline)
    except IncompatiblePeer:
        return UnreachableError(
            f"{endpoint.label}: no algorithm in common with its SSH server ({error}); update it"
        )
    transport.close()
    return mismatch(endpoint, expected=pinned, presented=presented)


def _negotiate(
    endpoint: SshEndpoint,
    algorithms: tuple[str, ...],
    bastion_key: UserKey | None,
    deadline: Deadline,
) -> tuple[paramiko.Transport, HostKey]:
    """Agree on keys; return the transport and the key that the machine proved."""
    stream = _stream(endpoint, bastion_key, deadline)
    transport = paramiko.Transport(
        stream,  # type: ignore[arg-type]  # these methods of a socket are enough
        default_window_size=WINDOW_BYTES,
    )
    options = transport.get_security_options()
    options.key_types = algorithms
    options.ciphers = CIPHERS
    transport.banner_timeout = max(0.1, deadline.left_s())
    try:
        transport.start_client(timeout=deadline.left_s())
        key = transport.get_remote_server_key()
    except IncompatiblePeer:
        transport.close()
        raise
    except (SSHException, EOFError, OSError) as error:
        said = stream.messages() if isinstance(stream, ProxySocket) else ""
        transport.close()
        raise UnreachableError(
            f"{endpoint.label}: something accepts connections there but does not answer as an SSH "
            f"server within {deadline.timeout_s:g} s ({said or _words(error)}); it may still be "
            "booting",
            in_short="no SSH server",
        ) from error
    return transport, HostKey(key.get_name(), key.asbytes())


def _stream(
    endpoint: SshEndpoint, bastion_key: UserKey | None, deadline: Deadline
) -> socket.socket | ForwardedStream:
    if endpoint.proxy_command:
        return ProxySocket(endpoint.proxy_command)
    if endpoint.bastion is None:
        return _tcp(endpoint, deadline)
    if bastion_key is None:
        raise AuthenticationError(f"{endpoint.label}: no key of the bastion is known")
    return _forwarded(endpoint, endpoint.bastion, bastion_key, deadline)


class ForwardedStream:
    """A TCP connection that a bastion opened, with the socket methods that Transport uses."""

    def __init__(self, bastion: paramiko.Transport, channel: paramiko.Channel) -> None:
        self._bastion, self._channel = bastion, channel
        self.settimeout, self.send, self.recv = channel.settimeout, channel.send, channel.recv

    @property
    def _closed(self) -> bool:
        # Transport reads this attribute of a socket.
        return self._channel.closed

    def close(self) -> None:
        """Close the stream, and the connection to the bastion as well."""
        self._bastion.close()


def _forwarded(
    endpoint: SshEndpoint, bastion: Host, key: UserKey, deadline: Deadline
) -> ForwardedStream:
    """Return a connection from the bastion to the machine. Raises UnreachableError."""
    try:
        transport = _connect(
            filled(SshEndpoint, bastion, unset=("lease", "kind", "bastion", "proxy_command")),
            key,
            None,
            deadline,
        )
    except ShellError as error:
        raise UnreachableError(
            f"{endpoint.label}: the bastion is not reached: {error}",
            in_short=f"bastion: {error.in_short}",
        ) from error
    target = (endpoint.address, endpoint.port)
    try:
        channel = transport.open_channel(
            "direct-tcpip", target, ("127.0.0.1", 0), timeout=max(0.1, deadline.left_s())
        )
    except (SSHException, EOFError, OSError) as error:
        transport.close()
        raise UnreachableError(
            f"{endpoint.label}: the bastion does not connect to the machine ({_words(error)}); "
            "check that the machine is up, that its firewall admits the bastion, and that the "
            "bastion's sshd allows it (AllowTcpForwarding)",
            in_short="no way through the bastion",
        ) from error
    return ForwardedStream(transport, channel)


def _tcp(endpoint: SshEndpoint, deadline: Deadline) -> socket.socket:
    try:
        stream = socket.create_connection(
            (endpoint.address, endpoint.port), timeout=deadline.left_s()
        )
    except (OSError, UnicodeError) as error:
        raise _not_connected(endpoint, error) from error
    # Without it every short command waits for the peer's delayed acknowledgement.
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Keepalive messages alone never notice a peer that vanished; the kernel does.
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
    return stream


_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH)


def _not_connected(endpoint: SshEndpoint, error: OSError | UnicodeError) -> UnreachableError:
    """Return the error for a host without a TCP connection, with advice."""
    said = f"{endpoint.label}: no connection ({_words(error)})"
    if isinstance(error, ConnectionRefusedError):
        return ClosedPortError(
            f"{said}; nothing listens there: start its SSH server, or correct the address or port"
        )
    if isinstance(error, socket.gaierror | UnicodeError):
        advice = "correct the address, or write it as numbers where no name server knows the name"
        return UnreachableError(f"{said}; {advice}", in_short="address not known")
    if isinstance(error, OSError) and error.errno in _NO_ROUTE:
        advice = "check the address, and the network or VPN between the controller and the machine"
        return UnreachableError(f"{said}; {advice}", in_short="no route")
    advice = "check that the machine is up, its address and port, and that port's firewall"
    return UnreachableError(f"{said}; {advice}")


def _authenticate(
    transport: paramiko.Transport,
    endpoint: SshEndpoint,
    user_key: paramiko.PKey,
    *,
    name: str,
    deadline: Deadline,
) -> None:
    transport.auth_timeout = max(0.1, deadline.left_s())
    try:
        more = transport.auth_publickey(endpoint.user, user_key)
    except BadAuthenticationType as error:
        detail = f"it takes only {', '.join(error.allowed_types)}"
        raise _refused(endpoint, name, detail) from error
    except AuthenticationException as error:
        if not transport.is_active() or deadline.passed():
            raise _gone(endpoint, error) from error
        raise _refused(endpoint, name, "") from error
    except (SSHException, EOFError, OSError) as error:
        raise _gone(endpoint, error) from error
    if more:
        raise _refused(endpoint, name, f"beside the key it wants {', '.join(more)}")


def _refused(endpoint: SshEndpoint, name: str, detail: str) -> AuthenticationError:
    advice = (
        "its image may have another user, which `image: {user: ...}` of the platform names"
        if endpoint.lease
        else "add its public half to that user's authorized_keys, or name another user or key_file"
    )
    return AuthenticationError(
        f"{endpoint.label}: the machine does not accept the key {name} for user "
        f"{endpoint.user}{': ' + detail if detail else ''}; {advice}"
    )


def _gone(endpoint: SshEndpoint, error: Exception) -> UnreachableError:
    return UnreachableError(
        f"{endpoint.label}: the connection ended while signing in: {error}",
        in_short=ConnectionLostError.in_short,
    )


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
