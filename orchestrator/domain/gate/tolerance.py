"""Toleration of failing results by quarantines, known issues and the allowance for flaky tests.

Failing results are assigned one after the other, blocking ones first; an allowance that is used up
tolerates no more. So an additional allowance never makes a result intolerable, and an advisory
result never uses an allowance of a blocking one. Tolerated results stay failed in every count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from orchestrator.domain.failure_signature import Failure, Signature
from orchestrator.domain.failures import FailureClass
from orchestrator.domain.gate.exception_terms import ExemptionTerms
from orchestrator.domain.gate.policy import GatePolicy, PolicyIssue
from orchestrator.domain.gate.snapshot import CellEvidence, FailedTest, JobEvidence, Snapshot
from orchestrator.domain.known_issue import IssueMatch, KnownIssue, fits, names_tests
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.quarantine import QuarantineState, is_about, state_of

FLAKY = "flaky"
"""Id of the allowance for flaky tests, and of the rule on them."""
GIVEN_UP = "removed_tests"
"""Id of the allowance by the policy's `removed_tests`."""
_ANY = IssueMatch(exception="*")


@dataclass(frozen=True, slots=True)
class FailingResult:
    """A failing result, or several that cannot be distinguished."""

    cell: CellEvidence
    job: JobEvidence
    blocking: bool
    name: str = ""
    """Name of the test or check; empty if the result has none."""
    words: str = ""
    """Description of a result that has no signature."""
    count: int = 1
    test: FailedTest | None = None
    is_end: bool = False
    """Whether the result is the end of the job itself."""

    @property
    def has_no_signature(self) -> bool:
        """Whether the result has no signature, because it is no test's or the test has none."""
        return self.test is None or not self.test.signature

    @property
    def is_over(self) -> bool:
        """Whether the test failed only in another run, or before the suite ran it again."""
        return self.test is not None and bool(self.test.run)

    @property
    def is_of_wrong_subject(self) -> bool:
        """Whether a file could not be collected in a job that ran with another subject.

        Such a result proves nothing about the subject, so that the job is inconclusive. It
        counts if it occurred in another run.
        """
        is_wrong = (self.job.outcome, self.job.reason) == (Outcome.ERRORED, "wrong_subject")
        is_file = self.test is not None and "::" not in self.test.nodeid
        return is_wrong and is_file and not self.is_over

    @property
    def key(self) -> tuple[str, str, bool, str]:
        """The identity of the result, by which results are sorted."""
        return self.cell.id, self.job.id, self.test is None, self.name

    @property
    def is_flaky(self) -> bool:
        """Whether the test passed in an unchanged rerun."""
        known = self.test
        return known is not None and (
            "passed" in known.reruns or bool(known.run and not known.payload)
        )

    def failure(self, at: datetime) -> Failure:
        """Return the failure in the form that known issues match."""
        told = self.test
        signature = Signature(
            told.signature if told else "",
            FailureClass.UNKNOWN,
            told.exception if told else "",
            told.frame if told else "",
            told.message if told else self.words,
        )
        version = self.cell.subject.get("version", "")
        cell = self.cell
        return Failure(
            signature, self.name, self.job.id, cell.run, cell.id, cell.platform, version, at
        )


@dataclass(frozen=True, slots=True)
class ToleratedResult:
    """A failing result with what tolerates it."""

    failing: FailingResult
    by: Mapping[str, int] = field(default_factory=dict)
    """Number of tolerated results by the id of a known issue, quarantine or allowance."""
    exhausted: tuple[str, ...] = ()
    """Ids of matching allowances that are used up."""

    @property
    def run(self) -> str:
        """Id of the other run in which the test failed; empty if it fails in this run."""
        return self.failing.test.run if self.failing.test else ""

    @property
    def left(self) -> int:
        """Number of results that are not tolerated."""
        return self.failing.count - sum(self.by.values())


