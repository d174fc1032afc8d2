"""Failing tests of a watched run, read as soon as their counts rise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.cli.client import Client
from orchestrator.cli.errors import CliError
from orchestrator.cli.read_answers import read_items
from orchestrator.cli.run_failures import BAD
from orchestrator.cli.safe_text import fit, one_line
from orchestrator.domain.run_record import CellRecord, JobRecord, RunResponse, TestResponse

TOLD_PER_JOB = 20
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
        self._told: set[tuple[str, str, str]] = set()

    def fresh(self, run: RunResponse) -> list[BadTest]:
        """Return new ones, at most `TOLD_PER_JOB` per job and outcome.

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
        if count <= self._seen.get(key, 0) or self._seen.get(key, 0) >= TOLD_PER_JOB:
            return
        path = f"/runs/{run_id}/cells/{cell.id}/tests"
        try:
            answer = self._client.get(path, job=job.id, outcome=outcome, limit=TOLD_PER_JOB)
            found = read_items(TestResponse, answer)
        except CliError:
            return
        self._seen[key] = count
        for test in found:
            name = (cell.id, test.job, test.nodeid)
            if name not in self._told:
                self._told.add(name)
                yield BadTest(cell.id, test)
