"""Evidence and results: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import partial

import pytest
from sqlalchemy import event, select

from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.event_facts import MetricFact, TestFact
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store import attempt_evidence
from orchestrator.store.attempt_evidence import EvidencePosition
from orchestrator.store.errors import CorruptEvidenceError, UnknownIdError
from orchestrator.store.tables import CellRollupRow, EvidenceChunkRow, JobRollupRow, TestCaseRow
from tests.databases import (
    NOW,
    Agent,
    advance,
    after,
    attempt,
    create,
    lease,
    outcomes,
    read,
    together,
    write_log,
)

PASSED = Cause(Outcome.PASSED, "")


@pytest.fixture
def cell_id(stores):
    """A cell of a run."""
    return create(stores)[0]


@pytest.fixture
def agent(stores, cell_id):
    """Of the cell's first attempt."""
    return Agent(stores, attempt(stores, cell_id))


def next_attempt(stores, cell_id):
    """Give the present attempt up; the agent of another one."""
    last = stores.cells.attempts(cell_id)[-1]
    stores.cells.enter(cell_id, CellState.RELEASING, at=NOW)
    stores.cells.requeue(last.id, Cause(Outcome.ERRORED, "lost"), at=NOW)
    return Agent(stores, attempt(stores, cell_id, last.number + 1))


def test_nothing_is_stored_at_first(stores, agent, cell_id):
    assert stores.evidence.position(agent.attempt_id) == EvidencePosition()
    assert list(stores.evidence.raw_events(agent.attempt_id)) == []
    assert stores.results.tests(cell_id) == []
    assert stores.results.tally(cell_id) == {}
    assert stores.results.environment(cell_id) is None
    nobody = create(stores, "run-2")[0]
    stores.evidence.settle(nobody, [])
    assert stores.results.tally(nobody) == {}
    assert stores.evidence.log(nobody, after=0, limit=10) == (b"", 0)
    with pytest.raises(UnknownIdError):
        stores.evidence.position("x")
    with pytest.raises(UnknownIdError):
        stores.evidence.append("x", EvidencePosition(), at=NOW, events=b"x\n")
    with pytest.raises(UnknownIdError):
        stores.results.tally("x")


def test_a_chunk_is_stored_with_what_it_states(stores, agent, cell_id):
    chunk = agent.manifest("a", "b") + agent.test("a", "failed", longrepr="trace\nE boom")
    have = stores.evidence.append(
        agent.attempt_id, EvidencePosition(), at=after(3), events=chunk, facts=read(chunk)
    )
    assert have == EvidencePosition(4, len(chunk), 0, after(3), None)
    assert stores.evidence.position(agent.attempt_id) == have
    assert list(stores.evidence.raw_events(agent.attempt_id)) == [chunk]
    assert stores.results.tests(cell_id) == [
        TestFact(
            "unit", "a", TestOutcome.FAILED, True, 0.75, message="trace", text="trace\nE boom"
        ),
        TestFact("unit", "b"),
    ]
    assert stores.results.tally(cell_id) == {
        "unit": {TestOutcome.FAILED: 1, TestOutcome.MISSING: 1}
    }
    assert stores.results.final_tests(cell_id) == {"unit": ["a"]}
    item = stores.run_events.after("run-1", 1)
    assert [(i.kind, i.cell, i.data) for i in item] == [
        ("evidence", "p0", {"attempt": agent.attempt_id, "seq": 4})
    ]


def test_a_chunk_at_another_offset_changes_nothing(stores, agent, cell_id):
    agent.send(agent.test("a"))
    before = (stores.results.tests(cell_id), stores.run_events.after("run-1", 0))
    position = stores.evidence.position(agent.attempt_id)
    chunk = agent.test("b")
    late = {"events": chunk, "facts": read(chunk, after_seq=3), "at": after(99), "log": b"more"}
    for offset in (0, 1, 10**9):
        for have in (
            replace(position, events_bytes=offset),
            replace(position, log_bytes=offset + 1),
        ):
            assert stores.evidence.append(agent.attempt_id, have, **late) is None
    assert (stores.results.tests(cell_id), stores.run_events.after("run-1", 0)) == before
    assert stores.evidence.position(agent.attempt_id) == position


def test_the_same_chunk_from_many_is_stored_once(stores, agent, cell_id):
    chunk = agent.test("a") + agent.line("check", "unit", check="c", outcome="passed")
    facts = read(chunk)
    append = partial(
        stores.evidence.append,
        agent.attempt_id,
        EvidencePosition(),
        at=NOW,
        events=chunk,
        facts=facts,
        log=b"once",
    )
    assert together([append] * 6).count(None) == 5
    assert stores.results.tests(cell_id)[0].duration_s == 0.75
    assert [one.kind for one in stores.run_events.after("run-1", 1)] == ["evidence", "log"]