@dataclass(frozen=True, slots=True)
class Tolerance:
    """All failing results with what tolerates them."""

    results: tuple[ToleratedResult, ...]
    """The results, blocking ones first."""
    issues: tuple[KnownIssue, ...]
    """The known issues of the policy and the product, sorted by id."""
    by_job: Mapping[tuple[str, str], Sequence[ToleratedResult]]
    """Results of these runs by cell and job."""
    over_by_job: Mapping[tuple[str, str], Sequence[ToleratedResult]]
    """Failures in other runs, and failures that passed when the suite reran them, likewise."""

    @property
    def used(self) -> Mapping[str, int]:
        """Number of tolerated results by the id of what tolerates them."""
        total: Counter[str] = Counter()
        for result in self.results:
            total.update(result.by)
        return total


@dataclass(slots=True)
class _Allowance:
    """An allowance with the number of results that it can still tolerate."""

    id: str
    left: int | None
    """Number of results that it can still tolerate; None is unlimited."""


def failing_results(
    cell: CellEvidence, job: JobEvidence, *, blocking: bool
) -> Iterator[FailingResult]:
    """Yield all failures of a job: tests, checks, and its own end.

    A crash of a job is a failing result beside its failing tests; excuses of the tests do not
    tolerate the crash.
    """
    about = FailingResult(cell, job, blocking)
    for test in job.failed:
        yield replace(about, name=test.nodeid, test=test)
    unnamed = job.counts.failed + job.counts.error - len(job.failed)
    if unnamed > 0:
        yield replace(about, count=unnamed)
    for check in job.failed_checks:
        yield replace(about, name=check, words=f"{check}: {job.reason}")
    ending = job.ending
    if ending is not None and ending.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
        words = f"{ending.reason}: {ending.detail}"
        yield replace(about, name=f"({ending.outcome.value})", words=words, is_end=True)
    elif job.outcome is Outcome.TIMED_OUT or (job.outcome is Outcome.FAILED and not _parts(job)):
        yield replace(about, name=f"({job.outcome.value})", words=job.reason)


def failures_over(
    cell: CellEvidence, job: JobEvidence, *, blocking: bool
) -> Iterator[FailingResult]:
    """Yield the failures of the job in other runs that do not occur here."""
    for test in job.failed_before:
        is_end = not test.signature and test.nodeid.startswith("(")
        yield FailingResult(
            cell, job, blocking, name=test.nodeid, words=test.message, test=test, is_end=is_end
        )


def tolerate(
    failing: Iterable[FailingResult],
    policy: GatePolicy,
    snapshot: Snapshot,
    now: datetime,
    terms: ExemptionTerms,
) -> Tolerance:
    """Return the failing results, each with what tolerates it."""
    order = sorted(failing, key=lambda one: (not one.blocking, one.key))
    issues = known_issues(policy, snapshot)
    finder = _ToleranceFinder(policy, snapshot, issues, now, terms)
    results = tuple(_allow(one, finder.open_to(one)) for one in order)
    by_job: dict[tuple[str, str], list[ToleratedResult]] = {}
    over: dict[tuple[str, str], list[ToleratedResult]] = {}
    for result in results:
        about = result.failing
        place = over if about.is_over else by_job
        place.setdefault((about.cell.id, about.job.id), []).append(result)
    return Tolerance(results, issues, by_job, over)


def known_issues(policy: GatePolicy, snapshot: Snapshot) -> tuple[KnownIssue, ...]:
    """Return the policy's and the stored known issues; with equal ids, the policy's is returned."""
    stored = {issue.id: issue for issue in snapshot.known_issues}
    written = {one.id: _known_issue(one, policy) for one in policy.spec.known_issues}
    return tuple(issue for _, issue in sorted({**stored, **written}.items()))


