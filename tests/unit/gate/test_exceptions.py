"""What people decide: exceptions, waivers and approvals."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.domain.cell import Cause
from orchestrator.domain.gate.policy import (
    ApprovalRule,
    CostRule,
    GateException,
    GatePolicy,
    PlatformRule,
    Substitute,
    Unavailable,
)
from orchestrator.domain.gate.snapshot import Approval, Quarantine, Snapshot, Waiver
from orchestrator.domain.gate.verdict import Decision, RuleOutcome
from orchestrator.domain.known_issue import IssueMatch, KnownIssue
from orchestrator.domain.outcome import Counts, Outcome
from tests.unit.gate.builders import (
    NOW,
    cell,
    evidence_digest,
    failed,
    job,
    judge,
    policy,
    result,
    snapshot,
    unavailable,
)

PASS, WITH = Decision.PASS, Decision.PASS_WITH_EXCEPTIONS
FAIL, OPEN = Decision.FAIL, Decision.INCONCLUSIVE


def exception(rule: str, **more: object) -> GateException:
    told: dict[str, object] = {
        "reason": "nobody sells it",
        "author": "carol",
        "approved_by": ("alice",),
        "expires": date(2026, 3, 31),
        "id": "EXC-1",
        "failing": {"mi300x: not_offered": 1} if rule == "platform/mi300x" else {"t.py::a": 1},
    }
    return GateException(rule=rule, **{**told, **more})  # type: ignore[arg-type]


def waiver(rule: str, **more: object) -> Waiver:
    told: dict[str, object] = {
        "gate": "release", "reason": "tonight", "author": "ann", "approver": "bob",
        "at": NOW - timedelta(days=1), "expires": NOW + timedelta(days=1),
        "author_token": "t-1", "approver_token": "t-2", "approved_at": NOW - timedelta(hours=2),
        "failing": {"t.py::a": 1},
    }  # fmt: skip
    return Waiver(rule=rule, **{"id": "W-0001", **told, **more})  # type: ignore[arg-type]


AGO = {days: NOW - timedelta(days=days) for days in (2, 90, 91)}
FAR = NOW.replace(year=2999)
LASTS = "the policy lets exceptions last 90 days (`exception_max_age`)"
TYPED = "its author and its approver were typed, and no token stands behind the names"


def test_an_exception_for_it():
    rule = PlatformRule(id="mi300x", when_unavailable=Unavailable(verdict="exception"))
    evidence = snapshot(cell(), unavailable("mi300x"))
    given = exception("platform/mi300x")
    verdict = judge(policy("gcp-l4", rule, exceptions=(given,)), evidence)
    assert verdict.decision is WITH
    found = result(verdict, "platform/mi300x")
    assert (found.outcome, found.by) == (RuleOutcome.WAIVED, ("EXC-1",))
    assert "Waived by EXC-1 until 2026-03-31: nobody sells it (approved by alice)." in (
        found.sentence
    )
    late = judge(policy("gcp-l4", rule, exceptions=(replace(given, expires=NOW.date()),)), evidence)
    assert late.decision is WITH
    over = replace(given, expires=date(2026, 1, 8))
    verdict = judge(policy("gcp-l4", rule, exceptions=(over,)), evidence)
    assert verdict.decision is FAIL
    assert verdict.warnings == ("EXC-1 does not count: it expired 12 days ago.",)
    named = Unavailable(verdict="exception", exception="EXC-9")
    other = policy("gcp-l4", replace(rule, when_unavailable=named), exceptions=(given,))
    assert judge(other, evidence).decision is FAIL


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"t.py::a": 1, "t.py::b": 1, "t.py::gone": 1}, ""),
        ({"t.py::a": 1}, " EXC-1 does not excuse t.py::b, which it does not name."),
        ({}, ""),
    ],
)
def test_an_exception_excuses_what_it_names(named: dict[str, int], said: str):
    """One that names nothing would excuse failures that nobody had seen when it was written."""
    evidence = snapshot(cell("gcp-l4", job("x", failed(), failed("t.py::b"))))
    given = exception("job/x@gcp-l4", failing=named)
    verdict = judge(policy(exceptions=(given,)), evidence)
    assert verdict.decision is (WITH if "t.py::b" in named else FAIL)
    assert result(verdict, "job/x@gcp-l4").sentence.endswith(said)
    remedy = 'to excuse what is bad now, write `failing: {"t.py::a": 1, "t.py::b": 1}` into it'
    told = () if named else (f"EXC-1 does not count: it does not say what it excuses; {remedy}.",)
    assert verdict.warnings == told
    assert judge(policy(exceptions=(given,)), evidence, rules_version=2).decision is WITH


def test_no_exception_is_for_what_nobody_tried():
    given = exception("platform/mi300x")
    rules = policy("gcp-l4", "mi300x", exceptions=(given,))
    verdict = judge(rules, snapshot(cell()))
    assert verdict.decision is OPEN
    assert verdict.warnings == ("EXC-1 does not count: nothing can waive platform/mi300x.",)


def test_an_exception_that_is_not_needed():
    rules = policy(exceptions=(exception("job/moe@gcp-l4"),))
    verdict = judge(rules, snapshot(cell()))
    assert verdict.decision is PASS
    assert verdict.warnings == ("EXC-1 is not needed: job/moe@gcp-l4 is ok.",)


def test_a_substitute_must_pass_too():
    told = Unavailable(verdict="exception", substitute=Substitute(platform="rocm", jobs=("amd",)))
    rule = PlatformRule(id="mi300x", when_unavailable=told)
    rules = policy("gcp-l4", rule, exceptions=(exception("platform/mi300x"),))
    base = (cell(), unavailable("mi300x"))
    assert judge(rules, snapshot(*base)).decision is OPEN
    assert judge(rules, snapshot(*base, cell("rocm", job("amd")))).decision is WITH
    assert judge(rules, snapshot(*base, cell("rocm", job("amd", failed())))).decision is FAIL
    fake = cell("rocm", job("amd"), simulated=True)
    assert judge(rules, snapshot(*base, fake)).decision is OPEN


def failing(*given: Waiver):
    return snapshot(cell("gcp-l4", job(), job("x", failed())), waivers=given)


def test_a_waiver():
    verdict = judge(policy(), failing(waiver("job/x@gcp-l4")))
    assert verdict.decision is WITH
    assert result(verdict, "job/x@gcp-l4").by == ("W-0001",)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"approver": "Ann "}, "its author cannot approve it"),
        ({"approver": "a\N{ZERO WIDTH SPACE}NN"}, "its author cannot approve it"),
        ({"approver": "\N{FULLWIDTH LATIN SMALL LETTER A}nn"}, "its author cannot approve it"),
        ({"approver": "", "approver_token": "", "approved_at": None}, "nobody has approved it"),
        ({"approver_token": "", "approved_at": None}, TYPED),
        ({"author_token": ""}, TYPED),
        ({"approved_at": NOW + timedelta(hours=1)}, "it was approved later"),
        ({"at": AGO[91], "expires": FAR}, f"it is 91 days old, and {LASTS}"),
        ({"expires": NOW}, "it expired 0 days ago"),
        ({"at": NOW + timedelta(hours=1)}, "it was given later"),
        ({"evidence": "another"}, "it was given for other evidence"),
        ({"failing": {}}, "it does not say what it is for: ask for another one"),
    ],
)
def test_a_waiver_that_does_not_count(more: dict[str, object], told: str):
    verdict = judge(policy(), failing(waiver("job/x@gcp-l4", **more)))
    assert verdict.decision is FAIL
    assert verdict.warnings == (f"W-0001 does not count: {told}.",)


NEW = "W-0001 does not excuse {}, which is new since it was asked for."


@pytest.mark.parametrize(
    ("failing", "new"),
    [
        ((failed(),), ""),
        ((failed(), failed("t.py::b")), "t.py::b"),
        ((failed("t.py::b"), failed("t.py::c")), "t.py::b, t.py::c"),
    ],
)
def test_a_waiver_excuses_what_failed_when_it_was_asked_for(failing, new: str):
    given = waiver("job/x@gcp-l4")
    verdict = judge(policy(), snapshot(cell("gcp-l4", job("x", *failing)), waivers=(given,)))
    found = result(verdict, "job/x@gcp-l4")
    assert (verdict.decision, found.by) == ((FAIL, ()) if new else (WITH, ("W-0001",)))
    assert found.failing == {one.nodeid: 1 for one in failing}
    assert (NEW.format(new) in found.sentence) is bool(new)


@pytest.mark.parametrize(
    ("then", "now", "new"),
    [
        ("12.30", "12.90", ""),
        ("12.30", "11.00", ""),
        ("12.30", "13.01", "USD (14)"),
    ],
)
def test_a_waiver_of_the_cost_ends_with_the_next_whole_dollar(then: str, now: str, new: str):
    rules = policy(cost=CostRule(max_usd=Decimal(9), on_exceed="fail"))
    failing = result(judge(rules, snapshot(cell(), cost_usd=Decimal(then))), "cost").failing
    given = waiver("cost", failing=failing)
    verdict = judge(rules, snapshot(cell(), cost_usd=Decimal(now), waivers=(given,)))
    assert verdict.decision is (FAIL if new else WITH)
    assert (NEW.format(new) in result(verdict, "cost").sentence) is bool(new)


def test_a_waiver_of_a_failing_test_excuses_no_crash_of_its_job():
    ending = Cause(Outcome.FAILED, "crashed", "pytest died of signal 11")
    died = job("x", failed(), ending=ending)
    verdict = judge(policy(), snapshot(cell("gcp-l4", died), waivers=(waiver("job/x@gcp-l4"),)))
    assert verdict.decision is FAIL
    assert NEW.format("(failed) crashed: pytest died of signal 11") in (
        result(verdict, "job/x@gcp-l4").sentence
    )


def test_what_is_not_among_the_first_two_hundred_is_bound_by_its_digest():
    tests = [failed(f"t.py::n{number:03}") for number in range(202)]
    evidence = snapshot(cell("gcp-l4", job("x", *tests)))
    failing = result(judge(policy(), evidence), "job/x@gcp-l4").failing
    assert len(failing) == 201
    assert sum(failing.values()) == 202
    given = waiver("job/x@gcp-l4", failing=failing)
    assert judge(policy(), replace(evidence, waivers=(given,))).decision is WITH
    other = snapshot(cell("gcp-l4", job("x", *tests[:-1], failed("t.py::z"))), waivers=(given,))
    assert judge(policy(), other).decision is FAIL


def excused(kind: str, opened: datetime) -> Snapshot:
    """A failure with something that excuses it until 2999, opened then."""
    issue = KnownIssue(
        id="X-1", product="torchbridge", title="known", match=IssueMatch(exception="*"),
        owner="team", opened=opened.date(), expires=FAR.date(),
    )  # fmt: skip
    flaky = Quarantine(
        id="X-1", product="torchbridge", nodeid="t.py::a", reason="flaky", owner="team",
        opened=opened, expires=FAR,
    )  # fmt: skip
    given = waiver("job/x@gcp-l4", id="X-1", at=opened, approved_at=opened, expires=FAR)
    evidence = snapshot(cell("gcp-l4", job("x", failed(quarantine="X-1"))))
    return {
        "known issue": replace(evidence, known_issues=(issue,)),
        "quarantine": replace(evidence, quarantines=(flaky,)),
        "waiver": replace(evidence, waivers=(given,)),
    }[kind]


def lasting(longest: str, *given: GateException) -> GatePolicy:
    rules = policy(exceptions=given)
    return replace(rules, spec=replace(rules.spec, exception_max_age=longest))


@pytest.mark.parametrize("kind", ["waiver", "known issue", "quarantine"])
@pytest.mark.parametrize(
    ("opened", "longest", "fault"),
    [
        (AGO[90], "90d", ""),
        (AGO[91], "90d", f"it is 91 days old, and {LASTS}"),
        (AGO[91], "91d", ""),
        (AGO[2], "1d", "it is 2 days old, and the policy lets exceptions last 1 day"),
        (NOW + timedelta(days=1), "90d", "later"),
    ],
)
def test_nothing_excuses_for_longer_than_the_policy_lets_it(
    kind: str, opened: datetime, longest: str, fault: str
):
    verdict = judge(lasting(longest), excused(kind, opened))
    assert verdict.decision is (FAIL if fault else WITH)
    said = " ".join(verdict.warnings)
    assert ("X-1" in said, "does not count: it " in said) == (bool(fault), bool(fault))
    assert fault in said


@pytest.mark.parametrize(
    ("days", "longest", "fault"),
    [(90, "90d", ""), (91, "90d", f"it ends in 91 days, and {LASTS}"), (91, "13w", "")],
)
def test_an_exception_of_the_policy_ends_soon(days: int, longest: str, fault: str):
    given = exception("job/x@gcp-l4", expires=NOW.date() + timedelta(days=days))
    verdict = judge(lasting(longest, given), snapshot(cell("gcp-l4", job("x", failed()))))
    assert verdict.decision is (FAIL if fault else WITH)
    assert verdict.warnings == ((f"EXC-1 does not count: {fault}.",) if fault else ())


def test_the_first_rules_let_exceptions_last():
    given = exception("job/x@gcp-l4", expires=FAR.date())
    evidence = snapshot(cell("gcp-l4", job("x", failed())))
    assert judge(policy(exceptions=(given,)), evidence, rules_version=1).decision is WITH
    for kind in ("known issue", "quarantine"):
        old = excused(kind, AGO[91])
        assert judge(policy(), old, rules_version=1).decision is WITH


def test_a_waiver_of_another_gate():
    assert judge(policy(), failing(waiver("job/x@gcp-l4", gate="other"))).decision is FAIL


@pytest.mark.parametrize("rule", ["freshness/gcp-l4", "attestation/gcp-l4", "evidence"])
def test_nothing_waives_evidence_that_is_not_believed(rule: str):
    uncertain = cell(simulated=True, ended_at=NOW - timedelta(days=9))
    verdict = judge(
        policy(exceptions=(exception(rule),)), snapshot(uncertain, waivers=(waiver(rule),))
    )
    assert verdict.decision is OPEN


def test_approvals():
    rules = policy(approvals=ApprovalRule(need=1))
    evidence = failing(waiver("job/x@gcp-l4"))
    digest = evidence_digest(evidence)
    verdict = judge(rules, evidence)
    assert verdict.decision is OPEN
    assert "nobody has approved" in result(verdict, "approval").sentence

    def approved(by: str, of: str = digest, token: str = "t-3") -> Decision:
        yes = Approval(by=by, at=NOW, evidence=of, token=token)
        return judge(rules, replace(evidence, approvals=(yes,))).decision

    assert approved("bob") is WITH
    assert approved("Ann") is OPEN  # she asked for the waiver
    assert approved("\N{FULLWIDTH LATIN CAPITAL LETTER A}n\N{WORD JOINER}n") is OPEN
    assert approved("bob", token="") is OPEN  # a typed name
    assert approved("bob", of="another") is OPEN
    assert judge(rules, snapshot(cell())).decision is PASS


@pytest.mark.parametrize(
    ("author", "by", "told"),
    [
        ("ann", "", "needs 1 approval by somebody who did not ask for what it excuses; nobody has"),
        ("ann", "ann", ("; ann approved, and an author's own or a typed approval does not count;"
         " nobody else has approved it. `seatrial gate approve release` by another person gives"
         " one; a maintainer who works alone says `approvals: {on: []}` in the policy.")),
        ("ann", "bob", "; bob approved this evidence."),
        ("", "", "needs 1 approval; nobody has approved this evidence yet. `seatrial gate approve"),
    ],
)  # fmt: skip
def test_an_approval_says_whose_does_not_count(author: str, by: str, told: str):
    given = (waiver("job/x@gcp-l4", author=author),) if author else ()
    rules = policy(approvals=ApprovalRule(on=("PASS",)))
    evidence = failing(*given) if given else snapshot(cell())
    yes = Approval(by=by, at=NOW, evidence=evidence_digest(evidence), token="t-3")
    evidence = replace(evidence, approvals=(yes,) if by else ())
    assert told in result(judge(rules, evidence), "approval").sentence


@pytest.mark.parametrize("kind", ["known issue", "quarantine"])
def test_who_excused_a_failure_does_not_approve_it(kind: str):
    issue = KnownIssue(
        id="KI-0001", product="torchbridge", title="known", match=IssueMatch(exception="*"),
        owner="team", opened=NOW.date(), expires=NOW.date(), author="ann", author_token="t-1",
    )  # fmt: skip
    flaky = Quarantine(
        id="Q-0001", product="torchbridge", nodeid="t.py::a", reason="flaky", owner="team",
        opened=NOW, expires=NOW + timedelta(days=1), author="ann", author_token="t-1",
    )  # fmt: skip
    held = failed(quarantine="" if kind == "known issue" else "Q-0001")
    excused = {"known_issues": (issue,)} if kind == "known issue" else {"quarantines": (flaky,)}
    evidence = snapshot(cell("gcp-l4", job("x", held)), **excused)

    def approved(by: str) -> Decision:
        yes = Approval(by=by, at=NOW, evidence=evidence_digest(evidence), token="t-9")
        rules = policy(approvals=ApprovalRule())
        return judge(rules, replace(evidence, approvals=(yes,))).decision

    assert (approved("bob"), approved("ANN")) == (WITH, OPEN)


@pytest.mark.parametrize("name", ["Carol\N{ZERO WIDTH SPACE}", "\N{CYRILLIC SMALL LETTER ES}arol"])
def test_a_look_alike_does_not_approve_an_exception(name: str):
    rule = PlatformRule(id="mi300x", when_unavailable=Unavailable(verdict="exception"))
    given = exception("platform/mi300x", approved_by=(name,))
    verdict = judge(
        policy("gcp-l4", rule, exceptions=(given,)), snapshot(cell(), unavailable("mi300x"))
    )
    assert verdict.decision is FAIL
    assert verdict.warnings == ("EXC-1 does not count: nobody but its author approved it.",)


def test_an_approval_for_a_pass_is_needed_for_exceptions_too():
    rules = policy(approvals=ApprovalRule(on=("PASS",)))
    assert judge(rules, snapshot(cell())).decision is OPEN
    assert judge(rules, failing(waiver("job/x@gcp-l4"))).decision is OPEN


def test_an_author_does_not_approve_after_their_exception_is_over():
    over = exception("job/x@gcp-l4", author="cyd", expires=date(2026, 1, 8))
    rules = policy(exceptions=(over,), approvals=ApprovalRule())
    evidence = failing(waiver("job/x@gcp-l4"))
    yes = Approval(by="cyd", at=NOW, evidence=evidence_digest(evidence), token="t-3")
    assert judge(rules, replace(evidence, approvals=(yes,))).decision is OPEN


def test_a_waiver_for_missing_tests_makes_no_pass_of_them():
    short = job("moe", counts=Counts(passed=5, missing=2), outcome=Outcome.FAILED, reason="missing")
    evidence = snapshot(
        cell("gcp-l4", short), waivers=(waiver("missing/gcp-l4", failing={"moe": 2}),)
    )
    assert judge(policy(), evidence).decision is OPEN
