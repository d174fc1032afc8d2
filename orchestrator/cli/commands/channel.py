"""channel: notification channels and their deliveries."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.text import Text

from orchestrator.cli.commands.options import JsonOption, text_option
from orchestrator.cli.errors import FAILED
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import session_of
from orchestrator.cli.view.tables import Layout, print_list, row_of
from orchestrator.domain.channel import ChannelResponse, DeliveryResponse, DeliveryResult
from orchestrator.domain.units import utc

channel_app = typer.Typer(
    help="Channels: notifications when a gate's state changes.", no_args_is_help=True
)
_CHANNELS = Layout(
    titles=("name", "kind", "target", "lineages", "state", "waiting", "id"),
    first_to_go=("id", "lineages"),
    whole=("name", "state"),
)
_LOG = Layout(
    titles=("created", "state", "tried", "answer", "title"),
    first_to_go=("created",),
    whole=("state", "tried"),
)
ChannelArgument = Annotated[
    str, typer.Argument(metavar="CHANNEL", help="A name or an id, as `channel list` shows them.")
]


_Kind = Annotated[
    Literal["webhook", "slack", "github"],
    text_option(
        "--kind",
        "webhook|slack|github",
        "Signed JSON; the same with Slack's body; statuses of commits.",
    ),
]
_Lineages = Annotated[
    list[str] | None,
    text_option(
        "--lineage",
        "PATTERN",
        "Only lineages of this name, such as release@nightly; * is anything. Repeatable.",
    ),
]
_Private = Annotated[
    bool,
    typer.Option(
        "--allow-private", help="The receiver is in your own network; plain http is allowed."
    ),
]
_Token = Annotated[
    str,
    text_option(
        "--token-from",
        "env:NAME|file:NAME",
        "Where the controller finds GitHub's token: its environment, or HOME/keys.",
    ),
]
_Base = Annotated[str | None, text_option("--api-base", "URL", "Of a GitHub of your own.")]


@channel_app.command("add")
def notify_add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Letters, digits, '.', '_' and '-'.")],
    target: Annotated[str, typer.Argument(help="An URL; with --kind github, OWNER/REPOSITORY.")],
    kind: _Kind = "webhook",
    lineage: _Lineages = None,
    allow_private: _Private = False,
    token_from: _Token = "",
    api_base: _Base = None,
    as_json: JsonOption = False,
) -> None:
    """Add a channel. Its signing secret is printed once."""
    session = session_of(context)
    answer = session.client().add_channel(
        name,
        target,
        kind=kind,
        lineages=lineage or (),
        allow_private=allow_private,
        token_from=token_from,
        api_base=api_base,
    )
    if as_json:
        session.print_json(answer.json)
        return
    session.say(f"Added. `seatrial channel test {name}` tries it.")
    added = answer.record
    if added.unmatched_lineages:
        session.say(
            f"Note: no lineage matches {one_line(', '.join(added.unmatched_lineages))} so far. A"
            " schedule's is named GATE@SCHEDULE, a gate's own as the gate. There are:"
            f" {one_line(', '.join(added.present_lineages)) or 'none yet'}."
        )
    if added.secret:
        session.say("Its messages are signed (Standard Webhooks) with this secret. Keep it:")
        session.print(added.secret)


@channel_app.command("list")
def notify_list(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the channels with their health."""
    session = session_of(context)
    answer = session.reader().channels()
    nothing = "No channel yet: `seatrial channel add` makes one."
    print_list(session, answer, _CHANNELS, _channel_row, nothing=nothing, as_json=as_json)


@channel_app.command("test")
def notify_test(
    context: typer.Context,
    channel: ChannelArgument,
    commit: Annotated[
        str,
        typer.Option("--commit", metavar="SHA", help="With github: set a real status there."),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Send a test message now. Exit code 1 if it is not delivered."""
    session = session_of(context)
    answer = session.client().test_channel(channel, commit=commit)
    receipt = answer.record
    if as_json:
        session.print_json(answer.json)
    else:
        session.print(one_line(f"{receipt.result}: {receipt.response_excerpt}"))
    if receipt.result is not DeliveryResult.ACCEPTED:
        raise typer.Exit(FAILED)


@channel_app.command("log")
def notify_log(
    context: typer.Context,
    channel: ChannelArgument,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=200)] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show the deliveries to a channel with its responses, newest first."""
    session = session_of(context)
    answer = session.reader().deliveries(channel, limit=limit)
    nothing = "Nothing was sent to it yet."
    print_list(session, answer, _LOG, _delivery_row, nothing=nothing, as_json=as_json)


@channel_app.command("rotate")
def notify_rotate(
    context: typer.Context,
    channel: ChannelArgument,
    overlap_hours: Annotated[
        float,
        typer.Option(
            "--overlap-hours",
            metavar="HOURS",
            min=0,
            max=720,
            help="How long messages are also signed with the old secret.",
        ),
    ] = 24,
    as_json: JsonOption = False,
) -> None:
    """Create a new signing secret. It is printed once."""
    session = session_of(context)
    answer = session.client().rotate_channel(channel, overlap_hours=overlap_hours)
    if as_json:
        session.print_json(answer.json)
        return
    renewed = answer.record
    if renewed.old_until is not None:
        session.say(f"The old secret stays valid until {utc(renewed.old_until)}.")
    session.say("Keep the new one:")
    session.print(renewed.secret)


@channel_app.command("remove")
def notify_remove(context: typer.Context, channel: ChannelArgument) -> None:
    """Delete a channel; waiting deliveries are not sent."""
    session = session_of(context)
    session.client().remove_channel(channel)
    session.say(f"Channel {one_line(channel)} is forgotten.")


def _channel_row(one: ChannelResponse) -> dict[str, Text]:
    state = f"{one.state}: {one.disabled_reason}" if one.disabled_reason else one.state
    lineages = " ".join(one.lineages) or "all"
    return row_of(
        _CHANNELS, one.name, one.kind, one.target, lineages, state, str(one.waiting), one.id
    )


def _delivery_row(one: DeliveryResponse) -> dict[str, Text]:
    answer = one.attempts[-1].receipt.response_excerpt if one.attempts else "–"
    return row_of(
        _LOG,
        f"{one.created_at:%Y-%m-%dT%H:%M:%SZ}",
        one.state,
        str(len(one.attempts)),
        answer,
        one.title,
    )
