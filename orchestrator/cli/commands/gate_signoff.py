"""gate waive, waivers, approve, review: sign-offs at a gate."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer
from rich.text import Text

from orchestrator.cli.commands.options import JsonOption, text_option
from orchestrator.cli.errors import FAILED, CliError
from orchestrator.cli.gate_inputs import meant_verdict, no_verdict
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, session_of
from orchestrator.cli.view.tables import Layout, print_list, row_of
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Json
from orchestrator.domain.gate.exceptions import as_words
from orchestrator.domain.gate.payload_review import PayloadReviewResponse
from orchestrator.domain.gate.snapshot import WaiverResponse

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
    body: Json = {"payload": payload.removeprefix("sha256:"), "level": level, "days": days}
    answer = session.client().post("/payload-reviews", {**body, "note": note})
    if as_json:
        session.print_json(answer)
        return
    who, until = one_line(str(answer.get("by"))), str(answer.get("expires"))[:10]
    session.say(f"{who} holds the payload {payload[:19]} for {answer.get('level')}, until {until}.")
    session.print(str(answer.get("id")))


def reviews_command(
    context: typer.Context,
    payload: Annotated[str | None, text_option("--payload", "DIGEST", "Only of this one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the reviews of payloads, expired ones included."""
    session = session_of(context)
    answer = session.reader().payload_reviews(payload)
    nothing = "Nobody has said that they read a payload."
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
    reason: Annotated[str, text_option("--reason", "TEXT", "For whoever reads the verdict.")],
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
    body: Json = {"gate": gate, "rule": rule, "reason": reason}
    body |= {"days": days, "verdict": read, "only_this": only_this}
    answer = client.post("/waivers", body)
    if as_json:
        session.print_json(answer)
        return
    name = str(answer.get("id"))
    _say_failing(session, answer)
    page = one_line(str(answer.get("approval_page") or ""))
    with_token = f"with a token of their own, `seatrial gate approve {gate} --waiver {name}`"
    how = f"signs in and approves it at {page}" if page else f"approves it {with_token}"
    session.say(f"It ends at {answer.get('expires')}, and does not count yet: somebody else {how}.")
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
    answer = client.post("/approvals", {"gate": gate, "verdict": read})
    remark = one_line(str(answer.get("remark") or ""))
    if as_json:
        session.print_json(answer)
    else:
        evidence = str(answer.get("evidence"))[:12]
        by = one_line(str(answer.get("by")))
        session.say(f"{by} approves the evidence {evidence} of {read}.")
    if remark:
        raise CliError(f"It counts for nothing: {remark}.", code=FAILED)
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
    answer = client.post(f"/waivers/{quote(waiver, safe='')}/approve")
    if as_json:
        session.print_json(answer)
        return
    name, by = one_line(str(answer.get("id"))), one_line(str(answer.get("approver")))
    _say_failing(session, answer)
    session.say(f"{name} counts, approved by {by}; `seatrial gate check {gate}` decides.")


def _say_failing(session: Session, waiver: Json) -> None:
    known = waiver.get("failing")
    told = ", ".join(as_words(known)) if isinstance(known, dict) else ""
    session.say(one_line(f"{waiver.get('id')} excuses {told}; what else fails is not excused."))


def _row(one: WaiverResponse) -> dict[str, Text]:
    state = "active" if one.approved_at else "needs approval"
    state = "expired" if one.is_expired else state
    until = f"{one.expires:%Y-%m-%dT%H:%M}"
    excuses = ", ".join(as_words(one.failing))
    who = (one.author, one.approver)
    return row_of(_WAIVERS, one.id, one.gate, one.rule, excuses, *who, until, state, one.reason)
