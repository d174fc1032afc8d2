"""schedule: schedules and their firings."""

from __future__ import annotations

import math
import os
import pwd
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.errors import USAGE, CliError
from orchestrator.cli.gate_inputs import sent_policy
from orchestrator.cli.launch_request import read_order, read_selector, upload
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, session_of
from orchestrator.cli.view.glyphs import word
from orchestrator.cli.view.tables import Layout, fitting, print_list
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Answer, Json
from orchestrator.domain.schedule import (
    Firing,
    Resolved,
    ScheduleResponse,
    SubjectKind,
    SubjectSelector,
)

schedule_app = typer.Typer(
    help="Schedules: a matrix is launched at fixed times, and the result is announced.",
    no_args_is_help=True,
)
_SCHEDULES = Layout(
    titles=("name", "cron", "zone", "gate", "next", "last", "outcome"),
    first_to_go=("zone", "last"),
    whole=("name", "cron", "next", "last", "outcome"),
)
_FIRINGS = Layout(
    titles=("due", "state", "outcome", "subject", "run", "verdict", "why"),
    first_to_go=("subject", "run"),
    whole=("due", "state", "outcome", "run", "verdict"),
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the schedule.")]


def _option(flag: str, metavar: str, text: str) -> object:
    return typer.Option(flag, metavar=metavar, help=text, show_default=False)


_Cron = Annotated[str, _option("--cron", "EXPR", "Minute hour day month weekday: '0 2 * * *'.")]
_Tz = Annotated[str, _option("--tz", "ZONE", "IANA time zone: Europe/Berlin.")]
_Matrix = Annotated[Path, _option("--matrix", "FILE", "A matrix file; kept as it is now.")]
_Gate = Annotated[str, _option("--gate", "POLICY", "A policy file, or the name of a stored one.")]
_Deadline = Annotated[
    str,
    _option(
        "--deadline",
        "06:00|90m",
        "Also notify if there is no verdict by this time (local), or after this duration.",
    ),
]
_Subject = Annotated[
    str,
    typer.Option(
        "--subject",
        metavar="WHICH",
        help="fixed; latest or latest:PACKAGE (newest by pip's index); branch (of the matrix's"
        " git) or git+URL@BRANCH. Resolved when it fires.",
    ),
]
_Pre = Annotated[bool, typer.Option("--pre", help="With latest: pre-releases too.")]
_Baseline = Annotated[
    Literal["matrix", "last-passed"],
    typer.Option("--baseline", help="The matrix's, or the version that the gate passed last."),
]
_Overlap = Annotated[
    Literal["skip", "queue", "cancel-previous"],
    typer.Option("--overlap", help="While an earlier firing is not over."),
]
_CatchUp = Annotated[
    Literal["none", "latest", "all"],
    typer.Option("--catch-up", help="What is made up for after downtime."),
]
_CatchUpHours = Annotated[
    int, typer.Option("--catch-up-hours", metavar="H", help="What was due longer ago never is.")
]
_Reuse = Annotated[
    str, _option("--reuse", "36h", "Jobs with such fresh evidence of the very same are not run.")
]
_Owner = Annotated[
    str, _option("--owner", "NAME", "Who answers for it; the gate's owner, or you, by default.")
]


_LOCAL = re.compile(r"\bprovider: *[\"']?local\b")
_Replace = Annotated[
    bool, typer.Option("--replace", help="Change the schedule of this name; its firings stay.")
]


@schedule_app.command("add")
def schedule_add(
    context: typer.Context,
    name: NameArgument,
    cron: _Cron,
    tz: _Tz,
    matrix: _Matrix,
    gate: _Gate = "",
    deadline: _Deadline = "",
    subject: _Subject = "fixed",
    pre: _Pre = False,
    baseline: _Baseline = "matrix",
    overlap: _Overlap = "skip",
    catch_up: _CatchUp = "latest",
    catch_up_hours: _CatchUpHours = 24,
    reuse: _Reuse = "",
    owner: _Owner = "",
    replaces: _Replace = False,
    as_json: JsonOption = False,
) -> None:
    """Add or change a schedule. It rents machines without asking, up to the matrix's limits."""
    session = session_of(context)
    selector = read_selector(subject, prereleases=pre)
    client = session.client()
    when: Json = {"name": name, "cron": cron, "tz": tz, "deadline": deadline}
    when |= {"owner": owner or ("" if gate else _login())}
    when |= {"overlap": overlap, "catch_up": catch_up, "catch_up_hours": catch_up_hours}
    when |= {"reuse_hours": _hours(reuse), "last_passed_baseline": baseline == "last-passed"}
    what = _uploaded(session, client, matrix, selector)
    judged, policy = sent_policy(session, gate)
    when |= {"gate": judged, "policy": policy or None}
    body, document = {**when, **what}, f"schedule {name}"
    answer = client.add_schedule(body, replaces=replaces, document=document)
    _tell_added(session, answer.record)
    if as_json:
        session.print_json(answer.json)


@schedule_app.command("list")
def schedule_list(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the schedules, with what became of the latest firing of each."""
    session = session_of(context)
    answer = session.reader().schedules()
    nothing = "No schedule yet: `seatrial schedule add` makes one."
    print_list(session, answer, _SCHEDULES, _schedule_row, nothing=nothing, as_json=as_json)


@schedule_app.command("show")
def schedule_show(context: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """Show a schedule and its firings, the latest first."""
    session = session_of(context)
    answer = session.reader().schedule(name)
    if as_json:
        session.print_json(answer.json)
        return
    found = answer.record
    for line in _about(found):
        session.print(line)
    if found.firings:
        rows = [_firing_row(firing) for firing in found.firings]
        session.out.print(fitting(session.out, _FIRINGS, rows))


@schedule_app.command("pause")
def schedule_pause(context: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """Pause a schedule; running firings continue."""
    _change(
        context,
        Seatrial.pause_schedule,
        name,
        "It does not fire until `schedule resume`.",
        as_json=as_json,
    )


@schedule_app.command("resume")
def schedule_resume(
    context: typer.Context, name: NameArgument, as_json: JsonOption = False
) -> None:
    """Resume a schedule; firings that were missed during the pause are not caught up."""
    _change(context, Seatrial.resume_schedule, name, "It fires again.", as_json=as_json)


@schedule_app.command("trigger")
def schedule_trigger(
    context: typer.Context, name: NameArgument, as_json: JsonOption = False
) -> None:
    """Fire a schedule now, paused or not."""
    session = session_of(context)
    answer = session.client().trigger_schedule(name)
    if as_json:
        session.print_json(answer.json)
    session.say(f"Triggered: `seatrial schedule show {name}` follows it.")


@schedule_app.command("remove")
def schedule_remove(context: typer.Context, name: NameArgument) -> None:
    """Delete a schedule and its firings; its runs and verdicts stay."""
    session = session_of(context)
    session.client().remove_schedule(name)
    session.say(f"Schedule {name} and its firings are removed; its runs and verdicts stay.")


def _uploaded(session: Session, client: Seatrial, matrix: Path, selector: SubjectSelector) -> Json:
    with tempfile.TemporaryDirectory(prefix="seatrial-") as scratch:
        order = read_order(
            session, matrix, (), Path(scratch), with_subject=selector.kind is SubjectKind.FIXED
        )
        upload(session, client, order)
        body = order.body
    taken = ["matrix", "payload", "subject", "baseline"]
    if selector.kind is SubjectKind.FIXED:  # the others are resolved when it fires
        taken.append("commit")
    kept: Json = {name: body[name] for name in taken if name in body}
    return kept | {"matrix_name": body["name"], "select": asdict(selector)}


def _login() -> str:
    """Return the login name of the current user, by the system's user list."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def _hours(text: str) -> float | None:
    if not text:
        return None
    try:
        hours = float(text.removesuffix("h"))
    except ValueError:
        hours = math.nan
    if not math.isfinite(hours):
        raise CliError(f"--reuse {text}: say hours, such as 36h", code=USAGE)
    return hours


def _change(
    context: typer.Context,
    change: Callable[[Seatrial, str], Answer[ScheduleResponse]],
    name: str,
    message: str,
    *,
    as_json: bool,
) -> None:
    session = session_of(context)
    answer = change(session.client(), name)
    if as_json:
        session.print_json(answer.json)
    session.say(message)
    _tell_times(session, answer.record)


def _tell_added(session: Session, shown: ScheduleResponse) -> None:
    session.say(f"Schedule {one_line(shown.schedule.name)} is kept.")
    _tell_times(session, shown)
    runs = _tell_who_fires(session)
    if not _LOCAL.search(shown.schedule.matrix):
        return
    if runs:
        for one in session.client().platforms().records:
            if one.provider == "local" and one.refused:
                session.say(f"Its jobs of `provider: local` are refused there: {one.refused}.")
    else:
        session.say(
            "Its jobs of `provider: local` need a controller that names their account: `seatrial"
            " serve --local-jobs-as ACCOUNT`. It may be your own user if nobody else has a token."
        )


def _tell_times(session: Session, shown: ScheduleResponse) -> None:
    for at in shown.upcoming:
        session.say(f"  fires {at:%a %Y-%m-%d %H:%M} UTC")


def _tell_who_fires(session: Session) -> bool:
    """Print which controller fires the schedule; return whether that controller runs.

    A background controller ends when idle and then fires no schedule.
    """
    if session.settings.url is not None:
        session.say(f"It fires while the controller at {session.settings.url} runs.")
    elif session.wiring.is_served():
        session.say("It fires while `seatrial serve` runs, and it does.")
    else:
        session.say(
            "It fires only while `seatrial serve` runs, and none does for"
            f" {session.settings.home}: start it."
        )
        return False
    return True


def _schedule_row(shown: ScheduleResponse) -> dict[str, Text]:
    schedule = shown.schedule
    last = shown.firings[0] if shown.firings else None
    following = "paused" if schedule.paused_at else _time(shown.upcoming)
    said = {
        "name": schedule.name,
        "cron": schedule.cron,
        "zone": schedule.tz,
        "gate": schedule.gate or "-",
        "next": following,
        "last": f"{last.due_at:%Y-%m-%d %H:%M}" if last else "never",
        "outcome": word(last.term) if last else "-",
    }
    return {title: Text(one_line(text)) for title, text in said.items()}


def _firing_row(firing: Firing) -> dict[str, Text]:
    late = ["after its deadline"] if firing.overdue else []
    by = [f"triggered by {firing.by}"] if firing.by else []
    resolved = firing.resolved or Resolved()
    said = {
        "due": f"{firing.due_at:%Y-%m-%d %H:%M} UTC",
        "state": firing.state.replace("_", " "),
        "outcome": word(firing.term) if firing.outcome else "-",
        "subject": resolved.subject,
        "run": firing.run,
        "verdict": firing.verdict,
        "why": "; ".join([*filter(None, [firing.reason]), *resolved.remarks, *late, *by]),
    }
    return {title: Text(one_line(text)) for title, text in said.items()}


def _about(shown: ScheduleResponse) -> list[str]:
    schedule = shown.schedule
    following = ", ".join(f"{at:%Y-%m-%d %H:%M} UTC" for at in shown.upcoming)
    subject = [value for value in astuple(schedule.subject) if value]
    said = {
        "schedule": f"{schedule.name} ({schedule.cron}, {schedule.tz}), owned by {schedule.owner}",
        "matrix": schedule.matrix_name,
        "subject": " ".join(map(str, subject)),
        **({"commit": str(schedule.commit)} if schedule.commit else {}),
        "gate": schedule.gate or "none: the run's outcome is sent",
        "deadline": schedule.deadline or "none",
        "overlap": f"{schedule.overlap}; catching up: {schedule.catch_up}",
        "next": "paused" if schedule.paused_at else following,
    }
    return [f"{title + ':':<10} {one_line(text)}" for title, text in said.items()]


def _time(upcoming: Sequence[datetime]) -> str:
    return f"{upcoming[0]:%Y-%m-%d %H:%M}" if upcoming else "-"
