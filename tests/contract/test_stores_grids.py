"""Tests by cells: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from orchestrator.application.result_grid import (
    GridFilter,
    GridGroup,
    grid_of_cells,
    grid_of_run,
)
from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.outcome import Outcome, TestOutcome
from orchestrator.store.grid_of_tests import TestsWanted
from tests.contract.test_stores_release_board import launch
from tests.databases import NOW, Agent, advance, after, attempt

GOOD = ("t.py::a", "t.py::b", "t.py::c")


def begin(stores, cell_id, *lines, collected=()):
    """Let a cell report something; a line is a test's name, or the name and its outcome."""
    agent = Agent(stores, attempt(stores, cell_id))
    told = [agent.manifest(*collected)] if collected else []
    for line in lines:
        name, outcome = line if isinstance(line, tuple) else (line, "passed")
        more = {"longrepr": f"E   KeyError: {name[-1]!r}"} if outcome == "failed" else {}
        told.append(agent.test(name, outcome, **more))
    assert agent.send(*told)
    return agent


def done(stores, cell_id, *lines, outcome=Outcome.PASSED, **more):
    """The same, and let it be done."""
    begin(stores, cell_id, *lines, **more)
    advance(stores, cell_id, CellState.RELEASING)
    stores.evidence.settle(cell_id, [])
    stores.cells.conclude(cell_id, Cause(outcome, ""), at=NOW)


def nights(stores, *of_nights, version="1.{}", **more):
    """One run for each, of one platform; the oldest first."""
    for number, lines in enumerate(of_nights):
        cells = launch(stores, f"run-{number}", version.format(number), platforms=1, **more)
        done(stores, cells[0], *lines)


def grid(stores, *, limit=50, after=None, group=None, cells=30, **wanted):
    asked = GridFilter(tests=TestsWanted(**wanted), limit=limit, after=after, group=group)
    return grid_of_cells(stores, "proof", "p0", asked, cells=cells)


def told(found):
    return [(row.test.nodeid, row.group.value) for row in found.rows]


def test_what_fails_now_comes_first_then_what_is_flaky_then_the_rest_by_name(stores):
    nights(
        stores,
        GOOD,
        ("t.py::a", bad("t.py::b"), "t.py::c", "t.py::z"),
        ("t.py::a", "t.py::b", bad("t.py::c"), "t.py::z"),
        version="1.0",
    )
    found = grid(stores)
    assert told(found) == [
        ("t.py::c", "failing"),
        ("t.py::b", "flaky"),
        ("t.py::a", "steady"),
        ("t.py::z", "steady"),
    ]
    assert [cell.run for cell in found.cells] == ["run-2", "run-1", "run-0"]
    assert found.groups == {GridGroup.FAILING: 1, GridGroup.FLAKY: 1}
    marks = found.rows[1].marks
    assert [marks[cell.number].outcome.word for cell in found.cells] == [
        "passed",
        "failed",
        "passed",
    ]


def test_pages_follow_each_other_without_a_gap(stores):
    names = [f"t.py::t{n}" for n in range(7)]
    nights(stores, [(name, "failed") if name[-1] in "25" else name for name in names])
    seen, after_ = [], None
    for _ in range(5):
        found = grid(stores, limit=3, after=after_)
        seen += [name for name, _ in told(found)]
        after_ = found.next
        if after_ is None:
            break
    assert [name[-1] for name in seen] == ["2", "5", "0", "1", "3", "4", "6"]


def test_numbers_in_names_are_in_the_order_of_their_values(stores):
    numbered = [f"t.py::t[{n}]" for n in (10, 9, 1, 11)]
    nights(stores, [*numbered, bad("t.py::b[10]"), bad("t.py::b[2]")])
    assert [name for name, _ in told(grid(stores))] == [
        "t.py::b[2]", "t.py::b[10]", "t.py::t[1]", "t.py::t[9]", "t.py::t[10]", "t.py::t[11]",
    ]  # fmt: skip


def test_only_what_is_asked_for_is_shown(stores):
    nights(stores, (("t.py::conv_a", "failed"), "t.py::conv_b", "t.py::linear_a", "t.py::50%_a"))
    assert told(grid(stores, words=["conv"])) == [
        ("t.py::conv_a", "failing"),
        ("t.py::conv_b", "steady"),
    ]
    assert [name for name, _ in told(grid(stores, words=["CO*_b"]))] == ["t.py::conv_b"]
    assert [name for name, _ in told(grid(stores, words=["_a"], without=["conv", "50"]))] == [
        "t.py::linear_a"
    ]
    assert [name for name, _ in told(grid(stores, words=["0%_"]))] == ["t.py::50%_a"]
    assert told(grid(stores, group=GridGroup.FAILING)) == [("t.py::conv_a", "failing")]
    assert len(told(grid(stores, group=GridGroup.STEADY))) == 3
    assert told(grid(stores, job="other")) == []
    assert stores.grids.jobs("proof") == ["unit"]


