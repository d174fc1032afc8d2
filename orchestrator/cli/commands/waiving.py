"""gate waive, waivers, approve: what people say to a gate."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.client import Json
from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.deciding import meant_verdict, no_verdict
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import session_of
from orchestrator.cli.view.tables import Layout, fitting

_WAIVERS = Layout(
    titles=("id", "gate", "rule", "author", "approver", "expires", "standing", "reason"),
    first_to_go=("reason", "author"),
    whole=("id", "expires", "standing"),
)


def _option(flag: str, metavar: str, text: str) -> object:
    return typer.Option(flag, metavar=metavar, help=text)


_Gate = Annotated[str, typer.Argument(metavar="GATE", help="Its name, as the policy has it.")]


def waive_command(
    context: typer.Context,
    gate: _Gate,
    rule: Annotated[str, typer.Argument(metavar="RULE", help="As the verdict prints it.")],
    reason: Annotated[str, _option("--reason", "TEXT", "For whoever reads the verdict.")],
    approver: Annotated[str, _option("--approver", "NAME", "Who agreed; not the author.")],
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=1, max=30, help="Until it expires.")
    ],
    author: Annotated[
        str, _option("--author", "NAME", "Who asks for it; with a token, its name stands.")
    ] = "",
    verdict: Annotated[
        str, _option("--verdict", "V-0001", "The one that was read; the newest by default.")
    ] = "",
    only_this: Annotated[
        bool, typer.Option("--only-this", help="Only for that verdict's evidence.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Waive one rule for some days: every verdict that it changes says so."""
    session = session_of(context)
    client = session.client()
    read = meant_verdict(session, client, gate, verdict)
    if only_this and not read:
        raise no_verdict(gate)
    body: Json = {"gate": gate, "rule": rule, "reason": reason, "author": author}
    body |= {"approver": approver, "days": days, "verdict": read, "only_this": only_this}
    answer = client.post("/waivers", body)
    if as_json:
        session.print_json(answer)
        return
    session.say(f"It stands until {answer.get('expires')}; `seatrial gate check {gate}` decides.")
    session.print(str(answer.get("id")))


def waivers_command(
    context: typer.Context,
    gate: Annotated[str | None, _option("--gate", "NAME", "Only of this gate.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the waivers, those that are over too."""
    session = session_of(context)
    items = session.client().get("/waivers", gate=gate).get("items")
    found = [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
    if as_json:
        session.print_json(found)
        return
    if not found:
        session.say("No waiver.")
        return
    session.out.print(fitting(session.out, _WAIVERS, [_row(one) for one in found]))


def approve_command(
    context: typer.Context,
    gate: _Gate,
    verdict: Annotated[
        str, _option("--verdict", "V-0001", "Its evidence; the newest verdict's by default.")
    ] = "",
    by: Annotated[str, _option("--by", "NAME", "Who says so; with a token, its name stands.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Say yes to the evidence of a verdict: the gate's next evaluation of it counts this."""
    session = session_of(context)
    client = session.client()
    read = meant_verdict(session, client, gate, verdict)
    if not read:
        raise no_verdict(gate)
    answer = client.post("/approvals", {"gate": gate, "verdict": read, "by": by})
    if as_json:
        session.print_json(answer)
        return
    evidence = str(answer.get("evidence"))[:12]
    session.say(f"{one_line(str(answer.get('by')))} approves the evidence {evidence} of {read}.")
    session.say(f"`seatrial gate check {gate}` decides anew.")


def _row(one: Json) -> dict[str, Text]:
    standing = "expired" if one.get("is_expired") else "stands"
    words = {**one, "standing": standing, "expires": str(one.get("expires"))[:16]}
    return {title: Text(one_line(str(words.get(title, "")))) for title in _WAIVERS.titles}
