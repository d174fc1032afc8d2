"""runs: lists the runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.client import Json, newest, read
from orchestrator.cli.commands.options import JsonOption, LimitOption
from orchestrator.cli.errors import EmptyHomeError
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import session_of
from orchestrator.cli.view.glyphs import sign_of, tally, word
from orchestrator.cli.view.tables import Layout, fitting
from orchestrator.domain.run_record import RunSummary
from orchestrator.domain.units import usd

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
    asked = {"commit": commit, "branch": branch, "author": author}
    session = session_of(context)
    shown: list[Json] = []
    try:
        shown += newest(session.reader(), "/runs", limit=limit, **asked)
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
