"""Every table of the database."""

from __future__ import annotations

from orchestrator.adapters.db.tables.access import (
    BlobChunkRow,
    BlobRow,
    ControllerRow,
    PayloadRow,
    TokenRow,
)
from orchestrator.adapters.db.tables.columns import Table
from orchestrator.adapters.db.tables.foreign import IngestRow, StatementRow
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

__all__ = [
    "ArtifactRow",
    "AttemptRow",
    "AttestationRow",
    "BlobChunkRow",
    "BlobRow",
    "CellPlanRow",
    "CellRollupRow",
    "CellRow",
    "CheckResultRow",
    "ControllerRow",
    "DecisionRow",
    "EnvironmentRow",
    "EvidenceChunkRow",
    "FeedRow",
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
    "PayloadRow",
    "PriceRow",
    "RunRow",
    "RunSpecRow",
    "SightingRow",
    "SignatureHeirRow",
    "SignatureRow",
    "StatementRow",
    "Table",
    "TestAliasRow",
    "TestCaseRow",
    "TestResultRow",
    "TestRetryRow",
    "TextRow",
    "TokenRow",
    "TransitionRow",
]
