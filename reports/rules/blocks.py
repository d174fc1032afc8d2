"""Rules about one part of a report, for reports of any kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from reports.model.blocks import (
    CommandRow,
    CommandTable,
    ProbedDevice,
    SuiteProblems,
    SuiteRow,
    SuiteSkips,
    SuiteTable,
    TimelineRow,
)
from reports.model.values import Absent, CheckTally, Rate, Tally

RuleFinding = tuple[str, str, str]
"""Level, rule, message."""

OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed", "missing", "not_run")
_AMPERE, _BLACKWELL = "Ampere", "Blackwell"
ARCHITECTURE_OF = {"7.0": "Volta", "7.5": "Turing", "8.9": "Ada Lovelace", "9.0": "Hopper"} | {
    "8.0": _AMPERE, "8.6": _AMPERE, "8.7": _AMPERE,
    "10.0": _BLACKWELL, "10.3": _BLACKWELL, "12.0": _BLACKWELL,
}  # fmt: skip


def close(a: float, b: float) -> bool:
    """Whether two floats are equal but for their last bits."""
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def differs(rule: str, what: str, stated: object, recomputed: object) -> Iterator[RuleFinding]:
    """Return an error if a stated value differs from the recomputed one."""
    if stated != recomputed:
        yield "error", rule, f"{what} is {stated}, recomputed {recomputed}"


def rate_rule(part: Rate) -> Iterator[RuleFinding]:
    """Check ``percent = 100 * part / whole``."""
    if not 0 <= part.part <= part.whole:
        yield "error", "rate", f"{part.part} of {part.whole} is no share"
    elif isinstance(part.percent, Absent) != (part.whole == 0):
        yield "error", "rate", "a percentage is there of nothing, or absent of something"
    elif not isinstance(part.percent, Absent):
        found = part.part * 100 / part.whole
        if not close(part.percent, found):
            yield "error", "rate", f"percent is {part.percent}, recomputed {found}"


def tally_rule(part: Tally) -> Iterator[RuleFinding]:
    """Check that the eight counts add up, and the pass rate."""
    figures = [getattr(part, name) for name in OUTCOMES]
    if min(figures) < 0:
        yield "error", "tally", "a count is negative"
    yield from differs("tally", "collected", part.collected, sum(figures))
    yield from differs("pass_rate", "the rate's part", part.rate.part, part.passed)
    judged = part.passed + part.failed + part.error
    yield from differs("pass_rate", "the rate's whole", part.rate.whole, judged)


def checks_rule(part: CheckTally) -> Iterator[RuleFinding]:
    """Check the pass rate of checks."""
    yield from differs("checks", "the rate's part", part.rate.part, part.passed)
    yield from differs("checks", "the rate's whole", part.rate.whole, part.passed + part.failed)


def suite_rule(part: SuiteRow) -> Iterator[RuleFinding]:
    """Check that a passed suite collected tests, and that all are accounted for."""
    if part.status.code != "passed":
        return
    if isinstance(part.tally, Absent) or not part.tally.collected:
        yield "error", "outcome", "the suite passed without a test"
    elif part.tally.bad:
        yield "error", "outcome", f"the suite passed with {part.tally.bad} tests that did not"


def tally_figures(tally: Tally | Absent) -> tuple[int, ...]:
    """Return the numbers that a claim about tests names; none of an absent tally.

    Passed, those with a result (passed, failed, error), skipped, missing; then, where they are not
    0: xfailed, xpassed, not run.
    """
    if isinstance(tally, Absent):
        return ()
    judged = tally.passed + tally.failed + tally.error
    seldom = [n for n in (tally.xfailed, tally.xpassed, tally.not_run) if n]
    return (tally.passed, judged, tally.skipped, tally.missing, *seldom)


def total_is(total: Tally | Absent, rows: Sequence[Tally | Absent]) -> Iterator[RuleFinding]:
    """Check that a total is the sum of its rows, and absent only without any."""
    known = [row for row in rows if not isinstance(row, Absent)]
    if isinstance(total, Absent):
        yield from differs("total", "rows behind an absent total", 0, len(known))
        return
    for name in (*OUTCOMES, "collected"):
        found = sum(getattr(row, name) for row in known)
        yield from differs("total", f"total {name}", getattr(total, name), found)


def suites_rule(part: SuiteTable) -> Iterator[RuleFinding]:
    """Check the total of the suites."""
    yield from total_is(part.total, [row.tally for row in part.rows])


def problems_rule(part: SuiteProblems) -> Iterator[RuleFinding]:
    """Check that listed and unlisted tests are all that did not pass."""
    yield from differs("listed", "bad tests", part.bad, len(part.shown) + part.hidden)
    if part.hidden < 0:
        yield "error", "listed", f"{-part.hidden} more tests are listed than were counted"


def skips_rule(part: SuiteSkips) -> Iterator[RuleFinding]:
    """Check that the groups contain every skipped test."""
    found = sum(group.tests for group in part.groups) + part.hidden
    yield from differs("skips", "skipped tests", part.skipped, found)
    if part.hidden < 0:
        yield "error", "skips", f"{-part.hidden} more tests are grouped than were skipped"


def command_rule(part: CommandRow) -> Iterator[RuleFinding]:
    """Check that a command's checks add up, and that none failed if the command passed."""
    checks = part.checks
    listed = len(part.lines) + part.hidden
    if isinstance(checks, Absent):
        yield from differs("checks", "checks without a tally", 0, listed)
        return
    stated = checks.passed + checks.failed + checks.skipped
    yield from differs("checks", "checks", stated, listed)
    if part.status.code == "passed" and checks.failed:
        yield "error", "outcome", f"the job passed with {checks.failed} failed checks"