def test_cells_that_meet_the_same_tests_at_once_share_them(database):
    stores = database.stores
    agents = [Agent(stores, attempt(stores, cell)) for cell in create(stores, platforms=6)]
    names = [f"t.py::test_{number}" for number in range(60)]

    def send(number, agent):
        turned = names[number * 9 :] + names[: number * 9]
        text = "the same trace"
        return agent.send(*(agent.test(name, "failed", longrepr=text) for name in turned))

    assert together([partial(send, n, a) for n, a in enumerate(agents)]) == [True] * 6
    for cell in stores.cells.of_run("run-1"):
        assert stores.results.tally(cell.id) == {"unit": {TestOutcome.FAILED: 60}}
    with database.sessions.read() as session:
        assert len(session.scalars(select(TestCaseRow.id)).all()) == 60


def test_a_busy_look_costs_few_statements(database):
    """The attempt's state, then one transaction: position, chunks, tests, job, events."""
    stores = database.stores
    agent = Agent(stores, attempt(stores, create(stores)[0]))
    agent.send(agent.manifest("a", "b"), agent.line("phase", "unit", name="started"))
    begun = stores.cells.attempt_state(agent.attempt_id).position
    lines = agent.test("a") + agent.line("phase", "unit", name="finished", exit_code=0)
    facts = read(lines, after_seq=begun.seq)
    asked = []

    def note(_connection, _cursor, statement, *_more):
        if statement != "BEGIN" and not statement.startswith("BEGIN IMM"):
            asked.append(statement)

    event.listen(database.sessions.engine, "before_cursor_execute", note)
    have = stores.cells.attempt_state(agent.attempt_id).position
    assert stores.evidence.append(
        agent.attempt_id, have, at=NOW, events=lines, facts=facts, log=b"passed\n"
    )
    event.remove(database.sessions.engine, "before_cursor_execute", note)
    # Postgres locks the run's row, and copies the tests into a table of the transaction.
    more = 2 if database.sessions.is_postgres else 0
    assert len(asked) == 6 + more, asked


def test_an_empty_chunk_is_nothing_new(stores, agent):
    before = stores.run_events.after("run-1", 0)
    assert (
        stores.evidence.append(agent.attempt_id, EvidencePosition(), at=NOW) == EvidencePosition()
    )
    assert stores.run_events.after("run-1", 0) == before
    with pytest.raises(ValueError, match="without the bytes"):
        stores.evidence.append(
            agent.attempt_id, EvidencePosition(), at=NOW, facts=read(agent.test("a")), log=b"more"
        )


def test_a_heartbeat_moves_the_position_and_tells_no_one(stores, agent):
    before = stores.run_events.after("run-1", 0)
    agent.send(agent.line("heartbeat", job=None, test=None))
    assert stores.evidence.position(agent.attempt_id).seq == 1
    assert stores.run_events.after("run-1", 0) == before


def test_the_end_is_remembered(stores, agent):
    agent.send(agent.line("end", outcome="completed", reason=None, detail=""))
    agent.send(agent.line("heartbeat"))
    assert stores.evidence.position(agent.attempt_id).end is not None


def test_a_damaged_chunk_is_an_error_and_not_other_bytes(database, agent):
    agent.send(agent.test("a"))
    agent.send(agent.test("b"))
    first = select(EvidenceChunkRow).order_by(EvidenceChunkRow.offset)
    with database.sessions.write() as session:
        session.scalars(first).first().body = b"x"
    with pytest.raises(CorruptEvidenceError):
        list(database.stores.evidence.raw_events(agent.attempt_id))
    with database.sessions.write() as session:
        session.delete(session.scalars(first).first())
    with pytest.raises(CorruptEvidenceError, match="are gone"):
        list(database.stores.evidence.raw_events(agent.attempt_id))


def test_more_chunks_than_are_read_at_once_come_in_order(stores, agent, monkeypatch):
    monkeypatch.setattr(attempt_evidence, "_CHUNKS_AT_ONCE", 2)
    for number in range(5):
        agent.send(agent.test(f"t{number}"))
    raw = list(stores.evidence.raw_events(agent.attempt_id))
    assert len(raw) == 5
    assert b"".join(raw) == agent.sent


# Merging


