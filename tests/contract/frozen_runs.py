"""Runs of every kind for a gate to look at, and what it is shown of them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from orchestrator.application.freeze_evidence import freeze_evidence
from orchestrator.domain.attestation import Attestation, Device
from orchestrator.domain.cell import Cause, CellState, RunSpec
from orchestrator.domain.gate.gate_documents import (
    canonical,
    policy_document,
    read_snapshot,
    snapshot_document,
)
from orchestrator.domain.gate.policy import GateMetadata, GatePolicy, GateSpec, PlatformRule
from orchestrator.domain.gate.verdict import Decision, StoredPolicy, StoredVerdict, Verdict
from orchestrator.domain.matrix import Accelerator, Baseline, expand
from orchestrator.domain.outcome import Outcome
from tests.databases import MANIFEST, NOW, Agent, a_run, advance, after, attempt, lease, matrix

METADATA = GateMetadata(name="release", product="proof", owner="me")
POLICY = GatePolicy(metadata=METADATA, spec=GateSpec(platforms=(PlatformRule(id="p0"),)))
L4 = Accelerator(vendor="nvidia", name="L4")
REAL = Attestation({"instance_id": "i-1"}, (Device("nvidia", "NVIDIA L4"),), "2.7", simulated=False)
FELL = "tests/test_a.py:3: in one\n    lib.work()\nlib/core.py:9: in work\nE   ValueError: bad 0x7f"


def launched(
    stores,
    run_id,
    *,
    provider="static",
    accelerator=L4,
    platforms=1,
    subject=None,
    built="",
    digest="e" * 64,
    contents="",
    names=(),
    payload="d" * 64,
    environments=None,
    baseline=None,
    untaken_tests=(),
):
    told = {"provider": provider, "accelerator": accelerator}
    told["environments"] = tuple(environments) if environments else None
    asked = matrix(len(names) or platforms)
    named = zip(names or [one.id for one in asked.platforms], asked.platforms, strict=True)
    asked = replace(
        asked,
        platforms=tuple(replace(one, id=name, **told) for name, one in named),
        subject=subject or asked.subject,
        baseline=Baseline(wheel="old.whl") if baseline else None,
    )
    cells = [(f"{run_id}.{plan.id}", plan) for plan in expand(asked, MANIFEST)]
    spec = RunSpec(
        asked,
        replace(MANIFEST, untaken_tests=untaken_tests),
        subject_digest=digest,
        subject_built=built,
        subject_contents=contents,
        baseline_digest=baseline,
    )
    stores.runs.create(replace(a_run(run_id), payload_digest=payload), spec, cells, key=None)
    return [cell_id for cell_id, _ in cells]


def at_work(stores, cell_id, run_id, attestation=REAL, **lease_facts):
    agent = Agent(stores, attempt(stores, cell_id))
    held = lease(f"lease-{cell_id}", agent.attempt_id, usd="1")
    stores.leases.reserve(held, run_id=run_id, exclusive=False)
    simulated = attestation is not None and attestation.simulated
    stores.leases.note(
        held.id, {"instance_type": "g2-standard-4", **lease_facts}, simulated=simulated
    )
    if attestation is not None:
        stores.leases.attest(held.id, attestation)
    advance(stores, cell_id, CellState.RUNNING)
    return agent


def done(stores, cell_id, outcome=Outcome.PASSED):
    for state in (CellState.COLLECTING, CellState.RELEASING):
        stores.cells.enter(cell_id, state, at=NOW)
    stores.evidence.settle(cell_id, [])
    stores.leases.gone(f"lease-{cell_id}", at=after(60), cost_usd=Decimal("0.25"))
    stores.cells.conclude(cell_id, Cause(outcome, ""), at=after(60))


def ran(stores, run_id, *lines, outcome=Outcome.PASSED, attestation=REAL, **how):
    """A finished run of one cell; each line is a function of the agent."""
    (cell,) = launched(stores, run_id, **how)
    agent = at_work(stores, cell, run_id, attestation)
    agent.send(agent.line("phase", "unit", name="started"), *(line(agent) for line in lines))
    agent.send(agent.line("phase", "unit", name="finished", exit_code=0, duration_s=1.0))
    done(stores, cell, outcome)
    stores.runs.finish(run_id, outcome, at=after(60))
    return run_id


def passes(name):
    return lambda agent: agent.test(name)


def fails(name, longrepr=FELL):
    return lambda agent: agent.test(name, "failed", longrepr=longrepr)


def skips(name, reason):
    said = {"record": "outcome", "nodeid": name, "outcome": "skipped", "reason": reason}
    return lambda agent: agent.line("test", "unit", **said)


def xfails(name, reason):
    said = {"record": "outcome", "nodeid": name, "outcome": "xfailed", "reason": reason}
    return lambda agent: agent.line("test", "unit", **said)


def environment(**said):
    return lambda agent: agent.line("environment", None, **said)


def frozen(context, *runs, policy=POLICY):
    snapshot = freeze_evidence(context, policy, runs)
    assert read_snapshot(snapshot_document(snapshot)) == snapshot
    return snapshot


def only_cell(context, *runs, policy=POLICY):
    (cell,) = frozen(context, *runs, policy=policy).cells
    return cell


def judging(*platforms, advisory=()):
    rules = (
        *(PlatformRule(id=name) for name in platforms),
        *(PlatformRule(id=name, level="advisory") for name in advisory),
    )
    return replace(POLICY, spec=replace(POLICY.spec, platforms=rules))


def stored(policy, digest="a" * 64):
    return StoredPolicy(
        gate="release",
        product="proof",
        digest=digest,
        text="",
        document=canonical(policy_document(policy)).decode(),
        first_seen=NOW,
        since=NOW,
    )


STORED_POLICY = stored(POLICY)


def passed(*runs, policy="a" * 64):
    verdict = Verdict(
        gate="release",
        product="proof",
        decision=Decision.PASS,
        at=NOW,
        subject={},
        policy_digest=policy,
        evidence_digest="b" * 64,
        rules=(),
    )
    return StoredVerdict(
        id="",
        gate="release",
        verdict=verdict,
        runs=runs,
        lineage="release",
        created_at=NOW,
        snapshot_digest="",
        document_digest="",
        envelope_digest="",
        key_id="",
    )


def rerun(stores, run_id, rerun_of, *lines, only=("unit",), payload="d" * 64, attestation=REAL):
    known = stores.runs.spec(rerun_of)
    (plan,) = expand(known.matrix, known.manifest)
    run = replace(a_run(run_id), rerun_of=rerun_of, payload_digest=payload)
    cell, spec = f"{run_id}.p0", replace(known, only={"p0": list(only)})
    plan = replace(plan, jobs=tuple(job for job in plan.jobs if job in only))
    stores.runs.create(run, spec, [(cell, plan)], key=None)
    agent = at_work(stores, cell, run_id, attestation)
    agent.send(agent.line("phase", "unit", name="started"), *(line(agent) for line in lines))
    agent.send(agent.line("phase", "unit", name="finished", exit_code=0, duration_s=1.0))
    done(stores, cell)
    stores.runs.finish(run_id, Outcome.PASSED, at=after(90))


def broken(agent):
    return agent.line("check", "demo", check="same", outcome="failed")
