"""What people are told of a firing."""

from __future__ import annotations

from datetime import datetime

from orchestrator.application.context import Context
from orchestrator.application.message_links import run_link
from orchestrator.domain.announcement import Announcement, LineageState
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.schedule import CANCELLED, ERRORED, MISSED, SKIPPED, Firing, Schedule
from orchestrator.store.verdict_lines import StoredVerdict

_BROKEN = (ERRORED, MISSED)
_RUN_STATES = {
    Outcome.PASSED: LineageState.PASS,
    Outcome.FAILED: LineageState.FAIL,
    Outcome.TIMED_OUT: LineageState.FAIL,
}


def end_of_firing(context: Context, schedule: Schedule, firing: Firing) -> Announcement | None:
    """What its end is to people; None where it is none, because another firing stands for it."""
    if firing.superseded or (not firing.run and firing.outcome in (SKIPPED, CANCELLED)):
        return None
    verdict = context.stores.gates.verdict(firing.verdict) if firing.verdict else None
    state = _state(firing)
    about = f" for {firing.resolved.subject}" if firing.resolved else ""
    remarks = firing.resolved.remarks if firing.resolved else ()
    why = verdict.verdict.summary if verdict else firing.reason or _of_run(firing)
    return Announcement(
        lineage=schedule.lineage,
        state=state,
        title=f"{_line(schedule)}: {state.words}{about}",
        text="\n".join([why, *remarks, *_late(firing), _origin(firing)]),
        url=run_link(context, firing.run),
        at=context.clock.now(),
        key=f"{firing.key}:end",
        evaluated_at=verdict.created_at if verdict else None,
        facts=_facts(schedule, firing, verdict),
    )


def no_verdict(context: Context, schedule: Schedule, firing: Firing) -> Announcement:
    """That its deadline has passed without one."""
    deadline = firing.deadline_at or firing.due_at
    where = f"it is {firing.state}" + (f", run {firing.run}" if firing.run else "")
    if firing.verdict:
        where = f"{firing.verdict} is {firing.outcome}, and run {firing.confirmation_run} asks why"
    doing = f"it waits after {firing.tries} faults: {firing.reason}" if firing.tries else where
    return Announcement(
        lineage=schedule.lineage,
        state=LineageState.LATE,
        title=f"{_line(schedule)}: no verdict by {_utc(deadline)}",
        text=f"The firing of {_utc(firing.due_at)} has come to no final verdict: {doing}.",
        url=run_link(context, firing.run),
        at=context.clock.now(),
        key=f"{firing.key}:deadline",
        facts=_facts(schedule, firing, None),
    )


def _state(firing: Firing) -> LineageState:
    if firing.outcome in _BROKEN:
        return LineageState.ERRORED
    if firing.verdict:
        return LineageState.of(Decision(firing.outcome))
    return _RUN_STATES.get(Outcome(firing.outcome), LineageState.INCONCLUSIVE)


def _of_run(firing: Firing) -> str:
    return f"Run {firing.run} is {firing.outcome.replace('_', ' ')}."


def _late(firing: Firing) -> tuple[str, ...]:
    if not firing.overdue or firing.deadline_at is None:
        return ()
    return (f"It comes after the deadline, {_utc(firing.deadline_at)}.",)


def _origin(firing: Firing) -> str:
    cause = f"triggered by {firing.by}" if firing.by else f"due at {_utc(firing.due_at)}"
    return f"Schedule {firing.schedule}, {cause}."


def _line(schedule: Schedule) -> str:
    return f"{schedule.gate} gate, {schedule.name}" if schedule.gate else schedule.name


def _facts(schedule: Schedule, firing: Firing, verdict: StoredVerdict | None) -> dict[str, str]:
    resolved = firing.resolved.known if firing.resolved else {}
    subject = verdict.verdict.subject if verdict else resolved
    facts = {
        "gate": schedule.gate,
        "product": verdict.verdict.product if verdict else "",
        "subject": subject.get("name", ""),
        "version": subject.get("version", ""),
        "git_sha": subject.get("git_sha", ""),
        "verdict": firing.verdict,
        "runs": firing.run,
        "schedule": schedule.name,
        "firing": f"{firing.due_at:%Y-%m-%dT%H:%M:%SZ}",
        "owner": schedule.owner,
    }
    return {name: text for name, text in facts.items() if text}


def _utc(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
