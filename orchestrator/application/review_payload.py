"""Write down that somebody read a payload, and what they hold it for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from orchestrator.application.context import Context
from orchestrator.domain.gate.payload_review import (
    LEVELS,
    LONGEST_REVIEW,
    PayloadLevel,
    PayloadReview,
)
from orchestrator.domain.person import Person
from orchestrator.domain.problems import InvalidDocumentError, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReview:
    """A review to add."""

    payload: str
    """sha256 of its archive, in hex; ``sha256:`` may stand before it."""
    level: PayloadLevel
    by: Person
    days: int
    note: str = ""


def review_payload(context: Context, new: NewReview) -> PayloadReview:
    """Store it, from now on. Not idempotent.

    Raises InvalidDocumentError, and nothing is stored: for longer than a year, or of a payload that
    was never uploaded.
    """
    digest = new.payload.strip().removeprefix("sha256:").lower()
    problems = list(_problems(context, new, digest))
    if problems:
        raise InvalidDocumentError("the review", problems)
    at = context.clock.now()
    review = PayloadReview(
        id="",
        payload=digest,
        level=new.level,
        by=new.by.name,
        token=new.by.token,
        note=new.note.strip(),
        at=at,
        expires=at + timedelta(days=new.days),
    )
    return context.stores.gates.add_review(review)


def _problems(context: Context, new: NewReview, digest: str) -> Iterator[Problem]:
    if new.level not in LEVELS:
        yield Problem(("level",), f"must be one of {', '.join(LEVELS)}")
    if not 1 <= new.days <= LONGEST_REVIEW.days:
        yield Problem(("days",), f"must be from 1 to {LONGEST_REVIEW.days}")
    if context.stores.payloads.get(digest) is None:
        message = "no payload of this digest was uploaded; `seatrial gate explain` prints the one"
        yield Problem(("payload",), f"{message} that a verdict is about")
