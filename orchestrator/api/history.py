"""What is known over many runs: kinds of failures, tests under all their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Security
from fastapi.openapi.models import Example

from orchestrator.api.dependencies import LARGEST, ContextDep, resolve_run
from orchestrator.api.errors import NotFoundError
from orchestrator.api.identity import CallerDep
from orchestrator.api.models import Filled, RequestModel, ResponseModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.context import Context
from orchestrator.application.explain_failures import FailureReview, review_failures, review_run
from orchestrator.application.match_tests import (
    FamilyChanges,
    Matching,
    decide_alias,
    suggest_aliases,
)
from orchestrator.application.ports.history import TestGo
from orchestrator.application.ports.stores import Scope
from orchestrator.application.test_history import TestHistory, history_of
from orchestrator.domain.alias import Alias, AliasState, KnownTest
from orchestrator.domain.blame import Culprit
from orchestrator.domain.diagnosis import Diagnosed
from orchestrator.domain.failures import FailureClass
from orchestrator.domain.flaky import FlakyEvidence
from orchestrator.domain.identity import Change, resolve
from orchestrator.domain.known_issue import IssueState, IssueUse
from orchestrator.domain.person import Person
from orchestrator.domain.quarantine import Quarantined, QuarantineState
from orchestrator.domain.retests import TrialKind
from orchestrator.domain.signature import Cluster, Signature


class MatchRequest(RequestModel):
    """Two runs whose tests are compared."""

    old_run: Filled
    """A run's id, the beginning of it, or ``latest``."""
    new_run: Filled


class DecisionRequest(RequestModel):
    """Nothing: whoever sends it says so."""


_NOTHING: dict[str, Example] = {"nothing": {"summary": "Nothing", "value": {}}}
_MATCH: dict[str, Example] = {
    "versions": {
        "summary": "A run of the version before, and one of the new version",
        "value": {"old_run": "01jc0000000000000000000000", "new_run": "latest"},
    }
}
Match = Annotated[MatchRequest, Body(openapi_examples=_MATCH)]
Decide = Annotated[DecisionRequest | None, Body(openapi_examples=_NOTHING)]


class SignatureResponse(ResponseModel):
    """What is the same of all failures of one kind."""

    id: str
    """``s1-0123456789ab``: the algorithm's version and a digest."""
    kind: FailureClass
    """Whose failure it probably is; a hint."""
    exception: str
    frame: str
    """``module.function``, the last of the product's own frames."""
    message: str
    """With what changes from run to run masked."""


class ClusterResponse(ResponseModel):
    """Failures of one signature."""

    signature: SignatureResponse
    count: int
    """Failing results."""
    tests: list[str]
    """Node ids, each once."""
    jobs: list[str]
    cells: list[str]
    platforms: list[str]
    versions: list[str]
    """Of the subject."""
    runs: int
    first_seen: datetime | None
    """Among everything that is stored."""
    last_seen: datetime | None
    known_issues: list[str]
    """Ids of those that apply to at least one of its results; told of one run only."""
    tolerated: int
    """Results that a known issue applies to; they stay failed in every count."""
    similar: list[str]
    """Ids of signatures that may be the same; a suggestion."""


class ClusterListResponse(ResponseModel):
    """Failures by signature, the largest cluster first."""

    items: list[ClusterResponse]
    runs: int
    """Runs that were looked at."""
    is_cut: bool
    """There were more failures than one question looks at; those of the newest runs are here."""


class QuarantinedResponse(ResponseModel):
    """A failing result whose test is, or was, in quarantine when the run was launched."""

    id: str
    """Of the quarantine."""
    nodeid: str
    cell: str
    job: str
    reason: str
    owner: str
    expires: datetime
    state: QuarantineState


class AgainResponse(ResponseModel):
    """How a test went each time that it ran again with the same thing changed."""

    kind: TrialKind
    changed: str
    """For a person; empty where nothing was."""
    whole: bool
    """Its whole job ran."""
    outcomes: list[str]


class DiagnosedResponse(ResponseModel):
    """A failing test that ran again, and who broke it."""

    cell: str
    job: str
    nodeid: str
    """Empty for a command."""
    answer: Culprit
    sentence: str
    """The evidence that decides."""
    evidence: list[str]
    """All of it."""
    tried: str
    """`again` in words."""
    again: list[AgainResponse]


class KnownTestResponse(ResponseModel):
    """A test, whatever ran it."""

    id: int
    product: str
    job: str
    nodeid: str
    now: int | None
    """The test that it is now, as a person confirmed; null where it has no newer name."""


class KnownTestPageResponse(ResponseModel):
    """Tests."""

    items: list[KnownTestResponse]
    next: int | None
    """Give it as `after` to see more; null on the last page."""


class ResultResponse(ResponseModel):
    """One result in the history of a test."""

    run: str
    cell: str
    platform: str
    version: str
    """The subject's."""
    at: datetime
    """When its run was launched, or is said to have happened."""
    test: int
    """Under which of its names."""
    outcome: str
    earlier: list[str]
    """Outcomes of tries before the last one, in the same cell."""
    duration_s: float
    reason: str
    message: str
    signature: str


class FlakyResponse(ResponseModel):
    """What the history says of a test's reliability."""

    passed_on_retry: int
    """Results that failed and passed in the same cell. Certain."""
    split: int
    """Times that it both failed and passed with one version on one platform."""
    flips: int
    """Changes between passing and failing, without failures that lasted."""
    flip_rate: float | None
    failures: int
    judged: int
    likely: float
    """Lower bound of the rate of failures that did not last, with 95 %."""


