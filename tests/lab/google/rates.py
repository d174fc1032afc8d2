"""How many calls Compute Engine takes in a minute: a quota for each group of methods.

cloud.google.com/compute/docs/api-rate-limits, read in November 2026: 1,500 a minute and project for
changes and for reads; a quota that is used up comes back at the start of the next minute, and until
then calls are refused with 403, rateLimitExceeded. Lists have groups of their own there, whose
numbers are not known to the lab: it counts them as reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime

from tests.lab.google.codes import gce_fault
from tests.lab.google.front import ApiError, Request

PER_MINUTE = 1500
_CHANGES = ("insert", "delete", "reset")


class RateQuotas:
    """What is used of each group in this minute, by project and region."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.per_minute = PER_MINUTE
        self._clock = clock
        self._minute = 0
        self._used: Counter[tuple[str, str, str]] = Counter()

    def take(self, request: Request, region: str) -> None:
        """One call. Raises ApiError where the group's quota is used up."""
        minute = int(self._clock().timestamp()) // 60
        if minute != self._minute:
            self._minute = minute
            self._used.clear()
        verb = request.name.rpartition(".")[2]
        group = "changes" if verb in _CHANGES else "reads"
        key = (request.path.get("project", ""), region, group)
        if self._used[key] >= self.per_minute:
            refusal = gce_fault("rateLimitExceeded")
            raise ApiError(refusal.code, refusal.message, refusal.status)
        self._used[key] += 1
