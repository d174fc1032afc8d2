"""Values that the parts of a running attempt share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from .events import EventWriter
from .evidence_text import Masker
from .heartbeat import Heartbeat
from .installed_packages import EnvironmentCopy, Files
from .job_output import Sink
from .job_user import User
from .layout import AttemptFolder
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
    """The copy of the payload in which the jobs run."""
    environment: EnvironmentCopy
    """The virtual environment in which the jobs run."""
    installed: Tuple[Files, ...] = ()
    """Installed files, recorded before the first job, to detect later changes."""

    def refusal(self, *, tests: bool) -> Optional[RecordsRefusal]:
        """Return why results would not count now, or None; `tests` is whether pytest runs."""
        told = (one.refusal() for one in self.installed if tests or one.reason == "wrong_subject")
        return next(filter(None, told), None)

    def copied(self) -> Optional[RecordsRefusal]:
        """Return a refusal if a job put a payload file into the subject's folders, else None."""
        subject = next((one for one in self.installed if one.reason == "wrong_subject"), None)
        added = self.environment.added(subject.folders()) if subject is not None else ()
        for file in sorted(added):
            shipped = self.payload.shipped_as(file)
            if subject is not None and shipped:
                shown = os.path.relpath(file, os.path.realpath(subject.home))
                text = f"{shown} of {subject.name} is the"
                text += f" payload's {shipped}, which a job put there"
                fix = f"put the file into {subject.name}'s wheel, or let nothing write there"
                return RecordsRefusal("wrong_subject", f"{text}. Fix: {fix}")
        return None
