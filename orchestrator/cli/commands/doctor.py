"""doctor: checks this computer, the home, the database and the controller."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.commands.bootstrap import check_account
from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.connect import SOCKET
from orchestrator.cli.errors import RefusedError
from orchestrator.cli.session import Session, session_of
from orchestrator.client.connection import is_healthy
from orchestrator.client.errors import SeatrialError
from orchestrator.domain.cloud_account import AccountCheck, CheckLevel
from orchestrator.domain.units import size

_DISK_WARN_BYTES = 5 * 10**9

_DISK_FAIL_BYTES = 5 * 10**8

_PYTHON = (3, 11)


def check_up(session: Session) -> Iterator[AccountCheck]:
    """Yield the results of all checks; nothing is changed."""
    yield _python()
    yield _program("git", "payloads in a git work tree cannot be packed without it")
    yield _program("ssh", "only for looking around on machines by hand; Seatrial has its own")
    if session.settings.url is not None:
        yield _remote(session)
        return
    yield from _home(session.settings.home)
    yield _controller(session)
    yield _database(session)


def _python() -> AccountCheck:
    said = (
        f"{platform.python_version()} at {sys.executable}, Seatrial's own: jobs on this computer"
        " use it only where a payload names no interpreter and no other one fits"
    )
    if sys.version_info < _PYTHON:
        return AccountCheck(CheckLevel.FAIL, "python", f"{said}: 3.11 or later is needed")
    return AccountCheck(CheckLevel.OK, "python", said)


def _program(name: str, without: str) -> AccountCheck:
    path = shutil.which(name)
    return (
        AccountCheck(CheckLevel.OK, name, _version_line(path))
        if path
        else AccountCheck(CheckLevel.WARN, name, f"not found: {without}")
    )


def _version_line(path: str) -> str:
    """Return a program's version output, or its path."""
    for option in ("--version", "-V"):
        try:
            done = subprocess.run([path, option], capture_output=True, timeout=5, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        lines = (done.stdout or done.stderr).decode(errors="replace").splitlines()
        if done.returncode == 0 and lines:
            return lines[0]
    return path


def _home(home: Path) -> Iterator[AccountCheck]:
    folder = next(path for path in (home, *home.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            what = str(home) if folder == home else f"{home} (will be made)"
            yield AccountCheck(CheckLevel.OK, "home", what)
    except OSError as error:
        text = f"{home} cannot be written: {error.strerror or error}; set SEATRIAL_HOME"
        yield AccountCheck(CheckLevel.FAIL, "home", text)
        return
    yield from _open_to_others(home)
    free = shutil.disk_usage(folder).free
    if free < _DISK_FAIL_BYTES:
        yield AccountCheck(
            CheckLevel.FAIL, "disk", f"{size(free)} free: too little to keep evidence; make room"
        )
    elif free < _DISK_WARN_BYTES:
        yield AccountCheck(
            CheckLevel.WARN, "disk", f"{size(free)} free: an environment with torch needs more"
        )
    else:
        yield AccountCheck(CheckLevel.OK, "disk", f"{size(free)} free")


def _open_to_others(home: Path) -> Iterator[AccountCheck]:
    """Yield a finding if other users can enter the home, which holds tokens, keys and evidence."""
    found = home.stat() if home.exists() else None
    if found is None or not found.st_mode & 0o077:
        return
    said = f"{home} can be entered by others (mode {stat.S_IMODE(found.st_mode):o})"
    if found.st_uid != os.geteuid() or found.st_mode & stat.S_ISVTX:
        text = f"{said} and is not yours: set SEATRIAL_HOME to a folder of your own"
        yield AccountCheck(CheckLevel.FAIL, "home", text)
    else:
        yield AccountCheck(
            CheckLevel.WARN, "home", f"{said}; a controller that starts closes it (chmod 700)"
        )


def _controller(session: Session) -> AccountCheck:
    def look() -> AccountCheck:
        holder = session.wiring.holder()
        home = session.settings.home
        if holder is None:
            return AccountCheck(
                CheckLevel.OK, "controller", "none runs; one is started when it is needed"
            )
        if not (home / SOCKET).exists() or not _healthy(session):
            text = f"process {holder} holds the home and does not answer: end it if it stays so"
            return AccountCheck(CheckLevel.WARN, "controller", text)
        return AccountCheck(
            CheckLevel.OK, "controller", f"process {holder} holds the home and answers"
        )

    return _guarded("controller", look)


def _database(session: Session) -> AccountCheck:
    def look() -> AccountCheck:
        state = session.wiring.database(upgrade=False)
        if state.revision is None:
            return AccountCheck(CheckLevel.OK, "database", f"{state.name}: made when it is needed")
        if state.is_current:
            return AccountCheck(
                CheckLevel.OK, "database", f"{state.name}: revision {state.revision}"
            )
        text = f"{state.name}: revision {state.revision}, needs {state.head}"
        return AccountCheck(CheckLevel.WARN, "database", f"{text}; run `seatrial db upgrade`")

    return _guarded("database", look)


def _remote(session: Session) -> AccountCheck:
    def look() -> AccountCheck:
        list(session.client().runs(limit=1))
        return AccountCheck(
            CheckLevel.OK, "controller", f"{session.settings.url} answers, and takes the token"
        )

    return _guarded("controller", look)


def _guarded(name: str, look: Callable[[], AccountCheck]) -> AccountCheck:
    """Run a check; an error becomes its finding."""
    try:
        return look()
    except (SeatrialError, RefusedError) as error:
        return AccountCheck(CheckLevel.FAIL, name, " ".join(str(error).split("\n")))


def _healthy(session: Session) -> bool:
    try:
        with session.line().open() as http:
            return is_healthy(http, timeout_s=3.0)
    except Exception:  # noqa: BLE001 - any answer but a good one means the same here
        return False


_STYLES = {CheckLevel.OK: "green", CheckLevel.WARN: "yellow", CheckLevel.FAIL: "bold red"}


def doctor_command(
    context: typer.Context,
    cloud: Annotated[
        str | None,
        typer.Argument(metavar="[CLOUD]", help="aws or gcp: check the account there instead."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check this computer, the home and the controller, or a cloud account; print corrections."""
    session = session_of(context)
    if cloud is not None:
        check_account(session, cloud, as_json=as_json)
        return
    findings = []
    for finding in check_up(session):
        findings.append(finding)
        if not as_json:
            line = Text(f"{finding.level:<5} ", style=_STYLES[finding.level])
            session.out.print(line.append(f"{finding.name:<11} {finding.text}", style="default"))
    if as_json:
        session.print_json([asdict(finding) for finding in findings])
