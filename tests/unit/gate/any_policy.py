"""Any policy: names are few, so that rules, exceptions and evidence meet."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

from hypothesis import strategies as st

from orchestrator.domain.gate.policy import (
    ApprovalRule,
    BenchmarkBudget,
    CostRule,
    EvidenceRule,
    FlakyRule,
    GateException,
    GatePolicy,
    JobRule,
    ManifestRule,
    NewFailureRule,
    PerformanceRule,
    PlatformRule,
    PolicyIssue,
    SkipRule,
    SubjectRule,
    Substitute,
    Unavailable,
)
from orchestrator.domain.known_issue import IssueMatch, IssueScope
from tests.unit.gate.builders import NOW, policy

PLATFORMS = ("aws-a10g", "gcp-l4", "gcp-tpu-v5e")
JOBS = ("bench", "demo", "fp8", "moe")
PEOPLE = ("ann", "bob", "cyd", "Dee")
TESTS = tuple(f"test_a.py::test_{letter}" for letter in "abcd")
SIGNATURES = (("s1-01", "ValueError"), ("s1-02", "KeyError"), ("s1-03", "ValueError"))
WAIVABLE = (
    *(f"{kind}/{name}" for kind in ("platform", "missing", "skips") for name in PLATFORMS),
    *(f"job/{job}@{name}" for job in JOBS for name in PLATFORMS),
    "degraded/demo@gcp-l4",
    "test_set/moe@gcp-l4",
    "selection/moe@gcp-l4",
    "changed_tests/moe@gcp-l4",
    "performance/bench/time@gcp-l4",
    "new_failures",
    "cost",
)
ALL_RULES = (*WAIVABLE, "evidence", "subject", "freshness/gcp-l4", "attestation/gcp-l4", "flaky")
seldom = st.sampled_from([False, False, False, True])
often = st.sampled_from([True, True, True, False])
days = st.integers(-20, 25).map(lambda number: NOW.date() + timedelta(days=number))
later = st.integers(1, 25).map(lambda number: NOW + timedelta(days=number))
names = st.lists(st.sampled_from(PLATFORMS), unique=True, max_size=2).map(tuple)
some_names = st.lists(st.sampled_from(PLATFORMS), unique=True, min_size=1).map(tuple)


@st.composite
def issue_scopes(draw: st.DrawFn) -> IssueScope:
    jobs = draw(st.sampled_from([(), (), ("*",), ("f*",), ("moe",)]))
    platforms = draw(st.sampled_from([(), (), ("gcp-l4",), ("*",)]))
    versions = draw(st.sampled_from(["", "", "", ">=0.4,<0.5", ">=0.5"]))
    return IssueScope(platforms, jobs, versions, draw(st.sampled_from(["", "", "", "torch"])))


matches = st.sampled_from(
    [
        IssueMatch(exception="ValueError"),
        IssueMatch(exception="*"),
        IssueMatch(signature="s1-02"),
        IssueMatch(contains="tolerance"),
    ]
)
limits = st.sampled_from([None, None, 1, 2, 5])


@st.composite
def policy_issues(draw: st.DrawFn) -> PolicyIssue:
    return PolicyIssue(
        id=draw(st.sampled_from(["KI-1", "KI-2", "KI-3"])),
        title="known",
        match=draw(matches),
        scope=draw(issue_scopes()),
        max_failures=draw(limits),
        without_signature=draw(st.sampled_from(["refused", "allowed"])),
        owner="team",
        opened=date(2025, 12, 1),
        expires=draw(days),
    )


@st.composite
def exceptions(draw: st.DrawFn) -> GateException:
    return GateException(
        id=draw(st.sampled_from(["EXC-1", "EXC-2", "EXC-3"])),
        rule=draw(st.sampled_from(ALL_RULES)),
        reason="because",
        author=draw(st.sampled_from(PEOPLE)),
        approved_by=(draw(st.sampled_from(PEOPLE)),),
        expires=draw(days),
    )


@st.composite
def platform_rules(draw: st.DrawFn, name: str, level: str) -> PlatformRule:
    substitute = Substitute(platform=draw(st.sampled_from(PLATFORMS)), jobs=("moe",))
    unavailable = Unavailable(
        verdict=draw(st.sampled_from(["fail", "inconclusive", "exception", "advisory"])),
        exception=draw(st.sampled_from(["", "", "EXC-1"])),
        substitute=substitute if draw(seldom) else None,
    )
    return PlatformRule(
        id=name,
        level=level,  # type: ignore[arg-type]
        instance=draw(st.sampled_from(["", "", "", "g2-standard-4"])),
        consecutive_green=draw(st.sampled_from([1, 1, 1, 2])),
        when_unavailable=unavailable,
    )


@st.composite
def job_rules(draw: st.DrawFn) -> JobRule:
    return JobRule(
        id=draw(st.sampled_from(["*", "f*", *JOBS])),
        on=draw(st.one_of(st.just("all"), some_names)),
        require=draw(st.sampled_from(["all_pass", "all_pass", "pass_if_run"])),
        degraded=draw(st.sampled_from(["forbid", "inform"])),
        nothing_passed=draw(st.sampled_from(["inconclusive", "inconclusive", "accepted"])),
        test_set=draw(st.sampled_from(["same", "same", "may_differ"])),
        level=draw(st.sampled_from(["blocking", "blocking", "advisory"])),
    )


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), st.none(), strategy)


skip_rules = st.builds(
    SkipRule,
    allow_reasons=st.sampled_from([(), ("needs *",), ("*",)]),
    max=st.sampled_from([None, 0, 3]),
    on_other=st.sampled_from(["fail", "inconclusive", "advisory", "counted"]),
    on_regression=st.sampled_from(["fail", "inconclusive", "advisory"]),
)
performance_rules = st.builds(
    PerformanceRule,
    budgets=st.sampled_from(
        [
            (BenchmarkBudget(match="bench/time", max_regression="3%"),),
            (BenchmarkBudget(match="*/*", max_regression="5%"),),
        ]
    ),
    min_pairs=st.just(3),
    on_inconclusive=st.sampled_from(["inconclusive", "fail"]),
)
flaky_rules = st.builds(
    FlakyRule,
    reruns=st.just(2),
    rerun_success=st.sampled_from(["flaky", "failed"]),
    max=st.integers(0, 2),
    quarantine=st.sampled_from(["honoured", "ignored"]),
)
evidence_rules = st.builds(
    EvidenceRule,
    max_age=st.just("36h"),
    attestation=st.sampled_from(["required", "optional"]),
    reuse=st.sampled_from(["allowed", "refused"]),
    payload_level=st.sampled_from(["untrusted", "untrusted", "reviewed", "trusted"]),
    own_environment=st.sampled_from(["allowed", "refused"]),
    subject_not_loaded=st.sampled_from(["inconclusive", "accepted"]),
    undeclared_requirements=st.sampled_from([(), (), ("torch",)]),
    manifest=st.builds(
        ManifestRule,
        min_tests_vs_baseline=st.sampled_from([None, None, Decimal("1.0")]),
        removed_tests=st.sampled_from(["refused", "refused", "allowed", ("a.py::*",)]),
        on_missing=st.sampled_from(["fail", "inconclusive"]),
    ),
)
approval_rules = st.builds(
    ApprovalRule,
    on=st.sampled_from([("PASS_WITH_EXCEPTIONS",), ("PASS",), ("PASS", "PASS_WITH_EXCEPTIONS")]),
    need=st.integers(1, 2),
    not_author=st.booleans(),
)


@st.composite
def policies(draw: st.DrawFn) -> GatePolicy:
    platforms = draw(st.lists(st.sampled_from(PLATFORMS), unique=True, min_size=1))
    levels = ["blocking", *(draw(st.sampled_from(["blocking", "advisory"])) for _ in platforms)]
    spec = {
        "jobs": tuple(draw(st.lists(job_rules(), max_size=3))),
        "subject": SubjectRule(
            require=draw(st.sampled_from([(), (), ("wheel_sha256",)])),
            may_differ=draw(st.sampled_from([(), (), ("wheel_sha256",), ("payload_sha256",)])),
        ),
        "evidence": draw(evidence_rules),
        "skips": draw(maybe(skip_rules)),
        "new_failures": draw(maybe(st.builds(NewFailureRule, max=st.integers(0, 1)))),
        "flaky": draw(flaky_rules),
        "performance": draw(maybe(performance_rules)),
        "cost": draw(
            maybe(
                st.builds(
                    CostRule,
                    max_usd=st.just(Decimal(1)),
                    on_exceed=st.sampled_from(["fail", "inconclusive", "advisory"]),
                )
            )
        ),
        "known_issues": tuple(
            draw(st.lists(policy_issues(), max_size=2, unique_by=lambda one: one.id))
        ),
        "exceptions": tuple(draw(st.lists(exceptions(), max_size=2, unique_by=lambda one: one.id))),
        "approvals": draw(maybe(approval_rules)),
    }
    rules = [draw(platform_rules(n, level)) for n, level in zip(platforms, levels, strict=False)]
    return policy(*rules, **spec)
