"""gate review, reviews: who read a payload, and what they hold it for."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.client import Json
from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import session_of
from orchestrator.cli.view.tables import Layout, fitting

_REVIEWS = Layout(
    titles=("id", "payload", "level", "by", "expires", "state", "note"),
    first_to_go=("note",),
    whole=("id", "level", "state"),
)


def _option(flag: str, metavar: str, text: str) -> object:
    return typer.Option(flag, metavar=metavar, help=text)


def review_command(
    context: typer.Context,
    payload: Annotated[
        str, typer.Argument(metavar="DIGEST", help="sha256 of the payload, as a verdict has it.")
    ],
    level: Annotated[
        str,
        _option("--level", "LEVEL", "reviewed or trusted; untrusted takes back what was said."),
    ],
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=1, max=365, help="Until it expires.")
    ],
    note: Annotated[str, _option("--note", "TEXT", "What was read.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Say that you read a payload: gates that ask for its level count it from now on."""
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
    payload: Annotated[str | None, _option("--payload", "DIGEST", "Only of this one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List who read which payload, those that are over too."""
    session = session_of(context)
    items = session.client().get("/payload-reviews", payload=payload).get("items")
    found = [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
    if as_json:
        session.print_json(found)
        return
    if not found:
        session.say("Nobody has said that they read a payload.")
        return
    session.out.print(fitting(session.out, _REVIEWS, [_row(one) for one in found]))


def _row(one: Json) -> dict[str, Text]:
    short = {"payload": str(one.get("payload"))[:12], "expires": str(one.get("expires"))[:10]}
    words = {**one, **short}
    return {title: Text(one_line(str(words.get(title, "")))) for title in _REVIEWS.titles}
