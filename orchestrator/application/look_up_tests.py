"""How a test went over time, under all its names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.application.ports.history import TestGo
from orchestrator.application.ports.stores import Stores
from orchestrator.domain.alias import KnownTest
from orchestrator.domain.flaky import FlakyEvidence, flaky_evidence
from orchestrator.domain.identity import resolve


@dataclass(frozen=True, slots=True)
class TestHistory:
    """A test, and how it went."""

    __test__ = False

    test: KnownTest
    """Under its newest name."""
    names: tuple[KnownTest, ...]
    """Its older names, as persons confirmed them."""
    goes: tuple[TestGo, ...]
    """The newest first."""
    flaky: FlakyEvidence
    """Of these."""


def history_of(stores: Stores, test_id: int, *, limit: int) -> TestHistory | None:
    """The history of a test, asked for by any of its names; None where there is no such test."""
    aliases = stores.aliases.confirmed()
    newest = resolve(test_id, aliases)
    test = stores.tests.get(newest)
    if test is None:
        return None
    older = [stores.tests.get(one) for one in _older(newest, aliases)]
    names = tuple(one for one in older if one is not None)
    goes = stores.tests.history([newest, *(one.id for one in names)], limit=limit)
    evidence = flaky_evidence(go.go for go in reversed(goes))
    return TestHistory(test, names, tuple(goes), evidence)


def _older(newest: int, aliases: Mapping[int, int]) -> list[int]:
    return sorted(old for old in aliases if old != newest and resolve(old, aliases) == newest)
