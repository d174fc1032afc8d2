"""Registers the records of store, domain and operations that the API returns unchanged.

Money is decimal text in US dollars, times are RFC 3339 in UTC, sizes are bytes and durations
seconds. Data from machines is untrusted text.

This module must be imported before every module with routes, because a route reads the schema of
its response when it is declared. The store's tables are imported before it, because columns that
keep whole records read their schemas when they are declared, too.
"""

from __future__ import annotations

import orchestrator.store.tables  # noqa: F401 - their columns keep fields that answers leave out
from orchestrator.api.models import documented
from orchestrator.domain.attestation import Attestation, Device
from orchestrator.domain.audit import AuditVerification, ChainedEntry
from orchestrator.domain.benchmark_series import (
    BenchmarkSeries,
    ChangePoint,
    EnvironmentDifference,
    SeriesChange,
    SeriesPoint,
)
from orchestrator.domain.bisect import BisectRange
from orchestrator.domain.budget import BudgetUse
from orchestrator.domain.caller_identity import BrowserSession, NewToken, Token
from orchestrator.domain.catalogue import PlatformResponse
from orchestrator.domain.cell import Attempt, Cause, PlacementDecision, Run, Transition
from orchestrator.domain.channel import (
    ChannelHealth,
    ChannelResponse,
    DeliveryAttempt,
    DeliveryReceipt,
    DeliveryResponse,
    NewChannelResponse,
    RenewedResponse,
)
from orchestrator.domain.collected_tests import SkippedPath
from orchestrator.domain.commit import Commit
from orchestrator.domain.compare_tests import TestDuration
from orchestrator.domain.cost_response import CellCost, ProviderCost, RunCost, RunTotal, Spending
from orchestrator.domain.event_facts import CheckFact, MetricFact, Notice, TestFact
from orchestrator.domain.failure_signature import (
    FailureGroup,
    FailureGroupListResponse,
    GroupedFailures,
    Signature,
)
from orchestrator.domain.flaky import FlakyEvidence, HistoryResponse, ResultPoint, TestRun
from orchestrator.domain.gate.payload_review import PayloadReview, PayloadReviewResponse
from orchestrator.domain.gate.snapshot import (
    Approval,
    ApprovalResponse,
    Pairs,
    Quarantine,
    Waiver,
    WaiverResponse,
)
from orchestrator.domain.gate.verdict import (
    KeyResponse,
    PublicKey,
    ReplayResponse,
    RuleLine,
    RuleResult,
    StoredPolicy,
    Verdict,
    VerdictEnvelope,
    VerdictLine,
    VerdictResponse,
)
from orchestrator.domain.ingested import (
    Disagreement,
    Ingested,
    RunAnnotation,
    Source,
    StatedMachine,
)
from orchestrator.domain.inventory import InventoryResponse, ResourceResponse
from orchestrator.domain.known_issue import (
    FailingResult,
    IssueMatch,
    IssueScope,
    IssueUse,
    KnownIssue,
    KnownIssueResponse,
)
from orchestrator.domain.launch_plan import HostCheck, Plan, PlannedCell, Shipment
from orchestrator.domain.lint_findings import (
    AnnotationConflict,
    CheckedAnnotation,
    DocumentFinding,
    LintResponse,
)
from orchestrator.domain.machine import Place, SshAccess
from orchestrator.domain.manifest import PayloadResponse, SubjectFileResponse
from orchestrator.domain.matrix import CellPlan
from orchestrator.domain.money import Bill
from orchestrator.domain.node_ids import (
    Alias,
    FamilyChanges,
    KnownTest,
    KnownTestResponse,
    Matching,
    NameChanges,
    Suggestion,
)
from orchestrator.domain.outcome import Counts
from orchestrator.domain.prices import Price, Refreshed, UncertainPrice
from orchestrator.domain.quarantine import Quarantined, QuarantineResponse, SuggestedQuarantine
from orchestrator.domain.quota import Headroom, Quota, QuotaLevel
from orchestrator.domain.retention import PrunedPart, PruneLine, PruneReport
from orchestrator.domain.retests import ConfirmationRunResponse, RetestSessionResponse
from orchestrator.domain.root_cause import Attribution, DiagnosedTest, RetestsResponse, RetestTally
from orchestrator.domain.run_record import (
    ArtifactRecord,
    CellRecord,
    IngestResponse,
    JobRecord,
    LeaseRecord,
    PlotResponse,
    RunResponse,
    RunSummary,
    SubjectName,
    TestResponse,
)
from orchestrator.domain.schedule import (
    Firing,
    Resolved,
    Schedule,
    ScheduleResponse,
    SubjectSelector,
)

