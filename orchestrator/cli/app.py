"""The command `seatrial`: all its commands, and what becomes of their errors."""

from __future__ import annotations

import codecs
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import orchestrator
from orchestrator.cli.commands.administration import (
    controller_command,
    db_app,
    schema_app,
    serve_command,
    token_app,
)
from orchestrator.cli.commands.annotate import annotate_command
from orchestrator.cli.commands.bootstrap import bootstrap_command
from orchestrator.cli.commands.channel import channel_app
from orchestrator.cli.commands.compare import compare_command
from orchestrator.cli.commands.export import export_command
from orchestrator.cli.commands.gate import gate_app
from orchestrator.cli.commands.ingest import ingest_command
from orchestrator.cli.commands.init import doctor_command, init_command
from orchestrator.cli.commands.known_issue import alias_app, known_issue_app
from orchestrator.cli.commands.lint import lint_command
from orchestrator.cli.commands.machines import cost_command, machines_command
from orchestrator.cli.commands.quarantine import quarantine_app
from orchestrator.cli.commands.report import report_command
from orchestrator.cli.commands.run import (
    plan_command,
    rerun_command,
    run_command,
    watch_command,
)
from orchestrator.cli.commands.schedule import schedule_app
from orchestrator.cli.commands.show import (
    cancel_command,
    logs_command,
    runs_command,
    show_command,
)
from orchestrator.cli.commands.ssh import SETTINGS as SSH_SETTINGS
from orchestrator.cli.commands.ssh import ssh_command
from orchestrator.cli.errors import DETACHED, FAILED, NO_VERDICT, CliError
from orchestrator.cli.safe_text import in_ascii
from orchestrator.cli.session import Session, session_of
from orchestrator.cli.wiring import Wiring
from orchestrator.domain.problems import InvalidDocumentError

NAME = "seatrial"
_START, _WORK, _LOOK, _KEEP = "Start", "Launch and wait", "Look and stop", "Keep a controller"


def build() -> typer.Typer:
    """Put the commands together."""
    app = typer.Typer(
        name=NAME,
        help="Prove a release of a PyTorch library on the hardware it claims to support.",
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_globals)
    for name, command, panel in (
        ("init", init_command, _START),
        ("doctor", doctor_command, _START),
        ("bootstrap", bootstrap_command, _START),
        ("plan", plan_command, _WORK),
        ("run", run_command, _WORK),
        ("rerun", rerun_command, _WORK),
        ("watch", watch_command, _WORK),
        ("ingest", ingest_command, _WORK),
        ("runs", runs_command, _LOOK),
        ("show", show_command, _LOOK),
        ("logs", logs_command, _LOOK),
        ("report", report_command, _LOOK),
        ("export", export_command, _LOOK),
        ("compare", compare_command, _LOOK),
        ("annotate", annotate_command, _LOOK),
        ("lint", lint_command, _LOOK),
        ("cancel", cancel_command, _LOOK),
        ("cost", cost_command, _LOOK),
        ("machines", machines_command, _LOOK),
        ("serve", serve_command, _KEEP),
    ):
        app.command(name, rich_help_panel=panel)(command)
    app.command("ssh", rich_help_panel=_LOOK, context_settings=SSH_SETTINGS)(ssh_command)
    app.command("controller", hidden=True)(controller_command)
    _add_groups(app)
    return app


def _add_groups(app: typer.Typer) -> None:
    app.add_typer(gate_app, name="gate", rich_help_panel=_LOOK)
    app.add_typer(known_issue_app, name="known-issue", rich_help_panel=_LOOK)
    app.add_typer(quarantine_app, name="quarantine", rich_help_panel=_LOOK)
    app.add_typer(alias_app, name="alias", rich_help_panel=_LOOK)
    app.add_typer(channel_app, name="channel", rich_help_panel=_KEEP)
    app.add_typer(schedule_app, name="schedule", rich_help_panel=_KEEP)
    app.add_typer(token_app, name="token", rich_help_panel=_KEEP)
    app.add_typer(db_app, name="db", rich_help_panel=_KEEP)
    app.add_typer(schema_app, name="schema", rich_help_panel=_KEEP)


def main(wiring: Wiring, args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; nothing is raised."""
    _speak_any_alphabet()
    session = Session(wiring)
    try:
        build()(args=list(args) if args is not None else None, prog_name=NAME, obj=session)
    except SystemExit as ending:
        return _code(ending)
    except CliError as error:
        return _tell(session, error)
    except InvalidDocumentError as error:
        return _tell(session, CliError(str(error)))
    except KeyboardInterrupt:
        return DETACHED
    except Exception as error:  # noqa: BLE001 - the last place that can say it in a sentence
        return _confess(session, error)
    finally:
        session.close()
    return 0


def _globals(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks of unexpected errors.")
    ] = False,
) -> None:
    session_of(context).debug = debug
    if show_version:
        typer.echo(f"{NAME} {orchestrator.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def _tell(session: Session, error: CliError) -> int:
    for number, line in enumerate(error.lines):
        session.err.print(line, style="red" if number == 0 else None, markup=False, soft_wrap=True)
    if session.debug:
        _trace(session, error)
    return error.code


def _confess(session: Session, error: Exception) -> int:
    """Something that nobody thought of."""
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    session.err.print(f"unexpected: {said}", style="red", markup=False, soft_wrap=True)
    if session.debug:
        _trace(session, error)
    else:
        session.say("`seatrial --debug ...` shows where; HOME/controller.log has the other side.")
    return NO_VERDICT


def _trace(session: Session, error: Exception) -> None:
    traceback.print_exception(error, file=session.err.file)


def _code(ending: SystemExit) -> int:
    if ending.code is None:
        return 0
    return ending.code if isinstance(ending.code, int) else FAILED


def _speak_any_alphabet() -> None:
    """A terminal that cannot show a sign gets a mark instead of an error.

    A stream that was closed before the start is None, and swallows what is written.
    """
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nowhere.open("w", encoding="utf-8")
    codecs.register_error(in_ascii.__name__, in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=in_ascii.__name__)
