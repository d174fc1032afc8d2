"""How a test went over time, under all its names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.domain.alias import KnownTest
from orchestrator.domain.flaky import FlakyEvidence, flaky_evidence
from orchestrator.domain.identity import resolve
from orchestrator.store.stores import Stores
from orchestrator.store.test_histories import TestGo


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
    known = names_of(stores, test_id)
    if known is None:
        return None
    test, names = known
    goes = stores.tests.history([test.id, *(one.id for one in names)], limit=limit)
    evidence = flaky_evidence(go.go for go in reversed(goes))
    return TestHistory(test, names, tuple(goes), evidence)


def names_of(stores: Stores, test_id: int) -> tuple[KnownTest, tuple[KnownTest, ...]] | None:
    """A test under its newest name, and under its older ones; asked for by any of them."""
    aliases = stores.aliases.confirmed()
    newest = resolve(test_id, aliases)
    known = {one.id: one for one in stores.grids.some([newest, *_older(newest, aliases)])}
    test = known.pop(newest, None)
    return None if test is None else (test, tuple(known[one] for one in sorted(known)))


def _older(newest: int, aliases: Mapping[int, int]) -> list[int]:
    return sorted(old for old in aliases if old != newest and resolve(old, aliases) == newest)
