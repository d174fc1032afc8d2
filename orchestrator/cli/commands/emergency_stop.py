"""machines --terminate --all: the emergency stop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from rich.text import Text

from orchestrator.cli.connect import INVENTORY_POLL_S
from orchestrator.cli.errors import NO_VERDICT, CliError
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import URGENT_S, Session, is_confirmed
from orchestrator.cli.view.tables import Layout, fitting
from orchestrator.client.errors import NoControllerError, SeatrialError
from orchestrator.domain.inventory import StoppedMachine, StopReport
from orchestrator.domain.machine import MachineState
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


@dataclass(frozen=True, slots=True)
class StopAnswer:
    """What ``machines --terminate --all --json`` prints."""

    controller: bool
    """Whether a controller took part; without one, no run is cancelled."""
    ended: list[str]
    """``PROVIDER/ID`` of each resource whose end was requested."""
    failed: dict[str, str]
    """Reasons by ``PROVIDER/ID`` of the resources that could not be ended."""
    unread: dict[str, str]
    """Reasons by name of the providers that did not answer."""
    cancelled: list[str]
    """Ids of the cancelled runs."""
    not_cancelled: str
    """Reason why runs could not be cancelled; empty if they could."""


def stop_all(session: Session, *, yes: bool, as_json: bool) -> None:
    """Cancel every run and end every machine of the project, by a controller and by this process.

    The inventory is repeated until two in a row find nothing, because a machine of a pending launch
    may appear late. Raises CliError if a machine is left or a cloud did not answer.
    """
    stop = session.wiring.emergency_stop()
    _confirm(session, stop.take_inventory(), yes=yes)
    stopping: set[tuple[str, str]] = set()
    ordered = _order_controller(session)
    has_controller = ordered is not None
    clean = 0
    cancelled: set[str] = set()
    for _ in range(ROUNDS):
        last = _merged(stop.end_all(), ordered or StopReport())
        cancelled |= set(last.cancelled)
        fresh = [one for one in last.items if _is_left(one, stopping)]
        _print_round(session, fresh)
        stopping |= {(one.provider, one.id) for one in last.items if not one.failure}
        clean = 0 if fresh or last.not_cancelled else clean + 1
        if clean == CLEAN_ROUNDS:
            break
        session.wiring.clock.sleep(INVENTORY_POLL_S)
        if ordered is not None:
            ordered = _order_controller(session)
    _tell(session, last, stopping, cancelled if has_controller else None, as_json=as_json)
    _complain(last, fresh)


def _tell(
    session: Session,
    last: StopReport,
    stopping: set[tuple[str, str]],
    cancelled: set[str] | None,
    *,
    as_json: bool,
) -> None:
    """Print what was ended and cancelled; `cancelled` is None without a controller."""
    failed = {(one.provider, one.id): one.failure for one in last.items if one.failure}
    ended = [f"{provider}/{name}" for provider, name in sorted(stopping - failed.keys())]
    if as_json:
        told = StopAnswer(
            controller=cancelled is not None,
            ended=ended,
            failed={f"{provider}/{name}": why for (provider, name), why in failed.items()},
            unread=dict(last.unread),
            cancelled=sorted(cancelled or ()),
            not_cancelled=last.not_cancelled,
        )
        session.print_json(asdict(told))
        return
    many = plural(len(ended), "billed thing")
    read = [name for name in last.asked if name not in last.unread]
    session.say(f"Ended: {many}. Asked: {', '.join(read) or 'no cloud'}.")
    # Clouds that did not answer follow, as the failure of the command.
    if cancelled is not None:
        runs = ", ".join(map(one_line, sorted(cancelled)))
        session.say(f"Cancelled: {f'run {runs}' if runs else 'no run: none was going on'}.")


def _is_left(one: StoppedMachine, stopping: set[tuple[str, str]]) -> bool:
    """Return whether the resource still has to be ended; one in `stopping` that stops has not."""
    was_told = (one.provider, one.id) in stopping and one.state is MachineState.STOPPING
    return bool(one.failure) or not was_told


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
        raise CliError(
            "There is no terminal to ask on: say -y to end everything. Nothing was ended."
        )
    what = plural(len(seen.items), "billed thing")
    asked = f"Cancel every run of project {project!r} and end all of its machines ({what} now)?"
    if not is_confirmed(asked):
        raise CliError("Nothing was ended.")


def _order_controller(session: Session) -> StopReport | None:
    """Request the controller to cancel its runs and end every machine; return None without one."""
    try:
        answer = session.urgent_client().terminate_all()
    except NoControllerError as error:
        if error.was_sent:
            late = f"the controller did not answer within {URGENT_S:.0f} s"
            return StopReport(not_cancelled=f"{late}; `seatrial runs` shows what it has cancelled")
        session.say(
            "No controller answered, so no run is cancelled: one that runs all the same may launch"
            " machines again. Stop it (`seatrial serve`, or the process in the home's"
            " controller.log)."
        )
        return None
    except SeatrialError as error:
        return StopReport(not_cancelled=f"the controller refused: {error.lines[0]}")
    return answer.record


def _merged(own: StopReport, ordered: StopReport) -> StopReport:
    """Return one report of this process and a controller; a cloud is unread if neither read it."""
    items = {(one.provider, one.id): one for one in (*ordered.items, *own.items)}
    unread = {**ordered.unread, **own.unread}
    read = {name for each in (own, ordered) for name in each.asked if name not in each.unread}
    return StopReport(
        tuple(items.values()),
        {name: why for name, why in unread.items() if name not in read},
        tuple(sorted({*own.asked, *ordered.asked})),
        ordered.cancelled,
        ordered.not_cancelled,
    )


def _print_round(session: Session, items: Iterable[StoppedMachine]) -> None:
    for one in items:
        said = f"not ended: {one_line(one.failure)}" if one.failure else "ended"
        session.say(f"{one_line(one.provider)} {one_line(one.kind)} {one_line(one.id)}: {said}")


def _complain(last: StopReport, fresh: Iterable[StoppedMachine]) -> None:
    """Raise CliError if resources are left or clouds are unread after the last round."""
    if not last.asked:
        raise CliError(
            "No cloud could be asked: neither here nor at a controller are credentials of one.",
            "Set the credentials of the clouds that this project rents from, and say it again.",
            code=NO_VERDICT,
        )
    failed = [one for one in fresh if one.failure]
    lines = [f"{one.provider} {one.id} may still be billed: {one.failure}" for one in failed]
    lines += [f"{name} could not be asked: {why}" for name, why in last.unread.items()]
    if any(not one.failure for one in fresh):
        lines.append(
            "Machines are launched again and again: stop the controller that launches them."
        )
    if last.not_cancelled:
        lines.append(f"Runs go on, and may launch machines again: {last.not_cancelled}")
    if lines:
        raise CliError(*(one_line(line) for line in lines), code=NO_VERDICT)


def _row(one: StoppedMachine) -> dict[str, Text]:
    texts = (one.id, one.provider, one.kind, one.state, one.run or "–")
    return dict(zip(_BILLED.titles, (Text(one_line(text)) for text in texts), strict=True))
