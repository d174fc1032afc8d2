"""A machine book in memory."""

from __future__ import annotations

import threading

from orchestrator.domain.machine import Machine


class MemoryBook:
    """Remembers machines for as long as it exists."""

    def __init__(self) -> None:
        self._machines: dict[tuple[str, str], Machine] = {}
        self._lock = threading.Lock()

    def write(self, provider: str, machine: Machine) -> None:
        """Store or replace the machine."""
        with self._lock:
            self._machines[provider, machine.id] = machine

    def read(self, provider: str, machine_id: str) -> Machine | None:
        """The stored machine, or None."""
        return self._machines.get((provider, machine_id))

    def erase(self, provider: str, machine_id: str) -> None:
        """Forget it; unknown is no error."""
        with self._lock:
            self._machines.pop((provider, machine_id), None)

    def pages(self, provider: str) -> tuple[Machine, ...]:
        """Every machine stored for the provider."""
        with self._lock:
            return tuple(one for (owner, _), one in self._machines.items() if owner == provider)
