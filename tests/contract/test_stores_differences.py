"""Two runs beside each other: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from collections import Counter
from itertools import product

from orchestrator.domain.cell import CellState
from orchestrator.domain.compare_tests import Difference, difference
from orchestrator.domain.node_ids import Alias, AliasState, NameChange
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.reuse_inputs import Reuse
from orchestrator.store.run_comparison import ComparisonOverview
from reports.views.compare import category
from tests.databases import NOW, Agent, attempt, create, lease

PRODUCT = "proof"
OUTCOMES = {
    TestOutcome.PASSED: "passed",
    TestOutcome.SKIPPED: "skipped",
    TestOutcome.FAILED: "failed",
    TestOutcome.MISSING: "",
    None: None,
}


def went(stores, run_id: str, cell: int = 0, **tests: str | None) -> str:
    """A run whose cell's tests went so; empty: it was collected and never reported."""
    cell_id = create(stores, run_id)[cell]
    agent = Agent(stores, attempt(stores, cell_id))
    known = {name: word for name, word in tests.items() if word is not None}
    lines = [agent.manifest(*(f"t.py::{name}" for name in known))] if known else []
    for name, word in known.items():
        if word:
            lines.append(agent.test(f"t.py::{name}", word))
    if lines:
        assert agent.send(*lines)
    return cell_id


def told(stores, *pairs):
    found: dict[tuple[int, str], int] = {}
    for one in stores.differences.overview(pairs, product=PRODUCT, each=1).counts:
        key = one.pair, one.difference.value
        found[key] = found.get(key, 0) + one.tests
    return found


def every(stores, *pairs, limit: int = 1000, skip: int = 0):
    return stores.differences.page(
        pairs, product=PRODUCT, kinds=list(Difference), limit=limit, skip=skip
    )


def test_every_way_a_test_may_go_is_what_the_domain_says_and_the_reports_too(stores):
    ways = [pair for pair in product(OUTCOMES, OUTCOMES) if pair != (None, None)]
    names = [f"test_{number}" for number in range(len(ways))]
    old = {n: OUTCOMES[before] for n, (before, _) in zip(names, ways, strict=True)}
    new = {n: OUTCOMES[after] for n, (_, after) in zip(names, ways, strict=True)}
    pair = went(stores, "run-1", **old), went(stores, "run-2", **new)
    found = {one.nodeid.partition("::")[2]: one for one in every(stores, pair)}
    assert len(found) == len(ways)
    for name, way in zip(names, ways, strict=True):
        assert (found[name].before, found[name].after) == way
        assert found[name].difference is difference(*way)
        words = [outcome.word if outcome is not None else None for outcome in way]
        assert found[name].difference.value == (category(*words) or "same")
    counts = Counter((0, one.difference.value) for one in found.values())
    assert told(stores, pair) == counts


def test_what_a_collection_error_hides_is_unknown_and_not_gone(stores):
    old = create(stores, "run-1")[0]
    agent = Agent(stores, attempt(stores, old))
    names = ["t.py::a", "t.py::C::b", "t.pyx::c", "d/u.py::e", "other.py::z", "v.py::g"]
    assert agent.send(agent.manifest(*names), *(agent.test(name, "passed") for name in names))
    new = create(stores, "run-2")[0]
    agent = Agent(stores, attempt(stores, new))
    broken = [{"record": "collect_error", "nodeid": n, "longrepr": "E no"} for n in ("t.py", "d")]
    assert agent.send(
        agent.manifest("v.py::g"),
        agent.test("v.py::g", "passed"),
        *(agent.line("test", "unit", **said) for said in broken),
    )
    found = {one.nodeid: one.difference.value for one in every(stores, (old, new))}
    hidden = {"t.py::a", "t.py::C::b", "d/u.py::e"}
    assert {name for name, kind in found.items() if kind == "hidden"} == hidden
    assert {name for name, kind in found.items() if kind == "gone"} == {"t.pyx::c", "other.py::z"}
    assert told(stores, (old, new))[0, "hidden"] == 3


def test_a_test_that_a_side_may_only_count_is_unknown_and_neither_gone_nor_new(stores):
    named = went(stores, "run-1", a="passed", b="passed", c="failed", d="passed")
    cell = create(stores, "run-2")[0]
    agent = Agent(stores, attempt(stores, cell))
    assert agent.send(
        agent.manifest("t.py::c"),
        agent.test("t.py::c", "failed"),
        agent.line("test", "unit", record="unnamed", counts={"passed": 2}),
    )
    other = went(stores, "run-3", a="passed")
    for pair in ((named, cell), (cell, named)):
        assert told(stores, pair) == {(0, "still_failing"): 1, (0, "hidden"): 3}
    assert told(stores, (named, other)) == {(0, "same"): 1, (0, "gone"): 3}
    last = went(stores, "run-4", c="failed", e="failed", f="")
    assert told(stores, (cell, last)) == {
        (0, "still_failing"): 1,
        (0, "new_failure"): 1,
        (0, "missing"): 1,
    }


