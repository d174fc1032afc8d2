"""Ingested cells: one set of questions to SQLite and to Postgres."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from threading import Barrier

import pytest

from orchestrator.domain.cell import Cause, CellState, Run, RunSpec, RunState
from orchestrator.domain.ingested import Ingested, RunAnnotation, Source
from orchestrator.domain.manifest import Job, Manifest
from orchestrator.domain.matrix import CellPlan, JobSelection, Matrix, Metadata, Platform, Subject
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.parsed_results import Provenance
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store import ingests
from orchestrator.store.database import open_database
from orchestrator.store.ingests import CellTakenError, RunBusyError, StartedIngest
from tests.databases import NOW, create

ARTIFACTS = (ArtifactRecord("events.jsonl", 7, "e" * 64), ArtifactRecord("a.txt", 3, "a" * 64))
ANNOTATION = RunAnnotation(kind="note", text="so it was", author="me", at=NOW, cell="gcp-l4")


def ingested(fingerprint: str = "f1") -> Ingested:
    source = Source(
        name="a.txt", digest="a" * 64, size_bytes=3, provenance=Provenance.STRUCTURED, jobs=("moe",)
    )
    return Ingested(
        fingerprint=fingerprint,
        ingested_at=NOW,
        dated_at=datetime(2026, 1, 19, tzinfo=UTC),
        is_dated=True,
        sources=(source,),
    )


def spec(*jobs: Job) -> RunSpec:
    matrix = Matrix(
        metadata=Metadata(name="ingested"),
        subject=Subject(name="lib", version="1.10"),
        platforms=(Platform(id="gcp-l4", provider="gcp"),),
        jobs=(JobSelection(select="*"),),
    )
    return RunSpec(matrix, Manifest(name="lib", version="1.10", job=jobs))


def begin(
    stores,
    run_id: str = "run-1",
    name: str = "gcp-l4",
    fingerprint: str = "f1",
    cause: Cause | None = None,
) -> StartedIngest:
    run = Run(run_id, "ingested", "lib", "1.10", "", NOW)
    plan = CellPlan(name, Platform(id=name, provider="gcp"), "image", ("moe",))
    cell_id = f"{run_id}-{name}-{fingerprint}"
    return stores.ingests.begin(
        run,
        spec(Job(id="moe", kind="suite")),
        (cell_id, plan),
        ingested(fingerprint),
        attempt_id=f"{cell_id}-1",
        artifacts=ARTIFACTS,
        annotations=(ANNOTATION,),
        cause=cause,
    )


def finish(stores, begun: StartedIngest) -> None:
    stores.cells.enter(begun.cell_id, CellState.RELEASING, at=NOW)
    stores.cells.conclude(begun.cell_id, Cause(Outcome.PASSED, ""), at=NOW)
    stores.runs.finish(begun.run_id, Outcome.PASSED, at=NOW)


def test_what_is_begun_is_all_there(stores):
    begun = begin(stores, cause=Cause(Outcome.NOT_AVAILABLE, "not_offered", "none"))
    assert begun == StartedIngest("run-1", "run-1-gcp-l4-f1", "run-1-gcp-l4-f1-1", finished=False)
    run = stores.runs.get("run-1")
    assert run.state is RunState.INGESTING
    [cell] = stores.cells.of_run("run-1")
    assert (cell.name, cell.state) == ("gcp-l4", CellState.COLLECTING)
    [attempt] = stores.cells.attempts(cell.id)
    assert attempt.cause == Cause(Outcome.NOT_AVAILABLE, "not_offered", "none")
    assert attempt.closed_at is None
    assert stores.ingests.of_run("run-1") == {cell.id: ingested()}
    assert {one.name for one in stores.results.artifacts(cell.id)} == {"events.jsonl", "a.txt"}
    assert stores.annotations.of_run("run-1") == (ANNOTATION,)
    [step] = stores.cells.transitions(cell.id)
    assert (step.to_state, step.reason) == ("collecting", "ingested")


def test_no_controller_takes_it_for_one_of_its_own(stores):
    begun = begin(stores)
    assert stores.cells.unfinished() == ()
    assert stores.cells.awaiting_run_end() == ()
    assert stores.runs.unfinished() == ("run-1",)
    stores.cells.enter(begun.cell_id, CellState.RELEASING, at=NOW)
    stores.cells.conclude(begun.cell_id, Cause(Outcome.PASSED, ""), at=NOW)
    assert stores.cells.awaiting_run_end() == ()
    stores.runs.request_cancel("run-1", at=NOW)
    assert stores.runs.get("run-1").cancel_requested_at is None


def test_a_launched_run_beside_it_is_still_found(stores):
    begin(stores)
    launched = create(stores, "run-2", platforms=1)
    assert list(stores.cells.unfinished()) == launched


def test_the_same_again_is_what_was_begun(stores):
    first = begin(stores)
    assert begin(stores, run_id="run-2") == first
    assert stores.runs.get("run-2") is None
    assert stores.ingests.find("f1") == first
    finish(stores, first)
    assert stores.ingests.find("f1") == replace(first, finished=True)
    assert begin(stores, run_id="run-3") == replace(first, finished=True)
    assert stores.ingests.find("f2") is None


def test_the_same_from_many_at_once_is_begun_once(stores):
    barrier = Barrier(4)

    def one(number: int) -> StartedIngest:
        barrier.wait()
        return begin(stores, run_id=f"run-{number}")

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(one, range(4)))
    assert len(found) == 1
    runs, _ = stores.runs.page(limit=10, before=None)
    assert [run.id for run in runs] == [found.pop().run_id]


@pytest.mark.needs_postgres
@pytest.mark.parametrize("is_over", [False, True])
def test_the_same_for_a_run_that_another_opened_meanwhile(postgres_url, monkeypatch, is_over):
    """Not on SQLite: there nobody else writes between what one transaction reads and writes."""
    database = open_database(postgres_url)
    stores, found = database.stores, ingests._found
    finish(stores, begin(stores))

    def begun_meanwhile(session, fingerprint):
        monkeypatch.undo()
        known = found(session, fingerprint)
        begun = begin(stores, name="aws", fingerprint="f2")
        if is_over:
            finish(stores, begun)
        return known

    monkeypatch.setattr(ingests, "_found", begun_meanwhile)
    begun = begin(stores, name="aws", fingerprint="f2")
    assert begun == StartedIngest("run-1", "run-1-aws-f2", "run-1-aws-f2-1", finished=is_over)
    assert len(stores.cells.of_run("run-1")) == 2
    database.close()


def test_a_cell_is_added_to_a_finished_run_which_learns_its_jobs(stores):
    finish(stores, begin(stores))
    with pytest.raises(CellTakenError, match="a cell 'gcp-l4' already, with other evidence"):
        begin(stores, fingerprint="f2")
    assert stores.runs.get("run-1").state is RunState.FINISHED
    run, plan = (
        stores.runs.get("run-1"),
        CellPlan("tpu", Platform(id="tpu", provider="tpu"), "x", ()),
    )
    more = spec(Job(id="demo", kind="demo"), Job(id="moe", kind="suite", title="another"))
    added = stores.ingests.begin(
        run,
        more,
        ("cell-2", plan),
        ingested("f3"),
        attempt_id="cell-2-1",
        artifacts=(),
        annotations=(),
    )
    jobs = stores.runs.spec("run-1").manifest.job
    assert [(job.id, job.title) for job in jobs] == [("moe", ""), ("demo", "")]
    assert [cell.name for cell in stores.cells.of_run("run-1")] == ["gcp-l4", "tpu"]
    assert [cell.position for cell in stores.cells.of_run("run-1")] == [0, 1]
    assert stores.runs.get("run-1").state is RunState.INGESTING
    with pytest.raises(RunBusyError, match="once it is finished"):
        begin(stores, name="aws", fingerprint="f4")
    finish(stores, added)
    assert stores.runs.get("run-1").state is RunState.FINISHED


def test_a_running_run_gets_no_cell(stores):
    create(stores, "run-1", platforms=1)
    with pytest.raises(RunBusyError, match="run run-1 is running"):
        begin(stores)
    assert stores.ingests.find("f1") is None
    assert len(stores.cells.of_run("run-1")) == 1


def test_what_was_cut_off_is_found_until_the_run_is_finished(stores):
    begun = begin(stores)
    assert stores.ingests.unfinished() == ((begun, ingested()),)
    stores.cells.enter(begun.cell_id, CellState.RELEASING, at=NOW)
    stores.cells.conclude(begun.cell_id, Cause(Outcome.PASSED, ""), at=NOW)
    assert stores.ingests.unfinished() == ((begun, ingested()),)
    stores.runs.finish("run-1", Outcome.PASSED, at=NOW)
    assert stores.ingests.unfinished() == ()


def test_watchers_are_told(stores):
    begun = begin(stores)
    finish(stores, begun)
    said = [(item.kind, item.data.get("state")) for item in stores.run_events.after("run-1", 0)]
    assert said == [
        ("cell", "collecting"),
        ("cell", "releasing"),
        ("cell", "done"),
        ("run", "finished"),
    ]