documented(Counts, Cause, Attempt, Transition, PlacementDecision, ArtifactRecord, LeaseRecord)
documented(CheckFact, MetricFact, Attestation, Device, Alias, KnownTest)
documented(TestFact, TestResponse, without=["earlier"])
documented(Source, Disagreement, StatedMachine)
documented(Signature, GroupedFailures, FailureGroup, RetestTally, Quarantine, Quarantined)
documented(FailingResult, IssueMatch, IssueScope, KnownIssue, IssueUse)
documented(Bill, derived=["total_usd"])
documented(Notice, derived=["at"])
documented(Pairs, derived=["slowdown"])
documented(Ingested, derived=["provenance"])
documented(DiagnosedTest, derived=["tried"])
documented(JobRecord, derived=["pairs"], without=["unnamed", "turns", "test_set"])
documented(
    CellRecord,
    derived=[
        "counts",
        "passed_on_retry",
        "pass_rate",
        "cost_usd",
        "no_cost",
        "machine",
        "packages",
    ],
)
documented(AuditVerification, ChainedEntry)
documented(SubjectName, PrunedPart)
documented(Commit, SubjectSelector, is_sent=True)
documented(PruneLine)
documented(PruneReport, derived=["rows", "size_bytes"])
documented(TestDuration, derived=["usual_s", "change"])
documented(RunSummary, RunResponse, derived=["pass_rate"])
documented(CellPlan, PlannedCell, Quota, QuotaLevel)
documented(Place, derived=["usd_per_hour"], without=["options"])
documented(BudgetUse, HostCheck, Shipment, SkippedPath, BrowserSession)
documented(Headroom, derived=["sentence"])
documented(Plan, derived=["worst_usd"])
documented(CellCost, RunCost, ProviderCost, RunTotal, Spending)
documented(Price, UncertainPrice, Refreshed)
documented(ResourceResponse, InventoryResponse)
documented(Run, SshAccess, Token, BisectRange, Attribution, DocumentFinding)
documented(
    StoredPolicy, RuleResult, Verdict, VerdictEnvelope, VerdictResponse, RuleLine, VerdictLine
)
documented(PublicKey, KeyResponse, PayloadReview, PayloadReviewResponse)
documented(Approval, ApprovalResponse, Waiver)
documented(
    WaiverResponse,
    QuarantineResponse,
    FlakyEvidence,
    SuggestedQuarantine,
    KnownIssueResponse,
)
documented(NewToken, KnownTestResponse, RunAnnotation, AnnotationConflict, CheckedAnnotation)
documented(SeriesPoint, ChangePoint, EnvironmentDifference, SeriesChange, BenchmarkSeries)
documented(ResultPoint, TestRun, HistoryResponse, FailureGroupListResponse)
documented(Schedule, derived=["lineage"])
documented(Resolved, without=["matrix", "known"])
documented(Firing, ScheduleResponse)
documented(DeliveryReceipt, DeliveryAttempt, DeliveryResponse)
documented(ChannelHealth, ChannelResponse, NewChannelResponse, derived=["state"])
documented(Suggestion, NameChanges, Matching)
documented(FamilyChanges, derived=["summary"])
documented(RetestSessionResponse, RetestsResponse, ConfirmationRunResponse)
documented(PayloadResponse, SubjectFileResponse, PlatformResponse)
documented(IngestResponse, LintResponse, PlotResponse, RenewedResponse, ReplayResponse)
