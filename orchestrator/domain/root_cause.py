"""Root causes: the one change that makes a failing test pass.

A root cause other than `unknown` needs retests that all agree. A fact that only fits, such as
another driver, is mentioned as evidence; it becomes the root cause only if everything else is ruled
out. ADR 0014 calculates how often chance alone would give a wrong root cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.domain.copied_fields import filled
from orchestrator.domain.retests import (
    BACK,
    SURE,
    Retest,
    RetestCounts,
    RetestKind,
    RetestSessionResponse,
    key_of,
    last_session,
    split_key,
    tally,
    tally_words,
)
from orchestrator.domain.units import plural

Row = tuple[str, str, str]
"""A difference: (property, old value, new value)."""


class RootCause(StrEnum):
    """The root cause of a failing test."""

    SUBJECT = "subject"
    """The code of the subject."""
    DEPENDENCY = "dependency"
    """Another package, whose version differs from the last green run."""
    IMAGE_OR_DRIVER = "image_or_driver"
    """The driver or the image, which differ from the last green run."""
    MACHINE = "machine"
    """This one machine."""
    FLAKY = "flaky"
    """The test itself, which fails and passes with nothing changed."""
    UNKNOWN = "unknown"
    """The evidence proves no root cause."""


_DECIDING = {
    RootCause.SUBJECT: 1,
    RootCause.DEPENDENCY: -2,
    RootCause.IMAGE_OR_DRIVER: -1,
    RootCause.MACHINE: -1,
    RootCause.FLAKY: 0,
    RootCause.UNKNOWN: -1,
}
"""Index of the deciding sentence in the evidence, by root cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The root cause of one failing test, with the evidence for it."""

    job: str
    nodeid: str
    answer: RootCause
    evidence: tuple[str, ...]
    """Sentences with figures, in the order of the retests."""

    @property
    def sentence(self) -> str:
        """The deciding sentence of the evidence; empty if there is none."""
        return self.evidence[_DECIDING[self.answer]] if self.evidence else ""

    def as_text(self) -> dict[str, str]:
        """Return the attribution as texts by name, as in snapshots."""
        said = " ".join(self.evidence)
        return {"job": self.job, "nodeid": self.nodeid, "answer": self.answer, "evidence": said}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestsResponse:
    """The retests of a cell's last attempt, and the root causes that they prove."""

    items: tuple[RetestSessionResponse, ...]
    attributions: tuple[Attribution, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationResult:
    """The result of a confirmation run on another machine of the platform."""

    name: str
    run: str
    outcomes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Outcomes of all unchanged runs of each test there, by `key_of`."""
    differs: tuple[Row, ...] = ()
    """Differences between the environments of the two machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionContext:
    """Facts beside the retests."""

    baseline: str = ""
    """The baseline in words; empty without one."""
    last_green: str = ""
    """Id of the newest run in which the platform passed; empty without one."""
    packages: tuple[Row, ...] = ()
    """Packages that differ from the last green run."""
    surroundings: tuple[Row, ...] = ()
    """Driver, runtime, image and devices that differ from the last green run."""
    same_tests: bool = False
    """Whether the payload is the same as in the last green run."""
    second: ConfirmationResult | None = None


@dataclass(frozen=True, slots=True)
class _RetestedTest:
    """One failing test with its retests and the facts."""

    alone: RetestCounts
    among: RetestCounts
    baseline: RetestCounts
    green: RetestCounts
    back_from_baseline: RetestCounts
    back_from_green: RetestCounts
    there: RetestCounts
    about: AttributionContext

    @property
    def elsewhere(self) -> ConfirmationResult | None:
        """The confirmation run, if the test ran there in an equal environment; otherwise None."""
        second = self.about.second
        return second if second and not second.differs and self.there.total else None


def attribute_failure(
    failed: Iterable[str], retests: Sequence[Retest], about: AttributionContext
) -> tuple[Attribution, ...]:
    """Return the root causes of failing tests, which are given by `key_of`."""
    found = []
    for key in failed:
        answer, evidence = _answer(_retested_test(key, retests, about))
        job, nodeid = split_key(key)
        found.append(Attribution(job=job, nodeid=nodeid, answer=answer, evidence=tuple(evidence)))
    return tuple(found)


def _retested_test(key: str, retests: Sequence[Retest], about: AttributionContext) -> _RetestedTest:
    def count(
        kind: RetestKind, *, whole: bool = False, after: RetestKind | None = None
    ) -> RetestCounts:
        since = last_session(retests, after) if after else 0
        return tally(retests, key, kind, whole=whole, after=since)

    words = about.second.outcomes.get(key, ()) if about.second else ()
    return _RetestedTest(
        alone=count(RetestKind.RERUN),
        among=count(RetestKind.RERUN, whole=True),
        baseline=count(RetestKind.BASELINE),
        green=count(RetestKind.LAST_GREEN),
        back_from_baseline=count(RetestKind.RERUN, after=RetestKind.BASELINE),
        back_from_green=count(RetestKind.RERUN, after=RetestKind.LAST_GREEN),
        there=tally_words(words),
        about=about,
    )


def _answer(test: _RetestedTest) -> tuple[RootCause, list[str]]:
    if test.alone.passed or test.among.passed:
        return _unsteady(test)
    if not test.alone.always_failed(SURE):
        if not test.alone.total:
            return RootCause.UNKNOWN, ["It was not run again."]
        said = f"It failed {_of(test.alone)} run again with nothing changed; "
        return RootCause.UNKNOWN, [f"{said}{SURE} failures in a row are needed to say more."]
    steady = f"It fails every time with nothing changed: {_of(test.alone)} run again."
    for judge in (_subject, _dependency, _machine, _surroundings):
        found = judge(test)
        if found is not None:
            answer, evidence = found
            return answer, [steady, *evidence]
    return RootCause.UNKNOWN, [steady, *_known(test)]


def _unsteady(test: _RetestedTest) -> tuple[RootCause, list[str]]:
    """Return `flaky` or `unknown` for a test that passed unchanged at least once."""
    alone = f"With nothing changed on the same machine it failed {_of(test.alone)} run again."
    if test.alone.failed or test.among.passed:
        among = [f"In its whole job it failed {_of(test.among)}."] if test.among.total else []
        return RootCause.FLAKY, [alone, *among]
    if test.among.always_failed(1):
        return RootCause.UNKNOWN, [
            alone,
            f"In its whole job it failed {_of(test.among)}: it depends on what runs before it.",
        ]
    said = "It failed in its whole job, which did not run again: what runs before it may matter."
    return RootCause.UNKNOWN, [alone, said]


def _subject(test: _RetestedTest) -> tuple[RootCause, list[str]] | None:
    if not test.baseline.always_passed(SURE) or not test.back_from_baseline.always_failed(BACK):
        return None
    baseline = f"the baseline {test.about.baseline} and nothing else changed"
    evidence = [
        f"With {baseline} it failed {_of(test.baseline)}.",
        f"With the subject again, afterwards, it failed {_of(test.back_from_baseline)}.",
    ]
    return _unless_elsewhere(test, RootCause.SUBJECT, evidence)


def _dependency(test: _RetestedTest) -> tuple[RootCause, list[str]] | None:
    if not test.green.always_passed(SURE) or not test.back_from_green.always_failed(BACK):
        return None
    with_baseline = [_with_baseline(test)] if test.baseline.total else []
    packages = f"the packages of the last green run {test.about.last_green}"
    evidence = [
        *with_baseline,
        f"With {packages} and nothing else changed it failed {_of(test.green)}.",
        f"What differs: {_rows(test.about.packages)}.",
        f"With today's packages again, afterwards, it failed {_of(test.back_from_green)}.",
    ]
    return _unless_elsewhere(test, RootCause.DEPENDENCY, evidence)


def _unless_elsewhere(
    test: _RetestedTest, answer: RootCause, evidence: list[str]
) -> tuple[RootCause, list[str]]:
    """Return the root cause; `unknown` if the test passes on another machine."""
    if test.elsewhere is not None and test.there.passed:
        return RootCause.UNKNOWN, [*evidence, _there(test)]
    return answer, evidence


def _machine(test: _RetestedTest) -> tuple[RootCause, list[str]] | None:
    if test.elsewhere is None or not test.there.always_passed(SURE):
        return None
    return RootCause.MACHINE, [*_ruled_out(test), _there(test)]


def _surroundings(test: _RetestedTest) -> tuple[RootCause, list[str]] | None:
    """Return `image_or_driver` if everything else is ruled out; otherwise None."""
    about = test.about
    packages_are_out = not about.packages or test.green.always_failed(SURE)
    everything_else_is_out = (
        test.baseline.always_failed(SURE)
        and packages_are_out
        and about.same_tests
        and test.elsewhere is not None
        and test.there.always_failed(SURE)
    )
    if not about.surroundings or not everything_else_is_out:
        return None
    differs = f"Since the last green run {about.last_green}: {_rows(about.surroundings)}."
    return RootCause.IMAGE_OR_DRIVER, [*_ruled_out(test), _there(test), differs]


def _known(test: _RetestedTest) -> list[str]:
    """Return sentences about the known facts, which do not prove a root cause."""
    about, said = test.about, _ruled_out(test)
    if not test.baseline.total:
        said.append(
            "The test is not in the baseline's payload or could not be run with a baseline."
            if about.baseline
            else "There is no baseline to run it with: the matrix names none."
        )
    if test.there.total:
        said.append(_there(test))
        if about.second and about.second.differs:
            said.append(f"That machine differs: {_rows(about.second.differs)}.")
    if about.surroundings:
        since = f"Since the last green run {about.last_green}"
        said.append(f"{since}: {_rows(about.surroundings)}; that alone proves nothing.")
    if not about.last_green:
        said.append("There is no green run of this platform to compare with.")
    return said


def _ruled_out(test: _RetestedTest) -> list[str]:
    said = [_with_baseline(test)] if test.baseline.total else []
    if test.green.total:
        green = f"the packages of the last green run {test.about.last_green}"
        said.append(f"With {green} it failed {_of(test.green)}.")
    return said


def _with_baseline(test: _RetestedTest) -> str:
    words = f"With the baseline {test.about.baseline} it failed {_of(test.baseline)}"
    if test.baseline.other:
        return f"{words}, and was skipped or not there {test.baseline.other} times."
    return f"{words}."


def _there(test: _RetestedTest) -> str:
    second = test.about.second
    where = f"{second.name} (run {second.run})" if second else ""
    return f"On another machine of the platform, {where}, it failed {_of(test.there)}."


def _of(tally: RetestCounts) -> str:
    return f"{tally.failed} of {plural(tally.total, 'time')}"


def _rows(rows: Sequence[Row]) -> str:
    shown = [f"{what} {then} -> {now}" for what, then, now in rows[:8]]
    more = [f"and {len(rows) - 8} more"] if len(rows) > 8 else []
    return ", ".join([*shown, *more])


_COUNTED_KINDS = (RetestKind.RERUN, RetestKind.BASELINE, RetestKind.LAST_GREEN)
"""The counted kinds of retests; bisections report their own steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestTally:
    """The outcomes of a test's retests with one change."""

    kind: RetestKind
    changed: str
    """The change in words; empty if nothing changed."""
    whole: bool
    """Whether the whole job of the test ran."""
    outcomes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{_went(tally_words(self.outcomes))} {self._how}"

    @property
    def _how(self) -> str:
        if self.kind is RetestKind.BASELINE:
            return f"with the baseline {self.changed}"
        if self.kind is RetestKind.LAST_GREEN:
            return "with the packages of the last green run"
        return "in its whole job again" if self.whole else "again"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedTest:
    """One failing test of a cell with its root cause."""

    cell: str
    job: str
    nodeid: str
    """Node id; empty for a command job."""
    answer: RootCause
    sentence: str
    """The deciding sentence of the evidence."""
    evidence: tuple[str, ...]
    """All evidence."""
    again: tuple[RetestTally, ...]

    @property
    def tried(self) -> str:
        """The retests in words: ``failed 4 of 4 again; passed 4 of 4 with the baseline x 0.4``."""
        return "; ".join(map(str, self.again))


def diagnosed_of(
    cell: str, blames: Iterable[Attribution], retests: Iterable[Retest]
) -> tuple[DiagnosedTest, ...]:
    """Return the tests of a cell that were retested at least once, with their root causes."""
    told = [retest for retest in retests if retest.kind in _COUNTED_KINDS]
    found = (
        filled(DiagnosedTest, one, cell=cell, again=_again(key_of(one.job, one.nodeid), told))
        for one in blames
    )
    return tuple(one for one in found if one.again)


def _again(key: str, retests: Iterable[Retest]) -> tuple[RetestTally, ...]:
    """Return the outcomes of a test by the change of the retests."""
    words: dict[tuple[RetestKind, bool, str], list[str]] = {}
    for retest in retests:
        if key in retest.outcomes:
            kind = (retest.kind, retest.whole, retest.changed)
            words.setdefault(kind, []).append(retest.outcomes[key])
    return tuple(
        RetestTally(kind=kind, changed=changed, whole=whole, outcomes=tuple(each))
        for (kind, whole, changed), each in words.items()
    )


def _went(tally: RetestCounts) -> str:
    if tally.passed == tally.total:
        return f"passed {tally.passed} of {tally.total}"
    said = f"failed {tally.failed} of {tally.total}"
    return f"{said} (not run in {tally.other})" if tally.other else said
