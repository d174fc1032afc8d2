"""Failures of a run (tests by error, jobs and cells), and logs of cells, jobs and tests."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus

from orchestrator.cli.errors import CliError
from orchestrator.cli.safe_text import fit, one_line
from orchestrator.cli.view.glyphs import word
from orchestrator.client.errors import RefusalError, SeatrialError
from orchestrator.client.run_requests import BAD
from orchestrator.client.seatrial import Seatrial
from orchestrator.domain.document_problems import nearest
from orchestrator.domain.known_issue import FailingResult, states_by_result
from orchestrator.domain.manifest import output_artifact
from orchestrator.domain.quarantine import active_ids
from orchestrator.domain.run_record import CellRecord, JobRecord, RunResponse, TestResponse
from orchestrator.domain.unexplained_failures import (
    CellFailure,
    cell_failures,
    failing_jobs,
    fails_itself,
)


class WholeLines:
    """Splits incoming bytes after line breaks, never within a character or an escape sequence."""

    def __init__(self) -> None:
        self._torn = b""

    def add(self, piece: bytes) -> bytes:
        """Return the lines that this piece completes."""
        lines, end, self._torn = (self._torn + piece).rpartition(b"\n")
        return lines + end

    def rest(self) -> bytes:
        """Return the incomplete last line, terminated."""
        line, self._torn = self._torn, b""
        return line + b"\n" if line else b""


class CellLog:
    """Reads a cell's log from the last position."""

    def __init__(
        self, client: Seatrial, run: RunResponse, cell: CellRecord, *, prefixed: bool
    ) -> None:
        """With `prefixed`, each line begins with the cell's id."""
        self._client = client
        self._cell = cell
        self._run_id = run.id
        self._prefix = f"[{cell.id}] ".encode() if prefixed else b""
        self._offset = 0
        self._lines = WholeLines()

    @property
    def nothing(self) -> str:
        """Reason why no log was read; empty if some was, or if the cell was ingested."""
        is_said = self._offset or self._cell.ingested is not None
        return "" if is_said else _nothing("", self._cell, self._cell)

    def new(self, *, to_the_end: bool) -> Iterator[bytes]:
        """Yield new whole lines; with `to_the_end` also an incomplete last line."""
        while True:
            try:
                data, after = self._client.log(self._run_id, self._cell.id, after=self._offset)
            except RefusalError as error:
                if error.status == 404:
                    return  # nothing was written yet
                raise
            yield from self._prefixed(self._lines.add(data))
            if after <= self._offset or not data:
                break
            self._offset = after
        if to_the_end:
            yield from self._prefixed(self._lines.rest())

    def _prefixed(self, lines: bytes) -> Iterator[bytes]:
        if lines:
            yield b"".join(self._prefix + line + b"\n" for line in lines[:-1].split(b"\n"))


