"""Hostile evidence, and evidence in any batching: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.domain.event_facts import CheckFact, Facts, JobFact, MetricFact, Notice, TestFact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store.attempt_evidence import EvidencePosition
from tests.databases import NOW, Agent, attempt, create, deliver, outcomes, read


@pytest.fixture
def cell_id(stores):
    """A cell of a run."""
    return create(stores)[0]


@pytest.fixture
def agent(stores, cell_id):
    """Of the cell's first attempt."""
    return Agent(stores, attempt(stores, cell_id))


HOSTILE = "a\x00b\ud800c\\u0000\u2028\U0001f600"


def hostile_facts():
    """What a parser that lets everything through would hand over."""
    twin = "a\x00b\udfffc\\u0000\u2028\U0001f600"
    bad = TestFact(HOSTILE, HOSTILE, TestOutcome.FAILED, True, 1.0, HOSTILE, HOSTILE, HOSTILE)
    return Facts(
        last_seq=1,
        tests={(HOSTILE, HOSTILE): bad, (HOSTILE, twin): TestFact(HOSTILE, twin)},
        jobs={HOSTILE: JobFact(HOSTILE, 1.0, exit_code=2**80, signal=True, detail=HOSTILE)},
        checks={(HOSTILE, HOSTILE): CheckFact(HOSTILE, HOSTILE, HOSTILE, HOSTILE)},
        metrics=[MetricFact(1, HOSTILE, HOSTILE, (1.0,), "", "", {HOSTILE: [HOSTILE]})],
        notices=[Notice(1, 1.0, HOSTILE, HOSTILE, HOSTILE)],
        environment={HOSTILE: HOSTILE, "nan": float("nan"), "inf": float("inf"), "big": 10**30},
    )


def test_text_that_postgres_cannot_keep_is_kept_without_that(stores, agent, cell_id):
    assert stores.evidence.append(
        agent.attempt_id, EvidencePosition(), at=NOW, events=b"any\n", facts=hostile_facts()
    )
    stores.results.put_artifacts(cell_id, [ArtifactRecord(HOSTILE, 1, "1" * 64)])
    clean = "a\ufffdb\ufffdc\\u0000\u2028\U0001f600"
    environment = {clean: clean, "nan": None, "inf": None, "big": 10**30}
    assert stores.results.environment(cell_id) == environment
    assert stores.results.tests(cell_id) == [
        TestFact(clean, clean, TestOutcome.FAILED, True, 1.0, clean, clean, clean)
    ]
    job = stores.results.jobs(cell_id)[clean]
    assert (job.exit_code, job.signal, job.detail) == (2**31 - 1, 1, clean)
    assert stores.results.checks(cell_id) == [CheckFact(clean, clean, clean, clean)]
    assert stores.results.metrics(cell_id)[0].params == {clean: [clean]}
    assert stores.results.notices(cell_id)[0].message == clean
    assert stores.results.artifacts(cell_id)[0].name == clean


def test_names_that_are_too_long_for_an_index_are_kept_apart(stores, agent, cell_id):
    long = "\U0001f600" * 60_000
    agent.send(
        agent.test(long + "1", job=long),
        agent.test(long + "2", "failed", job=long),
        agent.line("phase", long, name="started"),
        agent.line("check", long, check=long + "1", outcome="passed"),
        agent.line("check", long, check=long + "2", outcome="failed"),
    )
    stores.results.put_artifacts(cell_id, [ArtifactRecord(long, 1, "1" * 64)])
    assert outcomes(stores, cell_id) == {long + "1": "passed", long + "2": "failed"}
    assert [c.outcome for c in stores.results.checks(cell_id)] == ["passed", "failed"]
    (job,) = stores.results.jobs(cell_id)
    assert len(job) == 300
    assert len(stores.results.tests(cell_id, job=long)) == 2


def test_a_duration_beyond_reason_is_cut(stores, agent, cell_id):
    chunk = agent.manifest("a", "b")
    facts = read(chunk)
    facts.tests["unit", "a"] = TestFact("unit", "a", duration_s=1e300)
    facts.tests["unit", "b"] = TestFact("unit", "b", duration_s=-5.0)
    stores.evidence.append(agent.attempt_id, EvidencePosition(), at=NOW, events=chunk, facts=facts)
    assert [fact.duration_s for fact in stores.results.tests(cell_id)] == [315_360_000.0, 0.0]


# In any batching


def known(stores, cell_id):
    tests = [
        (t.nodeid, t.outcome, t.final, round(t.duration_s, 4), t.reason, t.message, t.text)
        for t in stores.results.tests(cell_id)
    ]
    return (
        tests,
        stores.results.jobs(cell_id),
        stores.results.checks(cell_id),
        stores.results.metrics(cell_id),
        stores.results.notices(cell_id),
        stores.results.tally(cell_id),
    )


names = st.sampled_from(["a", "b", "c::d[e]"])
reports = st.fixed_dictionaries(
    {
        "record": st.just("report"),
        "nodeid": names,
        "when": st.sampled_from(["setup", "call", "teardown"]),
        "outcome": st.sampled_from(["passed", "failed", "skipped"]),
        "duration": st.sampled_from([0.0, 0.5, 1.25]),
        "longrepr": st.sampled_from(["", "one", "two\nlines"]),
    }
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("test"), reports),
        st.tuples(st.just("test"), st.builds(lambda n: {"record": "start", "nodeid": n}, names)),
        st.tuples(st.just("manifest"), st.builds(lambda n: {"tests": n}, st.lists(names))),
        st.tuples(
            st.just("check"),
            st.builds(lambda n, o: {"check": n, "outcome": o}, names, st.sampled_from("pf")),
        ),
        st.tuples(st.just("metric"), st.builds(lambda n: {"metric": n, "samples": [1.5]}, names)),
        st.tuples(st.just("phase"), st.sampled_from([{"name": "started"}, {"name": "finished"}])),
        st.tuples(st.just("log"), st.just({"level": "info", "message": "said"})),
    ),
    min_size=1,
    max_size=12,
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(script=events, cuts=st.lists(st.integers(1, 11)), doubled=st.booleans())
def test_the_batching_of_events_makes_no_difference(stores, script, cuts, doubled):
    run_id = f"run-{len(stores.runs.unfinished())}"
    whole, parts = create(stores, run_id)
    at_once = Agent(stores, attempt(stores, whole))
    at_once.send(*(at_once.line(kind, "unit", **data) for kind, data in script))
    piecemeal = Agent(stores, attempt(stores, parts))
    lines = [piecemeal.line(kind, "unit", **data) for kind, data in script]
    borders = [0, *sorted({cut for cut in cuts if cut < len(lines)}), len(lines)]
    for begin, end in pairwise(borders):
        offset, chunk = len(piecemeal.sent), b"".join(lines[begin:end])
        assert piecemeal.send(chunk)
        if doubled:
            assert not deliver(stores, piecemeal.attempt_id, chunk, offset=offset)
    assert known(stores, parts) == known(stores, whole)
    assert piecemeal.sent == at_once.sent
    assert b"".join(stores.evidence.raw_events(piecemeal.attempt_id)) == at_once.sent
