"""Emergency stop: ends every machine of the project by the clouds' inventories alone.

It needs no ledger, no engine and no controller: only the credentials of the clouds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.application.context import Context
from orchestrator.application.janitor import MACHINES, is_usable
from orchestrator.domain.inventory import StoppedMachine, StopReport
from orchestrator.domain.machine import (
    Machine,
    MachineState,
    PartialInventoryError,
    Provider,
    ProviderError,
    ProviderTraits,
)
from orchestrator.store.errors import StoreError

logger = logging.getLogger(__name__)
_OVER = frozenset({MachineState.STOPPING, MachineState.TERMINATED})


@dataclass(frozen=True, slots=True)
class EmergencyStop:
    """Finds and ends cloud resources with the project's tag, whoever launched them."""

    provider: Callable[[str], Provider]
    traits: Mapping[str, ProviderTraits]
    project: str

    def survey(self) -> StopReport:
        """Return billed resources, machines first. Nothing is ended."""
        return self._all(lambda _provider, _machine: "")

    def end_all(self) -> StopReport:
        """Terminate everything billed; return for each whether its provider accepted the call."""
        return self._all(_end)

    def _all(self, act: Callable[[Provider, Machine], str]) -> StopReport:
        unread: dict[str, str] = {}
        asked = tuple(self._configured())
        found = tuple(
            StoppedMachine(
                provider=name,
                id=machine.id,
                kind=machine.kind,
                state=machine.state,
                run=machine.tags.get("seatrial-run", ""),
                failure=act(self.provider(name), machine),
            )
            for name in asked
            for machine in self._billed(name, unread)
        )
        return StopReport(found, unread, asked)

    def _configured(self) -> Iterator[str]:
        """Return providers that rent, are installed and have credentials."""
        for name, traits in sorted(self.traits.items()):
            if traits.rented and is_usable(self.provider, name):
                yield name

    def _billed(self, name: str, unread: dict[str, str]) -> list[Machine]:
        """Return the project's machines, then its disks and addresses; only what is billed."""
        try:
            listed = list(self.provider(name).inventory())
        except PartialInventoryError as error:
            unread[name] = str(error)
            listed = list(error.machines)
        except ProviderError as error:
            unread[name] = str(error)
            return []
        ours = [one for one in listed if self._is_billed(one)]
        return sorted(ours, key=lambda one: one.kind not in MACHINES)

    def _is_billed(self, machine: Machine) -> bool:
        is_ours = machine.tags.get("seatrial-project") == self.project
        is_free = bool(machine.tags.get("seatrial-shared"))
        return is_ours and not is_free and machine.state not in _OVER


def _end(provider: Provider, machine: Machine) -> str:
    """Terminate a resource; return the error, empty on success."""
    try:
        provider.terminate(machine.id)
    except ProviderError as error:
        return str(error)
    logger.warning("emergency stop: ended %s %s", machine.kind, machine.id)
    return ""


def stop_everything(context: Context) -> StopReport:
    """Cancel every run, so that nothing is launched again, and end every machine of the project.

    A database that does not answer keeps no machine alive: the machines are ended all the same.
    """
    for run_id in _unfinished(context):
        try:
            context.stores.runs.request_cancel(run_id, at=context.clock.now())
        except StoreError as error:
            logger.warning("emergency stop: run %s is not cancelled: %s", run_id, error)
    return EmergencyStop(context.provider, context.traits, context.janitor.project).end_all()


def _unfinished(context: Context) -> tuple[str, ...]:
    try:
        return context.stores.runs.unfinished()
    except StoreError as error:
        logger.warning("emergency stop: no run is cancelled: %s", error)
        return ()
