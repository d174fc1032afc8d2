"""Known issues: dated exceptions for failures, each with an owner. They change no count."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from fnmatch import fnmatchcase

from orchestrator.domain.copied_fields import extended
from orchestrator.domain.failure_signature import Failure, Signature
from orchestrator.domain.field_limits import STRICT, Filled, Word
from orchestrator.domain.gate.verdict import LATER
from orchestrator.domain.grouping import grouped
from orchestrator.domain.versions import canonical_name, version_fits


@dataclass(frozen=True, slots=True)
class IssueScope:
    """The results that a known issue may apply to; an empty field does not restrict them."""

    __pydantic_config__ = STRICT

    platforms: tuple[Filled, ...] = ()
    """Platform ids, or patterns with ``*``."""
    jobs: tuple[Filled, ...] = ()
    """Job ids, or patterns with ``*``."""
    versions: Word = ""
    """Version specifiers of the subject, such as ``>=0.4.6,<0.5`` or ``==0.4.*``."""
    requires_package: Word = ""
    """Package that must be installed, such as ``transformer-engine`` or ``pkg>=2``."""
    tests: tuple[Filled, ...] = field(default=(), metadata=LATER)
    """Node ids of tests, or patterns in which ``*`` matches any text; brackets match literally."""

    def has_test(self, nodeid: str) -> bool:
        """Whether the scope includes the test; a result that is no test's has no node id."""
        forms = (pattern.replace("[", "[[]") for pattern in self.tests)
        return not self.tests or (bool(nodeid) and any(fnmatchcase(nodeid, f) for f in forms))


_PLACEHOLDER = re.compile(r"<[a-z]+>")
"""Placeholder of a number, an address or a path in a masked message."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_USUAL = "AssertionError"
"""The exception of most failing tests."""
_TEST_FRAMES = (
    *("test_qz.test_qz", "test_qz.TestQz.test_qz", "tests.test_qz.test_qz", "package.qz"),
    *("test_qz.py::test_qz", "tests/test_qz.py::test_qz", "tests/qz/test_qz.py::TestQz::test_qz"),
)
"""Typical frames of tests; a pattern that matches one of them is too wide."""
_SET = re.compile(r"\[[^]]*\]")
_IN_MOST_FRAMES = re.compile(r"conftest|tests?|[^a-z0-9]")
_SHORTEST = 3
"""Minimum number of literal letters of a pattern; a shorter one matches most frames."""


def _is_wide_exception(pattern: str) -> bool:
    return not pattern.strip("*? ") or fnmatchcase(_USUAL, pattern)


def _is_wide_frame(pattern: str) -> bool:
    """Whether a pattern with wildcards matches frames of nearly every test."""
    if not set(pattern) & set("*?["):
        return False
    named = _IN_MOST_FRAMES.sub("", _SET.sub("", pattern.casefold()))
    return len(named) < _SHORTEST or any(fnmatchcase(name, pattern) for name in _TEST_FRAMES)


@dataclass(frozen=True, slots=True)
class IssueMatch:
    """What failures a known issue matches: a signature, or all of the given patterns."""

    __pydantic_config__ = STRICT

    signature: Word = ""
    """Signature id."""
    exception: Word = ""
    """Pattern of the exception class; ``*`` matches any characters."""
    frame: Word = ""
    """Pattern of the frame: ``package.module.function``, or a node id without parameters."""
    contains: Word = ""
    """Text in the exception's name and the masked message; case is ignored."""

    @property
    def is_anything(self) -> bool:
        """Whether it matches all failures, or those of most exceptions and frames."""
        words = _WORD.findall(_PLACEHOLDER.sub(" ", self.contains.casefold()))
        if self.signature.strip("* ") or any(word not in _USUAL.casefold() for word in words):
            return False
        is_wide = (not self.exception or _is_wide_exception(self.exception)) and (
            not self.frame or _is_wide_frame(self.frame)
        )
        return is_wide and any((self.signature, self.exception, self.frame, self.contains))


def lacking_limits(scope: IssueScope, max_failures: int | None) -> list[str]:
    """Return the missing limits of a known issue that matches any failure."""
    needed = {
        "max_failures": max_failures is not None,
        "scope.platforms": bool(scope.platforms),
        "scope.jobs": bool(scope.jobs),
    }
    return [key for key, is_given in needed.items() if not is_given]


