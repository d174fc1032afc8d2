"""known-issue, alias: known issues of failures, and aliases of tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.text import Text

from orchestrator.cli.commands.options import JsonOption, text_option
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, session_of
from orchestrator.cli.view.tables import Layout, fitting, print_list, row_of
from orchestrator.domain.failure_signature import mask_variable_parts
from orchestrator.domain.known_issue import IssueMatch, IssueScope, KnownIssueResponse
from orchestrator.domain.node_ids import Alias

known_issue_app = typer.Typer(
    help="Known issues: owned, dated exceptions for failures. They change no count.",
    no_args_is_help=True,
)
alias_app = typer.Typer(help="Aliases: tests with other names now.", no_args_is_help=True)

NEEDS_APPROVAL = "A gate whose policy says nothing of approvals asks for somebody else's yes."
"""Note about approvals that is printed when a known issue or a quarantine is added."""
_ISSUES = Layout(
    titles=("id", "title", "matches", "owner", "expires", "state"),
    first_to_go=("owner", "matches"),
    whole=("id", "expires", "state"),
)
_ALIASES = Layout(titles=("id", "state", "change", "old", "new"), whole=("id", "state", "change"))
ProductOption = Annotated[
    str | None, typer.Option("--product", metavar="NAME", help="Only of this payload.")
]
AliasArgument = Annotated[
    int, typer.Argument(metavar="ID", min=1, help="As `seatrial alias list` shows it.")
]


_Expires = Annotated[
    datetime,
    typer.Option(
        "--expires", metavar="YYYY-MM-DD", formats=["%Y-%m-%d"], help="The last day it applies."
    ),
]
_Signature = Annotated[str, text_option("--signature", "ID", "As `seatrial show` prints it.")]
_Exception = Annotated[
    str, text_option("--exception", "CLASS", "Class of the exception; * matches any.")
]
_Frame = Annotated[str, text_option("--frame", "MODULE.FUNCTION", "* is anything.")]
_Contains = Annotated[
    str,
    text_option(
        "--contains", "TEXT", "Stands in the message as `show` has it: `assert <n> == <n>`."
    ),
]
_Platforms = Annotated[list[str] | None, text_option("--platform", "ID", "Only there. Repeatable.")]
_Jobs = Annotated[list[str] | None, text_option("--job", "ID", "Only in it. Repeatable.")]
_Tests = Annotated[
    list[str] | None,
    text_option("--test", "NODEID", "Only this test; * matches any text. Repeatable."),
]
_Versions = Annotated[str, text_option("--versions", "RANGE", "Of the subject: >=0.4.6,<0.5.")]
_Package = Annotated[str, text_option("--requires-package", "NAME", "Only where it is installed.")]
_Most = Annotated[
    int | None,
    typer.Option(
        "--max-failures",
        metavar="N",
        min=1,
        help="If more results match, the rest count as new failures.",
    ),
]


@known_issue_app.command("add")
def known_issue_add(
    context: typer.Context,
    title: Annotated[str, typer.Argument(help="What is wrong.")],
    product: Annotated[str, text_option("--product", "NAME", "The payload's name.")],
    owner: Annotated[str, text_option("--owner", "NAME", "Who fixes it.")],
    expires: _Expires,
    signature: _Signature = "",
    exception: _Exception = "",
    frame: _Frame = "",
    contains: _Contains = "",
    platform: _Platforms = None,
    job: _Jobs = None,
    test: _Tests = None,
    versions: _Versions = "",
    requires_package: _Package = "",
    max_failures: _Most = None,
    url: Annotated[str, text_option("--url", "URL", "Of the issue.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Add a known issue, which explains failures by signature or by patterns."""
    session = session_of(context)
    answer = session.client().add_known_issue(
        product,
        title,
        owner=owner,
        expires=expires.date(),
        match=IssueMatch(signature=signature, exception=exception, frame=frame, contains=contains),
        scope=IssueScope(
            platforms=tuple(platform or ()),
            jobs=tuple(job or ()),
            versions=versions,
            requires_package=requires_package,
            tests=tuple(test or ()),
        ),
        url=url,
        max_failures=max_failures,
    )
    if as_json:
        session.print_json(answer.json)
    else:
        _tell_added(session, answer.record)


