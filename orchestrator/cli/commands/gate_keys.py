"""gate keys: what verdicts are signed with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.text import Text

from orchestrator.cli.client import Json
from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.gate_inputs import write_file
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import session_of
from orchestrator.cli.view.tables import Layout, fitting

keys_app = typer.Typer(help="Keys that verdicts are signed with.", no_args_is_help=True)
_KEYS = Layout(
    titles=("id", "created", "not after", "retired", "state"),
    first_to_go=("created",),
    whole=("created", "not after", "retired", "state"),
)
_DAY = len("2026-01-20")


@keys_app.command("list")
def keys_list(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the public keys, those that are over too."""
    session = session_of(context)
    items = session.client().get("/keys").get("items")
    found = [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
    if as_json:
        session.print_json(found)
    elif found:
        session.out.print(fitting(session.out, _KEYS, [_row(one) for one in found]))
    else:
        session.say("No key yet: the first verdict makes one.")


@keys_app.command("rotate")
def keys_rotate(context: typer.Context, as_json: JsonOption = False) -> None:
    """Sign with a new key from now on. The old one is retired, and still proves its verdicts."""
    session = session_of(context)
    answer = session.client().post("/keys/rotate")
    if as_json:
        session.print_json(answer)
        return
    session.say("Hand out the keyring again: `seatrial gate keys export -o keyring.json`.")
    session.print(str(answer.get("id")))


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
    text = session.client().text("/keyring")
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
    """End a key now, as when its file was lost: what it signed before stays proven."""
    session = session_of(context)
    answer = session.client().post(f"/keys/{quote(key, safe='')}/retire")
    if as_json:
        session.print_json(answer)
    else:
        session.say(f"Key {one_line(key)} signs nothing any more.")


def _row(one: Json) -> dict[str, Text]:
    words = (
        str(one.get("id")),
        str(one.get("created_at") or "–")[:_DAY],
        str(one.get("not_after") or "–")[:_DAY],
        str(one.get("retired_at") or "–")[:_DAY],
        "over" if one.get("is_over") else "signs",
    )
    return {t: Text(one_line(w)) for t, w in zip(_KEYS.titles, words, strict=True)}
