"""What the API tells of schedules."""

from __future__ import annotations

from datetime import datetime

from orchestrator.api.models import ResponseModel
from orchestrator.application.schedules import ShownSchedule
from orchestrator.domain.schedule import CatchUp, Firing, FiringState, Overlap, SubjectKind


class FiringResponse(ResponseModel):
    """One time that a schedule was due."""

    due_at: datetime
    state: FiringState
    """Where it is."""
    outcome: str
    """The gate's decision, or the run's outcome without one, or ``errored``, ``skipped``,
    ``missed``, ``cancelled``; empty while there is none."""
    reason: str
    """Why there is no verdict, or none yet."""
    by: str
    """Who triggered it; empty for the clock."""
    deadline_at: datetime | None
    overdue: bool
    """People were told that there was no verdict by the deadline."""
    retry_at: datetime | None
    """When what went wrong is tried again."""
    subject: str
    """What it is about, once that is known."""
    remarks: list[str]
    run: str
    second_run: str
    """Asks a second machine who broke it."""
    verdict: str
    ended_at: datetime | None


class SelectorResponse(ResponseModel):
    """Which subject a firing is about."""

    kind: SubjectKind
    package: str
    prereleases: bool
    url: str
    branch: str


class ScheduleResponse(ResponseModel):
    """A matrix that is launched again and again."""

    name: str
    cron: str
    tz: str
    owner: str
    matrix: str
    """The file's name."""
    payload: str
    subject: str | None
    select: SelectorResponse
    last_passed_baseline: bool
    gate: str
    lineage: str
    """The line of verdicts that people follow."""
    deadline: str
    overlap: Overlap
    catch_up: CatchUp
    catch_up_hours: int
    reuse_hours: float | None
    created_at: datetime
    paused_at: datetime | None
    upcoming: list[datetime]
    """Its next times; none while it is paused."""
    firings: list[FiringResponse]
    """The latest first; of a list of schedules, only the latest."""


class ScheduleListResponse(ResponseModel):
    """Schedules, by name."""

    items: list[ScheduleResponse]


def tell_schedule(shown: ShownSchedule) -> ScheduleResponse:
    """A schedule with its firings."""
    schedule = shown.schedule
    selector = schedule.subject
    reuse_s = schedule.reuse_max_age_s
    return ScheduleResponse(
        name=schedule.name,
        cron=schedule.cron,
        tz=schedule.tz,
        owner=schedule.owner,
        matrix=schedule.matrix_name,
        payload=schedule.payload,
        subject=schedule.subject_digest,
        select=SelectorResponse(
            kind=selector.kind,
            package=selector.package,
            prereleases=selector.prereleases,
            url=selector.url,
            branch=selector.branch,
        ),
        last_passed_baseline=schedule.last_passed_baseline,
        gate=schedule.gate,
        lineage=schedule.lineage,
        deadline=schedule.deadline,
        overlap=schedule.overlap,
        catch_up=schedule.catch_up,
        catch_up_hours=schedule.catch_up_hours,
        reuse_hours=reuse_s / 3600 if reuse_s is not None else None,
        created_at=schedule.created_at,
        paused_at=schedule.paused_at,
        upcoming=list(shown.upcoming),
        firings=[tell_firing(firing) for firing in shown.firings],
    )


def tell_firing(firing: Firing) -> FiringResponse:
    """A firing, without the document that it launches."""
    resolved = firing.resolved
    return FiringResponse(
        due_at=firing.due_at,
        state=firing.state,
        outcome=firing.outcome,
        reason=firing.reason,
        by=firing.by,
        deadline_at=firing.deadline_at,
        overdue=firing.overdue,
        retry_at=firing.retry_at,
        subject=resolved.subject if resolved else "",
        remarks=list(resolved.remarks) if resolved else [],
        run=firing.run,
        second_run=firing.second_run,
        verdict=firing.verdict,
        ended_at=firing.ended_at,
    )