def _tell_added(session: Session, added: KnownIssueResponse) -> None:
    session.say(f"It applies until {added.expires}, and changes no count.")
    session.say(NEEDS_APPROVAL)
    contains = added.match.contains
    masked = mask_variable_parts(contains)
    if masked != contains.strip():
        session.say(
            f"note: messages of failing tests have marks for numbers and paths: {contains!r} is in"
            f" none of them; write {masked!r}"
        )
    if not any(session.reader().runs(limit=1)):
        product = one_line(added.product)
        session.say(f"There is no run yet: whether a payload is named {product} is unknown.")
    session.print(one_line(added.id))


@known_issue_app.command("list")
def known_issue_list(
    context: typer.Context, product: ProductOption = None, as_json: JsonOption = False
) -> None:
    """List the known issues, expired ones included."""
    session = session_of(context)
    answer = session.reader().known_issues(product)
    nothing = "No known issue yet: `seatrial known-issue add` writes one down."
    print_list(session, answer, _ISSUES, _issue_row, nothing=nothing, as_json=as_json)


@known_issue_app.command("expire")
def known_issue_expire(
    context: typer.Context,
    issue: Annotated[str, typer.Argument(metavar="ID", help="As in KI-0001.")],
    as_json: JsonOption = False,
) -> None:
    """End a known issue now: its failures are failures without an excuse again."""
    session = session_of(context)
    answer = session.client().expire_known_issue(issue)
    if as_json:
        session.print_json(answer.json)
    else:
        session.say(f"{one_line(answer.record.id)} is over.")


@alias_app.command("suggest")
def alias_suggest(
    context: typer.Context,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A run of the older version.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="A run of the newer version.")],
    as_json: JsonOption = False,
) -> None:
    """Compare the tests of two runs; what may be one test is suggested, and nothing is merged."""
    session = session_of(context)
    answer = session.client().match_tests(old, new)
    if as_json:
        session.print_json(answer.json)
        return
    for family in answer.record.families:
        session.print(f"{one_line(family.family)}: {family.summary}")
    _print_aliases(session, answer.record.suggestions)


@alias_app.command("list")
def alias_list(
    context: typer.Context,
    product: ProductOption = None,
    state: Annotated[
        Literal["suggested", "confirmed", "rejected"] | None,
        typer.Option("--state", metavar="suggested|confirmed|rejected", help="Only these."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the aliases: suggested, confirmed and rejected."""
    session = session_of(context)
    answer = session.reader().aliases(product, state=state)
    if as_json:
        session.print_json(answer.json["items"])
        return
    _print_aliases(session, answer.records)


@alias_app.command("confirm")
def alias_confirm(context: typer.Context, alias: AliasArgument) -> None:
    """Confirm that two names are one test: its history and its counts follow."""
    _decide(session_of(context), alias, "confirm")


@alias_app.command("reject")
def alias_reject(context: typer.Context, alias: AliasArgument) -> None:
    """Reject an alias: it is not suggested again."""
    _decide(session_of(context), alias, "reject")


@alias_app.command("undo")
def alias_undo(context: typer.Context, alias: AliasArgument) -> None:
    """Withdraw a decision; the alias is a suggestion again."""
    _decide(session_of(context), alias, "undo")


def _decide(session: Session, alias: int, verb: Literal["confirm", "reject", "undo"]) -> None:
    answer = session.client().decide_alias(alias, verb)
    session.say(f"Alias {alias} is {answer.record.state}.")


def _print_aliases(session: Session, aliases: Sequence[Alias]) -> None:
    if aliases:
        session.out.print(fitting(session.out, _ALIASES, [_alias_row(one) for one in aliases]))
    else:
        session.say("No alias: `seatrial alias suggest OLD NEW` compares two runs.")


def _issue_row(issue: KnownIssueResponse) -> dict[str, Text]:
    state = "in force"
    if issue.is_over:
        state = "ended" if issue.ended_at else "expired"
    matches = " ".join(filter(None, astuple(issue.match)))
    return row_of(_ISSUES, issue.id, issue.title, matches, issue.owner, str(issue.expires), state)


def _alias_row(alias: Alias) -> dict[str, Text]:
    return row_of(_ALIASES, str(alias.id), alias.state, alias.change, alias.old, alias.new)