def test_what_was_not_reported_is_missing_now(stores):
    (cell,) = launch(stores, "run-1", platforms=1)
    done(stores, cell, "t.py::a", collected=GOOD, outcome=Outcome.FAILED)
    assert told(grid(stores)) == [
        ("t.py::b", "missing"),
        ("t.py::c", "missing"),
        ("t.py::a", "steady"),
    ]


def test_a_live_cell_is_the_first_column_and_its_failures_are_now(stores):
    nights(stores, GOOD)
    (cell,) = launch(stores, "run-9", "1.9", platforms=1)
    begin(stores, cell, ("t.py::b", "failed"), collected=GOOD)
    found = grid(stores)
    assert [cell.is_done for cell in found.cells] == [False, True]
    assert told(found)[0] == ("t.py::b", "failing")
    assert found.groups == {GridGroup.FAILING: 1}


def test_a_run_of_another_job_hides_no_test_that_fails_or_is_missing(stores):
    (cell,) = launch(stores, "run-0", "1.0", platforms=1)
    lines = ("t.py::a", ("t.py::b", "failed"))
    done(stores, cell, *lines, collected=GOOD, outcome=Outcome.FAILED)
    (cell,) = launch(stores, "run-1", "1.0", platforms=1)
    agent = Agent(stores, attempt(stores, cell))
    assert agent.send(agent.test("v.py::other", job="other"))
    advance(stores, cell, CellState.RELEASING)
    stores.evidence.settle(cell, [])
    stores.cells.conclude(cell, Cause(Outcome.PASSED, ""), at=NOW)
    found = grid(stores)
    assert told(found)[:2] == [("t.py::b", "failing"), ("t.py::c", "missing")]
    assert found.groups == {GridGroup.FAILING: 1, GridGroup.MISSING: 1}
    (cell,) = launch(stores, "run-2", "1.0", platforms=1)
    begin(stores, cell, collected=GOOD)
    assert grid(stores, group=GridGroup.FAILING).rows[0].test.nodeid == "t.py::b"


def test_failures_of_one_signature_share_a_letter(stores):
    nights(stores, (("t.py::a", "failed"),), (("t.py::a", "failed"), ("t.py::b", "failed")))
    kinds = sorted(grid(stores).kinds.values(), key=lambda kind: kind.seen)
    assert [(kind.letter, kind.seen) for kind in kinds] == [("", 1), ("A", 2)]


def test_the_newest_run_gives_the_platform_that_is_shown_first(stores):
    launch(stores, "run-1")
    launch(stores, "run-2", left_out=1)
    assert stores.grids.names("proof") == ["p1", "p0"]
    launch(stores, "run-3")
    assert stores.grids.names("proof") == ["p0", "p1"]


def test_cells_without_tests_are_columns_only_where_something_went_wrong(stores):
    nights(stores, GOOD)
    for number, outcome in enumerate((Outcome.PASSED, Outcome.NOT_AVAILABLE)):
        (cell,) = launch(stores, f"run-{number + 5}", platforms=1)
        attempt(stores, cell)
        advance(stores, cell, CellState.RELEASING)
        stores.cells.conclude(cell, Cause(outcome, ""), at=NOW)
    assert [cell.run for cell in grid(stores).cells] == ["run-6", "run-0"]
    assert stores.grids.names("proof") == ["p0"]
    assert told(grid(stores))[0] == ("t.py::a", "steady")


def test_runs_of_other_matrices_and_of_some_jobs_are_no_columns(stores):
    nights(stores, GOOD)
    (cell,) = launch(stores, "run-7", platforms=1, rerun_of="run-0", only={"p0": ["unit"]})
    done(stores, cell, "t.py::a")
    launch(stores, "run-8", platforms=1, matrix_name="benchmarks")
    assert stores.runs.finish("run-8", Outcome.CANCELLED, at=NOW)
    stores.cells.conclude("run-8.p0", Cause(Outcome.CANCELLED, "cancelled"), at=NOW)
    assert [cell.run for cell in grid(stores).cells] == ["run-0"]


