"""Known issues: add one, end one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from orchestrator.application.context import Context
from orchestrator.application.gate_policies import longest_of
from orchestrator.domain.known_issue import (
    IssueMatch,
    IssueScope,
    KnownIssue,
    lacking_limits,
    split_requirement,
)
from orchestrator.domain.person import Person
from orchestrator.domain.problems import InvalidDocumentError, Path, Problem
from orchestrator.domain.versions import is_version_range


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIssue:
    """A known issue to add."""

    product: str
    title: str
    owner: str
    author: Person
    expires: date
    match: IssueMatch
    scope: IssueScope = field(default_factory=IssueScope)
    url: str = ""
    max_failures: int | None = None


def add_known_issue(context: Context, new: NewIssue) -> KnownIssue:
    """Store it, opened today. Raises InvalidDocumentError, and nothing is stored."""
    today = context.clock.now().date()
    problems = _problems(context, new, today)
    if problems:
        raise InvalidDocumentError("the known issue", problems)
    issue = KnownIssue(
        id="",
        product=new.product,
        title=new.title,
        match=new.match,
        scope=new.scope,
        owner=new.owner,
        author=new.author.name,
        author_token=new.author.token,
        url=new.url,
        opened=today,
        expires=new.expires,
        max_failures=new.max_failures,
    )
    return context.stores.known_issues.add(issue)


def _problems(context: Context, new: NewIssue, today: date) -> list[Problem]:
    found: list[tuple[Path, str]] = []
    if new.match == IssueMatch():
        found.append((("match",), "says nothing: name a signature, an exception, a frame or text"))
    lacking = lacking_limits(new.scope, new.max_failures)
    if new.match.is_anything and lacking:
        found.append((("match",), f"would tolerate anything: say {', '.join(lacking)}"))
    name = new.match.signature
    if name and context.stores.failures.get(name) is None:
        found.append((("match", "signature"), f"there is no signature {name!r}"))
    if new.expires < today:
        found.append((("expires",), f"{new.expires} is over: it would never apply"))
    longest, lasts = longest_of(context, new.product), new.expires - today
    if lasts > longest:
        message = f"{new.expires} is {lasts.days} days ahead: at most {longest.days} are allowed"
        found.append((("expires",), f"{message} (`exception_max_age` of the product's gates)"))
    if not is_version_range(new.scope.versions):
        found.append((("scope", "versions"), "must be a range such as >=0.4.6,<0.5 or ==0.4.*"))
    package, versions = split_requirement(new.scope.requires_package)
    if new.scope.requires_package and (not package or not is_version_range(versions)):
        found.append((("scope", "requires_package"), "must be a name, or as in name>=1.2"))
    return [Problem(path, message) for path, message in found]


def end_known_issue(context: Context, issue_id: str, *, by: str) -> KnownIssue | None:
    """End it now; again changes nothing. None where there is none."""
    return context.stores.known_issues.end(issue_id, at=context.clock.now(), by=by)
