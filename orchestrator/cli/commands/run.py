"""plan, run, rerun, watch: commands that wait for an outcome."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestrator.cli.commands.options import (
    AuthorOption,
    BranchOption,
    CommitOption,
    DetachOption,
    DiagnoseOption,
    HoldOption,
    InterruptOption,
    JsonOption,
    MatrixArgument,
    ReadRunArgument,
    RerunFailedOption,
    ReuseOption,
    RunArgument,
    SetOption,
    TimeoutOption,
    UntrustedOption,
    YesOption,
)
from orchestrator.cli.connect import REPORT_LIMIT_S, REPORT_POLL_S
from orchestrator.cli.errors import (
    DETACHED,
    FAILED,
    NO_VERDICT,
    WAITED_TOO_LONG,
    CliError,
    RefusedError,
)
from orchestrator.cli.launch_request import ask, read_order, stated_commit, tell_unshipped, upload
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, session_of
from orchestrator.cli.view.plan import headroom_table, hosts_table, plan_table, shortages, totals
from orchestrator.cli.watching.watch import Interrupts, OnInterrupt, WatchEnd, WatchState, watch
from orchestrator.client.connection import ControllerConnection
from orchestrator.client.run_requests import report_url
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Answer
from orchestrator.domain.launch_plan import Plan
from orchestrator.domain.outcome import EXIT_CODES
from orchestrator.domain.run_record import RunResponse
from orchestrator.domain.units import plural, size


@dataclass(frozen=True, slots=True)
class Waiting:
    """Options of waiting for an outcome."""

    timeout_minutes: float | None
    on_interrupt: OnInterrupt | None
    as_json: bool
    detach: bool = False


def plan_command(
    context: typer.Context,
    matrix: MatrixArgument,
    settings: SetOption = None,
    hold: HoldOption = 0.0,
    untrusted: UntrustedOption = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Sign in on your own hosts, and look for the Python and the accelerators that "
            "the jobs need. 1 if a host fails.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what `run` would do: cells, places, and the maximum cost. Launches nothing.

    The exit code is 1 where a cell cannot be launched as things are.
    """
    session = session_of(context)
    client = session.client()
    with tempfile.TemporaryDirectory(prefix="seatrial-") as scratch:
        order = read_order(session, matrix, settings or (), Path(scratch), untrusted=untrusted)
        order = replace(order, hold_minutes=hold)
        upload(session, client, order)
        answer = client.plan(order.body, check_hosts=check, document=order.file)
    shown = answer.record
    if as_json:
        session.print_json(answer.json)
    else:
        _print_plan(session, shown, checked=check)
    stuck = [one_line(cell.cell.id) for cell in shown.cells if not cell.is_launchable]
    if stuck:
        many = f"{len(stuck)} of {plural(len(shown.cells), 'cell')}"
        session.say(f"{many} would get no machine as things are: {', '.join(stuck)}")
    if stuck or any(host.failure for host in shown.hosts):
        raise typer.Exit(FAILED)


def payload_command(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="With payload.toml; or a .tar.gz of it.")
    ] = Path(),
) -> None:
    """List the files that a payload ships, with their sizes. Launches and uploads nothing."""
    session = session_of(context)
    with tempfile.TemporaryDirectory(prefix="seatrial-") as scratch:
        try:
            packed = session.wiring.pack(folder, Path(scratch))
        except RefusedError as error:
            raise CliError(str(error)) from None
        with tarfile.open(packed.path) as archive:
            files = [one for one in archive if not one.isdir()]
        whole = size(packed.path.stat().st_size)
    for one in files:
        session.print(f"{size(one.size):>9}  {one_line(one.name)}")
    many = plural(len(files), "file")
    session.say(f"{many}, {whole} to upload, sha256 {packed.digest}")
    tell_unshipped(session, packed)


def _print_plan(session: Session, shown: Plan, *, checked: bool) -> None:
    session.out.print(plan_table(session.out, shown))
    if shown.headroom:
        session.out.print(headroom_table(shown))
    for line in shortages(shown):
        session.out.print(line)
    if shown.hosts:
        session.out.print(hosts_table(session.out, shown))
    elif checked:
        session.print("no hosts of your own: there is nothing to check before a launch")
    session.print(totals(shown))


