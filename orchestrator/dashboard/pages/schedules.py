"""Schedules and their firings: the list, and the page of one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Response

from orchestrator.application.gate_policies import GateMissingError
from orchestrator.application.launch_run import PayloadMissingError
from orchestrator.application.schedules import (
    FIRINGS_SHOWN,
    ScheduleMissingError,
    add_schedule,
    find_schedule,
    list_schedules,
    pause_schedule,
    remove_schedule,
    replace_schedule,
    resume_schedule,
    show_schedule,
    trigger_schedule,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.forms import Form, form_of
from orchestrator.dashboard.responses import (
    Format,
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
)
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import Badge, Column, Moment, Row, Table, TableCell, Text
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.schedule import (
    CatchUp,
    Firing,
    Overlap,
    Schedule,
    ScheduleResponse,
)
from orchestrator.domain.units import plural
from orchestrator.domain.vocabulary import term
from orchestrator.store.schedules import ScheduleTakenError

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_SHORT = {name[:3].upper(): number for number, name in enumerate(_DAYS)}
_STEP = re.compile(r"\*/([1-9][0-9]?)")
_RANGE = re.compile(r"(\w+)-(\w+)")


def cron_words(expression: str) -> str:
    """Return ``every day at 02:00``; empty for an expression that is too complex."""
    fields = expression.split()
    if len(fields) != 5:
        return ""
    minute, hour, day, month, weekday = fields
    if month != "*" or (day != "*" and weekday != "*"):
        return ""
    days = _days(day, weekday)
    times = _times(minute, hour)
    if not days or not times:
        return ""
    return times if days == "every day" and times.startswith("every") else f"{days} {times}"


def _times(minute: str, hour: str) -> str:
    step = _STEP.fullmatch(minute)
    if hour == "*" and minute == "*":
        return "every minute"
    if hour == "*" and step:
        return f"every {step[1]} minutes"
    if hour == "*" and minute.isdigit():
        return f"every hour at :{int(minute):02}"
    every = _STEP.fullmatch(hour)
    if every and minute.isdigit():
        return f"every {every[1]} hours at :{int(minute):02}"
    hours = hour.split(",")
    if minute.isdigit() and all(one.isdigit() for one in hours):
        return "at " + " and ".join(f"{int(one):02}:{int(minute):02}" for one in hours)
    return ""


def _days(day: str, weekday: str) -> str:
    if day == "*" and weekday == "*":
        return "every day"
    if weekday == "*":
        return f"on day {day} of every month" if day.isdigit() else ""
    found = _RANGE.fullmatch(weekday)
    if found:
        first, last = _number(found[1]), _number(found[2])
        if first is None or last is None:
            return ""
        return "on working days" if (first, last) == (1, 5) else f"{_DAYS[first]} to {_DAYS[last]}"
    numbers = [_number(one) for one in weekday.split(",")]
    named = [f"{_DAYS[number]}s" for number in numbers if number is not None]
    return "on " + " and ".join(named) if len(named) == len(numbers) else ""


def _number(day: str) -> int | None:
    """Return the number of a weekday; 0 and 7 are both Sunday."""
    if day.isdigit():
        return int(day) % 7 if int(day) <= 7 else None
    return _SHORT.get(day.upper())


COLUMNS = (
    Column("due_at", "Due"),
    Column("outcome", "Outcome"),
    Column("deadline", "Deadline"),
    Column("subject", "Subject"),
    Column("run", "Run"),
    Column("verdict", "Verdict"),
    Column("ended_at", "Ended"),
    Column("why", "Why"),
)
_OVERLAPS = {
    Overlap.SKIP: "not launched while an earlier one is not over",
    Overlap.QUEUE: "queued while an earlier one is not over",
    Overlap.CANCEL_PREVIOUS: "an earlier one that is not over is cancelled",
}


_DEADLINES = {"in_time": "in time", "queued": "still to come", "deadline_missed": "missed"}


def deadline_of(firing: Firing, now: datetime) -> str:
    """Return ``in_time``, ``deadline_missed`` or ``queued``; empty without a deadline."""
    if firing.deadline_at is None:
        return ""
    ended = firing.ended_at
    if firing.overdue or (ended or now) > firing.deadline_at:
        return "deadline_missed"
    return "in_time" if ended is not None else "queued"


def firing_row(firing: Firing, now: datetime) -> Row:
    """Return the table row of a firing."""
    kept = deadline_of(firing, now)
    subject = firing.resolved.subject if firing.resolved else ""
    cells: tuple[TableCell, ...] = (
        Moment(firing.due_at),
        Badge(firing.term),
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
    """Return links to the firing's run, and to its rerun on a second machine."""
    if not firing.run:
        return Text("–")
    note = f"second machine: {firing.confirmation_run}" if firing.confirmation_run else ""
    return Text(firing.run, urls.run_url(firing.run), note=note, is_code=True)


