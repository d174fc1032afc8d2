"""Nights of a release gate: what happens on the machines, and what people were told of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from orchestrator.application.channels import NewChannel, add_channel
from orchestrator.application.context import Context
from orchestrator.application.fire_schedules import OPERATIONS, Operations, fire
from orchestrator.application.gate_policies import check_policy
from orchestrator.application.schedules import add_schedule
from orchestrator.application.sign_off import NewWaiver, approve_waiver, request_waiver
from orchestrator.domain.attestation import Attestation
from orchestrator.domain.caller_identity import Person
from orchestrator.domain.cell import Cause, CellState, Lease, LeaseState
from orchestrator.domain.channel import ChannelKind
from orchestrator.domain.outcome import Outcome, worst
from orchestrator.domain.retests import RetestKind, RetestPlan, key_of
from orchestrator.domain.schedule import Firing, Schedule
from tests.databases import Agent, together
from tests.integration.api_context import Desk
from tests.integration.schedule_world import BRANCH, COMMITS, DiedError, MadeUpSubjects

POLICY = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: release, product: proof, owner: release team}
spec:
  subject: {require: [git_sha, wheel_sha256]}
  evidence: {max_age: 36h, attestation: required}
  platforms:
    - {id: east}
    - {id: west}
  jobs:
    - {id: unit, on: all}
  flaky: {reruns: 1, rerun_success: flaky, max: 1}
"""
MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: nightly}
subject: {name: proof, version: "1.10", git: {url: "https://git.example/proof", rev: main}}
limits: {max_minutes: 30}
platforms:
  - {id: east, provider: local}
  - {id: west, provider: local}
jobs:
  - {id: unit}
"""
BERLIN = ZoneInfo("Europe/Berlin")
TESTS = ("tests/test_a.py::test_one", "tests/test_a.py::test_two")
WENT = {"capacity": (Outcome.NOT_AVAILABLE, "capacity"), "lost": (Outcome.ERRORED, "lost")}
BROKEN = ("job/unit@west",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What happens in one night, and what must come of it."""

    west: str = "passed"
    """Or failed, flaky, missing, unattested, capacity, lost."""
    ends: time = time(3, 31)
    """When the machines are done, by the clock on the wall."""
    how: str = ""
    """What befalls the controllers or the people; see `Nights.live`."""
    outcome: str = "PASS"
    """Of the firing, as it stands at noon."""
    told: tuple[str, ...] = ()
    """Exactly, until noon."""


