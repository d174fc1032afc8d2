"""First pass over artifacts: statements go to a record store, figures stay in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from orchestrator.domain.assembly.index_of_tests import ArtifactTests, TestIndex, key_of
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedDetail,
    ParsedEnd,
    ParsedEnvironment,
    ParsedFallback,
    ParsedItem,
    ParsedJob,
    ParsedMetric,
    ParsedNotice,
    ParsedProblem,
    ParsedSubtests,
    ParsedTally,
    ParsedTest,
    ParsedTime,
    ParsedUnnamedTests,
    ParsedVersion,
    Provenance,
)

TEXT_LIMIT = 65_536
"""Maximum number of characters of a traceback."""
REMARKS_LIMIT = 50
"""Maximum number of remarks per artifact."""
SECTIONS_LIMIT = 1_000
"""Maximum number of jobs per artifact."""
_WORDS = frozenset(("passed", "failed", "error", "skipped", "xfailed", "xpassed"))

Record = Sequence[object]


class RecordStore(Protocol):
    """An append-only store of records outside of memory."""

    def put(self, record: Record) -> int:
        """Append a record; return its position, which is greater than all before."""
        ...

    def records(self) -> Iterator[tuple[int, list[object]]]:
        """Yield (position, record) in order."""
        ...

    def at(self, place: int) -> list[object]:
        """Return the record at a position."""
        ...


@dataclass(frozen=True, slots=True)
class ForeignArtifact:
    """One artifact with the statements that a dialect parsed."""

    name: str
    digest: str
    size_bytes: int
    dialect: str = ""
    """Name and version of the dialect; empty if no dialect recognises the artifact."""
    provenance: Provenance | None = None
    confidence: float = 0.0
    items: Iterable[ParsedItem] = ()
    remarks: tuple[str, ...] = ()


_FIRST_YEAR, _LAST_YEAR = 1990, 2200
"""Plausible years."""
_NO_RESULT = (ParsedProblem, ParsedNotice, ParsedTime)
"""Statements that an artifact without a recognised result may make."""


@dataclass(slots=True)
class JobSection:
    """The part of an artifact about one job, or about suites that differ by their tests."""

    source: int
    parsed_job: ParsedJob | None = None
    tests: int = 0
    checks: int = 0
    metrics: int = 0
    groups: dict[str, None] = field(default_factory=dict)
    """Groups of the section's tests."""
    first: str = ""
    """Node id of the first test."""
    last: str = ""
    """Node id of the last test so far."""
    end: ParsedEnd | None = None
    footer: bool = False
    tally_s: float | None = None
    """Duration in the section's summary, in seconds; None without one."""
    degraded: list[tuple[str, str]] = field(default_factory=list)
    """(node id of the preceding test, reason) of each fallback."""
    unnamed: Counter[str] = field(default_factory=Counter)
    covered: Counter[str] = field(default_factory=Counter)
    """Numbers of unnamed tests that another artifact names, by outcome."""
    announced: int | None = None
    summed: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    """Numbers of tests in the section's summary, by outcome."""

    @property
    def is_suite(self) -> bool:
        """Whether the section has tests."""
        tallied = self.announced is not None or self.summed is not None
        return bool(self.tests or self.unnamed or (tallied and not self.checks))

    @property
    def is_empty(self) -> bool:
        """Whether the section has no content that belongs to a job."""
        told = self.checks or self.metrics or self.degraded or self.parsed_job is not None
        return not (told or self.is_suite or self.end is not None)


@dataclass(slots=True)
class ArtifactSummary:
    """An artifact after the first pass."""

    foreign: ForeignArtifact
    number: int
    sections: list[JobSection]
    artifact_tests: ArtifactTests = field(default_factory=ArtifactTests)
    stamps: dict[tuple[str, str], None] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    unreliable: str = ""
    """Why its statements are unreliable: the first such problem; empty without any."""
    subtests: int = 0
    """Number of subtests that passed or were skipped."""
    latest: datetime | None = None
    """The latest time in the artifact; None without times."""
    heard: bool = False
    """Whether the artifact made a statement that needs a recognised result."""
    bad: dict[bytes, list[str]] = field(default_factory=dict)
    """Node ids of failed tests by the digest of their section's title; only used during reading."""
    details: list[tuple[str, str, int]] = field(default_factory=list)
    """(name, phase, position) of the details of tests; only used during reading."""

    def remark(self, text: str) -> None:
        """Store a remark, if it is new and there are not too many."""
        if text not in self.remarks and len(self.remarks) < REMARKS_LIMIT:
            self.remarks.append(text)

    @property
    def named(self) -> int:
        """Number of distinct named tests and of unnamed tests."""
        return len(self.artifact_tests.tests) + sum(sum(s.unnamed.values()) for s in self.sections)