def result_url(firing: Firing) -> str:
    """Return the URL of the firing's verdict, else of its run."""
    if firing.verdict:
        return urls.verdict_url(firing.verdict)
    return urls.run_url(firing.run) if firing.run else ""


def deadline_badge(firing: Firing | None, now: datetime) -> Badge:
    """Return a badge that shows whether the deadline was met, with its time; empty without one."""
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
    """Return the schedule's times in words, or its cron expression."""
    return f"{cron_words(schedule.cron) or schedule.cron}, {schedule.tz}"


def overlap_words(schedule: Schedule) -> str:
    """Return the schedule's overlap rule as a phrase."""
    return _OVERLAPS[schedule.overlap]


def catch_up_words(schedule: Schedule) -> str:
    """Return the schedule's catch-up rule as a phrase."""
    if schedule.catch_up is CatchUp.NONE:
        return "nothing is made up for"
    which = "the latest" if schedule.catch_up is CatchUp.LATEST else "all"
    return f"{which} of the last {schedule.catch_up_hours} h after a downtime"


def deadline_words(schedule: Schedule) -> str:
    """Return the deadline of verdicts as a phrase."""
    if not schedule.deadline:
        return "none"
    if schedule.deadline.endswith("m"):
        return f"{schedule.deadline.removesuffix('m')} minutes after it was due"
    return f"{schedule.deadline}, {schedule.tz}"


router = APIRouter()


@router.get(urls.SCHEDULES + "/{name}")
def show_one(request: PageRequestDep, name: str) -> Response:
    """Show a schedule with its firings."""
    try:
        shown = show_schedule(request.context, name)
    except ScheduleMissingError as error:
        raise PageMissingError(f"there is no schedule {name!r}; /schedules lists them") from error
    return request.answer(_page(request, shown))


@router.post(urls.SCHEDULES + "/{name}/pause")
def pause(
    request: PageRequestDep, viewer: Annotated[Viewer, needs(Scope.GATE)], name: str
) -> Response:
    """Pause the schedule."""
    return _done(request, name, lambda: pause_schedule(request.context, name))


@router.post(urls.SCHEDULES + "/{name}/resume")
def resume(
    request: PageRequestDep, viewer: Annotated[Viewer, needs(Scope.GATE)], name: str
) -> Response:
    """Resume the schedule."""
    return _done(request, name, lambda: resume_schedule(request.context, name))


@router.post(urls.SCHEDULES + "/{name}/trigger")
def trigger(
    request: PageRequestDep, viewer: Annotated[Viewer, needs(Scope.RUN)], name: str
) -> Response:
    """Trigger the schedule now; calls within one second are one firing."""
    return _done(request, name, lambda: trigger_schedule(request.context, name, by=viewer.name))


@router.post(urls.SCHEDULES + "/{name}/remove")
def remove(
    request: PageRequestDep, viewer: Annotated[Viewer, needs(Scope.GATE)], name: str
) -> Response:
    """Delete the schedule and its firings."""
    with suppress(ScheduleMissingError):  # it is removed already
        remove_schedule(request.context, name)
    return request.go(urls.SCHEDULES)


def _done(request: PageRequest, name: str, work: Callable[[], object]) -> Response:
    try:
        work()
    except ScheduleMissingError as error:
        raise PageMissingError(f"there is no schedule {name!r}; /schedules lists them") from error
    return request.go(urls.schedule_url(name))


def _page(request: PageRequest, shown: ScheduleResponse) -> Page:
    schedule = shown.schedule
    table = Table(
        id="firings",
        caption="Firings, the latest first",
        columns=COLUMNS,
        rows=[firing_row(one, request.now) for one in shown.firings],
        empty="It has not fired yet. It fires only while a permanent controller is running.",
        command="seatrial serve",
        is_caption_hidden=True,
    )
    return Page(
        template="schedule.html.j2",
        title=schedule.name,
        tables=(table,),
        facts={
            "schedule": schedule,
            "state": Badge("paused" if schedule.paused_at else "active"),
            "since": Moment(schedule.paused_at),
            "upcoming": [Moment(at) for at in shown.upcoming],
            "when": when_words(schedule),
            "overlap": overlap_words(schedule),
            "catch_up": catch_up_words(schedule),
            "deadline": deadline_words(schedule),
            "reuse_h": (schedule.reuse_max_age_s or 0) / 3600,
            "most_firings": FIRINGS_SHOWN,
            **_kept(request, shown),
        },
        data=_document(shown),
        section=urls.SCHEDULES,
    )


