"""serve, controller, token, session, db, schema: administration of a controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer
from rich.text import Text

from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.errors import FAILED, CliError, EmptyHomeError, RefusedError
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, is_confirmed, session_of
from orchestrator.cli.view.tables import Layout, fitting, print_list, row_of
from orchestrator.cli.wiring import DatabaseState
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Answer, Json
from orchestrator.domain.caller_identity import BrowserSession, Token
from orchestrator.domain.retention import PruneReport
from orchestrator.domain.units import plural, sentence, size, utc

T = TypeVar("T")
token_app = typer.Typer(help="API tokens.", no_args_is_help=True)
session_app = typer.Typer(help="Browsers that are signed in.", no_args_is_help=True)
db_app = typer.Typer(help="The controller's database.", no_args_is_help=True)
schema_app = typer.Typer(help="JSON Schemas of the files people write.", no_args_is_help=True)
_PRUNE = Layout(
    titles=("what", "rows", "bytes", "rule"), first_to_go=("rule",), right=("rows", "bytes")
)
_TOKENS = Layout(
    titles=("id", "name", "scope", "prefix", "expires", "last used", "revoked"),
    first_to_go=("prefix",),
)
_SESSIONS = Layout(
    titles=("id", "name", "display name", "scope", "from", "signed in", "last used", "expires"),
    first_to_go=("display name", "from"),
)
LocalJobsOption = Annotated[
    str | None,
    typer.Option(
        "--local-jobs-as",
        metavar="ACCOUNT",
        help="Run jobs of `provider: local` as this account; your own only on a loopback address."
        " Default: none run here.",
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option("--host", metavar="ADDRESS", help="Address to listen on. Default: this computer."),
]
PortOption = Annotated[
    int | None,
    typer.Option("--port", metavar="PORT", min=1, max=65535, help="Port to listen on."),
]
CertificateOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        help="Certificate with its chain (PEM): the port speaks HTTPS only.",
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="Its private key, if in another file."),
]


def serve_command(
    context: typer.Context,
    host: HostOption = None,
    port: PortOption = None,
    no_cells: Annotated[
        bool, typer.Option("--no-cells", help="Only answer; another controller runs the cells.")
    ] = False,
    local_jobs_as: LocalJobsOption = None,
    tls_cert: CertificateOption = None,
    tls_key: KeyOption = None,
) -> None:
    """Run the controller in the foreground: REST on a port and on the home's socket."""
    session = session_of(context)
    wiring = session.wiring
    code = _refusing(
        lambda: wiring.control(
            until_idle=False,
            host=host,
            port=port,
            cells=not no_cells,
            local_jobs_as=local_jobs_as,
            tls_cert=tls_cert,
            tls_key=tls_key,
        )
    )
    raise typer.Exit(code)


_RUNS_LOOKED_AT = 100
_STOP_S = 60.0
"""Maximum seconds that `stop` waits: an idle controller checks the clouds before it ends."""
_POLL_S = 0.2


def stop_command(context: typer.Context) -> None:
    """Stop the controller that commands start in the background.

    It is refused while a run is unfinished; a controller of `seatrial serve` is left alone.
    """
    session = session_of(context)
    wiring, home = session.wiring, session.settings.home
    if session.settings.url is not None:
        raise CliError(
            f"SEATRIAL_URL is set: `stop` ends the background controller of {home} alone; unset it"
        )
    process = wiring.holder()
    if process is None:
        session.say(f"No controller runs in {home}.")
        _tell_waiting(session)
        return
    if wiring.is_served():
        raise CliError(
            f"process {process} is `seatrial serve`: end it where it was started, with Ctrl-C"
        )
    going = _unfinished(session)
    if going:
        raise CliError(
            f"process {process} works on {', '.join(going)}",
            "Wait for the end (`seatrial watch`), or cancel it (`seatrial cancel RUN`).",
            code=FAILED,
        )
    wiring.end_when_idle(process)
    session.say(
        f"Waiting until process {process} has ended, {_STOP_S:.0f} s at most: it may ask the clouds"
        " once more for machines without an owner."
    )
    for _ in range(round(_STOP_S / _POLL_S)):
        if wiring.holder() != process:
            session.say(f"The controller of {home} (process {process}) has ended.")
            return
        wiring.clock.sleep(_POLL_S)
    raise CliError(
        f"process {process} is still at work after {_STOP_S:.0f} s: it ends as soon as it is idle",
        code=FAILED,
    )


