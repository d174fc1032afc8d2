"""What all parts of a running attempt share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from .events import EventWriter
from .heartbeat import Pulse
from .installed import Files
from .job_user import User
from .layout import Attempt
from .masking import Masker
from .output import Sink
from .payload_copy import PayloadCopy
from .plan import Plan
from .records import Refusal


@dataclass(frozen=True)
class Desk:
    """The attempt's folders, its plan, and the pens that write its evidence."""

    attempt: Attempt
    plan: Plan
    events: EventWriter
    log: Sink
    masker: Masker
    pulse: Pulse


@dataclass(frozen=True)
class Crew:
    """Who runs the jobs, with what."""

    user: User
    variables: Mapping[str, str]
    secrets: Mapping[str, str]
    gpus: int
    payload: PayloadCopy
    """In which they run."""
    installed: Tuple[Files, ...] = ()
    """What the jobs are run with, as it was before the first of them."""

    def refusal(self, *, tests: bool) -> Optional[Refusal]:
        """Say why what runs now would not count; `tests`: whether pytest runs."""
        told = (one.refusal() for one in self.installed if tests or one.reason == "wrong_subject")
        return next(filter(None, told), None)
