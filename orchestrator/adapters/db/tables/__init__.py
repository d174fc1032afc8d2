"""Every table of the database."""

from __future__ import annotations

from orchestrator.adapters.db.tables.access import (
    BlobChunkRow,
    BlobRow,
    ControllerRow,
    PayloadRow,
    TokenRow,
)
from orchestrator.adapters.db.tables.benchmarks import (
    BenchmarkPointRow,
    BenchmarkRow,
    CellMeasuredRow,
)
from orchestrator.adapters.db.tables.columns import Table
from orchestrator.adapters.db.tables.foreign import IngestRow, StatementRow
from orchestrator.adapters.db.tables.gates import (
    ApprovalRow,
    GatePolicyRow,
    PayloadReviewRow,
    PolicyRow,
    SigningKeyRow,
    VerdictRow,
    VerdictRunRow,
    WaiverRow,
)
from orchestrator.adapters.db.tables.history import (
    KnownIssueRow,
    SignatureHeirRow,
    SignatureRow,
    TestAliasRow,
    TestRetryRow,
)
from orchestrator.adapters.db.tables.ledger import (
    AttestationRow,
    DecisionRow,
    LeaseLoginRow,
    LeaseRow,
    MachineRow,
    PriceRow,
    SightingRow,
)
from orchestrator.adapters.db.tables.life import (
    AttemptRow,
    CellPlanRow,
    CellRow,
    FeedRow,
    KeyRow,
    RunRow,
    RunSpecRow,
    TransitionRow,
)
from orchestrator.adapters.db.tables.outbox import (
    AnnouncementRow,
    ChannelRow,
    DeliveryAttemptRow,
    DeliveryRow,
    StandingRow,
)
from orchestrator.adapters.db.tables.proof import (
    ArtifactRow,
    CellRollupRow,
    CheckResultRow,
    EnvironmentRow,
    EvidenceChunkRow,
    JobResultRow,
    JobRollupRow,
    LogChunkRow,
    MetricRow,
    NoticeRow,
    TestCaseRow,
    TestResultRow,
    TextRow,
)
from orchestrator.adapters.db.tables.quarantine import QuarantineRow
from orchestrator.adapters.db.tables.reuse import CellReuseRow, PreparedRow, ProofRow
from orchestrator.adapters.db.tables.schedules import FiringRow, ScheduleRow
from orchestrator.adapters.db.tables.trials import DismissalRow, SecondRunRow, SittingRow

__all__ = [
    "AnnouncementRow",
    "ApprovalRow",
    "ArtifactRow",
    "AttemptRow",
    "AttestationRow",
    "BenchmarkPointRow",
    "BenchmarkRow",
    "BlobChunkRow",
    "BlobRow",
    "CellMeasuredRow",
    "CellPlanRow",
    "CellReuseRow",
    "CellRollupRow",
    "CellRow",
    "ChannelRow",
    "CheckResultRow",
    "ControllerRow",
    "DecisionRow",
    "DeliveryAttemptRow",
    "DeliveryRow",
    "DismissalRow",
    "EnvironmentRow",
    "EvidenceChunkRow",
    "FeedRow",
    "FiringRow",
    "GatePolicyRow",
    "IngestRow",
    "JobResultRow",
    "JobRollupRow",
    "KeyRow",
    "KnownIssueRow",
    "LeaseLoginRow",
    "LeaseRow",
    "LogChunkRow",
    "MachineRow",
    "MetricRow",
    "NoticeRow",
    "PayloadReviewRow",
    "PayloadRow",
    "PolicyRow",
    "PreparedRow",
    "PriceRow",
    "ProofRow",
    "QuarantineRow",
    "RunRow",
    "RunSpecRow",
    "ScheduleRow",
    "SecondRunRow",
    "SightingRow",
    "SignatureHeirRow",
    "SignatureRow",
    "SigningKeyRow",
    "SittingRow",
    "StandingRow",
    "StatementRow",
    "Table",
    "TestAliasRow",
    "TestCaseRow",
    "TestResultRow",
    "TestRetryRow",
    "TextRow",
    "TokenRow",
    "TransitionRow",
    "VerdictRow",
    "VerdictRunRow",
    "WaiverRow",
]
