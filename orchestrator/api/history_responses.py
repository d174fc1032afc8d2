"""What the API tells of many runs: kinds of failures, tests and their names, known issues."""

from __future__ import annotations

from datetime import date, datetime

from orchestrator.api.models import ResponseModel
from orchestrator.domain.alias import AliasState
from orchestrator.domain.blame import Culprit
from orchestrator.domain.failures import FailureClass
from orchestrator.domain.identity import Change
from orchestrator.domain.known_issue import IssueState
from orchestrator.domain.quarantine import QuarantineState
from orchestrator.domain.retests import TrialKind


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


class IssueMatchResponse(ResponseModel):
    """Which failures are meant: all of what is not empty."""

    signature: str
    exception: str
    frame: str
    contains: str


class IssueScopeResponse(ResponseModel):
    """Where it applies; what is empty does not restrict."""

    platforms: list[str]
    jobs: list[str]
    versions: str
    requires_package: str


class KnownIssueResponse(ResponseModel):
    """An owned, dated, expiring exception for failures."""

    id: str
    product: str
    title: str
    match: IssueMatchResponse
    scope: IssueScopeResponse
    owner: str
    author: str
    """Who added it: the name that their token had then."""
    author_token: str
    """Its id; `socket`: the operating-system user, on the home's socket. Empty: unknown."""
    url: str
    opened: date
    expires: date
    """The last day on which it applies."""
    max_failures: int | None
    ended_at: datetime | None
    ended_by: str
    is_expired: bool


class KnownIssueListResponse(ResponseModel):
    """Known issues, by id."""

    items: list[KnownIssueResponse]


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