def test_the_worst_phase_stands_with_its_words_across_chunks(stores, agent, cell_id):
    report = partial(agent.line, "test", "unit", record="report", nodeid="a", duration=1.0)
    agent.send(report(when="setup", outcome="passed"))
    agent.send(report(when="call", outcome="failed", longrepr="in the call"))
    agent.send(report(when="teardown", outcome="failed", longrepr="in the teardown"))
    (fact,) = stores.results.tests(cell_id)
    assert (fact.outcome, fact.final, fact.duration_s) == (TestOutcome.FAILED, True, 3.0)
    assert (fact.reason, fact.text) == ("", "in the call")


def test_a_test_that_was_not_final_is_replaced_by_the_next_attempt(stores, agent, cell_id):
    agent.send(
        agent.manifest("a", "b"),
        agent.test("a", "failed", longrepr="first"),
        agent.line("test", "unit", record="report", nodeid="b", when="call", outcome="failed",
                   longrepr="never torn down", duration=9.0),
    )  # fmt: skip
    again = next_attempt(stores, cell_id)
    again.send(again.manifest("a", "b"), again.test("b"))
    facts = {fact.nodeid: fact for fact in stores.results.tests(cell_id)}
    assert facts["a"].outcome is TestOutcome.FAILED
    assert facts["a"].text == "first"
    assert facts["b"] == TestFact("unit", "b", TestOutcome.PASSED, True, 0.75)
    assert list(facts) == ["a", "b"]


def test_late_words_of_an_older_attempt_change_nothing(stores, agent, cell_id):
    agent.send(agent.manifest("a"))
    again = next_attempt(stores, cell_id)
    again.send(again.line("phase", "unit", name="started"), again.manifest("a"))
    agent.send(agent.test("a", "failed"), agent.line("phase", "unit", name="finished", exit_code=1))
    assert outcomes(stores, cell_id) == {"a": "missing"}
    assert stores.results.jobs(cell_id)["unit"].finished_ts is None


def test_a_job_of_a_new_attempt_begins_anew(stores, agent, cell_id):
    agent.send(
        agent.line("phase", "unit", name="started"),
        agent.line("check", "unit", degraded="slow"),
        agent.line("phase", "unit", name="finished", exit_code=None, cause="disk_full"),
        agent.line("phase", "demo", name="started"),
    )
    again = next_attempt(stores, cell_id)
    again.send(again.line("phase", "unit", name="started"))
    jobs = stores.results.jobs(cell_id)
    assert list(jobs) == ["demo", "unit"]
    assert (jobs["unit"].started_ts, jobs["unit"].finished_ts) == (2.0, None)
    assert (jobs["unit"].cause, jobs["unit"].degraded) == (None, None)
    assert jobs["demo"].started_ts == 5.0


def test_what_a_job_says_adds_up(stores, agent, cell_id):
    agent.send(agent.line("phase", "unit", name="started"))
    agent.send(agent.line("test", "unit", record="start", nodeid="a"))
    assert stores.results.jobs(cell_id)["unit"].current == "a"
    agent.send(agent.line("phase", "unit", name="finished", exit_code=1, duration_s=2.5))
    fact = stores.results.jobs(cell_id)["unit"]
    assert (fact.started_ts, fact.finished_ts, fact.current) == (2.0, 4.0, "")
    assert (fact.exit_code, fact.duration_s, fact.restarts) == (1, 2.5, 0)


def test_only_the_present_attempts_checks_and_metrics_of_a_job_count(stores, agent, cell_id):
    def said(one, value):
        return (
            one.line("check", "demo", check="z", outcome="failed", value=value),
            one.line("check", "demo", check="a", outcome="passed", value=value, unit="ms"),
            one.line("metric", "demo", metric="m", samples=[value, 2], unit="ms",
                     direction="lower", params={"batch": 8}),
        )  # fmt: skip

    agent.send(agent.line("phase", "demo", name="started"), *said(agent, 1))
    agent.send(agent.line("phase", "unit", name="started"), agent.line("check", "unit", check="u"))
    again = next_attempt(stores, cell_id)
    again.send(again.line("phase", "demo", name="started"), *said(again, 3))
    checks = [(c.job, c.name, c.value) for c in stores.results.checks(cell_id)]
    assert checks == [("unit", "u", ""), ("demo", "z", "3"), ("demo", "a", "3")]
    assert stores.results.metrics(cell_id) == [
        MetricFact(4, "demo", "m", (3.0, 2.0), "ms", "lower", {"batch": 8})
    ]


