"""Firings of schedules, as tables show them; and what is said of a schedule in words."""

from __future__ import annotations

from datetime import datetime

from orchestrator.dashboard import urls
from orchestrator.dashboard.cron_text import cron_words
from orchestrator.dashboard.table import Badge, Cell, Column, Moment, Row, Text
from orchestrator.domain.schedule import CatchUp, Firing, Overlap, Schedule

COLUMNS = (
    Column("due_at", "Due"),
    Column("outcome", "Outcome"),
    Column("deadline", "Deadline"),
    Column("subject", "Subject"),
    Column("run", "Run"),
    Column("verdict", "Verdict"),
    Column("ended_at", "Told"),
    Column("why", "Why"),
)
_OVERLAPS = {
    Overlap.SKIP: "skipped while an earlier one is not over",
    Overlap.QUEUE: "queued while an earlier one is not over",
    Overlap.CANCEL_PREVIOUS: "an earlier one that is not over is cancelled",
}


def deadline_of(firing: Firing, now: datetime) -> str:
    """``in_time`` or ``deadline_missed``; ``queued`` while there is time; empty for no deadline."""
    if firing.deadline_at is None:
        return ""
    ended = firing.ended_at
    if firing.overdue or (ended or now) > firing.deadline_at:
        return "deadline_missed"
    return "in_time" if ended is not None else "queued"


def outcome_of(firing: Firing) -> str:
    """How it went, or where it is."""
    return firing.outcome or firing.state


def firing_row(firing: Firing, now: datetime) -> Row:
    """A line of a table."""
    kept = deadline_of(firing, now)
    subject = firing.resolved.subject if firing.resolved else ""
    cells: tuple[Cell, ...] = (
        Moment(firing.due_at),
        Badge(outcome_of(firing)),
        deadline_badge(firing, now),
        Text(subject or "–"),
        run_cell(firing),
        Text(firing.verdict, urls.verdict_url(firing.verdict)) if firing.verdict else Text("–"),
        Moment(firing.ended_at),
        Text(_why(firing)),
    )
    is_bad = kept == "deadline_missed" or firing.outcome == "missed"
    return Row(cells, tone="bad" if is_bad else "")


def run_cell(firing: Firing) -> Text:
    """Its run, and the one that asks a second machine."""
    if not firing.run:
        return Text("–")
    note = f"second machine: {firing.second_run}" if firing.second_run else ""
    return Text(firing.run, urls.run_url(firing.run), note=note, is_code=True)


def told_at(firing: Firing) -> str:
    """The address of its verdict, else of its run."""
    if firing.verdict:
        return urls.verdict_url(firing.verdict)
    return urls.run_url(firing.run) if firing.run else ""


def deadline_badge(firing: Firing | None, now: datetime) -> Badge:
    """Whether the deadline was kept, and when it was."""
    if firing is None or firing.deadline_at is None:
        return Badge("")
    kept = deadline_of(firing, now)
    at = f"{firing.deadline_at:%Y-%m-%d %H:%M} UTC"
    return Badge("" if kept == "queued" else kept, note=at)


def _why(firing: Firing) -> str:
    by = (f"triggered by {firing.by}",) if firing.by else ()
    remarks = firing.resolved.remarks if firing.resolved else ()
    return "; ".join((*filter(None, (firing.reason,)), *remarks, *by))


def when_words(schedule: Schedule) -> str:
    """When it fires, in words or as it was written."""
    return f"{cron_words(schedule.cron) or schedule.cron}, {schedule.tz}"


def overlap_words(schedule: Schedule) -> str:
    """What a firing does while another is not over."""
    return _OVERLAPS[schedule.overlap]


def catch_up_words(schedule: Schedule) -> str:
    """What becomes of what nobody was there for."""
    if schedule.catch_up is CatchUp.NONE:
        return "nothing is made up for"
    which = "the latest" if schedule.catch_up is CatchUp.LATEST else "all"
    return f"{which} of the last {schedule.catch_up_hours} h after a downtime"


def deadline_words(schedule: Schedule) -> str:
    """By when there must be a verdict."""
    if not schedule.deadline:
        return "none"
    if schedule.deadline.endswith("m"):
        return f"{schedule.deadline.removesuffix('m')} minutes after it was due"
    return f"{schedule.deadline}, {schedule.tz}"
