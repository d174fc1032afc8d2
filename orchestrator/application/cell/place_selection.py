"""Ranks places by earlier refusals, with the reasons in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.domain.cell import Lease, LeaseFact, PlacementResult
from orchestrator.domain.machine import (
    Extent,
    Place,
    ProviderError,
)
from orchestrator.domain.outcome import Reason

REMEMBERED = frozenset({Reason.CAPACITY, Reason.QUOTA})

"""Reasons of other attempts' refusals that are respected for `exhausted_s`."""


@dataclass(frozen=True, slots=True)
class RankedPlace:
    """A place with the result and the reason of its ranking."""

    place: Place
    result: PlacementResult | None = None
    """None: tried in order; LAST: tried after all others; SKIPPED: not tried."""
    reason: str = ""
    detail: str = ""


def refusal_facts(error: ProviderError, reason: str) -> dict[str, str]:
    """Return the stored facts of a refusal."""
    return {
        LeaseFact.REFUSAL_REASON: reason,
        LeaseFact.REFUSAL_EXTENT: error.extent,
        LeaseFact.REFUSAL_CODE: error.code,
        LeaseFact.REFUSAL_DETAIL: str(error),
    }


def rank_places(
    places: Iterable[Place],
    *,
    mine: Sequence[Lease],
    worn: Mapping[str, str],
    lately: Iterable[Lease],
) -> list[RankedPlace]:
    """Sort places: those without refusals in their order, then the others.

    Args:
        places: The provider's places, in order of preference.
        mine: Leases of this attempt; places within the extent of their refusals are skipped.
        worn: Places where earlier attempts of the cell failed, with the reason in one word.
        lately: Leases of any run that were refused a short while ago.
    """
    tried = {lease.place for lease in mine}
    known = [lease for lease in lately if lease.refusal_reason in REMEMBERED]
    weighed = [
        _weighed(place, mine, worn=worn, lately=known)
        for place in places
        if place.name not in tried
    ]
    order = {None: 0, PlacementResult.LAST: 1, PlacementResult.SKIPPED: 2}
    return sorted(weighed, key=lambda one: order[one.result])


def _weighed(
    place: Place, mine: Sequence[Lease], *, worn: Mapping[str, str], lately: Sequence[Lease]
) -> RankedPlace:
    for lease in mine:
        if _reaches(lease, place):
            return RankedPlace(
                place, PlacementResult.SKIPPED, lease.refusal_reason, _because(lease, "asked")
            )
    if place.name in worn:
        detail = f"an earlier attempt broke down there: {worn[place.name]}"
        return RankedPlace(place, PlacementResult.LAST, "worn", detail)
    for lease in lately:
        if lease.place == place.name or _reaches(lease, place):
            return RankedPlace(
                place, PlacementResult.LAST, lease.refusal_reason, _because(lease, "lately")
            )
    return RankedPlace(place)


def _reaches(lease: Lease, place: Place) -> bool:
    extent = lease.refusal_extent
    if extent is None or lease.offer is None:
        return False
    return place.is_within(lease.offer, extent)


def _because(lease: Lease, when: str) -> str:
    code = lease.refusal_code or lease.refusal_reason
    extent = lease.refusal_extent or Extent.PLACE
    if when == "lately":
        at = f"{lease.gone_at:%H:%M} UTC" if lease.gone_at else "a while ago"
        return f"{code} was answered at {lease.place}, {at}"
    return f"{code} at {lease.place} holds for the whole {extent}"
