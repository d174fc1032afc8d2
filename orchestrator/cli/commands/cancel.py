"""cancel: requests the end of a run."""

from __future__ import annotations

import typer

from orchestrator.cli.client import read
from orchestrator.cli.commands.options import (
    JsonOption,
    RunArgument,
)
from orchestrator.cli.session import run_path, session_of
from orchestrator.cli.view.glyphs import word
from orchestrator.domain.cell import Run, RunState


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
