"""Known issues: failures that are explained."""

from __future__ import annotations

from orchestrator.domain.known_issue import KnownIssue
from orchestrator.store.product_records import ProductRecordStore
from orchestrator.store.tables import KnownIssueRow


class KnownIssueStore(ProductRecordStore[KnownIssue]):
    """Stores known issues; their ids are ``KI-0001`` and so on."""

    _table, _prefix = KnownIssueRow, "KI"
