"""Folds events into facts about tests, jobs, checks and metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from orchestrator.domain.collected_tests import TestSet, read_test_set
from orchestrator.domain.evidence import Event
from orchestrator.domain.outcome import Counts, TestOutcome
from orchestrator.domain.untyped_values import known_of, number_of, samples_of, text_of, whole_of

MESSAGE_LIMIT = 500
"""Maximum characters of a message in tables; the whole text is stored elsewhere."""
_HEAD_WIDTH = 80
EARLIER_LIMIT = 100
"""Maximum number of earlier tries that are kept for a test."""


@dataclass(frozen=True, slots=True)
class TestFact:
    """The facts of one test; later facts of the same attempt are merged into them."""

    __test__ = False

    job: str
    nodeid: str
    outcome: TestOutcome = TestOutcome.MISSING
    final: bool = False
    """Whether the end of the test is certain, for example because its teardown was reported."""
    duration_s: float = 0.0
    reason: str = ""
    """Reason of a skip or xfail; ``crashed`` or ``hung``; or ``setup`` or ``teardown``, the phase
    of an error."""
    message: str = ""
    """The message in one line."""
    text: str = ""
    """The whole traceback, followed by the captured output."""
    earlier: tuple[TestOutcome, ...] = ()
    """Outcomes of earlier tries of the test within the same job."""

    def plus(self, other: TestFact) -> TestFact:
        """Merge the facts of one test: the worse outcome, with its reason and message."""
        words = other if other.outcome > self.outcome else self
        return TestFact(
            job=self.job,
            nodeid=self.nodeid,
            outcome=max(self.outcome, other.outcome),
            final=self.final or other.final,
            duration_s=self.duration_s + other.duration_s,
            reason=words.reason,
            message=words.message,
            text=words.text,
            earlier=self.earlier + other.earlier,
        )


@dataclass(frozen=True, slots=True)
class JobFact:
    """The facts of one job; None is not known yet."""

    job: str
    started_ts: float | None = None
    finished_ts: float | None = None
    current: str | None = None
    """Node id of the running test; empty if none runs."""
    idle_since_ts: float | None = None
    """Time since which the job is silent (seconds since 1970 by the machine's clock); 0 if it is
    not."""
    idle_timeout_s: float | None = None
    """Maximum seconds of silence; a job that is silent for longer is stopped."""
    longest_idle_s: float | None = None
    """Longest silence in seconds while no test ran; known once the job is finished."""
    exit_code: int | None = None
    signal: int | None = None
    cause: str | None = None
    detail: str | None = None
    duration_s: float | None = None
    restarts: int | None = None
    degraded: str | None = None
    unnamed: Counts | None = None
    """Numbers of tests that an ingested artifact counts without naming them."""
    test_set: TestSet | None = None
    """The test set of the job's last process."""

    def plus(self, other: JobFact) -> JobFact:
        """Merge the facts of one job; known values of `other` replace older ones."""
        known = {
            name: value
            for name in self.__dataclass_fields__
            if (value := getattr(other, name)) is not None
        }
        return replace(self, **known)


@dataclass(frozen=True, slots=True)
class CheckFact:
    """A check that a job reported about itself."""

    job: str
    name: str
    outcome: str
    """The outcome: passed, failed or skipped."""
    value: str = ""
    unit: str = ""
    tolerance: str = ""
    reason: str = ""


CHECK_RANKS: Mapping[str, int] = {"passed": 0, "skipped": 1, "failed": 2}
"""Severity of check outcomes; of two results of one check the worse is kept."""


def rank_of_check(outcome: str) -> int:
    """Return the severity of a check's outcome; an unknown outcome is the worst."""
    return CHECK_RANKS.get(outcome, len(CHECK_RANKS))


@dataclass(frozen=True, slots=True)
class MetricFact:
    """One measured quantity with all its samples."""

    seq: int
    job: str
    name: str
    samples: tuple[float, ...]
    unit: str
    direction: str
    """Which values are better: ``higher`` or ``lower``."""
    params: Mapping[str, object] = field(default_factory=dict)
    arm: str = ""
    """``subject`` or ``baseline`` for a turn of a paired benchmark; empty otherwise."""
    turn: int | None = None
    """Position of the turn over both arms, from 0: turns 2n and 2n+1 are a pair."""
    readings: Mapping[str, float] = field(default_factory=dict)
    """Readings of the sensors at the end of the turn."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message from the agent to a person."""

    seq: int
    ts: float
    """Seconds since 1970 by the machine's clock."""
    job: str
    level: str
    message: str

    @property
    def at(self) -> datetime:
        """Time of the notice by the machine's clock, in UTC."""
        return datetime.fromtimestamp(self.ts, UTC)


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """The last event of the agent; no evidence follows it."""

    outcome: str
    """``completed``, ``stopped`` or ``errored``."""
    reason: str = ""
    """Reason of ``errored``: ``environment``, ``wrong_subject``, ``disk_full`` or ``agent``."""
    detail: str = ""
    """An explanation for a person."""


@dataclass(slots=True)
class Facts:
    """The facts of a batch of events, which are merged into the stored ones."""

    last_seq: int = 0
    last_ts: float = 0.0
    tests: dict[tuple[str, str], TestFact] = field(default_factory=dict)
    jobs: dict[str, JobFact] = field(default_factory=dict)
    checks: dict[tuple[str, str], CheckFact] = field(default_factory=dict)
    metrics: list[MetricFact] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    current: dict[str, str] = field(default_factory=dict)
    """Node id of the test that runs at the end of the batch, by job; empty if none runs."""
    environment: Mapping[str, object] | None = None
    end: AgentEnd | None = None


def fold(events: Iterable[Event]) -> Facts:
    """Return the facts of events, which must be in order."""
    facts = Facts()
    for event in events:
        facts.last_seq, facts.last_ts = event.seq, event.ts
        reader = _READERS.get(event.kind)
        if reader is not None:
            reader(facts, event)
    for job, nodeid in facts.current.items():
        _add_job(facts, JobFact(job, current=nodeid))
    return facts


def _read_test(facts: Facts, event: Event) -> None:
    job, data = event.job or "", event.data
    nodeid, record = text_of(data.get("nodeid")), text_of(data.get("record"))
    if record == "start":
        facts.current[job] = nodeid
        facts.tests.setdefault((job, nodeid), TestFact(job, nodeid))
    elif record in _TEST_FACTS:
        _add_test(facts, _TEST_FACTS[record](job, nodeid, data))
    elif record in _JOB_FACTS:
        _add_job(facts, _JOB_FACTS[record](job, data))
    if record == "report" and (data.get("when") == "teardown" or data.get("cause")):
        facts.current[job] = ""


def _uncollected(job: str, nodeid: str, data: Mapping[str, object]) -> TestFact:
    return _bad(job, nodeid, "collection", text_of(data.get("longrepr")))


def _outcome_fact(job: str, nodeid: str, data: Mapping[str, object]) -> TestFact:
    """Return the fact of an ingested test, which has an outcome and no phases."""
    word = text_of(data.get("outcome")).upper()
    outcome = TestOutcome.__members__.get(word, TestOutcome.ERROR)
    return TestFact(
        job=job,
        nodeid=nodeid,
        outcome=outcome,
        final=outcome is not TestOutcome.MISSING,
        duration_s=number_of(data.get("duration")),
        reason=text_of(data.get("reason")),
        message=text_of(data.get("message"))[:MESSAGE_LIMIT],
        text=text_of(data.get("longrepr")),
        earlier=_earlier(data.get("earlier")),
    )


def _skipped_module(job: str, nodeid: str, data: Mapping[str, object]) -> TestFact:
    """Return one skipped test for a module that skipped itself, as pytest counts it."""
    reason = _skip_reason(data.get("longrepr"))
    return TestFact(job, nodeid, TestOutcome.SKIPPED, final=True, reason=reason)


def _earlier(value: object) -> tuple[TestOutcome, ...]:
    """Return the known outcomes of a list of words such as ``failed``; others are ignored."""
    words = [text_of(word).upper() for word in value] if isinstance(value, list) else []
    return tuple(TestOutcome[w] for w in words[:EARLIER_LIMIT] if w in TestOutcome.__members__)


def _counts(value: object) -> Counts:
    known = value if isinstance(value, dict) else {}
    names = Counts().as_dict()
    return Counts(**{name: max(whole_of(known.get(name)) or 0, 0) for name in names})


def phase_fact(job: str, data: Mapping[str, object]) -> TestFact:
    """Return the fact of one phase of a test: setup, call or teardown."""
    nodeid, when = text_of(data.get("nodeid")), data.get("when")
    text = text_of(data.get("longrepr"))
    cause = data.get("cause")
    if cause:
        fact = _bad(job, nodeid, text_of(cause), text, duration_s=number_of(data.get("duration")))
        return replace(fact, text=_with_output(text, data))
    outcome, reason = _phase_outcome(data)
    # The text of a skip only repeats its place and its reason.
    is_told = outcome in (TestOutcome.PASSED, TestOutcome.SKIPPED)
    return TestFact(
        job=job,
        nodeid=nodeid,
        outcome=outcome,
        final=when == "teardown",
        duration_s=number_of(data.get("duration")),
        reason=reason,
        message="" if is_told else _message(data, text),
        text=_with_output(text, data) if outcome >= TestOutcome.ERROR else "",
    )


def _with_output(text: str, data: Mapping[str, object]) -> str:
    """Return the traceback with the captured output, under the headings of pytest."""
    given = data.get("sections")
    parts = [text] if text else []
    for pair in given if isinstance(given, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and text_of(pair[1]).strip():
            head = f" {text_of(pair[0])} ".center(_HEAD_WIDTH, "-")
            parts.append(f"{head}\n{text_of(pair[1]).rstrip()}")
    return "\n".join(parts)


def _phase_outcome(data: Mapping[str, object]) -> tuple[TestOutcome, str]:
    outcome, when = data.get("outcome"), text_of(data.get("when"))
    xfail = data.get("wasxfail")
    if outcome == "skipped":
        if xfail is not None:
            return TestOutcome.XFAILED, text_of(xfail)
        if "subtest" in data:  # pytest passes its test, and counts the subtest beside it
            return TestOutcome.PASSED, ""
        return TestOutcome.SKIPPED, _skip_reason(data.get("longrepr"))
    if outcome == "failed":
        in_call = when == "call"
        return (TestOutcome.FAILED, "") if in_call else (TestOutcome.ERROR, when)
    if xfail is not None and when == "call":
        return TestOutcome.XPASSED, text_of(xfail)
    return TestOutcome.PASSED, ""


def _skip_reason(longrepr: object) -> str:
    said = longrepr[2] if isinstance(longrepr, list) and len(longrepr) == 3 else longrepr
    return text_of(said).removeprefix("Skipped: ")[:MESSAGE_LIMIT]


def _message(data: Mapping[str, object], text: str) -> str:
    crash = data.get("crash")
    if isinstance(crash, dict):
        text = text_of(crash.get("message"))
    return text.strip().split("\n", 1)[0][:MESSAGE_LIMIT]


def _bad(job: str, nodeid: str, reason: str, text: str, *, duration_s: float = 0.0) -> TestFact:
    lines = text.strip().splitlines()
    message = lines[-1] if reason == "collection" and lines else (lines[0] if lines else reason)
    return TestFact(
        job, nodeid, TestOutcome.ERROR, True, duration_s, reason, message[:MESSAGE_LIMIT], text
    )


_TEST_FACTS: Mapping[str, Callable[[str, str, Mapping[str, object]], TestFact]] = {
    "collect_error": _uncollected,
    "collect_skip": _skipped_module,
    "outcome": _outcome_fact,
    "rerun": lambda job, nodeid, _: TestFact(job, nodeid, earlier=(TestOutcome.FAILED,)),
    "report": lambda job, _, data: phase_fact(job, data),
}
_JOB_FACTS: Mapping[str, Callable[[str, Mapping[str, object]], JobFact]] = {
    "unnamed": lambda job, data: JobFact(job, unnamed=_counts(data.get("counts"))),
    "test_set": lambda job, data: JobFact(job, test_set=read_test_set(data)),
}


def _read_phase(facts: Facts, event: Event) -> None:
    if event.job is None:
        return
    data = event.data
    if data.get("name") == "started":
        _add_job(facts, JobFact(event.job, started_ts=event.ts))
    elif data.get("name") == "finished":
        facts.current[event.job] = ""
        _add_job(
            facts,
            JobFact(
                event.job,
                idle_since_ts=0.0,
                longest_idle_s=known_of(data.get("longest_idle_s")),
                finished_ts=event.ts,
                exit_code=whole_of(data.get("exit_code")),
                signal=whole_of(data.get("signal")),
                cause=text_of(data.get("cause")),
                detail=text_of(data.get("detail")),
                duration_s=known_of(data.get("duration_s")),
                restarts=whole_of(data.get("restarts")) or 0,
            ),
        )


def _read_manifest(facts: Facts, event: Event) -> None:
    tests = event.data.get("tests")
    for nodeid in tests if isinstance(tests, list) else ():
        facts.tests.setdefault(
            (event.job or "", text_of(nodeid)), TestFact(event.job or "", text_of(nodeid))
        )


def _read_check(facts: Facts, event: Event) -> None:
    job, data = event.job or "", event.data
    if "degraded" in data:
        _add_job(facts, JobFact(job, degraded=text_of(data["degraded"])))
        return
    name = text_of(data.get("check"))
    words = {key: text_of(data.get(key)) for key in ("value", "unit", "tolerance", "reason")}
    fact = CheckFact(job, name, text_of(data.get("outcome")), **words)
    known = facts.checks.get((job, name), fact)
    if rank_of_check(fact.outcome) >= rank_of_check(known.outcome):
        facts.checks[job, name] = fact


def _read_metric(facts: Facts, event: Event) -> None:
    data, params = event.data, event.data.get("params")
    fact = MetricFact(
        event.seq,
        event.job or "",
        text_of(data.get("metric")),
        samples_of(data.get("samples")),
        text_of(data.get("unit")),
        text_of(data.get("direction")),
        params if isinstance(params, dict) else {},
    )
    facts.metrics.append(_in_turn(fact, data))


def _read_log(facts: Facts, event: Event) -> None:
    level, message = text_of(event.data.get("level")), text_of(event.data.get("message"))
    facts.notices.append(Notice(event.seq, event.ts, event.job or "", level, message))


def _read_heartbeat(facts: Facts, event: Event) -> None:
    """Store the time since which a job is silent; ignore heartbeats without that."""
    job, silent_s = text_of(event.data.get("job")), known_of(event.data.get("silent_s"))
    if job and silent_s is not None:
        since = max(event.ts - max(silent_s, 0.0), 0.0) if silent_s else 0.0
        limit_s = known_of(event.data.get("idle_timeout_s"))
        _add_job(facts, JobFact(job, idle_since_ts=since, idle_timeout_s=limit_s))


def _read_environment(facts: Facts, event: Event) -> None:
    facts.environment = event.data


def _read_end(facts: Facts, event: Event) -> None:
    words = (text_of(event.data.get(key)) for key in ("outcome", "reason", "detail"))
    facts.end = AgentEnd(*words)


_READERS = {
    "test": _read_test,
    "phase": _read_phase,
    "manifest": _read_manifest,
    "check": _read_check,
    "metric": _read_metric,
    "log": _read_log,
    "heartbeat": _read_heartbeat,
    "environment": _read_environment,
    "end": _read_end,
}


def _add_test(facts: Facts, fact: TestFact) -> None:
    key = (fact.job, fact.nodeid)
    known = facts.tests.get(key)
    facts.tests[key] = known.plus(fact) if known else fact


def _add_job(facts: Facts, fact: JobFact) -> None:
    known = facts.jobs.get(fact.job)
    facts.jobs[fact.job] = known.plus(fact) if known else fact


SUBJECT = "subject"

BASELINE = "baseline"

ARMS = (SUBJECT, BASELINE)

"""The arms of a paired benchmark."""

_TURNS = 2**31

_READINGS = 50

_NAME_CHARS = 100


def _in_turn(fact: MetricFact, data: Mapping[str, object]) -> MetricFact:
    """Return the metric with the arm, the turn and the readings of its event.

    If the arm is unknown or the turn is missing, the metric is returned unchanged.
    """
    arm, turn = data.get("arm"), data.get("turn")
    if not isinstance(turn, int) or isinstance(turn, bool) or not 0 <= turn < _TURNS:
        return fact
    if not isinstance(arm, str) or arm not in ARMS:
        return fact
    readings = dict(_turn_metrics(data.get("readings")))
    return replace(fact, arm=arm, turn=turn, readings=readings)


def _turn_metrics(raw: object) -> Iterator[tuple[str, float]]:
    """Yield the numeric readings; a missing reading must not become zero."""
    for name, value in list(raw.items() if isinstance(raw, dict) else ())[:_READINGS]:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and math.isfinite(value):
            yield str(name).replace("\x00", "\ufffd")[:_NAME_CHARS], float(value)
