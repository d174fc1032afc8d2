"""How a person signs in on the machine of a cell."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SshAccess:
    """How to sign in, as the controller itself does."""

    address: str
    port: int
    user: str
    host_key: str
    """The one that is to answer, as in known_hosts."""
    private_key: str = field(repr=False)
    """OpenSSH PEM; empty where the key is a file below the controller's ``HOME/keys``."""
    key_file: str
    """Name of that file; empty where the lease has the key."""
