"""Python client of a controller: one method for each thing that it is asked."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Self
from urllib.parse import quote

from orchestrator.client.errors import SeatrialError, WaitedTooLongError
from orchestrator.client.transport import Answer, AnswerList, Client, newest
from orchestrator.domain.caller_identity import BrowserSession, Token
from orchestrator.domain.cell import Run
from orchestrator.domain.channel import ChannelResponse, DeliveryResponse
from orchestrator.domain.cost_response import RunCost, Spending
from orchestrator.domain.gate.payload_review import PayloadReviewResponse
from orchestrator.domain.gate.snapshot import WaiverResponse
from orchestrator.domain.gate.verdict import (
    KeyResponse,
    StoredPolicy,
    Verdict,
    VerdictLine,
    VerdictResponse,
)
from orchestrator.domain.inventory import InventoryResponse, ResourceResponse, StopReport
from orchestrator.domain.known_issue import KnownIssueResponse
from orchestrator.domain.launch_plan import Plan
from orchestrator.domain.machine import SshAccess
from orchestrator.domain.prices import Price, Refreshed
from orchestrator.domain.quarantine import QuarantineResponse, SuggestedQuarantine
from orchestrator.domain.run_record import CellRecord, RunResponse, RunSummary, TestResponse
from orchestrator.domain.schedule import Firing, ScheduleResponse
from orchestrator.domain.test_comparison import TestDuration

LATEST = "latest"
BAD = ("failed", "error")
"""Outcomes of tests that keep a job from passing."""
_PAGE = 1000
_LOOK_S = 2.0
"""Seconds between two looks at a run that is waited for."""


class Seatrial(Client):
    """Client of one controller; one thread at a time may use it.

    A run is named by its id, the beginning of one, or ``latest``. What costs money or changes a
    run takes a key: a second request with the same key changes nothing and has the first one's
    answer. Without one, a key is made for the call, so that its own retries are safe. `document`
    is the file's name in messages about a file.

    Raises NoControllerError if no controller answers, and RefusalError, with the controller's
    sentences and the status, if it refuses.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def runs(
        self,
        *,
        limit: int = 20,
        commit: str | None = None,
        branch: str | None = None,
        author: str | None = None,
    ) -> Iterator[Answer[RunSummary]]:
        """Yield the runs, newest first; of a commit that begins so, a branch or an author only."""
        asked = {"commit": commit, "branch": branch, "author": author}
        for shown in newest(self, "/runs", limit=limit, **asked):
            yield Answer(shown, RunSummary)

    def run(self, name: str = LATEST) -> Answer[RunResponse]:
        """Return a run with its cells and jobs."""
        return Answer(self.get(run_path(name)), RunResponse)

    def plan(
        self, order: Mapping[str, object], *, check_hosts: bool = False, document: str = ""
    ) -> Answer[Plan]:
        """Return what `launch` would do with the order, and what it would cost at most."""
        asked = "true" if check_hosts else None
        key = _key(None)
        answer = self.post("/plan", order, key=key, document=document, check_hosts=asked)
        return Answer(answer, Plan)

    def launch(
        self, order: Mapping[str, object], *, key: str | None = None, document: str = ""
    ) -> Answer[RunResponse]:
        """Launch a matrix. Machines are rented without a question.

        Args:
            order: The body of ``POST /runs``: ``matrix``, the text of a matrix file, and options.
            key: See the class.
            document: See the class.
        """
        return Answer(self.post("/runs", order, key=_key(key), document=document), RunResponse)

    def plan_rerun(
        self, name: str, *, only: str | None = None, hold_minutes: float = 0.0
    ) -> Answer[Plan]:
        """Return what `rerun` would do, and what it would cost at most."""
        body = {"only": only, "hold_minutes": hold_minutes}
        return Answer(self.post(f"{run_path(name)}/rerun/plan", body, key=_key(None)), Plan)

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
            only: ``failed``, ``errored``, ``missing`` or ``not-run``: the jobs that went so.
            hold_minutes: Minutes for which the machine of a cell that does not pass is held.
            key: See the class.
        """
        body = {"only": only, "hold_minutes": hold_minutes}
        return Answer(self.post(f"{run_path(name)}/rerun", body, key=_key(key)), RunResponse)

    def cancel(self, name: str, *, key: str | None = None) -> Answer[Run]:
        """Cancel a run; finished tests are kept, and machines are released."""
        return Answer(self.post(f"{run_path(name)}/cancel", key=_key(key)), Run)

    def wait(
        self,
        name: str = LATEST,
        *,
        limit_s: float | None = None,
        on_wait: Callable[[RunResponse], None] = lambda run: None,
    ) -> Answer[RunResponse]:
        """Return a run once it is finished.

        Args:
            name: The run.
            limit_s: Longest wait in seconds.
            on_wait: Called once if the run is not finished yet.

        Raises:
            WaitedTooLongError: The time is up; the run goes on.
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
        self,
        run: RunResponse,
        cell: CellRecord,
        *,
        job: str | None = None,
        outcome: str | None = None,
    ) -> Iterator[TestResponse]:
        """Yield the tests of a cell, page by page, in the order of collection."""
        path = f"{cell_path(run, cell)}/tests"
        after: int | None = 0
        while after is not None:
            page = self.get(path, job=job, outcome=outcome, after=after, limit=_PAGE)
            yield from AnswerList(page, TestResponse).records
            after = Answer(page, _Next).record.next

    def failing_tests(
        self, run: RunResponse, cell: CellRecord, *, job: str | None = None
    ) -> Iterator[TestResponse]:
        """Yield the tests of a cell that failed or ended in error."""
        figures = cell.counts.as_dict()
        for outcome in BAD:
            if figures[outcome]:
                yield from self.tests(run, cell, job=job, outcome=outcome)

    def slowest_tests(
        self, name: str = LATEST, *, cell: str | None = None, limit: int = 20
    ) -> AnswerList[TestDuration]:
        """Return the tests of a run that took longest, with how long they took before."""
        path = f"{run_path(name)}/slowest-tests"
        return AnswerList(self.get(path, cell=cell, limit=limit), TestDuration)

    def report(
        self, name: str, kind: str, form: str = "md", *, cell: str | None = None, alone: bool = True
    ) -> str:
        """Return a report as a text.

        Args:
            name: The run.
            kind: ``summary``, ``platform`` or another kind of report.
            form: ``md``, ``html`` or ``json``.
            cell: The cell, if the report is of one.
            alone: Whether it is read by itself, without the files beside it.
        """
        path = f"{run_path(name)}/reports/{quote(kind, safe='')}.{form}"
        return self.text(path, cell=cell, alone="true" if alone else None)

    def compare(self, base: str, head: str, form: str = "md") -> str:
        """Return what changed between two runs as a text: ``md``, ``html`` or ``json``."""
        ids = [self.run(name).record.id for name in (base, head)]
        return self.text("/compare", base=ids[0], head=ids[1], format=form)

    def machines(self, *, orphans: bool = False) -> Answer[InventoryResponse]:
        """Return the project's cloud resources; with `orphans` those without an owner only."""
        answer = self.get("/machines", orphans="true" if orphans else None)
        return Answer(answer, InventoryResponse)

    def terminate_machine(self, provider: str, machine: str) -> Answer[ResourceResponse]:
        """Terminate a machine without an owner; `cancel` of its run releases a leased one."""
        path = f"/machines/{quote(provider, safe='')}/{quote(machine, safe='/')}/terminate"
        return Answer(self.post(path), ResourceResponse)

    def terminate_all(self) -> Answer[StopReport]:
        """Cancel every run and end every machine; repeat it until the report's items are empty."""
        return Answer(self.post("/machines/terminate-all"), StopReport)

    def access(self, run: RunResponse, cell: CellRecord) -> Answer[SshAccess]:
        """Return SSH access to the machine that a cell holds; it may have a private key."""
        return Answer(self.get(f"{cell_path(run, cell)}/access"), SshAccess)

    def run_cost(self, name: str = LATEST) -> Answer[RunCost]:
        """Return the bill of a run."""
        return Answer(self.get("/costs", run=self.run(name).record.id), RunCost)

    def costs(self, *, days: int | None = None) -> Answer[Spending]:
        """Return the costs of the runs of the last days, 30 if none are given, and the budgets."""
        return Answer(self.get("/costs", days=days), Spending)

    def prices(self) -> AnswerList[Price]:
        """Return the prices in use."""
        return AnswerList(self.get("/costs/prices"), Price)

    def refresh_prices(self) -> Answer[Refreshed]:
        """Read the prices anew from the providers; an uncertain one replaces none."""
        return Answer(self.post("/costs/refresh"), Refreshed)

    def gates(self) -> AnswerList[StoredPolicy]:
        """Return the present policy of each gate."""
        return AnswerList(self.every("/gates"), StoredPolicy)

    def policy(self, gate: str) -> Answer[StoredPolicy]:
        """Return the present policy of a gate."""
        return Answer(self.get(_gate_path(gate)), StoredPolicy)

    def policies(self, gate: str) -> AnswerList[StoredPolicy]:
        """Return every version of a gate's policy, newest first."""
        answer = self.every(f"{_gate_path(gate)}/policies", cursor="before")
        return AnswerList(answer, StoredPolicy)

    def check_gate(
        self,
        gate: str,
        runs: Sequence[str] = (),
        *,
        lineage: str = "",
        key: str | None = None,
        document: str = "",
        **decided_by: str,
    ) -> Answer[VerdictResponse]:
        """Decide, and sign and store the verdict.

        Args:
            gate: Its name, as the policy has it.
            runs: The runs to look at; the product's newest finished one if there are none.
            lineage: The line of verdicts, such as a branch.
            key: See the class.
            document: See the class.
            decided_by: ``policy``, the text of one that becomes the gate's, with its file's
                ``name``, or ``policy_digest``, of a stored one; the gate's present one otherwise.
        """
        body = {"runs": list(runs), "lineage": lineage, **decided_by}
        path = f"{_gate_path(gate)}/evaluate"
        return Answer(self.post(path, body, key=_key(key), document=document), VerdictResponse)

    def try_gate(
        self, gate: str, runs: Sequence[str] = (), *, document: str = "", **options: str
    ) -> Answer[Verdict]:
        """Decide without signing or storing anything.

        `options` are ``policy`` and ``name`` as in `check_gate`, and ``now``, the time at which
        ages are measured, in RFC 3339.
        """
        body = {"runs": list(runs), **options}
        return Answer(self.post(f"{_gate_path(gate)}/dry-run", body, document=document), Verdict)

    def verdict(self, name: str) -> Answer[VerdictResponse]:
        """Return a verdict by its id, as ``V-0001``."""
        return Answer(self.get(_verdict_path(name)), VerdictResponse)

    def verdicts(self, gate: str, *, limit: int = 20, lineage: str = "") -> AnswerList[VerdictLine]:
        """Return the verdicts of a gate, newest first."""
        path = f"{_gate_path(gate)}/verdicts"
        found = newest(self, path, limit=limit, lineage=lineage or None)
        return AnswerList({"items": [*found]}, VerdictLine)

    def statement(self, verdict: str) -> str:
        """Return a signed verdict, as `seatrial gate verify` takes it."""
        return self.text(f"{_verdict_path(verdict)}/statement")

    def waivers(self, gate: str | None = None) -> AnswerList[WaiverResponse]:
        """Return the waivers, expired ones included; of one gate or of all."""
        return AnswerList(self.every("/waivers", gate=gate), WaiverResponse)

    def payload_reviews(self, payload: str | None = None) -> AnswerList[PayloadReviewResponse]:
        """Return the reviews of payloads, expired ones included; of one digest or of all."""
        return AnswerList(self.every("/payload-reviews", payload=payload), PayloadReviewResponse)

    def keys(self) -> AnswerList[KeyResponse]:
        """Return the public keys that verdicts are signed with, retired ones included."""
        return AnswerList(self.get("/keys"), KeyResponse)

    def known_issues(self, product: str | None = None) -> AnswerList[KnownIssueResponse]:
        """Return the known issues, expired ones included; of one product or of all."""
        return AnswerList(self.every("/known-issues", product=product), KnownIssueResponse)

    def quarantines(self, product: str | None = None) -> AnswerList[QuarantineResponse]:
        """Return the quarantines, expired ones included; of one product or of all."""
        return AnswerList(self.every("/quarantines", product=product), QuarantineResponse)

    def suggested_quarantines(self, product: str | None = None) -> AnswerList[SuggestedQuarantine]:
        """Return the tests that are flaky by their history."""
        path = "/quarantines/suggestions"
        return AnswerList(self.get(path, product=product), SuggestedQuarantine)

    def channels(self) -> AnswerList[ChannelResponse]:
        """Return the channels, with their health."""
        return AnswerList(self.get("/channels"), ChannelResponse)

    def deliveries(self, channel: str, *, limit: int = 20) -> AnswerList[DeliveryResponse]:
        """Return what was sent to a channel, newest first."""
        path = f"/channels/{quote(channel, safe='')}/deliveries"
        return AnswerList({"items": [*newest(self, path, limit=limit)]}, DeliveryResponse)

    def tokens(self) -> AnswerList[Token]:
        """Return the tokens, without their secrets."""
        return AnswerList(self.every("/tokens"), Token)

    def sessions(self) -> AnswerList[BrowserSession]:
        """Return the browsers that are signed in."""
        return AnswerList(self.every("/sessions"), BrowserSession)

    def schedules(self) -> AnswerList[ScheduleResponse]:
        """Return the schedules, with their firings."""
        return AnswerList(self.every("/schedules"), ScheduleResponse)

    def schedule(self, name: str) -> Answer[ScheduleResponse]:
        """Return a schedule with its firings."""
        return Answer(self.get(_schedule_path(name)), ScheduleResponse)

    def add_schedule(
        self, body: Mapping[str, object], *, replaces: bool = False, document: str = ""
    ) -> Answer[ScheduleResponse]:
        """Add a schedule, or change the one of this name: the body of ``POST /schedules``."""
        if replaces:
            answer = self.put(_schedule_path(str(body["name"])), body, document=document)
        else:
            answer = self.post("/schedules", body, document=document)
        return Answer(answer, ScheduleResponse)

    def pause_schedule(self, name: str) -> Answer[ScheduleResponse]:
        """Pause a schedule; running firings continue."""
        return Answer(self.post(f"{_schedule_path(name)}/pause"), ScheduleResponse)

    def resume_schedule(self, name: str) -> Answer[ScheduleResponse]:
        """Resume a schedule; firings that were missed are not caught up."""
        return Answer(self.post(f"{_schedule_path(name)}/resume"), ScheduleResponse)

    def trigger_schedule(self, name: str) -> Answer[Firing]:
        """Fire a schedule now, paused or not."""
        return Answer(self.post(f"{_schedule_path(name)}/trigger"), Firing)

    def remove_schedule(self, name: str) -> None:
        """Delete a schedule and its firings; its runs and verdicts stay."""
        self.delete(_schedule_path(name))


@dataclass(frozen=True, slots=True)
class _Next:
    next: int | None = None


def run_path(name: str) -> str:
    """Return the run's route. Raises SeatrialError for what names no run."""
    if not name.strip():
        raise SeatrialError("name a run: its id, the beginning of one, or `latest`")
    if "/" in name:
        raise SeatrialError(f"there is no run {name!r}; `seatrial runs` lists them")
    return f"/runs/{quote(name, safe='')}"


def cell_path(run: RunResponse, cell: CellRecord) -> str:
    """Return the cell's route."""
    return f"/runs/{run.id}/cells/{quote(cell.id, safe='')}"


def _gate_path(name: str) -> str:
    return f"/gates/{quote(name, safe='')}"


def _verdict_path(name: str) -> str:
    return f"/verdicts/{quote(name, safe='')}"


def _schedule_path(name: str) -> str:
    return f"/schedules/{quote(name, safe='')}"


def _key(given: str | None) -> str:
    return given or secrets.token_hex(16)