def run_command(
    context: typer.Context,
    matrix: MatrixArgument,
    yes: YesOption = False,
    detach: DetachOption = False,
    timeout: TimeoutOption = None,
    on_interrupt: InterruptOption = None,
    hold: HoldOption = 0.0,
    rerun_failed: RerunFailedOption = 0,
    diagnose: DiagnoseOption = False,
    reuse: ReuseOption = None,
    untrusted: UntrustedOption = None,
    commit: CommitOption = None,
    branch: BranchOption = None,
    author: AuthorOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Launch a matrix and watch it to its end. The exit code is the outcome."""
    session = session_of(context)
    client = session.client()
    waiting = Waiting(timeout, on_interrupt, as_json, detach)
    try:
        with tempfile.TemporaryDirectory(prefix="seatrial-") as scratch:
            order = read_order(session, matrix, settings or (), Path(scratch), untrusted=untrusted)
            order = replace(order, hold_minutes=hold, reruns=rerun_failed, diagnose=diagnose)
            stated = stated_commit(order.commit, sha=commit, branch=branch, author=author)
            order = replace(order, reuse_hours=reuse, commit=stated)
            upload(session, client, order)
        ask(session, client.plan(order.body, document=order.file).record, yes=yes)
    except KeyboardInterrupt:
        raise CliError("Interrupted; nothing was launched.", code=DETACHED) from None

    def launch(key: str) -> Answer[RunResponse]:
        return client.launch(order.body, key=key, document=order.file)

    raise typer.Exit(_launch_and_wait(session, client, launch, waiting))


def rerun_command(
    context: typer.Context,
    run: RunArgument,
    only: Annotated[
        Literal["failed", "errored", "missing", "not-run"] | None,
        typer.Option(
            "--only",
            metavar="failed|errored|missing|not-run",
            help="Only the jobs that went so; all by default.",
        ),
    ] = None,
    yes: YesOption = False,
    hold: HoldOption = 0.0,
    detach: DetachOption = False,
    timeout: TimeoutOption = None,
    on_interrupt: InterruptOption = None,
    as_json: JsonOption = False,
) -> None:
    """Launch a finished run again, or some of its jobs, as a new run; then watch it."""
    session = session_of(context)
    client = session.client()
    old = client.run(run).record.id
    waiting = Waiting(timeout, on_interrupt, as_json, detach)
    try:
        ask(session, client.plan_rerun(old, only=only, hold_minutes=hold).record, yes=yes)
    except KeyboardInterrupt:
        raise CliError("Interrupted; nothing was launched.", code=DETACHED) from None

    def launch(key: str) -> Answer[RunResponse]:
        return client.rerun(old, only=only, hold_minutes=hold, key=key)

    raise typer.Exit(_launch_and_wait(session, client, launch, waiting))


def watch_command(
    context: typer.Context,
    run: ReadRunArgument = "latest",
    timeout: TimeoutOption = None,
    on_interrupt: InterruptOption = None,
    as_json: JsonOption = False,
) -> None:
    """Watch a run to its end. The exit code is the outcome."""
    session = session_of(context)
    client = session.client()
    shown = client.run(run)
    waiting = Waiting(timeout, on_interrupt, as_json)
    with Interrupts() as interrupts:
        code = _wait(session, client, shown, interrupts, waiting)
    raise typer.Exit(code)


def _launch_and_wait(
    session: Session,
    client: Seatrial,
    launch: Callable[[str], Answer[RunResponse]],
    waiting: Waiting,
) -> int:
    # From here on an interrupt must not leave a run whose id was not printed.
    with Interrupts() as interrupts:
        shown = launch(session.wiring.new_id())
        if waiting.detach:
            _say_detached(session, shown, as_json=waiting.as_json)
            return DETACHED
        session.say(f"run {shown.record.id}")
        return _wait(session, client, shown, interrupts, waiting)


def _wait(
    session: Session,
    client: Seatrial,
    shown: Answer[RunResponse],
    interrupts: Interrupts,
    waiting: Waiting,
) -> int:
    fallback: OnInterrupt = "cancel" if session.settings.ci else "detach"
    watched = watch(
        session,
        shown,
        interrupts=interrupts,
        timeout_minutes=waiting.timeout_minutes,
        on_interrupt=waiting.on_interrupt or fallback,
    )
    return conclude(session, client.line, watched, as_json=waiting.as_json)


def _say_detached(session: Session, shown: Answer[RunResponse], *, as_json: bool) -> None:
    run_id = shown.record.id
    if as_json:
        session.print_json(shown.json)
    else:
        session.print(run_id)
    say_how_to_return(session, run_id)


def conclude(
    session: Session, line: ControllerConnection, watched: WatchState, *, as_json: bool
) -> int:
    """Print the place of the report, or the command to resume; return the exit code."""
    run = watched.watched.run
    if as_json:
        session.print_json(watched.watched.answer.json)
    if watched.end is WatchEnd.FINISHED:
        if not as_json:
            session.print(f"report: {_report(session, line, run)}")
        return exit_code(run)
    if watched.end is WatchEnd.WAITED:
        session.say(f"The time is up; run {run.id} goes on.")
    else:
        session.say(f"Run {run.id} goes on without this terminal.")
    say_how_to_return(session, run.id)
    return WAITED_TOO_LONG if watched.end is WatchEnd.WAITED else DETACHED


def say_how_to_return(session: Session, run_id: str) -> None:
    """Print the commands that resume watching."""
    session.say(f"  watch it again:  seatrial watch {run_id}")
    session.say(f"  stop it:         seatrial cancel {run_id}")


def exit_code(run: RunResponse) -> int:
    """Return the exit code of a finished run; a pass with nothing but skipped tests is none."""
    if run.outcome is None or run.has_only_skips:
        return NO_VERDICT
    return EXIT_CODES.get(run.outcome, NO_VERDICT)


def _report(session: Session, line: ControllerConnection, run: RunResponse) -> str:
    if line.home is None:
        session.say(f"To have the report here: seatrial report {run.id} -o DIR")
        return report_url(line, run.id)
    path = line.home / "runs" / run.id / "report" / "SUMMARY.md"
    for _ in range(round(REPORT_LIMIT_S / REPORT_POLL_S)):
        if path.exists():
            break
        session.wiring.clock.sleep(REPORT_POLL_S)
    else:
        session.say(f"{path} is not there; {line.home}/controller.log may say why.")
        session.say(f"To have it made again: seatrial report {run.id} -o DIR")
    return str(path)
