"""Who read a payload, and how far they believe it: a judgement of people, kept for good."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from orchestrator.domain.extend_record import extended

PayloadLevel = Literal["untrusted", "reviewed", "trusted"]
LEVELS: tuple[PayloadLevel, ...] = ("untrusted", "reviewed", "trusted")
"""From the least believed; what nobody read is the first."""
ReviewState = Literal["active", "expired", "withdrawn"]
LONGEST_REVIEW = timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadReview:
    """A person's word that they read a payload; append-only."""

    id: str
    """``R-0001``."""
    payload: str
    """sha256 of its archive, in hex: of another byte it is another payload."""
    level: PayloadLevel
    """What they hold it for; ``untrusted`` takes back all that was said before."""
    by: str
    """The name that their token had then."""
    token: str
    """Its id; `SOCKET` of the operating-system user."""
    note: str = ""
    """What they read, or why they take it back."""
    at: datetime
    expires: datetime
    """At most a year on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadReviewResponse(PayloadReview):
    """A review at a time, among all that are known of its payload."""

    state: ReviewState
    """``withdrawn``: a later ``untrusted`` of the payload took it back."""


def is_at_least(level: PayloadLevel, wanted: PayloadLevel) -> bool:
    """Whether a level is the wanted one, or above it."""
    return LEVELS.index(level) >= LEVELS.index(wanted)


def withdrawal(
    payload: str, reviews: Iterable[PayloadReview], now: datetime
) -> PayloadReview | None:
    """The newest ``untrusted`` of a payload that took back an earlier review; None without one."""
    said = sorted((one for one in reviews if one.payload == payload and one.at <= now), key=_order)
    taken = [one for one in said if one.level == "untrusted"]
    earlier = [one for one in said if taken and _order(one) < _order(taken[-1])]
    return taken[-1] if any(one.level != "untrusted" for one in earlier) else None


def review_state(
    review: PayloadReview, reviews: Iterable[PayloadReview], now: datetime
) -> ReviewState:
    """What a review counts for now, among all that are known of its payload."""
    if now >= review.expires:
        return "expired"
    took = withdrawal(review.payload, reviews, now)
    return "withdrawn" if took and _order(review) < _order(took) else "active"


def review_answer(
    review: PayloadReview, reviews: Iterable[PayloadReview], now: datetime
) -> PayloadReviewResponse:
    """The review with its state now, given all reviews of its payload."""
    return extended(PayloadReviewResponse, review, state=review_state(review, reviews, now))


def review_in_force(
    payload: str, reviews: Iterable[PayloadReview], now: datetime
) -> PayloadReview | None:
    """The one that says the payload's level at a time; None where it is untrusted.

    The highest, and of several the newest, of those that are not over and that nobody took back.
    """
    said = sorted((one for one in reviews if one.payload == payload and one.at <= now), key=_order)
    taken_back = max(
        (index for index, one in enumerate(said) if one.level == "untrusted"), default=-1
    )
    active = [one for one in said[taken_back + 1 :] if now < one.expires]
    return max(active, key=lambda one: (LEVELS.index(one.level), _order(one)), default=None)


def _order(one: PayloadReview) -> tuple[datetime, str]:
    return one.at, one.id
