"""Reviews of payloads: who reviewed a payload and how far it is trusted. They are never deleted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from orchestrator.domain.copied_fields import extended

PayloadLevel = Literal["untrusted", "reviewed", "trusted"]
LEVELS: tuple[PayloadLevel, ...] = ("untrusted", "reviewed", "trusted")
"""Levels of trust, lowest first; a payload without a review has the lowest."""
ReviewState = Literal["active", "expired", "withdrawn"]
LONGEST_REVIEW = timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadReview:
    """A person's review of a payload; it never changes."""

    id: str
    """Id, such as ``R-0001``."""
    payload: str
    """sha256 of the payload's archive, in hex."""
    level: PayloadLevel
    """The level of trust; ``untrusted`` withdraws all earlier reviews."""
    by: str
    """The reviewer: name of their token at that time."""
    token: str
    """Id of the token; `SOCKET` for an operating-system user."""
    note: str = ""
    """What was reviewed, or why earlier reviews are withdrawn."""
    at: datetime
    expires: datetime
    """When it expires; at most a year later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadReviewResponse(PayloadReview):
    """A review with its state."""

    state: ReviewState
    """``withdrawn``: a later ``untrusted`` review withdrew it."""


def is_at_least(level: PayloadLevel, wanted: PayloadLevel) -> bool:
    """Whether a level is as high as the required level."""
    return LEVELS.index(level) >= LEVELS.index(wanted)


def withdrawal(
    payload: str, reviews: Iterable[PayloadReview], now: datetime
) -> PayloadReview | None:
    """Return the newest ``untrusted`` review that withdrew earlier reviews; None without one."""
    said = sorted((one for one in reviews if one.payload == payload and one.at <= now), key=_order)
    taken = [one for one in said if one.level == "untrusted"]
    earlier = [one for one in said if taken and _order(one) < _order(taken[-1])]
    return taken[-1] if any(one.level != "untrusted" for one in earlier) else None


def review_state(
    review: PayloadReview, reviews: Iterable[PayloadReview], now: datetime
) -> ReviewState:
    """Return the state of a review; `reviews` are all reviews of its payload."""
    if now >= review.expires:
        return "expired"
    took = withdrawal(review.payload, reviews, now)
    return "withdrawn" if took and _order(review) < _order(took) else "active"


def review_answer(
    review: PayloadReview, reviews: Iterable[PayloadReview], now: datetime
) -> PayloadReviewResponse:
    """Return a review with its state; `reviews` are all reviews of its payload."""
    return extended(PayloadReviewResponse, review, state=review_state(review, reviews, now))


def review_in_force(
    payload: str, reviews: Iterable[PayloadReview], now: datetime
) -> PayloadReview | None:
    """Return the review that decides a payload's level; None if the payload is untrusted.

    Reviews that expired or were withdrawn are ignored. Of the others, the highest level and
    then the newest review decides.
    """
    said = sorted((one for one in reviews if one.payload == payload and one.at <= now), key=_order)
    taken_back = max(
        (index for index, one in enumerate(said) if one.level == "untrusted"), default=-1
    )
    active = [one for one in said[taken_back + 1 :] if now < one.expires]
    return max(active, key=lambda one: (LEVELS.index(one.level), _order(one)), default=None)


def _order(one: PayloadReview) -> tuple[datetime, str]:
    return one.at, one.id
