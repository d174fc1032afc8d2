"""Runs, keys and the feed: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.domain.cell import RunEvent, RunSpec, RunState
from orchestrator.domain.matrix import expand
from orchestrator.domain.outcome import Outcome
from orchestrator.store.errors import KeyTakenError, UnknownIdError
from orchestrator.store.runs import KeyClaim
from tests.databases import MANIFEST, NOW, a_run, after, create, matrix, together

STALE = NOW - timedelta(minutes=5)


def test_a_run_comes_back_as_it_was_stored(stores):
    asked = matrix(3)
    spec = RunSpec(
        asked, MANIFEST, subject_digest="5" * 64, only={"p1": ["unit"]}, hold_minutes=12.5
    )
    cells = [(f"c{i}", plan) for i, plan in enumerate(expand(asked, MANIFEST))]
    stores.runs.create(a_run(), spec, cells, key=None)
    assert stores.runs.get("run-1") == a_run()
    assert stores.runs.spec("run-1") == spec
    assert [cell.name for cell in stores.cells.of_run("run-1")] == ["p0", "p1", "p2"]
    assert stores.cells.plan("c1") == cells[1][1]


def test_the_order_of_keys_in_a_manifest_is_kept(stores):
    create(stores)
    kept = stores.runs.spec("run-1").manifest
    assert kept.environment_names == ("image", "zeta", "alpha")
    assert list(kept.job[1].env) == ["B", "A"]


def test_storing_a_run_twice_has_the_effect_of_once(stores):
    create(stores)
    create(stores)
    assert len(stores.cells.of_run("run-1")) == 2


def test_what_is_not_there_is_none_or_an_error_that_names_it(stores):
    assert stores.runs.get("nothing") is None
    with pytest.raises(UnknownIdError, match="no run 'nothing'"):
        stores.runs.spec("nothing")
    with pytest.raises(UnknownIdError, match="no run 'nothing'"):
        stores.runs.finish("nothing", Outcome.PASSED, at=NOW)
    with pytest.raises(UnknownIdError, match="no run 'nothing'"):
        stores.run_events.add("nothing", "report", {})


def test_runs_are_found_by_the_beginning_of_their_id(stores):
    for name in ("ab-1", "ab-2", "Ab-3", "ac-1"):
        create(stores, name, platforms=1)
    assert stores.runs.find("ab") == ("ab-2", "ab-1")
    assert stores.runs.find("ab-1") == ("ab-1",)
    assert stores.runs.find("latest") == ("ac-1",)
    assert stores.runs.find("%") == ()
    assert stores.runs.find("_b") == ()
    assert stores.runs.find("\x00") == ()


def test_at_most_ten_runs_are_found(stores):
    for number in range(12):
        create(stores, f"r-{number:02}", platforms=1)
    assert stores.runs.find("r-") == tuple(f"r-{n:02}" for n in range(11, 1, -1))
    assert len(stores.runs.find("")) == 10


def test_pages_cover_every_run_once(stores):
    assert stores.runs.find("latest") == ()
    names = [f"r-{number}" for number in range(4)]
    for name in names:
        create(stores, name, platforms=1)
    first, before = stores.runs.page(limit=2, before=None)
    second, none = stores.runs.page(limit=2, before=before)
    assert [run.id for run in (*first, *second)] == names[::-1]
    assert none is None, "a page that ends exactly has no next one"


def test_cancelling_is_written_once_and_told_once(stores):
    create(stores)
    stores.runs.request_cancel("run-1", at=after(1))
    stores.runs.request_cancel("run-1", at=after(2))
    assert stores.runs.get("run-1").cancel_requested_at == after(1)
    assert [item.data for item in stores.run_events.after("run-1", 0)] == [{"cancel": True}]


def test_a_run_is_finished_once(stores):
    create(stores)
    assert stores.runs.unfinished() == ("run-1",)
    assert stores.runs.finish("run-1", Outcome.FAILED, at=after(9)) is True
    assert stores.runs.finish("run-1", Outcome.PASSED, at=after(10)) is False
    run = stores.runs.get("run-1")
    assert (run.state, run.outcome, run.finished_at) == (
        RunState.FINISHED,
        Outcome.FAILED,
        after(9),
    )
    assert stores.runs.unfinished() == ()
    stores.runs.request_cancel("run-1", at=after(11))
    assert stores.runs.get("run-1").cancel_requested_at is None
    last = stores.run_events.after("run-1", 0)[-1]
    assert last == RunEvent(1, "run", "", {"state": "finished", "outcome": "failed"})


def test_exactly_one_of_many_finishes_a_run(stores):
    create(stores)
    finish = partial(stores.runs.finish, "run-1", Outcome.PASSED, at=NOW)
    assert together([finish] * 8).count(True) == 1


def test_a_key_is_new_then_in_flight_then_replayed(stores):
    claim = partial(stores.runs.claim_key, "k", at=NOW, stale_before=STALE)
    assert claim("body") == (KeyClaim.NEW, None)
    assert claim("body") == (KeyClaim.IN_FLIGHT, None)
    assert claim("other") == (KeyClaim.OTHER_BODY, None)
    stores.runs.create(a_run(), RunSpec(matrix(), MANIFEST), [], key="k")
    assert claim("body") == (KeyClaim.REPLAY, "run-1")
    assert claim("other") == (KeyClaim.OTHER_BODY, None)


def test_a_dropped_key_is_new_again_unless_it_has_a_run(stores):
    claim = partial(stores.runs.claim_key, "k", "body", at=NOW, stale_before=STALE)
    claim()
    stores.runs.drop_key("k")
    assert claim() == (KeyClaim.NEW, None)
    stores.runs.create(a_run(), RunSpec(matrix(), MANIFEST), [], key="k")
    stores.runs.drop_key("k")
    assert claim() == (KeyClaim.REPLAY, "run-1")


def test_the_claim_of_a_dead_request_is_taken_over(stores):
    stores.runs.claim_key("k", "body", at=NOW, stale_before=STALE)
    late = {"at": after(600), "stale_before": after(300)}
    assert stores.runs.claim_key("k", "other", **late) == (KeyClaim.NEW, None)
    assert stores.runs.claim_key("k", "other", **late) == (KeyClaim.IN_FLIGHT, None)


def test_a_key_makes_one_run_even_if_its_claim_was_taken_over(stores):
    stores.runs.claim_key("k", "body", at=NOW, stale_before=STALE)
    stores.runs.claim_key("k", "body", at=after(600), stale_before=after(300))
    spec = RunSpec(matrix(), MANIFEST)
    stores.runs.create(a_run("run-2"), spec, [], key="k")
    with pytest.raises(KeyTakenError):
        stores.runs.create(a_run("run-1"), spec, [], key="k")
    assert stores.runs.get("run-1") is None


def test_exactly_one_of_many_takes_a_key(stores):
    claim = partial(stores.runs.claim_key, "k", "body", at=NOW, stale_before=STALE)
    answers = [answer[0] for answer in together([claim] * 8)]
    assert sorted(answers) == [KeyClaim.IN_FLIGHT] * 7 + [KeyClaim.NEW]


def test_the_feed_is_numbered_without_a_gap_whoever_writes(stores):
    create(stores)
    create(stores, "run-2")

    def say(number: int) -> None:
        stores.run_events.add("run-1" if number % 2 else "run-2", "report", {"n": number})

    together([partial(say, number) for number in range(20)])
    for run in ("run-1", "run-2"):
        items = stores.run_events.after(run, 0)
        assert [item.number for item in items] == list(range(1, 11))
    assert len({item.data["n"] for item in items}) == 10


def test_a_watcher_who_reads_while_others_write_misses_nothing(stores):
    create(stores)
    seen: list[int] = []

    def follow() -> None:
        while len(seen) < 60:
            items = stores.run_events.after("run-1", seen[-1] if seen else 0, limit=7)
            seen.extend(item.number for item in items)

    def write() -> None:
        for _ in range(20):
            stores.run_events.add("run-1", "report", {})

    together([follow, write, write, write])
    assert seen == list(range(1, 61))


def test_the_feed_is_read_from_a_number_on(stores):
    create(stores)
    for number in range(5):
        stores.run_events.add("run-1", "report", {"n": number})
    assert [item.number for item in stores.run_events.after("run-1", 2)] == [3, 4, 5]
    assert [item.number for item in stores.run_events.after("run-1", 2, limit=2)] == [3, 4]
    assert stores.run_events.after("run-1", 5) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_any_document_without_nul_comes_back(stores, data):
    create(stores)
    stores.run_events.add("run-1", "report", data)
    items = stores.run_events.after("run-1", 0, limit=100_000)
    if "\\u0000" not in repr(data) and "\\x00" not in repr(data):
        assert items[-1].data == data
