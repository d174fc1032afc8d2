"""Firings from the first look to the last word, whoever dies on the way."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.application.rerun_run import rerun_run
from orchestrator.application.schedules import (
    pause_schedule,
    remove_schedule,
    resume_schedule,
    trigger_schedule,
)
from orchestrator.domain.commit import Commit
from orchestrator.domain.matrix import GitSource
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.schedule import CatchUp, Overlap, SubjectKind, SubjectSelector
from tests.databases import together
from tests.integration.api_context import desk
from tests.integration.schedule_world import BRANCH, COMMITS, DiedError, Watch, watch_of

TOLD, LAUNCHED, CLAIMED = "notified", "launched", "claimed"


@pytest.fixture
def watch(tmp_path: Path, sqlite_url: str) -> Iterator[Watch]:
    with desk(tmp_path, sqlite_url) as opened:
        yield watch_of(opened)


def test_a_night_fires_once_and_is_told_once(watch: Watch) -> None:
    watch.add()
    watch.at(20, 23, 59)
    assert watch.history() == []
    watch.at(21, 0)
    watch.at(21, 0, 1)
    assert watch.history() == [("10-21 00:00", LAUNCHED, "")]
    watch.end_runs()
    watch.look()
    assert watch.history() == [("10-21 00:00", TOLD, "passed")]
    assert len(watch.runs()) == 1
    [said] = watch.bench.told
    assert (said.state.value, said.lineage) == ("pass", "run@nightly")
    assert said.title == "nightly: PASS for proof 1.10"
    assert said.facts["runs"] == watch.runs()[0]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.FAILED, "fail"),
        (Outcome.TIMED_OUT, "fail"),
        (Outcome.ERRORED, "errored"),
        (Outcome.NOT_AVAILABLE, "inconclusive"),
        (Outcome.CANCELLED, "inconclusive"),
    ],
)
def test_without_a_gate_the_run_is_what_is_told(watch: Watch, outcome: Outcome, state: str) -> None:
    watch.add()
    watch.at(21, 0)
    watch.end_runs(outcome)
    assert watch.bench.states == [state]


def test_many_controllers_make_one_run(watch: Watch) -> None:
    watch.add(subject=BRANCH)
    watch.api.clock.move(days=1)
    lease_s = 60.0
    assert together([lambda: watch.look(lease_s=lease_s)] * 6) == [None] * 6
    assert len(watch.firings()) == 1
    assert len(watch.runs()) == 1
    assert watch.subjects.built == [COMMITS[0]]


def test_a_worker_that_dies_after_launching_has_launched_once(watch: Watch) -> None:
    def die(cell_id: str) -> None:
        raise DiedError

    watch.add()
    living, dying = watch.context, replace(watch.context, wake=die)
    watch.context = dying
    with pytest.raises(DiedError):
        watch.at(21, 0)
    assert watch.history() == [("10-21 00:00", "resolved", "")]
    watch.context = living
    watch.look()
    assert watch.history() == [("10-21 00:00", LAUNCHED, "")]
    assert watch.firings()[0].run == watch.runs()[0]
    assert len(watch.runs()) == 1


def test_a_worker_that_dies_while_it_builds_is_taken_over(watch: Watch) -> None:
    def die() -> None:
        watch.subjects.on_build = None
        raise DiedError

    watch.subjects.on_build = die
    watch.add(subject=BRANCH)
    with pytest.raises(DiedError):
        watch.at(21, 0)
    watch.at(21, 0, 1)
    assert watch.history() == [("10-21 00:00", LAUNCHED, "")]
    assert len(watch.runs()) == 1


def test_what_another_holds_is_left_alone_and_built_once(watch: Watch, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> None:
        begun.set()
        assert go_on.wait(60)

    watch.subjects.on_build = slowly
    watch.add(subject=BRANCH)
    watch.api.clock.move(days=1)
    slow = threading.Thread(target=watch.look, kwargs={"lease_s": 60.0})
    slow.start()
    assert begun.wait(60)
    for _ in range(3):
        watch.look()
        assert watch.history() == [("10-21 00:00", CLAIMED, "")]
    go_on.set()
    slow.join(60)
    assert watch.subjects.built == [COMMITS[0]]
    assert watch.history() == [("10-21 00:00", LAUNCHED, "")]


def test_a_hold_is_renewed_for_as_long_as_a_build_takes(watch: Watch, tmp_path: Path) -> None:
    seen: list[float] = []

    def until_renewed() -> None:
        with closing(sqlite3.connect(tmp_path / "app.db")) as database:
            for _ in range(1000):
                seen.extend(database.execute("SELECT claim_expires_s FROM firing").fetchone())
                if len(set(seen)) == 3:
                    return
                threading.Event().wait(0.05)

    watch.subjects.on_build = until_renewed
    watch.add(subject=BRANCH)
    watch.api.clock.move(days=1)
    watch.look(lease_s=0.5)
    assert len(set(seen)) == 3
    assert watch.history() == [("10-21 00:00", LAUNCHED, "")]


def test_a_run_tests_the_commit_of_the_schedules_payload(watch: Watch) -> None:
    commit = Commit(sha=COMMITS[3], branch="main", author="Ann", is_dirty=True)
    watch.add(commit=commit)
    watch.at(21, 0)
    run = watch.context.stores.runs.get(watch.runs()[0])
    assert run is not None
    assert run.commit == commit


def test_the_subject_is_what_the_branch_is_at_when_it_fires(watch: Watch) -> None:
    watch.add(subject=BRANCH)
    watch.subjects.commit = COMMITS[7]
    watch.at(21, 0)
    run = watch.context.stores.runs.get(watch.runs()[0])
    spec = watch.context.stores.runs.spec(watch.runs()[0])
    assert spec.matrix.subject.git == GitSource(url=BRANCH.url, rev=COMMITS[7])
    assert run is not None
    assert run.subject_version == f"1.10+{COMMITS[7][-4:]}"
    assert spec.subject_digest is not None
    assert watch.context.blobs.has(spec.subject_digest)
    built = f"in a test from {BRANCH.url} at {COMMITS[7]}"
    assert spec.subject_built == built
    assert watch.firings()[0].resolved.remarks == (f"the wheel was built {built}",)
    watch.end_runs()
    again = rerun_run(watch.context, watch.runs()[0], only=None, key=None)
    assert watch.context.stores.runs.spec(again.run.id).subject_built == built
    assert COMMITS[7][:12] in watch.bench.told[0].title
    assert watch.bench.told[0].facts["git_sha"] == COMMITS[7]


@pytest.mark.parametrize(("prereleases", "version"), [(False, "1.11"), (True, "1.11rc1")])
def test_the_subject_is_the_newest_version_when_it_fires(
    watch: Watch, prereleases: bool, version: str
) -> None:
    watch.add(subject=SubjectSelector(kind=SubjectKind.LATEST, prereleases=prereleases))
    watch.at(21, 0)
    subject = watch.context.stores.runs.spec(watch.runs()[0]).matrix.subject
    assert (subject.package, subject.version) == (f"proof=={version}", version)


def test_a_branch_that_is_gone_is_told_and_nothing_runs(watch: Watch) -> None:
    watch.add(subject=BRANCH)
    watch.subjects.gone = True
    watch.at(21, 0)
    assert watch.history() == [("10-21 00:00", TOLD, "errored")]
    [said] = watch.bench.told
    assert said.state.value == "errored"
    assert "has no branch 'main' (any more)" in said.text
    assert watch.runs() == []


def test_what_may_pass_by_itself_is_tried_again_later(watch: Watch) -> None:
    watch.add(subject=BRANCH)
    watch.subjects.away = 2
    watch.at(21, 0)
    watch.look()
    [firing] = watch.firings()
    assert (firing.state.value, firing.tries) == (CLAIMED, 1)
    assert firing.retry_at == firing.due_at + timedelta(seconds=30)
    watch.at(21, 0, 1)
    watch.at(21, 0, 2)
    [firing] = watch.firings()
    assert (firing.state.value, firing.tries, firing.reason) == (LAUNCHED, 0, "")


def test_it_is_not_tried_for_ever(watch: Watch) -> None:
    watch.add(subject=BRANCH)
    watch.subjects.away = 1000
    for minute in range(0, 60, 4):
        watch.at(21, 0, minute)
    assert watch.history() == [("10-21 00:00", TOLD, "errored")]
    assert watch.subjects.away == 1000 - 6
    assert "does not answer (tried 6 times)" in watch.bench.told[0].text


def test_no_verdict_by_the_deadline_is_told_and_a_late_one_clears_it(watch: Watch) -> None:
    watch.add(deadline="06:00")
    watch.at(21, 0)
    watch.at(21, 3, 59)
    assert watch.bench.told == []
    watch.at(21, 4)
    watch.at(21, 5)
    assert watch.bench.states == ["late"]
    assert watch.bench.told[0].title == "nightly: no verdict by 2026-10-21 04:00 UTC"
    watch.end_runs()
    assert watch.bench.states == ["late", "pass"]
    assert "after the deadline" in watch.bench.told[1].text


def test_a_deadline_may_count_from_when_it_was_due(watch: Watch) -> None:
    watch.add(deadline="90m")
    watch.at(21, 0)
    watch.at(21, 1, 29)
    assert watch.bench.states == []
    watch.at(21, 1, 30)
    assert watch.bench.states == ["late"]


@pytest.mark.parametrize("overlap", Overlap)
def test_nights_that_overlap(watch: Watch, overlap: Overlap) -> None:
    watch.add(overlap=overlap)
    watch.at(21, 0).at(22, 0)
    waits = ("10-22 00:00", CLAIMED, "")
    skipped = ("10-22 00:00", TOLD, "skipped")
    second = skipped if overlap is Overlap.SKIP else waits
    assert watch.history() == [("10-21 00:00", LAUNCHED, ""), second]
    watch.look()
    run = watch.context.stores.runs.get(watch.runs()[0])
    assert run is not None
    assert bool(run.cancel_requested_at) is (overlap is Overlap.CANCEL_PREVIOUS)
    assert watch.bench.told == []
    watch.end_runs(Outcome.CANCELLED if run.cancel_requested_at else Outcome.PASSED)
    watch.look()
    if overlap is Overlap.SKIP:
        assert "10-21 00:00 UTC is not over" in watch.firings()[1].reason
        assert len(watch.runs()) == 1
        return
    assert [state for _, state, _ in watch.history()] == [TOLD, LAUNCHED]
    watch.end_runs()
    assert watch.history()[1] == ("10-22 00:00", TOLD, "passed")
    assert watch.bench.states[-1] == "pass"


@pytest.mark.parametrize(
    ("catch_up", "history"),
    [
        (CatchUp.NONE, [TOLD, TOLD, TOLD]),
        (CatchUp.LATEST, [TOLD, TOLD, LAUNCHED]),
        (CatchUp.ALL, [TOLD, LAUNCHED, CLAIMED]),
    ],
)
def test_three_nights_without_a_controller(
    watch: Watch, catch_up: CatchUp, history: list[str]
) -> None:
    watch.add(catch_up=catch_up, overlap=Overlap.QUEUE, catch_up_hours=36)
    watch.at(23, 8)
    assert [state for _, state, _ in watch.history()] == history
    missed = history.count(TOLD)
    assert [outcome for *_, outcome in watch.history()][:missed] == ["missed"] * missed
    assert watch.bench.states == (["errored"] if catch_up is CatchUp.NONE else [])
    watch.look()
    assert len(watch.firings()) == 3


def test_a_pause_is_not_made_up_for(watch: Watch) -> None:
    watch.add()
    pause_schedule(watch.context, "nightly")
    watch.at(22, 8)
    resume_schedule(watch.context, "nightly")
    watch.look()
    assert watch.history() == []
    watch.at(23, 0)
    assert watch.history() == [("10-23 00:00", LAUNCHED, "")]


def test_a_person_triggers_it_besides_its_times(watch: Watch) -> None:
    watch.add()
    pause_schedule(watch.context, "nightly")
    first = trigger_schedule(watch.context, "nightly", by="me")
    assert trigger_schedule(watch.context, "nightly", by="you") == first
    watch.look()
    watch.end_runs()
    assert watch.history() == [("10-20 12:00", TOLD, "passed")]
    assert "triggered by me" in watch.bench.told[0].text


def test_a_removed_one_leaves_its_run_to_itself(watch: Watch) -> None:
    watch.add()
    watch.at(21, 0)
    remove_schedule(watch.context, "nightly")
    watch.end_runs()
    assert watch.firings() == []
    assert watch.bench.told == []
    watch.add()
    watch.at(22, 0)
    assert watch.history() == [("10-22 00:00", LAUNCHED, "")]
