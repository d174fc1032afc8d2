"""Conclusions: sentences that are made of figures and rules, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.domain.vocabulary import REASONS, phrase
from reports.format import count, outcome, plural, share
from reports.model.blocks import CommandTable, Hardware, SuiteTable
from reports.model.values import Absent, Claim, Rate, Status, Tally

RULE_WHEN_SOUND = (
    "every job ran to its end and passed; a suite passes only if something was collected, "
    "all of it reported, and none failed or errored"
)


def counted_tests_claim(rule: str, tally: Tally | Absent, *, over: str = "") -> Claim:
    """Return the claim of how many of the counted tests passed, with the other counts."""
    if isinstance(tally, Absent):
        return Claim(rule, (), f"No test was judged{over}: {tally.reason}.")
    share_of = tally.rate
    beside = [("skipped", tally.skipped), ("missing", tally.missing)]
    seldom = (("xfailed", tally.xfailed), ("xpassed", tally.xpassed), ("not run", tally.not_run))
    beside += [pair for pair in seldom if pair[1]]
    stated = "; ".join(f"{count(n)} {name}" for name, n in beside)
    text = f"{count(share_of.part)} of {count(share_of.whole)} judged tests passed{over}; {stated}."
    return Claim(rule, (share_of.part, share_of.whole, *(n for _, n in beside)), text)


def suites_claim(table: SuiteTable) -> Claim:
    """Return the claim about the tests of one cell."""
    return counted_tests_claim("tests", table.total)


def commands_claims(tables: Iterable[CommandTable]) -> tuple[Claim, ...]:
    """Return claims on the numbers of passed demos, use cases and benchmarks."""
    return tuple(_commands(table) for table in tables if table.rows)


def _commands(table: CommandTable) -> Claim:
    passed = table.jobs
    name = table.kind.replace("-", " ")
    text = f"{count(passed.part)} of {plural(passed.whole, name)} passed"
    figures: tuple[int, ...] = (passed.part, passed.whole)
    if not isinstance(table.checks, Absent):
        held = table.checks.rate
        text += f", with {count(held.part)} of {plural(held.whole, 'judged check')} passed"
        figures += (held.part, held.whole)
    return Claim(f"jobs.{table.kind}", figures, f"{text}.")


def degraded_claim(jobs: Sequence[tuple[str, str]]) -> tuple[Claim, ...]:
    """Return the claim about jobs that ran degraded."""
    if not jobs:
        return ()
    return (Claim("degraded", (len(jobs),), f"{plural(len(jobs), 'job')} ran degraded."),)


def hardware_claim(hardware: Hardware) -> Claim:
    """Return the claim of whether the figures are accelerator evidence."""
    return Claim("hardware", (), f"This is {hardware.why}.")


def outcome_claim(status: Status, detail: str) -> Claim:
    """Return the claim about an outcome and the rule that decided it."""
    word = outcome(status.code)
    if status.code in ("running", "queued"):
        return Claim("outcome", (), f"Outcome: {word}; nothing is concluded before the end.")
    if status.code == "passed":
        return Claim("outcome", (), f"Outcome: {word}, because {RULE_WHEN_SOUND}.{_but(status)}")
    reason = phrase(status.reason) or "no reason recorded"
    rule = REASONS.get(status.reason, reason)
    said = f" ({detail})" if detail else ""
    return Claim("outcome", (), f"Outcome: {word}. Rule: {rule}{said}.")


def run_claim(status: Status, passed: Rate) -> Claim:
    """Return the claim about the run's outcome, its worst cell's."""
    word = outcome(status.code)
    text = f"{share(passed)} cells passed. Outcome of the run: {word}, its worst cell's."
    return Claim("run", (passed.part, passed.whole), text + _but(status))


def _but(status: Status) -> str:
    """Return the reason for which an outcome validates nothing."""
    return " But no test passed." if status.nothing_passed else ""
