"""Quarantines of flaky tests: add, end, end automatically after passes, suggest."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from orchestrator.application.context import Context
from orchestrator.application.gate_policies import longest_of
from orchestrator.application.history_of_test import history_of
from orchestrator.application.list_flaky import FlakyTest, list_flaky
from orchestrator.domain.caller_identity import Person
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.document_problems import InvalidDocumentError, Problem, nearest
from orchestrator.domain.field_limits import STRICT, Filled, ValueLimits
from orchestrator.domain.flaky import ResultPoint
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.node_ids import KnownTest
from orchestrator.domain.quarantine import (
    MOST_PASSES,
    QuarantineState,
    SuggestedQuarantine,
    faults_of,
    is_about,
    may_return,
    returned_after,
    state_of,
)
from orchestrator.store.stores import Stores

logger = logging.getLogger(__name__)

RUNS = 50
"""Number of newest runs whose flaky tests may be suggested."""
_RESULTS = 2_000
"""Maximum results of one test that are read."""
_PAGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQuarantine:
    """A quarantine to add."""

    __pydantic_config__ = STRICT

    product: Filled
    """The payload's name."""
    nodeid: Annotated[str, ValueLimits(min_length=1, max_length=2000)]
    """Node id of the test, as in `seatrial show`."""
    reason: Filled
    owner: Filled
    """Name of the person who fixes it."""
    days: Annotated[int, ValueLimits(ge=1, le=36_500)]
    """Days until it expires: at most `exception_max_age` of the product's gates."""
    platforms: tuple[Filled, ...] = ()
    """Platform ids; empty means all."""
    returns_after: Annotated[int, ValueLimits(ge=1, le=MOST_PASSES)] = 20
    """Consecutive passes, on each platform, that end it automatically."""


def add_quarantine(context: Context, new: NewQuarantine, *, author: Person) -> Quarantine:
    """Store a quarantine, opened now. Raises InvalidDocumentError."""
    at = context.clock.now()
    quarantine = filled(
        Quarantine,
        new,
        unset=("ended_at", "ended_by"),
        id="",
        platforms=tuple(sorted(set(new.platforms))),
        author=author.name,
        author_token=author.token,
        opened=at,
        expires=at + timedelta(days=min(max(new.days, 0), 36_500)),
    )
    longest = longest_of(context, new.product)
    found = (*faults_of(quarantine, longest), *_problems(context.stores, quarantine, at))
    problems = [Problem((key,), said) for key, said in found]
    if problems:
        raise InvalidDocumentError("the quarantine", problems)
    return context.stores.quarantines.add(quarantine)


def _problems(stores: Stores, new: Quarantine, at: datetime) -> Iterator[tuple[str, str]]:
    if new.product.strip() and new.nodeid.strip() and not _tests(stores, new.product, new.nodeid):
        near = stores.tests.page(
            product=new.product,
            job=None,
            contains=new.nodeid.rpartition("::")[2],
            limit=20,
            after=None,
        )
        known = nearest(new.nodeid, {test.nodeid for test in near})
        yield "nodeid", f"{new.product} has no test {new.nodeid!r} with a result{known}"
    for one in stores.quarantines.list(product=new.product):
        same = (one.nodeid, one.platforms) == (new.nodeid, new.platforms)
        if same and state_of(one, at) is QuarantineState.ACTIVE:
            yield (
                "nodeid",
                f"is in quarantine {one.id} until {one.expires:%Y-%m-%d}: end that first",
            )


def end_quarantine(context: Context, quarantine_id: str, *, by: str) -> Quarantine | None:
    """End a quarantine now; idempotent. Return None for an unknown one."""
    return context.stores.quarantines.end(quarantine_id, at=context.clock.now(), by=by)


def settle_quarantines(stores: Stores, product: str, *, at: datetime) -> tuple[Quarantine, ...]:
    """End quarantines of tests with enough passes; return the product's quarantines.

    Called whenever a run ends, and before a gate looks: idempotent.
    """
    return tuple(
        _settled(stores, one, at) if state_of(one, at) is QuarantineState.ACTIVE else one
        for one in stores.quarantines.list(product=product)
    )


def settle_after(stores: Stores, product: str, *, at: datetime) -> None:
    """Settle a product's quarantines after a run; an error is only logged."""
    try:
        settle_quarantines(stores, product, at=at)
    except Exception:
        logger.exception("the quarantines of %s could not be settled", product)


def _settled(stores: Stores, one: Quarantine, at: datetime) -> Quarantine:
    since = [
        _since(stores, test.id, one.opened) for test in _tests(stores, one.product, one.nodeid)
    ]
    if not may_return(one, since):
        return one
    by = returned_after(one.returns_after)
    return stores.quarantines.end(one.id, at=at, by=by) or one


def _since(stores: Stores, test_id: int, opened: datetime) -> list[ResultPoint]:
    """Return results of runs launched later, oldest first."""
    history = history_of(stores, test_id, limit=_RESULTS)
    goes = history.goes if history else ()
    return [one for one in reversed(goes) if one.at >= opened]


def _tests(stores: Stores, product: str, nodeid: str) -> list[KnownTest]:
    """Return the tests of that name, in every job."""
    found: list[KnownTest] = []
    after: int | None = None
    while True:
        page = stores.tests.page(
            product=product, job=None, contains=nodeid, limit=_PAGE, after=after
        )
        found += [test for test in page if test.nodeid == nodeid]
        if page.next is None:
            return found
        after = page.next


def suggest_quarantines(context: Context, product: str) -> tuple[SuggestedQuarantine, ...]:
    """Return tests that are flaky by their history, as `list_flaky` has them, likeliest first."""
    return tuple(
        SuggestedQuarantine(
            job=one.test.job,
            nodeid=one.test.nodeid,
            platforms=one.platforms,
            evidence=one.evidence,
            quarantine=next((q.id for q in one.quarantines if _covers(q, one)), ""),
        )
        for one in list_flaky(context, product, runs=RUNS).tests
    )


def _covers(known: Quarantine, one: FlakyTest) -> bool:
    return all(is_about(known, one.test.nodeid, platform) for platform in one.platforms)
