"""Retention: what goes, what stays, and what happens meanwhile; on SQLite and on Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import func, select, text

from orchestrator.domain.caller_identity import Person
from orchestrator.domain.cell import Cause, CellState, RunState
from orchestrator.domain.channel import DeliveryState
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.retention import Amount, KeepRule, RunPart
from orchestrator.domain.reuse_inputs import Reuse
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.domain.schedule import FiringState
from orchestrator.store import retention
from orchestrator.store.database import open_database
from orchestrator.store.errors import CorruptEvidenceError, PrunedError
from orchestrator.store.gates import StoredWaiver
from orchestrator.store.tables import EvidenceChunkRow, RunRow
from tests.contract.outbox_cases import channel, claimed, putting, receipt
from tests.contract.test_stores_gates import POLICY, STORED, VERDICT, WAIVER
from tests.contract.test_stores_schedules import AT as DUE
from tests.contract.test_stores_schedules import NIGHTLY, firing
from tests.contract.test_stores_schedules import claimed as fired
from tests.databases import (
    NOW,
    ON_SQLITE,
    Agent,
    advance,
    after,
    attempt,
    create,
    lease,
    together,
    write_log,
)

DAY = timedelta(days=1)
LATER = NOW + DAY
"""A rule's bound after the end of the run."""
RULE = KeepRule(30, "SEATRIAL_KEEP_LOGS_DAYS")
LOG = b"one\ntwo\n"


def finished(stores, run_id="run-1", *, at=NOW):
    """A finished run of one cell with a log, a test and an artifact; the ids of cell and attempt.

    Each run's artifacts are one of its own, and one that all have.
    """
    [cell] = create(stores, run_id, platforms=1)
    name = attempt(stores, cell)
    agent = Agent(stores, name)
    agent.send(agent.manifest("t::one"), agent.test("t::one"))
    for line in LOG.splitlines(keepends=True):
        write_log(stores, name, line)
    mine = ArtifactRecord("own.txt", 3, run_id.encode().hex().ljust(64, "0"))
    stores.results.put_artifacts(cell, [mine, ArtifactRecord("common.txt", 3, "c" * 64)])
    advance(stores, cell, CellState.RELEASING)
    stores.cells.conclude(cell, Cause(Outcome.PASSED, ""), at=at)
    assert stores.runs.finish(run_id, Outcome.PASSED, at=at)
    return cell, name


def drop(stores, run_id="run-1", *, before=LATER, at=LATER):
    """Prune a run's logs to their end."""
    total = Amount()
    while gone := stores.retention.drop_logs(run_id, before, RULE, at=at):
        total += gone
    return total


def runs(stores, before=LATER, part=RunPart.LOGS):
    return stores.retention.runs(part, before, after="", limit=10)


def chunks(database):
    with database.sessions.read() as session:
        return session.scalar(select(func.count()).select_from(EvidenceChunkRow))


def test_a_rule_ends_after_its_days_and_never_at_0():
    assert RULE.before(LATER + 29 * DAY) == NOW
    assert KeepRule(0, "x").before(LATER) is None
    assert RULE.text == "kept for 30 days (SEATRIAL_KEEP_LOGS_DAYS)"


def test_a_pruned_log_says_when_and_by_which_rule(database, stores):
    cell, name = finished(stores)
    counted = stores.retention.count_logs(["run-1"])
    assert chunks(database) == 3
    assert counted.rows == 3 + 3, "chunks, and the run events that point at them"
    assert counted.size_bytes > 0
    newest = stores.run_events.last("run-1")
    assert drop(stores) == counted
    assert chunks(database) == 0
    assert {one.kind for one in stores.run_events.after("run-1", 0)} == {"cell", "run"}
    assert stores.run_events.last("run-1") == newest
    said = r"log of run run-1 was pruned at 2026-03-02 12:00 UTC: kept for 30 days \(SEATRIAL_KEEP"
    with pytest.raises(PrunedError, match=said):
        stores.logs.read(name, after=0, limit=9)
    with pytest.raises(PrunedError, match=said):
        stores.evidence.log(cell, after=4, limit=9)
    [part] = stores.retention.of_run("run-1")
    assert (part.part, part.at, part.rule) == (RunPart.LOGS, LATER, RULE.text)
    assert [fact.nodeid for fact in stores.results.tests(cell)] == ["t::one"]
    assert runs(stores) == []
    assert not drop(stores)


