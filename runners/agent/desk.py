"""What all parts of a running attempt share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from .events import EventWriter
from .layout import Attempt
from .masking import Masker
from .output import Sink
from .plan import Plan
from .pulse import Pulse
from .separation import User


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
