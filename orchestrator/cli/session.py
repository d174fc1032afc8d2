"""Session of a command: its wiring, output and lookup of runs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.console import Console

from orchestrator.cli.errors import CliError
from orchestrator.cli.safe_text import NATURAL, json_text
from orchestrator.domain.document_problems import nearest

if TYPE_CHECKING:
    from orchestrator.cli.connect import ReadingLine
    from orchestrator.cli.wiring import CommandSettings, Wiring
    from orchestrator.client.connection import ControllerConnection
    from orchestrator.client.seatrial import Seatrial
    from orchestrator.domain.run_record import CellRecord, RunResponse

# Commands that need no controller, such as `--help`, do not import the HTTP library.
# ruff: noqa: PLC0415

AT_ONCE_S = 1.0
"""Time limit of shell completion, in seconds."""
URGENT_S = 20.0
"""Time limit for the controller in an emergency stop, in seconds."""


def find_cells(run: RunResponse, name: str | None) -> list[CellRecord]:
    """Return the named cell, or all cells in matrix order. Raises CliError."""
    if name is None:
        return list(run.cells)
    found = [cell for cell in run.cells if cell.id == name]
    if not found:
        near = nearest(name, [cell.id for cell in run.cells])
        raise CliError(f"run {run.id} has no cell {name!r}{near}")
    return found


@dataclass(slots=True)
class Session:
    """One call of the command line: its wiring, output and clients."""

    wiring: Wiring
    out: Console = field(default_factory=lambda: _console(sys.stdout))
    """Standard output, for data."""
    err: Console = field(default_factory=lambda: _console(sys.stderr))
    """Standard error, for progress, questions and errors."""
    debug: bool = False
    verbose: bool = False
    """Whether every response of the controller is printed."""
    _clients: list[Seatrial] = field(default_factory=list)

    @property
    def settings(self) -> CommandSettings:
        """Return the settings. Raises CliError for an invalid variable."""
        try:
            return self.wiring.settings
        except ValueError as error:
            raise CliError(str(error)) from None

    @property
    def is_interactive(self) -> bool:
        """Whether a person can answer questions."""
        told = self.err.is_terminal and not self.err.quiet
        return sys.stdin.isatty() and told and not self.settings.ci

    @property
    def is_live(self) -> bool:
        """Whether progress may be redrawn in place."""
        console = self.err
        able = console.is_terminal and not console.is_dumb_terminal
        return (
            able
            and not console.quiet
            and console.encoding.startswith("utf")
            and not self.settings.ci
        )

    def line(self, say: Callable[[str], None] | None = None) -> ControllerConnection:
        """Return the connection to the configured controller; `say` reports its start."""
        from orchestrator.cli.connect import LocalConnection
        from orchestrator.client.connection import RemoteConnection

        settings = self.settings
        if settings.url is None:
            return LocalConnection(settings.home, self.wiring.clock, say or self.say)
        return RemoteConnection(settings.url, settings.token)

    def client(self) -> Seatrial:
        """Return a client of the controller; no request is sent yet."""
        return self._client(self.line())

    def reader(self) -> Seatrial:
        """Return a client for reads.

        It starts no controller if the database is a file of the home.
        """
        return self._client(self._reading_line() or self.line())

    def completer(self) -> Seatrial:
        """Return a client for completion: it starts nothing and tries once."""
        line = self._reading_line() or self.line()
        return self._client(line, pauses_s=(), timeout_s=AT_ONCE_S)

    def urgent_client(self) -> Seatrial:
        """Return a client for an emergency stop: it starts nothing and tries once."""
        return self._client(self.line(), pauses_s=(), timeout_s=URGENT_S)

    @property
    def has_controller(self) -> bool:
        """Whether a controller exists, so that unfinished runs continue."""
        line = self._reading_line()
        return line is None or line.is_held

    def _reading_line(self) -> ReadingLine | None:
        """Return a connection that starts no controller.

        None if the database is no file of the home.
        """
        from orchestrator.cli.connect import LocalConnection, ReadingLine

        line = self.line()
        if isinstance(line, LocalConnection) and self.wiring.is_embedded:
            return ReadingLine(line, self.wiring)
        return None

    def _client(self, line: ControllerConnection, **options: Any) -> Seatrial:  # noqa: ANN401 - of the class
        from orchestrator.client.seatrial import Seatrial

        client = Seatrial(line, self.wiring.clock, heard=self._hear, say=self.say, **options)
        self._clients.append(client)
        return client

    def _hear(self, text: str) -> None:
        if self.verbose:
            self.say(text)

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            client.close()

    def say(self, text: str) -> None:
        """Print progress for a person."""
        self.err.print(text, markup=False, highlight=False, soft_wrap=True)

    def print(self, text: str) -> None:
        """Write a line of data."""
        self.out.print(text, markup=False, highlight=False, soft_wrap=True, emoji=False)

    def print_json(self, value: object) -> None:
        """Print data as JSON."""
        typer.echo(json_text(json.dumps(value, indent=2, ensure_ascii=False)))


def is_confirmed(question: str) -> bool:
    """Ask a yes-or-no question on standard error; Ctrl-C and the end of input mean no."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


def session_of(context: typer.Context) -> Session:
    """Return the session that `main` created. Raises TypeError."""
    session = context.obj
    if not isinstance(session, Session):
        raise TypeError("the command line was started without its wiring")
    return session


class PipeConsole(Console):
    """A console for files and pipes: lines end with their text."""

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 - as the library has it
        """Print without trailing spaces of tables."""
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(re.sub(r" +$", "", captured.get(), flags=re.MULTILINE))
        self.file.flush()


def _console(stream: TextIO) -> Console:
    """Return a console: of the terminal's width, else of COLUMNS, or unlimited."""
    if stream.isatty():
        return Console(file=stream, emoji=False, highlight=False)
    columns = os.environ.get("COLUMNS", "")  # noqa: TID251 - the window, no setting
    width = (int(columns) if columns.isdecimal() else 0) or NATURAL
    return PipeConsole(file=stream, width=width, emoji=False, highlight=False)