def test_a_log_that_is_lost_was_not_pruned(database, stores):
    _, name = finished(stores)
    finished(stores, "run-2")
    drop(stores, "run-2")
    with database.sessions.write() as session:
        session.execute(EvidenceChunkRow.__table__.delete())
    with pytest.raises(CorruptEvidenceError):
        stores.logs.read(name, after=0, limit=9)


def test_a_run_is_pruned_only_once_it_is_over_for_long_enough(stores):
    cells = create(stores, "live", platforms=1)
    write_log(stores, attempt(stores, cells[0]), LOG)
    finished(stores, "old")
    finished(stores, "young", at=after(3600))
    bound = after(60)
    assert runs(stores, bound) == ["old"]
    for kept in ("live", "young"):
        assert not drop(stores, kept, before=bound)
    assert stores.retention.expired(["live", "old", "young", "unknown"], bound) == ["old"]
    assert drop(stores, "old", before=bound)


def test_a_run_that_is_opened_again_meanwhile_keeps_its_log(database, stores):
    """It was listed as over; when its turn comes, a cell is being added."""
    _, name = finished(stores)
    assert runs(stores) == ["run-1"]
    with database.sessions.write() as session:
        session.get_one(RunRow, "run-1").state = RunState.RUNNING
    assert not drop(stores)
    assert stores.logs.read(name, after=0, limit=99) == LOG


def test_a_prune_that_was_killed_goes_on(database, stores, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 1)
    _, name = finished(stores)
    for _ in "events", "log":
        assert stores.retention.drop_logs("run-1", LATER, RULE, at=LATER).rows == 1
    assert chunks(database) == 1
    with pytest.raises(PrunedError):
        stores.logs.read(name, after=0, limit=99)
    assert runs(stores) == ["run-1"]
    drop(stores)
    assert chunks(database) == 0
    assert runs(stores) == []


def test_a_run_of_which_only_pointers_are_left_is_found(stores, monkeypatch):
    finished(stores)
    stores.retention.drop_logs("run-1", LATER, RULE, at=LATER)  # and killed before the next step
    assert runs(stores) == ["run-1"]
    drop(stores)
    assert runs(stores) == []


def test_two_prunes_at_once_do_no_harm(database, database_url, stores):
    for number in range(4):
        finished(stores, f"run-{number}")
    other = open_database(database_url)
    work = [
        partial(drop, (database, other)[turn % 2].stores, f"run-{turn // 2}") for turn in range(8)
    ]
    done = together(work)
    assert sum(amount.size_bytes for amount in done) > 0
    assert chunks(database) == 0
    assert runs(stores) == []
    other.close()


def test_one_prune_of_a_database_at_a_time(database, database_url, stores):
    with stores.retention.alone() as first, stores.retention.alone() as second:
        assert (first, second) == (True, False)
        if database.sessions.is_postgres:
            other = open_database(database_url)
            with other.stores.retention.alone() as third:
                assert not third
            other.close()
    with stores.retention.alone() as again:
        assert again


def test_a_run_with_a_machine_that_is_not_proven_gone_stays_whole(stores):
    [cell] = create(stores, platforms=1)
    name = attempt(stores, cell)
    write_log(stores, name, LOG)
    stores.leases.reserve(lease("lease-1", name), run_id="run-1", exclusive=False)
    assert stores.runs.finish("run-1", Outcome.PASSED, at=NOW)
    assert runs(stores) == []
    assert not drop(stores)
    assert stores.retention.kept(LATER) == {"a machine of it is not proven gone": 1}
    stores.leases.gone("lease-1", at=NOW, cost_usd=stores.leases.of_attempt(name)[0].reserved_usd)
    assert runs(stores) == ["run-1"]
    drop(stores)
    assert [one.id for one in stores.leases.of_attempt(name)] == ["lease-1"]


def judged(stores, run_id, decision, number):
    verdict = replace(VERDICT, decision=decision, at=after(number))
    made = replace(
        STORED,
        verdict=verdict,
        runs=(run_id,),
        created_at=after(number),
        snapshot_digest=f"{number}".ljust(64, "a"),
        envelope_digest=f"{number}".ljust(64, "b"),
    )
    return stores.gates.add_verdict(made, key=f"k-{number}")


