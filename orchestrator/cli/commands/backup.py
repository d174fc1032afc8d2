"""The commands `backup` and `restore`: a controller's database and blobs in one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from pydantic_core import to_jsonable_python

from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.errors import CliError, RefusedError
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, session_of
from orchestrator.cli.wiring import BackupReport, RestoreReport
from orchestrator.domain.units import plural, size, utc

Report = TypeVar("Report", bound=BackupReport)
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The backup: a .tar.gz file.")]


def backup_command(context: typer.Context, file: FileArgument, as_json: JsonOption = False) -> None:
    """Copy the controller's database and files into one new file, also while runs go on.

    The file has rows, logs, artifacts and payloads, but no private keys and no secrets of tokens or
    channels. Of the addresses of channels it has only the hosts. Restored tokens are valid, because
    the file has their digests. A secret that a job printed may be in the logs.
    """
    session = session_of(context)
    report = _here(session, session.wiring.backup, file)
    if as_json:
        session.print_json(asdict(report))
        return
    session.print(report.file)
    for line in _backed_up(report):
        session.say(line)


def _backed_up(report: BackupReport) -> Iterator[str]:
    blobs = plural(report.blobs, "blob")
    yield f"All rows of {report.database} and {blobs}, {size(report.size_bytes)}, verified."
    yield from _missing(report)


def _missing(report: BackupReport) -> Iterator[str]:
    if report.blobs_missing:
        blobs = plural(report.blobs_missing, "blob")
        yield f"Not in the backup: {blobs} that its rows name, which the controller had no more."


RevokeOption = Annotated[
    bool, typer.Option("--revoke-tokens", help="Revoke all API tokens of the backup.")
]
BrokenOption = Annotated[
    bool,
    typer.Option(
        "--accept-broken-chain",
        help="Restore an audit log that is not as it was written; the log says so.",
    ),
]


def restore_command(
    context: typer.Context,
    file: FileArgument,
    revoke_tokens: RevokeOption = False,
    accept_broken_chain: BrokenOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fill an empty home and an empty database from a backup.

    Runs that were going on are cancelled, and their machines ended, once a controller starts.
    Tokens that were revoked after the backup are valid again: it lists valid tokens and schedules.
    """
    session = session_of(context)
    act = partial(
        session.wiring.restore,
        revoke_tokens=revoke_tokens,
        accept_broken_chain=accept_broken_chain,
    )
    report = _here(session, act, file)
    if as_json:
        session.print_json(to_jsonable_python(report))
        return
    for line in _restored(report):
        session.say(line)


def _restored(report: RestoreReport) -> Iterator[str]:
    log = report.audit_log
    yield f"{report.database} is as it was at {report.at}."
    yield from _missing(report)
    if log.broken_at is not None:
        yield f"Its audit log is broken at entry {log.broken_at}: {log.reason}."
    entries = plural(log.entries, "entry", "entries")
    yield f"The audit log of the backup has {entries} up to the digest {log.head}."
    if report.tokens_revoked:
        yield f"Revoked: {plural(report.tokens_revoked, 'token')}."
    if report.tokens:
        yield "These tokens are valid, also if they were revoked since: `seatrial token revoke ID`"
    for token in report.tokens:
        until = utc(token.expires_at) if token.expires_at else "without an end"
        yield f"  {one_line(token.id)}  {one_line(token.name)}  {token.scope}  {until}"
    if report.schedules:
        yield "These schedules fire once a controller runs: `seatrial schedule pause NAME`"
    for name, due in report.schedules.items():
        yield f"  {one_line(name)}  {utc(due)}"
    yield "Start one controller now: it ends the machines of runs that were going on."
    yield "`seatrial machines --orphans` lists what was rented since then."


def _here(session: Session, act: Callable[[Path], Report], file: Path) -> Report:
    if session.settings.url is not None:
        raise CliError(
            "A backup is made and restored where the controller's home and database are:"
            " unset SEATRIAL_URL, and set SEATRIAL_HOME or SEATRIAL_DATABASE_URL there."
        )
    try:
        return act(file.absolute())
    except RefusedError as error:
        raise CliError(str(error)) from None