def _kept(request: PageRequest, shown: ScheduleResponse) -> Mapping[str, object]:
    """Return the numbers of deadlines that were met, that are pending and that were missed."""
    kept = [deadline_of(one, request.now) for one in shown.firings]
    told = [f"{kept.count(word)} {words}" for word, words in _DEADLINES.items() if word in kept]
    return {
        "deadlines": ", ".join(told),
        "is_late": "deadline_missed" in kept,
        "is_late_now": kept[:1] == ["deadline_missed"],
        "missed": sum(one.outcome == "missed" for one in shown.firings),
    }


def _document(shown: ScheduleResponse) -> Mapping[str, object]:
    schedule = shown.schedule
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "tz": schedule.tz,
        "paused_at": Moment(schedule.paused_at).plain(),
        "upcoming": [Moment(at).plain() for at in shown.upcoming],
        "owner": schedule.owner,
        "gate": schedule.gate,
        "deadline": schedule.deadline,
        "overlap": schedule.overlap,
        "catch_up": schedule.catch_up,
        "matrix": schedule.matrix,
    }


SHOWN = 200
FIRINGS = 10
LONGEST_MATRIX = 200_000
_SHOWN = ("name", "cron", "tz", "owner", "gate", "deadline", "overlap", "catch_up", "matrix")
_FIELDS = (*_SHOWN, "change")
_UNSEEN = (
    *("matrix_name", "payload", "subject_digest", "baseline_digest", "subject"),
    *("last_passed_baseline", "catch_up_hours", "reuse_max_age_s", "commit"),
)
"""Values of the changed schedule that the form does not show; they are kept."""
_COLUMNS = (
    Column("schedule", "Schedule"),
    Column("state", "State"),
    Column("when", "When"),
    Column("next_at", "Next"),
    Column("last_at", "Last"),
    Column("outcome", "Outcome"),
    Column("deadline", "Deadline"),
    Column("firings", f"Latest {FIRINGS}"),
    Column("gate", "Gate"),
    Column("owner", "Owner"),
)
_DATA = (
    Column("cron", "Cron"),
    Column("tz", "Zone"),
    Column("run", "Run"),
    Column("verdict", "Verdict"),
)
_COMMAND = (
    "seatrial schedule add NAME --cron '0 2 * * *' --tz Europe/Berlin"
    " --matrix seatrial.yaml --gate release --deadline 06:00"
)
_Word = TypeVar("_Word", bound=StrEnum)


@router.get(urls.SCHEDULES)
def show_schedules(request: PageRequestDep, change: str = "") -> Response:
    """Show every schedule, with a form for a new one or to change one."""
    if change:
        return _list_page(request, _form_of(_known(request, change)))
    given = {"tz": "UTC", "cron": "0 2 * * *", "overlap": "skip", "catch_up": "latest"}
    return _list_page(request, Form(given))


@router.post(urls.SCHEDULES)
def add_one(
    request: PageRequestDep,
    viewer: Annotated[Viewer, needs(Scope.GATE)],
    form: Annotated[Form, Depends(form_of(_FIELDS))],
) -> Response:
    """Add a schedule; if that is refused, show the form again with its errors."""
    new = _read(request, viewer, form)
    if form.is_refused:
        return _list_page(request, form)
    try:
        keep = replace_schedule if form.value("change") else add_schedule
        added = keep(request.context, new)
    except InvalidDocumentError as error:
        if error.name == f"schedule {new.name}":
            form.refuse(error)
        else:
            form.mistakes["matrix"] = "\n".join(str(problem) for problem in error.problems)
    except GateMissingError as error:
        form.mistakes["gate"] = str(error)
    except ScheduleTakenError as error:
        form.mistakes["name"] = str(error)
    except PayloadMissingError as error:
        form.problem = str(error)
    else:
        return request.go(urls.schedule_url(added.schedule.name))
    return _list_page(request, form)


def _known(request: PageRequest, name: str) -> Schedule:
    try:
        return find_schedule(request.context, name)
    except ScheduleMissingError as error:
        raise PageMissingError(f"there is no schedule {name!r}; /schedules lists them") from error


