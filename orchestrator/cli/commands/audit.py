"""audit: shows, exports and verifies the audit log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.commands.options import JsonOption, LimitOption
from orchestrator.cli.errors import FAILED, CliError, EmptyHomeError
from orchestrator.cli.safe_text import json_text, one_line
from orchestrator.cli.session import session_of
from orchestrator.cli.view.tables import Layout, fitting, row_of
from orchestrator.client.transport import Answer
from orchestrator.domain.audit import ChainedEntry
from orchestrator.domain.units import plural, utc

audit_app = typer.Typer(
    help="The audit log: who changed what, from where, and when.", no_args_is_help=True
)
_LAYOUT = Layout(
    titles=("number", "at", "actor", "from", "operation", "resource", "outcome", "reason"),
    first_to_go=("reason", "from", "number"),
    whole=("at", "outcome"),
    right=("number",),
)
SinceOption = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        metavar="TIME",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S"],
        help="Only entries at or after this time (UTC): 2026-11-01, or 2026-11-01T12:00:00Z.",
    ),
]
ActorOption = Annotated[
    str | None, typer.Option("--actor", metavar="NAME", help="Only what this token's owner did.")
]
ResourceOption = Annotated[
    str | None,
    typer.Option(
        "--resource", metavar="PATH", help="Only of `schedules`, or of `schedules/nightly`."
    ),
]


@audit_app.command("list")
def audit_list(
    context: typer.Context,
    since: SinceOption = None,
    actor: ActorOption = None,
    resource: ResourceOption = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List entries of the audit log, newest first; --json has what was before and after."""
    session = session_of(context)
    asked = {"since": _moment(since), "actor": actor, "resource": resource}
    entries: list[Answer[ChainedEntry]] = []
    try:
        entries += session.reader().audit_entries(limit=limit, **asked)
    except EmptyHomeError as empty:
        if not as_json:
            session.say(str(empty))
            return
    if as_json:
        session.print_json([one.json for one in entries])
        return
    if not entries:
        filtered = "No entry is like that; `seatrial audit list` lists all of them."
        session.say(filtered if any(asked.values()) else "No entry yet: nothing was changed.")
        return
    session.out.print(fitting(session.out, _LAYOUT, [_row(one.record) for one in entries]))


@audit_app.command("export")
def audit_export(
    context: typer.Context,
    since: SinceOption = None,
    actor: ActorOption = None,
    resource: ResourceOption = None,
) -> None:
    """Write the audit log as lines of JSON, oldest first, each with its digest."""
    session = session_of(context)
    client = session.reader()
    with client.audit_export(since=_moment(since), actor=actor, resource=resource) as chunks:
        for chunk in chunks:
            typer.echo(json_text(chunk), nl=False)


@audit_app.command("verify")
def audit_verify(
    context: typer.Context,
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="DIGEST",
            help="A digest that was printed earlier: an entry must still have it.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Verify that no entry was changed or removed, and print the digest of the last one.

    Entries that were cut off at the end are found with --head. Exit code 1 for a broken chain.
    """
    session = session_of(context)
    answer = session.reader().verify_audit(head=head)
    found = answer.record
    if as_json:
        session.print_json(answer.json)
    if found.broken_at is not None:
        raise CliError(
            f"The audit log is broken at entry {found.broken_at}: {one_line(found.reason)}.",
            f"{plural(found.entries, 'entry', 'entries')} before it are as they were written.",
            code=FAILED,
        )
    if not as_json:
        session.say(
            f"{plural(found.entries, 'entry', 'entries')}, each as it was written. The last digest:"
        )
        session.print(found.head)


def _moment(since: datetime | None) -> str | None:
    return since.replace(tzinfo=UTC).isoformat() if since else None


def _row(one: ChainedEntry) -> dict[str, Text]:
    place = " ".join(part for part in (one.address, one.agent) if part)
    status = f" ({one.status})" if one.status is not None and one.status >= 400 else ""
    return row_of(
        _LAYOUT,
        str(one.number),
        utc(one.at),
        one.actor or "unknown",
        place,
        one.operation,
        one.resource,
        f"{one.outcome}{status}",
        one.reason,
    )
