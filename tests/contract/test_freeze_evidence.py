"""What a gate is shown of runs: the same on SQLite and on Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from types import SimpleNamespace

import pytest

from orchestrator.application.describe_run import RunMissingError
from orchestrator.application.freeze_evidence import evidence_digest
from orchestrator.application.gather_evidence import WrongProductError
from orchestrator.domain.attestation import Attestation
from orchestrator.domain.cell import CellState
from orchestrator.domain.gate.gate_documents import canonical, snapshot_document
from orchestrator.domain.gate.snapshot import Approval, MachineEvidence, Quarantine, Waiver
from orchestrator.domain.known_issue import IssueMatch, KnownIssue
from orchestrator.domain.matrix import GitSource, Subject
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.retests import RetestKind, RetestPlan
from orchestrator.store.errors import DamagedError
from orchestrator.store.gates import StoredWaiver
from tests.contract.frozen_runs import (
    FELL,
    L4,
    METADATA,
    POLICY,
    REAL,
    STORED_POLICY,
    at_work,
    broken,
    done,
    environment,
    fails,
    frozen,
    launched,
    only_cell,
    passed,
    passes,
    ran,
    rerun,
    skips,
)
from tests.databases import NOW, ON_SQLITE, advance, after
from tests.unit.gate.builders import judge


@pytest.fixture
def context(stores):
    return SimpleNamespace(stores=stores, clock=SimpleNamespace(now=lambda: after(3600)))


# What a cell is


def at_revision(rev):
    return Subject(name="lib", version="1.10", git=GitSource(url="x", rev=rev))


def test_a_finished_cell_is_told_with_all_that_binds_it(context, stores) -> None:
    packages = environment(python="3.11", packages={"torch": "2.7", "numpy": "2"})
    ran(stores, "run-1", packages, passes("a"), subject=at_revision("a" * 40))
    snapshot = frozen(context, "run-1")
    (cell,) = snapshot.cells
    assert (cell.run, cell.id, cell.platform, cell.environment) == ("run-1", "p0", "p0", "image")
    assert (cell.state, cell.outcome, cell.ended_at) == ("done", Outcome.PASSED, after(60))
    assert cell.instance_type == "g2-standard-4"
    assert cell.subject == {
        "git_sha": "a" * 40,
        "name": "lib",
        "payload_sha256": "d" * 64,
        "version": "1.10",
        "wheel_sha256": "e" * 64,
    }
    assert snapshot.subject == cell.subject
    assert cell.packages == {"numpy": "2", "torch": "2.7"}
    assert len(cell.fingerprint) == 64
    assert (cell.cost_usd, snapshot.cost_usd) == (Decimal("0.25"), Decimal("0.25"))
    assert cell.counts.passed == 1


@ON_SQLITE
def test_a_run_that_goes_on_says_how_far_it_is(context, stores) -> None:
    (cell,) = launched(stores, "run-1")
    agent = at_work(stores, cell, "run-1")
    agent.send(agent.manifest("a", "b"), agent.test("a"))
    told = only_cell(context, "run-1")
    assert (told.state, told.outcome, told.ended_at) == ("running", None, None)
    assert [job.outcome for job in told.jobs] == [None, None]


@ON_SQLITE
def test_two_cells_agree_on_what_both_say(context, stores) -> None:
    launched(stores, "run-1", platforms=2)
    assert frozen(context, "run-1").subject["wheel_sha256"] == "e" * 64
    launched(stores, "run-2", subject=at_revision("a" * 40))
    assert only_cell(context, "run-2").subject["git_sha"] == "a" * 40
    assert "built" not in only_cell(context, "run-2").subject
    launched(stores, "run-3", subject=at_revision("main"), built="on the controller's computer")
    assert only_cell(context, "run-3").subject["built"] == "on the controller's computer"
    assert "git_sha" not in only_cell(context, "run-3").subject, "a branch is no commit"
    both = frozen(context, "run-1", "run-2")
    assert [(cell.run, cell.id) for cell in both.cells] == [("run-2", "p0"), ("run-1", "p1")]
    assert "git_sha" not in both.subject
    assert both.subject["payload_sha256"] == "d" * 64


# Whether it is believed


@ON_SQLITE
@pytest.mark.parametrize(
    ("attestation", "attested", "wrong"),
    [
        (REAL, True, ""),
        (None, False, ""),
        (replace(REAL, simulated=True), False, ""),
        (replace(REAL, mismatch="asked for 1 x nvidia L4, found T4"), False, "found T4"),
        (replace(REAL, devices=()), False, "found no accelerator"),
    ],
    ids=["real", "untold", "simulated", "refused", "no-device"],
)
def test_only_a_real_machine_that_is_what_was_asked_for_attests(
    context, stores, attestation, attested, wrong
) -> None:
    ran(stores, "run-1", passes("a"), attestation=attestation)
    cell = only_cell(context, "run-1")
    assert cell.attested is attested
    assert wrong in cell.mismatch
    assert bool(cell.mismatch) is bool(wrong)
    assert cell.simulated is (attestation is not None and attestation.simulated)


def test_what_its_machine_is_comes_from_the_ledger_and_the_probe(context, stores) -> None:
    ran(stores, "run-1", passes("a"))
    (told,) = only_cell(context, "run-1").machines
    assert told == MachineEvidence(
        provider="fake", instance_type="g2-standard-4", devices=("nvidia NVIDIA L4",)
    )  # what the ledger says, and not the matrix
    ran(stores, "run-2", passes("a"), attestation=None)
    assert only_cell(context, "run-2").machines[0].devices is None


@ON_SQLITE
def test_this_computer_attests_what_needs_no_accelerator(context, stores) -> None:
    here = Attestation({}, (), "2.7", simulated=False)
    ran(stores, "run-1", passes("a"), provider="local", accelerator=None, attestation=here)
    assert only_cell(context, "run-1").attested
    ran(stores, "run-2", passes("a"), provider="local", accelerator=L4, attestation=here)
    cell = only_cell(context, "run-2")
    assert not cell.attested
    assert "found no accelerator" in cell.mismatch


# What failed


def test_failures_come_with_their_signature_and_whether_they_are_new(context, stores) -> None:
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED)
    stores.gates.put_policy(STORED_POLICY)
    stores.gates.add_verdict(passed("run-1"))
    other = FELL.replace("ValueError", "KeyError")
    ran(stores, "run-2", fails("a"), fails("b", other), passes("c"), outcome=Outcome.FAILED)
    snapshot = frozen(context, "run-2")
    first, second = snapshot.cells[0].jobs[0].failed
    assert snapshot.last_green == "run-1"
    assert (first.nodeid, first.exception, first.frame) == ("a", "ValueError", "lib.core.work")
    assert "0x7f" not in first.message
    assert (first.is_new, second.is_new) == (False, True)
    assert only_cell(context, "run-1").jobs[0].failed[0].is_new, "no run before it was green"


@ON_SQLITE
def test_skips_failed_checks_and_fallbacks_are_told(context, stores) -> None:
    ran(
        stores,
        "run-1",
        *(skips(name, why) for name, why in (("a", "no GPU"), ("b", "no GPU"), ("c", "slow"))),
        lambda agent: agent.line("check", "demo", check="same", outcome="failed"),
        lambda agent: agent.line("check", "demo", check="fast", outcome="passed"),
        lambda agent: agent.line("check", "demo", degraded="fell back"),
    )
    unit, demo = only_cell(context, "run-1").jobs
    assert unit.skips == {"no GPU": 2, "slow": 1}
    assert (demo.failed_checks, demo.degraded) == (("same",), "fell back")


def test_reruns_and_who_broke_it_stand_beside_a_failure(context, stores) -> None:
    (cell_id,) = launched(stores, "run-1")
    agent = at_work(stores, cell_id, "run-1")
    agent.send(fails("a")(agent), fails("b")(agent))
    advance(stores, cell_id, CellState.DIAGNOSING)
    ask = RetestPlan(kind=RetestKind.RERUN, tests={"unit": ("a", "b")}, times=2)
    retest_session = stores.retests.ask("run-1.p0-1", ask, at=NOW)
    stores.retests.begin(retest_session.id, at=NOW)
    outcomes = [{"unit::a": "failed", "unit::b": "failed"}, {"unit::a": "passed"}]
    stores.retests.end(retest_session.id, at=NOW, outcomes=outcomes)
    done(stores, cell_id, Outcome.FAILED)
    stores.runs.finish("run-1", Outcome.FAILED, at=after(60))
    cell = only_cell(context, "run-1")
    assert [test.reruns for test in cell.jobs[0].failed] == [("failed", "passed"), ("failed",)]
    answers = {one["nodeid"]: one["answer"] for one in cell.blame}
    assert answers == {"a": "flaky", "b": "unknown"}
    assert "1 of 2 times" in cell.blame[0]["evidence"]


@ON_SQLITE
def test_benchmarks_come_as_pairs(context, stores) -> None:
    def turn(arm, number, *samples):
        said = {"metric": "ms", "unit": "ms", "direction": "lower", "arm": arm, "turn": number}
        return lambda agent: agent.line("metric", "demo", **said, samples=list(samples))

    ran(stores, "run-1", turn("subject", 0, 1.5, 2.5, 2.0), turn("baseline", 1, 1.0))
    (pairs,) = only_cell(context, "run-1").pairs
    assert (pairs.job, pairs.metric, pairs.direction) == ("demo", "ms", "lower")
    assert (pairs.subject, pairs.baseline) == ((2.0,), (1.0,))


# What was before


def test_the_platforms_past_is_told(context, stores) -> None:
    for number, outcome in ((1, Outcome.FAILED), (2, Outcome.PASSED), (3, Outcome.PASSED)):
        names = [f"t{n}" for n in range(number)]
        ran(stores, f"run-{number}", *map(passes, names), outcome=outcome)
    ran(stores, "run-4", passes("a"))
    cell = only_cell(context, "run-4")
    assert (cell.green_streak, cell.baseline_collected) == (2, 3)
    assert only_cell(context, "run-1").baseline_collected is None


@ON_SQLITE
def test_a_later_runs_cell_stands_for_an_earlier_ones(context, stores) -> None:
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED)
    ran(stores, "run-2", passes("a"))
    snapshot = frozen(context, "run-2", "run-1", "run-1")
    assert snapshot.runs == ("run-1", "run-2")
    assert [cell.run for cell in snapshot.cells] == ["run-2"]
    assert snapshot.cost_usd == Decimal("0.50")


def test_a_rerun_of_some_jobs_completes_the_cell(context, stores) -> None:
    ran(stores, "run-1", fails("a"), broken, outcome=Outcome.FAILED)
    rerun(stores, "run-2", "run-1", passes("a"))
    (cell,) = frozen(context, "run-1", "run-2").cells
    unit, demo = (next(j for j in cell.jobs if j.id == name) for name in ("unit", "demo"))
    assert (unit.run, unit.failed, unit.counts.passed) == ("", (), 1)
    assert (demo.run, demo.failed_checks, demo.at) == ("run-1", ("same",), after(60))
    assert (cell.run, cell.attested, cell.cost_usd) == ("run-2", True, Decimal("0.50"))
    rerun(stores, "run-3", "run-2", passes("a"), attestation=None)
    (cell,) = frozen(context, "run-1", "run-3").cells
    assert [(job.id, job.run) for job in cell.jobs] == [("demo", "run-1"), ("unit", "")]
    assert not cell.attested


@ON_SQLITE
def test_a_rerun_of_another_run_or_payload_completes_nothing(context, stores) -> None:
    ran(stores, "run-1", broken, outcome=Outcome.FAILED)
    ran(stores, "run-2", broken, outcome=Outcome.FAILED)
    rerun(stores, "run-3", "run-2", passes("a"))
    rerun(stores, "run-4", "run-1", passes("a"), payload="c" * 64)
    for later in ("run-3", "run-4"):
        (cell,) = frozen(context, "run-1", later).cells
        assert [job.id for job in cell.jobs] == ["unit"]


def test_the_newest_finished_run_is_taken_where_none_is_named(context, stores) -> None:
    assert frozen(context).cells == ()
    ran(stores, "run-1", passes("a"))
    launched(stores, "run-2")
    assert frozen(context).runs == ("run-1",)


def test_a_missing_platform_is_told_with_the_newest_run_of_the_subject_that_has_it(
    context, stores, monkeypatch
) -> None:
    ran(stores, "run-1", passes("a"))
    ran(stores, "run-2", passes("a"))
    ran(stores, "run-3", passes("a"), subject=at_revision("a" * 40), digest=None)
    launched(stores, "run-4")
    ran(stores, "run-5", passes("a"), names=("rack",))
    told = frozen(context, "run-5")
    assert told.elsewhere == {"p0": "run-2"}, "not another subject, nor a run that goes on"
    assert evidence_digest(told) == evidence_digest(replace(told, elsewhere={}))
    spec = stores.runs.spec

    def damaged(run_id):
        if run_id == "run-2":
            raise DamagedError("runs.spec")
        return spec(run_id)

    monkeypatch.setattr(stores.runs, "spec", damaged)
    assert frozen(context, "run-5").elsewhere == {"p0": "run-1"}, "only a hint: it is left out"
    monkeypatch.undo()
    assert frozen(context, "run-2", "run-5").elsewhere == {}
    assert frozen(context, "run-3").elsewhere == {}


@ON_SQLITE
def test_runs_that_are_not_there_or_of_another_product_are_refused(context, stores) -> None:
    with pytest.raises(RunMissingError):
        frozen(context, "nope")
    launched(stores, "run-1")
    other = replace(POLICY, metadata=replace(METADATA, product="other"))
    with pytest.raises(WrongProductError, match="'proof', and the gate is of 'other'"):
        frozen(context, "run-1", policy=other)


# What people say


WAIVER = Waiver(
    id="",
    gate="release",
    rule="platform/p0",
    reason="known",
    author="ann",
    approver="bo",
    at=NOW,
    expires=NOW + timedelta(days=7),
)


@ON_SQLITE
def test_what_people_said_to_this_evidence_is_in_it_and_not_in_its_digest(context, stores) -> None:
    ran(stores, "run-1", passes("a"))
    before = frozen(context, "run-1")
    digest = evidence_digest(before)
    for evidence in ("", digest, "0" * 64):
        waiver = replace(WAIVER, evidence=evidence)
        stores.gates.add_waiver(StoredWaiver(waiver=waiver, verdict="", evidence_digest=""))
    stores.gates.add_waiver(
        StoredWaiver(waiver=replace(WAIVER, gate="o"), verdict="", evidence_digest="")
    )
    stores.gates.add_approval("release", Approval(by="bo", at=NOW, evidence=digest))
    stores.gates.add_approval("release", Approval(by="bo", at=NOW, evidence="0" * 64))
    after_ = frozen(context, "run-1")
    assert [one.evidence for one in after_.waivers] == ["", digest]
    assert [one.evidence for one in after_.approvals] == [digest]
    assert evidence_digest(after_) == digest


@pytest.mark.parametrize(("then", "is_said"), [("a", True), ("b", False)])
def test_an_issue_is_called_stale_only_where_its_test_ran(context, stores, then, is_said) -> None:
    issue = KnownIssue(
        id="",
        product="proof",
        title="known",
        match=IssueMatch(exception="ValueError"),
        owner="me",
        opened=date(2026, 1, 1),
        expires=date(2026, 12, 1),
    )
    stores.known_issues.add(issue)
    stores.known_issues.add(replace(issue, match=IssueMatch(exception="KeyError")))
    old = Subject(name="lib", version="1.9")
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED, subject=old, digest="c" * 64)
    ran(stores, "run-2", passes(then))
    snapshot = frozen(context, "run-2")
    assert snapshot.issue_tests == {"KI-0001": is_said}
    warned = [text[:7] for text in judge(POLICY, snapshot, NOW).warnings if "stale" in text]
    assert warned == (["KI-0001"] if is_said else []) + ["KI-0002"]
    assert evidence_digest(snapshot) == evidence_digest(replace(snapshot, issue_tests=None))


def test_known_issues_and_quarantines_of_the_product_are_there(context, stores) -> None:
    issue = KnownIssue(
        id="",
        product="proof",
        title="known",
        match=IssueMatch(exception="ValueError"),
        owner="me",
        opened=date(2026, 1, 1),
        expires=date(2026, 12, 1),
    )
    stores.known_issues.add(issue)
    stores.known_issues.add(replace(issue, product="other"))
    plain = Quarantine(
        id="",
        product="proof",
        nodeid="a",
        reason="flaky",
        owner="me",
        opened=NOW,
        expires=NOW + timedelta(days=3),
    )
    stores.quarantines.add(replace(plain, expires=NOW + timedelta(days=1)))
    longest = stores.quarantines.add(replace(plain, platforms=("p0",)))
    stores.quarantines.add(replace(plain, platforms=("p1",), expires=NOW + timedelta(days=9)))
    ran(stores, "run-1", fails("a"), fails("b"), outcome=Outcome.FAILED)
    snapshot = frozen(context, "run-1")
    assert [one.id for one in snapshot.known_issues] == ["KI-0001"]
    assert len(snapshot.quarantines) == 3
    assert [one.quarantine for one in snapshot.cells[0].jobs[0].failed] == [longest.id, ""]


@ON_SQLITE
def test_frozen_twice_the_bytes_are_the_same(context, stores) -> None:
    ran(stores, "run-1", environment(packages={"b": "1", "a": "2"}), fails("x"), skips("y", "z"))
    first, second = (canonical(snapshot_document(frozen(context, "run-1"))) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("baseline", "is_own"), [("e" * 64, True), ("f" * 64, False)])
def test_a_subject_that_is_its_own_baseline_is_told(context, baseline, *, is_own):
    ran(context.stores, "run-1", passes("a"), baseline=baseline)
    assert only_cell(context, "run-1").own_baseline is is_own


@pytest.mark.parametrize(
    ("version", "installed", "found"),
    [
        ("1.10", {"My_Lib": "1.9"}, "1.9"),
        ("1.10", {"my-lib": "1.10.0+dirty"}, ""),  # an editable installation of the payload
        ("1.10", {"other": "1.9"}, ""),
        ("1.10rc1", {"my-lib": "1.10"}, "1.10"),
    ],
)
def test_another_version_of_a_payload_that_is_the_subject_is_told_where_it_is_installed(
    context, version, installed, found
):
    subject = Subject(name="My.Lib", version=version)
    ran(context.stores, "run-1", environment(packages=installed), passes("a"), subject=subject)
    assert only_cell(context, "run-1").other_subject == found


def test_each_distribution_of_the_subject_s_name_is_compared_with_it(context):
    """The first on the path may be right, and a second one of another version be imported."""
    rows = [
        {"version": "1.10", "metadata": "src/lib.egg-info"},
        {"version": "1.9", "metadata": "/usr/lib/site-packages/lib-1.9.dist-info"},
    ]
    said = environment(packages={"lib": "1.10"}, subject_metadata=rows)
    ran(context.stores, "run-1", said, passes("a"), subject=Subject(name="lib", version="1.10"))
    found = "1.9 (/usr/lib/site-packages/lib-1.9.dist-info)"
    assert only_cell(context, "run-1").other_subject == found


def test_a_subject_from_a_wheel_is_installed_and_proven(context):
    subject = Subject(name="lib", version="1.10", wheel="lib.whl")
    said = environment(packages={"lib": "1.9"})
    ran(context.stores, "run-1", said, passes("a"), subject=subject)
    assert only_cell(context, "run-1").other_subject == ""
