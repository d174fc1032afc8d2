"""Requests to a controller about runs: launches, results, logs, reports, uploads, retests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

from orchestrator.client.connection import ControllerConnection
from orchestrator.client.errors import SeatrialError, WaitedTooLongError
from orchestrator.client.transport import API, Answer, AnswerList, Client, key_of, newest
from orchestrator.domain.bisect import BisectRange
from orchestrator.domain.cell import Run
from orchestrator.domain.compare_tests import TestDuration
from orchestrator.domain.launch_plan import Plan
from orchestrator.domain.lint_findings import CheckedAnnotation, ForeignDocument, LintResponse
from orchestrator.domain.machine import SshAccess
from orchestrator.domain.manifest import PayloadResponse, SubjectFileResponse
from orchestrator.domain.retests import ConfirmationRunResponse, RetestSessionResponse
from orchestrator.domain.root_cause import RetestsResponse
from orchestrator.domain.run_record import (
    CellRecord,
    IngestResponse,
    PlotResponse,
    RunResponse,
    RunSummary,
    TestResponse,
)

LATEST = "latest"
BAD = ("failed", "error")
"""Outcomes of tests that fail their job."""
_PAGE = 1000
_LOOK_S = 2.0
"""Seconds between two requests while waiting for the end of a run."""


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """A run event; its data names the changed part of the run."""

    id: str
    """The event's id; a stream can resume after it."""
    kind: str
    data: str


