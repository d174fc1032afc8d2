"""Two runs to compare: everything that may become of a test, a check, a metric and a machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal

from orchestrator.domain.event_facts import CheckFact, MetricFact, TestFact
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import Evidence
from tests.unit.reports.builders import (
    A10G,
    Jobs,
    T,
    at,
    cell_of,
    checks,
    evidence_of,
    lease,
    probe,
    results_of,
    throughput,
)
from tests.unit.reports.stories import a10g, l4, local, not_available, release

FILE = "suites/test_all.py::"
BECOMES = (
    ("test_breaks", T.PASSED, T.FAILED), ("test_breaks_after_skip", T.SKIPPED, T.ERROR),
    ("test_still", T.FAILED, T.FAILED), ("test_other_fault", T.ERROR, T.FAILED),
    ("test_mended", T.FAILED, T.PASSED), ("test_hidden", T.FAILED, T.SKIPPED),
    ("test_skips_now", T.PASSED, T.SKIPPED), ("test_lost", T.PASSED, T.MISSING),
    ("test_never", T.PASSED, T.NOT_RUN), ("test_known_bug", T.PASSED, T.XFAILED),
    ("test_unskipped", T.SKIPPED, T.PASSED), ("test_same", T.PASSED, T.PASSED),
    ("test_same_skip", T.SKIPPED, T.SKIPPED), ("test_old", T.PASSED, None),
    ("TestX::test_moved", T.PASSED, None), ("TestY::test_moved", None, T.PASSED),
    ("test_new", None, T.PASSED), ("test_new_and_bad", None, T.FAILED),
)  # fmt: skip
"""Name, outcome in the base, outcome in the head; None: it was not collected."""


def _tests(side: int) -> list[TestFact]:
    said = [(FILE + row[0], row[side]) for row in BECOMES if row[side] is not None]
    return [fact for pair in said for fact in results_of("all", [pair], message="assert |")]


def _cell(side: int, *, torch: str, scale: float, usd: str):
    jobs = Jobs().suite("all", "Every Outcome", _tests(side), Outcome.FAILED, "tests")
    bad = {3: "3 is off"} if side == 2 else {}
    outcome = Outcome.FAILED if bad else Outcome.PASSED
    said = checks("moe-demo", 4, failed=bad)
    if side == 2:
        said.append(CheckFact("moe-demo", "demo 5", "passed"))
    jobs.command("moe-demo", "demo", "MoE Demo", outcome, checks=said)
    single = MetricFact(400, "moe-benchmark", "cold start", (375.16 * scale,), "ms", "lower", {})
    jobs.command(
        "moe-benchmark", "benchmark", "MoE Benchmark",
        metrics=[*throughput("moe-benchmark", scale=scale), single],
        degraded="fell back" if side == 2 else None,
    )  # fmt: skip
    platform = a10g()[0].platform
    found = cell_of(
        replace(platform, id="aws-a10g" if side == 1 else "a10g-again"),
        jobs,
        Outcome.FAILED,
        "tests",
        probed=probe(A10G, torch=torch),
        leases=(lease(cost_usd=Decimal(usd)),),
    )
    return found, jobs


def base() -> Evidence:
    """The older run."""
    evidence = evidence_of(
        _cell(1, torch="2.7.0+cu128", scale=1.0, usd="0.1823"), l4(), outcome=Outcome.FAILED
    )
    run = replace(evidence.record.run, id="run-0000", subject_version="0.4.39", created_at=at(-9e4))
    return replace(evidence, record=replace(evidence.record, run=run))


def head() -> Evidence:
    """The newer run, with its base."""
    slow = _cell(2, torch="2.8.0+cu129", scale=1.1, usd="0.1900")
    return replace(evidence_of(slow, not_available(), outcome=Outcome.FAILED), base=base())


def swapped(evidence: Evidence) -> Evidence:
    """The same comparison the other way round."""
    assert evidence.base is not None
    return replace(evidence.base, base=replace(evidence, base=None))


def itself() -> Evidence:
    """A run against itself."""
    return replace(release(), base=release())


def unnamed() -> Evidence:
    """A base whose source only counts its tests."""
    cell, _ = local()
    job = cell.jobs[0]
    counted = Counts.from_tally(Counter({T.PASSED: 48}))
    told = replace(job, counts=counted, unnamed=counted)
    plain = (replace(cell, jobs=(told, *cell.jobs[1:])), Jobs())
    return replace(
        evidence_of(local(), outcome=Outcome.PASSED),
        base=evidence_of(plain, outcome=Outcome.PASSED),
    )
