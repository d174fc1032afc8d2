"""logs: prints what the jobs of a cell wrote."""

from __future__ import annotations

import sys
from itertools import chain
from typing import Annotated

import typer

from orchestrator.cli.commands.options import (
    CellOption,
    ReadRunArgument,
)
from orchestrator.cli.connect import LOG_POLL_S
from orchestrator.cli.errors import CliError
from orchestrator.cli.failure_logs import CellLog, Gaps, LogSelection, chosen_logs
from orchestrator.cli.safe_text import log_line, one_line
from orchestrator.cli.session import Session, find_cells, session_of
from orchestrator.client.seatrial import Seatrial
from orchestrator.domain.run_record import CellRecord, RunResponse


def logs_command(
    context: typer.Context,
    run: ReadRunArgument = "latest",
    cell: CellOption = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="JOB", help="Only what this job printed.")
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            "--test", metavar="TEST", help="Only what failed in a test: its id, or a part of it."
        ),
    ] = None,
    failed: Annotated[
        bool,
        typer.Option(
            "--failed", help="Only failing tests, and jobs and cells that failed otherwise."
        ),
    ] = False,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the run is over.")
    ] = False,
) -> None:
    """Print the logs of a run's cells, as they came from the machines.

    Of a run whose logs or artifacts were pruned it prints what is left, says what was pruned, and
    ends with the exit code 2.
    """
    session = session_of(context)
    chosen = LogSelection(job, test, failed)
    if follow and chosen.is_part:
        raise CliError("--follow prints whole logs: leave --job, --test and --failed out")
    client = session.client() if follow else session.reader()
    found = client.run(run).record
    cells = find_cells(found, cell)
    gaps = Gaps()
    if chosen.is_part:
        printer = _Printer(session)
        for text in chosen_logs(client, found, cells, chosen, gaps):
            printer.write(text)
    else:
        _print_whole(session, client, found, cells, gaps, follow=follow)
    gaps.refuse()


def _print_whole(
    session: Session,
    client: Seatrial,
    run: RunResponse,
    cells: list[CellRecord],
    gaps: Gaps,
    *,
    follow: bool,
) -> None:
    for one in cells:
        if one.ingested is not None:
            session.say(f"{one.id} was ingested; its files: seatrial report {run.id} -o DIR")
    logs = [CellLog(client, run, one, prefixed=len(cells) > 1) for one in cells]
    printer = _Printer(session)
    while True:
        # The run is read before its logs: the logs of a finished run are complete.
        is_over = not follow or client.run(run.id).record.is_finished
        for text in chain.from_iterable(gaps.besides(log.new(to_the_end=is_over)) for log in logs):
            printer.write(text)
        if is_over:
            break
        session.wiring.clock.sleep(LOG_POLL_S)
    for why in (log.nothing for log in logs if log.nothing and not gaps.sentences):
        session.say(one_line(why))


class _Printer:
    """Prints whole lines: unchanged into a pipe, without control characters on a terminal."""

    def __init__(self, session: Session) -> None:
        self._is_terminal = session.out.is_terminal

    def write(self, data: bytes) -> None:
        if self._is_terminal:
            text = data.decode(errors="replace")
            typer.echo("\n".join(log_line(line) for line in text.split("\n")), nl=False)
        else:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
