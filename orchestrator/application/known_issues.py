"""Known issues: add, end, and list with matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum

from orchestrator.application.context import Context
from orchestrator.application.gate_policies import longest_of
from orchestrator.application.triage_failures import (
    FailuresToTriage,
    meant,
    most_in_a_run,
    successors_of_issues,
    tests_ran,
)
from orchestrator.domain.document_problems import InvalidDocumentError, Path, Problem, nearest
from orchestrator.domain.failure_signature import is_signature_id
from orchestrator.domain.known_issue import (
    NO_SIGNATURE,
    CellScope,
    IssueMatch,
    KnownIssue,
    in_scope,
    lacking_limits,
    split_requirement,
    without_match,
)
from orchestrator.domain.manifest import IDENTIFIER
from orchestrator.domain.versions import is_version_range
from orchestrator.store.failure_groups import CellFailureGroup, RunWindow, WindowCell
from orchestrator.store.stores import Stores

SOON_DAYS = 7
"""Owners are warned this many days before an issue expires."""


class IssueStatus(StrEnum):
    """State of a known issue over the newest runs, most urgent first."""

    EXCEEDED = "exceeded"
    """More failures of one run match than the issue allows.

    Runs that count are the newest run with a match, and those of a day after the issue was opened.
    """
    STILL_FAILING = "expired_failing"
    """The issue has expired, and failures still match."""
    STALE = "stale"
    """A test that failed so before ran, and no failure matched: the cause may be fixed."""
    UNMATCHED = "unmatched"
    """Tests in its scope ran, and no failure has ever matched."""
    APPLIES = "applies"
    """Failures match."""
    UNTRIED = "untried"
    """None of its tests ran, or no test in its scope."""
    EXPIRED = "expired"
    """The issue has expired, and no failure matched."""
    ENDED = "ended"
    """A person ended the issue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedIssue:
    """A known issue with its matches in the newest runs."""

    issue: KnownIssue
    status: IssueStatus
    days_left: int
    """Days until its last day; negative afterwards."""
    seen: int
    """Matching results."""
    most: int
    """Most matching results in one run."""
    last_run: str
    last_seen: datetime | None
    signatures: tuple[str, ...]
    """Signatures of these results, most frequent first."""

    @property
    def is_near(self) -> bool:
        """Whether the issue is in force and expires soon."""
        lives = self.issue.ended_at is None
        return lives and 0 <= self.days_left <= SOON_DAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueReview:
    """Known issues of a product, most urgent first."""

    issues: Sequence[ListedIssue]
    """Most urgent first."""
    runs: int
    """Number of runs."""


def list_issues(context: Context, product: str, *, runs: int) -> IssueReview:
    """Return a product's known issues with their matches in its newest runs."""
    stores, today = context.stores, context.clock.now().date()
    issues = stores.known_issues.list(product=product)
    looked = stores.failure_groups.cells(product, runs=runs)
    window = stores.failure_groups.window(looked.cells if issues else ())
    names = {group.signature for group in window.groups}
    found = FailuresToTriage(
        groups=window.groups,
        cells=looked.cells,
        signatures=stores.failure_groups.named(names),
        tests=window.tests,
    )
    groups = meant(stores, issues, found)
    ran = _ran(stores, issues, looked)
    doubted = [issue for issue in issues if not groups[issue.id]]
    tried = tests_ran(stores, product, doubted, ran, successors_of_issues(stores, doubted))
    shown = [_shown(issue, groups[issue.id], looked.cells, ran, tried, today) for issue in issues]
    order = list(IssueStatus)
    shown.sort(key=lambda one: (order.index(one.status), one.days_left, one.issue.id))
    return IssueReview(issues=shown, runs=looked.runs)


def _ran(
    stores: Stores, issues: Sequence[KnownIssue], looked: RunWindow
) -> Mapping[int, CellScope]:
    """Return subject, platform and jobs by cell, with packages where an issue needs them."""
    jobs = stores.failure_groups.suites(looked.cells) if issues else {}
    asks = any(issue.scope.requires_package for issue in issues)
    packages = stores.failure_groups.packages(jobs) if asks else {}
    return {
        pk: CellScope(cell.name, cell.platform, cell.version, tuple(jobs[pk]), packages.get(pk, {}))
        for pk, cell in looked.cells.items()
        if pk in jobs
    }


