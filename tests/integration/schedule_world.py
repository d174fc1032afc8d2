"""Schedules over a real database, with a clock that is moved by hand and subjects made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from orchestrator.application.context import Context
from orchestrator.application.fire_schedules import Operations, fire
from orchestrator.application.ports.wheels import (
    SubjectGoneError,
    SubjectUnreachableError,
    SubjectWheel,
)
from orchestrator.application.schedules import add_schedule
from orchestrator.domain.channel import Announcement
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.root_cause import Attribution, RootCause
from orchestrator.domain.schedule import Firing, Schedule, SubjectKind, SubjectSelector
from orchestrator.store.stores import Stores
from tests.integration.api_context import MATRIX, Desk, sha256
from tests.integration.wheel_making import wheel_bytes

BEGIN = datetime(2026, 10, 20, 12, 0, tzinfo=UTC)
NIGHTLY = Schedule(
    name="nightly",
    cron="0 2 * * *",
    tz="Europe/Berlin",
    owner="release team",
    matrix=MATRIX,
    created_at=BEGIN,
)
COMMITS = tuple(f"{n:040x}" for n in range(1, 100))
BRANCH = SubjectSelector(kind=SubjectKind.BRANCH, url="https://git.example/proof", branch="main")


class DiedError(BaseException):
    """The worker is gone: nothing of its own is done any more."""


@dataclass
class MadeUpSubjects:
    """A branch that moves when it is told to, and an index with one package."""

    commit: str = COMMITS[0]
    gone: bool = False
    away: int = 0
    """So many questions find nobody."""
    built: list[str] = field(default_factory=list)
    on_build: Any = None

    refused: str = ""

    def refusal(self, url: str) -> str:
        return self.refused

    def newest(self, package: str, *, prereleases: bool) -> str:
        self._answer()
        return "1.11rc1" if prereleases else "1.11"

    def head(self, url: str, branch: str) -> str:
        self._answer()
        if self.gone:
            raise SubjectGoneError(f"{url} has no branch {branch!r} (any more)")
        return self.commit

    def build(self, url: str, commit: str, into: Path) -> SubjectWheel:
        self.built.append(commit)
        if self.on_build:
            self.on_build()
        path = into / "proof-1.10-py3-none-any.whl"
        path.write_bytes(wheel_bytes("proof", f"1.10+{commit[-4:]}"))
        digest = sha256(path.read_bytes())
        built = f"in a test from {url} at {commit}"
        return SubjectWheel(path, digest, "proof", f"1.10+{commit[-4:]}", commit, built)

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise SubjectUnreachableError("the repository does not answer")


@dataclass
class Bench:
    """What firings are judged and told with: decisions that a test chooses, and what was told."""

    stores: Stores
    decisions: dict[str, Decision] = field(default_factory=dict)
    """By the firing's day, ``10-21``; PASS where nothing stands."""
    told: list[Announcement] = field(default_factory=list)
    evaluated: list[str] = field(default_factory=list)
    unknown: bool = False
    second: str | None = None
    fault: str = ""
    """The operation that fails: ``ask``, or ``:second`` for the evaluation after it."""
    dies_after: str = ""

    @property
    def operations(self) -> Operations:
        return Operations(
            evaluate=self.evaluate,
            blame=self.blame,
            request_confirmation_run=self.ask,
            announce=self.say,
        )

    @property
    def states(self) -> list[str]:
        return [one.state.value for one in self.told]

    def evaluate(
        self, context: Context, gate: str, *, runs: Sequence[str], lineage: str, key: str
    ) -> Any:
        self._fail(":second" if key.endswith(":second") else "evaluate")
        self.evaluated.append(key)
        self._die("evaluate")
        decision = self.decisions.get(key.removeprefix("schedule:nightly:")[5:10], Decision.PASS)
        if key.endswith(":second"):
            decision = Decision.FAIL
        said = SimpleNamespace(decision=decision, summary=f"{decision} of {runs[0]}")
        said.subject, said.product = {"name": "proof", "version": "1.10"}, "proof"
        number = self.evaluated.index(key)
        return SimpleNamespace(id=f"V-{number}", verdict=said, runs=tuple(runs))

    def blame(self, stores: Stores, run_id: str) -> dict[str, tuple[Attribution, ...]]:
        answer = RootCause.UNKNOWN if self.unknown else RootCause.SUBJECT
        return {"here": (Attribution(job="unit", nodeid="a::b", answer=answer, evidence=()),)}

    def ask(self, context: Context, run_id: str, *, max_usd: Decimal) -> str | None:
        self._fail("ask")
        return self.second

    def say(self, context: Context, announcement: Announcement) -> bool:
        if all(known.key != announcement.key for known in self.told):
            self.told.append(announcement)
        self._die("announce")
        return True

    def _fail(self, step: str) -> None:
        if step == self.fault:
            raise ValueError(f"{step} is broken")

    def _die(self, where: str) -> None:
        if self.dies_after == where:
            self.dies_after = ""
            raise DiedError


@dataclass
class Watch:
    """Looks at the schedules as a controller does, and ends the runs that they launch."""

    api: Desk
    bench: Bench
    subjects: MadeUpSubjects
    context: Context

    def add(self, **more: Any) -> Schedule:
        return add_schedule(self.context, replace(NIGHTLY, **more)).schedule

    def look(self, *, lease_s: float = 0.0) -> None:
        """One look of a controller, which may die in it."""
        fire(self.context, operations=self.bench.operations, lease_s=lease_s)

    def at(self, day: int, hour: int, minute: int = 0, month: int = 10) -> Watch:
        """Move the clock, and look."""
        self.api.clock.time = datetime(2026, month, day, hour, minute, tzinfo=UTC)
        self.look()
        return self

    def end_runs(self, outcome: Outcome = Outcome.PASSED) -> None:
        """Bring every run to its end, and look."""
        for run_id in self.runs():
            run = self.context.stores.runs.get(run_id)
            if run is not None and run.outcome is None:
                cells = [cell.name for cell in self.context.stores.cells.of_run(run_id)]
                for cell in cells:
                    self.api.begin(run_id, cell)
                self.api.finish(run_id, *cells, outcome=outcome)
        self.look()

    def runs(self) -> list[str]:
        """Oldest first."""
        page, _ = self.context.stores.runs.page(limit=100, before=None)
        return [run.id for run in reversed(page)]

    def firings(self) -> list[Firing]:
        """Oldest first."""
        return self.context.stores.schedules.firings("nightly", limit=100)[::-1]

    def history(self) -> list[tuple[str, str, str]]:
        """Of each firing: when it was due, where it is, how it went."""
        return [(f"{x.due_at:%m-%d %H:%M}", x.state.value, x.outcome) for x in self.firings()]


def watch_of(api: Desk) -> Watch:
    """A controller that stands at BEGIN."""
    api.clock.time = BEGIN
    subjects = MadeUpSubjects()
    context = replace(api.context, gate=replace(api.context.gate, subjects=subjects))
    return Watch(api, Bench(context.stores), subjects, context)
