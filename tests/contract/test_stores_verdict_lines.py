"""Verdicts as lists show them: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from sqlalchemy import text

from orchestrator.domain.cell import RunSpec
from orchestrator.domain.gate.gate_documents import digest_of, verdict_document
from orchestrator.domain.gate.verdict import (
    Decision,
    RuleLine,
    RuleOutcome,
    RuleResult,
    StoredVerdict,
)
from orchestrator.domain.matrix import expand
from orchestrator.domain.outcome import Outcome
from orchestrator.store import verdict_rows
from orchestrator.store.database import Database
from orchestrator.store.errors import DamagedError
from orchestrator.store.gates import GateStore
from orchestrator.store.stores import Stores
from orchestrator.store.verdict_rows import ProductRuns
from tests.contract.test_stores_gates import POLICY, RULE, STORED, VERDICT
from tests.databases import MANIFEST, NOW, a_run, after, create, matrix


@pytest.fixture
def gates(stores: Stores) -> GateStore:
    stores.gates.put_policy(POLICY)
    return stores.gates


def decided(
    gates: GateStore, decision: Decision, at: datetime = NOW, **changed: object
) -> StoredVerdict:
    verdict = replace(VERDICT, decision=decision, at=at)
    digest = digest_of(verdict_document(verdict))
    made = replace(STORED, verdict=verdict, created_at=at, document_digest=digest)
    return gates.add_verdict(replace(made, **changed))  # type: ignore[arg-type]


def test_a_line_says_what_the_verdict_says_without_its_inputs(
    gates: GateStore, stores: Stores
) -> None:
    for number in (1, 2):
        create(stores, f"run-{number}")
    decided(gates, Decision.PASS_WITH_EXCEPTIONS, runs=("run-2", "run-1"))
    [line] = gates.verdict_lines("release")
    told = (line.id, line.gate, line.lineage, line.decision, line.summary, line.runs)
    assert told == (
        "V-0001",
        "release",
        "nightly",
        Decision.PASS_WITH_EXCEPTIONS,
        "It passes.",
        ("run-2", "run-1"),
    )
    assert (line.at, line.created_at, line.subject) == (NOW, NOW, VERDICT.subject)
    assert line.rules == (
        RuleLine(
            id=RULE.id, kind="platform", blocking=True, outcome=RuleOutcome.TOLERATED, sentence=""
        ),
    )
    assert gates.verdict_lines("release") == [line]


def test_the_sentence_of_an_open_blocking_rule_is_kept(gates: GateStore) -> None:
    open_ = RuleResult(
        id="approval", kind="approval", blocking=True, outcome=RuleOutcome.UNKNOWN, sentence="Who?"
    )
    informs = replace(open_, id="other", blocking=False)
    verdict = replace(VERDICT, rules=(open_, informs))
    gates.add_verdict(replace(STORED, verdict=verdict))
    [line] = gates.verdict_lines("release")
    assert [rule.sentence for rule in line.rules] == ["Who?", ""]


def test_lines_are_paged_both_ways(gates: GateStore) -> None:
    for number in range(5):
        decided(gates, Decision.PASS, after(number))
    decided(gates, Decision.PASS, gate="other")
    decided(gates, Decision.PASS, lineage="branch")

    def ids(**asked: object) -> list[str]:
        found = gates.verdict_lines("release", **asked)  # type: ignore[arg-type]
        return [line.id for line in found]

    assert ids(limit=2) == ["V-0007", "V-0005"]
    assert ids(lineage="nightly", limit=2, before="V-0004") == ["V-0003", "V-0002"]
    assert ids(lineage="nightly", limit=1, after="V-0003") == ["V-0004"]
    assert ids(lineage="nightly", limit=1, after="V-0005") == []
    assert ids(lineage="nope") == []
    assert len(ids(before="nonsense")) == 6


def test_a_line_of_verdicts_stands_since_it_last_changed(gates: GateStore) -> None:
    assert gates.lineage_heads() == []
    for number, decision in enumerate([Decision.PASS, Decision.FAIL, Decision.PASS, Decision.PASS]):
        decided(gates, decision, after(number))
    decided(gates, Decision.FAIL, after(9), lineage="branch")
    decided(gates, Decision.FAIL, after(20), gate="other")
    found = [
        (one.newest.gate, one.newest.lineage, one.newest.id, one.first, one.since)
        for one in gates.lineage_heads()
    ]
    assert found == [
        ("other", "nightly", "V-0006", "V-0006", after(20)),
        ("release", "branch", "V-0005", "V-0005", after(9)),
        ("release", "nightly", "V-0004", "V-0003", after(2)),
    ]
    assert [one.newest.id for one in gates.lineage_heads(gate="other")] == ["V-0006"]
    assert gates.lineage_heads(gate="nope") == []


def test_a_document_is_read_once_and_few_are_remembered(
    gates: GateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_rows, "LINES_KEPT", 2)
    for number in range(4):
        decided(gates, Decision.PASS, after(number))
    first = gates.verdict_lines("release")
    again = gates.verdict_lines("release")
    assert first == again
    assert [one is other for one, other in zip(first, again, strict=True)].count(True) <= 2
    assert gates.verdict_lines("release", limit=2) == first[:2]


def test_a_line_that_cannot_be_read_back_says_so(gates: GateStore, database: Database) -> None:
    stored = decided(gates, Decision.PASS)
    with database.sessions.write() as session:
        session.execute(text("update verdict set document = '{\"rules\": 3}'"))
    with pytest.raises(DamagedError, match=stored.id):
        gates.verdict_lines("release")


def test_where_products_runs_are(gates: GateStore, stores: Stores) -> None:
    assert gates.product_runs([]) == {}
    create(stores, "run-1")
    assert stores.runs.finish("run-1", Outcome.PASSED, at=NOW)
    create(stores, "run-2")
    plans = [("again-0", plan) for plan in expand(matrix(1), MANIFEST)]
    again = replace(a_run("run-3"), rerun_of="run-1")
    stores.runs.create(again, RunSpec(matrix(1), MANIFEST), plans, key=None)
    assert gates.product_runs(["proof", "none", "proof"]) == {
        "proof": ProductRuns(newest_finished="run-1", newest_unfinished="run-2"),
        "none": ProductRuns(),
    }
