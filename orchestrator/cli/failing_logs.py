"""Logs of single jobs and tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from orchestrator.cli.client import Client
from orchestrator.cli.errors import CliError
from orchestrator.cli.failing import TestAnswer, failing_jobs, failing_tests, tests_of
from orchestrator.cli.session import cell_path
from orchestrator.domain.problems import nearest
from orchestrator.domain.run_answer import RunAnswer
from orchestrator.domain.run_record import CellRecord


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which part of the logs is asked for."""

    job: str | None = None
    """Only of this job."""
    test: str | None = None
    """A node id, or a part of one: what is stored of the test, its traceback."""
    failed: bool = False
    """The traceback of every failing test, and the output of jobs that failed without one."""

    @property
    def is_part(self) -> bool:
        """Whether it is not all."""
        return bool(self.job or self.test or self.failed)

    def __str__(self) -> str:
        if self.test:
            return f"test {self.test!r}"
        return "failure" if self.failed else f"output of job {self.job!r}"


def chosen_logs(
    client: Client, run: RunAnswer, cells: list[CellRecord], chosen: Chosen
) -> Iterator[bytes]:
    """What tests or jobs said, each under a line that names it. Raises CliError for none."""
    jobs = {one.id for cell in cells for one in cell.jobs}
    if chosen.job and chosen.job not in jobs:
        raise CliError(f"run {run.id} has no job {chosen.job!r}{nearest(chosen.job, sorted(jobs))}")
    some = False
    for cell in cells:
        for piece in _of_cell(client, run, cell, chosen):
            some = True
            yield piece
    if not some:
        whole = f"`seatrial logs {run.id}` prints its whole log"
        raise CliError(f"run {run.id} has no {chosen}; {whole}")


def _of_cell(client: Client, run: RunAnswer, cell: CellRecord, chosen: Chosen) -> Iterator[bytes]:
    named: Counter[str] = Counter()
    if chosen.test or chosen.failed:
        for test in _tests(client, run, cell, chosen):
            named[test.job] += 1
            if (chosen.test or "") in test.nodeid:
                yield _text(cell, test)
    if not chosen.test:
        of_jobs = failing_jobs(cell, named) if chosen.failed else cell.jobs
        for job in of_jobs:
            if chosen.job in (None, job.id):
                yield from _output(client, run, cell, job.id)


def _tests(
    client: Client, run: RunAnswer, cell: CellRecord, chosen: Chosen
) -> Iterator[TestAnswer]:
    if chosen.failed:
        return failing_tests(client, run, cell, job=chosen.job)
    return tests_of(client, run, cell, job=chosen.job, outcome=None)


def _text(cell: CellRecord, test: TestAnswer) -> bytes:
    said = test.text or test.message or "nothing is stored of it but its outcome"
    title = f"{cell.id} {test.job}: {test.nodeid} {test.outcome}"
    return f"===== {title} =====\n{said.rstrip()}\n".encode(errors="replace")


def _output(client: Client, run: RunAnswer, cell: CellRecord, job: str) -> Iterator[bytes]:
    """What the job printed: the raw file that comes home with the cell's artifacts."""
    name = f"{job}.txt"
    if not any(artifact.name == name for artifact in cell.artifacts):
        return
    yield f"===== {cell.id} {job} =====\n".encode()
    with client.stream(f"{cell_path(run, cell)}/artifacts/{quote(name, safe='')}") as answer:
        yield from answer.iter_bytes()
