"""Logs of cells, jobs and tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import quote

from orchestrator.cli.client import Client
from orchestrator.cli.errors import CliError, RefusalError
from orchestrator.cli.run_failures import (
    failing_tests,
    output_of,
    tests_of,
    why,
)
from orchestrator.cli.session import cell_path
from orchestrator.cli.view.glyphs import word
from orchestrator.domain.document_problems import nearest
from orchestrator.domain.run_record import CellRecord, JobRecord, RunResponse, TestResponse
from orchestrator.domain.unexplained_failures import failing_jobs, fails_itself


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
        self, client: Client, run: RunResponse, cell: CellRecord, *, prefixed: bool
    ) -> None:
        """With `prefixed`, each line begins with the cell's id."""
        self._client = client
        self._path = cell_path(run, cell) + "/log"
        self._prefix = f"[{cell.id}] ".encode() if prefixed else b""
        self._offset = 0
        self._lines = WholeLines()

    def new(self, *, to_the_end: bool) -> Iterator[bytes]:
        """Return new whole lines; at the end, an incomplete one too."""
        while True:
            try:
                data, after = self._client.log_bytes(self._path, after=self._offset)
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
    """What was asked for and was pruned: all else is printed, and then this."""

    sentences: list[str] = field(default_factory=list)
    """Why and when, in sentences."""

    def besides(self, text: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the text, unless it was pruned."""
        try:
            yield from text
        except RefusalError as error:
            if error.status != HTTPStatus.GONE:
                raise
            if error.lines[0] not in self.sentences:
                self.sentences.append(error.lines[0])

    def refuse(self) -> None:
        """Raise CliError if something was pruned."""
        if self.sentences:
            raise CliError(*self.sentences)


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Which part of a cell's log is shown; without any choice all of it."""

    job: str | None = None
    """Only this job."""
    test: str | None = None
    """A node id, or a part of one: the test's stored traceback."""
    failed: bool = False
    """Tracebacks of failing tests, and logs of jobs and cells that failed otherwise."""

    @property
    def is_part(self) -> bool:
        """Whether the selection is not everything."""
        return bool(self.job or self.test or self.failed)

    def __str__(self) -> str:
        if self.test:
            return f"test {self.test!r}"
        of_job = f" of job {self.job!r}" if self.job else ""
        return f"failure{of_job}" if self.failed else f"output{of_job}"


def chosen_logs(
    client: Client, run: RunResponse, cells: list[CellRecord], chosen: LogSelection, gaps: Gaps
) -> Iterator[bytes]:
    """Yield the output of tests or jobs, each under a heading. Raises CliError without any."""
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
    client: Client, run: RunResponse, cell: CellRecord, chosen: LogSelection, gaps: Gaps
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
    client: Client,
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
    outcome = ": ".join(part for part in (word(str(record.outcome)), why(record)) if part)
    return f"nothing is stored of {what}cell {cell.id} ({outcome})"


def _tests(
    client: Client, run: RunResponse, cell: CellRecord, chosen: LogSelection
) -> Iterator[TestResponse]:
    if chosen.failed:
        return failing_tests(client, run, cell, job=chosen.job)
    return tests_of(client, run, cell, job=chosen.job, outcome=None)


def _text(cell: CellRecord, test: TestResponse) -> bytes:
    said = test.text or test.message or "nothing is stored of it but its outcome"
    title = f"{cell.id} {test.job}: {test.nodeid} {test.outcome.word}"
    return f"===== {title} =====\n{said.rstrip()}\n".encode(errors="replace")


def _output(
    client: Client, run: RunResponse, cell: CellRecord, job: str, gaps: Gaps
) -> Iterator[bytes]:
    """Return a job's output: its artifact."""
    name = output_of(cell, job)
    if name is None:
        return
    yield f"===== {cell.id} {job} =====\n".encode()
    path = f"{cell_path(run, cell)}/artifacts/{quote(name, safe='')}"
    yield from gaps.besides(_streamed(client, path))


def _streamed(client: Client, path: str) -> Iterator[bytes]:
    """Yield the whole lines of a file."""
    lines = WholeLines()
    with client.stream(path) as answer:
        yield from map(lines.add, answer.iter_bytes())
    yield lines.rest()
