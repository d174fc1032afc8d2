"""The end of a run, while others end the same one: on SQLite and on Postgres."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

from orchestrator.adapters.files.blobs import FileBlobs
from orchestrator.application.add_annotations import add_annotations
from orchestrator.application.cell.finishing import poll_finish
from orchestrator.application.cell.flow_context import Locks
from orchestrator.application.finish_ingestion import finish_ingestion, resume_ingestions
from orchestrator.bootstrap.controller_wiring import build
from orchestrator.config import Settings
from orchestrator.domain.annotation import Annotation
from orchestrator.domain.cell import Cause, CellState, RunSpec, RunState
from orchestrator.domain.ingested import Ingested
from orchestrator.domain.manifest import Job, Manifest
from orchestrator.domain.matrix import CellPlan, Platform
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store.stores import Stores
from tests.databases import Agent, a_run, after, create, matrix, together


@dataclass
class Clock:
    """Moves on whenever it is looked at."""

    seconds: count = field(default_factory=lambda: count(10))

    def now(self):
        return after(next(self.seconds))


@dataclass
class Controller:
    """One process: its own locks, its own reports; the stores and the bytes are everybody's."""

    stores: Stores
    blobs: FileBlobs
    locks: Locks = field(default_factory=Locks)
    clock: Clock = field(default_factory=Clock)
    published: list = field(default_factory=list)
    meanwhile: list = field(default_factory=list)
    """What happens while the first reports are written."""

    def publish(self, evidence) -> Path:
        if self.meanwhile:
            self.meanwhile.pop()()
        self.published.append(evidence.record)
        return Path("report")

    def doubt(self, _statement, _evidence):
        return ()

    def begin(self, platform: str, outcome: str = "passed"):
        """Begin an ingestion into the run, as its request does."""
        tape = Agent(self.stores, "none")
        lines = (
            tape.line("phase", "unit", name="started"),
            tape.manifest("t::a"),
            tape.test("t::a", outcome),
            tape.line(
                "phase", "unit", name="finished", exit_code=int(outcome != "passed"), duration_s=1
            ),
            tape.line("end", outcome="completed", reason=None, detail=""),
        )
        digest, size = self.blobs.put([b"".join(lines)])
        job = Job(id="unit", kind="suite", pytest=("x",))
        place = Platform(id=platform, provider="none")
        return self.stores.ingests.begin(
            self.stores.runs.get("run-1") or a_run(),
            RunSpec(matrix(1), Manifest(name="proof", version="1", job=(job,))),
            (f"run-1-{platform}", CellPlan(platform, place, "x", ("unit",))),
            Ingested(
                fingerprint=platform,
                ingested_at=after(3),
                dated_at=after(3),
                is_dated=False,
                sources=(),
            ),
            attempt_id=f"run-1-{platform}-1",
            artifacts=[ArtifactRecord("events.jsonl", size, digest)],
            annotations=[],
        )


@pytest.fixture
def controllers(stores, tmp_path):
    """Two of them."""
    blobs = FileBlobs(tmp_path / "blobs")
    return Controller(stores, blobs), Controller(stores, blobs)


def told(stores: Stores):
    """The run's state and outcome, and those of its cells."""
    run = stores.runs.get("run-1")
    cells = [(cell.state, cell.outcome) for cell in stores.cells.of_run("run-1")]
    return run.state, run.outcome, cells


PASSED = CellState.DONE, Outcome.PASSED
FAILED = CellState.DONE, Outcome.FAILED


def test_a_late_end_leaves_a_run_that_was_opened_again(controllers, stores):
    quick, late = controllers
    first = quick.begin("one")

    def ended_and_opened():
        finish_ingestion(quick, first)
        assert told(stores) == (RunState.FINISHED, Outcome.PASSED, [PASSED])
        quick.begin("two", "failed")

    late.meanwhile.append(ended_and_opened)
    resume_ingestions(late)
    add_annotations, _, cells = told(stores)
    assert (add_annotations, cells) == (RunState.INGESTING, [PASSED, (CellState.COLLECTING, None)])
    assert stores.cells.unfinished() == ()
    assert [begun.cell_id for begun, _ in stores.ingests.unfinished()][-1] == "run-1-two"
    resume_ingestions(late)
    assert told(stores) == (RunState.FINISHED, Outcome.FAILED, [PASSED, FAILED])
    assert [len(run.cells) for run in late.published] == [1, 2]