def commands_rule(part: CommandTable) -> Iterator[RuleFinding]:
    """Check the totals of demos, use cases or benchmarks."""
    passed = len([row for row in part.rows if row.status.code == "passed"])
    yield from differs("total", "passed jobs", part.jobs.part, passed)
    yield from differs("total", "jobs", part.jobs.whole, len(part.rows))
    known = [row.checks for row in part.rows if not isinstance(row.checks, Absent)]
    if isinstance(part.checks, Absent):
        yield from differs("total", "rows behind absent checks", 0, len(known))
        return
    for name in ("passed", "failed", "skipped"):
        found = sum(getattr(row, name) for row in known)
        yield from differs("total", f"{name} checks", getattr(part.checks, name), found)


def device_rule(part: ProbedDevice) -> Iterator[RuleFinding]:
    """Check that the stated architecture is that of the stated compute capability."""
    if isinstance(part.architecture, Absent) or isinstance(part.compute_capability, Absent):
        return
    found = ARCHITECTURE_OF.get(part.compute_capability)
    yield from differs("architecture", "architecture", part.architecture, found)


def timeline_rule(part: TimelineRow) -> Iterator[RuleFinding]:
    """Check that a state's duration is its end minus its begin, and absent without an end."""
    if isinstance(part.until, Absent) or isinstance(part.duration_s, Absent):
        both = isinstance(part.until, Absent) and isinstance(part.duration_s, Absent)
        yield from differs("duration", "without an end", both, True)
        return
    found = part.until.timestamp() - part.at.timestamp()
    if abs(part.duration_s - found) > 1e-3:
        yield "error", "duration", f"duration_s is {part.duration_s}, recomputed {found}"
    if found < 0:
        yield "warning", "clock", f"the clock ran backwards by {-found:.3f} s in {part.target}"


RULES: dict[type, Callable[[Any], Iterator[RuleFinding]]] = {
    Rate: rate_rule,
    Tally: tally_rule,
    CheckTally: checks_rule,
    SuiteRow: suite_rule,
    SuiteTable: suites_rule,
    SuiteProblems: problems_rule,
    SuiteSkips: skips_rule,
    CommandRow: command_rule,
    CommandTable: commands_rule,
    ProbedDevice: device_rule,
    TimelineRow: timeline_rule,
}
"""By the type of the part."""
