"""How a person signs in on the machine of a cell."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.domain.machine import SshEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAccess(SshEndpoint):
    """How to sign in, as the controller itself does."""

    private_key: str = field(default="", repr=False)
    """OpenSSH PEM; empty where the key is the file `key_file` of the controller."""
