"""gate bisect: finds the revision that broke tests, on one machine of the failing platform."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.application.ports.wheels import Revision, Revisions, SubjectWheel, WheelsError
from orchestrator.cli.commands.options import CellOption, JsonOption, YesOption
from orchestrator.cli.connect import RETEST_POLL_S
from orchestrator.cli.errors import FAILED, CliError
from orchestrator.cli.launch_request import ask
from orchestrator.cli.session import Session, session_of
from orchestrator.client.errors import RefusalError
from orchestrator.client.seatrial import Seatrial
from orchestrator.domain.bisect import (
    FoundRevisions,
    InconclusiveSearch,
    RevisionResult,
    TryRevision,
    answer_of,
    next_step,
)
from orchestrator.domain.cell import CellState
from orchestrator.domain.retests import RetestSessionResponse, RetestSessionState
from orchestrator.domain.run_record import RunResponse

_CONFLICT = 409
_WORDS = {"check": "does it pass at all?", "halve": "", "confirm": "once more, it decides"}


GoodOption = Annotated[
    str | None,
    typer.Option(
        "--good",
        metavar="REV",
        help="A revision that passed. Default: that of the platform's last green run.",
    ),
]
BadOption = Annotated[
    str | None,
    typer.Option("--bad", metavar="REV", help="A revision that fails. Default: the run's."),
]


@dataclass(frozen=True, slots=True)
class BisectStep:
    """A revision that was tried."""

    commit: str
    why: str
    """``check``, ``halve`` or ``confirm``."""
    answer: RevisionResult
    trouble: str
    """Reason why the revision could not be tried; empty if it could."""


@dataclass(frozen=True, slots=True)
class BisectAnswer:
    """What ``gate bisect --json`` prints."""

    run: str
    revisions: int
    """Number of revisions after the good one."""
    tried: int
    steps: list[BisectStep]
    first_bad: str | None = None
    """Commit; None if the search is undecided."""
    last_good: str | None = None
    exact: bool = False
    """Whether every revision between the two was excluded."""
    undecided: str = ""
    """Reason why no revision was found; empty if one was."""


class _MachineLeftError(Exception):
    """The machine accepts no more retests; the text gives the reason and the correction."""


@dataclass(slots=True)
class _Bisection:
    """A bisection on one machine."""

    session: Session
    client: Seatrial
    revisions: Revisions
    range: tuple[Revision, ...]
    times: int
    run: str = ""
    """Id of the run whose machine waits for retests; empty before the launch."""
    cell: str = ""
    answers: dict[int, list[RevisionResult]] = field(default_factory=dict)
    steps: list[BisectStep] = field(default_factory=list)

    def walk(self) -> FoundRevisions | InconclusiveSearch:
        """Retest revisions until the result is clear."""
        while True:
            step = next_step(len(self.range), self.answers)
            if not isinstance(step, TryRevision):
                return step
            answer = self._try(step)
            self.answers.setdefault(step.place, []).append(answer)

    def _try(self, step: TryRevision) -> RevisionResult:
        revision = self.range[step.place]
        shown = f"{revision.commit[:12]} {revision.title}"
        try:
            wheel = self.revisions.wheel(revision.commit)
        except WheelsError as error:
            self.session.say(f"  {shown}: skipped, it cannot be built: {error}")
            self._note(revision, step, RevisionResult.SKIP, str(error))
            return RevisionResult.SKIP
        retest_session = self._sit(step, revision, wheel)
        trouble, answer = retest_session.trouble, answer_of(retest_session.outcomes)
        why = trouble or _WORDS.get(step.why, "")
        self.session.say(f"  {shown}: {answer}{f' ({why})' if why else ''}")
        self._note(revision, step, answer, trouble)
        return answer

    def _sit(
        self, step: TryRevision, revision: Revision, wheel: SubjectWheel
    ) -> RetestSessionResponse:
        self.client.upload_subject(wheel.digest, wheel.path)
        try:
            asked = self.client.add_retest(
                self.run,
                self.cell,
                wheel.digest,
                version=wheel.version,
                changed=f"revision {revision.commit[:12]}",
                times=self.times,
                key=f"{revision.commit}-{len(self.answers.get(step.place, ()))}",
            ).record
        except RefusalError as error:
            if error.status == _CONFLICT:
                raise _MachineLeftError(str(error)) from None
            raise
        while True:
            # Read the state first: a retest that ends in time ends before the machine is gone.
            state = _state(self.client, self.run, self.cell)
            for retest_session in self.client.retests(self.run, self.cell).record.items:
                is_over = retest_session.state is RetestSessionState.ENDED
                if retest_session.id == asked.id and is_over:
                    return retest_session
            if state is not CellState.DIAGNOSING:
                raise _MachineLeftError(self._left(revision, state))
            self.session.wiring.clock.sleep(RETEST_POLL_S)

    def _left(self, revision: Revision, state: CellState) -> str:
        return (
            f"cell {self.cell} of run {self.run} is {state}: its machine is gone, and revision"
            f" {revision.commit[:12]} has no result. `seatrial watch {self.run}` shows the reason."
            " Search again with more --minutes, and give the revisions that are known by now as"
            " --good and --bad"
        )

    def _note(
        self, revision: Revision, step: TryRevision, answer: RevisionResult, trouble: str
    ) -> None:
        self.steps.append(BisectStep(revision.commit, step.why, answer, trouble))


def bisect_command(
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run in which tests fail, or `latest`.")
    ] = "latest",
    cell: CellOption = None,
    good: GoodOption = None,
    bad: BadOption = None,
    minutes: Annotated[
        float,
        typer.Option("--minutes", min=1, max=1440, help="How long the machine may be kept."),
    ] = 60.0,
    times: Annotated[
        int, typer.Option("--times", min=1, max=20, help="How often a revision's tests are run.")
    ] = 2,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find the revision that broke the tests of a cell, on one machine.

    For subjects from git. The failing jobs run again; then their machine waits, and the failing
    tests alone run with the wheels of other revisions, built here, halving what is left.
    """
    session = session_of(context)
    client = session.client()
    red = client.run(run).record
    failing = _cell(red, cell)
    known = client.bisect_range(red.id, failing).record
    first, last = good or known.good, bad or known.bad
    if not first:
        raise CliError("no run of this platform passed before; name a revision with --good")
    with tempfile.TemporaryDirectory(prefix="seatrial-") as scratch:
        search = _prepared(session, client, known.url, Path(scratch), first, last)
        search.times = times
        ask(session, client.plan_bisect(red.id, failing, minutes=minutes).record, yes=yes)
        search.run = client.bisect(red.id, failing, minutes=minutes).record.id
        search.cell = failing
        result = _searched(search)
    _tell(session, search, result, as_json=as_json)


