"""Inconsistencies within an artifact, between artifacts, and between artifacts and the subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.domain.assembly.index_of_tests import DISAGREEMENTS_LIMIT, TestIndex
from orchestrator.domain.assembly.jobs import FoundJob, JobFinder
from orchestrator.domain.assembly.results_pass import ArtifactReader, ArtifactSummary
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.ingested import Disagreement, Source, SourceState
from orchestrator.domain.outcome import TestOutcome

_WORDS = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
_SHOWN = 20
"""Maximum number of disagreements with a notice of their own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An inconsistency that a person must be notified of."""

    source: int | None
    """Number of the artifact; None if it concerns all artifacts."""
    level: str
    message: str
    job: str | None = None
    is_inconsistency: bool = False
    missing: int = 0
    """Number of the job's tests that are counted and that no artifact names."""
    is_bad: bool = False
    """Its job cannot pass: its figures contradict its tests, and no missing test tells why, or a
    problem makes its statements unreliable."""


@dataclass(slots=True)
class _ReportedSums:
    announced: int | None = None
    summed: int | None = None
    counts: Counter[str] = field(default_factory=Counter)


def check_account(
    account: ArtifactSummary,
    reader: ArtifactReader,
    planner: JobFinder,
    *,
    version: str,
    at: float,
) -> Iterator[Finding]:
    """Yield the inconsistencies of one artifact; `at` is now, in seconds since 1970."""
    jobs = planner.jobs_of(account)
    if account.latest is not None and account.latest.timestamp() > at:
        said = f"it tells of {account.latest:%Y-%m-%d %H:%M} UTC, which is in the future"
        yield Finding(account.number, "warning", said)
    yield from _count_findings(account, reader, jobs)
    for found in jobs if account.unreliable else ():
        yield Finding(account.number, "error", account.unreliable, found.job.id, is_bad=True)
    for name, stamp in account.stamps:
        if stamp != version:
            said = f"says {name} v{stamp}, the subject is {version}"
            only = jobs[0].job.id if len(jobs) == 1 else None
            yield Finding(account.number, "warning", said, only)
    inferred = [s for s in account.sections if s.end is not None and s.end.inferred]
    if inferred and jobs:
        said = "nothing in it says that it ended well; its last words only sound like it"
        yield Finding(account.number, "info", said)


def merged_findings(
    reader: ArtifactReader, disagreements: Sequence[Disagreement]
) -> Iterator[Finding]:
    """Yield the inconsistencies between artifacts."""
    for conflict in reader.surroundings.conflicts:
        yield Finding(None, "warning", f"two environments in one: {conflict}")
    for one in disagreements[:_SHOWN]:
        told = " and ".join(f"{word} in {name}" for name, word in one.sources)
        said = f"{one.nodeid} is {told}: it counts once, as the worst"
        yield Finding(None, "warning", said, one.job)
    more = len(disagreements) - _SHOWN + reader.index.unlisted
    if more > 0:
        listed = f"; the first {DISAGREEMENTS_LIMIT} are listed" if reader.index.unlisted else ""
        said = f"{more} more tests are told differently by different artifacts{listed}"
        yield Finding(None, "warning", said)


def source_of(
    account: ArtifactSummary, jobs: tuple[str, ...], findings: Sequence[Finding]
) -> Source:
    """Return the artifact as a `Source`."""
    mine = [finding for finding in findings if finding.source == account.number]
    remarks = dict.fromkeys([*(finding.message for finding in mine), *account.remarks])
    foreign, sums = account.foreign, _sums(account)
    wrong = bool(account.unreliable) or any(finding.is_inconsistency for finding in mine)
    state = SourceState.INCONSISTENT if wrong else SourceState.READ
    has_tests = any(section.is_suite for section in account.sections)
    return filled(
        Source,
        foreign,
        state=state if account.heard else SourceState.KEPT,
        jobs=jobs,
        announced=sums.announced,
        named=account.named if has_tests else None,
        summed=sums.summed,
        stamps=tuple(f"{name} {stamp}" for name, stamp in account.stamps),
        remarks=tuple(remarks),
    )


def _sums(account: ArtifactSummary) -> _ReportedSums:
    sums = _ReportedSums()
    for section in account.sections:
        if not section.is_suite:
            continue
        if section.announced is not None:
            sums.announced = (sums.announced or 0) + section.announced
        if section.summed is not None:
            sums.summed = (sums.summed or 0) + section.summed
        sums.counts += section.counts
    return sums


