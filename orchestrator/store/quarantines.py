"""Quarantines: flaky tests whose failures a gate may tolerate."""

from __future__ import annotations

from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.store.product_records import ProductRecordStore
from orchestrator.store.tables import QuarantineRow


class QuarantineStore(ProductRecordStore[Quarantine]):
    """Stores quarantines; their ids are ``Q-0001`` and so on."""

    _table, _prefix = QuarantineRow, "Q"
