"""Commands on runs: list, show, cancel, failures, slowest tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.commands.options import (
    CellOption,
    JsonOption,
    LimitOption,
    ReadRunArgument,
    RunArgument,
)
from orchestrator.cli.errors import EmptyHomeError
from orchestrator.cli.failure_logs import FailureLine, failures_of
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, find_cells, session_of
from orchestrator.cli.view.failures import blamed, failures
from orchestrator.cli.view.glyphs import legend, outcome_words, sign_of, tally, word
from orchestrator.cli.view.live_run import summary
from orchestrator.cli.view.metrics import metrics
from orchestrator.cli.view.provenance import provenance
from orchestrator.cli.view.tables import Layout, fitting, print_list
from orchestrator.client.transport import Answer, Json
from orchestrator.domain.cell import RunState
from orchestrator.domain.compare_tests import TestDuration
from orchestrator.domain.grouping import grouped
from orchestrator.domain.run_record import RunSummary
from orchestrator.domain.units import duration, sentence, signed_percent, usd

_RUNS = Layout(
    titles=("run", "launched (UTC)", "matrix", "subject", "commit", "outcome", "tests", "cost"),
    first_to_go=("cost", "matrix", "launched (UTC)", "commit", "subject", "tests"),
    whole=("run", "launched (UTC)", "outcome"),
    right=("cost",),
)


def runs_command(
    context: typer.Context,
    limit: LimitOption = 20,
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
    session = session_of(context)
    found: list[Answer[RunSummary]] = []
    try:
        found += session.reader().runs(limit=limit, commit=commit, branch=branch, author=author)
    except EmptyHomeError as empty:
        if not as_json:
            session.say(str(empty))
            return
    if as_json:
        session.print_json([_without_cells(run.json) for run in found])
        return
    if not found:
        if commit or branch or author:
            session.say("No run is like that; `seatrial runs` lists all of them.")
            return
        session.say("No run yet: `seatrial init` in a project, then `seatrial run seatrial.yaml`.")
        return
    layout = _RUNS
    if not any(one.record.commit for one in found):
        layout = replace(_RUNS, titles=tuple(title for title in _RUNS.titles if title != "commit"))
    session.out.print(fitting(session.out, layout, [_row(one.record) for one in found]))


def _without_cells(run: Json) -> Json:
    return {key: value for key, value in run.items() if key != "cells"}


def _row(run: RunSummary) -> dict[str, Text]:
    sign = sign_of(run.outcome, active=not run.is_finished)
    texts = (
        Text(one_line(run.id)),
        Text(f"{run.created_at:%Y-%m-%d %H:%M}" if run.created_at else "–"),
        Text(one_line(run.matrix)),
        Text(one_line(str(run.subject))),
        Text(one_line(" ".join(part for part in (run.commit.short, run.commit.branch) if part))),
        Text(f"{sign.glyph} {outcome_words(run)}", style=sign.style),
        tally(run.counts, over=run.is_finished),
        Text("–" if run.cost_usd is None else usd(run.cost_usd)),
    )
    return dict(zip(_RUNS.titles, texts, strict=True))


def cancel_command(context: typer.Context, run: RunArgument, as_json: JsonOption = False) -> None:
    """Cancel a run; finished tests are kept, and machines are released."""
    session = session_of(context)
    answer = session.client().cancel(run, key=session.wiring.new_id())
    found = answer.record
    if as_json:
        session.print_json(answer.json)
    elif found.state is RunState.INGESTING:
        session.say(f"Run {found.id} is only taking in evidence; there is nothing to cancel.")
    elif found.state is RunState.FINISHED:
        session.say(f"Run {found.id} is over already: {word(found.outcome or '')}.")
    else:
        session.say(f"Run {found.id} is being cancelled; `seatrial watch {found.id}` shows it.")


def show_command(
    context: typer.Context, run: ReadRunArgument = "latest", as_json: JsonOption = False
) -> None:
    """Show a run: every cell and every job, with their outcomes.

    A line below them says what its signs mean.
    """
    session = session_of(context)
    answer = session.reader().run(run)
    if as_json:
        session.print_json(answer.json)
        return
    found = answer.record
    now = session.wiring.clock.now()
    session.out.print(summary(found, now=now, width=session.out.width))
    for told in (legend(found), failures(found), blamed(found), metrics(found), provenance(found)):
        if told is not None:
            session.out.print(told)
    for part in found.pruned:
        session.say(one_line(sentence(part.of(found.id))))
    if not found.is_finished and not session.has_controller:
        session.say(f"No controller runs: `seatrial watch {found.id}` starts one, and it goes on.")


def failures_command(
    context: typer.Context,
    run: ReadRunArgument = "latest",
    cell: CellOption = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List what failed in a run: job, test, cells, error, and the command that shows its log."""
    session = session_of(context)
    client = session.reader()
    found = client.run(run).record
    failures = failures_of(client, found, find_cells(found, cell))
    if as_json:
        session.print_json([one.as_json() for one in failures])
        return
    if not failures:
        so_far = "" if found.is_finished else " so far"
        session.say(f"Nothing failed in run {found.id}{so_far}.")
    for failure in failures[:limit]:
        _print(session, failure)
    if len(failures) > limit:
        session.say(f"{len(failures) - limit} more; --limit or --json shows them.")