def _shown(
    issue: KnownIssue,
    groups: Sequence[CellFailureGroup],
    cells: Mapping[int, WindowCell],
    ran: Mapping[int, CellScope],
    tried: Mapping[str, bool],
    today: date,
) -> ListedIssue:
    in_a_run = most_in_a_run(groups, cells)
    newest = max((cells[group.cell] for group in groups), key=_when, default=None)
    by_signature: dict[str, int] = {}
    for group in groups:
        by_signature[group.signature] = by_signature.get(group.signature, 0) + group.count
    most = max(in_a_run.values(), default=0)
    present = [group for group in groups if _is_present(cells[group.cell], issue, newest)]
    return ListedIssue(
        issue=issue,
        status=_status(issue, most_in_a_run(present, cells), ran, tried, today),
        days_left=(issue.expires - today).days,
        seen=sum(by_signature.values()),
        most=most,
        last_run=newest.run_id if newest else "",
        last_seen=newest.at if newest else None,
        signatures=tuple(sorted(by_signature, key=lambda name: (-by_signature[name], name))),
    )


def _is_present(cell: WindowCell, issue: KnownIssue, newest: WindowCell | None) -> bool:
    """Whether the run is of a day after the issue was opened, or the newest with a match."""
    is_newest = newest is not None and cell.run_id == newest.run_id
    return is_newest or cell.at.date() > issue.opened


def _when(cell: WindowCell) -> tuple[datetime, int]:
    return cell.at, cell.pk


def _status(
    issue: KnownIssue,
    in_a_run: Mapping[str, int],
    ran: Mapping[int, CellScope],
    tried: Mapping[str, bool],
    today: date,
) -> IssueStatus:
    most = max(in_a_run.values(), default=0)
    if issue.ended_at is not None:
        return IssueStatus.ENDED
    if today > issue.expires:
        return IssueStatus.STILL_FAILING if most else IssueStatus.EXPIRED
    if not most:
        has_run = any(in_scope(issue, one) for one in ran.values())
        return IssueStatus(without_match(tried.get(issue.id))) if has_run else IssueStatus.UNTRIED
    is_exceeded = issue.max_failures is not None and most > issue.max_failures
    return IssueStatus.EXCEEDED if is_exceeded else IssueStatus.APPLIES


def add_known_issue(context: Context, new: KnownIssue) -> KnownIssue:
    """Store a known issue under a new id, opened today. Raises InvalidDocumentError."""
    today = context.clock.now().date()
    problems = _problems(context, new, today)
    if problems:
        raise InvalidDocumentError("the known issue", problems)
    return context.stores.known_issues.add(replace(new, opened=today))


def _problems(context: Context, new: KnownIssue, today: date) -> list[Problem]:
    found = [*_product_problems(context, new.product), *_match_problems(context, new)]
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


def _match_problems(context: Context, new: KnownIssue) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    if new.match == IssueMatch():
        found.append((("match",), "says nothing: name a signature, an exception, a frame or text"))
    lacking = lacking_limits(new.scope, new.max_failures)
    if new.match.is_anything and lacking:
        found.append((("match",), f"would tolerate anything: say {', '.join(lacking)}"))
    name = new.match.signature
    if name and not is_signature_id(name):
        found.append((("match", "signature"), NO_SIGNATURE.format(name)))
    elif name and context.stores.failures.get(name) is None:
        found.append((("match", "signature"), f"there is no signature {name!r}"))
    return found


def _product_problems(context: Context, product: str) -> list[tuple[Path, str]]:
    products = context.stores.releases.products()
    if product in products or (not products and IDENTIFIER.fullmatch(product)):
        return []
    why = "no run is of this product" if products else "no payload can have this name"
    return [(("product",), f"{product!r}: {why}{nearest(product, products)}")]


def end_known_issue(context: Context, issue_id: str, *, by: str) -> KnownIssue | None:
    """End a known issue now; idempotent. Return None for an unknown one."""
    return context.stores.known_issues.end(issue_id, at=context.clock.now(), by=by)