class ArtifactReader:
    """Reads artifacts one after the other."""

    def __init__(
        self, record_store: RecordStore, group_of: Callable[[ArtifactSummary, JobSection, str], str]
    ) -> None:
        """Create a reader; `group_of` returns the group of a test in a section."""
        self.record_store = record_store
        self._group_of = group_of
        self.index = TestIndex()
        self.surroundings = EnvironmentMerger()
        self.accounts: list[ArtifactSummary] = []
        self.happened: datetime | None = None
        """The earliest time in all artifacts; None without times."""
        self.details: dict[bytes, tuple[int, str]] = {}
        """Position and phase of the details of each test, by `key_of`."""

    def read(self, foreign: ForeignArtifact) -> None:
        """Store all statements of one artifact."""
        number = len(self.accounts)
        account = ArtifactSummary(
            foreign, number, [JobSection(number)], remarks=list(foreign.remarks)
        )
        self.accounts.append(account)
        for item in foreign.items:
            self._take(account, item)
        self._settle_details(account)

    def _take(self, account: ArtifactSummary, statement: ParsedItem) -> None:
        section = account.sections[-1]
        account.heard = account.heard or not isinstance(statement, _NO_RESULT)
        match statement:
            case ParsedTest():
                self._test(account, section, statement)
            case ParsedDetail():
                text = statement.text[:TEXT_LIMIT]
                place = self.record_store.put(["d", statement.message, text])
                account.details.append((statement.name, statement.phase, place))
            case ParsedCheck():
                self._check(account, section, statement)
            case ParsedMetric():
                self._metric(account, section, statement)
            case ParsedJob():
                _begin(account, statement)
            case _:
                self._remark(account, section, statement)

    def _remark(self, account: ArtifactSummary, section: JobSection, statement: ParsedItem) -> None:
        """Store a statement that has no record of its own."""
        match statement:
            case ParsedTally():
                _tally(section, statement)
            case ParsedSubtests():
                account.subtests += statement.count
            case ParsedUnnamedTests():
                section.unnamed.update({w: n for w, n in statement.counts.items() if n > 0})
            case ParsedEnd():
                section.end = statement
            case ParsedFallback():
                section.degraded.append((section.last, statement.reason))
                del section.degraded[20:]
            case _:
                self._surround(account, statement)

    def _surround(self, account: ArtifactSummary, statement: ParsedItem) -> None:
        """Store a statement about the whole artifact."""
        match statement:
            case ParsedEnvironment():
                self.surroundings.add(account.foreign.name, statement.facts)
            case ParsedVersion():
                if len(account.stamps) < REMARKS_LIMIT:
                    account.stamps[statement.name, statement.version] = None
            case ParsedTime():
                self._moment(account, statement.at)
            case ParsedNotice():
                account.remark(statement.message)
            case ParsedProblem():
                account.remark(statement.message)
                if statement.level == "error":
                    account.unreliable = account.unreliable or statement.message

    def _moment(self, account: ArtifactSummary, at: datetime) -> None:
        if not _FIRST_YEAR <= at.year < _LAST_YEAR:
            return
        if at.tzinfo is None:
            account.remark("its times have no zone: they are taken as UTC")
            at = at.replace(tzinfo=UTC)
        at = at.astimezone(UTC)
        account.latest = max(at, account.latest or at)
        self.happened = min(at, self.happened or at)

    def _test(self, account: ArtifactSummary, section: JobSection, parsed_test: ParsedTest) -> None:
        section.tests += 1
        section.first = section.first or parsed_test.nodeid
        section.last = parsed_test.nodeid
        where = [account.number, len(account.sections) - 1]
        words = [parsed_test.reason, parsed_test.message, parsed_test.text[:TEXT_LIMIT]]
        tries = [outcome.word for outcome in parsed_test.earlier[:20]]
        told = [parsed_test.nodeid, parsed_test.outcome.value, parsed_test.duration_s]
        place = self.record_store.put(["t", *where, *told, *words, tries])
        group = self._group_of(account, section, parsed_test.nodeid)
        section.groups[group] = None
        self.index.add(
            parsed_test.nodeid,
            parsed_test.outcome,
            group=group,
            source=account.number,
            provenance=account.foreign.provenance or Provenance.PARSED_TEXT,
            place=place,
            artifact_tests=account.artifact_tests,
        )
        if parsed_test.outcome in (TestOutcome.FAILED, TestOutcome.ERROR):
            account.bad.setdefault(key_of(tail_of(parsed_test.nodeid)), []).append(
                parsed_test.nodeid
            )

    def _check(
        self, account: ArtifactSummary, section: JobSection, parsed_check: ParsedCheck
    ) -> None:
        section.checks += 1
        reason = parsed_check.reason or ("inferred" if parsed_check.inferred else "")
        words = [
            parsed_check.outcome,
            parsed_check.value,
            parsed_check.unit,
            parsed_check.tolerance,
            reason,
        ]
        where = [account.number, len(account.sections) - 1, section.last]
        self.record_store.put(["c", *where, parsed_check.name, *words])

    def _metric(
        self, account: ArtifactSummary, section: JobSection, parsed_metric: ParsedMetric
    ) -> None:
        if parsed_metric.refusal:
            said = f"the metric {parsed_metric.name[:80]!r} is left out: {parsed_metric.refusal}"
            account.remark(said)
            account.unreliable = account.unreliable or said
            return
        section.metrics += 1
        where = [account.number, len(account.sections) - 1, section.last]
        told = [
            parsed_metric.name,
            list(parsed_metric.samples),
            parsed_metric.unit,
            parsed_metric.direction,
            dict(parsed_metric.params),
        ]
        self.record_store.put(["m", *where, *told])

    def _settle_details(self, account: ArtifactSummary) -> None:
        """Assign the details to their tests, by node id or by the section's title."""
        lost = 0
        for name, phase, place in account.details:
            nodeid = self._named(account, name)
            if nodeid is None and phase == "collection":
                nodeid = name
                text = str(self.record_store.at(place)[2])
                said = ParsedTest(name, TestOutcome.ERROR, None, phase, "", text)
                self._test(account, account.sections[-1], said)
            if nodeid is None:
                lost += 1
                continue
            self.details.setdefault(key_of(nodeid), (place, phase))
        if lost:
            account.remark(f"{lost} of its failures' texts belong to no test that it names")
        account.bad.clear()
        account.details.clear()

    def _named(self, account: ArtifactSummary, name: str) -> str | None:
        if key_of(name) in account.artifact_tests.tests:
            return name
        fitting = account.bad.get(key_of(_dotted(name)))
        if not fitting:
            return None
        return fitting.pop(0) if len(fitting) > 1 else fitting[0]