def test_turns_of_a_pairing_keep_their_arm_and_their_readings(stores, agent, cell_id):
    said = {"metric": "m", "samples": [1], "unit": "ms", "direction": "lower"}
    agent.send(
        agent.line("metric", "demo", **said),
        agent.line("metric", "demo", **said, arm="subject", turn=0, readings={"load_1m": 0.5}),
        agent.line("metric", "demo", **said, arm="baseline", turn=1),
    )
    told = [(m.arm, m.turn, m.readings) for m in stores.results.metrics(cell_id)]
    assert told == [("", None, {}), ("subject", 0, {"load_1m": 0.5}), ("baseline", 1, {})]


def test_of_what_is_said_of_one_check_the_worst_stands_and_the_last_of_that(stores, agent, cell_id):
    said = (("passed", 1), ("failed", 2), ("failed", 3), ("skipped", 4), ("passed", 5))
    for outcome, value in said:
        agent.send(agent.line("check", "demo", check="a", outcome=outcome, value=value))
    checks = stores.results.checks(cell_id)
    assert [(c.outcome, c.value) for c in checks] == [("failed", "3")]


def test_notices_of_every_attempt_are_kept(stores, agent, cell_id):
    agent.send(agent.line("log", level="warning", message="one"))
    again = next_attempt(stores, cell_id)
    again.send(again.line("log", "unit", level="error", message="two"))
    said = [(n.seq, n.job, n.level, n.message) for n in stores.results.notices(cell_id)]
    assert said == [(1, "", "warning", "one"), (1, "unit", "error", "two")]


def test_the_last_reported_environment_is_shown(stores, agent, cell_id):
    agent.send(agent.line("environment", torch="2.12"))
    again = next_attempt(stores, cell_id)
    assert stores.results.environment(cell_id) == {"torch": "2.12"}
    again.send(again.line("environment", torch="2.13"))
    assert stores.results.environment(cell_id) == {"torch": "2.13"}


def test_settling_makes_tests_missing_or_not_run(stores, agent, cell_id):
    agent.send(
        agent.manifest("a", "b"),
        agent.test("a"),
        agent.line("test", "unit", record="report", nodeid="b", when="setup", outcome="passed"),
        agent.manifest("c", "d", job="other"),
        agent.test("c", job="other"),
    )
    for _ in range(2):
        stores.evidence.settle(cell_id, ["other"])
    assert outcomes(stores, cell_id) == {
        "a": "passed", "b": "missing", "c": "passed", "d": "not_run",
    }  # fmt: skip
    assert stores.results.tally(cell_id) == {
        "unit": {TestOutcome.PASSED: 1, TestOutcome.MISSING: 1},
        "other": {TestOutcome.PASSED: 1, TestOutcome.NOT_RUN: 1},
    }
    assert stores.results.final_tests(cell_id) == {"unit": ["a"], "other": ["c"]}
    again = next_attempt(stores, cell_id)
    again.send(again.test("d", job="other"))
    assert outcomes(stores, cell_id)["d"] == "passed"


def test_tests_keep_the_order_in_which_they_were_collected(stores, agent, cell_id):
    agent.send(agent.manifest("z", "a", job="first"))
    agent.send(agent.test("a", job="first"), agent.test("late", job="first"))
    agent.send(agent.manifest("m", "b"))
    again = next_attempt(stores, cell_id)
    again.send(again.manifest("b", "m", "n"), again.test("z", job="first"))
    names = [fact.nodeid for fact in stores.results.tests(cell_id)]
    assert names == ["z", "a", "late", "m", "b", "n"]
    assert [fact.nodeid for fact in stores.results.tests(cell_id, job="unit")] == ["m", "b", "n"]


def test_a_concluded_cell_has_its_roll_up(database, agent, cell_id):
    stores = database.stores
    agent.send(agent.manifest("a", "b", "c"), agent.test("a"), agent.test("b", "failed"))
    agent.send(agent.test("d", job="other"))
    one = lease("l1", agent.attempt_id)
    stores.leases.reserve(one, run_id="run-1", exclusive=False)
    stores.leases.gone("l1", at=NOW, cost_usd=Decimal("0.125"))
    advance(stores, cell_id, CellState.RELEASING)
    stores.cells.conclude(cell_id, PASSED, at=after(1))
    with database.sessions.read() as session:
        total = session.scalars(select(CellRollupRow)).one()
        jobs = {row.job: row for row in session.scalars(select(JobRollupRow))}
        counts = Counts(passed=2, failed=1, missing=1)
        assert {n: getattr(total, n) for n in counts.as_dict()} == counts.as_dict()
        assert (total.cost_usd, total.concluded_at) == (Decimal("0.125"), after(1))
        assert (jobs["unit"].passed, jobs["unit"].failed, jobs["unit"].missing) == (1, 1, 1)
        assert jobs["other"].passed == 1


