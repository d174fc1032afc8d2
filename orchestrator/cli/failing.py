"""What failed in a run: tests by what their error says, jobs without a failing test, cells."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from orchestrator.cli.client import Client
from orchestrator.cli.responses import read, read_items
from orchestrator.cli.session import cell_path
from orchestrator.cli.view.glyphs import is_quiet, word
from orchestrator.domain.run_answer import RunAnswer
from orchestrator.domain.run_record import CellRecord, JobRecord

BAD = ("failed", "error")
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class TestAnswer:
    """A test, as `GET /runs/{run}/cells/{cell}/tests` tells it."""

    __test__ = False

    job: str
    nodeid: str
    outcome: str
    message: str = ""
    text: str = ""

    @property
    def error(self) -> str:
        """The first line that says what is wrong."""
        lines = (self.message or self.text).strip().splitlines()
        return lines[0] if lines else ""


@dataclass(frozen=True, slots=True)
class FailureLine:
    """One failure, on every cell where it says the same."""

    job: str
    """Empty where a cell failed before its jobs."""
    test: str
    """Empty where no test failed."""
    outcome: str
    error: str
    """Its first line."""
    cells: list[str] = field(default_factory=list)
    log: str = ""
    """The command that shows its log."""

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return asdict(self)


def tests_of(
    client: Client, run: RunAnswer, cell: CellRecord, *, job: str | None, outcome: str | None
) -> Iterator[TestAnswer]:
    """The cell's tests, page by page, in the order they were collected."""
    after: int | None = 0
    while after is not None:
        asked = {"job": job, "outcome": outcome, "after": after, "limit": _PAGE}
        page = client.get(f"{cell_path(run, cell)}/tests", **asked)
        yield from read_items(TestAnswer, page)
        after = read(_Next, page).next


@dataclass(frozen=True, slots=True)
class _Next:
    next: int | None = None


def failing_tests(
    client: Client, run: RunAnswer, cell: CellRecord, *, job: str | None = None
) -> Iterator[TestAnswer]:
    """Those that failed or ended in an error."""
    figures = cell.counts.as_dict()
    for outcome in BAD:
        if figures[outcome]:
            yield from tests_of(client, run, cell, job=job, outcome=outcome)


def failing_jobs(cell: CellRecord) -> list[JobRecord]:
    """Those that failed although none of their tests did."""
    return [
        job
        for job in cell.jobs
        if job.outcome is not None
        and not is_quiet(job.outcome)
        and not any(job.counts.as_dict()[outcome] for outcome in BAD)
    ]


def failures_of(client: Client, run: RunAnswer) -> list[FailureLine]:
    """Every failure of a run, in the order of its cells and jobs."""
    found: dict[tuple[str, str, str, str], FailureLine] = {}
    for cell in run.cells:
        for key in _of_cell(client, run, cell):
            found.setdefault(key, FailureLine(*key)).cells.append(cell.id)
    return [_with_command(run, failure) for failure in found.values()]


def _of_cell(
    client: Client, run: RunAnswer, cell: CellRecord
) -> Iterator[tuple[str, str, str, str]]:
    """Job, test, outcome and error of each."""
    tests = jobs = False
    for test in failing_tests(client, run, cell):
        tests = True
        yield test.job, test.nodeid, test.outcome, test.error
    for job in failing_jobs(cell):
        jobs = True
        yield job.id, "", str(job.outcome), job.detail or word(job.reason)
    if cell.outcome is not None and not (tests or jobs or is_quiet(cell.outcome)):
        said = ": ".join(part for part in (word(cell.reason), cell.detail) if part)
        yield "", "", str(cell.outcome), said


def _with_command(run: RunAnswer, failure: FailureLine) -> FailureLine:
    words = ["seatrial", "logs", run.id]
    words += ["--job", failure.job] if failure.job else []
    words += ["--test", failure.test] if failure.test else []
    words += ["--cell", failure.cells[0]] if len(run.cells) > 1 else []
    parts = (failure.job, failure.test, failure.outcome, failure.error, failure.cells)
    return FailureLine(*parts, log=shlex.join(words))