def test_what_the_newest_and_the_last_passing_verdict_judge_stays(stores):
    stores.gates.put_policy(POLICY)
    words = ["PASS", "PASS_WITH_EXCEPTIONS", "FAIL", "INCONCLUSIVE"]
    for number, word in enumerate(words):
        finished(stores, f"run-{number}")
        judged(stores, f"run-{number}", Decision(word), number)
    assert runs(stores) == ["run-0", "run-2"]
    reason = "the newest or the last passing verdict of a gate judges it"
    assert stores.retention.kept(LATER) == {reason: 2}
    in_use = stores.retention.digests_in_use(payloads=LATER, artifacts=LATER)
    assert {f"{n}".ljust(64, kind) for n in range(4) for kind in "ab"} <= in_use


def test_evidence_stays_as_long_as_a_run_that_reuses_it(stores):
    source, _ = finished(stores, "source")
    [cell] = create(stores, "user", platforms=1)
    reuse = [
        Reuse(job="unit", why="proven", run="source", cell=source, at=NOW),
        Reuse(job="demo", why="it never ran"),
    ]
    stores.reusable_results.decide(cell, reuse, at=NOW)
    assert runs(stores) == []
    stores.runs.finish("user", Outcome.PASSED, at=NOW)
    assert runs(stores) == ["source"]


def test_a_blob_of_two_runs_is_in_use_until_both_gave_it_up(stores):
    first, _ = finished(stores, "run-1")
    finished(stores, "run-2", at=after(3600))
    own, common, foreign = b"run-1".hex().ljust(64, "0"), "c" * 64, "f" * 64
    use = partial(stores.retention.artifacts_in_use, [own, common, foreign])
    assert use(None) == {own, common}
    assert use(after(60)) == {common}, "as a preview tells it"
    assert stores.retention.count_artifacts(["run-1"]) == Amount(2)
    assert runs(stores, after(60), RunPart.ARTIFACTS) == ["run-1"]
    gone = stores.retention.drop_artifacts("run-1", after(60), RULE, at=LATER)
    assert gone == Amount(2)
    assert use(None) == {common}
    assert {one.pruned_at for one in stores.results.artifacts(first)} == {LATER}
    assert stores.retention.drop_artifacts("run-2", LATER, RULE, at=LATER) == Amount(2)
    assert use(None) == set()
    assert runs(stores, part=RunPart.ARTIFACTS) == []


def test_an_artifact_that_comes_again_is_stored_again(stores):
    cell, _ = finished(stores)
    stores.retention.drop_artifacts("run-1", LATER, RULE, at=LATER)
    stores.results.put_artifacts(cell, [ArtifactRecord("own.txt", 3, "a" * 64)])
    assert [one.pruned_at for one in stores.results.artifacts(cell)] == [LATER, None]
    assert stores.retention.artifacts_in_use(["a" * 64], None) == {"a" * 64}


def test_a_payload_stays_for_its_last_run_and_for_schedules(stores):
    finished(stores)
    in_use = partial(stores.retention.digests_in_use, artifacts=None)
    assert in_use(payloads=None) == {"d" * 64}
    assert in_use(payloads=NOW) == {"d" * 64}
    assert in_use(payloads=LATER) == set()
    digests = {"payload": "1" * 64, "subject_digest": "2" * 64, "baseline_digest": "3" * 64}
    stores.schedules.add(replace(NIGHTLY, **digests), next_due_at=DUE)
    assert in_use(payloads=LATER) == set(digests.values())


def test_the_newest_firings_stay_and_the_unfinished(stores, monkeypatch):
    monkeypatch.setattr(retention, "FIRINGS_KEPT", 2)
    stores.schedules.add(NIGHTLY, next_due_at=DUE)
    made = [firing(DUE + n * DAY, state=FiringState.NOTIFIED) for n in range(5)]
    made[1] = replace(made[1], state=FiringState.LAUNCHED)
    fired(stores, *made)
    prune = stores.retention.history(DUE + 4 * DAY)["firings"]
    assert prune(True) == Amount(2)
    assert prune(False) == Amount(2)
    assert not prune(False)
    left = [one.due_at for one in stores.schedules.firings("nightly")]
    assert left == [DUE + n * DAY for n in (4, 3, 1)]


def test_deliveries_go_with_their_attempts_once_they_are_done(stores):
    stores.outbox.add(channel())
    put = putting(stores)
    put("fail", "k-1")
    put("pass", "k-2")
    first = claimed(stores)
    stores.outbox.settle(first.id, receipt("accepted"), at=after(5))
    prune = stores.retention.history(LATER)["deliveries"]
    assert prune(True) == prune(False) == Amount(1)
    [(left, _)] = stores.outbox.log("c-1", limit=9)
    assert left.state is DeliveryState.WAITING
    assert not put("pass", "k-2"), "an announcement is never made twice"