# The log


def test_the_logs_of_the_attempts_follow_one_another(stores, agent, cell_id):
    for offset, chunk in ((0, b"hello "), (6, b"\x00w\xff"), (9, b"orld")):
        assert write_log(stores, agent.attempt_id, chunk, offset=offset)
    assert not write_log(stores, agent.attempt_id, b"twice", offset=6)
    again = next_attempt(stores, cell_id)
    write_log(stores, again.attempt_id, b"!again")
    whole = b"hello \x00w\xfforld!again"
    assert stores.evidence.log(cell_id, after=0, limit=1000) == (whole, 19)
    for after_ in range(20):
        for limit in (0, 1, 4, 19):
            part, next_ = stores.evidence.log(cell_id, after=after_, limit=limit)
            assert part == whole[after_ : after_ + limit]
            assert next_ == min(after_ + limit, 19)
    assert stores.evidence.log(cell_id, after=99, limit=5) == (b"", 19)
    assert stores.evidence.position(agent.attempt_id).log_bytes == 13
    told = [i.data for i in stores.run_events.after("run-1", 0) if i.kind == "log"]
    assert [item["size"] for item in told] == [6, 9, 13, 6]


# Artifacts


def test_artifacts_are_replaced_by_name(stores, cell_id):
    stores.results.put_artifacts(
        cell_id, [ArtifactRecord("b.txt", 5, "1" * 64), ArtifactRecord("a", 0, "2" * 64)]
    )
    stores.results.put_artifacts(cell_id, [ArtifactRecord("b.txt", 2**40, "3" * 64)])
    stores.results.put_artifacts(cell_id, [])
    assert stores.results.artifacts(cell_id) == [
        ArtifactRecord("a", 0, "2" * 64),
        ArtifactRecord("b.txt", 2**40, "3" * 64),
    ]


@pytest.mark.parametrize(("tests", "final"), [(True, {"other": ["b"]}), (False, None)])
def test_a_reopened_job_has_not_ended_and_the_next_attempt_replaces_it(
    stores, cell_id, tests, final
):
    agent = Agent(stores, attempt(stores, cell_id))
    said = {"record": "report", "when": "teardown", "outcome": "passed", "duration": 0.0}
    for job, nodeid in (("unit", "a"), ("other", "b")):
        agent.send(agent.line("test", job, nodeid=nodeid, **said))
        agent.send(agent.line("phase", job, name="finished", exit_code=0, duration_s=1.0))
    stores.evidence.reopen(cell_id, ["unit"], tests=tests)
    jobs = stores.results.jobs(cell_id)
    assert (jobs["unit"].finished_ts, jobs["unit"].exit_code) == (None, None)
    assert (jobs["other"].finished_ts is not None, jobs["other"].exit_code) == (True, 0)
    assert stores.results.final_tests(cell_id) == (final or {"unit": ["a"], "other": ["b"]})
    assert stores.results.jobs_of_attempt(agent.attempt_id).keys() == {"unit", "other"}
    advance(stores, cell_id, CellState.RELEASING)
    stores.cells.requeue(agent.attempt_id, Cause(Outcome.ERRORED, "preempted"), at=NOW)
    later = Agent(stores, attempt(stores, cell_id, 2))
    later.send(later.line("phase", "unit", name="finished", exit_code=1, duration_s=1.0))
    assert stores.results.jobs(cell_id)["unit"].exit_code == 1
    assert stores.results.jobs_of_attempt(later.attempt_id).keys() == {"unit"}
    assert stores.results.jobs_of_attempt(agent.attempt_id).keys() == {"other"}


@pytest.mark.parametrize("stopped_by", ["cancel", "cause"])
def test_what_is_stored_says_whether_the_attempt_goes_on(stores, agent, cell_id, stopped_by):
    first = stores.evidence.append(agent.attempt_id, EvidencePosition(), at=NOW, log=b"x")
    assert first is not None
    assert first.goes_on
    if stopped_by == "cancel":
        stores.runs.request_cancel("run-1", at=NOW)
    else:
        stores.cells.record_cause(agent.attempt_id, Cause(Outcome.ERRORED, "lost"))
    second = stores.evidence.append(agent.attempt_id, first, at=NOW, log=b"y")
    assert second is not None
    assert (second.log_bytes, second.goes_on) == (2, False)