def _print(session: Session, failure: FailureLine) -> None:
    sign = sign_of(failure.outcome)
    name = " ".join(part for part in (failure.job, failure.test) if part) or "the cell"
    line = Text(f"{sign.glyph} {one_line(name)}", style=sign.style)
    line.append(f"  {word(failure.outcome)} on {one_line(', '.join(failure.cells))}", style="dim")
    for mark in marks_of(failure):
        line.append(f"  {one_line(mark)}", style="yellow")
    session.out.print(line, soft_wrap=True)
    files = f"files: {', '.join(failure.artifacts)}" if failure.artifacts else ""
    for said in (failure.error, files, failure.log):
        if said:
            session.print(f"    {one_line(said)}")


def marks_of(failure: FailureLine) -> Iterator[str]:
    """Yield ``known issue KI-0001 (applies)`` and ``in quarantine Q-0001``.

    A mark names its cells if it does not apply to all cells of the failure.
    """
    known = [
        (f"{issue} ({state})", cell)
        for cell, issues in failure.known_issues.items()
        for issue, state in issues.items()
    ]
    held = [(quarantine, cell) for cell, quarantine in failure.quarantined.items()]
    for what, marks in (("known issue", known), ("in quarantine", held)):
        where = grouped(marks)
        told = [
            one if len(cells) == len(failure.cells) else f"{one} on {', '.join(cells)}"
            for one, cells in sorted(where.items())
        ]
        if told:
            yield f"{what} {', '.join(told)}"


_SLOWEST = Layout(
    titles=("took", "usually", "change", "test", "cell"),
    first_to_go=("change", "usually", "cell"),
    whole=("took",),
    right=("took", "usually", "change"),
)


def slowest_command(
    context: typer.Context,
    run: ReadRunArgument = "latest",
    cell: CellOption = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=500, help="Show at most N.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the tests of a run that took longest, and how long they took before."""
    session = session_of(context)
    client = session.reader()
    found = client.run(run).record
    find_cells(found, cell)
    answer = client.slowest_tests(found.id, cell=cell, limit=limit)
    nothing = f"No test of run {found.id} has a duration."
    print_list(session, answer, _SLOWEST, _slow_row, nothing=nothing, as_json=as_json)


def _slow_row(one: TestDuration) -> dict[str, Text]:
    sign = sign_of(one.outcome)
    usual, change = one.usual_s, one.change
    said = signed_percent(change) if change is not None else ""
    texts = (
        Text(duration(one.duration_s)),
        Text(duration(usual) if usual is not None else ""),
        Text(said, style="yellow" if one.is_much_slower else ""),
        Text(f"{sign.glyph} ", style=sign.style).append(one_line(f"{one.job} {one.nodeid}"), ""),
        Text(one_line(one.cell)),
    )
    return dict(zip(_SLOWEST.titles, texts, strict=True))