class HistoryResponse(ResponseModel):
    """A test, and how it went."""

    test: KnownTestResponse
    """Under its newest name."""
    older_names: list[KnownTestResponse]
    items: list[ResultResponse]
    """The newest first."""
    flaky: FlakyResponse


class AliasResponse(ResponseModel):
    """Two names that are, or are not, one test."""

    id: int
    product: str
    job: str
    old_test: int
    old: str
    new_test: int
    new: str
    change: Change
    likeness: float
    state: AliasState
    suggested_at: datetime
    decided_at: datetime | None
    decided_by: str


class AliasListResponse(ResponseModel):
    """Aliases, in the order they were suggested."""

    items: list[AliasResponse]


class FamilyResponse(ResponseModel):
    """What became of the tests of one family of jobs."""

    family: str
    summary: str
    """``66 = 64 same + 1 moved + 1 new, 1 gone``."""
    same: int
    new: list[str]
    gone: list[str]
    ambiguous: list[str]
    """New names that more than one old test could be: nothing is suggested."""


class MatchingResponse(ResponseModel):
    """What became of the tests of an older run in a newer one."""

    old_run: str
    new_run: str
    families: list[FamilyResponse]
    suggestions: list[AliasResponse]
    """To confirm or reject."""


class IssueUseResponse(ResponseModel):
    """A known issue in a run."""

    id: str
    title: str
    owner: str
    url: str
    expires: date
    state: IssueState
    count: int
    """Failing results of the run that it fits."""
    max_failures: int | None
    expired_days: int


_ASKED = [Security(bearer)]
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
reading = APIRouter(tags=["history"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["history"], route_class=secured(Scope.RUN), dependencies=_ASKED)
ProductQuery = Annotated[
    str | None, Query(description="The payload's name", max_length=300, examples=["torchbridge"])
]
AliasId = Annotated[str, Path(description="As `GET /aliases` shows it")]


@reading.get("/signatures")
def list_signatures(
    context: ContextDep,
    run: Annotated[str | None, Query(description="Only of this run", max_length=300)] = None,
    product: ProductQuery = None,
    runs: Annotated[int, Query(ge=1, le=500, description="So many newest runs")] = 50,
) -> ClusterListResponse:
    """Failures by signature, of a run or of the newest runs, the largest cluster first."""
    if run is not None:
        return tell_review(review_run(context, resolve_run(context, run)))
    return tell_review(review_failures(context, product=product, runs=runs))


@reading.get("/tests")
def list_known_tests(
    context: ContextDep,
    product: ProductQuery = None,
    job: Annotated[str | None, Query(max_length=300)] = None,
    contains: Annotated[str, Query(description="Stands in the node id", max_length=300)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    after: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
) -> KnownTestPageResponse:
    """Tests, whatever ran them."""
    page = context.stores.tests.page(
        product=product, job=job, contains=contains, limit=limit, after=after
    )
    aliases = context.stores.aliases.confirmed()
    items = [tell_known_test(test, aliases) for test in page.items]
    return KnownTestPageResponse(items=items, next=page.next)


@reading.get("/tests/{test_id}/history")
def get_test_history(
    context: ContextDep,
    test_id: Annotated[str, Path(description="As `GET /tests` shows it")],
    limit: Annotated[int, Query(ge=1, le=2000)] = 200,
) -> HistoryResponse:
    """How a test went, under all its names, and whether it is flaky."""
    known = _NUMBER.fullmatch(test_id)
    history = history_of(context.stores, int(test_id), limit=limit) if known else None
    if history is None:
        raise NotFoundError(f"there is no test {test_id!r}; GET /api/v1/tests lists them")
    return tell_history(history)


@reading.get("/aliases")
def list_aliases(
    context: ContextDep, product: ProductQuery = None, state: AliasState | None = None
) -> AliasListResponse:
    """Tests that stand under other names: suggested, confirmed and rejected."""
    found = context.stores.aliases.list(product=product, state=state)
    return AliasListResponse(items=[tell_alias(alias) for alias in found])


@writing.post("/aliases")
def match_tests(context: ContextDep, body: Match) -> MatchingResponse:
    """Compare the tests of two runs; what may be one test is suggested, and nothing is merged."""
    old, new = resolve_run(context, body.old_run), resolve_run(context, body.new_run)
    return tell_matching(suggest_aliases(context, old, new))


@writing.post("/aliases/{alias_id}/confirm")
def confirm_alias(
    context: ContextDep, alias_id: AliasId, caller: CallerDep, body: Decide = None
) -> AliasResponse:
    """Say that two names are one test: its history and its counts follow."""
    return _decide(context, alias_id, AliasState.CONFIRMED, caller)


@writing.post("/aliases/{alias_id}/reject")
def reject_alias(
    context: ContextDep, alias_id: AliasId, caller: CallerDep, body: Decide = None
) -> AliasResponse:
    """Say that two names are two tests: it is not suggested again."""
    return _decide(context, alias_id, AliasState.REJECTED, caller)


@writing.post("/aliases/{alias_id}/undo")
def undo_alias(
    context: ContextDep, alias_id: AliasId, caller: CallerDep, body: Decide = None
) -> AliasResponse:
    """Take back what was said; it is a suggestion again."""
    return _decide(context, alias_id, AliasState.SUGGESTED, caller)


def _decide(context: Context, alias_id: str, state: AliasState, by: Person) -> AliasResponse:
    known = _NUMBER.fullmatch(alias_id)
    alias = decide_alias(context, int(alias_id), state, by=by.name) if known else None
    if alias is None:
        raise NotFoundError(f"there is no alias {alias_id!r}; GET /api/v1/aliases lists them")
    return tell_alias(alias)


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
