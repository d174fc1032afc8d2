"""Versions by platforms, and pass rates over time: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

from orchestrator.application.release_board import BoardFilter, release_board
from orchestrator.domain.cell import Cause, CellState, RunSpec
from orchestrator.domain.matrix import JobSelection, expand
from orchestrator.domain.outcome import Outcome
from orchestrator.store.release_board import Version
from tests.contract.test_stores_gates import POLICY, STORED, VERDICT
from tests.contract.test_stores_ingests import begin, finish
from tests.databases import MANIFEST, NOW, Agent, a_run, advance, after, attempt, lease, matrix

LIB = "lib"


def launch(stores, run_id, version="1.0", *, days=0, platforms=2, matrix_name="nightly", **more):
    """A run of a version; with so many of the payload's two jobs."""
    asked = matrix(platforms)
    asked = replace(asked, platforms=asked.platforms[more.pop("left_out", 0) :])
    if more.pop("jobs", 2) == 1:
        asked = replace(asked, jobs=(JobSelection(select="unit"),))
    spec = RunSpec(asked, MANIFEST, only=more.pop("only", None))
    run = replace(a_run(run_id, days * 86_400), subject_version=version, matrix_name=matrix_name)
    cells = [(f"{run_id}.{plan.id}", plan) for plan in expand(asked, MANIFEST)]
    stores.runs.create(replace(run, **more), spec, cells, key=None)
    return [cell_id for cell_id, _ in cells]


def end(stores, cell_id, outcome=Outcome.PASSED, *, passed=2, failed=0, reason=""):
    """Let a cell report so many tests, and be done."""
    agent = Agent(stores, attempt(stores, cell_id))
    names = [f"t.py::p{n}" for n in range(passed)]
    lines = [agent.test(name) for name in names]
    lines += [agent.test(f"t.py::f{n}", "failed", longrepr="E x") for n in range(failed)]
    if lines:
        assert agent.send(*lines)
    advance(stores, cell_id, CellState.RELEASING)
    stores.evidence.settle(cell_id, [])
    stores.cells.conclude(cell_id, Cause(outcome, reason), at=NOW)


def test_products_come_by_their_newest_run(stores):
    assert stores.releases.products() == []
    launch(stores, "run-1")
    assert stores.releases.products() == ["proof"]


def test_every_product_has_its_newest_run_and_each_platform_its_days(stores):
    launch(stores, "run-0", days=-20)
    end(stores, "run-0.p0")
    for run, day in (("run-1", 0), ("run-2", 0), ("run-3", 1)):
        launch(stores, run, days=day)
        end(stores, f"{run}.p0", Outcome.FAILED if run == "run-2" else Outcome.PASSED)
    launch(stores, "run-4", days=1, only={"p0": ["unit"]}, rerun_of="run-2")
    end(stores, "run-4.p0")
    launch(stores, "run-5", days=0, matrix_name="ingested")
    end(stores, "run-5.p0")
    newest = [(one.product, one.run, one.word) for one in stores.releases.newest_runs()]
    assert newest == [("proof", "run-5", "running")]
    found = stores.releases.days(since=NOW - timedelta(days=5))
    told = [(one.product, one.cell, one.day, one.run, one.word) for one in found]
    assert told == [
        ("proof", "p0", NOW.date(), "run-2", "failed"),
        ("proof", "p0", after(86_400).date(), "run-3", "passed"),
    ]


def test_ingested_evidence_stands_on_the_day_that_it_states(stores):
    begun = begin(stores)  # At NOW, of the 19 January
    agent = Agent(stores, begun.attempt_id)
    assert agent.send(agent.test("t.py::a", job="moe"))
    finish(stores, begun)
    stated = date(2026, 1, 19)
    (one,) = stores.releases.days(since=NOW - timedelta(days=60))
    assert (one.run, one.day) == ("run-1", stated)
    assert stores.releases.days(since=NOW - timedelta(days=14)) == []
    (rate,) = stores.releases.rates("lib", since=NOW - timedelta(days=60))
    assert (rate.day, rate.runs, rate.counts.passed) == (stated, 1, 1)
    assert stores.releases.rates("lib", since=NOW - timedelta(days=14)) == []