_NOTHING = IssueMatch()
NO_SIGNATURE = "{!r} is no signature: one is as s1-0123456789ab, whole and without wildcards"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownIssue:
    """A known issue."""

    id: str
    """Id, such as ``KI-0001``."""
    product: str
    """Name of the payload; failures of other products do not match."""
    title: str
    match: IssueMatch
    scope: IssueScope = field(default_factory=IssueScope)
    owner: str
    url: str = ""
    """URL of the issue in a tracker."""
    opened: date
    expires: date
    """The last day on which it applies."""
    max_failures: int | None = None
    """Maximum number of results per run; more results are new failures. None is no limit."""
    ended_at: datetime | None = None
    """Time at which a person ended it; None if it is not ended."""
    ended_by: str = ""
    author: str = field(default="", metadata=LATER)
    """The person who added it: name of their token at that time. Empty for issues of a policy."""
    author_token: str = field(default="", metadata=LATER)
    """Id of that person's token; `SOCKET` for an operating-system user."""

    def is_expired(self, on: date) -> bool:
        """Whether it is expired or ended on this day."""
        return self.ended_at is not None or on > self.expires


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownIssueResponse(KnownIssue):
    """A known issue with its state on a day."""

    is_over: bool
    """Whether it is expired or ended."""


def issue_answer(issue: KnownIssue, on: date) -> KnownIssueResponse:
    """Return the known issue with its state on a day."""
    return extended(KnownIssueResponse, issue, is_over=issue.is_expired(on))


class IssueState(StrEnum):
    """State of a known issue in a run."""

    APPLIES = "applies"
    EXCEEDED = "exceeded"
    """More failures match than `max_failures` allows."""
    STALE = "stale"
    """No failure matches, although a test that failed so before ran: it may be fixed."""
    UNTRIED = "untried"
    """No failure matches, and none of the tests that failed so before ran."""
    UNMATCHED = "unmatched"
    """No failure has ever matched, in this run or before."""
    EXPIRED = "expired"
    """The last day is over; `count` is the number of results that would match."""
    ENDED = "ended"
    """A person ended it; `count` is the number of results that would match."""
    OUT_OF_SCOPE = "out_of_scope"
    """No job in its scope ran."""


@dataclass(frozen=True, slots=True, order=True)
class FailingResult:
    """A failing result of a run."""

    cell: str
    job: str
    nodeid: str


@dataclass(frozen=True, slots=True)
class IssueUse:
    """The state of a known issue in a run."""

    issue: KnownIssue
    state: IssueState
    count: int = 0
    """Number of matching results in the run."""
    expired_days: int = 0
    """Number of days since it expired; 0 if it is not expired."""
    results: tuple[FailingResult, ...] = ()
    """The matching results, sorted."""


@dataclass(frozen=True, slots=True)
class CellScope:
    """The jobs and packages of one cell, which scopes are compared with."""

    cell: str
    platform: str
    version: str
    jobs: tuple[str, ...]
    """Jobs with at least one test that ran."""
    packages: Mapping[str, str]
    test: str | None = None
    """Node id of the only test that is meant; None for all tests of the jobs."""


def fits(issue: KnownIssue, failure: Failure, packages: Mapping[str, str], *, on: date) -> bool:
    """Whether the known issue applies to a failing result, by match, scope and expiry."""
    return not issue.is_expired(on) and _is_meant(issue, failure, packages, {})


def uses(
    issues: Iterable[KnownIssue],
    failures: Sequence[Failure],
    ran: Sequence[CellScope],
    *,
    on: date,
    successors_of: Mapping[str, Collection[str]] | None = None,
) -> tuple[IssueUse, ...]:
    """Return the state of each known issue in a run, except for those out of scope.

    Args:
        issues: The known issues, in any order.
        failures: Every failing result of the run.
        ran: The jobs that ran, by cell.
        on: The day for which expiry is decided.
        successors_of: By id of an old signature, the signatures that its failures have now.
    """
    packages = {cell.cell: cell.packages for cell in ran}
    asked = sorted(issues, key=lambda issue: issue.id)
    by_test = names_tests(asked)
    kinds = grouped((kind_of(failure, by_test=by_test), failure) for failure in failures)
    told = []
    for issue in asked:
        meant = [
            FailingResult(one.cell, one.job, one.nodeid)
            for some in kinds.values()
            if _is_meant(issue, some[0], packages.get(some[0].cell, {}), successors_of or {})
            for one in some
        ]
        state = _state(issue, len(meant), any(in_scope(issue, cell) for cell in ran), on)
        if state is not IssueState.OUT_OF_SCOPE:
            late = max((on - issue.expires).days, 0)
            told.append(IssueUse(issue, state, len(meant), late, tuple(sorted(meant))))
    return tuple(told)


def states_by_result(used: Iterable[IssueUse]) -> Mapping[FailingResult, Mapping[str, str]]:
    """Return the ids of matching known issues with their states, by failing result."""
    found: dict[FailingResult, dict[str, str]] = {}
    for use in used:
        for result in use.results:
            found.setdefault(result, {})[use.issue.id] = use.state.value
    return found


