"""SSH access of a person to the machine of a cell."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.domain.machine import SshEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAccess(SshEndpoint):
    """SSH address and key, as the controller uses them."""

    private_key: str = field(default="", repr=False)
    """OpenSSH PEM; empty where the key is the controller's file `key_file`."""
