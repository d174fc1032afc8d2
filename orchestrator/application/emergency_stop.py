"""Emergency stop: ends every machine of the project that the clouds' inventories list.

It needs only the credentials of the clouds: no ledger, no engine and no controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

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
from orchestrator.store.audit_recorder import note
from orchestrator.store.errors import StoreError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EmergencyStop:
    """Finds and terminates cloud resources with the project's tag, of any controller."""

    provider: Callable[[str], Provider]
    traits: Mapping[str, ProviderTraits]
    project: str
    in_ledger: Collection[str] = ()
    """Providers with leases in the ledger, whose inventories must be read."""

    def take_inventory(self) -> StopReport:
        """Return the billed resources, machines first; end none of them."""
        return self._all(lambda _provider, _machine: "")

    def end_all(self) -> StopReport:
        """Terminate everything billed; return for each whether its provider accepted the call.

        A machine that is already stopping is terminated too: a stopped machine is still billed.
        """
        return self._all(_end)

    def _all(self, act: Callable[[Provider, Machine], str]) -> StopReport:
        rented = [name for name, traits in sorted(self.traits.items()) if traits.rented]
        # In parallel, so that a cloud without answers does not delay the others.
        with ThreadPoolExecutor(max(len(rented), 1)) as threads:
            looks = list(threads.map(partial(self._one, act=act), rented))
        return StopReport(
            items=tuple(item for look in looks for item in look.items),
            unread={name: why for look in looks for name, why in look.unread.items()},
            asked=tuple(name for look in looks for name in look.asked),
        )

    def _one(self, name: str, *, act: Callable[[Provider, Machine], str]) -> StopReport:
        """Read one cloud's inventory and act on its billed resources, machines first.

        Credentials may come from the computer itself, such as an instance role. Therefore a cloud
        without configured credentials is asked too, and skipped if it refuses.
        """
        must, unread = name in self.in_ledger, ""
        try:
            provider = self.provider(name)
            must |= isinstance(provider, Credentialed) and provider.is_configured()
            listed = list(provider.inventory())
        except PartialInventoryError as error:
            unread, listed = str(error), list(error.machines)
        except (ConfigError, CredentialsError) as error:
            return _silent(name, error) if must else StopReport()
        except ProviderError as error:
            return _silent(name, error)
        ours = sorted(filter(self._is_billed, listed), key=lambda one: one.kind not in MACHINES)
        is_asked = must or ours or isinstance(provider, Credentialed)
        return StopReport(
            tuple(
                StoppedMachine(
                    provider=name,
                    id=machine.id,
                    kind=machine.kind,
                    state=machine.state,
                    run=machine.tags.get("seatrial-run", ""),
                    failure=act(provider, machine),
                )
                for machine in ours
            ),
            {name: unread} if unread else {},
            (name,) if is_asked else (),
        )

    def _is_billed(self, machine: Machine) -> bool:
        is_ours = machine.tags.get("seatrial-project") == self.project
        is_free = bool(machine.tags.get("seatrial-shared"))
        return is_ours and not is_free and machine.state is not MachineState.TERMINATED


def _silent(name: str, error: ProviderError) -> StopReport:
    return StopReport(unread={name: str(error)}, asked=(name,))


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

    The machines are ended even if the database does not answer.
    """
    failure = ""
    in_ledger: tuple[str, ...] = ()
    cancelled: list[str] = []
    try:
        in_ledger = tuple(context.stores.leases.providers())
        for run_id in context.stores.runs.unfinished():
            why = _cancel(context, run_id)
            failure = why or failure
            cancelled += [] if why else [run_id]
    except StoreError as error:
        failure = str(error)
        logger.warning("emergency stop: runs are not cancelled: %s", error)
    project = context.project
    stop = EmergencyStop(context.provider, context.traits, project, in_ledger)
    report = stop.end_all()
    for one in report.items:
        ended = {"state": one.state, "failure": one.failure}
        note(f"machines/{one.provider}/{one.id}", after=ended)
    return replace(report, cancelled=tuple(cancelled), not_cancelled=failure)


def _cancel(context: Context, run_id: str) -> str:
    """Request the end of a run; return the error, empty on success."""
    try:
        context.stores.runs.request_cancel(run_id, at=context.clock.now())
    except StoreError as error:
        logger.warning("emergency stop: run %s is not cancelled: %s", run_id, error)
        return f"run {run_id}: {error}"
    return ""
