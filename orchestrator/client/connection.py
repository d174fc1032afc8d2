"""Connections to a controller: the protocol, and the connection to a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import httpx

import orchestrator

AGENT = {"User-Agent": f"seatrial/{orchestrator.__version__}", "Cache-Control": "no-cache"}
"""Headers of every request: the client's version, and that answers need the newest progress."""
TIMEOUT = httpx.Timeout(60.0, connect=5.0)


class Secret(Protocol):
    """A text that is kept out of logs and messages."""

    def get_secret_value(self) -> str:
        """Return the text."""
        ...


class ControllerConnection(Protocol):
    """A way to reach the controller."""

    @property
    def where(self) -> str:
        """Return the description of the controller, for messages."""
        ...

    @property
    def home(self) -> Path | None:
        """Return the controller's data folder; None if the controller is not on this computer."""
        ...

    def open(self) -> httpx.Client:
        """Return a client that is not connected yet. Raises NoControllerError."""
        ...

    def revive(self) -> None:
        """Try to start an unreachable controller.

        Raises NoControllerError if it stays unreachable.
        """
        ...


def is_healthy(http: httpx.Client, *, timeout_s: float) -> bool:
    """Whether a controller answers its health check.

    Raises httpx.TransportError without an answer.
    """
    return http.get("/healthz", timeout=timeout_s).is_success


class RemoteConnection:
    """The connection to the controller at a URL."""

    home = None

    def __init__(self, url: str, token: Secret | None) -> None:
        self.where = url
        self._token = token

    def open(self) -> httpx.Client:
        """Return a client that sends the token; it is not connected yet."""
        headers = {**AGENT}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        return httpx.Client(base_url=self.where, headers=headers, timeout=TIMEOUT)

    def revive(self) -> None:
        """Do nothing: a remote controller cannot be started from here."""