def with_tests(used: Iterable[IssueUse], tests_ran: Mapping[str, bool]) -> tuple[IssueUse, ...]:
    """Return the states, corrected by whether tests of issues without a match ran.

    Args:
        used: The known issues of a run.
        tests_ran: By issue id, whether a test that failed so before ran; without issues that no
            failure has ever matched.
    """
    return tuple(
        replace(use, state=without_match(tests_ran.get(use.issue.id)))
        if use.state is IssueState.STALE
        else use
        for use in used
    )


def without_match(has_run: bool | None) -> IssueState:
    """Return the state of a known issue without a match.

    `has_run` is whether a test that failed so before ran; None if there is no such test.
    """
    if has_run is None:
        return IssueState.UNMATCHED
    return IssueState.STALE if has_run else IssueState.UNTRIED


def names_tests(issues: Iterable[KnownIssue]) -> bool:
    """Whether the scope of one of the issues is restricted to some tests."""
    return any(issue.scope.tests for issue in issues)


def kind_of(failure: Failure, *, by_test: bool) -> tuple[str, str, str, str, str]:
    """Return a key of failures: the same known issues apply to failures with equal keys.

    All failures must be of one run.

    Args:
        failure: A failing result.
        by_test: Whether one of the issues names tests (`names_tests`).
    """
    test = failure.nodeid if by_test else ""
    return failure.signature.id, failure.job, failure.cell, failure.version, test


def applying(
    uses_: Iterable[IssueUse],
    failure: Failure,
    packages: Mapping[str, str],
    successors_of: Mapping[str, Collection[str]] | None = None,
) -> tuple[str, ...]:
    """Return the ids of the known issues that apply to a failing result."""
    at_work = (use.issue for use in uses_ if use.state in (IssueState.APPLIES, IssueState.EXCEEDED))
    return tuple(i.id for i in at_work if _is_meant(i, failure, packages, successors_of or {}))


def _state(issue: KnownIssue, count: int, ran: bool, on: date) -> IssueState:
    if not ran and not count:
        return IssueState.OUT_OF_SCOPE
    if issue.is_expired(on):
        return IssueState.EXPIRED if issue.ended_at is None else IssueState.ENDED
    if not count:
        return IssueState.STALE
    too_many = issue.max_failures is not None and count > issue.max_failures
    return IssueState.EXCEEDED if too_many else IssueState.APPLIES


def _is_meant(
    issue: KnownIssue,
    failure: Failure,
    packages: Mapping[str, str],
    successors_of: Mapping[str, Collection[str]],
) -> bool:
    if not is_match(issue.match, failure.signature, successors_of):
        return False
    job, test = (failure.job,), failure.nodeid
    where = CellScope(failure.cell, failure.platform, failure.version, job, packages, test)
    return in_scope(issue, where)


def is_match(
    match: IssueMatch,
    signature: Signature,
    successors_of: Mapping[str, Collection[str]] | None = None,
) -> bool:
    """Whether a signature matches; an empty `IssueMatch` matches none."""
    wanted = match.signature
    # This is compared first, because most failures differ from most issues in the signature alone.
    if (
        wanted
        and signature.id != wanted
        and signature.id not in (successors_of or {}).get(wanted, ())
    ):
        return False
    if match == _NOTHING:
        return False
    said = f"{signature.exception}: {signature.message}" if match.contains else ""
    return (
        _like(match.exception, signature.exception)
        and _like(match.frame, signature.frame)
        and match.contains.lower() in said.lower()
    )


def in_scope(issue: KnownIssue, where: CellScope) -> bool:
    """Whether the scope includes the subject, platform, job and test."""
    scope = issue.scope
    return (
        _any_like(scope.platforms, (where.platform,))
        and _any_like(scope.jobs, where.jobs)
        and (where.test is None or scope.has_test(where.test))
        and version_fits(scope.versions, where.version)
        and _has_package(scope.requires_package, where.packages)
    )


def _like(pattern: str, text: str) -> bool:
    return not pattern or fnmatchcase(text, pattern)


def _any_like(patterns: Sequence[str], texts: Sequence[str]) -> bool:
    return not patterns or any(_like(p, text) for p in patterns for text in texts)


def _has_package(requested: str, packages: Mapping[str, str]) -> bool:
    if not requested:
        return True
    name, spec = split_requirement(requested)
    found = {canonical_name(known): version for known, version in packages.items()}
    return canonical_name(name) in found and version_fits(spec, found[canonical_name(name)])


def split_requirement(requested: str) -> tuple[str, str]:
    """Split a requirement such as ``name>=1.2`` into (name, version specifiers)."""
    name = re.split(r"[<>=!~\s]", requested.strip(), maxsplit=1)[0]
    return name, requested.strip()[len(name) :].strip()
