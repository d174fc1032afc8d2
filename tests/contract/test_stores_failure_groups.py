"""Kinds of failures over many runs: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from datetime import date, timedelta
from types import SimpleNamespace

import pytest

from orchestrator.adapters.lazy_statistics import FuzzySimilarity
from orchestrator.application.describe_run import describe_run
from orchestrator.application.failure_groups import (
    FailureGroupFilter,
    list_failure_groups,
    show_failure_group,
    with_similar,
)
from orchestrator.application.known_issues import IssueStatus, list_issues
from orchestrator.application.list_flaky import list_flaky
from orchestrator.application.quarantine import (
    NewQuarantine,
    add_quarantine,
    suggest_quarantines,
)
from orchestrator.application.triage_failures import TriageStatus
from orchestrator.domain.caller_identity import Person
from orchestrator.domain.flaky import FailureOrigin, FlakySignal
from orchestrator.domain.known_issue import IssueMatch, IssueScope, KnownIssue
from orchestrator.domain.node_ids import Alias, AliasState, NameChange
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.failure_groups import Window
from tests.databases import NOW, ON_SQLITE, after
from tests.failure_groups_world import RETRIED, KindsWorld, raises

DAY = 86_400.0
SHAPES = raises("expected 3 dimensions, got 2", frame="ops.reshape")
ME = Person("me", "t-1")
DISK = raises("no space left on device", "OSError")
DIMENSIONS = IssueMatch(contains="dimensions")


@pytest.fixture
def context(stores):
    """As much of a context as these operations use; its clock can be set."""
    clock = SimpleNamespace(at=NOW)
    clock.now = lambda: clock.at
    return SimpleNamespace(stores=stores, similarity=FuzzySimilarity(), clock=clock)


@pytest.fixture
def world(stores):
    return KindsWorld(stores, NOW)


def reviewed(context, **asked):
    return list_failure_groups(context, FailureGroupFilter(product="proof", **asked))


def issue(context, **more):
    known = {
        "id": "",
        "product": "proof",
        "title": "shapes",
        "match": DIMENSIONS,
        "owner": "ops-team",
        "opened": NOW.date(),
        "expires": date(2026, 4, 1),
    }
    return context.stores.known_issues.add(KnownIssue(**(known | more)))


# Kinds


def test_failures_of_many_runs_are_gathered_where_they_are_stored(world, context):
    for _ in range(3):
        world.run({"a": SHAPES, "b": SHAPES, "c": ""}, {"a": DISK})
    review = reviewed(context, runs=2)
    (big, small) = review.kinds
    assert (big.count, big.platforms, big.status) == (4, ("p0",), TriageStatus.NEW)
    assert (small.count, small.platforms, small.jobs) == (2, ("p1",), ("unit",))
    assert (review.runs, review.platforms, review.versions) == (2, ("p0", "p1"), ("1.10",))
    assert sorted(big.tests.values()) == [2, 2]
    assert (big.runs, big.cells, big.versions) == (2, ("p0",), ("1.10",))
    assert list_failure_groups(context, FailureGroupFilter(product="other")).kinds == []


def test_platform_version_and_words_restrict_all_figures(world, context):
    world.run({"a": SHAPES}, {"a": SHAPES, "b": SHAPES, "c": DISK}, version="1")
    world.run({"a": SHAPES}, {}, version="2")
    (disk, there) = sorted(reviewed(context, platform="p1").kinds, key=lambda kind: kind.count)
    assert (disk.count, there.count, there.platforms, len(there.tests)) == (1, 2, ("p1",), 2)
    (newer,) = reviewed(context, version="2").kinds
    assert (newer.count, newer.versions) == (1, ("2",))
    assert reviewed(context, version="3").kinds == []
    (said,) = reviewed(context, text="No SPACE").kinds
    assert said.signature == disk.signature
    assert reviewed(context).versions == ("2", "1")


def test_the_beginning_is_known_beyond_what_is_looked_at(world, context, stores):
    for _ in range(3):
        world.run({"a": SHAPES})
    context.clock.at = after(20 * DAY)
    (kind,) = reviewed(context, runs=1).kinds
    assert (kind.runs, kind.first_seen, kind.last_seen) == (1, NOW, after(2 * DAY))
    assert kind.status is TriageStatus.UNOWNED, "it has been there for longer than a week"
    name = kind.signature.id
    assert stores.failures.spans([name, "s1-none"]) == {name: (NOW, after(2 * DAY))}
    assert stores.failures.spans([]) == {}
    assert stores.failure_groups.named([name, "s1-none"]) == {name: kind.signature}


def test_nothing_of_nothing(stores):
    assert stores.failure_groups.window([]) == Window(groups=[])
    assert stores.failure_groups.failing([]) == []
    assert stores.failure_groups.outcomes_of([], []) == []
    assert stores.failure_groups.places("s1-none", limit=5).items == []
    assert stores.failure_groups.tests([10**6]) == {}


@ON_SQLITE
def test_alike_kinds_are_suggested(world, context):
    world.run({"a": raises("a weight of layer one is lost"), "b": raises("a weight is lost")})
    review = reviewed(context)
    told = with_similar(context, review.kinds)
    assert [kind.similar for kind in told] == [
        (review.kinds[1].signature.id,),
        (review.kinds[0].signature.id,),
    ]
    shown = show_failure_group(context, review.kinds[0].signature.id)
    assert shown.alike == [review.kinds[1].signature]


def test_one_kind_is_shown_with_its_words_and_places(world, context):
    first = world.run({"a": raises("got 1 of 7")}, {"a": raises("got 1 of 7")})
    newest = world.run({"a": raises("got 2 of 7"), "b": raises("got 1 of 7")}, {})
    (kind,) = reviewed(context).kinds
    shown = show_failure_group(context, kind.signature.id)
    assert [(one.message, one.count) for one in shown.variants] == [
        ("E   ValueError: got 1 of 7", 3),
        ("E   ValueError: got 2 of 7", 1),
    ]
    assert shown.traceback.endswith("got 2 of 7") or shown.traceback.endswith("got 1 of 7")
    assert (shown.newest.run_id, shown.newest.name, shown.product) == (newest, "p0", "proof")
    spots = {
        (shown.tests[s.test_id].nodeid, s.cell.name): (s.cell.run_id, s.count) for s in shown.spots
    }
    assert spots == {("a", "p0"): (newest, 2), ("b", "p0"): (newest, 1), ("a", "p1"): (first, 1)}
    assert (shown.kind.count, shown.most_in_a_run, shown.is_cut) == (4, 2, False)
    assert show_failure_group(context, "s1-none") is None


# Who answers


def test_known_issues_explain_and_lapse(world, context):
    world.run({"a": SHAPES}, {"a": SHAPES})
    here = issue(context, scope=IssueScope(platforms=("p0",)))
    (kind,) = reviewed(context).kinds
    assert (kind.status, kind.answering.tolerated) == (TriageStatus.NEW, 1), "in one of two places"
    there = issue(context, scope=IssueScope(platforms=("p1",)))
    (kind,) = reviewed(context).kinds
    assert (kind.status, kind.answering.issues) == (TriageStatus.KNOWN, (here, there))
    assert kind.answering.owners == ("ops-team",)
    context.clock.at = NOW + timedelta(days=60)
    (kind,) = reviewed(context).kinds
    assert (kind.status, kind.answering.over) == (TriageStatus.LAPSED, (here, there))


def test_an_issue_that_asks_for_a_package_explains_only_where_it_is(world, context):
    asks = IssueScope(requires_package="transformer_engine>=2")
    issue(context, scope=asks)
    world.run({"a": SHAPES}, packages={"transformer-engine": "1.9"})
    assert reviewed(context).kinds[0].status is TriageStatus.NEW
    (shown,) = list_issues(context, "proof", runs=20).issues
    assert shown.status is IssueStatus.UNTRIED
    world.run({"a": SHAPES}, packages={"transformer-engine": "2.1"})
    assert reviewed(context, runs=1).kinds[0].status is TriageStatus.KNOWN


def test_an_issue_that_names_tests_explains_these_alone(world, context):
    one = issue(context, scope=IssueScope(tests=("a",)))
    run = world.run({"a": SHAPES, "b": SHAPES}, {"b": SHAPES})
    (kind,) = reviewed(context).kinds
    assert (kind.status, kind.answering.tolerated, kind.count) == (TriageStatus.NEW, 1, 3)
    (shown,) = list_issues(context, "proof", runs=20).issues
    assert (shown.status, shown.seen) == (IssueStatus.APPLIES, 1)
    (group,) = describe_run(context.stores, run, at=NOW).failure_groups
    assert (group.known_issues, group.tolerated, group.count) == ((one.id,), 1, 3)
    issue(context, scope=IssueScope(tests=("a", "b")))
    (kind,) = reviewed(context).kinds
    assert (kind.status, kind.answering.tolerated) == (TriageStatus.KNOWN, 3)
    context.stores.known_issues.end("KI-0002", at=NOW, by="me")
    world.run({"b": SHAPES})
    (shown, _) = list_issues(context, "proof", runs=1).issues
    assert shown.status is IssueStatus.UNTRIED


@ON_SQLITE
def test_a_quarantine_answers_where_it_covers_every_place(world, context):
    world.run({"a": SHAPES}, {"a": SHAPES})
    new = {
        "product": "proof",
        "nodeid": "a",
        "reason": "seed",
        "owner": "me",
        "days": 9,
    }
    first = add_quarantine(context, NewQuarantine(**new, platforms=("p0",)), author=ME)
    assert reviewed(context).kinds[0].status is TriageStatus.NEW
    other = add_quarantine(context, NewQuarantine(**new, platforms=("p1",)), author=ME)
    (kind,) = reviewed(context).kinds
    assert (kind.status, kind.answering.quarantines) == (TriageStatus.QUARANTINED, (first, other))


@ON_SQLITE
def test_known_issues_are_held_against_the_newest_runs(world, context):
    world.run({"c": DISK}, days=-1)
    world.run({"a": SHAPES, "b": SHAPES, "c": ""}, days=0)
    known = {
        "stale": issue(context, match=IssueMatch(contains="no space")),
        "applies": issue(context, max_failures=2),
        "exceeded": issue(context, max_failures=1),
        "unmatched": issue(context, match=IssueMatch(contains="something else")),
        "untried": issue(context, scope=IssueScope(platforms=("tpu",))),
        "expired_failing": issue(context, expires=NOW.date() - timedelta(days=1)),
        "expired": issue(context, match=IssueMatch(frame="x"), expires=date(2026, 1, 1)),
        "ended": issue(context),
    }
    context.stores.known_issues.end(known["ended"].id, at=NOW, by="me")
    shown = {one.issue.id: one for one in list_issues(context, "proof", runs=1).issues}
    assert {word: shown[one.id].status for word, one in known.items()} == {
        word: IssueStatus(word) for word in known
    }
    active = shown[known["applies"].id]
    assert (active.seen, active.most, active.last_run) == (2, 2, world.runs[1])
    assert (active.days_left, active.is_near) == (31, False)
    assert list_issues(context, "other", runs=20).issues == []


@ON_SQLITE
def test_an_issue_of_a_job_that_did_not_run_is_not_stale(world, context):
    world.run({"a": ""})
    issue(context, scope=IssueScope(jobs=("demo",)))
    issue(context, scope=IssueScope(jobs=("unit",)))
    standings = {one.status for one in list_issues(context, "proof", runs=20).issues}
    assert standings == {IssueStatus.UNTRIED, IssueStatus.UNMATCHED}


def test_an_issue_is_stale_only_where_a_test_that_failed_so_ran(world, context):
    world.run({"a": SHAPES, "b": ""})
    known, other = issue(context), issue(context, match=IssueMatch(contains="other words"))
    states = {"known": [], "other": [], "record": []}
    for tests in ({"b": ""}, {"a": "", "b": ""}, {"a": DISK}, {"a": SHAPES}):
        run = world.run(tests)
        shown = {one.issue.id: one.status for one in list_issues(context, "proof", runs=1).issues}
        states["known"].append(shown[known.id])
        states["other"].append(shown[other.id])
        record = describe_run(context.stores, run, at=NOW)
        states["record"].append([use.state.value for use in record.known_issues])
    assert states == {
        "known": ["untried", "stale", "stale", "applies"],
        "other": ["unmatched"] * 4,
        "record": [
            ["untried", "unmatched"],
            ["stale", "unmatched"],
            ["stale", "unmatched"],
            ["applies", "unmatched"],
        ],
    }


@ON_SQLITE
def test_a_test_with_another_name_now_is_a_test_of_its_issue(world, context):
    world.run({"old": SHAPES})
    issue(context)
    world.run({"new": ""})
    (old,) = context.stores.failure_groups.find_tests("proof", ["old"])
    (new,) = context.stores.failure_groups.find_tests("proof", ["new"])
    (before,) = list_issues(context, "proof", runs=1).issues
    named = Alias(
        id=0,
        product="proof",
        job="unit",
        old_test=old.id,
        old="old",
        new_test=new.id,
        new="new",
        change=NameChange.RENAMED,
        similarity=0.9,
        state=AliasState.SUGGESTED,
        suggested_at=NOW,
    )
    context.stores.aliases.suggest([named])
    (suggested,) = context.stores.aliases.list()
    context.stores.aliases.decide(suggested.id, AliasState.CONFIRMED, at=NOW, by="me")
    (after_it,) = list_issues(context, "proof", runs=1).issues
    assert (before.status, after_it.status) == (IssueStatus.UNTRIED, IssueStatus.STALE)


# Unsteady tests


def test_a_pass_on_retry_is_certain(world, context):
    world.run({"a": "", "b": ""})
    newest = world.run({"a": RETRIED, "b": ""})
    review = list_flaky(context, "proof", runs=20)
    (flaky,) = review.tests
    assert (flaky.test.nodeid, flaky.how, flaky.evidence.passed_on_retry) == ("a", "retried", 1)
    assert flaky.pair.bad is flaky.pair.good
    assert (flaky.pair.bad.go.run, flaky.platforms) == (newest, ("p0",))
    assert (flaky.whose, review.suspects, review.runs) == (FailureOrigin.UNKNOWN, 1, 2)


def test_both_with_one_version_is_shown_by_two_runs(world, context):
    good = world.run({"a": "", "b": DISK}, version="1")
    bad = world.run({"a": SHAPES, "b": ""}, version="1")
    (one, other) = sorted(list_flaky(context, "proof", runs=20).tests, key=lambda t: t.test.nodeid)
    assert (one.how, one.whose, other.whose) == (
        FlakySignal.SPLIT,
        FailureOrigin.TEST,
        FailureOrigin.INFRA,
    )
    assert (one.pair.bad.go.run, one.pair.good.go.run) == (bad, good)
    assert one.evidence.results == 2
    assert one.last_seen == after(DAY)


@ON_SQLITE
def test_what_broke_and_was_mended_is_not_unsteady(world, context):
    for number in range(8):
        raised = SHAPES if number in (3, 4) else ""
        world.run({"a": raised, "b": SHAPES}, {"a": raised}, version=str(number))
    review = list_flaky(context, "proof", runs=20)
    assert (review.tests, review.suspects) == ([], 0)


@ON_SQLITE
@pytest.mark.parametrize("change", ["payload", "wheel", "commit"])
def test_what_was_broken_and_mended_under_one_version_is_not_unsteady(world, context, change):
    for number in range(8):
        raised = SHAPES if number % 3 == 1 else ""
        world.run({"a": raised}, **{change: f"{change}-{number}"})
    review = list_flaky(context, "proof", runs=20)
    assert (review.tests, review.suspects) == ([], 0)
    assert suggest_quarantines(context, "proof") == ()
    world.run({"a": SHAPES}, **{change: f"{change}-0"})
    (flaky,) = list_flaky(context, "proof", runs=20).tests
    assert (flaky.how, flaky.evidence.flips, flaky.evidence.failures) == (FlakySignal.SPLIT, 1, 1)
    (suggested,) = suggest_quarantines(context, "proof")
    assert suggested.evidence == flaky.evidence


def test_a_cell_that_is_not_done_proves_nothing(world, context):
    world.run({"a": ""}, version="1")
    world.run({"a": SHAPES}, version="1", done=False)
    assert list_flaky(context, "proof", runs=20).tests == []


@ON_SQLITE
def test_quarantines_tell_what_they_excuse_and_who_may_return(world, context):
    world.run({"a": SHAPES})
    new = {
        "product": "proof",
        "nodeid": "a",
        "reason": "seed",
        "owner": "me",
        "days": 9,
    }
    context.clock.at = after(DAY / 2)
    held = add_quarantine(context, NewQuarantine(**new, returns_after=5), author=ME)
    for raised in (SHAPES, "", ""):
        world.run({"a": raised})
    context.clock.at = after(4 * DAY)
    (shown,) = list_flaky(context, "proof", runs=20).quarantines
    assert (shown.quarantine, shown.state, shown.failures, shown.passes) == (held, "active", 1, 2)
    context.stores.quarantines.end(held.id, at=after(4 * DAY), by="me")
    (shown,) = list_flaky(context, "proof", runs=20).quarantines
    assert (shown.state, shown.failures) == ("ended", 1)


def test_where_tests_passed_and_failed_is_told_in_few_rows(world, stores):
    world.run({"a": "", "b": RETRIED}, {"a": SHAPES})
    world.run({"a": ""}, {"a": ""})
    cells = stores.failure_groups.cells("proof", runs=9).cells
    (a, b) = stores.failure_groups.find_tests("proof", ["a", "b", "none"])
    outcomes_of = stores.failure_groups.outcomes_of([a.id, b.id], cells)
    told = {(one.test_id, one.outcome): len(one.cells) for one in outcomes_of}
    assert told == {
        (a.id, TestOutcome.PASSED): 3,
        (a.id, TestOutcome.FAILED): 1,
        (b.id, TestOutcome.PASSED): 1,
    }
    (((test, _), earlier),) = stores.failure_groups.retried(cells).items()
    assert (test, earlier) == (b.id, (TestOutcome.FAILED,))
    suites = stores.failure_groups.suites(cells)
    assert set(suites.values()) == {frozenset({"unit"})}
    assert stores.failure_groups.find_tests("other", ["a"]) == []
