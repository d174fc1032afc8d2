"""Failures of a run: tests by error, and jobs and cells that failed for other reasons."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

from orchestrator.cli.client import Client, read, read_items
from orchestrator.cli.errors import CliError
from orchestrator.cli.safe_text import fit, one_line
from orchestrator.cli.session import cell_path
from orchestrator.domain.manifest import output_artifact
from orchestrator.domain.run_record import CellRecord, JobRecord, RunResponse, TestResponse
from orchestrator.domain.unexplained_failures import CellFailure, cell_failures
from orchestrator.domain.vocabulary import reason_text

BAD = ("failed", "error")
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class FailureLine:
    """A failure with all cells that have the same error."""

    job: str
    """Empty if the cell failed by itself."""
    test: str
    """Empty if a job or cell failed for another reason than its tests."""
    outcome: str
    error: str
    """First line of the error."""
    cells: list[str] = field(default_factory=list)
    log: str = ""
    """The command that shows its log."""
    artifacts: list[str] = field(default_factory=list)
    """Files that the test left, as ``CELL/NAME``."""

    def as_json(self) -> dict[str, object]:
        """Return it as JSON."""
        return asdict(self)


def tests_of(
    client: Client, run: RunResponse, cell: CellRecord, *, job: str | None, outcome: str | None
) -> Iterator[TestResponse]:
    """Yield the cell's tests page by page, in the order of collection."""
    after: int | None = 0
    while after is not None:
        asked = {"job": job, "outcome": outcome, "after": after, "limit": _PAGE}
        page = client.get(f"{cell_path(run, cell)}/tests", **asked)
        yield from read_items(TestResponse, page)
        after = read(_Next, page).next


@dataclass(frozen=True, slots=True)
class _Next:
    next: int | None = None


def failing_tests(
    client: Client, run: RunResponse, cell: CellRecord, *, job: str | None = None
) -> Iterator[TestResponse]:
    """Return tests that failed or ended in error."""
    figures = cell.counts.as_dict()
    for outcome in BAD:
        if figures[outcome]:
            yield from tests_of(client, run, cell, job=job, outcome=outcome)


def why(record: JobRecord | CellRecord) -> str:
    """Return reason and detail in one line; empty if both are unknown."""
    return reason_text(record.reason, record.detail)


def failures_of(client: Client, run: RunResponse, cells: Iterable[CellRecord]) -> list[FailureLine]:
    """Return every failure of these cells, in the order of cells and jobs."""
    found: dict[CellFailure, FailureLine] = {}
    for cell in cells:
        for failure, artifacts in _of_cell(client, run, cell):
            line = found.setdefault(failure, FailureLine(*failure))
            line.cells.append(cell.id)
            line.artifacts.extend(f"{cell.id}/{name}" for name in artifacts)
    return [_with_command(run, failure) for failure in found.values()]


def _of_cell(
    client: Client, run: RunResponse, cell: CellRecord
) -> Iterator[tuple[CellFailure, Sequence[str]]]:
    """Yield each failure, with the names of the files that its test left."""
    left = {
        CellFailure(test.job, test.nodeid, test.outcome.word, test.error): test.artifacts
        for test in failing_tests(client, run, cell)
    }
    for failure in cell_failures(cell, left):
        yield failure, left.get(failure, ())


def output_of(cell: CellRecord, job: str) -> str | None:
    """Return the artifact of a job's output; None without one."""
    name = output_artifact(job)
    return name if any(artifact.name == name for artifact in cell.artifacts) else None


def _with_command(run: RunResponse, failure: FailureLine) -> FailureLine:
    cell = next(cell for cell in run.cells if cell.id == failure.cells[0])
    is_stored = failure.test or output_of(cell, failure.job)
    words = ["seatrial", "logs", run.id]
    words += ["--job", failure.job] if is_stored else []
    words += ["--test", failure.test] if failure.test else []
    words += ["--cell", cell.id] if len(run.cells) > 1 else []
    return replace(failure, log=shlex.join(words))


MOST_PER_JOB = 20
_MESSAGE_WIDTH = 160


@dataclass(frozen=True, slots=True)
class BadTest:
    """A test that keeps its suite from passing."""

    cell: str
    test: TestResponse

    def __str__(self) -> str:
        test = self.test
        said = f": {fit(one_line(test.message), _MESSAGE_WIDTH)}" if test.message else ""
        place = f"{one_line(self.cell)} {one_line(test.job)}"
        return f"{place}: {test.outcome.word} {one_line(test.nodeid)}{said}"


class FailingTests:
    """Finds failing tests that were not reported yet."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen: dict[tuple[str, str, str], int] = {}
        self._printed: set[tuple[str, str, str]] = set()

    def fresh(self, run: RunResponse) -> list[BadTest]:
        """Return new ones, at most `MOST_PER_JOB` per job and outcome.

        What cannot be fetched now is found at a later look.
        """
        return [
            test
            for cell in run.cells
            for job in cell.jobs
            for outcome in BAD
            for test in self._of(run.id, cell, job, outcome)
        ]

    def _of(self, run_id: str, cell: CellRecord, job: JobRecord, outcome: str) -> Iterator[BadTest]:
        count = job.counts.as_dict()[outcome] if job.counts else 0
        key = (cell.id, job.id, outcome)
        if count <= self._seen.get(key, 0) or self._seen.get(key, 0) >= MOST_PER_JOB:
            return
        path = f"/runs/{run_id}/cells/{cell.id}/tests"
        try:
            answer = self._client.get(path, job=job.id, outcome=outcome, limit=MOST_PER_JOB)
            found = read_items(TestResponse, answer)
        except CliError:
            return
        self._seen[key] = count
        for test in found:
            name = (cell.id, test.job, test.nodeid)
            if name not in self._printed:
                self._printed.add(name)
                yield BadTest(cell.id, test)
