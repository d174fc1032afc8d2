"""bootstrap, and doctor for a cloud: set-up and checks of the user's account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.errors import AUTHENTICATION, FAILED, NO_VERDICT, USAGE, CliError
from orchestrator.cli.session import Session, is_confirmed, session_of
from orchestrator.domain.cloud_account import AccountSetup, CheckLevel
from orchestrator.domain.machine import ConfigError, CredentialsError, ProviderError

_STYLES = {CheckLevel.OK: "green", CheckLevel.WARN: "yellow", CheckLevel.FAIL: "bold red"}


def bootstrap_command(
    context: typer.Context,
    cloud: Annotated[str, typer.Argument(metavar="CLOUD", help="aws or gcp.")],
    remove: Annotated[
        bool, typer.Option("--remove", help="Take away what this command made.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where the document is written."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Apply without asking.")] = False,
) -> None:
    """Set up an account: least permissions, and a kill switch that needs no controller.

    Writes the document of the resources, then asks before it creates them. Every five minutes the
    kill switch ends the project's resources past their expires-at tag.
    """
    session = session_of(context)
    with _provider_errors():
        setup = session.wiring.account_setup(cloud)
        document = setup.document()
        session.say(f"project {session.settings.project} in {document.account}")
        if remove:
            _apply(session, setup.remove(), "Remove the kill switch and what belongs to it?", yes)
            return
        path = output or Path(document.file_name)
        _write(path, document.text)
        session.print(f"wrote {path}")
        for part in document.parts:
            session.say(f"  {part}")
        _apply(session, setup.apply(), "Make this in the account?", yes)


def check_account(session: Session, cloud: str, *, as_json: bool) -> None:
    """Print every check of the account. Raises typer.Exit(1) if one failed."""
    with _provider_errors():
        setup: AccountSetup = session.wiring.account_setup(cloud)
        checks = []
        for check in setup.check():
            checks.append(check)
            if not as_json:
                line = Text(f"{check.level:<5} ", style=_STYLES[check.level])
                session.out.print(line.append(f"{check.name}: {check.text}", style="default"))
                if check.command:
                    session.print(f"      {check.command}")
    if as_json:
        session.print_json([asdict(check) for check in checks])
    if any(check.level is CheckLevel.FAIL for check in checks):
        raise typer.Exit(FAILED)


def _apply(session: Session, steps: Iterator[str], question: str, yes: bool) -> None:
    if not yes and not session.is_interactive:
        session.say("nothing was changed: there is no terminal to ask on; --yes applies it")
        return
    if not yes and not is_confirmed(question):
        session.say("nothing was changed")
        return
    for step in steps:
        session.print(step)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def _provider_errors() -> Iterator[None]:
    try:
        yield
    except CredentialsError as error:
        raise CliError(str(error), code=AUTHENTICATION) from error
    except ConfigError as error:
        raise CliError(str(error), code=USAGE) from error
    except ProviderError as error:
        raise CliError(str(error), code=NO_VERDICT) from error
