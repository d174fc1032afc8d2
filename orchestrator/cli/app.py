"""The `seatrial` command: all its commands, and the handling of their errors."""

from __future__ import annotations

import codecs
import io
import os
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, cast

import typer
import typer.core
import typer.main
from typer import _click

import orchestrator
from orchestrator.cli.errors import DETACHED, FAILED, NO_VERDICT, CliError, exit_code_of
from orchestrator.cli.safe_text import in_ascii
from orchestrator.cli.session import Session, session_of
from orchestrator.cli.wiring import Wiring
from orchestrator.client.errors import SeatrialError
from orchestrator.domain.document_problems import InvalidDocumentError

NAME = "seatrial"
_START, _WORK, _LOOK, _KEEP = "Start", "Launch and wait", "Look and stop", "Keep a controller"


class _Flags(_click.Command):
    """A command whose help shows no value for flags."""

    def get_params(self, ctx: _click.Context) -> list[_click.Parameter]:
        """Return the parameters, including ``--help``."""
        params = super().get_params(ctx)
        for param in params:
            if isinstance(param, typer.core.TyperOption) and param.is_flag:
                param.metavar = ""
        return params


class _Command(_Flags, typer.core.TyperCommand):
    pass


class _Group(_Flags, typer.core.TyperGroup):
    pass


def _with_flags(app: typer.Typer) -> typer.Typer:
    """Build every command and group of an application as one of `_Flags`."""
    app.info.cls = _Group
    for command in app.registered_commands:
        command.cls = _Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _with_flags(group.typer_instance)
    return app


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A lazily imported command or group."""

    panel: str
    """Section of the help that lists the command."""
    place: str
    """Module below `orchestrator.cli.commands`, and the command's name in the module."""
    summary: str
    """Line of the command in the help of `seatrial`."""
    settings: Mapping[str, bool] | None = None
    """Context settings of the command, for the library."""
    hidden: bool = False

    def load(self, name: str) -> _click.Command:
        """Import the command."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(f"orchestrator.cli.commands.{module}"), attribute)
        app = typer.Typer()
        app.callback()(lambda: None)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, rich_help_panel=self.panel)
        else:
            settings = dict(self.settings or {})
            panel, hidden = self.panel, self.hidden
            app.command(name, rich_help_panel=panel, hidden=hidden, context_settings=settings)(
                found
            )
        return typer.main.get_group(_with_flags(app)).commands[name]


ENTRIES = {
    "init": CommandEntry(
        _START,
        "init:init_command",
        "Write payload.toml, seatrial.yaml and gate.yaml for an existing project.",
    ),
    "doctor": CommandEntry(
        _START,
        "doctor:doctor_command",
        "Check this computer, the home and the controller, or a cloud account; print corrections.",
    ),
    "bootstrap": CommandEntry(
        _START,
        "bootstrap:bootstrap_command",
        "Set up an account: least permissions, and a kill switch that needs no controller.",
    ),
    "plan": CommandEntry(
        _WORK,
        "run:plan_command",
        "Show what `run` would do: cells, places, and the maximum cost. Launches nothing.",
    ),
    "run": CommandEntry(
        _WORK,
        "run:run_command",
        "Launch a matrix and watch it to its end. The exit code is the outcome.",
    ),
    "payload": CommandEntry(
        _WORK,
        "run:payload_command",
        "List the files that a payload ships, with their sizes. Launches and uploads nothing.",
    ),
    "rerun": CommandEntry(
        _WORK,
        "run:rerun_command",
        "Launch a finished run again, or some of its jobs, as a new run; then watch it.",
    ),
    "watch": CommandEntry(
        _WORK, "run:watch_command", "Watch a run to its end. The exit code is the outcome."
    ),
    "ingest": CommandEntry(
        _WORK,
        "ingest:ingest_command",
        "Create a finished run of one cell from files of other programs, and print its id.",
    ),
    "runs": CommandEntry(_LOOK, "runs:runs_command", "List the runs, newest first."),
    "show": CommandEntry(
        _LOOK, "runs:show_command", "Show a run: every cell and every job, with their outcomes."
    ),
    "failures": CommandEntry(
        _LOOK,
        "runs:failures_command",
        "List what failed in a run: job, test, cells, error, and the command that shows its log.",
    ),
    "slowest": CommandEntry(
        _LOOK,
        "runs:slowest_command",
        "List the tests of a run that took longest, and how long they took before.",
    ),
    "logs": CommandEntry(
        _LOOK,
        "logs:logs_command",
        "Print the logs of a run's cells, as they came from the machines.",
    ),
    "report": CommandEntry(_LOOK, "report:report_command", "Render a report from what is stored."),
    "export": CommandEntry(
        _LOOK,
        "report:export_command",
        "Write every test and check in a format that other programs read.",
    ),
    "compare": CommandEntry(
        _LOOK,
        "report:compare_command",
        "Show what changed between two runs: new failures, fixed tests, figures and costs.",
    ),
    "annotate": CommandEntry(
        _LOOK,
        "annotate:annotate_command",
        "Add annotations to the reports of a run: narrative, fixes, recommendations.",
    ),
    "lint": CommandEntry(
        _LOOK, "report:lint_command", "Check Markdown reports of any origin for errors."
    ),
    "cancel": CommandEntry(
        _LOOK,
        "runs:cancel_command",
        "Cancel a run; finished tests are kept, and machines are released.",
    ),
    "cost": CommandEntry(
        _LOOK,
        "machines:cost_command",
        "Show the cost of a run; without one, of the runs of the last 30 days.",
    ),
    "machines": CommandEntry(
        _LOOK,
        "machines:machines_command",
        "List the project's cloud resources with their owners; terminate those without one.",
    ),
    "serve": CommandEntry(
        _KEEP,
        "administration:serve_command",
        "Run the controller in the foreground: REST on a port and on the home's socket.",
    ),
    "ssh": CommandEntry(
        _LOOK,
        "ssh:ssh_command",
        "Open an SSH session on the machine that a cell holds. The exit code is ssh's own.",
        settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    ),
    "stop": CommandEntry(
        _KEEP,
        "administration:stop_command",
        "Stop the controller that commands start in the background.",
    ),
    "controller": CommandEntry(
        _KEEP,
        "administration:controller_command",
        "Run the controller that other commands start in the background.",
        hidden=True,
    ),
    "gate": CommandEntry(_LOOK, "gate:gate_app", "Release gates: policies and signed verdicts."),
    "known-issue": CommandEntry(
        _LOOK,
        "known_issue:known_issue_app",
        "Known issues: owned, dated exceptions for failures. They change no count.",
    ),
    "quarantine": CommandEntry(
        _LOOK,
        "quarantine:quarantine_app",
        "Flaky tests in quarantine: owned, dated, ending by themselves. They change no count.",
    ),
    "alias": CommandEntry(_LOOK, "known_issue:alias_app", "Aliases: tests with other names now."),
    "channel": CommandEntry(
        _KEEP,
        "channel:channel_app",
        "Channels: notifications when a gate's state changes.",
    ),
    "schedule": CommandEntry(
        _KEEP,
        "schedule:schedule_app",
        "Schedules: a matrix is launched at fixed times, and the result is announced.",
    ),
    "backup": CommandEntry(
        _KEEP,
        "backup:backup_command",
        "Copy the controller's database and files into one new file, also while runs go on.",
    ),
    "restore": CommandEntry(
        _KEEP,
        "backup:restore_command",
        "Fill an empty home and an empty database from a backup.",
    ),
    "audit": CommandEntry(
        _KEEP,
        "audit:audit_app",
        "The audit log: who changed what, from where, and when.",
    ),
    "token": CommandEntry(_KEEP, "administration:token_app", "API tokens."),
    "session": CommandEntry(_KEEP, "administration:session_app", "Browsers that are signed in."),
    "db": CommandEntry(_KEEP, "administration:db_app", "The controller's database."),
    "schema": CommandEntry(
        _KEEP, "administration:schema_app", "JSON Schemas of the files people write."
    ),
}


class Commands(_Group):
    """All commands, each imported when it is called."""

    def resolve_command(
        self, ctx: _click.Context, args: list[str]
    ) -> tuple[str | None, _click.Command | None, list[str]]:
        """Import the called command."""
        self.load(args[:1])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: _click.Context) -> object:
        """Run the called command; report an invalid choice in one sentence."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    def load(self, names: Iterable[str] = tuple(ENTRIES)) -> Commands:
        """Import the commands of these names."""
        for name in ENTRIES.keys() & set(names):
            self.commands[name] = ENTRIES[name].load(name)
        return self


