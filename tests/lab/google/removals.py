"""Machines being taken away, each in its own thread: a removal may take seconds."""

from __future__ import annotations

import threading
import traceback

from tests.lab.machines import Machines


class Removals:
    """Removes machines in the background and knows which are gone."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._threads: dict[str, threading.Thread] = {}
        self.broken: list[str] = []

    def start(self, machine_id: str) -> None:
        """Take it away; once is enough."""
        if machine_id not in self._threads:
            thread = threading.Thread(target=self._remove, args=(machine_id,), daemon=True)
            self._threads[machine_id] = thread
            thread.start()

    def gone(self, machine_id: str) -> bool:
        """Whether it was taken away wholly."""
        thread = self._threads.get(machine_id)
        return thread is not None and not thread.is_alive()

    def wait(self, timeout_s: float) -> None:
        """Until every removal that began has ended."""
        for thread in list(self._threads.values()):
            thread.join(timeout_s)

    def _remove(self, machine_id: str) -> None:
        try:
            self._machines.remove(machine_id)
        except Exception:  # noqa: BLE001 - raised again when the cloud is closed
            self.broken.append(f"removing {machine_id}: {traceback.format_exc()}")
