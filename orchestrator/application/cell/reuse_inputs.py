"""What the evidence of an attempt depends on: told when it is prepared, kept when it is over."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import orchestrator
from orchestrator.application.cell.environment import PreparedEnvironment
from orchestrator.application.cell.flow_context import FlowDeps
from orchestrator.application.judge_jobs import judge_jobs
from orchestrator.domain.attestation import Device, devices_of
from orchestrator.domain.cell import CellState, Lease, Run, RunSpec
from orchestrator.domain.distribution import canonical_name
from orchestrator.domain.matrix import CellPlan, Subject
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.reuse_inputs import NOTHING, Prepared, ReuseInputs, platform_document
from orchestrator.store.cells import AttemptState
from orchestrator.store.errors import DamagedError, StoreError

logger = logging.getLogger(__name__)


def asked_for(run: Run, spec: RunSpec, plan: CellPlan) -> ReuseInputs:
    """What is known of a cell's ingredients before there is a machine."""
    return ReuseInputs(
        product=spec.manifest.name,
        payload=run.payload_digest,
        subject=_subject(spec.matrix.subject, spec.subject_digest),
        environment=plan.environment,
        platform=platform_document(plan.platform),
        tool=orchestrator.__version__,
        instance_type="",
        image="",
        devices="",
        driver="",
        python="",
        wheels="",
    )


def note_prepared(
    world: FlowDeps,
    now: AttemptState,
    probe: Mapping[str, object],
    environment: PreparedEnvironment,
) -> Prepared | None:
    """Keep what the attempt is prepared with; None without a machine."""
    if now.lease is None:
        return None
    devices, rented = devices_of(probe), world.traits(now.lease.provider).rented
    made = replace(
        asked_for(now.run, now.spec, now.plan),
        instance_type=_instance_type(now.lease),
        image=now.lease.image_id if rented else _machine(probe),
        devices=_named(devices),
        driver=_driver(devices),
        python=environment.interpreter.platform,
        wheels=environment.installs,
        packages=environment.packages,
        simulated=now.lease.simulated,
    )
    prepared = Prepared(made, environment.interpreter, now.lease.place)
    world.stores.reusable_results.prepare(now.attempt.id, prepared)
    return prepared


def keep_reuse_inputs(world: FlowDeps, now: AttemptState) -> None:
    """Keep the jobs that passed as proofs, unless the cell's attempts were not alike.

    Nothing here keeps a cell from being closed: without a proof a job is only run again.
    """
    try:
        proven = _proven(world, now)
        if proven:
            world.stores.reusable_results.prove(now.cell.id, proven)
    except StoreError as error:
        if not isinstance(error, DamagedError):
            raise
        logger.exception("cell %s: what it proves cannot be kept", now.cell.id)
    except Exception:
        logger.exception("cell %s: what it proves cannot be kept", now.cell.id)


def _proven(world: FlowDeps, now: AttemptState) -> dict[str, datetime]:
    """Jobs that passed here, with when."""
    made = [one.ingredients for one in world.stores.reusable_results.preparations(now.cell.id)]
    if len({one.key for one in made}) != 1 or _differs(world, now, made[0]):
        return {}
    over, at = replace(now.cell, state=CellState.DONE), world.clock.now()
    return {
        job.id: min(job.at, at)
        for job in judge_jobs(world.stores, over, now.spec)
        if job.outcome is Outcome.PASSED
        and job.at is not None
        and not (job.degraded or job.reused_from)
    }


def _differs(world: FlowDeps, now: AttemptState, made: ReuseInputs) -> bool:
    """Whether the jobs had other packages than those that were resolved for them."""
    told = (world.stores.results.environment(now.cell.id) or {}).get("packages")
    found = told if isinstance(told, Mapping) else {}
    installed = {canonical_name(str(name)): str(version) for name, version in found.items()}
    return any(
        installed.get(canonical_name(name), version) != version
        for name, version in made.packages.items()
    )


def _subject(subject: Subject, digest: str | None) -> str:
    """What is validated, so that another one is called otherwise; empty where that is unknown."""
    if subject.package:
        return subject.package
    if subject.source == "payload":
        return f"{subject.name} {subject.version}"
    return f"{subject.name} {subject.version} {digest}" if digest else ""


def _instance_type(lease: Lease) -> str:
    return lease.instance_type or NOTHING


def _machine(probe: Mapping[str, object]) -> str:
    """A machine of one's own boots no image: it is what it says it is."""
    said = [str(probe.get(key) or "") for key in ("hostname", "os", "kernel", "cpu_model")]
    return ", ".join(said) if all(said[:3]) else ""


def _named(devices: tuple[Device, ...]) -> str:
    names = sorted(f"{d.vendor} {d.name} {d.compute_capability}".rstrip() for d in devices)
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or NOTHING


def _driver(devices: tuple[Device, ...]) -> str:
    """The drivers of its devices; empty where one of them does not tell."""
    drivers = {device.driver for device in devices}
    return "" if "" in drivers else ", ".join(sorted(drivers)) or NOTHING
