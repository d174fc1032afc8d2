"""Final messages and exit codes of commands that waited for an outcome."""

from __future__ import annotations

from orchestrator.cli.connect import Line
from orchestrator.cli.errors import DETACHED, NO_VERDICT, WAITED_TOO_LONG
from orchestrator.cli.session import Session
from orchestrator.cli.watching.watch import End, Watched
from orchestrator.domain.outcome import EXIT_CODES, Outcome
from orchestrator.domain.run_record import RunResponse

_REPORT_WAIT_S = 10.0

_REPORT_LOOK_S = 0.1


def conclude(session: Session, line: Line, watched: Watched, *, as_json: bool) -> int:
    """Print where the report is, or how to resume; return the exit code."""
    run = watched.watched.run
    if as_json:
        session.print_json(watched.watched.shown)
    if watched.end is End.FINISHED:
        if not as_json:
            session.print(f"report: {_report(session, line, run)}")
        return exit_code(run.outcome)
    if watched.end is End.WAITED:
        session.say(f"The time is up; run {run.id} goes on.")
    else:
        session.say(f"Run {run.id} goes on without this terminal.")
    say_how_to_return(session, run.id)
    return WAITED_TOO_LONG if watched.end is End.WAITED else DETACHED


def say_how_to_return(session: Session, run_id: str) -> None:
    """Print the commands that resume watching."""
    session.say(f"  watch it again:  seatrial watch {run_id}")
    session.say(f"  stop it:         seatrial cancel {run_id}")


def exit_code(outcome: str | None) -> int:
    """Return the exit code of a run's outcome."""
    try:
        return EXIT_CODES[Outcome(outcome or "")]
    except (ValueError, KeyError):
        return NO_VERDICT


def _report(session: Session, line: Line, run: RunResponse) -> str:
    if line.home is None:
        session.say(f"To have the report here: seatrial report {run.id} -o DIR")
        return f"{line.where}/api/v1/runs/{run.id}/reports/summary.md"
    path = line.home / "runs" / run.id / "report" / "SUMMARY.md"
    for _ in range(round(_REPORT_WAIT_S / _REPORT_LOOK_S)):
        if path.exists():
            break
        session.wiring.clock.sleep(_REPORT_LOOK_S)
    else:
        session.say(f"{path} is not there; {line.home}/controller.log may say why.")
        session.say(f"To have it made again: seatrial report {run.id} -o DIR")
    return str(path)
