"""Writes the outcomes of cells, and all evidence of their jobs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from benchmarks.dashboard.bulk_insert import Sink, copied
from benchmarks.dashboard.life import Life, zones_of
from benchmarks.dashboard.plans import COMMANDS, MANIFEST, SUITES, Machine
from benchmarks.dashboard.suite import Bad, Suite, Went
from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.derive_outcomes import JobVerdict, judge_cell, judge_job
from orchestrator.domain.event_facts import CheckFact, JobFact
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome
from orchestrator.store.tables import (
    NOTICES,
    CellRollupRow,
    CheckResultRow,
    JobResultRow,
    JobRollupRow,
    TestRetryRow,
)
from orchestrator.store.write_results import Row

_KINDS = {job.id: job.kind for job in MANIFEST.job}
_FIRST_POSITION = 1 << 32
"""Position of an attempt's first test, in the product's numbering."""
_NOT_FINAL = (TestOutcome.MISSING, TestOutcome.NOT_RUN)


@dataclass(slots=True)
class Done:
    """Facts, checks and test counts of a cell's jobs."""

    facts: dict[str, JobFact] = field(default_factory=dict)
    checks: list[CheckFact] = field(default_factory=list)
    counts: dict[str, Counts] = field(default_factory=dict)

    def judge(self, jobs: Sequence[str], cause: Cause | None) -> Iterator[JobVerdict]:
        """Yield the verdict on each job, by the product's own function."""
        for job in jobs:
            yield judge_job(
                job,
                kind=_KINDS[job],
                fact=self.facts.get(job),
                counts=self.counts.get(job, Counts()),
                checks=[check for check in self.checks if check.job == job],
                cause=cause,
            )


class Fate(Enum):
    """What happens to a cell."""

    CALM = "calm"
    """Every test passes, except expected failures and skips."""
    WELL = "well"
    IN_VAIN = "in vain"
    """No place has such a machine."""
    BROKEN = "broken"
    """The machine never becomes ready."""
    PREEMPTED = "preempted"
    """The first machine is preempted, the second one is not."""
    LOST = "lost"
    """The machine stops answering."""
    HUNG = "hung"
    """A test hangs."""
    FIXTURE = "fixture"
    """A fixture fails for a whole file."""


