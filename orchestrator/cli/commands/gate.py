"""gate: check, explain, dry-run, history, list, verify, keys."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.application.ports.signer import NotVerifiedError
from orchestrator.cli.commands.bisect import bisect_command
from orchestrator.cli.commands.gate_signoff import (
    approve_command,
    review_command,
    reviews_command,
    waive_command,
    waivers_command,
)
from orchestrator.cli.commands.options import JsonOption, TimeoutOption
from orchestrator.cli.errors import FAILED, CliError
from orchestrator.cli.gate_inputs import (
    exit_code,
    finished_runs,
    newest_verdict,
    no_verdict,
    policy_text,
    read_file,
    sent_policy,
    write_file,
)
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, session_of
from orchestrator.cli.view.gates import print_verdict
from orchestrator.cli.view.glyphs import style_of
from orchestrator.cli.view.tables import Layout, print_list, row_of
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Answer, AnswerList, read
from orchestrator.domain.gate.verdict import (
    KeyResponse,
    ReplayResponse,
    StoredPolicy,
    Verdict,
    VerdictLine,
    VerdictResponse,
    reasons_of,
)
from orchestrator.domain.units import plural

keys_app = typer.Typer(help="Keys that verdicts are signed with.", no_args_is_help=True)
_KEYS = Layout(
    titles=("id", "created", "not after", "retired", "state"),
    first_to_go=("created",),
    whole=("created", "not after", "retired", "state"),
)


@keys_app.command("list")
def keys_list(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the public keys, retired ones included."""
    session = session_of(context)
    answer = session.reader().keys()
    nothing = "No key yet: the first verdict makes one."
    print_list(session, answer, _KEYS, _key_row, nothing=nothing, as_json=as_json)


@keys_app.command("rotate")
def keys_rotate(context: typer.Context, as_json: JsonOption = False) -> None:
    """Sign with a new key from now on. The old one is retired, and still proves its verdicts."""
    session = session_of(context)
    answer = session.client().rotate_keys()
    if as_json:
        session.print_json(answer.json)
        return
    session.say("Hand out the keyring again: `seatrial gate keys export -o keyring.json`.")
    session.print(answer.record.id)


@keys_app.command("export")
def keys_export(
    context: typer.Context,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write there instead of printing."),
    ] = None,
) -> None:
    """Write every public key with its dates: the file that `gate verify --key` takes."""
    session = session_of(context)
    text = session.reader().keyring()
    if output is None:
        typer.echo(text, nl=False)
        return
    write_file(output, text)
    session.print(str(output))


@keys_app.command("retire")
def keys_retire(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="ID", help="As `gate keys list` shows it.")],
    as_json: JsonOption = False,
) -> None:
    """Retire a key now, for instance after a loss: its earlier signatures stay valid."""
    session = session_of(context)
    answer = session.client().retire_key(key)
    if as_json:
        session.print_json(answer.json)
    else:
        session.say(f"Key {one_line(key)} signs nothing any more.")


def _key_row(key: KeyResponse) -> dict[str, Text]:
    days = (
        f"{at:%Y-%m-%d}" if at else "–" for at in (key.created_at, key.not_after, key.retired_at)
    )
    return row_of(_KEYS, key.id, *days, "over" if key.is_over else "signs")


gate_app = typer.Typer(help="Release gates: policies and signed verdicts.", no_args_is_help=True)

_HISTORY = Layout(
    titles=("id", "decision", "decided", "subject", "runs", "summary"),
    first_to_go=("runs", "summary", "subject"),
    whole=("id", "decision", "decided"),
)
_GATES = Layout(titles=("gate", "product", "policy", "since"), whole=("gate", "since"))


def _option(*flags: str, metavar: str, text: str) -> object:
    return typer.Option(*flags, metavar=metavar, help=text)


