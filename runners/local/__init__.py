"""The provider ``local``: the computer that the controller runs on.

Two settings: ``local_jobs_refused`` is the reason why this controller runs no jobs there, and
``local_jobs_as`` is the account that jobs run as instead of the controller's user.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from decimal import Decimal

from orchestrator.domain.machine import (
    ConfigError,
    Extent,
    LaunchRequest,
    LocalEndpoint,
    Machine,
    MachineState,
    Place,
    ProviderTraits,
)
from orchestrator.domain.matrix import Platform
from runners.provider_context import ProviderContext

TRAITS = ProviderTraits(name="local", keys=frozenset(), rented=False)
PLACE = Place(name="local", price_usd_per_hour=Decimal(0))


class LocalProvider:
    """Provides this computer: immediately, free of charge, to any number of cells."""

    def __init__(self, context: ProviderContext) -> None:
        self._book = context.book
        self._account = context.settings.get("local_jobs_as", "")
        self.refusal = context.settings.get("local_jobs_refused", "")

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Return the only place. Raises ConfigError if jobs are refused here."""
        self._permit()
        return (PLACE,)

    def launch(self, request: LaunchRequest) -> Machine:
        """Store the machine's record; the same token returns the same machine.

        Raises ConfigError if nothing may run here.
        """
        self._permit()
        machine_id = f"local-{request.token}"
        known = self._book.read(TRAITS.name, machine_id)
        if known is not None:
            return known
        machine = Machine(
            id=machine_id,
            token=request.token,
            state=MachineState.READY,
            endpoint=LocalEndpoint(hostname=socket.gethostname(), account=self._account),
        )
        self._book.write(TRAITS.name, machine)
        return machine

    def inspect(self, machine_id: str) -> Machine:
        """Return the recorded machine; TERMINATED without a record."""
        known = self._book.read(TRAITS.name, machine_id)
        # The token is set although the machine is unknown: the records are current, so it will
        # not appear later, and no caller has to wait for it.
        token = machine_id.removeprefix("local-")
        return known or Machine(id=machine_id, token=token, state=MachineState.TERMINATED)

    def terminate(self, machine_id: str) -> None:
        """Delete the machine's record."""
        self._book.erase(TRAITS.name, machine_id)

    def inventory(self) -> Iterable[Machine]:
        """Return every launched machine that is not terminated."""
        return self._book.pages(TRAITS.name)

    def _permit(self) -> None:
        if self.refusal:
            raise ConfigError(self.refusal, extent=Extent.PROJECT)