def test_of_waivers_only_those_that_nobody_approved_go(stores):
    old = [replace(WAIVER, approver=who) for who in ("bo", "", "")]
    future = replace(WAIVER, approver="", expires=LATER + DAY)
    for one in (*old, future):
        stores.gates.add_waiver(StoredWaiver(waiver=one, verdict="", evidence_digest=""))
    prune = stores.retention.history(NOW + timedelta(days=8))["waivers"]
    assert prune(True) == prune(False) == Amount(2)
    assert [one.waiver.id for one in stores.gates.waivers()] == ["W-0001", "W-0004"]
    new = stores.gates.add_waiver(StoredWaiver(waiver=future, verdict="", evidence_digest=""))
    assert new.waiver.id == "W-0005", "no number is given twice"


def test_a_waiver_that_is_approved_meanwhile_stays(stores, monkeypatch):
    """The prune read it as unapproved; the approval was stored before the deletion."""
    for _ in range(2):
        waiver = replace(WAIVER, approver="")
        stores.gates.add_waiver(StoredWaiver(waiver=waiver, verdict="", evidence_digest=""))
    write = stores.retention._sessions.write

    def approved_first():
        monkeypatch.undo()
        assert stores.gates.approve_waiver("W-0001", by=Person("bo", "t-1"), at=NOW)
        return write()

    monkeypatch.setattr(stores.retention._sessions, "write", approved_first)
    assert not stores.retention.history(NOW + timedelta(days=8))["waivers"](False)
    assert [one.waiver.approver for one in stores.gates.waivers()] == ["bo", ""]


def test_the_number_of_the_newest_waiver_is_not_given_again(stores):
    kept = StoredWaiver(waiver=replace(WAIVER, approver=""), verdict="", evidence_digest="")
    stores.gates.add_waiver(kept)
    assert not stores.retention.history(NOW + timedelta(days=8))["waivers"](False)


def test_idempotency_keys_go_after_their_time(stores):
    for number, at in enumerate((NOW, LATER)):
        stores.runs.claim_key(f"key-{number}", "f", at=at, stale_before=NOW)
    prune = stores.retention.history(LATER)["idempotency keys"]
    assert prune(True) == prune(False) == Amount(1)


def test_flows_are_forgotten_of_cells_that_are_over_in_runs_that_are_over(database, stores):
    over, _ = finished(stores)
    first, second = create(stores, "run-2")
    attempt(stores, first)
    advance(stores, first, CellState.RELEASING)
    stores.cells.conclude(first, Cause(Outcome.PASSED, ""), at=NOW)
    assert stores.retention.finished_cells([over, first, second, "unknown"]) == {over}


def test_the_end_of_a_prune_is_remembered(stores):
    assert stores.retention.last() is None
    for at in (NOW, LATER):
        stores.retention.end(at=at)
        assert stores.retention.last() == at


@ON_SQLITE
def test_sqlite_gives_its_pages_back(database, stores, tmp_path):
    _, name = finished(stores)
    noise = b"".join(bytes([n % 251, n // 251 % 251, n * 7 % 256]) for n in range(300_000))
    size = lambda: (tmp_path / "app.db").stat().st_size  # noqa: E731
    for _ in range(3):
        write_log(stores, name, noise)
    stores.retention.give_back(lambda: False)
    full = size()
    drop(stores)
    stores.retention.give_back(lambda: True)
    assert size() >= full
    looks: list[int] = []
    stores.retention.give_back(lambda: bool(looks.append(1)))
    assert size() < full / 2
    assert len(looks) <= 3, "a thousand pages at a time, and then the log"


@ON_SQLITE
def test_sqlite_cuts_its_log_as_soon_as_nobody_reads(database, stores, tmp_path):
    _, name = finished(stores)
    write_log(stores, name, bytes(range(251)) * 4000)
    log = tmp_path / "app.db-wal"
    assert log.stat().st_size > 0
    with database.sessions.read() as session:
        session.scalar(text("SELECT count(*) FROM run"))
        write_log(stores, name, b"one more line")
        stores.retention.give_back(lambda: False)
        assert log.stat().st_size > 0, "somebody reads what is in it"
    stores.retention.give_back(lambda: False)
    assert log.stat().st_size == 0