def _cell(run: RunResponse, name: str | None) -> str:
    failing = [cell.id for cell in run.cells if cell.outcome == "failed"]
    if name is not None:
        return name
    if len(failing) == 1:
        return failing[0]
    listed = ", ".join(failing) or "none"
    raise CliError(f"name the cell with --cell; of run {run.id}, these fail: {listed}")


def _prepared(
    session: Session, client: Seatrial, url: str, scratch: Path, good: str, bad: str
) -> _Bisection:
    try:
        revisions = session.wiring.revisions(url, scratch)
        found = revisions.between(good, bad)
    except WheelsError as error:
        raise CliError(str(error)) from None
    session.say(f"{len(found) - 1} revisions from {good} to {bad}")
    return _Bisection(session, client, revisions, found, times=2)


def _searched(search: _Bisection) -> FoundRevisions | InconclusiveSearch:
    """Wait for the machine, search, and release the machine in any case."""
    client, run, cell = search.client, search.run, search.cell
    search.session.say(f"run {run}: the failing jobs at the last revision")
    try:
        if not _waits(search):
            return InconclusiveSearch(
                f"run {run} did not fail: its last revision passes on this machine now"
            )
        search.answers[len(search.range) - 1] = [RevisionResult.BAD]
        return search.walk()
    except _MachineLeftError as error:
        return InconclusiveSearch(str(error))
    finally:
        client.end_retests(run, cell)


def _waits(search: _Bisection) -> bool:
    """Wait until the cell's machine waits for retests; return False if the cell ended instead."""
    while True:
        state = _state(search.client, search.run, search.cell)
        if state is CellState.DIAGNOSING:
            return True
        if state in (CellState.RELEASING, CellState.DONE):
            return False
        search.session.wiring.clock.sleep(RETEST_POLL_S)


def _state(client: Seatrial, run: str, cell: str) -> CellState:
    cells = client.run(run).record.cells
    return next((one.state for one in cells if one.id == cell), CellState.DONE)


def _tell(
    session: Session,
    search: _Bisection,
    result: FoundRevisions | InconclusiveSearch,
    *,
    as_json: bool,
) -> None:
    tried = len({step.commit for step in search.steps if step.answer is not RevisionResult.SKIP})
    told = BisectAnswer(search.run, len(search.range) - 1, tried, search.steps)
    if isinstance(result, FoundRevisions):
        told = replace(
            told,
            first_bad=search.range[result.first_bad].commit,
            last_good=search.range[result.last_good].commit,
            exact=result.is_exact,
        )
    else:
        told = replace(told, undecided=result.reason)
    if as_json:
        session.print_json(asdict(told))
    else:
        session.print("\n".join(_lines(search.range, result, tried)))
    if isinstance(result, InconclusiveSearch):
        raise typer.Exit(FAILED)


def _lines(
    revisions: Sequence[Revision], result: FoundRevisions | InconclusiveSearch, tried: int
) -> list[str]:
    if isinstance(result, InconclusiveSearch):
        return [f"undecided: {result.reason}"]
    first, last = revisions[result.first_bad], revisions[result.last_good]
    if result.is_exact:
        head = f"{first.commit} broke it: {first.title}"
    else:
        between = result.first_bad - result.last_good
        head = f"one of {between} revisions broke it, up to {first.commit}: the others do not build"
    untried = "revisions in between that were not tried may break and fix it again"
    return [
        head,
        f"the last that passes is {last.commit}: {last.title}",
        f"{tried} revisions tried of {len(revisions) - 1}, each on the same machine; {untried}",
    ]
