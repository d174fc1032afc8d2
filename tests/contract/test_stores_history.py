"""What is learnt over many runs: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from orchestrator.adapters.lazy_statistics import FuzzySimilarity
from orchestrator.application.describe_run import describe_run
from orchestrator.application.failure_groups import review_failures, review_run
from orchestrator.application.history_of_test import decide_alias, history_of, suggest_aliases
from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.known_issue import IssueMatch, IssueScope, IssueState, KnownIssue
from orchestrator.domain.node_ids import AliasState, NameChange
from orchestrator.domain.outcome import Outcome, TestOutcome
from orchestrator.store.aliases import AliasConflictError
from orchestrator.store.sql import PageAsked
from tests.databases import NOW, Agent, after, attempt, create, together
from tests.unit.domain.failure_cases import (
    A10G_TESTS,
    TPU_DEVICE,
    TPU_TRAINING,
    a10g_long,
    a10g_short,
)

ISSUE = KnownIssue(
    id="",
    product="proof",
    title="DelayedScaling",
    match=IssueMatch(exception="ValidationError", contains="SCALING_factor"),
    scope=IssueScope(platforms=("p*",), requires_package="transformer_engine"),
    owner="fp8-team",
    opened=date(2026, 1, 19),
    expires=date(2026, 3, 1),
    max_failures=10,
)


@pytest.fixture
def context(stores):
    """As much of a context as these operations use."""
    clock = SimpleNamespace(now=lambda: NOW)
    return SimpleNamespace(stores=stores, similarity=FuzzySimilarity(), clock=clock)


def ran(stores, *lines, run_id="run-1", cell=0):
    """A cell of a run, with what its agent says; each line is a function of the agent."""
    known = stores.runs.get(run_id)
    cells = create(stores, run_id) if known is None else stores.cells.of_run(run_id)
    cell_id = cells[cell] if known is None else cells[cell].id
    agent = Agent(stores, attempt(stores, cell_id))
    assert agent.send(*(line(agent) for line in lines))
    return cell_id


def passes(name, **more):
    return lambda agent: agent.test(name, **more)


def fails(name, longrepr, **more):
    return lambda agent: agent.test(name, "failed", longrepr=longrepr, **more)


def said(name, outcome, **more):
    record = {"record": "outcome", "nodeid": name, "outcome": outcome}
    return lambda agent: agent.line("test", "unit", **record, **more)


def packages(**versions):
    return lambda agent: agent.line("environment", packages=versions)


TEN = [fails(f"tests/test_fp8_training.py::{t}", a10g_short(t, 9)) for t in A10G_TESTS]


# Signatures


def test_ten_failures_of_one_kind_are_one_cluster(stores, context):
    ran(stores, *TEN, passes("tests/test_a.py::fine"))
    ran(stores, fails("a", TPU_TRAINING), fails("b", TPU_DEVICE), cell=1)
    record = describe_run(stores, "run-1", at=NOW)
    assert [group.count for group in record.failure_groups] == [10, 1, 1]
    first = record.failure_groups[0]
    assert first.signature.frame == "kernel_pytorch.precision.fp8_training_engine.to_te_recipe"
    assert (first.platforms, first.cells, first.versions) == (("p0",), ("p0",), ("1.10",))
    assert len(first.tests) == 10
    assert (first.first_seen, first.last_seen) == (NOW, NOW)
    assert record.counts.failed == 12
    assert [one.count for one in review_run(context, "run-1").items] == [10, 1, 1]
    assert stores.failures.get(first.signature.id) == first.signature
    assert stores.failures.get("s0-none") is None


def test_a_product_is_looked_at_over_its_newest_runs(stores, context):
    for number in (1, 2, 3):
        ran(stores, fails("a", TPU_TRAINING), run_id=f"run-{number}")
    review = review_failures(context, product="proof", runs=2)
    (group,) = review.items
    assert (review.runs, group.count, group.runs) == (2, 2, 2)
    assert (review.is_cut, review_failures(context, product="other", runs=9).items) == (
        False,
        (),
    )
    spans = stores.failures.spans([group.signature.id, "s1-none"])
    assert spans == {group.signature.id: (NOW, NOW)}


def test_only_what_is_final_and_failed_is_gathered(stores):
    cell_id = ran(
        stores,
        lambda agent: agent.line(
            "test", "unit", record="report", nodeid="a", when="call", outcome="failed"
        ),
        passes("b"),
    )
    assert describe_run(stores, "run-1", at=NOW).failure_groups == ()
    stores.evidence.settle(cell_id, ())
    assert stores.failures.of_run("run-1") == []


def test_the_signature_goes_with_the_words_that_stand(stores):
    """A failure in the call stands over an error in the teardown, in any batching."""

    def report(when, longrepr):
        said = {"record": "report", "nodeid": "a", "when": when, "outcome": "failed"}
        return lambda agent: agent.line("test", "unit", **said, longrepr=longrepr)

    cell_id = ran(stores, report("call", TPU_TRAINING))
    other = Agent(stores, stores.cells.attempts(cell_id)[0].id, seq=1)
    other.sent = b"".join(stores.evidence.raw_events(other.attempt_id))
    assert other.send(report("teardown", TPU_DEVICE)(other))
    (failure,) = stores.failures.of_run("run-1")
    assert "no attribute 'training'" in failure.signature.message


def test_signatures_of_another_version_are_made_anew(stores, database):
    ran(stores, *TEN, fails("x", TPU_DEVICE), passes("y"))
    (big, small) = describe_run(stores, "run-1", at=NOW).failure_groups
    with database.sessions.write() as session:
        session.execute(text("INSERT INTO signature VALUES ('s0-a', 0, 'unknown', '', '', '')"))
        session.execute(text("UPDATE test_result SET signature = 's0-a' WHERE outcome = 6"))
        last = "(SELECT max(id) FROM test_case WHERE nodeid = 'x')"
        session.execute(text(f"UPDATE test_result SET signature = NULL WHERE test_id = {last}"))
    assert [stores.failures.regroup(limit=4) for _ in range(4)] == [4, 4, 3, 0]
    assert describe_run(stores, "run-1", at=NOW).failure_groups == (big, small)
    assert stores.failures.successors_of(["s0-a", "s1-b"]) == {
        "s0-a": frozenset({big.signature.id})
    }


def test_an_assertion_without_a_traceback_is_signed_again_by_its_test(stores, database):
    ran(stores, fails("t/test_a.py::test_a", "assert 1 == 2"))
    before = describe_run(stores, "run-1", at=NOW).failure_groups
    with database.sessions.write() as session:
        session.execute(text("UPDATE test_result SET signature = NULL"))
    assert stores.failures.regroup(limit=4) == 1
    assert describe_run(stores, "run-1", at=NOW).failure_groups == before
    assert before[0].signature.frame == "t/test_a.py::test_a"


def test_an_installed_product_is_told_from_a_library_by_what_the_agent_says(stores, database):
    """In the batch of the environment and in later ones, and where it is recomputed."""
    site = "../venv/lib/python3.11/site-packages/kernel_pytorch/"
    wheel = a10g_short("test_a", 9).replace("kernel_pytorch/", site)
    known = lambda agent: agent.line("environment", subject_imports=["kernel_pytorch"])  # noqa: E731
    cell_id = ran(stores, known, fails("a", wheel))
    later = Agent(stores, stores.cells.attempts(cell_id)[0].id, seq=4)
    later.sent = b"".join(stores.evidence.raw_events(later.attempt_id))
    assert later.send(fails("b", wheel)(later))
    ran(stores, fails("c", a10g_short("test_a", 9)), cell=1)
    ran(stores, fails("d", wheel), run_id="run-2")
    (group,) = describe_run(stores, "run-1", at=NOW).failure_groups
    assert (group.count, group.signature.kind) == (3, "product")
    (unknown,) = describe_run(stores, "run-2", at=NOW).failure_groups
    assert (unknown.signature.kind, unknown.signature.frame) == (
        "test",
        "tests.test_fp8_training.test_a",
    )
    with database.sessions.write() as session:
        session.execute(text("UPDATE test_result SET signature = NULL"))
    assert stores.failures.regroup(limit=100) == 4
    assert describe_run(stores, "run-1", at=NOW).failure_groups == (group,)
    assert describe_run(stores, "run-2", at=NOW).failure_groups == (unknown,)


def test_many_may_recluster_at_once(stores, database):
    ran(stores, *TEN)
    with database.sessions.write() as session:
        session.execute(text("UPDATE test_result SET signature = NULL"))
    together([lambda: stores.failures.regroup(limit=100)] * 3)
    assert stores.failures.regroup(limit=100) == 0
    assert [group.count for group in describe_run(stores, "run-1", at=NOW).failure_groups] == [10]


def test_two_who_meet_the_same_failure_at_once_do_not_wait_in_a_circle(stores):
    cells = create(stores, platforms=4)
    texts = [f"E   ValueError: kind {chr(97 + i)}" for i in range(20)]
    agents = [Agent(stores, attempt(stores, cell_id)) for cell_id in cells]

    def send(agent, texts):
        return lambda: agent.send(*(agent.test(t, "failed", longrepr=t) for t in texts))

    orders = [texts, texts[::-1], texts, texts[::-1]]
    assert together([send(*pair) for pair in zip(agents, orders, strict=True)]) == [True] * 4
    failure_groups = describe_run(stores, "run-1", at=NOW).failure_groups
    assert [group.count for group in failure_groups] == [4] * 20


# Tries before the last one


def test_earlier_tries_are_kept_and_prove_a_flake(stores):
    ran(stores, said("a", "passed", earlier=["failed", "error"]), said("b", "passed"))
    ran(stores, said("a", "passed", earlier=["nonsense"]), cell=1)
    tests = {fact.nodeid: fact for fact in stores.results.tests("run-1.p0")}
    assert tests["a"].earlier == (TestOutcome.FAILED, TestOutcome.ERROR)
    assert tests["b"].earlier == ()
    (test, _) = stores.tests.of_run("run-1")
    history = history_of(stores, test.id, limit=10)
    assert history.flaky.passed_on_retry == 1
    assert [go.earlier for go in history.goes][:1] == [tests["a"].earlier]


def test_a_job_has_the_number_of_tests_that_passed_on_retry(stores):
    ran(
        stores,
        said("a", "passed", earlier=["failed"]),
        said("b", "failed", earlier=["failed"]),
        said("c", "passed", earlier=["skipped"]),
        said("d", "passed"),
    )
    ran(stores, said("a", "passed", earlier=["failed", "passed"]), cell=1)
    found = stores.results.of_cells(["run-1.p0", "run-1.p1"])
    assert {cell: one.passed_on_retry for cell, one in found.items()} == {
        "run-1.p0": {"unit": 1},
        "run-1.p1": {"unit": 1},
    }


def test_tries_of_an_attempt_that_was_replaced_do_not_count(stores):
    def retried(agent):
        return agent.line("test", "unit", record="rerun", nodeid="a")

    cell_id = ran(stores, retried, retried)
    (fact,) = stores.results.tests(cell_id)
    assert fact.earlier == (TestOutcome.FAILED,) * 2
    again = Agent(stores, attempt_again(stores, cell_id))
    assert again.send(again.test("a"))
    (fact,) = stores.results.tests(cell_id)
    assert (fact.outcome, fact.earlier) == (TestOutcome.PASSED, ())


def attempt_again(stores, cell_id):
    (first,) = stores.cells.attempts(cell_id)
    stores.cells.enter(cell_id, CellState.RELEASING, at=NOW)
    stores.cells.requeue(first.id, Cause(Outcome.ERRORED, "lost", ""), at=NOW)
    return attempt(stores, cell_id, 2)


# Tests and their names

OLD = ["t.py::A::test_keeps", "t.py::A::test_moves", "t.py::A::test_goes_away"]
NEW = ["t.py::A::test_keeps", "t.py::B::test_moves", "t.py::B::test_completely_different"]


@pytest.fixture
def two_runs(stores):
    """The same suite in two versions."""
    ran(stores, *(passes(name) for name in OLD), run_id="run-1")
    ran(stores, *(fails(name, TPU_DEVICE) for name in NEW), run_id="run-2")


def test_a_person_confirms_that_a_test_moved(stores, context, two_runs):
    matching = suggest_aliases(context, "run-1", "run-2")
    (family,) = matching.families
    assert str(family.changes) == "3 = 1 same + 1 moved + 1 new, 1 gone"
    (alias,) = matching.suggestions
    assert (alias.old, alias.new, alias.change) == (OLD[1], NEW[1], NameChange.MOVED)
    assert (alias.state, alias.suggested_at) == (AliasState.SUGGESTED, NOW)
    assert suggest_aliases(context, "run-1", "run-2").suggestions == (alias,)
    assert len(history_of(stores, alias.new_test, limit=9).goes) == 1, "nothing is merged yet"

    decided = decide_alias(context, alias.id, AliasState.CONFIRMED, by="me")
    assert (decided.state, decided.decided_by, decided.decided_at) == ("confirmed", "me", NOW)
    for asked in (alias.old_test, alias.new_test):
        history = history_of(stores, asked, limit=9)
        assert (history.test.nodeid, [n.nodeid for n in history.names]) == (NEW[1], [OLD[1]])
        assert [go.outcome for go in history.goes] == [TestOutcome.FAILED, TestOutcome.PASSED]
    again = suggest_aliases(context, "run-1", "run-2")
    assert str(again.families[0].changes) == "3 = 2 same + 1 new, 1 gone"
    assert again.suggestions == ()

    undone = decide_alias(context, alias.id, AliasState.SUGGESTED, by="me")
    assert (undone.state, undone.decided_at, undone.decided_by) == ("suggested", None, "")
    assert len(history_of(stores, alias.new_test, limit=9).goes) == 1


def test_what_was_rejected_is_not_suggested_again(stores, context, two_runs):
    (alias,) = suggest_aliases(context, "run-1", "run-2").suggestions
    decide_alias(context, alias.id, AliasState.REJECTED, by="me")
    again = suggest_aliases(context, "run-1", "run-2")
    assert again.suggestions == ()
    assert str(again.families[0].changes) == "3 = 1 same + 2 new, 2 gone"
    assert [a.state for a in stores.aliases.list(product="proof")] == [AliasState.REJECTED]
    assert stores.aliases.list(product="other") == []
    assert stores.aliases.list(state=AliasState.CONFIRMED) == []
    assert decide_alias(context, 10**6, AliasState.REJECTED, by="me") is None
    assert stores.aliases.get(alias.id).state is AliasState.REJECTED


def test_decisions_that_contradict_each_other_are_refused(stores, context, two_runs):
    (alias,) = suggest_aliases(context, "run-1", "run-2").suggestions
    back = replace(alias, old_test=alias.new_test, new_test=alias.old_test)
    other = next(t for t in stores.tests.of_run("run-2") if t.nodeid == NEW[2])
    twice = replace(alias, new_test=other.id)
    stores.aliases.suggest([back, twice])
    ids = [one.id for one in stores.aliases.list()]
    decide_alias(context, alias.id, AliasState.CONFIRMED, by="me")
    with pytest.raises(AliasConflictError, match="circle"):
        decide_alias(context, ids[1], AliasState.CONFIRMED, by="me")
    with pytest.raises(AliasConflictError, match="another newer name"):
        decide_alias(context, ids[2], AliasState.CONFIRMED, by="me")
    assert stores.aliases.confirmed() == {alias.old_test: alias.new_test}
    assert stores.aliases.confirmed([alias.new_test]) == {}


def test_failures_of_a_test_under_two_names_are_one_test(stores, context):
    ran(stores, fails(OLD[1], a10g_short("test_a", 9)), run_id="run-1")
    ran(stores, fails(NEW[1], a10g_short("test_a", 9)), run_id="run-2")
    assert len(review_failures(context, product=None, runs=9).items[0].tests) == 2
    (alias,) = suggest_aliases(context, "run-1", "run-2").suggestions
    decide_alias(context, alias.id, AliasState.CONFIRMED, by="me")
    (group,) = review_failures(context, product=None, runs=9).items
    assert (group.tests, group.count) == ((NEW[1],), 2)


def test_tests_are_paged_and_filtered(stores, two_runs):
    def ask(**asked):
        known = {"product": None, "job": None, "contains": "", "limit": 100, "after": None}
        return stores.tests.page(**(known | asked))

    everything = ask()
    assert {test.nodeid for test in everything[:3]} == set(OLD)
    assert {test.nodeid for test in everything[3:]} == set(NEW[1:])
    assert everything.next is None
    first = ask(limit=2)
    assert [*first, *ask(limit=3, after=first.next)] == everything
    assert {test.nodeid for test in ask(contains="::B::")} == set(NEW[1:])
    assert ask(contains="%") == []
    assert ask(product="other") == []
    assert len(ask(job="unit", product="proof")) == 5
    assert stores.tests.get(everything[0].id) == everything[0]
    assert stores.tests.get(10**6) is None
    assert history_of(stores, 10**6, limit=5) is None


# Known issues


def test_a_known_issue_explains_failures_and_changes_no_count(stores):
    ran(stores, packages(transformer_engine="1.13"), *TEN, fails("other", TPU_DEVICE))
    issue = stores.known_issues.add(ISSUE)
    assert issue.id == "KI-0001"
    record = describe_run(stores, "run-1", at=NOW)
    assert [(c.count, c.tolerated, c.known_issues) for c in record.failure_groups] == [
        (10, 10, ("KI-0001",)),
        (1, 0, ()),
    ]
    assert [(u.issue, u.state, u.count) for u in record.known_issues] == [
        (issue, IssueState.APPLIES, 10)
    ]
    assert record.counts.failed == 11
    late = describe_run(stores, "run-1", at=NOW + timedelta(days=2))
    assert late.failure_groups[0].known_issues == ()
    assert [(u.state, u.count, u.expired_days) for u in late.known_issues] == [
        (IssueState.EXPIRED, 10, 2)
    ]


def test_it_is_stale_where_nothing_fails_so_and_absent_where_nothing_of_it_ran(stores):
    ran(stores, packages(transformer_engine="1.13"), passes("a"), run_id="run-1")
    ran(stores, passes("a"), run_id="run-2")
    stores.known_issues.add(ISSUE)
    states = [
        [u.state for u in describe_run(stores, f"run-{n}", at=NOW).known_issues] for n in "12"
    ]
    assert states == [[IssueState.UNMATCHED], []]


def test_a_person_ends_it_once(stores):
    issue = stores.known_issues.add(ISSUE)
    other = stores.known_issues.add(replace(ISSUE, product="other"))
    ended = stores.known_issues.end(issue.id, at=after(5), by="me")
    assert (ended.ended_at, ended.ended_by) == (after(5), "me")
    assert stores.known_issues.end(issue.id, at=after(9), by="you") == ended
    assert stores.known_issues.list(product="proof") == [ended]
    assert stores.known_issues.list() == [ended, other]
    for nobody in ("KI-0099", "KI-0", "nonsense", "KI-99999999999"):
        assert stores.known_issues.end(nobody, at=after(5), by="me") is None


def test_a_signature_that_was_made_anew_still_has_its_known_issue(stores, database):
    cell_id = ran(stores, *(fails(t, a10g_long(t, 5)) for t in A10G_TESTS))
    assert cell_id
    stores.known_issues.add(replace(ISSUE, match=IssueMatch(signature="s0-a"), scope=IssueScope()))
    with database.sessions.write() as session:
        session.execute(text("INSERT INTO signature VALUES ('s0-a', 0, 'unknown', '', '', '')"))
        session.execute(text("UPDATE test_result SET signature = 's0-a'"))
    stores.failures.regroup(limit=100)
    (group,) = describe_run(stores, "run-1", at=NOW).failure_groups
    assert group.known_issues == ("KI-0001",)


def test_times_are_aware(stores):
    ran(stores, fails("a", TPU_DEVICE))
    (failure,) = stores.failures.of_run("run-1")
    assert failure.at.tzinfo == UTC
    assert isinstance(failure.at, datetime)


def test_no_cursor_is_too_great_for_a_list(stores):
    """A cursor of REST may have 53 bits, and a column's numbers 31."""
    greatest = 2**53 - 1
    assert stores.aliases.list(page=PageAsked(5, greatest)) == []
    assert stores.tests.page(product=None, job=None, contains="", limit=5, after=greatest) == []
    assert stores.outbox.log("c-none", limit=5, before=greatest) == []