def build() -> typer.Typer:
    """Create the top-level command."""
    app = typer.Typer(
        name=NAME,
        cls=Commands,
        help="Validate a release of a PyTorch library on the hardware it claims to support.",
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_globals)
    for name, entry in ENTRIES.items():
        panel, hidden = entry.panel, entry.hidden
        app.command(name, help=entry.summary, rich_help_panel=panel, hidden=hidden)(
            _imported_when_called
        )
    return app


def whole() -> Commands:
    """Return the command with every subcommand imported."""
    return cast(Commands, typer.main.get_command(build())).load()


def _imported_when_called() -> None:
    raise AssertionError("a command is imported before it is called")


def main(wiring: Wiring, args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises."""
    _speak_any_alphabet()
    session = Session(wiring)
    try:
        build()(args=list(args) if args is not None else None, prog_name=NAME, obj=session)
    except SystemExit as ending:
        return _code(ending)
    except SeatrialError as error:
        return _tell(session, error)
    except InvalidDocumentError as error:
        return _tell(session, CliError(str(error)))
    except KeyboardInterrupt:
        return DETACHED
    except Exception as error:  # noqa: BLE001 - the last place that can say it in a sentence
        return _print_unexpected(session, error)
    finally:
        session.close()
    return 0


def _globals(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Write no progress: only data and errors.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Print every request and its duration.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks of unexpected errors.")
    ] = False,
) -> None:
    session = session_of(context)
    session.debug, session.verbose, session.err.quiet = debug, verbose, quiet
    if show_version:
        typer.echo(f"{NAME} {orchestrator.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def _tell(session: Session, error: SeatrialError) -> int:
    session.err.quiet = False
    for number, line in enumerate(error.lines):
        session.err.print(line, style="red" if number == 0 else None, markup=False, soft_wrap=True)
    if session.debug:
        _trace(session, error)
    return exit_code_of(error)


def _print_unexpected(session: Session, error: Exception) -> int:
    """Print an unexpected error, and where its traceback is."""
    session.err.quiet = False
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
    """Replace characters that the terminal cannot encode.

    A stream that was closed before the start is None; output to it is dropped.
    """
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nowhere.open("w", encoding="utf-8")
    codecs.register_error(in_ascii.__name__, in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=in_ascii.__name__)
