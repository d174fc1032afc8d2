"""The Python client of a controller, for programs that are not the command line."""

from __future__ import annotations

from pydantic import SecretStr

from orchestrator.adapters.clock import SystemClock
from orchestrator.client.connection import RemoteConnection
from orchestrator.client.seatrial import Seatrial


def connect(url: str, token: str | None = None) -> Seatrial:
    """Return a client of the controller at a URL; nothing is sent yet."""
    return Seatrial(RemoteConnection(url, SecretStr(token) if token else None), SystemClock())
