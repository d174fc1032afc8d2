"""Values that the parts of a running attempt share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from .events import EventWriter
from .heartbeat import Heartbeat
from .installed_packages import EnvironmentCopy, Files
from .job_output import Sink
from .job_user import User
from .layout import AttemptFolder
from .masking import Masker
from .payload_copy import PayloadCopy
from .plan import AgentPlan
from .pytest_records import RecordsRefusal


@dataclass(frozen=True)
class AttemptContext:
    """The attempt's folders and plan, and the writers of its evidence."""

    attempt: AttemptFolder
    plan: AgentPlan
    events: EventWriter
    log: Sink
    masker: Masker
    heartbeat: Heartbeat


@dataclass(frozen=True)
class JobRunner:
    """The user, environment and payload that the jobs run with."""

    user: User
    variables: Mapping[str, str]
    secrets: Mapping[str, str]
    gpus: int
    payload: PayloadCopy
    """The copy in which they run."""
    environment: EnvironmentCopy
    """The environment in which they run."""
    installed: Tuple[Files, ...] = ()
    """Installed files, recorded before the first job, to detect later changes."""

    def refusal(self, *, tests: bool) -> Optional[RecordsRefusal]:
        """Return why results would not count now, or None; `tests` is whether pytest runs."""
        told = (one.refusal() for one in self.installed if tests or one.reason == "wrong_subject")
        return next(filter(None, told), None)
