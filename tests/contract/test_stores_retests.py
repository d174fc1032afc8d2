"""Trials: one set of questions to SQLite and to Postgres."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.domain.cell import CellState
from orchestrator.domain.retests import RetestKind, RetestPlan, RetestSessionState
from orchestrator.store.retests import NoRetestsError
from tests.databases import NOW, advance, after, attempt, create, together

KEY = "suite::a.py::test_a"
RERUN = RetestPlan(kind=RetestKind.RERUN, tests={"suite": ("a.py::test_a",)}, times=2, key="one")
BISECT = RetestPlan(
    kind=RetestKind.BISECT,
    tests={"suite": ()},
    times=1,
    changed="revision 1a2b3c4",
    subject_digest="d" * 64,
    subject_version="1.0",
    key="two",
)


@pytest.fixture
def tried(stores):
    create(stores)
    tried = attempt(stores, "run-1.p0", 1)
    advance(stores, "run-1.p0", CellState.DIAGNOSING)
    return tried


def test_nothing_was_tried(stores, tried):
    assert stores.retests.of_attempt(tried) == ()
    assert stores.retests.of_run("run-1") == {}
    assert not stores.retests.are_retests_ended(tried)
    assert stores.retests.confirmation_of("run-1") is None


def test_what_is_asked_for_has_a_number_and_a_folder(stores, tried):
    first = stores.retests.ask(tried, RERUN, at=NOW)
    second = stores.retests.ask(tried, BISECT, at=after(1))
    assert (first.id, first.number, first.state) == (f"{tried}-t1", 1, RetestSessionState.REQUESTED)
    assert (second.id, second.number) == (f"{tried}-t2", 2)
    assert stores.retests.of_attempt(tried) == (first, second)


def test_asking_twice_has_the_effect_of_once(stores, tried):
    first = stores.retests.ask(tried, RERUN, at=NOW)
    assert stores.retests.ask(tried, RERUN, at=after(9)) == first
    assert len(stores.retests.of_attempt(tried)) == 1


def test_many_who_ask_at_once_ask_once(stores, tried):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: stores.retests.ask(tried, RERUN, at=after(n)), range(8)))
    assert len({retest_session.id for retest_session in found}) == 1
    assert len(stores.retests.of_attempt(tried)) == 1


@pytest.mark.parametrize("state", [CellState.COLLECTING, CellState.RELEASING])
def test_a_machine_that_is_not_kept_for_retests_takes_none(stores, state):
    create(stores)
    tried = attempt(stores, "run-1.p1", 1)
    advance(stores, "run-1.p1", state)
    with pytest.raises(NoRetestsError, match=rf"p1 is {state}.*seatrial gate bisect RUN"):
        stores.retests.ask(tried, BISECT, at=NOW)
    assert stores.retests.of_attempt(tried) == ()


def test_what_was_asked_in_time_is_known_when_the_machine_has_left(stores, tried):
    first = stores.retests.ask(tried, BISECT, at=NOW)
    stores.cells.enter("run-1.p0", CellState.RELEASING, at=after(1))
    assert stores.retests.ask(tried, BISECT, at=after(2)) == first
    with pytest.raises(NoRetestsError):
        stores.retests.ask(tried, RERUN, at=after(2))


def test_nothing_is_asked_once_a_machine_has_left_whoever_is_first(stores, tried):
    def leave():
        stores.cells.enter("run-1.p0", CellState.RELEASING, at=after(1))

    def ask():
        try:
            return stores.retests.ask(tried, BISECT, at=after(1)).id
        except NoRetestsError:
            return None

    _, *asked = together([leave, ask, ask, ask])
    late = [retest_session.id for retest_session in stores.retests.of_attempt(tried)]
    assert sorted({one for one in asked if one}) == late


def test_a_session_goes_one_way_only(stores, tried):
    retest_session = stores.retests.ask(tried, RERUN, at=NOW)
    stores.retests.begin(retest_session.id, at=after(1))
    stores.retests.begin(retest_session.id, at=after(2))
    outcomes = ({KEY: "failed"}, {KEY: "passed"})
    stores.retests.end(retest_session.id, at=after(3), outcomes=outcomes, evidence="e" * 64)
    stores.retests.end(retest_session.id, at=after(4), trouble="too late")
    stores.retests.begin(retest_session.id, at=after(5))
    [found] = stores.retests.of_attempt(tried)
    assert (found.state, found.started_at, found.ended_at) == (
        RetestSessionState.ENDED,
        after(1),
        after(3),
    )
    assert (found.outcomes, found.trouble, found.evidence) == (outcomes, "", "e" * 64)


def test_each_time_is_a_retest_of_the_run(stores, tried):
    for ask, outcomes in ((RERUN, ({KEY: "failed"}, {KEY: "passed"})), (BISECT, ({KEY: "error"},))):
        retest_session = stores.retests.ask(tried, ask, at=NOW)
        stores.retests.end(retest_session.id, at=after(1), outcomes=outcomes)
    retests = stores.retests.of_run("run-1")["p0"]
    assert [(t.kind.value, t.number, t.retest_session, t.outcomes[KEY]) for t in retests] == [
        ("rerun", 1, 1, "failed"),
        ("rerun", 2, 1, "passed"),
        ("bisect", 3, 2, "error"),
    ]
    assert retests[2].changed == "revision 1a2b3c4"


def test_nobody_asks_any_more(stores, tried):
    stores.retests.end_retests(tried, at=NOW)
    stores.retests.end_retests(tried, at=after(1))
    assert stores.retests.are_retests_ended(tried)


def test_the_first_second_machine_stands(stores, tried):
    assert stores.retests.add_confirmation("run-1", "run-2") == "run-2"
    assert stores.retests.add_confirmation("run-1", "run-3") == "run-2"
    assert stores.retests.confirmation_of("run-1") == "run-2"


def test_what_is_not_there(stores, tried):
    with pytest.raises(LookupError):
        stores.retests.ask("nope", RERUN, at=NOW)
    with pytest.raises(LookupError):
        stores.retests.begin("nope", at=NOW)
