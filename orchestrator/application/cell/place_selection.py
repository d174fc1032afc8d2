"""Which place is tried next, by what was refused before; and why, so that a person can read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.domain.cell import Lease, PlaceAnswer
from orchestrator.domain.machine import Extent, Place, ProviderError

REASON, EXTENT, CODE, DETAIL = "refusal", "refusal_extent", "refusal_code", "refusal_detail"
"""Facts of a refused lease: why, how far it reaches, in whose words."""
REMEMBERED = frozenset({"capacity", "quota"})
"""Refusals of other attempts that are believed for a while."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place, and what is to be done about it."""

    place: Place
    verdict: PlaceAnswer | None = None
    """None: try it in its turn; LAST: after all those; SKIPPED: not at all."""
    reason: str = ""
    detail: str = ""


def refusal_facts(error: ProviderError, reason: str) -> dict[str, str]:
    """What is kept of a refusal."""
    return {REASON: reason, EXTENT: error.extent, CODE: error.code, DETAIL: str(error)}


def refusal_of(lease: Lease) -> str:
    """One word for why the lease's place gave no machine; empty when it was not refused."""
    return lease.facts.get(REASON, "") or lease.refusal.partition(":")[0]


def weigh(
    places: Iterable[Place],
    *,
    mine: Sequence[Lease],
    worn: Mapping[str, str],
    lately: Iterable[Lease],
) -> list[Candidate]:
    """Sort the places that are left: fresh ones in their order, then those with a past.

    Args:
        places: As the provider offers them, in order of preference.
        mine: Leases of this attempt: what they tried is out, as far as each refusal reaches.
        worn: Where the cell's earlier attempts broke down, by place; the value is one word of why.
        lately: Refusals that any run met a short while ago.
    """
    tried = {lease.place for lease in mine}
    known = [lease for lease in lately if refusal_of(lease) in REMEMBERED]
    weighed = [
        _weighed(place, mine, worn=worn, lately=known)
        for place in places
        if place.name not in tried
    ]
    order = {None: 0, PlaceAnswer.LAST: 1, PlaceAnswer.SKIPPED: 2}
    return sorted(weighed, key=lambda one: order[one.verdict])


def _weighed(
    place: Place, mine: Sequence[Lease], *, worn: Mapping[str, str], lately: Sequence[Lease]
) -> Candidate:
    for lease in mine:
        if _reaches(lease, place):
            return Candidate(
                place, PlaceAnswer.SKIPPED, refusal_of(lease), _because(lease, "asked")
            )
    if place.name in worn:
        detail = f"an earlier attempt broke down there: {worn[place.name]}"
        return Candidate(place, PlaceAnswer.LAST, "worn", detail)
    for lease in lately:
        if lease.place == place.name or _reaches(lease, place):
            return Candidate(place, PlaceAnswer.LAST, refusal_of(lease), _because(lease, "lately"))
    return Candidate(place)


def _reaches(lease: Lease, place: Place) -> bool:
    extent = lease.facts.get(EXTENT)
    if extent is None or lease.offer is None:
        return False
    return place.is_within(lease.offer, Extent(extent))


def _because(lease: Lease, when: str) -> str:
    code = lease.facts.get(CODE) or refusal_of(lease)
    reach = lease.facts.get(EXTENT, Extent.PLACE)
    if when == "lately":
        at = f"{lease.gone_at:%H:%M} UTC" if lease.gone_at else "a while ago"
        return f"{code} was answered at {lease.place}, {at}"
    return f"{code} at {lease.place} holds for the whole {reach}"