def _unfinished(session: Session) -> list[str]:
    """Return the ids of the newest runs that are not finished."""
    newest = [one.record for one in session.reader().runs(limit=_RUNS_LOOKED_AT)]
    return [one_line(one.id) for one in newest if not one.is_finished]


def _tell_waiting(session: Session) -> None:
    """Print the runs that wait for a controller."""
    try:
        waiting = _unfinished(session)
    except EmptyHomeError:
        return
    if waiting:
        verb = "waits" if len(waiting) == 1 else "wait"
        session.say(
            f"{plural(len(waiting), 'run')} {verb} ({', '.join(waiting)}): the next command that"
            f" starts a controller goes on, such as `seatrial watch {waiting[0]}`."
        )


def controller_command(
    context: typer.Context,
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle", help="Wait until the home is free; exit when no run is unfinished."
        ),
    ] = False,
) -> None:
    """Run the controller that other commands start in the background."""
    wiring = session_of(context).wiring
    code = _refusing(
        lambda: wiring.control(
            until_idle=until_idle, host=None, port=None, cells=True, local_jobs_as=None
        )
    )
    raise typer.Exit(code)


@token_app.command("create")
def token_create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Whose it is: tokens of one name are one person's.")],
    scope: Annotated[
        Literal["read", "run", "gate", "admin"],
        typer.Option(
            "--scope",
            metavar="read|run|gate|admin",
            help="What it allows; each includes the ones before it.",
        ),
    ] = "run",
    days: Annotated[
        int,
        typer.Option(
            "--days", metavar="DAYS", min=1, max=3650, help="Until it expires; 90 by default."
        ),
    ] = 90,
    as_json: JsonOption = False,
) -> None:
    """Create a token. It is printed once, and not stored."""
    session = session_of(context)
    answer = session.client().create_token(name, scope, days=days)
    if as_json:
        session.print_json(answer.json)
        return
    token = answer.record
    ends = f"expires at {utc(token.expires_at)}" if token.expires_at else "does not expire"
    session.say(f"Token {token.id} {ends}. Keep it:")
    session.print(token.secret)


