"""How many calls EC2 takes: a bucket of tokens for each API of a region, refilled every second.

docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html, read in November 2026.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from tests.lab.aws.wire import ApiError


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket's size, and how many tokens come back in a second."""

    size: float
    per_s: float


READS = Rate(100, 20)
CHANGES = Rate(50, 5)
RATES = {"RunInstances": Rate(5, 2), "TerminateInstances": Rate(100, 5)}
_READING = ("Describe", "Get")


@dataclass(slots=True)
class RateBuckets:
    """What is left of each."""

    rates: dict[str, Rate] = field(default_factory=lambda: dict(RATES))
    _left: dict[tuple[str, str], tuple[float, datetime]] = field(default_factory=dict)

    def take(self, region: str, name: str, at: datetime) -> None:
        """One call. Raises ApiError where the bucket is empty."""
        rate = self.rates.get(name, READS if name.startswith(_READING) else CHANGES)
        left, since = self._left.get((region, name), (rate.size, at))
        refilled = max(0.0, (at - since).total_seconds()) * rate.per_s
        left = min(rate.size, left + refilled)
        if left < 1:
            raise ApiError("RequestLimitExceeded", "Request limit exceeded.", 503)
        self._left[region, name] = (left - 1, at)
