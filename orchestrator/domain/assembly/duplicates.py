"""Artifacts that tell of the same tests: a log, beside it its reportlog and its JUnit XML.

They are one suite, not three of which two are empty. And what a log without ``-v`` counts without
naming is taken for what the document beside it names, where nothing speaks against it: either the
log names some tests (those that failed) and the document has them all, or it names none, and the
document has as many of each outcome and did not take longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from orchestrator.domain.assembly.findings import Finding
from orchestrator.domain.assembly.results_pass import ArtifactSummary, JobSection
from orchestrator.domain.assembly.test_index import TestIndex
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import Provenance

_BAD = (TestOutcome.FAILED.word, TestOutcome.ERROR.word)
_PASSED, _XPASSED = TestOutcome.PASSED.word, TestOutcome.XPASSED.word
_SLACK, _SLACK_S = 1.1, 0.5


def cover_unnamed(accounts: Sequence[ArtifactSummary]) -> Iterator[tuple[Finding, int]]:
    """Settle which counted tests others name; tells of each, and the number of the artifact.

    Afterwards `Section.covered` has those that need not be counted.
    """
    named = [account for account in accounts if _is_plain(account) and account.told.tests]
    for account in accounts:
        if not _is_counted(account):
            continue
        others = (other for other in named if other is not account and _fits(account, other))
        found = max(others, key=lambda other: _cover(account, other).total(), default=None)
        if found is not None:
            yield _covered(account, found)


def first_of_duplicates(
    accounts: Sequence[ArtifactSummary], index: TestIndex, covers: Iterator[tuple[int, int]]
) -> list[int]:
    """For each artifact the first that tells of the same tests, itself where there is none."""
    first = list(range(len(accounts)))

    def root(number: int) -> int:
        while first[number] != number:
            first[number] = number = first[first[number]]
        return number

    def join(one: int, other: int) -> None:
        low, high = sorted((root(one), root(other)))
        first[high] = low

    for one, other in covers:
        join(one, other)
    for account in filter(_is_plain, accounts):
        for source in index.winners(account.told.tests):
            if _is_plain(accounts[source]):
                join(account.number, source)
    return [root(number) for number in range(len(accounts))]


def _is_plain(account: ArtifactSummary) -> bool:
    """Whether it is about tests alone, and does not say which job they are."""
    [section, *more] = account.sections
    return not more and section.said is None and section.is_suite


def _is_counted(account: ArtifactSummary) -> bool:
    is_text = account.foreign.provenance is Provenance.PARSED_TEXT
    return is_text and _is_plain(account) and bool(account.sections[0].unnamed)


def _fits(account: ArtifactSummary, other: ArtifactSummary) -> bool:
    mine, theirs = account.told.tests, other.told.tests
    unnamed = account.sections[0].unnamed
    might = mine.keys() <= theirs.keys() if mine else unnamed.total() == len(theirs)
    if not might:
        return False
    rest = _rest(account, other)
    if any(unnamed[word] > rest[word] for word in _BAD):
        return False
    is_as_long = _took(other) <= _took(account) * _SLACK + _SLACK_S
    return bool(mine) or (is_as_long and _folded(unnamed) == _folded(rest))


def _covered(account: ArtifactSummary, other: ArtifactSummary) -> tuple[Finding, int]:
    mine, theirs = account.sections[0], other.sections[0]
    mine.covered = _cover(account, other)
    mine.first = mine.first or theirs.first
    if not mine.groups:
        mine.groups.update(theirs.groups)
    name, number = other.foreign.name, mine.covered.total()
    said = f"tests that it counts without naming them, taken for those that {name} names: {number}"
    return Finding(account.number, "info", said), other.number


def _cover(account: ArtifactSummary, other: ArtifactSummary) -> Counter[str]:
    """How many of its counted tests the other one names: of the same outcome where it can be."""
    unnamed, rest = account.sections[0].unnamed, _rest(account, other)
    found = unnamed & rest
    spare = rest.total() - found.total()
    for word in unnamed:
        more = min(spare, unnamed[word] - found[word])
        found[word] += more
        spare -= more
    return +found


def _rest(account: ArtifactSummary, other: ArtifactSummary) -> Counter[str]:
    """What the other one names and it does not."""
    known = account.told.tests
    return Counter(outcome.word for key, outcome in other.told.tests.items() if key not in known)


def _folded(counts: Counter[str]) -> Counter[str]:
    """JUnit XML has no word for a test that passed against expectation."""
    return +(counts + Counter({_PASSED: counts[_XPASSED], _XPASSED: -counts[_XPASSED]}))


def _took(account: ArtifactSummary) -> float:
    section: JobSection = account.sections[0]
    stated = section.end.duration_s if section.end is not None else None
    return stated or section.tally_s or 0.0
