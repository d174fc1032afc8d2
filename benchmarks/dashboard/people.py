"""People's actions on the runs, by the product's own operations at the right times.

Gates with policies and signed verdicts, waivers, approvals, known issues, quarantines, schedules
with the results of their firings, and texts for the reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from benchmarks.dashboard.plans import PRODUCT, SUBJECT
from benchmarks.dashboard.words import harmful
from orchestrator.application.add_annotations import add_annotations
from orchestrator.application.context import Context
from orchestrator.application.evaluate_gate import evaluate_gate
from orchestrator.application.gate_policies import check_policy
from orchestrator.application.known_issues import add_known_issue
from orchestrator.application.quarantine import NewQuarantine, add_quarantine
from orchestrator.application.schedules import add_schedule, pause_schedule
from orchestrator.application.sign_off import NewWaiver, approve, approve_waiver, request_waiver
from orchestrator.domain.annotation import Annotation
from orchestrator.domain.caller_identity import Person
from orchestrator.domain.cell import Run
from orchestrator.domain.failure_signature import failure_groups
from orchestrator.domain.gate.verdict import RuleOutcome, StoredVerdict
from orchestrator.domain.known_issue import IssueMatch, IssueScope, KnownIssue
from orchestrator.domain.schedule import Firing, FiringState, Schedule

_ANN = Person("Ann Author", "token-of-ann")
RELEASE = f"""\
# What a release of {SUBJECT} needs.
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {{name: release, product: {PRODUCT}, owner: release-team}}
spec:
  evidence: {{max_age: 36h}}
  platforms:
    - {{id: aws-l4}}
    - {{id: gcp-a100}}
    - {{id: gcp-tpu-v5e, when_unavailable: {{verdict: inconclusive}}}}
    - {{id: aws-graviton, level: advisory}}
  jobs:
    - {{id: unit}}
    - {{id: integration}}
    - {{id: train-demo}}
  skips: {{allow_reasons: ["needs *"], on_other: advisory}}
  new_failures: {{max: 0}}
  flaky: {{reruns: 2, rerun_success: flaky, max: 5}}
  cost: {{max_usd: "40.00", on_exceed: advisory}}
  approvals: {{on: [PASS_WITH_EXCEPTIONS], need: 1}}
"""
NIGHTLY = f"""\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {{name: nightly, product: {PRODUCT}, owner: trial-watch}}
spec:
  evidence: {{max_age: 36h}}
  platforms:
    - {{id: aws-l4}}
    - {{id: aws-graviton}}
  jobs:
    - {{id: unit}}
"""
_MATRIX = f"""\
apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: nightly}}
subject: {{name: {SUBJECT}, version: "2.1.0", package: "{SUBJECT}==2.1.0"}}
limits: {{max_usd: "60.00"}}
platforms:
  - {{id: aws-l4, provider: local}}
  - {{id: aws-graviton, provider: local}}
jobs:
  - {{select: "*", on: all}}