@dataclass(slots=True)
class Machines:
    """Two platforms whose agents tell what a night's story says."""

    desk: Desk

    def run(self, run_id: str, night: Night) -> None:
        """Bring a run from its launch to its end."""
        stores, at = self.desk.database.stores, self.desk.clock.now()
        cells = stores.cells.of_run(run_id)
        stories = {cell.id: night.west if cell.name == "west" else "passed" for cell in cells}
        outcome = worst(self._cell(cell_id, story).outcome for cell_id, story in stories.items())
        assert outcome is not None
        assert stores.runs.finish(run_id, outcome, at=at)

    def _cell(self, cell_id: str, story: str) -> Cause:
        stores, at = self.desk.database.stores, self.desk.clock.now()
        attempt_id = f"{cell_id}-1"
        assert stores.cells.admit(cell_id, attempt_id, max_parallel=9, at=at)
        cause = Cause(*WENT[story]) if story in WENT else self._ran(cell_id, attempt_id, story)
        stores.cells.enter(cell_id, CellState.RELEASING, at=at)
        stores.cells.conclude(cell_id, cause, at=at)
        return cause

    def _ran(self, cell_id: str, attempt_id: str, story: str) -> Cause:
        stores, at = self.desk.database.stores, self.desk.clock.now()
        self._lease(attempt_id, attested=story != "unattested")
        way = (CellState.BOOTING, CellState.PREPARING, CellState.RUNNING, CellState.COLLECTING)
        for state in way:
            stores.cells.enter(cell_id, state, at=at)
        self._tell(attempt_id, story)
        stores.evidence.settle(cell_id, [])
        is_bad = story in ("failed", "flaky", "missing")
        return Cause(Outcome.FAILED if is_bad else Outcome.PASSED, "")

    def _tell(self, attempt_id: str, story: str) -> None:
        agent = TimedAgent(self.desk.database.stores, attempt_id)
        agent.at = self.desk.clock.now().timestamp()
        bad = "failed" if story in ("failed", "flaky") else "passed"
        lines = [agent.line("phase", "unit", name="started"), agent.manifest(*TESTS)]
        lines.append(agent.test(TESTS[0]))
        if story != "missing":
            lines.append(agent.test(TESTS[1], bad, longrepr="E   AssertionError: west"))
        exit_code = int(bad == "failed")
        lines.append(agent.line("phase", "unit", name="finished", exit_code=exit_code))
        lines.append(agent.line("end", outcome="completed", reason=None, detail=""))
        assert agent.send(*lines)
        if bad == "failed":
            self._again(attempt_id, "passed" if story == "flaky" else "failed")

    def _again(self, attempt_id: str, outcome: str) -> None:
        """The failed test, once more on its machine."""
        stores, at = self.desk.database.stores, self.desk.clock.now()
        stores.cells.enter(attempt_id.removesuffix("-1"), CellState.DIAGNOSING, at=at)
        retests = stores.retests
        ask = RetestPlan(kind=RetestKind.RERUN, tests={"unit": (TESTS[1],)}, times=1)
        retest_session = retests.ask(attempt_id, ask, at=at)
        retests.begin(retest_session.id, at=at)
        retests.end(retest_session.id, at=at, outcomes=[{key_of("unit", TESTS[1]): outcome}])

    def _lease(self, attempt_id: str, *, attested: bool) -> None:
        leases, at = self.desk.database.stores.leases, self.desk.clock.now()
        run_id = attempt_id.rsplit("-", 2)[0]
        lease = Lease(
            id=f"{attempt_id}-l",
            attempt_id=attempt_id,
            provider="local",
            place=attempt_id,
            state=LeaseState.RESERVED,
            reserved_usd=Decimal(0),
            price_usd_per_hour=Decimal(0),
            reserved_at=at,
        )
        leases.reserve(lease, run_id=run_id, exclusive=False)
        leases.launching(lease.id, at=at)
        leases.active(lease.id, "this computer", at=at)
        if attested:
            leases.attest(lease.id, Attestation({}, (), "2.9.1", simulated=False))
        leases.gone(lease.id, at=at, cost_usd=Decimal(0))


@dataclass
class TimedAgent(Agent):
    """Says when it says it."""

    at: float = 0.0

    def line(self, kind: str, job: str | None = None, **data: object) -> bytes:
        said = json.loads(super().line(kind, job, **data)) | {"ts": self.at + self.seq}
        return json.dumps(said).encode() + b"\n"