class RunRequests(Client):
    """Requests about runs."""

    def runs(
        self,
        *,
        limit: int = 20,
        commit: str | None = None,
        branch: str | None = None,
        author: str | None = None,
    ) -> Iterator[Answer[RunSummary]]:
        """Yield the runs, newest first; optionally only those of a commit, a branch or an author.

        `commit` may be the beginning of a commit's digest.
        """
        asked = {"commit": commit, "branch": branch, "author": author}
        for shown in newest(self, "/runs", limit=limit, **asked):
            yield Answer(shown, RunSummary)

    def run(self, name: str = LATEST) -> Answer[RunResponse]:
        """Return a run with its cells and jobs."""
        return Answer(self.get(run_path(name)), RunResponse)

    def plan(
        self, order: Mapping[str, object], *, check_hosts: bool = False, document: str = ""
    ) -> Answer[Plan]:
        """Return the plan of `launch` for the same order, with its maximum cost."""
        asked = "true" if check_hosts else None
        key = key_of(None)
        answer = self.post("/plan", order, key=key, document=document, check_hosts=asked)
        return Answer(answer, Plan)

    def launch(
        self, order: Mapping[str, object], *, key: str | None = None, document: str = ""
    ) -> Answer[RunResponse]:
        """Launch a matrix. Machines are rented without confirmation.

        Args:
            order: The body of ``POST /runs``: ``matrix``, the text of a matrix file, and options.
            key: See `Seatrial`.
            document: See `Seatrial`.
        """
        return Answer(self.post("/runs", order, key=key_of(key), document=document), RunResponse)

    def plan_rerun(
        self, name: str, *, only: str | None = None, hold_minutes: float = 0.0
    ) -> Answer[Plan]:
        """Return the plan of `rerun`, with its maximum cost."""
        body = {"only": only, "hold_minutes": hold_minutes}
        return Answer(self.post(f"{run_path(name)}/rerun/plan", body, key=key_of(None)), Plan)

    def rerun(
        self,
        name: str,
        *,
        only: str | None = None,
        hold_minutes: float = 0.0,
        key: str | None = None,
    ) -> Answer[RunResponse]:
        """Launch a finished run again, as a new run.

        Args:
            name: The finished run.
            only: ``failed``, ``errored``, ``missing`` or ``not-run``: only jobs that ended so.
            hold_minutes: Minutes for which the machine of a cell that does not pass is held.
            key: See `Seatrial`.
        """
        body = {"only": only, "hold_minutes": hold_minutes}
        return Answer(self.post(f"{run_path(name)}/rerun", body, key=key_of(key)), RunResponse)

    def cancel(self, name: str, *, key: str | None = None) -> Answer[Run]:
        """Cancel a run. The results of finished tests are kept; the machines are released."""
        return Answer(self.post(f"{run_path(name)}/cancel", key=key_of(key)), Run)

    def wait(
        self,
        name: str = LATEST,
        *,
        limit_s: float | None = None,
        on_wait: Callable[[RunResponse], None] = lambda run: None,
    ) -> Answer[RunResponse]:
        """Wait until a run is finished, and return it.

        Args:
            name: The run.
            limit_s: Maximum wait in seconds; None waits without a limit.
            on_wait: Called once if the run is not finished yet.

        Raises: WaitedTooLongError: The time limit was reached; the run continues.
        """
        end = None if limit_s is None else self._clock.now() + timedelta(seconds=limit_s)
        answer, told = self.run(name), False
        while not answer.record.is_finished:
            run = answer.record
            if end is not None and self._clock.now() >= end:
                raise WaitedTooLongError(f"The time is up; run {run.id} goes on.")
            if not told:
                on_wait(run)
                told = True
            self._clock.sleep(_LOOK_S)
            answer = self.run(run.id)
        return answer

    def tests(
        self, run: str, cell: str, *, job: str | None = None, outcome: str | None = None
    ) -> Iterator[TestResponse]:
        """Yield the tests of a cell in the order of collection.

        `job` and `outcome` are optional filters.
        """
        after: int | None = 0
        while after is not None:
            page = self.tests_after(run, cell, after, job=job, outcome=outcome, limit=_PAGE)
            yield from page.records
            after = Answer(page.json, _Next).record.next

    def tests_after(
        self,
        run: str,
        cell: str,
        after: int,
        *,
        job: str | None = None,
        outcome: str | None = None,
        limit: int,
    ) -> AnswerList[TestResponse]:
        """Return one page of the tests of a cell: those after the test with the number `after`."""
        path = f"{_cell_path(run, cell)}/tests"
        answer = self.get(path, job=job, outcome=outcome, after=after, limit=limit)
        return AnswerList(answer, TestResponse)

    def failing_tests(
        self, run: str, cell: CellRecord, *, job: str | None = None
    ) -> Iterator[TestResponse]:
        """Yield the failed tests of a cell, then those that ended with an error."""
        figures = cell.counts.as_dict()
        for outcome in BAD:
            if figures[outcome]:
                yield from self.tests(run, cell.id, job=job, outcome=outcome)

    def slowest_tests(
        self, name: str = LATEST, *, cell: str | None = None, limit: int = 20
    ) -> AnswerList[TestDuration]:
        """Return the tests of a run with the longest durations, and their earlier durations."""
        path = f"{run_path(name)}/slowest-tests"
        return AnswerList(self.get(path, cell=cell, limit=limit), TestDuration)

    def report(
        self, name: str, kind: str, form: str = "md", *, cell: str | None = None, alone: bool = True
    ) -> str:
        """Return a report as text.

        Args:
            name: The run.
            kind: ``summary``, ``platform`` or another kind of report.
            form: ``md``, ``html`` or ``json``.
            cell: The cell, if the report describes one cell.
            alone: Whether the report must be readable without other files.
        """
        path = f"{run_path(name)}/reports/{quote(kind, safe='')}.{form}"
        return self.text(path, cell=cell, alone="true" if alone else None)

    def compare(self, base: str, head: str, form: str = "md") -> str:
        """Return the comparison of two runs as text, in the format ``md``, ``html`` or ``json``."""
        ids = [self.run(name).record.id for name in (base, head)]
        return self.text("/compare", base=ids[0], head=ids[1], format=form)

    def plots(self, name: str, kind: str, *, cell: str | None = None) -> AnswerList[PlotResponse]:
        """Return the plots that the Markdown form of a report links to."""
        path = f"{run_path(name)}/reports/{quote(kind, safe='')}/plots"
        return AnswerList(self.get(path, cell=cell), PlotResponse)

    def export(
        self, name: str, form: str, *, cell: str | None = None
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Open an export of every test of a run; usable as a context manager.

        `form` is ``junit``, ``ctrf``, ``csv``, ``json`` or ``intoto``.
        """
        return self._bytes(f"{run_path(name)}/export/{quote(form, safe='')}", cell=cell)

    def artifact(self, run: str, cell: str, name: str) -> AbstractContextManager[Iterator[bytes]]:
        """Open an artifact of a cell; usable as a context manager that yields its pieces."""
        return self._bytes(f"{_cell_path(run, cell)}/artifacts/{quote(name, safe='')}")

    def log(self, run: str, cell: str, *, after: int = 0) -> tuple[bytes, int]:
        """Return a piece of a cell's log from the byte `after` on, and the next offset."""
        return self.log_bytes(f"{_cell_path(run, cell)}/log", after=after)

    @contextmanager
    def events(self, name: str, *, last: str = "") -> Iterator[Iterator[StreamedEvent]]:
        """Open the stream of a run's events, which ends with the run.

        `last` is the id of an event; only later events are yielded. All are yielded without
        it.
        """
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        with self.stream(f"{run_path(name)}/events", headers=headers) as answer:
            yield read_events(answer.iter_lines())

    def access(self, run: str, cell: str) -> Answer[SshAccess]:
        """Return the SSH access to the machine of a held cell, if necessary with a private key."""
        return Answer(self.get(f"{_cell_path(run, cell)}/access"), SshAccess)

    def annotations(self, name: str = LATEST) -> AnswerList[CheckedAnnotation]:
        """Return the annotations of a run, each with the results that contradict it."""
        return AnswerList(self.every(f"{run_path(name)}/annotations"), CheckedAnnotation)

    def annotate(
        self, name: str, annotations: Sequence[Mapping[str, object]], *, document: str = ""
    ) -> AnswerList[CheckedAnnotation]:
        """Add annotations to a run; an annotation that is already stored is not added again.

        Each needs ``kind``, ``text`` and ``author``, and may have the other fields of
        `RunAnnotation`.
        """
        body = {"annotations": [*annotations]}
        answer = self.post(
            f"{run_path(name)}/annotations", body, key=key_of(None), document=document
        )
        return AnswerList(answer, CheckedAnnotation)

    def lint(
        self, documents: Iterable[ForeignDocument], *, run: str | None = None
    ) -> Answer[LintResponse]:
        """Check Markdown reports alone, against each other, and against the results of a run."""
        body = {"documents": [asdict(one) for one in documents], "run": run}
        return Answer(self.post("/lint", body), LintResponse)

    def ingest(
        self, file: Path, *, key: str | None = None, **stated: str | None
    ) -> Answer[IngestResponse]:
        """Upload results of another program; they become a cell of a finished run.

        Args:
            file: An archive of results, or one file of results.
            key: See `Seatrial`.
            stated: ``platform``, ``subject``, ``environment``, the ``run`` that gets the cell, and
                the ``name`` of a single file. An ``ingest.yaml`` in the archive can have them.
        """
        return Answer(self.post_file("/ingest", file, key=key_of(key), **stated), IngestResponse)

    def payload(self, digest: str) -> Answer[PayloadResponse]:
        """Return the description of an uploaded payload; `digest` is the sha256 of its archive."""
        return Answer(self.get(_payload_path(digest)), PayloadResponse)

    def has_payload(self, digest: str) -> bool:
        """Whether the controller has a payload of this digest."""
        return self.has(_payload_path(digest))

    def upload_payload(
        self, digest: str, archive: Path, sent: Callable[[int], None] = lambda gone: None
    ) -> Answer[PayloadResponse]:
        """Upload a payload's archive; `sent` is called with the number of bytes sent so far."""
        return Answer(self.put_file(_payload_path(digest), archive, sent=sent), PayloadResponse)

    def upload_subject(
        self, digest: str, wheel: Path, sent: Callable[[int], None] = lambda gone: None
    ) -> Answer[SubjectFileResponse]:
        """Upload the wheel of a subject or a baseline; `sent` as in `upload_payload`."""
        path = f"/subjects/{quote(digest, safe='')}"
        return Answer(self.put_file(path, wheel, sent=sent), SubjectFileResponse)

    def retests(self, run: str, cell: str) -> Answer[RetestsResponse]:
        """Return the retests of a cell, and the root causes that they prove."""
        return Answer(self.get(_retests_path(run, cell)), RetestsResponse)

    def add_retest(
        self,
        run: str,
        cell: str,
        subject: str,
        *,
        version: str = "",
        changed: str = "",
        times: int = 2,
        key: str | None = None,
    ) -> Answer[RetestSessionResponse]:
        """Run the failing tests again with another wheel, on the machine that the cell holds.

        Args:
            run: The run.
            cell: The cell whose machine waits.
            subject: The digest of the uploaded wheel.
            version: The wheel's version, if it differs from the matrix.
            changed: A description of the change, such as ``revision 1a2b3c4``.
            times: Number of retests.
            key: See `Seatrial`.
        """
        body = {"subject": subject, "version": version, "changed": changed, "times": times}
        answer = self.post(_retests_path(run, cell), body, key=key_of(key))
        return Answer(answer, RetestSessionResponse)

    def end_retests(self, run: str, cell: str) -> None:
        """End the retests of a cell, so that its machine is released."""
        self.delete(_retests_path(run, cell))

    def bisect_range(self, run: str, cell: str) -> Answer[BisectRange]:
        """Return the range of revisions that a bisection of the cell's failures would search."""
        return Answer(self.get(f"{_cell_path(run, cell)}/bisect"), BisectRange)

    def plan_bisect(self, run: str, cell: str, *, minutes: float = 60.0) -> Answer[Plan]:
        """Return the plan of `bisect`, with its maximum cost."""
        path = f"{_cell_path(run, cell)}/bisect/plan"
        return Answer(self.post(path, {"minutes": minutes}, key=key_of(None)), Plan)

    def bisect(
        self, run: str, cell: str, *, minutes: float = 60.0, key: str | None = None
    ) -> Answer[RunResponse]:
        """Launch the failing jobs again, on a machine that afterwards waits for retests.

        Args:
            run: The run.
            cell: The cell whose failures are bisected.
            minutes: Maximum minutes for which the machine waits.
            key: See `Seatrial`.
        """
        path = f"{_cell_path(run, cell)}/bisect"
        return Answer(self.post(path, {"minutes": minutes}, key=key_of(key)), RunResponse)

    def start_confirmation_run(
        self, name: str, *, max_usd: Decimal
    ) -> Answer[ConfirmationRunResponse]:
        """Repeat the failures of a run on another machine; a second request changes nothing.

        The request is refused if the launched run could cost more than `max_usd`.
        """
        path, body = f"{run_path(name)}/confirmation-run", {"max_usd": format(max_usd, "f")}
        return Answer(self.post(path, body, key=key_of(None)), ConfirmationRunResponse)


@dataclass(frozen=True, slots=True)
class _Next:
    next: int | None = None


def read_events(lines: Iterable[str]) -> Iterator[StreamedEvent]:
    """Parse server-sent events as the HTML standard defines.

    Comments and unknown fields are ignored.
    """
    last_id, kind, data = "", "", list[str]()
    for line in lines:
        if not line:
            if data or kind:
                yield StreamedEvent(last_id, kind or "message", "\n".join(data))
            kind, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            last_id = value
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)


def report_url(line: ControllerConnection, name: str) -> str:
    """Return the URL of a run's summary in Markdown."""
    return f"{line.where}{API}{run_path(name)}/reports/summary.md"


def run_path(name: str) -> str:
    """Return the path of a run. Raises SeatrialError if the name is empty or has a slash."""
    if not name.strip():
        raise SeatrialError("name a run: its id, the beginning of one, or `latest`")
    if "/" in name:
        raise SeatrialError(f"there is no run {name!r}; `seatrial runs` lists them")
    return f"/runs/{quote(name, safe='')}"


def _cell_path(run: str, cell: str) -> str:
    return f"{run_path(run)}/cells/{quote(cell, safe='')}"


def _retests_path(run: str, cell: str) -> str:
    return f"{_cell_path(run, cell)}/retests"


def _payload_path(digest: str) -> str:
    return f"/payloads/{quote(digest, safe='')}"