_Policy = Annotated[
    str, typer.Argument(metavar="POLICY", help="A policy file, or the name of a stored gate.")
]
_Gate = Annotated[str, typer.Argument(metavar="GATE", help="Its name, as the policy has it.")]
_Runs = Annotated[
    list[str] | None,
    _option("--run", metavar="RUN", text="Look at it; repeatable. Default: the newest finished."),
]
_Output = Annotated[
    Path | None,
    _option("-o", "--output", metavar="FILE", text="Write the signed verdict there."),
]
_Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 10 where the gate passes with exceptions.")
]
_NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait", help="Do not wait for unfinished runs: decide on the results so far."
    ),
]
_Lineage = Annotated[
    str, _option("--lineage", metavar="NAME", text="The line of verdicts, such as a branch.")
]
_Key = Annotated[
    Path,
    _option("--key", metavar="FILE", text="A keyring of `gate keys export`, or a public PEM."),
]


@gate_app.command("check")
def gate_check(
    context: typer.Context,
    policy: _Policy,
    run: _Runs = None,
    strict: _Strict = False,
    timeout: TimeoutOption = None,
    no_wait: _NoWait = False,
    output: _Output = None,
    lineage: _Lineage = "",
    as_json: JsonOption = False,
) -> None:
    """Evaluate the gate, sign and store the verdict. Exit code: 0 pass, 1 fail, 5 inconclusive."""
    session = session_of(context)
    client = session.client()
    if output is not None and not output.parent.is_dir():
        raise CliError(f"{output}: there is no folder {output.parent}")
    gate, decided_by = sent_policy(session, policy)
    if not decided_by:  # the gate's policy may change while this waits
        decided_by = {"policy_digest": client.policy(gate).record.digest}
    runs = finished_runs(session, client, run or [], minutes=timeout, waits=not no_wait)
    key = session.wiring.new_id()
    answer = client.check_gate(gate, runs, lineage=lineage, key=key, document=policy, **decided_by)
    verdict = answer.record
    if output is not None:  # first: printing raises when a pipe is closed
        write_file(output, client.statement(verdict.id))
    _show(session, answer, name=verdict.id, as_json=as_json)
    if output is not None:
        session.say(f"signed: {output}; `seatrial gate verify {output} --key KEYRING` checks it")
    raise typer.Exit(exit_code(verdict.decision, strict=strict))


