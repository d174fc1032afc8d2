"""The private SSH key of a machine, from a file or from memory."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import paramiko
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import PasswordRequiredException, SSHException

from orchestrator.domain.machine import AuthenticationError

_UNUSABLE = (SSHException, UnknownKeyType, ValueError, IndexError)


class UserKey(Protocol):
    """Source of a private key, which is loaded at every new connection."""

    @property
    def name(self) -> str:
        """Name of the key, for messages."""
        ...

    def load(self) -> paramiko.PKey:
        """The key. Raises AuthenticationError."""
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
    """The ed25519 key of a lease, as OpenSSH writes it; never on this side's disk."""

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
