"""The page of known issues: whether they match failures, their expiry, and their owner."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from orchestrator.application.known_issues import (
    IssueReview,
    IssueStatus,
    ListedIssue,
    add_known_issue,
    end_known_issue,
    list_issues,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.forms import Form, form_of
from orchestrator.dashboard.responses import (
    Format,
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    of_product,
    product_of,
    products,
)
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import (
    Act,
    Badge,
    CellList,
    Column,
    Moment,
    Number,
    Row,
    Table,
    TableCell,
    Text,
)
from orchestrator.domain.caller_identity import Person, Scope
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.known_issue import IssueMatch, IssueScope, KnownIssue
from orchestrator.domain.units import plural

RUNS = 20
"""Number of newest runs in which failures are matched with issues."""
SHOWN = 200
LINKED = 3
"""Maximum linked signatures of an issue."""
_FIELDS = (
    *("product", "title", "owner", "url", "expires", "max_failures"),
    *("signature", "exception", "frame", "contains"),
    *("platforms", "jobs", "versions", "requires_package"),
)
_COLUMNS = (
    Column("title", "Known issue"),
    Column("status", "State"),
    Column("owner", "Owner"),
    Column("about", "About"),
    Column("scope", "Where"),
    Column("seen", "Seen", is_number=True),
    Column("most", "Most in a run", is_number=True),
    Column("expected", "Expected", is_number=True),
    Column("last_seen", "Last seen"),
    Column("expires", "Expires"),
    Column("signatures", "Failures"),
)
_END = Column("end", "End", is_title_hidden=True)
_LOUD = {
    IssueStatus.EXCEEDED: "bad",
    IssueStatus.STILL_FAILING: "warn",
    IssueStatus.STALE: "warn",
    IssueStatus.UNMATCHED: "warn",
}

router = APIRouter()


@router.get(urls.KNOWN_ISSUES)
def show_known_issues(request: PageRequestDep) -> Response:
    """Show every known issue of a product."""
    return _page(request, _empty_form(request))


@router.post(urls.KNOWN_ISSUES)
def add_issue(
    request: PageRequestDep,
    viewer: Annotated[Viewer, needs(Scope.GATE)],
    form: Annotated[Form, Depends(form_of(_FIELDS))],
) -> Response:
    """Add a known issue; a refused form is shown again with its values."""
    new = _read(form, viewer.person, request.now.date())
    if not form.is_refused:
        try:
            added = add_known_issue(request.context, new)
        except InvalidDocumentError as error:
            form.refuse(error)
        else:
            there = urls.with_query(urls.KNOWN_ISSUES, product=added.product)
            return request.go(f"{there}#{added.id}")
    return _page(request, form)


@router.post(urls.KNOWN_ISSUES + "/{issue}/end")
def end_issue(
    request: PageRequestDep, viewer: Annotated[Viewer, needs(Scope.GATE)], issue: str
) -> Response:
    """End a known issue now; idempotent."""
    ended = end_known_issue(request.context, issue, by=viewer.name)
    if ended is None:
        raise PageMissingError(f"there is no known issue {issue!r}; /known-issues lists them")
    return request.go(f"{urls.with_query(urls.KNOWN_ISSUES, product=ended.product)}#{ended.id}")


def _empty_form(request: PageRequest) -> Form:
    """Return the form, filled from the URL's query."""
    given = {name: request.query.get(name, "") for name in _FIELDS}
    until = (request.now + timedelta(days=30)).date().isoformat()
    return Form({**given, "expires": given["expires"] or until})


def _read(form: Form, author: Person, opened: date) -> KnownIssue:
    most = form.number("max_failures", least=1, most=10**9) if form.value("max_failures") else None
    return KnownIssue(
        product=form.filled("product"),
        title=form.filled("title"),
        owner=form.filled("owner"),
        id="",
        opened=opened,
        author=author.name,
        author_token=author.token,
        expires=form.day("expires"),
        url=form.url("url"),
        max_failures=most,
        match=IssueMatch(
            signature=form.word("signature"),
            exception=form.word("exception"),
            frame=form.word("frame"),
            contains=form.word("contains"),
        ),
        scope=IssueScope(
            platforms=form.names("platforms"),
            jobs=form.names("jobs"),
            versions=form.word("versions"),
            requires_package=form.word("requires_package"),
        ),
    )