def _known_issue(one: PolicyIssue, policy: GatePolicy) -> KnownIssue:
    return KnownIssue(
        id=one.id,
        product=policy.metadata.product,
        title=one.title,
        match=one.match,
        scope=one.scope,
        owner=one.owner,
        url=one.issue,
        opened=one.opened,
        expires=one.expires,
        max_failures=one.max_failures,
    )


def _parts(job: JobEvidence) -> int:
    """Return the number of failures that explain the failure of a job."""
    return job.counts.bad + len(job.failed) + len(job.failed_checks)


def _allow(one: FailingResult, open_to: Iterable[_Allowance]) -> ToleratedResult:
    by: dict[str, int] = {}
    exhausted: list[str] = []
    wanted = one.count
    for allowance in open_to:
        given = wanted if allowance.left is None else min(wanted, allowance.left)
        if given:
            by[allowance.id] = given
        if allowance.left is not None:
            allowance.left -= given
        wanted -= given
        if not wanted:
            break
        exhausted.append(allowance.id)
    return ToleratedResult(one, by, tuple(exhausted))


class _ToleranceFinder:
    """Finds the allowances for a failing result.

    The order is: removed tests, quarantines, known issues without a limit, then with a limit,
    and the allowance for flaky tests.
    """

    def __init__(
        self,
        policy: GatePolicy,
        snapshot: Snapshot,
        issues: Sequence[KnownIssue],
        now: datetime,
        terms: ExemptionTerms,
    ) -> None:
        self._flaky = policy.spec.flaky
        self._now = now
        self._today = now.date()
        young = [one for one in issues if not terms.age_fault(policy, one.opened, self._today)]
        self._issues = sorted(young, key=lambda issue: (issue.max_failures is not None, issue.id))
        self._allowances = {i.id: _Allowance(i.id, i.max_failures) for i in self._issues}
        self._quarantines = {
            one.id: one
            for one in snapshot.quarantines
            if not terms.age_fault(policy, one.opened.date(), self._today)
        }
        self._manifest = policy.spec.evidence.manifest
        self._flakes = _Allowance(FLAKY, self._flaky.max)
        written = policy.spec.known_issues
        self._by_scope = {one.id for one in written if one.without_signature == "allowed"}
        self._by_test = names_tests(self._issues)
        self._known: dict[tuple[object, ...], tuple[KnownIssue, ...]] = {}

    def open_to(self, one: FailingResult) -> Iterator[_Allowance]:
        """Yield the allowances for a failing result in the order in which they are used."""
        if one.test is not None and one.test.payload and self._manifest.gives_up(one.name):
            yield _Allowance(GIVEN_UP, None)
        if self._is_quarantined(one) and one.test is not None:
            yield _Allowance(one.test.quarantine, None)
        for issue in self._fitting(one):
            yield self._allowances[issue.id]
        if one.is_flaky and self._flaky.rerun_success == "flaky":
            yield self._flakes

    def _is_quarantined(self, one: FailingResult) -> bool:
        named = one.test.quarantine if one.test else ""
        found = self._quarantines.get(named)
        if found is None or self._flaky.quarantine == "ignored":
            return False
        is_here = is_about(found, found.nodeid, one.cell.platform)
        return is_here and state_of(found, self._now) is QuarantineState.ACTIVE

    def _fitting(self, one: FailingResult) -> tuple[KnownIssue, ...]:
        about = one.failure(self._now)
        named = one.name if one.has_no_signature or self._by_test else None
        kind = (one.cell.id, one.job.id, about.signature, named, one.is_end)
        if kind not in self._known:
            self._known[kind] = tuple(i for i in self._issues if self._fits(i, one, about))
        return self._known[kind]

    def _fits(self, issue: KnownIssue, one: FailingResult, about: Failure) -> bool:
        if one.has_no_signature and not one.is_end and issue.id in self._by_scope:
            issue = replace(issue, match=_ANY)
        elif one.has_no_signature and not one.words:
            return False
        return fits(issue, about, one.cell.packages, on=self._today)
