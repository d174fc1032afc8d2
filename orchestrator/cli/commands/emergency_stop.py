"""machines --terminate --all: the emergency stop."""

from __future__ import annotations

import typer
from rich.text import Text

from orchestrator.cli.errors import NO_VERDICT, CliError, RefusalError, UnreachableError
from orchestrator.cli.responses import read
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session
from orchestrator.cli.view.tables import Layout, fitting
from orchestrator.domain.inventory import StoppedMachine, StopReport
from orchestrator.domain.units import plural

_BILLED = Layout(
    titles=("machine", "provider", "kind", "state", "run"),
    first_to_go=("state", "kind", "provider"),
    whole=("machine",),
)
ROUNDS = 20
"""Maximum number of inventories of every cloud."""
CLEAN_ROUNDS = 2
"""Consecutive inventories without findings: a launch in progress may appear after the first."""
_PAUSE_S = 10.0


def stop_all(session: Session, *, yes: bool, as_json: bool) -> None:
    """Cancel every run and end every machine of the project, by a controller and by this process.

    The clouds are asked again until two rounds in a row find nothing, because a launch that was
    under way shows up later. Raises CliError where something is left, or a cloud did not answer.
    """
    stop = session.wiring.emergency_stop()
    _confirm(session, stop.survey(), yes=yes)
    found: set[tuple[str, str]] = set()
    ordered = _order_controller(session)
    has_controller = ordered is not None
    clean = 0
    for _ in range(ROUNDS):
        last = _merged(stop.end_all(), ordered or StopReport())
        found |= {(one.provider, one.id) for one in last.items}
        _print_round(session, last)
        clean = 0 if last.items else clean + 1
        if clean == CLEAN_ROUNDS:
            break
        session.wiring.clock.sleep(_PAUSE_S)
        if ordered is not None:
            ordered = _order_controller(session)
    failed = {(one.provider, one.id): one.failure for one in last.items if one.failure}
    ended = [
        f"{provider}/{name}" for provider, name in sorted(found) if (provider, name) not in failed
    ]
    if as_json:
        session.print_json(
            {
                "controller": has_controller,
                "ended": ended,
                "failed": {f"{provider}/{name}": why for (provider, name), why in failed.items()},
                "unread": dict(last.unread),
            }
        )
    else:
        many = plural(len(ended), "billed thing")
        session.say(f"Ended: {many}. Asked: {', '.join(last.asked) or 'no cloud'}.")
    _complain(last)


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
    """Ask the controller to end every machine; return what it ended, None without an answer."""
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


def _merged(own: StopReport, ordered: StopReport) -> StopReport:
    """Return one report of this process and a controller; a cloud is read where either read it."""
    items = {(one.provider, one.id): one for one in (*ordered.items, *own.items)}
    unread = {**ordered.unread, **own.unread}
    read = {name for each in (own, ordered) for name in each.asked if name not in each.unread}
    return StopReport(
        tuple(items.values()),
        {name: why for name, why in unread.items() if name not in read},
        tuple(sorted({*own.asked, *ordered.asked})),
    )


def _print_round(session: Session, round_: StopReport) -> None:
    for one in round_.items:
        said = f"not ended: {one_line(one.failure)}" if one.failure else "ended"
        session.say(f"{one_line(one.provider)} {one_line(one.kind)} {one_line(one.id)}: {said}")


def _complain(last: StopReport) -> None:
    """Raise CliError for everything that is left or not known after the last round."""
    if not last.asked:
        raise CliError(
            "No cloud could be asked: neither here nor at a controller are credentials of one.",
            "Set the credentials of the clouds that this project rents from, and say it again.",
            code=NO_VERDICT,
        )
    lines = [
        f"{i.provider} {i.id} may still be billed: {i.failure}" for i in last.items if i.failure
    ]
    lines += [f"{name} could not be asked: {why}" for name, why in last.unread.items()]
    if any(not one.failure for one in last.items):
        lines.append(
            "Machines are launched again and again: stop the controller that launches them."
        )
    if lines:
        raise CliError(*(one_line(line) for line in lines), code=NO_VERDICT)


def _row(one: StoppedMachine) -> dict[str, Text]:
    texts = (one.id, one.provider, one.kind, one.state, one.run or "–")
    return dict(zip(_BILLED.titles, (Text(one_line(text)) for text in texts), strict=True))