def test_the_cells_of_a_run_are_columns_too(stores):
    cells = launch(stores, "run-1")
    done(stores, cells[0], *GOOD)
    done(stores, cells[1], ("t.py::b", "failed"), "t.py::d")
    found = grid_of_run(stores, "run-1", GridFilter())
    assert [cell.name for cell in found.cells] == ["p0", "p1"]
    assert told(found) == [
        ("t.py::b", "failing"),
        ("t.py::a", "steady"),
        ("t.py::c", "steady"),
        ("t.py::d", "steady"),
    ]


def test_a_strip_has_the_newest_results_of_each_cell(stores):
    for number in range(4):
        cells = launch(stores, f"run-{number}", f"1.{number}", days=number)
        done(stores, cells[0], "t.py::a")
    done(stores, "run-3.p1", ("t.py::a", "failed"))
    (test,) = stores.grids.after([1], TestsWanted(), after=None, limit=5)
    goes = stores.grids.strips([test.id], each=2)
    assert [(go.run, go.cell, go.outcome) for go in goes] == [
        ("run-3", "p0", TestOutcome.PASSED),
        ("run-3", "p1", TestOutcome.FAILED),
        ("run-2", "p0", TestOutcome.PASSED),
    ]
    assert (goes[0].version, goes[0].at, goes[0].duration_s) == ("1.3", after(3 * 86_400), 0.75)
    assert [go.run for go in stores.grids.strips([test.id], each=9, cell="p1")] == ["run-3"]
    older = stores.grids.strips([test.id], each=9, before="run-2")
    assert [go.run for go in older] == ["run-1", "run-0"]
    (last,) = stores.grids.last([test.id])
    assert (last.run, last.cell) == ("run-3", "p1")
    assert "KeyError" in stores.grids.message(goes[1].number, test.id)
    assert stores.grids.message(goes[0].number, 999) == ""


def newest(stores, *tests):
    goes = [go for test in tests for go in stores.grids.strips([test], each=1)]
    return [(go.test, go.number) for go in goes]


def bad(name):
    return name, "failed"


def test_a_test_that_a_new_build_mends_is_not_flaky(stores):
    nights(stores, GOOD, ("t.py::a", bad("t.py::b"), "t.py::c"), GOOD)
    assert told(grid(stores)) == [(name, "steady") for name in GOOD]


def test_a_test_that_never_passed_and_is_deleted_is_gone_and_not_flaky(stores):
    failing = ("t.py::a", bad("t.py::b"))
    nights(stores, failing, failing, *[("t.py::a",)] * 4, version="1.0")
    found = grid(stores)
    assert told(found) == [("t.py::b", "gone"), ("t.py::a", "steady")]
    assert found.groups == {GridGroup.GONE: 1}
    ((key, since),) = stores.grids.gone(
        newest(stores, *(row.test.id for row in found.rows))
    ).items()
    assert (key, since.run) == ((found.rows[0].test.id, "p0"), "run-2")


def test_a_test_of_another_job_of_a_rerun_or_of_a_broken_module_is_not_gone(stores):
    def numbers():
        return [test.id for test in stores.grids.after([1], TestsWanted(), after=None, limit=9)]

    cells = launch(stores, "run-0", "1.0", platforms=1)
    done(stores, cells[0], "t.py::a", "sub/u.py::b")
    cells = launch(stores, "run-1", "1.1", platforms=1)
    agent = Agent(stores, attempt(stores, cells[0]))
    assert agent.send(agent.test("v.py::other", job="other"))
    advance(stores, cells[0], CellState.RELEASING)
    stores.evidence.settle(cells[0], [])
    stores.cells.conclude(cells[0], Cause(Outcome.PASSED, ""), at=NOW)
    assert stores.grids.gone(newest(stores, *numbers())) == {}
    cells = launch(stores, "run-2", "1.2", platforms=1)
    agent = Agent(stores, attempt(stores, cells[0]))
    broken = {"record": "collect_error", "nodeid": "sub", "longrepr": "E no"}
    assert agent.send(agent.test("t.py::a"), agent.line("test", "unit", **broken))
    advance(stores, cells[0], CellState.RELEASING)
    stores.evidence.settle(cells[0], [])
    assert stores.grids.gone(newest(stores, *numbers())) == {}
    stores.cells.conclude(cells[0], Cause(Outcome.FAILED, ""), at=NOW)
    assert stores.grids.gone(newest(stores, *numbers())) == {}
    cells = launch(stores, "run-3", "1.3", platforms=1)
    done(stores, cells[0], "t.py::a")
    assert [cell.run for cell in stores.grids.gone(newest(stores, *numbers())).values()] == [
        "run-2"
    ]