@dataclass(slots=True)
class Nights:
    """A nightly, its controllers, its machines and the people who are told."""

    desk: Desk
    first: date
    """The day before the first night."""
    count: int
    subjects: MadeUpSubjects = field(default_factory=MadeUpSubjects)
    context: Context = field(init=False)
    machines: Machines = field(init=False)
    channel: str = field(init=False)
    begun: dict[str, tuple[int, Night]] = field(default_factory=dict)
    """By run, so that one that hangs ends as its own night says."""
    heard: int = 0

    def __post_init__(self) -> None:
        ports = replace(self.desk.context.gate, subjects=self.subjects)
        self.context = replace(self.desk.context, gate=ports)
        self.machines = Machines(self.desk)
        self.desk.clock.time = datetime.combine(self.first, time(12), tzinfo=BERLIN)
        self.context.stores.gates.put_policy(
            check_policy(self.context, POLICY, "x", gate="release", by="me")
        )
        hook = NewChannel(
            name="people", kind=ChannelKind.WEBHOOK, target="https://hook.example/release"
        )
        self.channel = add_channel(self.context, hook)[0].id
        self.add(deadline="06:00", catch_up_hours=30)

    @property
    def numbers(self) -> range:
        return range(1, self.count + 1)

    def add(self, **more: object) -> None:
        """Every night at half past two, a time that one night of the year does not have."""
        asked = Schedule(
            name="nightly",
            cron="30 2 * * *",
            tz="Europe/Berlin",
            owner="release team",
            matrix=MATRIX,
            subject=BRANCH,
            gate="release",
            created_at=self.desk.clock.now(),
        )
        add_schedule(self.context, replace(asked, **more))

    def live(self, number: int, night: Night) -> None:
        """From midnight to noon, with whatever befalls."""
        self.subjects.commit = COMMITS[number]
        self.subjects.gone = night.how == "branch is gone"
        self.subjects.away = 2 if night.how == "repository is away" else 0
        begin = {
            "worker dies launching": self._die_launching,
            "worker dies building": self._die_building,
            "two controllers": self._together,
            "nobody is there": lambda: None,
        }.get(night.how, self.look)
        self._at(number, time(2, 31))
        begin()
        for minute in (40, 50):
            self._at(number, time(2, minute))
            if night.how != "nobody is there":
                self.look()
        for moment in sorted({night.ends, time(6, 1), time(10), time(12)}):
            self._at(number, moment)
            if night.how != "nobody is there" and moment <= time(12):
                self._end_runs(number, night, moment)
                self._judge(night.how)

    def look(self, operations: Operations = OPERATIONS, context: Context | None = None) -> None:
        """One look of a controller; whoever dies in it holds nothing any more."""
        fire(context or self.context, operations=operations, lease_s=0.0)

    def told(self) -> tuple[str, ...]:
        """What people were told since the last question."""
        log = self.context.stores.outbox.log(self.channel, limit=1000)
        news = [one.news.announcement.state.value for one, _ in reversed(log)]
        fresh, self.heard = news[self.heard :], len(news)
        return tuple(fresh)

    def firings(self) -> list[Firing]:
        """Oldest first."""
        return self.context.stores.schedules.firings("nightly", limit=1000)[::-1]

    def request_waiver(self, days: int) -> None:
        """Somebody accepts the failure on the west, for some days."""
        for rule in BROKEN:
            asked = request_waiver(
                self.context,
                NewWaiver(
                    gate="release",
                    rule=rule,
                    reason="a part is on its way",
                    days=days,
                ),
                author=Person("ann", "t-1"),
            )
            approve_waiver(self.context, asked.waiver.id, by=Person("ben", "t-2"))

    def _at(self, number: int, moment: time) -> None:
        day = datetime.combine(self.first + timedelta(days=number), moment, tzinfo=BERLIN)
        if moment.hour == 2 and day.astimezone(UTC).astimezone(BERLIN).hour == 3:
            day += timedelta(hours=1)  # a time that this day does not have
        self.desk.clock.time = max(self.desk.clock.time, day.astimezone(UTC))

    def _end_runs(self, number: int, tonight: Night, moment: time) -> None:
        for run in self.context.stores.runs.unfinished():
            begun, night = self.begun.setdefault(run, (number, tonight))
            hung = night.how == "hangs until tomorrow" and number != begun
            if moment >= night.ends or (hung and moment == time(10)):
                self.machines.run(run, night)

    def _judge(self, how: str) -> None:
        steps = {"worker dies judging": "evaluate", "worker dies telling": "announce"}
        if how in steps:
            self._dying(lambda: self.look(dying(steps[how])))
        self.look()

    def _die_launching(self) -> None:
        def die(cell_id: str) -> None:
            raise DiedError

        self._dying(lambda: self.look(context=replace(self.context, wake=die)))

    def _die_building(self) -> None:
        def die() -> None:
            self.subjects.on_build = None
            raise DiedError

        self.subjects.on_build = die
        self._dying(self.look)

    def _together(self) -> None:
        def one() -> None:
            fire(self.context, lease_s=60.0)

        assert together([one] * 2) == [None] * 2

    def _dying(self, work: Callable[[], None]) -> None:
        try:
            work()
        except DiedError:
            return


def dying(step: str) -> Operations:
    """Operations of a worker that dies right after one of them took effect."""
    does = getattr(OPERATIONS, step)

    def act(*args: object, **more: object) -> object:
        does(*args, **more)
        raise DiedError

    return replace(OPERATIONS, **{step: act})
