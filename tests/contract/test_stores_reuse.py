"""What evidence depends on, and quarantines: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.reuse_inputs import Interpreter, Prepared, Reuse, ReuseInputs
from orchestrator.store.errors import StoreError
from tests.databases import NOW, advance, after, attempt, create, together

MADE = ReuseInputs(
    product="proof",
    payload="d" * 64,
    subject="lib 1.10",
    environment="image",
    platform={"id": "p0", "provider": "fake"},
    tool="1",
    instance_type="none",
    image="ami-1",
    devices="1 x nvidia L4",
    driver="570.1",
    python="Python 3.11",
    records="f" * 64,
    wheels="e" * 64,
    packages={"numpy": "2.4.5"},
)
PYTHON = Interpreter("/usr/bin/python3", "3.11.2", "cpython", "x86_64", ("glibc", "2.36"), {})
PREPARED = Prepared(MADE, PYTHON, "north")
QUARANTINE = Quarantine(
    id="Q-9999",
    product="proof",
    nodeid="tests/test_a.py::test_flaky",
    platforms=("p0", "p1"),
    reason="no seed",
    owner="me",
    opened=NOW,
    expires=NOW + timedelta(days=14),
)


def done(stores, cell_id: str, number: int = 1) -> None:
    """Bring the cell's open attempt to its end."""
    advance(stores, cell_id, CellState.RELEASING)
    stores.cells.conclude(cell_id, Cause(Outcome.PASSED, ""), at=after(60))


def proven(stores, run_id: str = "run-1", *, prepared: Prepared = PREPARED, at=NOW) -> str:
    """A cell that is done, with a proof of its job `unit`."""
    cell = create(stores, run_id, platforms=1)[0]
    stores.reusable_results.prepare(attempt(stores, cell), prepared)
    stores.reusable_results.prove(cell, prepared.ingredients, {"unit": at})
    done(stores, cell)
    return cell


def test_a_proof_is_found_by_what_was_asked_for(stores):
    cell = proven(stores)
    [found] = stores.reusable_results.find(MADE.asked, "unit", limit=9)
    assert (found.run, found.cell, found.job, found.at) == ("run-1", cell, "unit", NOW)
    assert found.prepared == PREPARED
    assert stores.reusable_results.find(MADE.asked, "demo", limit=9) == []
    assert (
        stores.reusable_results.find(replace(MADE, payload="f" * 64).asked, "unit", limit=9) == []
    )
    assert stores.reusable_results.newest("proof", "p0", "image", "unit") == found
    assert stores.reusable_results.newest("proof", "p1", "image", "unit") is None


def test_the_newest_evidence_comes_first_and_the_limit_counts(stores):
    for number in range(4):
        proven(stores, f"run-{number}", at=after(number))
    found = stores.reusable_results.find(MADE.asked, "unit", limit=2)
    assert [one.run for one in found] == ["run-3", "run-2"]


def test_a_cell_that_is_not_done_proves_nothing_yet(stores):
    cell = create(stores)[0]
    stores.reusable_results.prepare(attempt(stores, cell), PREPARED)
    stores.reusable_results.prove(cell, MADE, {"unit": NOW})
    assert stores.reusable_results.find(MADE.asked, "unit", limit=9) == []
    done(stores, cell)
    assert len(stores.reusable_results.find(MADE.asked, "unit", limit=9)) == 1


def test_proving_again_changes_nothing(stores):
    cell = proven(stores)
    stores.reusable_results.prove(cell, MADE, {"unit": after(99), "demo": after(99)})
    assert stores.reusable_results.find(MADE.asked, "unit", limit=9)[0].at == NOW
    assert stores.reusable_results.find(MADE.asked, "demo", limit=9)[0].at == after(99)


def test_an_attempt_is_prepared_anew(stores):
    cell = create(stores)[0]
    first = attempt(stores, cell)
    stores.reusable_results.prepare(first, PREPARED)
    other = Prepared(replace(MADE, image="ami-2"), PYTHON, "south")
    stores.reusable_results.prepare(first, other)
    assert stores.reusable_results.preparations(cell) == [other]
    advance(stores, cell, CellState.RELEASING)
    stores.cells.requeue(first, Cause(Outcome.ERRORED, "lost"), at=NOW)
    stores.reusable_results.prepare(attempt(stores, cell, 2), PREPARED)
    assert stores.reusable_results.preparations(cell) == [other, PREPARED]


def test_the_first_decision_stands(stores):
    source = proven(stores)
    cell = create(stores, "run-2", platforms=1)[0]
    assert stores.reusable_results.decided(cell) == {}
    reused = Reuse(job="unit", why="proven", run="run-1", cell=source, at=NOW)
    run = Reuse(job="demo", why="image changed: ami-1 → ami-2")
    stores.reusable_results.decide(cell, [reused, run], at=NOW)
    stores.reusable_results.decide(cell, [replace(run, job="unit"), run], at=after(5))
    assert stores.reusable_results.decided(cell) == {"unit": reused, "demo": run}
    assert [one.is_reused for one in (reused, run)] == [True, False]


def test_of_many_who_decide_at_once_one_is_heard(stores):
    cell = create(stores)[0]

    def decide(number: int):
        reuse = Reuse(job="unit", why=str(number))
        return lambda: stores.reusable_results.decide(
            cell, [reuse, replace(reuse, job="demo")], at=NOW
        )

    together([decide(number) for number in range(6)])
    decided = stores.reusable_results.decided(cell)
    assert len({one.why for one in decided.values()}) == 1
    assert set(decided) == {"unit", "demo"}


def test_an_unknown_source_is_refused_whole(stores):
    cell = create(stores)[0]
    with pytest.raises(StoreError, match="nowhere"):
        stores.reusable_results.decide(cell, [Reuse(job="unit", why="", cell="nowhere")], at=NOW)
    assert stores.reusable_results.decided(cell) == {}


def test_quarantines_are_numbered_listed_and_ended_once(stores):
    first = stores.quarantines.add(QUARANTINE)
    second = stores.quarantines.add(replace(QUARANTINE, product="other", platforms=()))
    assert [first.id, second.id] == ["Q-0001", "Q-0002"]
    assert first == replace(QUARANTINE, id="Q-0001")
    assert stores.quarantines.list() == [first, second]
    assert stores.quarantines.list(product="other") == [second]
    ended = stores.quarantines.end("Q-0001", at=after(5), by="me")
    assert ended == replace(first, ended_at=after(5), ended_by="me")
    assert stores.quarantines.end("Q-0001", at=after(9), by="you") == ended
    assert stores.quarantines.end("Q-0007", at=NOW, by="me") is None
    assert stores.quarantines.end("nonsense", at=NOW, by="me") is None
