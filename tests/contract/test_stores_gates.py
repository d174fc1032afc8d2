"""Policies, verdicts, waivers and approvals: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from orchestrator.domain.caller_identity import Person
from orchestrator.domain.cell import Cause, CellState, RunSpec
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.gate.gate_documents import digest_of, verdict_document
from orchestrator.domain.gate.payload_review import PayloadReview
from orchestrator.domain.gate.snapshot import Approval, Waiver
from orchestrator.domain.gate.verdict import (
    Decision,
    PublicKey,
    RuleOutcome,
    RuleResult,
    StoredPolicy,
    StoredVerdict,
    Verdict,
)
from orchestrator.domain.matrix import expand
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.reuse_inputs import Reuse
from orchestrator.store import gates as gates_of_database
from orchestrator.store import reuse
from orchestrator.store.database import open_database
from orchestrator.store.errors import DamagedError, StoreError
from orchestrator.store.gates import StoredWaiver
from tests.databases import (
    MANIFEST,
    NOW,
    Agent,
    a_run,
    advance,
    after,
    attempt,
    create,
    lease,
    matrix,
    together,
)

POLICY = StoredPolicy(
    gate="release",
    product="proof",
    digest="a" * 64,
    text="# the file\nkind: ReleaseGate\n",
    document='{"v":1}',
    first_seen=NOW,
    since=NOW,
    by="ann",
)
OF_OTHER = replace(POLICY, digest="e" * 64, product="other")
RULE = RuleResult(
    id="platform/p0",
    kind="platform",
    blocking=True,
    outcome=RuleOutcome.TOLERATED,
    sentence="It failed \u2013 and is known.",
    inputs={"failed": 3, "cells": ["p0"], "by": {"KI-0001": 3}, "late": False},
    by=("KI-0001",),
)
VERDICT = Verdict(
    gate="release",
    product="proof",
    decision=Decision.PASS_WITH_EXCEPTIONS,
    at=NOW,
    subject={"name": "lib", "version": "1.10", "wheel_sha256": "e" * 64},
    policy_digest=POLICY.digest,
    evidence_digest="f" * 64,
    rules=(RULE,),
    warnings=("tidy up",),
    summary="It passes.",
    tool="seatrial 1",
)
STORED = StoredVerdict(
    id="",
    gate="release",
    verdict=VERDICT,
    runs=(),
    lineage="nightly",
    created_at=NOW,
    snapshot_digest="b" * 64,
    document_digest=digest_of(verdict_document(VERDICT)),
    envelope_digest="c" * 64,
    key_id="k" * 64,
)
WAIVER = Waiver(
    id="",
    gate="release",
    rule="platform/p0",
    reason="known",
    author="ann",
    approver="bo",
    at=NOW,
    expires=NOW + timedelta(days=7),
)
KEY = PublicKey(id="k1", public="00" * 32, created_at=NOW, not_after=NOW + timedelta(days=365))


@pytest.fixture
def gates(stores):
    stores.gates.put_policy(POLICY)
    return stores.gates


# Policies


def test_the_same_policy_again_changes_nothing(gates) -> None:
    again = replace(POLICY, since=after(60), first_seen=after(60), by="bo", text="kind: other")
    assert gates.put_policy(again) == POLICY
    assert gates.policy_history("release") == [POLICY]


def test_a_gate_has_its_newest_policy_and_remembers_the_others(gates) -> None:
    second = replace(POLICY, digest="d" * 64, since=after(60), first_seen=after(60), text="two")
    back = replace(POLICY, since=after(120), first_seen=after(120), by="bo")
    assert gates.put_policy(second) == second
    assert gates.put_policy(back) == replace(POLICY, since=after(120), by="bo")
    assert gates.policy("release") == replace(POLICY, since=after(120), by="bo")
    history = gates.policy_history("release")
    assert [(one.digest[0], one.since) for one in history] == [
        ("a", after(120)),
        ("d", after(60)),
        ("a", NOW),
    ]
    assert gates.policy_version("d" * 64) == second
    assert gates.policy_version("a" * 64) == POLICY


def test_each_gate_has_a_policy_of_its_own_and_keeps_its_product(gates) -> None:
    other = replace(POLICY, gate="nightly")
    gates.put_policy(other)
    assert gates.policies() == [other, POLICY]
    assert gates.policy("nope") is None
    assert gates.policy_version("nope") is None
    assert gates.policy_history("nope") == []
    with pytest.raises(InvalidDocumentError, match=r"gate release: .* keeps its product"):
        gates.put_policy(OF_OTHER)
    assert gates.policy_version(OF_OTHER.digest) is None
    assert gates.policy_history("release") == [POLICY]


def test_a_policy_put_by_many_at_once_stands_once(gates, stores) -> None:
    second = replace(POLICY, digest="d" * 64)
    answers = together([lambda: stores.gates.put_policy(second)] * 4)
    assert {answer.digest for answer in answers} == {"d" * 64}
    assert len(gates.policy_history("release")) == 2


def test_of_policies_put_at_once_each_is_the_gates_and_told_as_put(gates, stores) -> None:
    many = [replace(POLICY, digest=letter * 64) for letter in "bcdefg"]
    answers = together([lambda one=one: stores.gates.put_policy(one) for one in many])
    assert answers == many
    assert {one.digest for one in gates.policy_history("release")} == {
        one.digest for one in (POLICY, *many)
    }


@pytest.mark.needs_postgres
def test_who_puts_a_policy_second_in_the_same_instant_is_told_its_own(
    postgres_url, monkeypatch
) -> None:
    with closing(open_database(postgres_url)) as opened:
        store, present, left = opened.stores.gates, gates_of_database._present, [1]
        store.put_policy(POLICY)
        mine, others = (replace(POLICY, digest=letter * 64) for letter in "de")

        def overtaken(session, gate):
            found = present(session, gate)
            if left:
                left.pop()
                assert store.put_policy(others) == others
            return found

        monkeypatch.setattr(gates_of_database, "_present", overtaken)
        assert store.put_policy(mine) == mine
        assert [one.digest[0] for one in store.policy_history("release")] == ["d", "e", "a"]


# Verdicts


def test_a_verdict_is_kept_as_it_is(gates, stores) -> None:
    for number in (1, 2):
        create(stores, f"run-{number}")
    given = replace(STORED, runs=("run-2", "run-1"))
    stored = gates.add_verdict(given)
    assert stored == replace(given, id="V-0001")
    assert gates.verdict("V-0001") == stored
    assert [gates.verdict(name) for name in ("V-0002", "V-0", "1", "V-x", "")] == [None] * 5
    assert digest_of(verdict_document(stored.verdict)) == stored.document_digest


def test_a_key_makes_one_verdict_however_many_try(gates, stores) -> None:
    answers = together([lambda: stores.gates.add_verdict(STORED, key="due")] * 5)
    assert {answer.id for answer in answers} == {answers[0].id}
    assert gates.verdict_of_key("due") == answers[0]
    assert gates.verdict_of_key("other") is None
    assert gates.add_verdict(STORED).id != answers[0].id


def with_policy(policy: StoredPolicy) -> StoredVerdict:
    return replace(STORED, verdict=replace(VERDICT, policy_digest=policy.digest))


def test_a_policy_is_kept_with_its_verdict(gates) -> None:
    second = replace(POLICY, digest="d" * 64)
    stored = gates.add_verdict(with_policy(second), key="due", policy=second)
    assert gates.policy("release") == second
    again = gates.add_verdict(STORED, key="due", policy=replace(POLICY, since=after(60)))
    assert (again, gates.policy_history("release")) == (stored, [second, POLICY])


@pytest.mark.parametrize(
    ("verdict", "policy", "error"),
    [
        (with_policy(OF_OTHER), OF_OTHER, InvalidDocumentError),
        (with_policy(OF_OTHER), replace(POLICY, digest="d" * 64), StoreError),
    ],
    ids=["another product", "the verdict cannot be stored"],
)
def test_a_refused_verdict_leaves_no_policy(gates, verdict, policy, error) -> None:
    with pytest.raises(error):
        gates.add_verdict(verdict, key="due", policy=policy)
    assert gates.verdicts() == []
    assert gates.policy_history("release") == [POLICY]
    assert gates.policy_version(policy.digest) is None


def test_of_calls_with_one_key_only_the_policy_of_the_verdict_is_kept(gates, stores) -> None:
    many = [replace(POLICY, digest=letter * 64) for letter in "bcdefg"]
    answers = together(
        [
            lambda one=one: stores.gates.add_verdict(with_policy(one), key="due", policy=one)
            for one in many
        ]
    )
    assert answers == [answers[0]] * len(many)
    kept = [one for one in many if gates.policy_version(one.digest)]
    assert [one.digest for one in kept] == [answers[0].verdict.policy_digest]
    assert gates.policy_history("release") == [*kept, POLICY]


def test_verdicts_are_listed_newest_first_a_page_at_a_time(gates, stores) -> None:
    create(stores, "run-1")
    first = gates.add_verdict(replace(STORED, runs=("run-1",)))
    second = gates.add_verdict(replace(STORED, lineage="branch"))
    other = gates.add_verdict(replace(STORED, gate="other"))
    assert gates.verdicts() == [other, second, first]
    assert gates.verdicts(gate="release") == [second, first]
    assert gates.verdicts(gate="release", limit=1) == [second]
    assert gates.verdicts(gate="release", before=second.id) == [first]
    assert gates.verdicts(lineage="branch") == [second]
    assert gates.verdicts(run="run-1") == [first]


def decided(gates, decision, *runs):
    verdict = replace(VERDICT, decision=decision)
    return gates.add_verdict(replace(STORED, verdict=verdict, runs=runs))


def test_the_last_good_verdict_is_of_the_newest_run_before(gates, stores) -> None:
    for number in (1, 2, 3, 4):
        create(stores, f"run-{number}")
    assert gates.last_passed("release") is None
    newer = decided(gates, Decision.PASS, "run-3")
    older = decided(gates, Decision.PASS_WITH_EXCEPTIONS, "run-1")
    decided(gates, Decision.FAIL, "run-4")
    decided(gates, Decision.INCONCLUSIVE, "run-4")
    assert gates.last_passed("release") == newer
    assert gates.last_passed("release", without=newer.runs) == older
    assert gates.last_passed("release", without=(*newer.runs, *older.runs)) is None
    assert gates.last_passed("other") is None


def test_a_verdict_that_cannot_be_read_back_says_so(gates, database) -> None:
    stored = gates.add_verdict(STORED)
    with database.sessions.write() as session:
        session.execute(text("update verdict set document = '{}'"))
    with pytest.raises(DamagedError, match=stored.id):
        gates.verdict(stored.id)


# Runs in which a platform passed


def launched(stores, run_id, platforms, provider):
    asked = matrix(platforms)
    rows = tuple(replace(one, provider=provider) for one in asked.platforms)
    asked = replace(asked, platforms=rows)
    cells = [(f"{run_id}.{plan.id}", plan) for plan in expand(asked, MANIFEST)]
    stores.runs.create(a_run(run_id), RunSpec(asked, MANIFEST), cells, key=None)
    return [cell_id for cell_id, _ in cells]


def ended(stores, run_id, *outcomes, simulated=False, provider="static"):
    cells = launched(stores, run_id, len(outcomes), provider)
    for cell, outcome in zip(cells, outcomes, strict=True):
        agent = Agent(stores, attempt(stores, cell))
        lease_id = f"{run_id}-{cell}"
        held = lease(lease_id, agent.attempt_id)
        stores.leases.reserve(held, run_id=run_id, exclusive=False)
        stores.leases.note(lease_id, {}, simulated=simulated)
        advance(stores, cell, CellState.RUNNING)
        agent.send(agent.manifest("a", "b"), agent.test("a"), agent.test("b"))
        advance(stores, cell, CellState.RELEASING)
        stores.cells.conclude(cell, Cause(outcome, ""), at=NOW)
    stores.runs.finish(run_id, Outcome.PASSED, at=NOW)
    return cells


GREEN, RED = Outcome.PASSED, Outcome.FAILED


def test_the_last_green_run_of_a_platform(gates, stores) -> None:
    ended(stores, "run-1", GREEN, GREEN)
    cells = ended(stores, "run-2", GREEN, RED)
    ended(stores, "run-3", RED, RED)
    passing_runs = gates.last_green("proof", "p0")
    assert passing_runs is not None
    assert (passing_runs.run_id, passing_runs.cell_id, passing_runs.cell) == (
        "run-2",
        cells[0],
        "p0",
    )
    assert (passing_runs.collected, passing_runs.streak) == ({"p0": 2}, 2)
    older = gates.last_green("proof", "p1", before_run="run-3")
    assert older is not None
    assert older.run_id == "run-1"
    assert gates.last_green("proof", "p0", before_run="run-1") is None
    assert gates.last_green("other", "p0") is None
    assert gates.last_green("proof", "p") is None


def test_a_streak_ends_at_the_first_run_that_is_not_green(gates, stores) -> None:
    for number, outcome in enumerate((GREEN, RED, GREEN, GREEN), 1):
        ended(stores, f"run-{number}", outcome)
    assert gates.green_streak("proof", "p0", before_run="run-5") == 2
    assert gates.green_streak("proof", "p0", before_run="run-3") == 0
    assert gates.green_streak("proof", "p0", before_run="run-1") == 0


def test_a_run_that_reuses_evidence_is_no_other_green_run(gates, stores) -> None:
    [source] = ended(stores, "run-1", GREEN)
    ended(stores, "run-2", GREEN)
    [again] = ended(stores, "run-3", GREEN)
    reused = Reuse(job="unit", why="", run="run-1", cell=source, at=NOW)
    stores.reusable_results.decide(again, [reused], at=NOW)
    assert gates.green_streak("proof", "p0", before_run="run-4") == 2
    last = gates.last_green("proof", "p0")
    assert (last.run_id, last.streak) == ("run-3", 2)
    [whole] = ended(stores, "run-4", GREEN)
    stores.reusable_results.decide(whole, [Reuse(job="unit", why="payload changed")], at=NOW)
    assert gates.green_streak("proof", "p0", before_run="run-5") == 3


def test_a_streak_is_counted_over_pages(gates, stores, monkeypatch) -> None:
    monkeypatch.setattr(reuse, "_AT_ONCE", 3)
    for number in range(7):
        ended(stores, f"run-{number}", GREEN)
    assert gates.green_streak("proof", "p0", before_run="run-x") == 7
    assert gates.last_green("proof", "p0").streak == 7


@pytest.mark.parametrize("how", [{"simulated": True}, {"provider": "fake"}])
def test_machines_that_are_none_are_never_green(gates, stores, how) -> None:
    ended(stores, "run-1", GREEN, **how)
    assert gates.last_green("proof", "p0") is None
    assert gates.green_streak("proof", "p0", before_run="run-2") == 0


def test_the_newest_finished_run_of_a_product(gates, stores) -> None:
    assert gates.newest_finished("proof") is None
    ended(stores, "run-1", GREEN)
    create(stores, "run-2")
    assert gates.newest_finished("proof") == "run-1"
    assert gates.newest_finished("other") is None


# People and keys


def test_waivers_are_numbered_and_kept(gates) -> None:
    first = gates.add_waiver(
        StoredWaiver(waiver=WAIVER, verdict="V-0001", evidence_digest="f" * 64)
    )
    other = replace(WAIVER, gate="other")
    second = gates.add_waiver(StoredWaiver(waiver=other, verdict="", evidence_digest=""))
    assert first.waiver == replace(WAIVER, id="W-0001")
    assert (first.verdict, first.evidence_digest) == ("V-0001", "f" * 64)
    assert gates.waivers() == [first, second]
    assert gates.waivers(gate="other") == [second]


def test_a_waiver_is_approved_once(gates) -> None:
    asked = replace(WAIVER, author_token="t-1", approver="")
    kept = gates.add_waiver(StoredWaiver(waiver=asked, verdict="", evidence_digest=""))
    told = {"approver": "bo", "approver_token": "t-2", "approved_at": after(60)}
    approved = replace(kept, waiver=replace(kept.waiver, **told))
    assert gates.approve_waiver("W-0001", by=Person("bo", "t-2"), at=after(60)) == approved
    assert gates.approve_waiver("W-0001", by=Person("cy", "t-3"), at=after(90)) == approved
    assert gates.waivers() == [approved]
    for name in ("W-0009", "W-0", "V-0001", ""):
        assert gates.approve_waiver(name, by=Person("bo", "t-2"), at=NOW) is None


def test_a_name_that_was_typed_before_gives_way_to_its_owner(gates) -> None:
    typed = Approval(by="bo", at=NOW, evidence="f" * 64)
    assert gates.add_approval("release", typed) == typed
    signed = replace(typed, at=after(60), token="t-2")
    assert gates.add_approval("release", signed) == signed
    assert gates.add_approval("release", replace(signed, at=after(90))) == signed
    assert gates.approvals("release") == [signed]


def test_reviews_of_payloads_are_numbered_and_kept(gates) -> None:
    said = PayloadReview(
        id="", payload="d" * 64, level="reviewed", by="ann", token="t-1", at=NOW, expires=after(60)
    )
    first = gates.add_review(said)
    second = gates.add_review(replace(said, payload="e" * 64, level="trusted", note="all of it"))
    assert first == replace(said, id="R-0001")
    assert gates.reviews() == [first, second]
    assert gates.reviews(["e" * 64, "f" * 64]) == [second]
    assert gates.reviews([]) == []


def test_a_person_approves_some_evidence_once(gates) -> None:
    yes = Approval(by="bo", at=NOW, evidence="f" * 64, token="t-2")
    assert gates.add_approval("release", yes) == yes
    assert gates.add_approval("release", replace(yes, at=after(60))) == yes
    other = replace(yes, evidence="0" * 64, by="cy")
    gates.add_approval("release", other)
    gates.add_approval("nightly", yes)
    assert gates.approvals("release") == [yes, other]
    assert gates.approvals("release", evidence="0" * 64) == [other]


def test_a_key_is_known_once_and_retired_once(gates) -> None:
    assert gates.add_key(KEY) == KEY
    assert gates.add_key(replace(KEY, created_at=after(60))) == KEY
    assert gates.signing_keys() == [KEY]
    assert gates.retire_key("nope", at=NOW) is None
    retired = replace(KEY, retired_at=after(60))
    assert gates.retire_key("k1", at=after(60)) == retired
    assert gates.retire_key("k1", at=after(90)) == retired
    assert gates.signing_keys() == [retired]