def _form_of(schedule: Schedule) -> Form:
    values = {name: str(getattr(schedule, name)) for name in _SHOWN}
    return Form({**values, "change": schedule.name})


def _read(request: PageRequest, viewer: Viewer, form: Form) -> Schedule:
    matrix, gate = form.value("matrix"), form.word("gate")
    if not matrix.strip():
        form.mistakes["matrix"] = "must be the text of a matrix file"
    if len(matrix) > LONGEST_MATRIX:
        form.mistakes["matrix"] = f"is longer than {LONGEST_MATRIX:,} characters"
    read = Schedule(
        name=form.value("change") or form.filled("name"),
        cron=" ".join(form.filled("cron").split()),
        tz=form.filled("tz"),
        owner=form.word("owner") or ("" if gate else viewer.name),
        matrix=matrix.replace("\r\n", "\n"),
        gate=gate,
        deadline=form.word("deadline"),
        overlap=_one_of(form, "overlap", Overlap, Overlap.SKIP),
        catch_up=_one_of(form, "catch_up", CatchUp, CatchUp.LATEST),
        created_at=request.now,
    )
    if not form.value("change"):
        return read
    unseen = {name: getattr(_known(request, read.name), name) for name in _UNSEEN}
    return replace(read, **unseen)


def _one_of(form: Form, name: str, kind: type[_Word], otherwise: _Word) -> _Word:
    try:
        return kind(form.value(name) or otherwise)
    except ValueError:
        form.mistakes[name] = f"must be one of {', '.join(kind)}"
        return otherwise


def _list_page(request: PageRequest, form: Form) -> Response:
    known = list_schedules(request.context, firings=FIRINGS)
    late = [one for one in known if one.firings and _is_late(request, one.firings[0])]
    table = Table(
        id="schedules",
        caption="Schedules",
        columns=(*_COLUMNS, *_DATA) if _is_data(request) else _COLUMNS,
        rows=[_row(request, one) for one in known[:SHOWN]],
        empty="No schedule yet: the form below adds one, and so does the command.",
        command=_COMMAND,
        total=len(known),
        is_caption_hidden=True,
    )
    return request.answer(
        Page(
            template="schedules.html.j2",
            title="Schedules",
            tables=(table,),
            facts={
                "form": form,
                "change": form.value("change"),
                "late": [one.schedule.name for one in late],
                "paused": sum(one.schedule.paused_at is not None for one in known),
                "many": plural(len(known), "schedule"),
                "hidden": max(len(known) - SHOWN, 0),
                "overlaps": [(one, one.replace("-", " ")) for one in Overlap],
                "catch_ups": [(one, one) for one in CatchUp],
                "command": _COMMAND,
            },
            section=urls.SCHEDULES,
        ),
        status=422 if form.is_refused else 200,
    )


def _is_data(request: PageRequest) -> bool:
    return request.wanted in (Format.JSON, Format.CSV)


def _is_late(request: PageRequest, firing: Firing) -> bool:
    return deadline_of(firing, request.now) == "deadline_missed" or firing.outcome == "missed"


def _row(request: PageRequest, shown: ScheduleResponse) -> Row:
    schedule, last = shown.schedule, next(iter(shown.firings), None)
    href = urls.schedule_url(schedule.name)
    cells: list[TableCell] = [
        Text(schedule.name, href, note=schedule.matrix_name),
        Badge("paused" if schedule.paused_at else "active"),
        Text(when_words(schedule), note=schedule.cron),
        Moment(shown.upcoming[0] if shown.upcoming else None),
        Moment(last.due_at if last else None, request.now),
        Badge(last.term, result_url(last) or href) if last else Badge(""),
        deadline_badge(last, request.now),
        Text(_counted(shown.firings)),
        Text(schedule.gate, urls.gate_url(schedule.gate)) if schedule.gate else Text("–"),
        Text(schedule.owner, note=_by_when(schedule)),
    ]
    if _is_data(request):
        run, verdict = (last.run, last.verdict) if last else ("", "")
        cells += [Text(word) for word in (schedule.cron, schedule.tz, run, verdict)]
    return Row(cells, tone="bad" if last and _is_late(request, last) else "")


def _counted(firings: Sequence[Firing]) -> str:
    """Return the numbers of firings by outcome."""
    counts = Counter(one.term for one in firings)
    return ", ".join(term(word).counted(many) for word, many in counts.most_common()) or "–"


def _by_when(schedule: Schedule) -> str:
    return f"verdict by {deadline_words(schedule)}" if schedule.deadline else ""
