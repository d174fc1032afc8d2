"""What is read together is of one moment, whatever others commit meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import event

from orchestrator.application.describe_run import describe_run, evidence_of, list_runs
from orchestrator.assets import asset_dir
from orchestrator.domain.cell import Cause, CellState, RunSpec
from orchestrator.domain.gate.gate_documents import digest_of, verdict_document
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.ingested import Ingested
from orchestrator.domain.manifest import Job
from orchestrator.domain.matrix import CellPlan, Platform
from orchestrator.domain.outcome import Outcome
from orchestrator.store.database import Database, open_database
from reports.registry import render
from tests.contract.test_stores_gates import POLICY, STORED, VERDICT
from tests.databases import MANIFEST, NOW, Agent, advance, after, attempt, create, matrix

FAILED = {"outcome": "failed", "longrepr": "E   ValueError: no"}


@pytest.fixture
def other(database_url: str):
    """The same database, as another process has it."""
    opened = open_database(database_url)
    yield opened.stores
    opened.close()


def meanwhile(database: Database, words: str, do: Callable[[], object]) -> list[str]:
    """Do it once, before the first annotation with these words; the list tells that it was done."""
    done: list[str] = []

    @event.listens_for(database.sessions.engine, "before_cursor_execute")
    def _(_connection, _cursor, annotation, *_):
        if not done and words in annotation:
            done.append(annotation)
            do()

    return done


def test_a_cell_that_ends_between_two_annotations_is_counted_once(database, other):
    cell, *_ = create(database.stores, platforms=1)
    agent = Agent(database.stores, attempt(database.stores, cell))
    agent.send(agent.manifest("t::a", "t::b"), agent.test("t::a"), agent.test("t::b", "skipped"))
    advance(database.stores, cell, CellState.RELEASING)
    passed = Cause(Outcome.PASSED, "")
    done = meanwhile(
        database, "cell.state !=", lambda: other.cells.conclude(cell, passed, at=after(9))
    )
    for _ in range(2):
        [listed], _ = list_runs(database.stores, limit=1, before=None, at=after(10))
        assert (listed.counts.passed, listed.counts.collected) == (1, 2)
    assert done


def test_a_verdict_of_another_kind_between_two_annotations_breaks_no_line(database, other):
    def decide(stores, decision, at):
        verdict = replace(VERDICT, decision=decision, at=at)
        digest = digest_of(verdict_document(verdict))
        stores.gates.add_verdict(
            replace(STORED, verdict=verdict, created_at=at, document_digest=digest)
        )

    database.stores.gates.put_policy(POLICY)
    decide(database.stores, Decision.PASS, NOW)
    done = meanwhile(database, "min(verdict", lambda: decide(other, Decision.FAIL, after(5)))
    seen = [
        [(line.newest.id, line.first) for line in database.stores.gates.lineage_heads()]
        for _ in range(2)
    ]
    assert seen == [[("V-0001", "V-0001")], [("V-0002", "V-0002")]]
    assert done


def live(stores) -> tuple[str, Agent]:
    """A cell whose suite goes on: of three tests one has failed."""
    cell, *_ = create(stores, platforms=1)
    agent = Agent(stores, attempt(stores, cell))
    advance(stores, cell, CellState.RUNNING)
    agent.send(
        agent.line("phase", "unit", name="started"),
        agent.manifest("t::a", "t::b", "t::c"),
        agent.test("t::a", **FAILED),
    )
    return cell, agent


@pytest.mark.parametrize("kind", ["summary", "platform", "backend", "results"])
def test_a_run_that_goes_on_has_reports(stores, kind, monkeypatch):
    _, agent = live(stores)
    ask = stores.results.tests

    def results_came(cell_id, **asked):
        agent.send(agent.test("t::c"))
        return ask(cell_id, **asked)

    monkeypatch.setattr(stores.results, "tests", results_came)
    evidence = evidence_of(stores, "run-1", at=after(5))
    counts = evidence.record.cells[0].counts
    assert (counts.failed, counts.passed, counts.missing) == (1, 1, 1)
    cell = "p0" if kind == "platform" else None
    templates = asset_dir("templates") / "reports"
    assert render(kind, evidence, cell=cell, format="md", templates=templates)


def test_a_test_whose_teardown_is_to_come_has_not_failed_yet(stores):
    _, agent = live(stores)
    call = agent.test("t::b", **FAILED).splitlines(keepends=True)[:2]
    agent.send(*call)
    evidence = evidence_of(stores, "run-1", at=after(5))
    templates = asset_dir("templates") / "reports"
    text = render("summary", evidence, cell=None, format="md", templates=templates)
    assert evidence.record.cells[0].counts.failed == 1
    assert "2 failed" not in text


def test_a_cell_that_is_handed_in_meanwhile_is_told_whole_or_not_at_all(stores, monkeypatch):
    cell, *_ = create(stores, platforms=1)
    stores.cells.conclude(cell, Cause(Outcome.PASSED, ""), at=after(1))
    stores.runs.finish("run-1", Outcome.PASSED, at=after(2))
    read = stores.runs.launched

    def handed_in(run_id):
        launched = read(run_id)
        monkeypatch.setattr(stores.runs, "launched", read)
        plan = CellPlan("mi300", Platform(id="mi300", provider="elsewhere"), "image", ("foreign",))
        suite = Job(id="foreign", kind="suite", pytest=("x",))
        manifest = replace(MANIFEST, job=(*MANIFEST.job, suite))
        stores.ingests.begin(
            stores.runs.get(run_id),
            RunSpec(matrix(1), manifest),
            ("run-1.mi300", plan),
            Ingested(
                fingerprint="f" * 64,
                ingested_at=after(3),
                dated_at=after(3),
                is_dated=False,
                sources=(),
            ),
            attempt_id="run-1.mi300-1",
            artifacts=[],
            annotations=[],
        )
        return launched

    monkeypatch.setattr(stores.runs, "launched", handed_in)
    assert [one.id for one in describe_run(stores, "run-1", at=after(9)).cells] == ["p0"]
    told = describe_run(stores, "run-1", at=after(9)).cells
    assert [[job.id for job in one.jobs] for one in told] == [["unit", "demo"], ["foreign"]]