def test_pairs_are_told_apart_and_the_worst_kind_comes_first(stores):
    first = went(stores, "run-1", a="passed", b="failed"), went(stores, "run-2", a="failed")
    other = went(stores, "run-3", a="failed"), went(stores, "run-4", a="passed")
    assert told(stores, first, other) == {
        (0, "new_failure"): 1,
        (0, "gone"): 1,
        (1, "fixed"): 1,
    }
    found = stores.differences.overview([first, other], product=PRODUCT, each=5).first
    kinds = [(one.pair, one.difference.value) for one in found]
    assert kinds == [(0, "new_failure"), (1, "fixed"), (0, "gone")]
    assert (found[0].job, found[0].nodeid) == ("unit", "t.py::a")


def test_of_each_pair_and_kind_so_many_come_and_pages_follow_each_other(stores):
    names = [f"test_{number}" for number in range(7)]
    pair = (
        went(stores, "run-1", **dict.fromkeys(names, "passed")),
        went(stores, "run-2", **dict.fromkeys(names, "failed")),
    )
    other = went(stores, "run-3", test_0="passed"), went(stores, "run-4", test_0="failed")
    first = stores.differences.overview([pair, other], product=PRODUCT, each=3).first
    places = [(one.nodeid[6:], one.pair) for one in first]
    assert places == [("test_0", 0), ("test_0", 1), ("test_1", 0), ("test_2", 0)]
    pages = [every(stores, pair, limit=3, skip=skip) for skip in (0, 3, 6)]
    assert [one.nodeid[6:] for page in pages for one in page] == names


def test_the_same_are_counted_by_how_they_went(stores):
    pair = (
        went(stores, "run-1", a="passed", b="skipped", c="passed"),
        went(stores, "run-2", a="passed", b="skipped", c="passed"),
    )
    found = stores.differences.overview([pair], product=PRODUCT, each=5)
    assert {(one.outcome, one.tests) for one in found.counts} == {
        (TestOutcome.PASSED, 2),
        (TestOutcome.SKIPPED, 1),
    }
    assert found.first == []


def confirm(stores, old: str, new: str) -> None:
    numbers = {one.nodeid: one.id for one in known(stores)}
    words = {"job": "unit", "old": f"t.py::{old}", "new": f"t.py::{new}"}
    alias = Alias(
        id=0,
        product=PRODUCT,
        **words,
        old_test=numbers[words["old"]],
        new_test=numbers[words["new"]],
        change=NameChange.RENAMED,
        similarity=0.9,
        state=AliasState.SUGGESTED,
        suggested_at=NOW,
    )
    stores.aliases.suggest([alias])
    mine = next(one for one in stores.aliases.list(product=PRODUCT) if one.new == words["new"])
    stores.aliases.decide(mine.id, AliasState.CONFIRMED, by="ann", at=NOW)


def test_a_test_that_is_in_another_job_of_each_side_is_the_same_test(stores):
    def run(name, **jobs):
        cell = create(stores, name)[0]
        agent = Agent(stores, attempt(stores, cell))
        for job, tests in jobs.items():
            sent = (agent.test(f"t.py::{test}", word, job=job) for test, word in tests.items())
            assert agent.send(agent.manifest(*(f"t.py::{t}" for t in tests), job=job), *sent)
        return cell

    pair = (
        run("run-1", tests={"a": "failed", "b": "passed", "n": "passed"}, kept={"k": "passed"}),
        run(
            *("run-2",),
            plain={"a": "failed", "b": "failed"},
            again={"n": "passed"},
            more={"n": "passed"},
            kept={"k": "passed", "a": "passed"},
        ),
    )
    found = [(one.job, one.nodeid, one.difference.value) for one in every(stores, pair)]
    assert found == [
        # In two jobs of the newer run: none of them is known to be the older one.
        ("again", "t.py::n", "new"),
        ("kept", "t.py::a", "new"),
        ("kept", "t.py::k", "same"),
        ("more", "t.py::n", "new"),
        ("plain", "t.py::a", "new_failure"),
        ("plain", "t.py::b", "new_failure"),
        ("tests", "t.py::a", "gone"),
        ("tests", "t.py::n", "gone"),
    ]
    other = pair[0], run("run-3", plain={"a": "failed", "b": "failed"})
    assert [(o.job, o.nodeid, o.difference.value, o.was) for o in every(stores, other)] == [
        ("kept", "t.py::k", "gone", ""),
        ("plain", "t.py::a", "still_failing", "t.py::a"),
        ("plain", "t.py::b", "new_failure", "t.py::b"),
        ("tests", "t.py::n", "gone", ""),
    ]