@gate_app.command("dry-run")
def gate_dry_run(
    context: typer.Context,
    policy: _Policy,
    run: _Runs = None,
    now: Annotated[
        str, _option("--now", metavar="TIME", text="Measure ages and expiries at this time.")
    ] = "",
    strict: _Strict = False,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a gate without storing or signing. Exit codes as of `gate check`."""
    session = session_of(context)
    client = session.client()
    text = policy_text(policy)
    options = {"name": policy[-200:]}
    options |= {"policy": text} if text is not None else {}
    options |= {"now": _time(now)} if now else {}
    name = policy if text is None else _name(session, text, policy)
    answer = client.try_gate(name, run or (), document=policy, **options)
    _show(session, answer, as_json=as_json)
    raise typer.Exit(exit_code(answer.record.decision, strict=strict))


@gate_app.command("explain")
def gate_explain(
    context: typer.Context,
    verdict: Annotated[
        str, typer.Argument(metavar="VERDICT", help="V-0001, or a gate for its newest one.")
    ],
    replay: Annotated[
        bool, typer.Option("--replay", help="Evaluate it again: exit code 1 where bytes differ.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Explain a verdict: every rule with its sentence."""
    session = session_of(context)
    client = session.reader()
    shown = _find(client, verdict)
    found = shown.record
    if not replay:
        _show(session, shown, name=found.id, as_json=as_json, every=True)
        return
    answer = client.replay(found.id)
    again = answer.record
    if as_json:
        session.print_json(answer.json)
    else:
        session.print(_replayed(again))
    raise typer.Exit(0 if again.identical else FAILED)


@gate_app.command("history")
def gate_history(
    context: typer.Context,
    gate: _Gate,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="Show at most N.")] = 20,
    lineage: _Lineage = "",
    policies: Annotated[
        bool, typer.Option("--policies", help="The versions of its policy instead.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the gate's verdicts, newest first."""
    session = session_of(context)
    client = session.reader()
    if policies:
        _show_policies(session, client.policies(gate), as_json=as_json)
        return
    answer = client.verdicts(gate, limit=limit, lineage=lineage)
    nothing = f"No verdict yet: `seatrial gate check {gate}` makes one."
    print_list(session, answer, _HISTORY, _row, nothing=nothing, as_json=as_json)


@gate_app.command("list")
def gate_list(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the gates that have a policy."""
    session = session_of(context)
    _show_policies(session, session.reader().gates(), as_json=as_json)


@gate_app.command("verify")
def gate_verify(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A signed verdict.")],
    key: _Key,
    as_json: JsonOption = False,
) -> None:
    """Verify a signed verdict offline. Exit code 1 with the reason if it is not valid."""
    session = session_of(context)
    bundle, keys = read_file(file), read_file(key)
    try:
        found = session.wiring.verify(bundle, keys)
    except NotVerifiedError as error:
        raise CliError(f"{file}: NOT VERIFIED: {error}", code=FAILED) from None
    verdict = read(Verdict, found.verdict)
    if as_json:
        session.print_json(dict(found.verdict))
    else:
        about = f"{one_line(verdict.gate)}: {verdict.decision} for {verdict.at:%Y-%m-%dT%H:%M:%SZ}"
        session.print(f"VERIFIED {about}")
        for name, value in sorted(verdict.subject.items()):
            session.print(f"  {one_line(name)}: {one_line(value)}")
        cells = plural(len(found.statements), "cell")
        session.print(f"  {cells}, signed by key {found.key.id}")
        print_verdict(session, verdict)
    for remark in found.remarks:
        session.say(f"not checked: {remark}")


def _show(
    session: Session,
    answer: Answer[Verdict] | Answer[VerdictResponse],
    *,
    as_json: bool,
    name: str = "",
    every: bool = False,
) -> None:
    if as_json:
        session.print_json(answer.json)
    else:
        print_verdict(session, answer.record, name=name, every=every)


def _find(client: Seatrial, name: str) -> Answer[VerdictResponse]:
    """Return a verdict by its id, or the newest of a gate."""
    if name.startswith("V-"):
        return client.verdict(name)
    newest = newest_verdict(client, name)
    if newest is None:
        raise no_verdict(name)
    return client.verdict(newest.id)


def _name(session: Session, text: str, file: str) -> str:
    return session.wiring.documents.read_policy(text, file).metadata.name


def _time(text: str) -> str:
    """Parse a time; UTC without a zone. Raises CliError."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CliError(f"--now {text!r} is no time such as 2026-01-20T12:00Z") from None
    return at.isoformat() if at.tzinfo is not None else f"{at.isoformat()}Z"


def _replayed(again: ReplayResponse) -> str:
    if again.identical:
        return f"{again.id}: identical, {again.document_digest}"
    return (
        f"{again.id}: DIFFERENT: {again.document_digest} is stored, and its inputs "
        f"come to {again.replayed_digest} ({again.decision})"
    )


def _row(verdict: VerdictLine) -> dict[str, Text]:
    subject = f"{verdict.subject.get('name', '')} {verdict.subject.get('version', '')}".strip()
    runs = " ".join(run[:12] for run in verdict.runs)
    words = (
        verdict.id,
        verdict.decision,
        f"{verdict.at:%Y-%m-%dT%H:%M}",
        subject,
        runs,
        reasons_of(verdict.decision, verdict.summary),
    )
    row = {t: Text(one_line(w)) for t, w in zip(_HISTORY.titles, words, strict=True)}
    row["decision"].stylize(style_of(verdict.decision))
    return row


def _show_policies(session: Session, answer: AnswerList[StoredPolicy], *, as_json: bool) -> None:
    nothing = "No gate yet: `seatrial gate check FILE` stores its policy."
    print_list(session, answer, _GATES, _policy_row, nothing=nothing, as_json=as_json)


def _policy_row(one: StoredPolicy) -> dict[str, Text]:
    return row_of(_GATES, one.gate, one.product, one.digest[:12], f"{one.since:%Y-%m-%dT%H:%M:%SZ}")


gate_app.command("waive")(waive_command)
gate_app.command("waivers")(waivers_command)
gate_app.command("approve")(approve_command)
gate_app.command("review")(review_command)
gate_app.command("reviews")(reviews_command)
gate_app.command("bisect")(bisect_command)
gate_app.add_typer(keys_app, name="keys")
