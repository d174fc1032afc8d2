"""Commands `gate waive`, `waivers`, `approve`, `review` and `reviews`: sign-offs at a gate."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.commands.options import JsonOption, text_option
from orchestrator.cli.errors import FAILED, CliError
from orchestrator.cli.gate_inputs import meant_verdict, no_verdict
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, session_of
from orchestrator.cli.view.tables import Layout, print_list, row_of
from orchestrator.client.seatrial import Seatrial
from orchestrator.domain.gate.exceptions import as_words
from orchestrator.domain.gate.payload_review import PayloadReviewResponse
from orchestrator.domain.gate.snapshot import WaiverResponse
from orchestrator.domain.units import utc

_REVIEWS = Layout(
    titles=("id", "payload", "level", "by", "expires", "state", "note"),
    first_to_go=("note",),
    whole=("id", "level", "state"),
)


def review_command(
    context: typer.Context,
    payload: Annotated[
        str, typer.Argument(metavar="DIGEST", help="sha256 of the payload, as a verdict has it.")
    ],
    level: Annotated[
        str,
        text_option("--level", "LEVEL", "reviewed or trusted; untrusted takes back what was said."),
    ],
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=1, max=365, help="Until it expires.")
    ],
    note: Annotated[str, text_option("--note", "TEXT", "What was read.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Review a payload: gates that require its level count the review from now on."""
    session = session_of(context)
    digest = payload.removeprefix("sha256:")
    answer = session.client().review_payload(digest, level, days=days, note=note)
    if as_json:
        session.print_json(answer.json)
        return
    one = answer.record
    who, until = one_line(one.by), f"{one.expires:%Y-%m-%d}"
    session.say(f"{who} holds the payload {payload[:19]} for {one.level}, until {until}.")
    session.print(one_line(one.id))


def reviews_command(
    context: typer.Context,
    payload: Annotated[str | None, text_option("--payload", "DIGEST", "Only of this one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the reviews of payloads, expired ones included."""
    session = session_of(context)
    answer = session.reader().payload_reviews(payload)
    nothing = "No payload has a review yet."
    print_list(
        session,
        answer,
        _REVIEWS,
        _review_row,
        nothing=nothing,
        as_json=as_json,
    )


def _review_row(one: PayloadReviewResponse) -> dict[str, Text]:
    until = f"{one.expires:%Y-%m-%d}"
    return row_of(_REVIEWS, one.id, one.payload[:12], one.level, one.by, until, one.state, one.note)


_WAIVERS = Layout(
    titles=("id", "gate", "rule", "excuses", "author", "approver", "expires", "state", "reason"),
    first_to_go=("reason", "author"),
    whole=("id", "expires", "state"),
)


_Gate = Annotated[str, typer.Argument(metavar="GATE", help="Its name, as the policy has it.")]


def waive_command(
    context: typer.Context,
    gate: _Gate,
    rule: Annotated[str, typer.Argument(metavar="RULE", help="As the verdict prints it.")],
    reason: Annotated[str, text_option("--reason", "TEXT", "The reason, which the verdict shows.")],
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, help="Until it expires.")],
    verdict: Annotated[
        str, text_option("--verdict", "V-0001", "The one that was read; the newest by default.")
    ] = "",
    only_this: Annotated[
        bool, typer.Option("--only-this", help="Only for that verdict's evidence.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Request a waiver of one rule for some days: it counts once another person approves it."""
    session = session_of(context)
    client = session.client()
    read = meant_verdict(session, client, gate, verdict)
    if only_this and not read:
        raise no_verdict(gate)
    answer = client.request_waiver(
        gate, rule, reason=reason, days=days, verdict=read, only_this=only_this
    )
    if as_json:
        session.print_json(answer.json)
        return
    waiver = answer.record
    name, page = one_line(waiver.id), one_line(waiver.approval_page or "")
    _say_failing(session, waiver)
    with_token = f"with a token of their own, `seatrial gate approve {gate} --waiver {name}`"
    how = f"signs in and approves it at {page}" if page else f"approves it {with_token}"
    session.say(f"It ends at {utc(waiver.expires)}, and does not count yet: somebody else {how}.")
    session.print(name)


def waivers_command(
    context: typer.Context,
    gate: Annotated[str | None, text_option("--gate", "NAME", "Only of this gate.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the waivers, expired ones included."""
    session = session_of(context)
    answer = session.reader().waivers(gate)
    print_list(session, answer, _WAIVERS, _row, nothing="No waiver.", as_json=as_json)


def approve_command(
    context: typer.Context,
    gate: _Gate,
    verdict: Annotated[
        str, text_option("--verdict", "V-0001", "Its evidence; the newest verdict's by default.")
    ] = "",
    waiver: Annotated[
        str,
        text_option("--waiver", "W-0001", "Approve this waiver instead of a verdict's evidence."),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Approve the evidence of a verdict, or a waiver, as the owner of your token."""
    session = session_of(context)
    client = session.client()
    if waiver:
        _approve_waiver(session, client, gate, waiver, as_json=as_json)
        return
    read = meant_verdict(session, client, gate, verdict)
    if not read:
        raise no_verdict(gate)
    answer = client.approve(gate, read)
    if as_json:
        session.print_json(answer.json)
    approval = answer.record
    if not as_json:
        by, evidence = one_line(approval.by), one_line(approval.evidence[:12])
        session.say(f"{by} approves the evidence {evidence} of {read}.")
    if approval.remark:
        raise CliError(f"It counts for nothing: {one_line(approval.remark)}.", code=FAILED)
    if not as_json:
        session.say(f"`seatrial gate check {gate}` decides anew.")


def _approve_waiver(
    session: Session, client: Seatrial, gate: str, waiver: str, *, as_json: bool
) -> None:
    known = client.waivers(gate).records
    if waiver not in [one.id for one in known]:
        raise CliError(
            f"{waiver} is no waiver of the gate {gate}.", f"`seatrial gate waivers --gate {gate}`"
        )
    answer = client.approve_waiver(waiver)
    if as_json:
        session.print_json(answer.json)
        return
    approved = answer.record
    _say_failing(session, approved)
    said = one_line(f"{approved.id} counts, approved by {approved.approver}")
    session.say(f"{said}; `seatrial gate check {gate}` decides.")


def _say_failing(session: Session, waiver: WaiverResponse) -> None:
    told = ", ".join(as_words(waiver.failing))
    session.say(one_line(f"{waiver.id} excuses {told}; what else fails is not excused."))


def _row(one: WaiverResponse) -> dict[str, Text]:
    state = "active" if one.approved_at else "needs approval"
    state = "expired" if one.is_expired else state
    until = f"{one.expires:%Y-%m-%dT%H:%M}"
    excuses = ", ".join(as_words(one.failing))
    who = (one.author, one.approver)
    return row_of(_WAIVERS, one.id, one.gate, one.rule, excuses, *who, until, state, one.reason)
