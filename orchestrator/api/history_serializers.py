"""From what is known of many runs to what is answered: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from orchestrator.api.history_responses import (
    AgainResponse,
    AliasResponse,
    ClusterListResponse,
    ClusterResponse,
    DiagnosedResponse,
    FamilyResponse,
    FlakyResponse,
    HistoryResponse,
    IssueMatchResponse,
    IssueScopeResponse,
    IssueUseResponse,
    KnownIssueResponse,
    KnownTestResponse,
    MatchingResponse,
    QuarantinedResponse,
    ResultResponse,
    SignatureResponse,
)
from orchestrator.application.explain_failures import FailureReview
from orchestrator.application.match_tests import FamilyChanges, Matching
from orchestrator.application.ports.history import TestGo
from orchestrator.application.test_history import TestHistory
from orchestrator.domain.alias import Alias, KnownTest
from orchestrator.domain.diagnosis import Diagnosed
from orchestrator.domain.flaky import FlakyEvidence
from orchestrator.domain.identity import resolve
from orchestrator.domain.known_issue import IssueUse, KnownIssue
from orchestrator.domain.quarantine import Quarantined
from orchestrator.domain.signature import Cluster, Signature


def tell_cluster(cluster: Cluster) -> ClusterResponse:
    """Failures of one signature."""
    return ClusterResponse(
        signature=_signature(cluster.signature),
        count=cluster.count,
        tests=list(cluster.tests),
        jobs=list(cluster.jobs),
        cells=list(cluster.cells),
        platforms=list(cluster.platforms),
        versions=list(cluster.versions),
        runs=cluster.runs,
        first_seen=cluster.first_seen,
        last_seen=cluster.last_seen,
        known_issues=list(cluster.known_issues),
        tolerated=cluster.tolerated,
        similar=list(cluster.similar),
    )


def _signature(one: Signature) -> SignatureResponse:
    return SignatureResponse(
        id=one.id, kind=one.kind, exception=one.exception, frame=one.frame, message=one.message
    )


def tell_quarantined(one: Quarantined) -> QuarantinedResponse:
    """A failing result in quarantine."""
    return QuarantinedResponse(
        id=one.quarantine.id,
        nodeid=one.nodeid,
        cell=one.cell,
        job=one.job,
        reason=one.quarantine.reason,
        owner=one.quarantine.owner,
        expires=one.quarantine.expires,
        state=one.state,
    )


def tell_diagnosed(one: Diagnosed) -> DiagnosedResponse:
    """Who broke a failing test."""
    return DiagnosedResponse(
        cell=one.cell,
        job=one.job,
        nodeid=one.nodeid,
        answer=one.answer,
        sentence=one.sentence,
        evidence=list(one.evidence),
        tried=one.tried,
        again=[
            AgainResponse(
                kind=each.kind,
                changed=each.changed,
                whole=each.whole,
                outcomes=list(each.outcomes),
            )
            for each in one.again
        ],
    )


def tell_review(review: FailureReview) -> ClusterListResponse:
    """Failures by signature."""
    items = [tell_cluster(cluster) for cluster in review.clusters]
    return ClusterListResponse(items=items, runs=review.runs, is_cut=review.is_cut)


def tell_use(use: IssueUse) -> IssueUseResponse:
    """A known issue in a run."""
    return IssueUseResponse(
        id=use.issue.id,
        title=use.issue.title,
        owner=use.issue.owner,
        url=use.issue.url,
        expires=use.issue.expires,
        state=use.state,
        count=use.count,
        max_failures=use.issue.max_failures,
        expired_days=use.expired_days,
    )


def tell_known_test(test: KnownTest, aliases: Mapping[int, int]) -> KnownTestResponse:
    """A test, whatever ran it."""
    newest = resolve(test.id, aliases)
    return KnownTestResponse(
        id=test.id,
        product=test.product,
        job=test.job,
        nodeid=test.nodeid,
        now=newest if newest != test.id else None,
    )


def tell_history(history: TestHistory) -> HistoryResponse:
    """A test, and how it went."""
    older = {one.id: history.test.id for one in history.names}
    return HistoryResponse(
        test=tell_known_test(history.test, {}),
        older_names=[tell_known_test(one, older) for one in history.names],
        items=[_result(one) for one in history.goes],
        flaky=tell_flaky(history.flaky),
    )


def _result(one: TestGo) -> ResultResponse:
    return ResultResponse(
        run=one.go.run,
        cell=one.cell,
        platform=one.go.platform,
        version=one.go.version,
        at=one.at,
        test=one.test_id,
        outcome=one.go.outcome.word,
        earlier=[outcome.word for outcome in one.go.earlier],
        duration_s=one.duration_s,
        reason=one.reason,
        message=one.message,
        signature=one.signature,
    )


def tell_flaky(found: FlakyEvidence) -> FlakyResponse:
    """How reliable a test is."""
    rate = found.flip_rate
    return FlakyResponse(
        passed_on_retry=found.passed_on_retry,
        split=found.split,
        flips=found.flips,
        flip_rate=None if rate is None else float(rate),
        failures=found.failures,
        judged=found.judged,
        likely=found.likely,
    )


def tell_alias(alias: Alias) -> AliasResponse:
    """Two names."""
    return AliasResponse(
        id=alias.id,
        product=alias.product,
        job=alias.job,
        old_test=alias.old_test,
        old=alias.old,
        new_test=alias.new_test,
        new=alias.new,
        change=alias.change,
        likeness=alias.likeness,
        state=alias.state,
        suggested_at=alias.suggested_at,
        decided_at=alias.decided_at,
        decided_by=alias.decided_by,
    )


def tell_matching(matching: Matching) -> MatchingResponse:
    """What became of the tests of a run."""
    return MatchingResponse(
        old_run=matching.old_run,
        new_run=matching.new_run,
        families=[_family(one) for one in matching.families],
        suggestions=[tell_alias(alias) for alias in matching.suggestions],
    )


def _family(one: FamilyChanges) -> FamilyResponse:
    return FamilyResponse(
        family=one.family,
        summary=str(one.changes),
        same=len(one.changes.same),
        new=list(one.changes.new),
        gone=list(one.changes.gone),
        ambiguous=list(one.changes.ambiguous),
    )


def tell_known_issue(issue: KnownIssue, *, on: date) -> KnownIssueResponse:
    """A known issue, as it stands on a day."""
    match, scope = issue.match, issue.scope
    return KnownIssueResponse(
        id=issue.id,
        product=issue.product,
        title=issue.title,
        match=IssueMatchResponse(
            signature=match.signature,
            exception=match.exception,
            frame=match.frame,
            contains=match.contains,
        ),
        scope=IssueScopeResponse(
            platforms=list(scope.platforms),
            jobs=list(scope.jobs),
            versions=scope.versions,
            requires_package=scope.requires_package,
        ),
        owner=issue.owner,
        author=issue.author,
        author_token=issue.author_token,
        url=issue.url,
        opened=issue.opened,
        expires=issue.expires,
        max_failures=issue.max_failures,
        ended_at=issue.ended_at,
        ended_by=issue.ended_by,
        is_expired=issue.is_expired(on),
    )
