"""machines --terminate --all: the emergency stop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from orchestrator.cli.errors import NO_VERDICT, CliError, RefusalError, UnreachableError
from orchestrator.cli.responses import read
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session
from orchestrator.cli.view.tables import Layout, fitting
from orchestrator.domain.inventory import StoppedMachine, StopReport
from orchestrator.domain.units import plural

if TYPE_CHECKING:
    from orchestrator.application.emergency_stop import EmergencyStop

_BILLED = Layout(
    titles=("machine", "provider", "kind", "state", "run"),
    first_to_go=("state", "kind", "provider"),
    whole=("machine",),
)
LOOKS = 20
CLEAN_LOOKS = 2
"""Consecutive inventories without findings: a launch in progress may appear after the first."""
_PAUSE_S = 10.0


def stop_all(session: Session, *, yes: bool, as_json: bool) -> None:
    """Cancel every run where a controller answers, and end every machine by the clouds' lists.

    It looks again until two looks in a row found nothing. Raises CliError where something is left
    or not known.
    """
    stop = session.wiring.emergency_stop()
    seen = stop.survey()
    _confirm(session, seen, yes=yes)
    ended: dict[tuple[str, str], StoppedMachine] = {}
    told = _order_controller(session)
    if told is not None:
        _note(session, told, ended)
    last = _end_until_none_is_left(session, stop, ended)
    failed = [one for one in ended.values() if one.failure]
    if as_json:
        session.print_json(
            {
                "controller": told is not None,
                "ended": [f"{one.provider}/{one.id}" for one in ended.values() if not one.failure],
                "failed": {f"{one.provider}/{one.id}": one.failure for one in failed},
                "unread": dict(last.unread),
            }
        )
    else:
        many = plural(len(ended) - len(failed), "billed thing")
        session.say(f"Ended: {many}. Asked: {', '.join(_asked(last, told)) or 'no cloud'}.")
    _complain(last, failed, told)


def _confirm(session: Session, seen: StopReport, *, yes: bool) -> None:
    project = session.settings.project
    if seen.items:
        rows = [_row(one) for one in seen.items]
        session.err.print(fitting(session.err, _BILLED, rows))
    for provider, why in seen.unread.items():
        session.say(f"{one_line(provider)} could not be asked: {one_line(why)}")
    if yes:
        return
    if not session.is_interactive:
        raise CliError("Nobody can be asked here: say -y to end everything. Nothing was ended.")
    what = plural(len(seen.items), "billed thing")
    asked = f"Cancel every run of project {project!r} and end all of its machines ({what} now)?"
    if not typer.confirm(asked, err=True):
        raise CliError("Nothing was ended.")


def _order_controller(session: Session) -> StopReport | None:
    """Request the controller to end every machine; return the report, None without an answer."""
    try:
        answer = session.urgent_client().post("/machines/terminate-all")
    except UnreachableError:
        session.say(
            "No controller answered, so no run is cancelled: one that runs all the same may launch"
            " machines again. Stop it (`seatrial serve`, or the process in the home's"
            " controller.log)."
        )
        return None
    except (RefusalError, CliError) as error:
        session.say(f"The controller did not cancel the runs: {one_line(error.lines[0])}")
        return None
    return read(StopReport, answer)


def _end_until_none_is_left(
    session: Session, stop: EmergencyStop, ended: dict[tuple[str, str], StoppedMachine]
) -> StopReport:
    """End every found machine until inventories are empty; return the last one."""
    clean = 0
    for _ in range(LOOKS):
        look = stop.end_all()
        _note(session, look, ended)
        clean = 0 if look.items else clean + 1
        if clean == CLEAN_LOOKS or (look.unread and not look.items):
            break
        session.wiring.clock.sleep(_PAUSE_S)
    return look


def _note(session: Session, look: StopReport, ended: dict[tuple[str, str], StoppedMachine]) -> None:
    for one in look.items:
        ended[one.provider, one.id] = one
        said = f"not ended: {one_line(one.failure)}" if one.failure else "ended"
        session.say(f"{one_line(one.provider)} {one_line(one.kind)} {one_line(one.id)}: {said}")


def _complain(last: StopReport, failed: Iterable[StoppedMachine], told: StopReport | None) -> None:
    if not _asked(last, told):
        raise CliError(
            "No cloud could be asked: neither here nor at a controller are credentials of one.",
            "Set the credentials of the clouds that this project rents from, and say it again.",
            code=NO_VERDICT,
        )
    unread = dict(told.unread if told else {}) | dict(last.unread)
    lines = [f"{one.provider} {one.id} may still be billed: {one.failure}" for one in failed]
    lines += [f"{name} could not be asked: {why}" for name, why in unread.items()]
    if last.items:
        lines.append("Something is launched again and again: see which controller does it.")
    if lines:
        raise CliError(*(one_line(line) for line in lines), code=NO_VERDICT)


def _asked(last: StopReport, told: StopReport | None) -> list[str]:
    return sorted({*last.asked, *(told.asked if told else ())})


def _row(one: StoppedMachine) -> dict[str, Text]:
    texts = (one.id, one.provider, one.kind, one.state, one.run or "–")
    return dict(zip(_BILLED.titles, (Text(one_line(text)) for text in texts), strict=True))
