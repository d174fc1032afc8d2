"""SSH address and key of a cell's machine, for a person."""

from __future__ import annotations

from orchestrator.application.context import Context
from orchestrator.domain.cell import Cell, Lease, LeaseState
from orchestrator.domain.extend_record import extended
from orchestrator.domain.machine import SshAccess, SshEndpoint


class NoMachineError(LookupError):
    """The cell has no machine that is reachable over SSH now; the message says why."""


def ssh_access(context: Context, cell: Cell) -> SshAccess:
    """Return SSH access to the machine that the cell holds. Raises NoMachineError."""
    if cell.id in context.stores.ingests.of_run(cell.run_id):
        raise NoMachineError(f"cell {cell.name} was ingested: it has no machine that one can enter")
    attempts = context.stores.cells.attempts(cell.id)
    leases = context.stores.leases.of_attempt(attempts[-1].id) if attempts else []
    lease = next((one for one in reversed(leases) if one.state is LeaseState.HELD), None)
    if lease is None:
        raise NoMachineError(
            f"cell {cell.name} holds no machine ({cell.state}); "
            "`seatrial run --hold-on-failure 30` keeps those of cells that do not pass"
        )
    if not isinstance(lease.endpoint, SshEndpoint):
        raise NoMachineError(
            f"the machine of cell {cell.name} is not reached over SSH, or not known to be yet"
        )
    return _entrance(context, lease, lease.endpoint)


def _entrance(context: Context, lease: Lease, endpoint: SshEndpoint) -> SshAccess:
    login = context.stores.leases.login(lease.id) if endpoint.lease else None
    if endpoint.lease and login is None:
        raise NoMachineError(f"the keys of {lease.machine_id} are gone: it is being given back")
    return extended(SshAccess, endpoint, private_key=login.private_key if login else "")
