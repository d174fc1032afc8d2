"""Payload reviews: who read a payload, and which level of trust they gave it; never deleted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from orchestrator.domain.extend_record import extended

PayloadLevel = Literal["untrusted", "reviewed", "trusted"]
LEVELS: tuple[PayloadLevel, ...] = ("untrusted", "reviewed", "trusted")
"""Levels of trust, lowest first; an unreviewed payload has the first."""
ReviewState = Literal["active", "expired", "withdrawn"]
LONGEST_REVIEW = timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadReview:
    """A person's review of a payload; append-only."""

    id: str
    """``R-0001``."""
    payload: str
    """sha256 of its archive, in hex."""
    level: PayloadLevel
    """The level; ``untrusted`` withdraws all earlier reviews."""
    by: str
    """The name of their token at that time."""
    token: str
    """Id of the token; `SOCKET` for an operating-system user."""
    note: str = ""
    """The parts that were read, or why the review is withdrawn."""
    at: datetime
    expires: datetime
    """At most a year later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadReviewResponse(PayloadReview):
    """A review with its present state."""

    state: ReviewState
    """``withdrawn``: a later ``untrusted`` review withdrew it."""


def is_at_least(level: PayloadLevel, wanted: PayloadLevel) -> bool:
    """Whether a level is at least the required one."""
    return LEVELS.index(level) >= LEVELS.index(wanted)


def withdrawal(
    payload: str, reviews: Iterable[PayloadReview], now: datetime
) -> PayloadReview | None:
    """Return the newest ``untrusted`` review that withdrew an earlier one; None without one."""
    said = sorted((one for one in reviews if one.payload == payload and one.at <= now), key=_order)
    taken = [one for one in said if one.level == "untrusted"]
    earlier = [one for one in said if taken and _order(one) < _order(taken[-1])]
    return taken[-1] if any(one.level != "untrusted" for one in earlier) else None


def review_state(
    review: PayloadReview, reviews: Iterable[PayloadReview], now: datetime
) -> ReviewState:
    """Return the state of a review, given all reviews of its payload."""
    if now >= review.expires:
        return "expired"
    took = withdrawal(review.payload, reviews, now)
    return "withdrawn" if took and _order(review) < _order(took) else "active"


def review_answer(
    review: PayloadReview, reviews: Iterable[PayloadReview], now: datetime
) -> PayloadReviewResponse:
    """Return a review with its state, given all reviews of its payload."""
    return extended(PayloadReviewResponse, review, state=review_state(review, reviews, now))


def review_in_force(
    payload: str, reviews: Iterable[PayloadReview], now: datetime
) -> PayloadReview | None:
    """Return the review that determines the payload's level; None if it is untrusted.

    The highest level counts, then the newest review, of those that are neither expired nor
    withdrawn.
    """
    said = sorted((one for one in reviews if one.payload == payload and one.at <= now), key=_order)
    taken_back = max(
        (index for index, one in enumerate(said) if one.level == "untrusted"), default=-1
    )
    active = [one for one in said[taken_back + 1 :] if now < one.expires]
    return max(active, key=lambda one: (LEVELS.index(one.level), _order(one)), default=None)


def _order(one: PayloadReview) -> tuple[datetime, str]:
    return one.at, one.id