@dataclass(slots=True)
class Gaps:
    """Collects what is missing because it was pruned, to report it after the other output."""

    sentences: list[str] = field(default_factory=list)
    """Sentences with the time and the reason of each pruning."""

    def besides(self, text: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the text; if it was pruned, add the reason to `sentences`."""
        try:
            yield from text
        except RefusalError as error:
            if error.status != HTTPStatus.GONE:
                raise
            if error.lines[0] not in self.sentences:
                self.sentences.append(error.lines[0])

    def refuse(self) -> None:
        """Raise CliError with the sentences, if there are any."""
        if self.sentences:
            raise CliError(*self.sentences)


@dataclass(frozen=True, slots=True)
class LogSelection:
    """The part of a cell's log to show; by default the whole log."""

    job: str | None = None
    """Id of the only job to show; None for all jobs."""
    test: str | None = None
    """A node id, or a part of one, of the test whose stored traceback is shown."""
    failed: bool = False
    """Whether only failures are shown: tracebacks of tests, logs of other failed jobs and cells."""

    @property
    def is_part(self) -> bool:
        """Whether the selection is less than the whole log."""
        return bool(self.job or self.test or self.failed)

    def __str__(self) -> str:
        if self.test:
            return f"test {self.test!r}"
        of_job = f" of job {self.job!r}" if self.job else ""
        return f"failure{of_job}" if self.failed else f"output{of_job}"


def chosen_logs(
    client: Seatrial, run: RunResponse, cells: list[CellRecord], chosen: LogSelection, gaps: Gaps
) -> Iterator[bytes]:
    """Yield the selected output, each part under a heading. Raises CliError if there is none."""
    jobs = {one.id for cell in cells for one in cell.jobs}
    if chosen.job and chosen.job not in jobs:
        raise CliError(f"run {run.id} has no job {chosen.job!r}{nearest(chosen.job, sorted(jobs))}")
    some = False
    for cell in cells:
        for piece in _of_cell(client, run, cell, chosen, gaps):
            some = True
            yield piece
    if not some:
        where = "" if len(cells) == len(run.cells) else f" in cell {cells[0].id!r}"
        whole = f"`seatrial logs {run.id}` prints its whole log"
        raise CliError(f"run {run.id} has no {chosen}{where}; {whole}")


def _of_cell(
    client: Seatrial, run: RunResponse, cell: CellRecord, chosen: LogSelection, gaps: Gaps
) -> Iterator[bytes]:
    named: Counter[str] = Counter()
    if chosen.test or chosen.failed:
        for test in _tests(client, run, cell, chosen):
            named[test.job] += 1
            if (chosen.test or "") in test.nodeid:
                yield _text(cell, test)
    if chosen.failed and not chosen.test:
        yield from _failures(client, run, cell, chosen.job, named, gaps)
    elif chosen.job and not chosen.test:
        yield from _output(client, run, cell, chosen.job, gaps)


def _failures(
    client: Seatrial,
    run: RunResponse,
    cell: CellRecord,
    job: str | None,
    named: Mapping[str, int],
    gaps: Gaps,
) -> Iterator[bytes]:
    """Yield what is stored of failures other than tests."""
    for one in failing_jobs(cell, named):
        if job not in (None, one.id):
            continue
        if output_of(cell, one.id):
            yield from _output(client, run, cell, one.id, gaps)
        else:
            about = f"===== {cell.id} {one.id} =====\n{_nothing(f'job {one.id} of ', cell, one)}"
            yield f"{about}; `seatrial logs {run.id} --cell {cell.id}` has the cell's\n".encode()
    if job is None and fails_itself(cell):
        yield f"===== {cell.id} =====\n".encode()
        log = CellLog(client, run, cell, prefixed=False).new(to_the_end=True)
        lines = list(gaps.besides(log))
        if not lines and not gaps.sentences:
            lines = [f"{_nothing('', cell, cell)}\n".encode()]
        yield from lines


def _nothing(what: str, cell: CellRecord, record: JobRecord | CellRecord) -> str:
    if record.outcome is None:
        return f"nothing is stored of {what}cell {cell.id} so far ({word(cell.state)})"
    is_lost = record is cell and not cell.was_reached
    parts = word(record.outcome), "no machine was reached" if is_lost else "", record.why
    return f"nothing is stored of {what}cell {cell.id} ({': '.join(filter(None, parts))})"


def _tests(
    client: Seatrial, run: RunResponse, cell: CellRecord, chosen: LogSelection
) -> Iterator[TestResponse]:
    if chosen.failed:
        return client.failing_tests(run.id, cell, job=chosen.job)
    return client.tests(run.id, cell.id, job=chosen.job)


def _text(cell: CellRecord, test: TestResponse) -> bytes:
    said = test.text or test.message or "nothing is stored of it but its outcome"
    title = f"{cell.id} {test.job}: {test.nodeid} {test.outcome.word}"
    return f"===== {title} =====\n{said.rstrip()}\n".encode(errors="replace")


def _output(
    client: Seatrial, run: RunResponse, cell: CellRecord, job: str, gaps: Gaps
) -> Iterator[bytes]:
    """Yield a job's output from its artifact."""
    name = output_of(cell, job)
    if name is None:
        return
    yield f"===== {cell.id} {job} =====\n".encode()
    yield from gaps.besides(_lines_of(client.artifact(run.id, cell.id, name)))


def _lines_of(file: AbstractContextManager[Iterator[bytes]]) -> Iterator[bytes]:
    """Yield the whole lines of a file."""
    lines = WholeLines()
    with file as pieces:
        yield from map(lines.add, pieces)
    yield lines.rest()


@dataclass(frozen=True, slots=True)
class FailureLine:
    """A failure with all cells that have the same error."""

    job: str
    """Id of the job; empty if the cell failed outside of its jobs."""
    test: str
    """Node id of the test; empty if a job or cell failed for another reason."""
    outcome: str
    error: str
    """First line of the error."""
    cells: list[str] = field(default_factory=list)
    log: str = ""
    """The command that shows its log."""
    artifacts: list[str] = field(default_factory=list)
    """Artifacts of the test, as ``CELL/NAME``."""
    quarantined: dict[str, str] = field(default_factory=dict)
    """Ids of active quarantines that the test is in, by cell."""
    known_issues: dict[str, dict[str, str]] = field(default_factory=dict)
    """Known issues that match, with their states, by cell."""

    def as_json(self) -> dict[str, object]:
        """Return the failure as JSON values."""
        return asdict(self)


def failures_of(
    client: Seatrial, run: RunResponse, cells: Iterable[CellRecord]
) -> list[FailureLine]:
    """Return every failure of these cells, in the order of cells and jobs."""
    found: dict[CellFailure, FailureLine] = {}
    held, known = active_ids(run.quarantined), states_by_result(run.known_issues)
    for cell in cells:
        for failure, artifacts in _failures_of_cell(client, run, cell):
            line = found.setdefault(failure, FailureLine(*failure))
            line.cells.append(cell.id)
            if quarantine := held.get((cell.id, failure.job, failure.test)):
                line.quarantined[cell.id] = quarantine
            if issues := known.get(FailingResult(cell.id, failure.job, failure.test)):
                line.known_issues[cell.id] = dict(issues)
            line.artifacts.extend(f"{cell.id}/{name}" for name in artifacts)
    return [_with_command(run, failure) for failure in found.values()]


def _failures_of_cell(
    client: Seatrial, run: RunResponse, cell: CellRecord
) -> Iterator[tuple[CellFailure, Sequence[str]]]:
    """Yield each failure with the names of its test's artifacts."""
    left = {
        CellFailure(test.job, test.nodeid, test.outcome.word, test.error): test.artifacts
        for test in client.failing_tests(run.id, cell)
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

    def __init__(self, client: Seatrial) -> None:
        self._client = client
        self._seen: dict[tuple[str, str, str], int] = {}
        self._printed: set[tuple[str, str, str]] = set()

    def fresh(self, run: RunResponse) -> list[BadTest]:
        """Return new failing tests, at most `MOST_PER_JOB` per job and outcome.

        Tests that cannot be fetched now are returned by a later call.
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
        try:
            found = self._client.tests_after(
                run_id, cell.id, 0, job=job.id, outcome=outcome, limit=MOST_PER_JOB
            ).records
        except SeatrialError:
            return
        self._seen[key] = count
        for test in found:
            name = (cell.id, test.job, test.nodeid)
            if name not in self._printed:
                self._printed.add(name)
                yield BadTest(cell.id, test)