def test_a_version_has_the_newest_done_cell_of_each_name(stores):
    for run in ("run-1", "run-2"):
        cells = launch(stores, run)
        end(stores, cells[0], Outcome.FAILED, passed=1, failed=1, reason="tests")
    end(stores, "run-1.p1")
    (release,) = stores.releases.page("proof", limit=5)
    assert (release.of, release.newest_run) == (Version(LIB, "1.0"), "run-2")
    told = [(c.run, c.name, c.outcome, c.reason, c.counts.passed) for c in release.cells]
    assert told == [
        ("run-2", "p0", Outcome.FAILED, "tests", 1),
        ("run-1", "p1", Outcome.PASSED, "", 2),
    ]
    assert release.cells[0].at == after(0)


def test_each_matrix_has_cells_of_its_own(stores):
    end(stores, launch(stores, "run-1")[0])
    end(stores, launch(stores, "run-2", matrix_name="benchmarks")[0], passed=0)
    (release,) = stores.releases.page("proof", limit=5)
    assert [(c.matrix, c.run) for c in release.cells] == [
        ("benchmarks", "run-2"),
        ("nightly", "run-1"),
    ]
    (release,) = stores.releases.page("proof", matrix="nightly", limit=5)
    assert [c.run for c in release.cells] == ["run-1"]


def test_versions_come_page_by_page(stores):
    for number in range(5):
        launch(stores, f"run-{number}", f"1.{number % 4}")
    first = stores.releases.page("proof", limit=3)
    assert [one.of.version for one in first] == ["1.0", "1.3", "1.2"]
    second = stores.releases.page("proof", limit=3, before=first.next)
    assert ([one.of.version for one in second], second.next) == (["1.1"], None)
    assert stores.releases.page("other", limit=3) == []


def test_runs_of_some_jobs_alone_are_no_evidence_but_whole_reruns_are(stores):
    end(stores, launch(stores, "run-1")[0])
    part = launch(stores, "run-2", rerun_of="run-1", only={"p0": ["unit"]})
    end(stores, part[0], Outcome.FAILED, passed=0, failed=1)
    (release,) = stores.releases.page("proof", limit=5)
    assert [c.run for c in release.cells] == ["run-1"]
    end(stores, launch(stores, "run-3", rerun_of="run-1")[0])
    (release,) = stores.releases.page("proof", limit=5)
    assert [c.run for c in release.cells] == ["run-3"]
    assert sum(one.runs for one in stores.releases.rates("proof", since=after(-1))) == 2


def test_a_machine_that_is_none_is_told(stores):
    cells = launch(stores, "run-1")
    end(stores, cells[0])
    (release,) = stores.releases.page("proof", limit=5)
    assert [c.simulated for c in release.cells] == [True]  # the provider is the fake one


def test_a_simulated_lease_is_told(stores):
    asked = matrix(1)
    real = replace(asked, platforms=(replace(asked.platforms[0], provider="aws"),))
    run = replace(a_run("run-1"), subject_version="1.0")
    cells = [("c", plan) for plan in expand(real, MANIFEST)]
    stores.runs.create(run, RunSpec(real, MANIFEST), cells, key=None)
    held = lease("l1", attempt(stores, "c"))
    stores.leases.reserve(held, run_id="run-1", exclusive=False)
    advance(stores, "c", CellState.RELEASING)
    stores.cells.conclude("c", Cause(Outcome.PASSED, ""), at=NOW)
    assert [c.simulated for c in stores.releases.page("proof", limit=1)[0].cells] == [False]
    stores.leases.note("l1", {}, simulated=True)
    assert [c.simulated for c in stores.releases.page("proof", limit=1)[0].cells] == [True]


def test_every_cell_that_ever_was_is_known_from_when_to_when(stores):
    launch(stores, "run-1", platforms=3)
    launch(stores, "run-2", platforms=1)
    launch(stores, "run-3", platforms=1, rerun_of="run-2")
    told = [(c.name, c.first_run, c.newest_run) for c in stores.releases.cells("proof")]
    assert told == [("p0", "run-1", "run-2"), ("p1", "run-1", "run-1"), ("p2", "run-1", "run-1")]


