"""Arguments and options that several commands share."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestrator.cli.session import session_of
from orchestrator.client.errors import SeatrialError
from orchestrator.domain.run_record import RunSummary

_LISTED = 100
_NAME_AND_ANSWER_S = 3.0


def complete_runs(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ids of the newest runs with this prefix, with a description for the shell.

    Empty if they cannot be read within the time limit of completion.
    """
    runs: list[RunSummary] = []

    def look() -> None:
        with contextlib.suppress(SeatrialError):  # completion cannot show an error message
            found = session_of(context).completer().runs(limit=_LISTED)
            runs.extend(run.record for run in found)

    # No timeout of a connection covers the look-up of a host's name: the thread is left behind.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(None if session_of(context).settings.url is None else _NAME_AND_ANSWER_S)
    if not runs:
        return []
    beside = {run.id: f"{run.matrix}, {run.outcome or run.state}" for run in runs}
    beside["latest"] = "the newest run"
    return [(run, text) for run, text in beside.items() if run.startswith(incomplete)]


def text_option(flag: str, metavar: str, text: str) -> object:
    """Return an option for a text, with its placeholder in the help."""
    return typer.Option(flag, metavar=metavar, help=text)


LimitOption = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, help="Show at most N.")
]
RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's id, the beginning of one, or `latest`.",
        autocompletion=complete_runs,
    ),
]
ReadRunArgument = Annotated[
    str,
    typer.Argument(
        metavar="[RUN]",
        help="A run's id, the beginning of one, or `latest`, the default.",
        show_default=False,
        autocompletion=complete_runs,
    ),
]
MatrixArgument = Annotated[Path, typer.Argument(metavar="MATRIX", help="A matrix file (YAML).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CellOption = Annotated[
    str | None, typer.Option("--cell", metavar="CELL", help="One cell instead of all.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PLATFORM.FIELD=VALUE",
        help="Change one key of a platform for this launch. Lists are written a,b. Repeatable.",
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="MINUTES",
        min=0,
        help="Wait no longer; the run goes on, and the exit code is 7.",
    ),
]
InterruptOption = Annotated[
    Literal["cancel", "detach"] | None,
    typer.Option(
        "--on-interrupt",
        metavar="cancel|detach",
        help="What Ctrl-C does. Default: detach; cancel when CI is set.",
        show_default=False,
    ),
]
DetachOption = Annotated[
    bool,
    typer.Option("--detach", help="Launch, print the run's id, and leave with exit code 130."),
]
HoldOption = Annotated[
    float,
    typer.Option(
        "--hold-on-failure",
        metavar="MINUTES",
        min=0,
        max=1440,
        help="Keep the machine of a cell that does not pass for so long, at its price.",
        show_default=False,
    ),
]
RerunFailedOption = Annotated[
    int,
    typer.Option(
        "--rerun-failed",
        metavar="N",
        min=0,
        max=20,
        help="Run every failed test N times more, on its machine.",
        show_default=False,
    ),
]
DiagnoseOption = Annotated[
    bool,
    typer.Option(
        "--diagnose",
        help="Find the root cause of a failed test: run it again with the matrix's baseline, and "
        "with the packages of the last green run.",
    ),
]
ReuseOption = Annotated[
    float | None,
    typer.Option(
        "--reuse",
        metavar="HOURS",
        min=0.01,
        max=8760,
        help="Do not run jobs that passed no longer ago than this, and in which nothing that they "
        "depend on has changed: their earlier evidence is reused.",
        show_default=False,
    ),
]
UntrustedOption = Annotated[
    Path | None,
    typer.Option(
        "--untrusted",
        metavar="TREE",
        exists=True,
        file_okay=False,
        help="Launch untrusted code, such as a fork's, from the folder TREE: files and wheel come "
        "from TREE; matrix, payload.toml and baseline from this folder. Its jobs get no secrets, "
        "and gates ignore its results.",
        show_default=False,
    ),
]
YesOption = Annotated[
    bool, typer.Option("-y", "--yes", help="Rent what the plan says without asking.")
]

CommitOption = Annotated[
    str | None,
    typer.Option(
        "--commit",
        metavar="SHA",
        help="The commit that is tested. Default: the payload's checkout, then the CI's variables.",
    ),
]
BranchOption = Annotated[
    str | None, typer.Option("--branch", metavar="NAME", help="Its branch; as `--commit`.")
]
AuthorOption = Annotated[
    str | None, typer.Option("--author", metavar="NAME", help="Who wrote it; as `--commit`.")
]
