"""runs, show, logs, cancel: reading and cancelling runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.cell_log import CellLog
from orchestrator.cli.client import Client, Json
from orchestrator.cli.commands.options import (
    CellOption,
    JsonOption,
    ReadRunArgument,
    RunArgument,
)
from orchestrator.cli.errors import CliError, EmptyHomeError
from orchestrator.cli.failure_logs import Chosen, chosen_logs
from orchestrator.cli.responses import read
from orchestrator.cli.safe_text import log_line, one_line
from orchestrator.cli.session import Session, find_cells, find_run, run_path, session_of
from orchestrator.cli.view.failures import blamed, failures
from orchestrator.cli.view.glyphs import sign_of, tally, word
from orchestrator.cli.view.live_run import summary
from orchestrator.cli.view.metrics import metrics
from orchestrator.cli.view.provenance import provenance
from orchestrator.cli.view.tables import Layout, fitting
from orchestrator.domain.cell import Run, RunState
from orchestrator.domain.run_record import CellRecord, RunResponse, RunSummary
from orchestrator.domain.units import sentence, usd

_PAGE = 100
_FOLLOW_EVERY_S = 0.5
_RUNS = Layout(
    titles=("run", "launched (UTC)", "matrix", "subject", "commit", "outcome", "tests", "cost"),
    first_to_go=("cost", "matrix", "launched (UTC)", "commit", "subject", "tests"),
    whole=("run", "launched (UTC)", "outcome"),
    right=("cost",),
)


def runs_command(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Show at most N.")
    ] = 20,
    commit: Annotated[
        str | None, typer.Option("--commit", metavar="SHA", help="Only of commits that begin so.")
    ] = None,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="NAME", help="Only of this branch.")
    ] = None,
    author: Annotated[
        str | None, typer.Option("--author", metavar="NAME", help="Only of commits by this author.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs, newest first."""
    asked = {"commit": commit, "branch": branch, "author": author}
    session = session_of(context)
    shown: list[Json] = []
    try:
        shown += _newest(session.reader(), limit, asked)
    except EmptyHomeError as empty:
        if not as_json:
            session.say(str(empty))
            return
    if as_json:
        session.print_json([_without_cells(run) for run in shown])
        return
    if not shown:
        if any(asked.values()):
            session.say("No run is like that; `seatrial runs` lists all of them.")
            return
        session.say("No run yet: `seatrial init` in a project, then `seatrial run seatrial.yaml`.")
        return
    found = [read(RunSummary, run) for run in shown]
    layout = _RUNS
    if not any(one.commit for one in found):
        layout = replace(_RUNS, titles=tuple(title for title in _RUNS.titles if title != "commit"))
    session.out.print(fitting(session.out, layout, [_row(one) for one in found]))


def show_command(
    context: typer.Context, run: ReadRunArgument = "latest", as_json: JsonOption = False
) -> None:
    """Show a run: every cell and every job, with their outcomes."""
    session = session_of(context)
    shown, found = find_run(session.reader(), run)
    if as_json:
        session.print_json(shown)
        return
    now = session.wiring.clock.now()
    session.out.print(summary(found, now=now, width=session.out.width))
    for told in (failures(found), blamed(found), metrics(found), provenance(found)):
        if told is not None:
            session.out.print(told)
    for part in found.pruned:
        session.say(one_line(sentence(part.of(found.id))))
    if not found.is_finished and not session.has_controller:
        session.say(f"No controller runs: `seatrial watch {found.id}` starts one, and it goes on.")


def cancel_command(context: typer.Context, run: RunArgument, as_json: JsonOption = False) -> None:
    """Cancel a run; finished tests are kept, and machines are released."""
    session = session_of(context)
    client = session.client()
    shown = client.post(f"{run_path(run)}/cancel", key=session.wiring.new_id())
    found = read(Run, shown)
    if as_json:
        session.print_json(shown)
    elif found.state is RunState.INGESTING:
        session.say(f"Run {found.id} is only taking in evidence; there is nothing to cancel.")
    elif found.state is RunState.FINISHED:
        session.say(f"Run {found.id} is over already: {word(found.outcome or '')}.")
    else:
        session.say(f"Run {found.id} is being cancelled; `seatrial watch {found.id}` shows it.")


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
    """Print the logs of a run's cells, as they came from the machines."""
    session = session_of(context)
    chosen = Chosen(job, test, failed)
    if follow and chosen.is_part:
        raise CliError("--follow prints whole logs: leave --job, --test and --failed out")
    client = session.client() if follow else session.reader()
    _, found = find_run(client, run)
    cells = find_cells(found, cell)
    if not chosen.is_part:
        _print_whole(session, client, found, cells, follow=follow)
        return
    printer = _Printer(session)
    for text in chosen_logs(client, found, cells, chosen):
        printer.write(text)


def _print_whole(
    session: Session, client: Client, run: RunResponse, cells: list[CellRecord], *, follow: bool
) -> None:
    for one in cells:
        if one.ingested is not None:
            session.say(f"{one.id} was ingested; its files: seatrial report {run.id} -o DIR")
    logs = [CellLog(client, run, one, prefixed=len(cells) > 1) for one in cells]
    printer = _Printer(session)
    while True:
        # Asked for before the logs: what a finished run has written is all there.
        is_over = not follow or find_run(client, run.id)[1].is_finished
        for log in logs:
            for text in log.new(to_the_end=is_over):
                printer.write(text)
        if is_over:
            return
        session.wiring.clock.sleep(_FOLLOW_EVERY_S)


class _Printer:
    """Prints whole lines: unchanged into a pipe, harmless on a terminal."""

    def __init__(self, session: Session) -> None:
        self._is_terminal = session.out.is_terminal

    def write(self, data: bytes) -> None:
        if self._is_terminal:
            text = data.decode(errors="replace")
            typer.echo("\n".join(log_line(line) for line in text.split("\n")), nl=False)
        else:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def _newest(client: Client, limit: int, asked: Mapping[str, str | None]) -> Iterator[Json]:
    cursor: str | None = None
    while limit > 0:
        page = client.get("/runs", limit=min(limit, _PAGE), before=cursor, **asked)
        items = page.get("items")
        for item in items if isinstance(items, list) else []:
            yield item
            limit -= 1
        cursor = str(page["next"]) if page.get("next") else None
        if cursor is None:
            return


def _without_cells(run: Json) -> Json:
    return {key: value for key, value in run.items() if key != "cells"}


def _row(run: RunSummary) -> dict[str, Text]:
    sign = sign_of(run.outcome, active=not run.is_finished)
    texts = (
        Text(one_line(run.id)),
        _moment(run.created_at),
        Text(one_line(run.matrix)),
        Text(one_line(str(run.subject))),
        Text(one_line(" ".join(part for part in (run.commit.short, run.commit.branch) if part))),
        Text(f"{sign.glyph} {word(run.outcome or run.state)}", style=sign.style),
        tally(run.counts, over=run.is_finished),
        Text(usd(run.cost_usd)),
    )
    return dict(zip(_RUNS.titles, texts, strict=True))


def _moment(at: datetime | None) -> Text:
    return Text(f"{at:%Y-%m-%d %H:%M}" if at else "–")