def test_a_late_end_counts_a_cell_that_was_added_and_judged_meanwhile(controllers, stores):
    quick, late = controllers
    first = quick.begin("one")

    def ended_and_judged():
        finish_ingestion(quick, first)
        second = quick.begin("two", "failed")
        stores.cells.enter(second.cell_id, CellState.RELEASING, at=after(90))
        stores.cells.conclude(second.cell_id, Cause(Outcome.FAILED, ""), at=after(91))

    late.meanwhile.append(ended_and_judged)
    resume_ingestions(late)
    assert told(stores) == (RunState.FINISHED, Outcome.FAILED, [PASSED, FAILED])
    assert late.published[-1].run.outcome is Outcome.FAILED
    assert stores.cells.unfinished() == stores.ingests.unfinished() == ()


def cancelled(stores: Stores, *, platforms: int) -> list[str]:
    """Cells of a run that was cancelled while all of them were queued."""
    cells = create(stores, platforms=platforms)
    for cell_id in cells:
        stores.cells.conclude(cell_id, Cause(Outcome.CANCELLED, "cancelled"), at=after(3))
    return cells


def test_a_late_last_cell_leaves_a_run_that_was_opened_again(controllers, stores):
    quick, late = controllers
    first, second = cancelled(stores, platforms=2)

    def ended_and_opened():
        assert poll_finish(quick, first) == "finished"
        quick.begin("more")

    late.meanwhile.append(ended_and_opened)
    assert poll_finish(late, second) == "others run"
    assert told(stores)[0] is RunState.INGESTING
    assert stores.cells.unfinished() == ()
    resume_ingestions(late)
    assert told(stores)[:2] == (RunState.FINISHED, Outcome.CANCELLED)


def test_cells_that_end_together_publish_once(controllers, stores):
    controller, _ = controllers
    cells = cancelled(stores, platforms=4)
    looks = [lambda cell=cell: poll_finish(controller, cell) for cell in cells]
    assert together(looks) == ["finished"] * 4
    assert len(controller.published) == 1
    assert [item.data for item in stores.run_events.after("run-1", 0) if item.kind == "report"] == [
        {"published": True}
    ]


def test_what_is_stated_while_the_last_cell_publishes_is_in_the_reports(controllers, stores):
    controller, _ = controllers
    [cell_id] = cancelled(stores, platforms=1)
    note = Annotation(kind="note", text="as expected", author="me")
    person = Thread(target=add_annotations, args=(controller, "run-1", [note]))

    def stated():
        person.start()
        person.join(0.5)

    controller.meanwhile.append(stated)
    poll_finish(controller, cell_id)
    person.join(60)
    assert [one.text for one in controller.published[-1].annotations] == ["as expected"]


@pytest.mark.parametrize("judged", [0, 1, 3])
def test_only_the_cells_that_were_judged_end_a_run(stores, judged):
    first, second = create(stores)
    stores.cells.conclude(first, Cause(Outcome.PASSED, ""), at=after(1))
    assert not stores.runs.finish("run-1", Outcome.PASSED, cells=judged, at=after(2))
    assert not stores.runs.finish("run-1", Outcome.PASSED, cells=2, at=after(2))
    stores.cells.conclude(second, Cause(Outcome.PASSED, ""), at=after(3))
    assert not stores.runs.finish("run-1", Outcome.PASSED, cells=judged, at=after(4))
    assert stores.runs.get("run-1").state is RunState.RUNNING
    assert stores.runs.finish("run-1", Outcome.PASSED, cells=2, at=after(5))


def test_faces_and_cells_of_a_controller_wait_for_each_other(tmp_path):
    parts = build(Settings(home=tmp_path), runs_cells=False)
    assert parts.context.locks is parts.deps.locks
    parts.database.close()