@dataclass(slots=True)
class CellWriter:
    """Simulates cells and writes their rows."""

    sink: Sink
    suite: Suite
    chance: random.Random

    def fate(self, machine: Machine) -> Fate:
        """Choose randomly what happens to a cell; mostly `WELL`."""
        if self.chance.random() > machine.given:
            return Fate.IN_VAIN
        odds = {
            Fate.BROKEN: 0.012,
            Fate.PREEMPTED: 0.08 if machine.market == "spot" else 0.02,
            Fate.LOST: 0.004,
            Fate.HUNG: 0.005,
            Fate.FIXTURE: 0.007,
        }
        roll = self.chance.random()
        for fate, part in odds.items():
            roll -= part
            if roll < 0:
                return fate
        return Fate.WELL

    def live(self, life: Life, night: int, fate: Fate) -> Outcome:
        """Simulate one cell that runs tests, and return its outcome."""
        match fate:
            case Fate.IN_VAIN:
                return self._in_vain(life)
            case Fate.BROKEN:
                return self._broken(life)
            case Fate.PREEMPTED:
                self._preempted(life)
        self._start(life)
        if fate is Fate.LOST:
            return self._lost(life, night)
        life.run(CellState.COLLECTING)
        life.stay(CellState.COLLECTING)
        calm = fate is Fate.CALM
        went = self.suite.go(night, life.machine, self.chance, calm=calm)
        hung = self.suite.hang(went, self.chance) if fate is Fate.HUNG else ""
        if fate is Fate.FIXTURE:
            self.suite.break_fixture(went, self.chance)
        done = self._jobs(life, hung, calm=calm)
        return self._end(life, done, went, None)

    def measure(self, life: Life) -> Outcome:
        """Simulate one cell that only runs benchmarks; the caller writes the metrics."""
        self._start(life)
        life.run(CellState.COLLECTING, part=0.6)
        life.stay(CellState.COLLECTING)
        done = Done()
        for job in life.plan.jobs:
            done.facts[job] = self._fact(life, job, 0.0, 1.0)
        return self._end(life, done, None, None)

    def begin(self, life: Life, night: int, part: float) -> Went:
        """Simulate one cell that is still running: the first `part` of its tests has results."""
        self._start(life)
        life.run(CellState.RUNNING)
        went = self.suite.go(night, life.machine, self.chance)
        left = int(len(went.ids) * part)
        for position in range(left, len(went.ids)):
            went.bad[position] = Bad(TestOutcome.MISSING)
        self._write_tests(life, went)
        return went

    def _start(self, life: Life) -> None:
        life.begin()
        zones = zones_of(life.machine, self.chance)
        while len(zones) > 1 and self.chance.random() < 0.12:
            life.refuse(zones[0], kind=int(self.chance.random() < 0.2))
            zones = zones[1:]
        life.rent(zones[0])

    def _in_vain(self, life: Life) -> Outcome:
        life.begin()
        kind = int(self.chance.random() < 0.3)
        for zone in zones_of(life.machine, self.chance):
            life.refuse(zone, kind)
        word = ("capacity", "quota")[kind]
        detail = f"no place has a {life.machine.instance}: {len(life.machine.zones)} were asked"
        return self._give_up(life, Cause(Outcome.NOT_AVAILABLE, word, detail + life.trap))

    def _broken(self, life: Life) -> Outcome:
        self._start(life)
        life.run(CellState.BOOTING)
        life.stay(CellState.BOOTING)
        detail = "cloud-init ended with an error in module package-update-upgrade-install"
        return self._give_up(life, Cause(Outcome.ERRORED, "cloud_init", detail + life.trap))

    def _give_up(self, life: Life, cause: Cause) -> Outcome:
        life.give_back(cause, cause)
        life.conclude(cause)
        self._roll_up(life, Done())
        return cause.outcome

    def _preempted(self, life: Life) -> None:
        self._start(life)
        life.run(CellState.COLLECTING, part=0.3)
        life.again(Cause(Outcome.ERRORED, "preempted", "the provider took the machine back"))

    def _lost(self, life: Life, night: int) -> Outcome:
        life.run(CellState.COLLECTING, part=0.5)
        cause = Cause(Outcome.ERRORED, "lost", "nothing was heard of the machine for 180 s")
        went = self.suite.go(night, life.machine, self.chance)
        left = self.suite.lose(went, self.chance)
        done = Done()
        for job in SUITES:
            first, _ = went.suites[job]
            if first < left:
                done.facts[job] = self._fact(life, job, 0.0, None)
        return self._end(life, done, went, cause)

    def _jobs(self, life: Life, hung: str, *, calm: bool) -> Done:
        done = Done()
        for number, job in enumerate(life.plan.jobs):
            begin, end = number / len(life.plan.jobs), (number + 1) / len(life.plan.jobs)
            done.facts[job] = self._fact(life, job, begin, end)
            if job in COMMANDS:
                self._check(done, job, odds=0 if calm else 0.012)
        if hung:
            fact = JobFact(hung, cause="hung", detail="no sign of life for 600 s", exit_code=None)
            done.facts[hung] = done.facts[hung].plus(fact)
            done.facts[hung] = _without_exit(done.facts[hung])
        return done

    def _fact(self, life: Life, job: str, begin: float, end: float | None) -> JobFact:
        assert life.ran_from is not None
        assert life.ran_until is not None
        first, whole = life.ran_from.timestamp(), (life.ran_until - life.ran_from).total_seconds()
        if end is None:
            return JobFact(job, started_ts=first + whole * begin, current="")
        return JobFact(
            job,
            started_ts=first + whole * begin,
            finished_ts=first + whole * end,
            current="",
            exit_code=0,
            duration_s=round(whole * (end - begin), 3),
        )

    def _check(self, done: Done, job: str, *, odds: float) -> None:
        is_bad = self.chance.random() < odds
        loss = self.chance.uniform(1.9, 2.1) + 0.6 * is_bad
        word = "failed" if is_bad else "passed"
        done.checks.append(
            CheckFact(job, "loss after 200 steps", word, f"{loss:.4f}", "", "<= 2.25")
        )
        speed = f"{self.chance.gauss(412, 9):.1f}"
        done.checks.append(CheckFact(job, "throughput", "passed", speed, "requests/s", ">= 380"))
        if self.chance.random() < 0.02:
            why = "flash attention is not built for this device: eager attention"
            done.facts[job] = done.facts[job].plus(JobFact(job, degraded=why))

    def _end(
        self,
        life: Life,
        done: Done,
        went: Went | None,
        cause: Cause | None,
    ) -> Outcome:
        if went is not None:
            done.counts = {suite: Counts.from_tally(went.tally(suite)) for suite in went.suites}
            self._write_tests(life, went)
            _set_exits(done)
        self._write_jobs(life, done)
        outcome = judge_cell(done.judge(life.plan.jobs, cause), cause)
        life.give_back(outcome, cause)
        life.conclude(outcome)
        self._roll_up(life, done)
        return outcome.outcome

    def _write_tests(self, life: Life, went: Went) -> None:
        rows = [
            (life.pk, test, life.attempt_pk, 1, True, took, "", "", None, position, None)
            for position, (test, took) in enumerate(
                zip(went.ids, went.durations, strict=True), life.attempts * _FIRST_POSITION
            )
        ]
        for position, bad in went.bad.items():
            rows[position] = self._bad_row(life, rows[position], bad)
        self.sink.add_results([copied(row) for row in rows] if self.sink.is_postgres else rows)

    def _bad_row(self, life: Life, row: Row, bad: Bad) -> Row:
        if bad.earlier:
            keys = {"cell": life.pk, "test_id": row[1], "attempt": life.attempt_pk}
            self.sink.add(TestRetryRow, **keys, earlier=bad.earlier)
        final = bad.outcome not in _NOT_FINAL
        took = row[5] if final else 0
        words = (bad.reason, bad.message, bad.digest, row[9], bad.signature)
        return (*row[:3], int(bad.outcome), final, took, *words)

    def _write_jobs(self, life: Life, done: Done) -> None:
        for job, fact in done.facts.items():
            values = {name: getattr(fact, name) for name in JobFact.__dataclass_fields__}
            keys = {"cell": life.pk, "attempt": life.attempt_pk}
            self.sink.add(JobResultRow, **values | {"job": job}, **keys)
        for check in done.checks:
            values = {name: getattr(check, name) for name in CheckFact.__dataclass_fields__}
            pk, life.numbers.check = life.numbers.check, life.numbers.check + 1
            self.sink.add(CheckResultRow, pk=pk, attempt=life.attempt_pk, **values)
        if life.chance.random() < 0.05:
            assert life.ran_from is not None
            self.sink.add(
                NOTICES,
                attempt=life.attempt_pk,
                seq=3,
                ts=life.ran_from.timestamp(),
                job="",
                level="warning",
                message="the device throttled for 12 s: its temperature reached 87 C" + life.trap,
            )

    def _roll_up(self, life: Life, done: Done) -> None:
        """Write the rows that the product writes when a cell ends, from the same counts."""
        total = Counts()
        for job, counts in done.counts.items():
            total = total + counts
            if counts.collected:
                self.sink.add(JobRollupRow, cell=life.pk, job=job, **counts.as_dict())
        at = life.at + timedelta(milliseconds=3)
        self.sink.add(
            CellRollupRow,
            cell=life.pk,
            cost_usd=life.cost,
            concluded_at=at,
            **total.as_dict(),
        )


def _without_exit(fact: JobFact) -> JobFact:
    known: Mapping[str, object] = {
        name: getattr(fact, name) for name in JobFact.__dataclass_fields__ if name != "exit_code"
    }
    return JobFact(**known)  # type: ignore[arg-type]


def _set_exits(done: Done) -> None:
    """Set exit code 1 for suites with failures."""
    for suite, counts in done.counts.items():
        fact = done.facts.get(suite)
        if fact is not None and fact.exit_code == 0 and counts.failed + counts.error:
            done.facts[suite] = fact.plus(JobFact(suite, exit_code=1))
