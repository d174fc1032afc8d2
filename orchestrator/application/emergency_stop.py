"""Emergency stop: ends every machine of the project by the clouds' inventories alone.

It needs no ledger, no engine and no controller: only the credentials of the clouds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from orchestrator.application.context import Context
from orchestrator.application.janitor import MACHINES
from orchestrator.domain.inventory import StoppedMachine, StopReport
from orchestrator.domain.machine import (
    ConfigError,
    Credentialed,
    CredentialsError,
    Machine,
    MachineState,
    PartialInventoryError,
    Provider,
    ProviderError,
    ProviderTraits,
)
from orchestrator.store.errors import StoreError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EmergencyStop:
    """Finds and ends cloud resources with the project's tag, whoever launched them."""

    provider: Callable[[str], Provider]
    traits: Mapping[str, ProviderTraits]
    project: str
    in_ledger: Collection[str] = ()
    """Providers that have rented machines: the inventory of each must be read."""

    def survey(self) -> StopReport:
        """Return billed resources, machines first. Nothing is ended."""
        return self._all(lambda _provider, _machine: "")

    def end_all(self) -> StopReport:
        """Terminate everything billed; return for each whether its provider accepted the call.

        A machine that stops already is terminated as well: one that was only stopped is billed on.
        """
        return self._all(_end)

    def _all(self, act: Callable[[Provider, Machine], str]) -> StopReport:
        look = _Inventories(self)
        for name, traits in sorted(self.traits.items()):
            if traits.rented:
                look.read(name)
        found = tuple(
            StoppedMachine(
                provider=name,
                id=machine.id,
                kind=machine.kind,
                state=machine.state,
                run=machine.tags.get("seatrial-run", ""),
                failure=act(self.provider(name), machine),
            )
            for name, machines in look.billed.items()
            for machine in machines
        )
        return StopReport(found, look.unread, tuple(look.asked))


@dataclass(slots=True)
class _Inventories:
    """Inventories of the clouds that have credentials here."""

    stop: EmergencyStop
    billed: dict[str, list[Machine]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def read(self, name: str) -> None:
        """Read one, machines before their disks and addresses.

        Credentials may come from the computer itself, as an instance role does: a cloud without
        configured ones is asked too, and passed over where it then refuses them.
        """
        must = name in self.stop.in_ledger
        try:
            provider = self.stop.provider(name)
            must |= isinstance(provider, Credentialed) and provider.is_configured()
            listed = list(provider.inventory())
        except PartialInventoryError as error:
            self.unread[name] = str(error)
            listed = list(error.machines)
        except (ConfigError, CredentialsError) as error:
            if must:
                self.asked.append(name)
                self.unread[name] = str(error)
            return
        except ProviderError as error:
            self.asked.append(name)
            self.unread[name] = str(error)
            return
        ours = [one for one in listed if self._is_billed(one)]
        if must or ours or isinstance(provider, Credentialed):
            self.asked.append(name)
        self.billed[name] = sorted(ours, key=lambda one: one.kind not in MACHINES)

    def _is_billed(self, machine: Machine) -> bool:
        is_ours = machine.tags.get("seatrial-project") == self.stop.project
        is_free = bool(machine.tags.get("seatrial-shared"))
        return is_ours and not is_free and machine.state is not MachineState.TERMINATED


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
    failure = ""
    in_ledger: tuple[str, ...] = ()
    try:
        in_ledger = tuple(context.stores.leases.providers())
        for run_id in context.stores.runs.unfinished():
            failure = _cancel(context, run_id) or failure
    except StoreError as error:
        failure = str(error)
        logger.warning("emergency stop: runs are not cancelled: %s", error)
    project = context.janitor.project
    stop = EmergencyStop(context.provider, context.traits, project, in_ledger)
    return replace(stop.end_all(), not_cancelled=failure)


def _cancel(context: Context, run_id: str) -> str:
    """Request the end of a run; return the error, empty on success."""
    try:
        context.stores.runs.request_cancel(run_id, at=context.clock.now())
    except StoreError as error:
        logger.warning("emergency stop: run %s is not cancelled: %s", run_id, error)
        return f"run {run_id}: {error}"
    return ""