def module_of(nodeid: str) -> str:
    """Return the path before the first ``::``."""
    return nodeid.partition("::")[0]


def tail_of(nodeid: str) -> str:
    """Return the part of a node id that the title of a failure's section has."""
    return _dotted(nodeid.partition("::")[2])


def _dotted(name: str) -> str:
    """Return a node id in the dotted form of section titles; its parameters are unchanged."""
    head, bracket, params = name.partition("[")
    return head.replace("::", ".") + bracket + params


def _begin(account: ArtifactSummary, parsed_job: ParsedJob) -> None:
    section = account.sections[-1]
    if section.parsed_job is None and section.is_empty:
        section.parsed_job = parsed_job
    elif section.parsed_job != parsed_job and len(account.sections) < SECTIONS_LIMIT:
        account.sections.append(JobSection(account.number, parsed_job))


def _tally(section: JobSection, parsed_tally: ParsedTally) -> None:
    if parsed_tally.where == "collected":
        section.announced = (section.announced or 0) + parsed_tally.total
        return
    section.footer = True
    section.summed = (section.summed or 0) + parsed_tally.total
    section.counts.update({w: n for w, n in parsed_tally.counts.items() if w in _WORDS and n > 0})
    if parsed_tally.duration_s is not None:
        section.tally_s = (section.tally_s or 0.0) + parsed_tally.duration_s


MOST_KEYS = 5_000
"""Maximum number of keys (mostly package names) in one environment."""


class EnvironmentMerger:
    """Merges the environments of all artifacts; the first value of each key is kept."""

    def __init__(self) -> None:
        self.facts: dict[str, object] = {}
        self.conflicts: list[str] = []
        self._by: dict[tuple[str, ...], str] = {}

    def add(self, source: str, facts: Mapping[str, object]) -> None:
        """Merge the environment of one artifact."""
        self._merge(self.facts, facts, source, ())

    def _merge(
        self,
        into: dict[str, object],
        facts: Mapping[str, object],
        source: str,
        path: tuple[str, ...],
    ) -> None:
        for key, value in facts.items():
            here = (*path, str(key))
            known = into.get(key)
            if value in (None, ""):
                continue
            if isinstance(value, Mapping):
                inner = known if isinstance(known, dict) else {}
                into[key] = inner
                self._merge(inner, value, source, here)
            elif isinstance(value, list | tuple):
                into[key] = self._devices(known, value, source, here)
            elif known is None and len(self._by) < MOST_KEYS:
                into[key], self._by[here] = value, source
            elif known is not None and not _agree(known, value):
                self._disagree(here, known, source, value)

    def _devices(
        self, known: object, values: Sequence[object], source: str, path: tuple[str, ...]
    ) -> list[object]:
        """Merge devices by position, because artifacts of one machine list the same devices."""
        devices = list(known) if isinstance(known, list) else []
        for number, one in enumerate(values):
            if not isinstance(one, Mapping):
                if one not in devices:
                    devices.append(one)
                continue
            if number >= len(devices):
                devices.append({})
            device = devices[number]
            if isinstance(device, dict):
                self._merge(device, one, source, (*path, str(number)))
        return devices

    def _disagree(self, path: tuple[str, ...], known: object, source: str, value: object) -> None:
        first = self._by.get(path, "")
        if first == source or len(self.conflicts) >= 100:
            return
        what = " ".join(part for part in path if part not in ("machine", "packages"))
        self.conflicts.append(
            f"{what}: {first or 'another artifact'} says {known}, {source} says {value}"
        )


def _agree(known: object, value: object) -> bool:
    """Whether two values agree: one may be a part of the other, as ``L4`` of ``NVIDIA L4``."""
    if known == value:
        return True
    one, other = str(known).casefold(), str(value).casefold()
    return bool(one and other) and (one in other or other in one)