def _page(request: PageRequest, form: Form) -> Response:
    known = products(request)
    product = product_of(request, form, known)
    review = list_issues(request.context, product, runs=RUNS)
    form.values = {**form.values, "product": form.value("product") or product}
    table = _table(request, product, review)
    return request.answer(
        Page(
            template="known_issues.html.j2",
            title="Known issues",
            tables=(table,),
            facts={
                "product": product,
                "products": known,
                "form": form,
                "is_open": form.is_refused or bool(form.value("signature")),
                "loud": [one for one in review.issues if one.status in _LOUD],
                "near": [one for one in review.issues if one.is_near],
                "looked": plural(review.runs, "run"),
                "hidden": max(len(review.issues) - SHOWN, 0),
            },
            data={"product": product, "runs": review.runs},
            section=urls.KNOWN_ISSUES,
        ),
        status=422 if form.is_refused else 200,
    )


def _table(request: PageRequest, product: str, review: IssueReview) -> Table:
    ends = request.wanted is Format.HTML and request.viewer.may(Scope.GATE)
    shown = review.issues[:SHOWN]
    return Table(
        id="issues",
        caption="Known issues, those that need a person first",
        columns=(*_COLUMNS, _END) if ends else _COLUMNS,
        rows=[_row(request, one, ends=ends) for one in shown],
        empty=(
            f"No known issue{of_product(product)} yet: a failure's page makes one from what it"
            " knows."
        ),
        command="seatrial known-issue add --help",
        total=len(review.issues),
        is_caption_hidden=True,
    )


def _row(request: PageRequest, one: ListedIssue, *, ends: bool) -> Row:
    issue = one.issue
    is_web = issue.url.startswith(("https://", "http://"))
    cells: list[TableCell] = [
        Text(issue.title, issue.url if is_web else "", note=issue.id),
        Badge(one.status, note=_ended(one)),
        Text(issue.owner),
        Text(_about(issue.match)),
        Text(_where(issue.scope)),
        Number(one.seen),
        Number(one.most, is_loud=one.status is IssueStatus.EXCEEDED),
        Number(issue.max_failures),
        Moment(one.last_seen, request.now),
        Text(issue.expires.isoformat(), note=_left(one)),
        CellList(
            [Text(name, urls.signature_url(name), is_code=True) for name in one.signatures[:3]]
        ),
    ]
    if ends:
        act = Act("End", urls.end_issue_url(issue.id), request.viewer.csrf(), issue.id)
        cells.append(act if issue.ended_at is None else Text(""))
    return Row(cells, id=issue.id, tone="warn" if one.is_near else _LOUD.get(one.status, ""))


def _failures(one: ListedIssue) -> CellList:
    """Return the signatures that the issue matches, and the one that it names."""
    named = [one.issue.match.signature] if one.issue.match.signature else []
    names = list(dict.fromkeys([*named, *one.signatures]))
    links: list[TableCell] = [
        Text(name, urls.signature_url(name), is_code=True) for name in names[:LINKED]
    ]
    if len(names) > LINKED:
        links.append(Text(f"and {len(names) - LINKED} more"))
    return CellList(links)


def _ended(one: ListedIssue) -> str:
    if one.issue.ended_at is not None:
        return f"by {one.issue.ended_by or 'somebody'}, {one.issue.ended_at:%Y-%m-%d}"
    if one.status is IssueStatus.STILL_FAILING:
        return f"{plural(one.seen, 'failure')} {'fits' if one.seen == 1 else 'fit'} it still"
    if one.status is IssueStatus.STALE:
        return "nothing fails so any more"
    if one.status is IssueStatus.UNTRIED:
        return "no test that failed so before ran in its job"
    if one.status is IssueStatus.UNMATCHED:
        return "no failure has matched it so far"
    return ""


def _left(one: ListedIssue) -> str:
    if one.issue.ended_at is not None:
        return ""
    if one.days_left < 0:
        return f"{plural(-one.days_left, 'day')} ago"
    if one.days_left == 0:
        return "today is its last day"
    words = f"{plural(one.days_left, 'day')} left"
    return f"only {words}" if one.is_near else words


def _about(match: IssueMatch) -> str:
    if match == IssueMatch(signature=match.signature):
        return "one signature"
    told: Mapping[str, str] = {
        "signature": match.signature,
        "exception": match.exception,
        "at": match.frame,
        "says": match.contains,
    }
    return ", ".join(f"{name} {value}" for name, value in told.items() if value)


def _where(scope: IssueScope) -> str:
    told = (
        ", ".join(scope.platforms),
        f"jobs {', '.join(scope.jobs)}" if scope.jobs else "",
        f"tests {', '.join(scope.tests)}" if scope.tests else "",
        f"versions {scope.versions}" if scope.versions else "",
        f"with {scope.requires_package}" if scope.requires_package else "",
    )
    return "; ".join(filter(None, told)) or "everywhere"
