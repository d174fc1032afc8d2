"""Terminates a machine without an owner, at a person's request."""

from __future__ import annotations

from orchestrator.application.context import Context
from orchestrator.application.janitor import CloudResource
from orchestrator.domain.document_problems import nearest
from orchestrator.domain.inventory import Ownership


class MachineMissingError(LookupError):
    """The provider's inventory lacks the machine; the message says what to do."""


class MachineInUseError(Exception):
    """An open lease holds the machine."""


class MachineStaysError(Exception):
    """The machine belongs to another controller, or other machines use it."""


class ProviderUnreadError(Exception):
    """The provider was unreachable, or rejected the call; the machine's state is unknown."""


def end_machine(context: Context, provider: str, machine_id: str) -> CloudResource:
    """Terminate a machine now. A leased one is released by cancelling its run.

    Raises MachineMissingError, MachineInUseError, MachineStaysError, ProviderUnreadError.
    """
    sight = _find(context, provider, machine_id)
    _refuse_owned(sight)
    if not context.janitor.end(sight):
        _refuse_needed(context, sight)
        raise ProviderUnreadError(
            f"{provider} did not take the order to end {machine_id}; the controller's log says why,"
            " and the janitor tries again"
        )
    return sight


def _find(context: Context, provider: str, machine_id: str) -> CloudResource:
    if provider not in context.traits:
        near = nearest(provider, list(context.traits))
        raise MachineMissingError(f"there is no provider {provider!r}{near}")
    survey = context.janitor.survey([provider])
    if provider in survey.unread:
        raise ProviderUnreadError(f"{provider} cannot be asked: {survey.unread[provider]}")
    for sight in survey.sights:
        if sight.machine.id == machine_id:
            return sight
    raise MachineMissingError(
        f"{provider} shows no {machine_id!r} of this project; GET /api/v1/machines lists them"
    )


def _refuse_owned(sight: CloudResource) -> None:
    tags, name = sight.machine.tags, sight.machine.id
    if sight.ownership is Ownership.LEASED:
        run = tags.get("seatrial-run", "") or "RUN"
        raise MachineInUseError(
            f"{name} is at work for a cell: `seatrial cancel {run}` gives it back in order"
        )
    if sight.ownership is Ownership.FOREIGN:
        until = f"{sight.expires_at:%Y-%m-%d %H:%M:%S} UTC" if sight.expires_at else "it expires"
        owner = tags.get("seatrial-controller", "another controller")
        raise MachineStaysError(f"{name} is controller {owner}'s until {until}; only that ends it")
    if sight.ownership is Ownership.SHARED:
        raise MachineStaysError(
            f"{name} is shared by machines that still exist: terminate these first"
        )


def _refuse_needed(context: Context, sight: CloudResource) -> None:
    needs = context.janitor.needed_by(sight)
    if needs is not None:
        raise MachineStaysError(
            f"{sight.machine.id} is shared, and lease {needs.id} of {needs.provider} still uses it:"
            " the janitor ends it after the last lease"
        )