def known(stores):
    asked = {"product": PRODUCT, "job": None, "contains": "", "limit": 100, "after": None}
    return stores.tests.page(**asked)


def test_a_test_under_a_new_name_is_the_same_test(stores):
    pair = went(stores, "run-1", old="passed"), went(stores, "run-2", new="failed")
    assert told(stores, pair) == {(0, "gone"): 1, (0, "new_failure"): 1}
    confirm(stores, "old", "new")
    assert told(stores, pair) == {(0, "new_failure"): 1}
    (found,) = every(stores, pair)
    assert (found.nodeid, found.was) == ("t.py::new", "t.py::old")
    assert (found.before, found.after) == (TestOutcome.PASSED, TestOutcome.FAILED)


def test_pages_go_by_todays_names_whatever_a_test_was_called(stores):
    before = went(stores, "run-1", old="passed", a="passed", z="passed")
    pair = before, went(stores, "run-2", m="failed", a="failed", z="failed")
    confirm(stores, "old", "m")
    assert [one.nodeid for one in every(stores, pair)] == ["t.py::a", "t.py::m", "t.py::z"]


def test_names_are_followed_over_several_steps(stores):
    went(stores, "run-0", middle="passed")
    pair = went(stores, "run-1", old="passed"), went(stores, "run-2", new="passed")
    confirm(stores, "old", "middle")
    confirm(stores, "middle", "new")
    assert told(stores, pair) == {(0, "same"): 1}


def test_a_name_that_both_runs_have_is_no_other_test(stores):
    pair = (
        went(stores, "run-1", old="passed", new="passed"),
        went(stores, "run-2", old="failed", new="passed"),
    )
    confirm(stores, "old", "new")
    assert told(stores, pair) == {(0, "new_failure"): 1, (0, "same"): 1}


def test_reused_evidence_is_compared_where_it_is(stores):
    first = went(stores, "run-1", a="passed", b="passed")
    stores.leases.reserve(lease("l1", f"{first}-1"), run_id="run-1", exclusive=False)
    stores.leases.note("l1", {"image_id": "ami-1"}, simulated=False)
    again = create(stores, "run-2")[0]
    reuse = Reuse(job="unit", why="the same", run="run-1", cell=first, at=NOW)
    stores.reusable_results.decide(again, [reuse], at=NOW)
    assert told(stores, (first, again)) == {(0, "same"): 2}


def test_where_results_were_produced_is_told(stores):
    cell_id = create(stores, "run-1")[0]
    agent = Agent(stores, attempt(stores, cell_id))
    assert agent.send(agent.line("environment", torch="2.9"))
    (told,) = stores.differences.surroundings([cell_id]).values()
    assert (told.probed, told.facts) == ({"torch": "2.9"}, {})
    assert stores.differences.surroundings([]) == {}


def test_nothing_is_asked_of_no_pairs(stores):
    assert stores.differences.overview([], product=PRODUCT, each=1) == ComparisonOverview()
    assert every(stores) == []


def test_messages_come_with_what_differs(stores):
    pair = went(stores, "run-1", a="passed", b="failed"), went(stores, "run-2", a="failed")
    found = stores.differences.overview([pair], product=PRODUCT, each=5).first
    assert found == every(stores, pair)
    assert [one.nodeid for one in found] == ["t.py::a", "t.py::b"]


def test_evidence_of_a_job_that_is_reused_on_one_side_only_stands_beside_the_other(stores):
    first = went(stores, "run-1", a="passed", b="failed")
    again = create(stores, "run-2")[0]
    reuse = Reuse(job="unit", why="the same", run="run-1", cell=first, at=NOW)
    stores.reusable_results.decide(again, [reuse], at=NOW)
    now = went(stores, "run-3", a="failed", b="passed")
    assert told(stores, (again, now)) == {(0, "new_failure"): 1, (0, "fixed"): 1}
    assert told(stores, (now, again), (first, now)) == {
        (0, "new_failure"): 1,
        (0, "fixed"): 1,
        (1, "new_failure"): 1,
        (1, "fixed"): 1,
    }


def test_a_cell_without_results_has_lost_them_all(stores):
    pair = went(stores, "run-1", a="passed"), create(stores, "run-2")[0]
    stores.cells.admit(pair[1], "x", max_parallel=9, at=NOW)
    stores.cells.enter(pair[1], CellState.RELEASING, at=NOW)
    assert told(stores, pair) == {(0, "gone"): 1}