"""
_BROKEN = (RuleOutcome.VIOLATED, RuleOutcome.UNKNOWN)


@dataclass(slots=True)
class Hand:
    """A clock with a fixed time."""

    time: datetime

    def now(self) -> datetime:
        return self.time


@dataclass(frozen=True, slots=True)
class Left:
    """Ids of the rows that the actions created."""

    verdicts: tuple[str, ...]
    """Ids of the verdicts, the oldest first."""
    waivers: tuple[str, ...]
    issues: tuple[str, ...]
    quarantines: tuple[str, ...]
    schedules: tuple[str, ...]
    gates: tuple[str, ...] = ("nightly", "release")


@dataclass
class People:
    """Everybody who works with the product's trials."""

    context: Context
    payload: str
    """Digest of the product's payload."""
    now: datetime
    flaky: Sequence[str]
    """Node ids of flaky tests."""
    hostile: bool = False
    _waivers: list[str] = field(default_factory=list)

    def act(self, *, verdicts: int) -> Left:
        """Perform all actions, the oldest first."""
        runs = self._newest(verdicts)
        first = runs[0].created_at - timedelta(days=1)
        looser = RELEASE.replace("max: 5", "max: 3")
        for gate, text in (("release", looser), ("nightly", NIGHTLY), ("release", RELEASE)):
            then = self._at(first)
            policy = check_policy(then, text, "gate.yaml", gate=gate, by="ann")
            then.stores.gates.put_policy(policy)
            first += timedelta(hours=2)
        issues = tuple(self._issues())
        quarantines = tuple(self._quarantine())
        made = tuple(verdict.id for run in runs for verdict in self._judge(run))
        self._waive()
        schedules = self._schedule(runs)
        self._write(runs[-1])
        return Left(made, tuple(self._waivers), issues, quarantines, schedules)

    def _at(self, at: datetime) -> Context:
        return replace(self.context, clock=Hand(at))

    def _newest(self, count: int) -> list[Run]:
        """Return the newest `count` finished nightly runs, the oldest first."""
        found: list[Run] = []
        before: str | None = None
        while len(found) < count:
            runs, before = self.context.stores.runs.page(limit=50, before=before)
            found += [r for r in runs if r.matrix_name == "nightly" and r.finished_at is not None]
            if before is None:
                break
        return found[:count][::-1]

    def _judge(self, run: Run) -> Iterator[StoredVerdict]:
        assert run.finished_at is not None
        for gate in ("nightly", "release"):
            context = self._at(run.finished_at + timedelta(minutes=2))
            yield evaluate_gate(context, gate, runs=[run.id], key=f"{gate} {run.id}")

    def _waive(self) -> None:
        """Waive two broken rules of the newest verdict, judge again, and approve the result."""
        newest = self.context.stores.gates.verdicts(gate="release", limit=1)[0]
        at = newest.created_at + timedelta(minutes=40)
        broken = [
            rule for rule in newest.verdict.rules if rule.waivable and rule.outcome in _BROKEN
        ]
        for rule in broken[:2]:
            new = NewWaiver(
                gate="release",
                rule=rule.id,
                reason=self._text("Upstream has mended it; the fix ships in the next nightly."),
                days=7,
            )
            asked = request_waiver(self._at(at), new, author=_ANN).waiver.id
            approve_waiver(self._at(at), asked, by=Person("Bo Approver", "token-of-bo"))
            self._waivers.append(asked)
        again = evaluate_gate(
            self._at(at + timedelta(minutes=1)), "release", runs=newest.runs, key="after waivers"
        )
        later, cyd = self._at(at + timedelta(minutes=9)), Person("Cyd Chief", "token-of-cyd")
        approve(later, "release", by=cyd, verdict=again.id)

    def _issues(self) -> Iterator[str]:
        """Yield ids of known issues: one that applies, one that is over, one without failures."""
        found = failure_groups(self.context.stores.failures.of_product(PRODUCT, runs=12).failures)
        made = [
            self._issue(group.signature.id, days, title)
            for group, days, title in zip(
                found,
                (30, 2),
                ("The new allocator splits blocks too late", "Half precision loses two digits"),
                strict=False,
            )
        ]
        yield from made
        gone = KnownIssue(
            product=PRODUCT,
            title=self._text("A driver that nobody has any more hangs in NCCL"),
            owner="comms",
            id="",
            opened=self.now.date(),
            author=_ANN.name,
            author_token=_ANN.token,
            expires=(self.now + timedelta(days=45)).date(),
            match=IssueMatch(exception="NcclError", contains="unhandled system error"),
            scope=IssueScope(platforms=("aws-*",)),
            url="https://tracker.example/aurora/issues/311",
            max_failures=5,
        )
        yield add_known_issue(self._at(self.now - timedelta(days=40)), gone).id

    def _issue(self, signature: str, days: int, title: str) -> str:
        new = KnownIssue(
            product=PRODUCT,
            title=self._text(title),
            owner="kernels",
            id="",
            opened=self.now.date(),
            author=_ANN.name,
            author_token=_ANN.token,
            expires=(self.now + timedelta(days=days - 5)).date(),
            match=IssueMatch(signature=signature),
            url="https://tracker.example/aurora/issues/4812",
        )
        return add_known_issue(self._at(self.now - timedelta(days=6)), new).id

    def _quarantine(self) -> Iterator[str]:
        for number, nodeid in enumerate(self.flaky[:3]):
            new = NewQuarantine(
                product=PRODUCT,
                nodeid=nodeid,
                reason=self._text("Fails one night in ten; the race is being looked for."),
                owner="ann",
                days=14,
                platforms=("aws-l4",) if number == 1 else (),
                returns_after=50,
            )
            at = self._at(self.now - timedelta(days=3 + 20 * (number > 1)))
            yield add_quarantine(at, new, author=_ANN).id

    def _schedule(self, runs: Sequence[Run]) -> tuple[str, ...]:
        names = ("nightly", "weekly-long", "canary")
        for name, cron in zip(names, ("0 2 * * *", "0 4 * * 0", "*/30 * * * *"), strict=True):
            schedule = Schedule(
                name=name,
                cron=cron,
                tz="Europe/Berlin",
                owner=self._text("trial-watch"),
                matrix=_MATRIX,
                matrix_name="nightly.yaml",
                payload=self.payload,
                gate="nightly" if name == "nightly" else "",
                deadline="06:00" if name == "nightly" else "",
                created_at=self.now - timedelta(days=30),
            )
            add_schedule(self._at(self.now), schedule)
        pause_schedule(self._at(self.now - timedelta(days=2)), "canary")
        for run in runs:
            self._fired("nightly", run)
        self._missed("weekly-long", runs[-1].created_at - timedelta(days=1))
        return names

    def _fired(self, name: str, run: Run) -> None:
        store = self.context.stores.schedules
        due = run.created_at
        new = Firing(schedule=name, due_at=due, claimed_at=due + timedelta(seconds=2))
        told = store.take(store.trigger(new), "a controller", lease_s=60)
        assert told is not None
        verdict = self.context.stores.gates.verdicts(gate="nightly", run=run.id, limit=1)
        assert run.finished_at is not None
        ended = replace(
            told,
            state=FiringState.NOTIFIED,
            outcome=verdict[0].verdict.decision.value,
            verdict=verdict[0].id,
            run=run.id,
            ended_at=run.finished_at + timedelta(minutes=3),
        )
        assert store.save(ended, "a controller")

    def _missed(self, name: str, due: datetime) -> None:
        store = self.context.stores.schedules
        new = Firing(schedule=name, due_at=due, claimed_at=due + timedelta(hours=9))
        told = store.take(store.trigger(new), "a controller", lease_s=60)
        assert told is not None
        why = self._text("nobody was there: it was due 9 h before")
        ended = replace(
            told, state=FiringState.NOTIFIED, outcome="missed", reason=why, ended_at=new.claimed_at
        )
        assert store.save(ended, "a controller")

    def _write(self, run: Run) -> None:
        told = "The allocator split blocks **after** the copy.\n\n1. Pin the pool.\n2. Run again."
        written = [
            Annotation(
                kind="narrative", title="What happened", text=self._text(told), author="ann"
            ),
            Annotation(
                kind="recommendation", title="Next", text=self._text("Hold 2.1."), author="bo"
            ),
        ]
        add_annotations(self._at(self.now), run.id, written)

    def _text(self, text: str) -> str:
        if not self.hostile:
            return text
        return f"{text} {harmful(len(text))}".replace("\n", " ").replace("\r", " ")
