"""Schedules: when each fires next, how it went, and whether people had their verdict in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Request, Response

from orchestrator.application.gate_policies import GateMissingError
from orchestrator.application.launch_run import BUILTIN, PayloadMissingError
from orchestrator.application.ports.schedules import ScheduleTakenError
from orchestrator.application.ports.stores import Scope
from orchestrator.application.schedules import ShownSchedule, add_schedule, list_schedules
from orchestrator.dashboard import urls
from orchestrator.dashboard.forms import Form
from orchestrator.dashboard.pages.firings import (
    deadline_badge,
    deadline_of,
    deadline_words,
    outcome_of,
    told_at,
    when_words,
)
from orchestrator.dashboard.responses import Asked, AskedDep, Format, Page
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import (
    Badge,
    Cell,
    Column,
    Moment,
    Row,
    Table,
    Text,
)
from orchestrator.domain.problems import InvalidDocumentError
from orchestrator.domain.schedule import CatchUp, Firing, Overlap, Schedule, SubjectSelector
from orchestrator.domain.units import plural
from orchestrator.domain.vocabulary import term

SHOWN = 200
FIRINGS = 10
LONGEST_MATRIX = 200_000
_FIELDS = ("name", "cron", "tz", "owner", "gate", "deadline", "overlap", "catch_up", "matrix")
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
    " --matrix matrices/release.yaml --gate release --deadline 06:00"
)
_Word = TypeVar("_Word", bound=StrEnum)

router = APIRouter()


async def _form(request: Request) -> Form:
    """What was sent."""
    sent = await request.form()
    return Form({name: str(sent.get(name) or "") for name in _FIELDS})


@router.get(urls.SCHEDULES)
def show_schedules(asked: AskedDep) -> Response:
    """All of them."""
    given = {"tz": "UTC", "cron": "0 2 * * *", "overlap": "skip", "catch_up": "latest"}
    return _page(asked, Form(given))


@router.post(urls.SCHEDULES)
def add_one(
    asked: AskedDep,
    viewer: Annotated[Viewer, needs(Scope.GATE)],
    form: Annotated[Form, Depends(_form)],
) -> Response:
    """Add one; where that is refused, the page again with what was written."""
    new = _read(asked, viewer, form)
    if form.is_refused:
        return _page(asked, form)
    try:
        added = add_schedule(asked.context, new)
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
        form.said = str(error)
    else:
        return asked.go(urls.schedule_url(added.schedule.name))
    return _page(asked, form)


def _read(asked: Asked, viewer: Viewer, form: Form) -> Schedule:
    matrix, gate = form.value("matrix"), form.word("gate")
    if not matrix.strip():
        form.mistakes["matrix"] = "must be the text of a matrix file"
    if len(matrix) > LONGEST_MATRIX:
        form.mistakes["matrix"] = f"is longer than {LONGEST_MATRIX:,} characters"
    return Schedule(
        name=form.filled("name"),
        cron=" ".join(form.filled("cron").split()),
        tz=form.filled("tz"),
        owner=form.word("owner") or ("" if gate else viewer.name),
        matrix=matrix.replace("\r\n", "\n"),
        payload=BUILTIN,
        subject=SubjectSelector(),
        gate=gate,
        deadline=form.word("deadline"),
        overlap=_one_of(form, "overlap", Overlap, Overlap.SKIP),
        catch_up=_one_of(form, "catch_up", CatchUp, CatchUp.LATEST),
        created_at=asked.now,
    )


def _one_of(form: Form, name: str, kind: type[_Word], otherwise: _Word) -> _Word:
    try:
        return kind(form.value(name) or otherwise)
    except ValueError:
        form.mistakes[name] = f"must be one of {', '.join(kind)}"
        return otherwise


def _page(asked: Asked, form: Form) -> Response:
    known = list_schedules(asked.context, firings=FIRINGS)
    late = [one for one in known if one.firings and _is_late(asked, one.firings[0])]
    table = Table(
        id="schedules",
        caption="Schedules",
        columns=(*_COLUMNS, *_DATA) if _is_data(asked) else _COLUMNS,
        rows=[_row(asked, one) for one in known[:SHOWN]],
        empty="No schedule yet: the form below adds one, and so does the command.",
        command=_COMMAND,
        total=len(known),
        is_caption_hidden=True,
    )
    return asked.answer(
        Page(
            template="schedules.html.j2",
            title="Schedules",
            tables=(table,),
            facts={
                "form": form,
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


def _is_data(asked: Asked) -> bool:
    return asked.wanted in (Format.JSON, Format.CSV)


def _is_late(asked: Asked, firing: Firing) -> bool:
    return deadline_of(firing, asked.now) == "deadline_missed" or firing.outcome == "missed"


def _row(asked: Asked, shown: ShownSchedule) -> Row:
    schedule, last = shown.schedule, next(iter(shown.firings), None)
    href = urls.schedule_url(schedule.name)
    cells: list[Cell] = [
        Text(schedule.name, href, note=schedule.matrix_name),
        Badge("paused" if schedule.paused_at else "active"),
        Text(when_words(schedule), note=schedule.cron),
        Moment(shown.upcoming[0] if shown.upcoming else None),
        Moment(last.due_at if last else None, asked.now),
        Badge(outcome_of(last), told_at(last) or href) if last else Badge(""),
        deadline_badge(last, asked.now),
        Text(_counted(shown.firings)),
        Text(schedule.gate, urls.gate_url(schedule.gate)) if schedule.gate else Text("–"),
        Text(schedule.owner, note=_by_when(schedule)),
    ]
    if _is_data(asked):
        run, verdict = (last.run, last.verdict) if last else ("", "")
        cells += [Text(word) for word in (schedule.cron, schedule.tz, run, verdict)]
    return Row(cells, tone="bad" if last and _is_late(asked, last) else "")


def _counted(firings: Sequence[Firing]) -> str:
    """How often they went how."""
    counts = Counter(outcome_of(one) for one in firings)
    return ", ".join(f"{many} {term(word).word}" for word, many in counts.most_common()) or "–"


def _by_when(schedule: Schedule) -> str:
    return f"verdict by {deadline_words(schedule)}" if schedule.deadline else ""