def test_a_version_has_the_newest_verdict_of_each_gate(stores):
    launch(stores, "run-1", "1.0")
    launch(stores, "run-2", "1.1")
    versions = [Version(LIB, "1.0"), Version(LIB, "1.1")]
    assert stores.releases.verdicts("proof", versions) == []
    stores.gates.put_policy(POLICY)
    for gate, run in (("b", "run-1"), ("a", "run-1"), ("a", "run-1"), ("a", "run-2")):
        verdict = replace(VERDICT, gate=gate)
        stores.gates.add_verdict(replace(STORED, gate=gate, runs=(run,), verdict=verdict))
    told = [
        (one.gate, one.id, one.of.version) for one in stores.releases.verdicts("proof", versions)
    ]
    assert told == [("a", "V-0003", "1.0"), ("a", "V-0004", "1.1"), ("b", "V-0001", "1.0")]
    (one,) = stores.releases.verdicts("proof", versions[1:])
    assert (one.decision, one.at) == (VERDICT.decision, NOW)


def test_what_is_not_finished_is_live(stores):
    cells = launch(stores, "run-1")
    launch(stores, "run-2")
    attempt(stores, cells[0])
    newest, first = stores.releases.live("proof", limit=5)
    assert (newest.run, newest.cells) == ("run-2", {CellState.QUEUED: 2})
    assert first.cells == {CellState.QUEUED: 1, CellState.PLACING: 1}
    assert [one.run for one in stores.releases.live("proof", limit=1)] == ["run-2"]
    assert stores.runs.finish("run-2", Outcome.CANCELLED, at=NOW)
    assert [one.run for one in stores.releases.live("proof", limit=5)] == ["run-1"]
    assert stores.releases.live("other", limit=5) == []


def test_rates_are_summed_by_cell_suite_and_day(stores):
    for number, days in enumerate((0, 0.1, 1)):
        cells = launch(stores, f"run-{number}", days=days)
        end(stores, cells[0], Outcome.FAILED, passed=3, failed=1)
    end(stores, "run-2.p1", passed=0)
    first, second = stores.releases.rates("proof", since=NOW - timedelta(days=1))
    assert (first.cell, first.job, first.day, first.runs) == ("p0", "unit", date(2026, 3, 1), 2)
    assert (first.counts.passed, first.counts.failed) == (6, 2)
    assert (second.day, second.counts.collected) == (date(2026, 3, 2), 4)
    assert stores.releases.rates("proof", since=after(0.5 * 86_400)) == [second]
    assert stores.releases.rates("proof", matrix="other", since=after(-1)) == []


def test_a_run_of_fewer_jobs_hides_no_failure_and_is_told(stores):
    end(stores, launch(stores, "run-1", days=-1)[0])
    end(stores, launch(stores, "run-2")[0], Outcome.FAILED, failed=1)
    end(stores, launch(stores, "run-3", jobs=1)[0])
    (newest,) = stores.releases.newest_runs()
    assert (len(newest.jobs), len(newest.jobs_before - newest.jobs)) == (2, 2), "two cells"
    (release,) = stores.releases.page("proof", limit=5)
    assert [(c.run, len(c.jobs)) for c in release.cells] == [("run-3", 1), ("run-2", 2)]
    today = [one for one in stores.releases.days(since=after(-1)) if one.day == NOW.date()]
    assert [(one.run, one.word) for one in today] == [("run-2", "failed")]
    board = release_board(stores, BoardFilter(product="proof"), at=NOW)
    square = board.rows[0].squares[0]
    assert (square.cell.run, square.others, square.is_superseded) == ("run-2", 1, False)
    assert square.other_jobs == frozenset()
    end(stores, launch(stores, "run-4")[0])
    (release,) = stores.releases.page("proof", limit=5)
    assert [c.run for c in release.cells] == ["run-4"], "it repeats all of the others' jobs"


def test_a_version_that_ran_fewer_jobs_than_the_one_before_says_so(stores):
    end(stores, launch(stores, "run-1", "1.0")[0])
    end(stores, launch(stores, "run-2", "1.1", jobs=1)[0])
    board = release_board(stores, BoardFilter(product="proof"), at=NOW)
    told = {row.of.version: row.squares[0] for row in board.rows}
    assert {name: (set(s.cell.jobs), set(s.other_jobs)) for name, s in told.items()} == {
        "1.1": ({"unit"}, {"demo"}),
        "1.0": ({"unit", "demo"}, set()),
    }
