"""Firings of one schedule that meet, in whatever order they are written: one run at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from orchestrator.application.schedules import trigger_schedule
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.schedule import Overlap
from tests.databases import ON_SQLITE, together
from tests.integration.api_context import desk
from tests.integration.schedule_world import BRANCH, Watch, watch_of

TOLD, LAUNCHED, CLAIMED = "notified", "launched", "claimed"
DUE, A_SECOND_LATER = "10-21 00:00:00", "10-21 00:00:01"
LEASE_S = 60.0


@pytest.fixture
def watch(tmp_path: Path, database_url: str) -> Iterator[Watch]:
    with desk(tmp_path, database_url) as opened:
        yield watch_of(opened)


def trigger(watch: Watch) -> None:
    """A person triggers it a second after its time."""
    watch.api.clock.time = datetime(2026, 10, 21, 0, 0, 1, tzinfo=UTC)
    trigger_schedule(watch.context, "nightly", by="ada")


def triggered_first(watch: Watch, monkeypatch: pytest.MonkeyPatch, overlap: Overlap) -> None:
    """A look that asked before its time what is due begins the one that a person triggered."""
    watch.add(overlap=overlap)
    trigger(watch)
    with monkeypatch.context() as before:
        before.setattr(watch.context.stores.schedules, "due", lambda now: [])
        watch.look()
    assert history(watch) == [(A_SECOND_LATER, LAUNCHED, "")]


def history(watch: Watch) -> list[tuple[str, str, str]]:
    known = watch.firings()
    return [(f"{one.due_at:%m-%d %H:%M:%S}", one.state.value, one.outcome) for one in known]


def live(watch: Watch) -> list[str]:
    """The runs that no end was asked of and that have none."""
    known = (watch.context.stores.runs.get(run_id) for run_id in watch.runs())
    return [run.id for run in known if run and not (run.outcome or run.cancel_requested_at)]


@ON_SQLITE
def test_one_that_was_due_earlier_and_written_later_skips_itself(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    triggered_first(watch, monkeypatch, Overlap.SKIP)
    watch.look()
    assert history(watch) == [(DUE, TOLD, "skipped"), (A_SECOND_LATER, LAUNCHED, "")]
    reason = watch.firings()[0].reason
    assert reason == "the firing of 2026-10-21 00:00 UTC, triggered by ada, is not over"
    watch.end_runs()
    assert history(watch)[1] == (A_SECOND_LATER, TOLD, "passed")
    assert len(watch.runs()) == 1


@ON_SQLITE
def test_one_that_was_due_earlier_and_written_later_queues(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    triggered_first(watch, monkeypatch, Overlap.QUEUE)
    watch.look()
    assert history(watch) == [(DUE, CLAIMED, ""), (A_SECOND_LATER, LAUNCHED, "")]
    watch.end_runs()
    watch.look()
    assert history(watch) == [(DUE, LAUNCHED, ""), (A_SECOND_LATER, TOLD, "passed")]
    watch.end_runs()
    assert [outcome for *_, outcome in history(watch)] == ["passed", "passed"]


@ON_SQLITE
def test_one_that_was_due_earlier_and_written_later_cancels_what_runs(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    triggered_first(watch, monkeypatch, Overlap.CANCEL_PREVIOUS)
    watch.look()
    watch.look()
    assert history(watch) == [(DUE, CLAIMED, ""), (A_SECOND_LATER, LAUNCHED, "")]
    assert live(watch) == []
    watch.end_runs(Outcome.CANCELLED)
    watch.look()
    assert history(watch) == [(DUE, LAUNCHED, ""), (A_SECOND_LATER, TOLD, "cancelled")]
    watch.end_runs()
    assert [outcome for *_, outcome in history(watch)] == ["passed", "cancelled"]


@ON_SQLITE
@pytest.mark.parametrize(
    ("overlap", "second"),
    [
        (Overlap.SKIP, (A_SECOND_LATER, TOLD, "skipped")),
        (Overlap.QUEUE, (A_SECOND_LATER, CLAIMED, "")),
        (Overlap.CANCEL_PREVIOUS, (A_SECOND_LATER, CLAIMED, "")),
    ],
)
def test_one_that_is_triggered_a_second_after_it_began(
    watch: Watch, overlap: Overlap, second: tuple[str, str, str]
) -> None:
    watch.add(overlap=overlap)
    watch.at(21, 0)
    trigger(watch)
    watch.look()
    assert history(watch) == [(DUE, LAUNCHED, ""), second]
    watch.end_runs()
    watch.look()
    watch.end_runs()
    assert {state for _, state, _ in history(watch)} == {TOLD}
    assert len(watch.runs()) == (1 if overlap is Overlap.SKIP else 2)


@ON_SQLITE
@pytest.mark.parametrize(
    ("overlap", "met"),
    [
        (Overlap.SKIP, [(DUE, LAUNCHED, ""), (A_SECOND_LATER, TOLD, "skipped")]),
        (Overlap.QUEUE, [(DUE, LAUNCHED, ""), (A_SECOND_LATER, CLAIMED, "")]),
        (Overlap.CANCEL_PREVIOUS, [(DUE, LAUNCHED, ""), (A_SECOND_LATER, CLAIMED, "")]),
    ],
)
def test_one_that_is_written_down_and_begun_while_another_controller_builds(
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    overlap: Overlap,
    met: list[tuple[str, str, str]],
) -> None:
    def meanwhile() -> None:
        watch.subjects.on_build = None
        monkeypatch.undo()
        watch.look(lease_s=LEASE_S)

    watch.add(overlap=overlap, subject=BRANCH)
    trigger(watch)
    watch.subjects.on_build = meanwhile
    monkeypatch.setattr(watch.context.stores.schedules, "due", lambda now: [])
    watch.look(lease_s=LEASE_S)
    assert len(watch.runs()) == 1
    watch.look()
    watch.look()
    assert history(watch) == met
    assert len(live(watch)) == (0 if overlap is Overlap.CANCEL_PREVIOUS else 1)
    for _ in range(2):
        watch.end_runs()
        watch.look()
    assert {state for _, state, _ in history(watch)} == {TOLD}
    assert len(watch.runs()) == (1 if overlap is Overlap.SKIP else 2)


@pytest.mark.parametrize("overlap", Overlap)
def test_of_many_controllers_that_meet_two_at_once_one_begins_one(
    watch: Watch, overlap: Overlap
) -> None:
    watch.add(overlap=overlap)
    trigger(watch)
    assert together([partial(watch.look, lease_s=LEASE_S)] * 6) == [None] * 6
    for _ in range(3):
        watch.look()
        assert len(live(watch)) <= 1
        watch.end_runs()
    assert {state for _, state, _ in history(watch)} == {TOLD}
    assert len([one for one in watch.firings() if one.outcome == "passed"]) >= 1
