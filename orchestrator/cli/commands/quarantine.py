"""quarantine: quarantines of flaky tests."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.commands.known_issue import NEEDS_APPROVAL, ProductOption
from orchestrator.cli.commands.options import JsonOption, text_option
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import session_of
from orchestrator.cli.view.tables import Layout, print_list, row_of
from orchestrator.domain.quarantine import QuarantineResponse, SuggestedQuarantine
from orchestrator.domain.units import percent

quarantine_app = typer.Typer(
    help="Flaky tests in quarantine: owned, dated, ending by themselves. They change no count.",
    no_args_is_help=True,
)

_LISTED = Layout(
    titles=("id", "test", "platforms", "owner", "until", "state"),
    first_to_go=("owner", "platforms"),
    whole=("id", "until", "state"),
)
_SUGGESTED = Layout(
    titles=("test", "job", "failed on", "suite's retries", "likely", "quarantine"),
    first_to_go=("failed on", "job"),
    whole=("suite's retries", "likely", "quarantine"),
)


@quarantine_app.command("add")
def quarantine_add(
    context: typer.Context,
    test: Annotated[str, typer.Argument(metavar="TEST", help="As `seatrial show` names it.")],
    product: Annotated[str, text_option("--product", "NAME", "The payload's name.")],
    reason: Annotated[str, text_option("--reason", "TEXT", "Why it is flaky, as far as is known.")],
    owner: Annotated[str, text_option("--owner", "NAME", "Who fixes it.")],
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, help="Until it expires.")],
    platform: Annotated[
        list[str] | None, text_option("--platform", "ID", "Only there. Repeatable.")
    ] = None,
    returns_after: Annotated[
        int,
        typer.Option(
            "--returns-after",
            metavar="N",
            min=1,
            max=1000,
            help="Passes in a row, on each platform, that end it by themselves.",
        ),
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """Put a flaky test in quarantine. Its failures stay failures in every count and report."""
    session = session_of(context)
    answer = session.client().add_quarantine(
        product,
        test,
        reason=reason,
        owner=owner,
        days=days,
        platforms=platform or (),
        returns_after=returns_after,
    )
    if as_json:
        session.print_json(answer.json)
        return
    added = answer.record
    until = f"{added.expires:%Y-%m-%d}"
    session.say(f"It lasts until {until}, or until {returns_after} passes in a row.")
    session.say(NEEDS_APPROVAL)
    session.print(one_line(added.id))


@quarantine_app.command("list")
def quarantine_list(
    context: typer.Context, product: ProductOption = None, as_json: JsonOption = False
) -> None:
    """List the quarantines, expired ones included."""
    session = session_of(context)
    answer = session.reader().quarantines(product)
    nothing = "No test is in quarantine: `seatrial quarantine add` puts one there."
    print_list(session, answer, _LISTED, _row, nothing=nothing, as_json=as_json)


@quarantine_app.command("end")
def quarantine_end(
    context: typer.Context,
    quarantine: Annotated[str, typer.Argument(metavar="ID", help="As in Q-0001.")],
    as_json: JsonOption = False,
) -> None:
    """End a quarantine now: the test's failures count for every gate again."""
    session = session_of(context)
    answer = session.client().end_quarantine(quarantine)
    if as_json:
        session.print_json(answer.json)
    else:
        session.say(f"{one_line(answer.record.id)} is over.")


@quarantine_app.command("suggest")
def quarantine_suggest(
    context: typer.Context,
    product: Annotated[str, text_option("--product", "NAME", "The payload's name.")],
    as_json: JsonOption = False,
) -> None:
    """Tests that are flaky by their history. Nothing is put in quarantine by this."""
    session = session_of(context)
    answer = session.reader().suggested_quarantines(product)
    nothing = (
        "No test of it both failed and passed lately with nothing changed. What `--rerun-failed`"
        " ran again is not counted."
    )
    print_list(
        session,
        answer,
        _SUGGESTED,
        _candidate_row,
        nothing=nothing,
        as_json=as_json,
    )


def _row(one: QuarantineResponse) -> dict[str, Text]:
    state: str = one.state
    if one.ended_at is not None:
        state = f"ended {one.ended_at:%Y-%m-%d}: {one.ended_by}".removesuffix(": ")
    where = ", ".join(one.platforms) or "all"
    return row_of(_LISTED, one.id, one.nodeid, where, one.owner, f"{one.expires:%Y-%m-%d}", state)


def _candidate_row(one: SuggestedQuarantine) -> dict[str, Text]:
    retried, likely = str(one.evidence.passed_on_retry), percent(one.evidence.min_failure_rate)
    where = ", ".join(one.platforms)
    return row_of(_SUGGESTED, one.nodeid, one.job, where, retried, likely, one.quarantine)
