"""show: a run with its cells and jobs."""

from __future__ import annotations

import typer

from orchestrator.cli.commands.options import (
    JsonOption,
    ReadRunArgument,
)
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import find_run, session_of
from orchestrator.cli.view.failures import blamed, failures
from orchestrator.cli.view.glyphs import legend
from orchestrator.cli.view.live_run import summary
from orchestrator.cli.view.metrics import metrics
from orchestrator.cli.view.provenance import provenance
from orchestrator.domain.units import sentence


def show_command(
    context: typer.Context, run: ReadRunArgument = "latest", as_json: JsonOption = False
) -> None:
    """Show a run: every cell and every job, with their outcomes.

    A line below them says what its signs mean.
    """
    session = session_of(context)
    shown, found = find_run(session.reader(), run)
    if as_json:
        session.print_json(shown)
        return
    now = session.wiring.clock.now()
    session.out.print(summary(found, now=now, width=session.out.width))
    for told in (legend(found), failures(found), blamed(found), metrics(found), provenance(found)):
        if told is not None:
            session.out.print(told)
    for part in found.pruned:
        session.say(one_line(sentence(part.of(found.id))))
    if not found.is_finished and not session.has_controller:
        session.say(f"No controller runs: `seatrial watch {found.id}` starts one, and it goes on.")