def _count_findings(
    account: ArtifactSummary, reader: ArtifactReader, jobs: list[FoundJob]
) -> Iterator[Finding]:
    """Yield the differences between the announced, named and summed counts of an artifact."""
    if not any(section.is_suite for section in account.sections):
        return
    sums, named = _sums(account), account.named
    lines = account.artifact_tests.lines
    tests = Counter(outcome.word for outcome in account.artifact_tests.tests.values())
    for section in account.sections:
        lines, tests = lines + section.unnamed, tests + section.unnamed
    reported = sum(lines[word] for word in _WORDS)
    alike = reported - sum(tests[word] for word in _WORDS)
    # Several tests with one name: all of them were reported, and the name counts once.
    all_told = alike > 0 and sums.announced == sums.summed == reported
    announced_is_right = sums.announced in (None, named) or all_told
    summed_is_right = sums.summed in (None, named, reported)
    counts_are_right = not sums.counts or sums.counts in (_known(lines), _known(tests))
    if all_told:
        said = f"{alike} of its tests are called like others: each name counts once, as the worst"
        yield Finding(account.number, "warning", said)
    if announced_is_right and summed_is_right and counts_are_right:
        return
    whole = sums.announced or sums.summed or 0
    unnamed = whole - named
    missing = max(unnamed - _elsewhere(account, reader.index), 0)
    if missing and counts_are_right and _spend_subtests(missing, account, reader):
        said = f"it counts {missing} subtests, as another file of the same tests does"
        yield Finding(account.number, "info", said)
        return
    said = _three_figures(sums, named)
    if not counts_are_right:
        said += f"; its sum says {_sentence(sums.counts)}, its lines say {_sentence(_known(lines))}"
    if missing:
        said += f": {missing} are counted as missing"
    # Tests that other artifacts name, or that are missing, have outcomes; nothing excuses others.
    bad = unnamed <= 0 or _bad(sums.counts) > max(_bad(lines), _bad(tests))
    job = jobs[-1].job.id if jobs else None
    yield Finding(
        account.number, "error", said, job, is_inconsistency=True, missing=missing, is_bad=bad
    )


def _three_figures(sums: _ReportedSums, named: int) -> str:
    parts = [
        f"it announces {sums.announced} tests" if sums.announced is not None else "",
        f"names {named}" if sums.announced is not None else f"it names {named} tests",
        f"sums up {sums.summed}" if sums.summed is not None else "has no sum",
    ]
    return ", ".join(part for part in parts[:2] if part) + f" and {parts[2]}"


def _elsewhere(account: ArtifactSummary, index: TestIndex) -> int:
    """Return the number of tests in the same groups that only other artifacts name."""
    groups = account.artifact_tests.groups
    return sum(max(index.groups[group] - own, 0) for group, own in groups.items())


def _spend_subtests(missing: int, account: ArtifactSummary, reader: ArtifactReader) -> bool:
    """Whether another artifact of the same tests has enough subtests to explain the difference.

    The explaining subtests are removed from the artifacts, so that they explain no other
    artifact.
    """
    enough: dict[str, ArtifactSummary] = {}
    for one in reader.accounts:
        if one is not account and one.subtests >= missing and _are_same_tests(one, account):
            enough.setdefault(one.foreign.dialect, one)
    for one in enough.values():
        one.subtests -= missing
    return bool(enough)


def _are_same_tests(one: ArtifactSummary, other: ArtifactSummary) -> bool:
    """Whether both artifacts name the same tests; `one` may count them without naming them.

    Node ids in a log start at the folder in which pytest ran; others may have a folder before
    them.
    """
    uncovered = any(section.unnamed - section.covered for section in one.sections)
    if one.named != other.named or uncovered:
        return False
    mine, theirs = one.artifact_tests.tests, other.artifact_tests.tests
    if mine.keys() <= theirs.keys():
        return True
    ends = (
        (one.sections[0].first, other.sections[0].first),
        (one.sections[-1].last, other.sections[-1].last),
    )
    if len(mine) != len(theirs) or not all(long.endswith(f"/{short}") for short, long in ends):
        return False
    return len({long.removesuffix(short) for short, long in ends}) == 1


def _known(counts: Counter[str]) -> Counter[str]:
    return Counter({word: counts[word] for word in _WORDS if counts[word]})


def _bad(counts: Counter[str]) -> int:
    return counts[TestOutcome.FAILED.word] + counts[TestOutcome.ERROR.word]


def _sentence(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[word]} {word}" for word in _WORDS if counts[word]) or "none"