@token_app.command("list")
def token_list(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the tokens, without their secrets."""
    session = session_of(context)
    answer = session.reader().tokens()
    nothing = "No token yet: `seatrial token create NAME` makes one."
    print_list(session, answer, _TOKENS, _token_row, nothing=nothing, as_json=as_json)


def _token_row(one: Token) -> dict[str, Text]:
    times = (one.expires_at, one.last_used_at, one.revoked_at)
    said = (utc(at) if at else "–" for at in times)
    return row_of(_TOKENS, one.id, one.name, one.scope, one.prefix, *said)


@token_app.command("revoke")
def token_revoke(
    context: typer.Context, token: Annotated[str, typer.Argument(help="A token's id.")]
) -> None:
    """Revoke a token."""
    session = session_of(context)
    session.client().revoke_token(token)
    session.say(f"Token {token} is revoked.")


@session_app.command("list")
def session_list(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the browsers that are signed in."""
    session = session_of(context)
    answer = session.reader().sessions()
    print_list(
        session,
        answer,
        _SESSIONS,
        _session_row,
        nothing="No browser is signed in.",
        as_json=as_json,
    )


def _session_row(one: BrowserSession) -> dict[str, Text]:
    times = (utc(at) for at in (one.created_at, one.last_used_at, one.expires_at))
    whose = (one.id, one.name, one.display_name or "–", one.scope)
    return row_of(_SESSIONS, *whose, f"{one.address} {one.agent}".strip() or "–", *times)


@session_app.command("revoke")
def session_revoke(
    context: typer.Context,
    browser: Annotated[str, typer.Argument(metavar="SESSION", help="A session's id.")],
) -> None:
    """Revoke a browser session: the browser has to sign in again."""
    session = session_of(context)
    session.client().revoke_session(browser)
    session.say(f"Session {browser} is revoked.")


@db_app.command("upgrade")
def db_upgrade(context: typer.Context) -> None:
    """Upgrade the database to the revision of this program, or create it."""
    session = session_of(context)
    state = _refusing(lambda: session.wiring.database(upgrade=True))
    session.print(_state_line(state))


@db_app.command("check")
def db_check(context: typer.Context) -> None:
    """Show the database's revision. Exit code 1 if it needs an upgrade."""
    session = session_of(context)
    state = _refusing(lambda: session.wiring.database(upgrade=False))
    session.print(_state_line(state))
    if not state.is_current:
        session.say("`seatrial db upgrade` brings it there; so does any controller that starts.")
        raise typer.Exit(FAILED)


@db_app.command("prune")
def db_prune(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would go. The default without -y.")
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Remove it without asking.")] = False,
    days: Annotated[
        int | None,
        typer.Option(
            "--older-than",
            metavar="DAYS",
            min=1,
            max=36500,
            help="Keep nothing for longer, except for what the policy keeps for ever.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Remove what the retention policy does not keep; results, verdicts and leases always stay.

    It prints what would go (rows, bytes), and removes it where a person says so or with -y; with
    --json it does not ask. It may be interrupted, which ends it within a second, and repeated.
    """
    session = session_of(context)
    if dry_run and yes:
        raise CliError("--dry-run and --yes contradict each other: leave one out.")
    client = session.client()
    answer = client.preview_prune(days=days)
    shown = answer.record
    if not yes:
        _show_prune(session, answer, as_json=as_json)
        if dry_run or not _is_agreed(session, shown, asks=session.is_interactive and not as_json):
            return
    last, total = _pruned(session, client, days)
    if as_json:
        lines = [asdict(line) for line in total.lines]
        session.print_json(
            last | {"lines": lines, "rows": total.rows, "size_bytes": total.size_bytes}
        )
    else:
        session.say(f"Removed: {_amount(total)}.")


def _pruned(session: Session, client: Seatrial, days: int | None) -> tuple[Json, PruneReport]:
    """Prune until nothing is left; return the last answer, and the sum of all."""
    try:
        answer = client.prune(days=days)
        total = answer.record
        while not total.is_complete:
            session.say(f"so far: {_amount(total)}")
            answer = client.prune(days=days)
            total = total.then(answer.record)
    except KeyboardInterrupt:
        session.say(
            "Interrupted: the controller has stopped pruning too. Run the same command again to"
            " continue."
        )
        raise
    return answer.json, total


def _show_prune(session: Session, answer: Answer[PruneReport], *, as_json: bool) -> None:
    if as_json:
        session.print_json(answer.json)
        return
    shown = answer.record
    rows = [
        row_of(
            _PRUNE,
            one.what,
            f"{one.rows:,}",
            size(one.size_bytes) if one.size_bytes else "–",
            one.rule,
        )
        for one in shown.lines
    ]
    session.out.print(fitting(session.out, _PRUNE, rows))
    for reason, number in shown.kept.items():
        session.say(f"Kept all the same: {plural(number, 'run')}, as {one_line(reason)}.")
    for remark in shown.remarks:
        session.say(one_line(sentence(remark)))


def _is_agreed(session: Session, shown: PruneReport, *, asks: bool) -> bool:
    """Ask for consent if there is something to remove; return whether it was given."""
    if not shown.rows:
        session.say("There is nothing to remove.")
        return False
    if not asks:
        session.say("Nothing was removed: with -y, the same command does it.")
        return False
    if is_confirmed(f"Remove {_amount(shown)}?"):
        return True
    raise CliError("Nothing was removed.")


def _amount(report: PruneReport) -> str:
    return f"{report.rows:,} rows and files, {size(report.size_bytes)}"


@schema_app.command("matrix")
def schema_matrix(context: typer.Context) -> None:
    """JSON Schema of a matrix file."""
    session = session_of(context)
    session.print_json(session.wiring.documents.matrix_schema())


@schema_app.command("payload")
def schema_payload(context: typer.Context) -> None:
    """JSON Schema of `payload.toml`."""
    session = session_of(context)
    session.print_json(session.wiring.documents.manifest_schema())


@schema_app.command("policy")
def schema_policy(context: typer.Context) -> None:
    """JSON Schema of a gate's policy file."""
    session = session_of(context)
    session.print_json(session.wiring.documents.policy_schema())


def _state_line(state: DatabaseState) -> str:
    if state.revision is None:
        return f"{state.name}: there is no database yet"
    if state.is_current:
        return f"{state.name}: at revision {state.revision}, up to date"
    return f"{state.name}: at revision {state.revision}, needs {state.head}"


def _refusing(call: Callable[[], T]) -> T:
    try:
        return call()
    except RefusedError as error:
        raise CliError(str(error)) from None
