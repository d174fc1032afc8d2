"""Reuse decisions: whether a job must run, decided once per cell, with the reason.

For a free machine, the decision is made after its inspection; for a rented machine, before its
launch. Because the rented machine is not known then, each earlier result is reused only if the same
image would be booted and the same packages would be installed. If that is unknown, the job is run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

import orchestrator
from orchestrator.application.cell.environment import PreparedEnvironment, resolved_for
from orchestrator.application.cell.flow_context import FlowDeps
from orchestrator.application.cell.placing import places_of
from orchestrator.application.ports.wheels import WheelsError
from orchestrator.domain.attestation import Device, devices_of
from orchestrator.domain.cell import Run, RunSpec
from orchestrator.domain.machine import Place, Provider, ProviderError
from orchestrator.domain.manifest import Job
from orchestrator.domain.matrix import CellPlan, Subject
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.quota import BootImage, Images
from orchestrator.domain.reuse_inputs import (
    NOTHING,
    Prepared,
    Reuse,
    ReuseInputs,
    age,
    changes,
    in_words,
    platform_document,
    refusal_of,
    too_old,
)
from orchestrator.domain.run_record import JobRecord
from orchestrator.domain.versions import canonical_name
from orchestrator.store.cells import AttemptState, CellStatus
from orchestrator.store.errors import DamagedError, StoreError
from orchestrator.store.reuse import ReusableResult


def reuse_inputs_of(run: Run, spec: RunSpec, plan: CellPlan) -> ReuseInputs:
    """Return the known reuse inputs of a cell before it has a machine."""
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
        records="",
        wheels="",
    )


def note_prepared(
    deps: FlowDeps,
    now: AttemptState,
    probe: Mapping[str, object],
    environment: PreparedEnvironment,
) -> Prepared | None:
    """Store the environment of the attempt; None without a machine."""
    if now.lease is None:
        return None
    devices, rented = devices_of(probe), deps.traits(now.lease.provider).rented
    made = replace(
        reuse_inputs_of(now.run, now.spec, now.plan),
        instance_type=now.lease.instance_type or NOTHING,
        image=now.lease.image_id if rented else _machine(probe),
        devices=_named(devices),
        driver=_driver(devices),
        python=environment.interpreter.platform,
        records=environment.interpreter.records,
        wheels=environment.installs,
        packages=environment.packages,
        simulated=now.lease.simulated,
    )
    prepared = Prepared(
        made, environment.interpreter, now.lease.place, shipped_bytes=environment.wheels_bytes
    )
    deps.stores.reusable_results.prepare(now.attempt.id, prepared)
    return prepared


def keep_reuse_inputs(
    deps: FlowDeps,
    now: AttemptState,
    judge: Callable[[], Sequence[JobRecord]],
    probed: Mapping[str, object],
) -> None:
    """Store passed jobs as reusable, unless the cell's attempts had different inputs.

    No error here prevents the close of a cell: a job without a reusable result is run again.

    Args:
        deps: The ports.
        now: The cell's last attempt.
        judge: Returns the jobs of the finished cell with their outcomes.
        probed: The probed environment of the jobs.
    """
    try:
        made = [one.ingredients for one in deps.stores.reusable_results.preparations(now.cell.id)]
        if len({one.key for one in made}) != 1 or _differs(probed, made[0]):
            return
        proven = _reusable(judge(), at=deps.clock.now())
        if proven:
            deps.stores.reusable_results.prove(now.cell.id, made[-1], proven)
    except StoreError as error:
        if not isinstance(error, DamagedError):
            raise
        logger.exception("cell %s: what it proves cannot be kept", now.cell.id)
    except Exception:
        logger.exception("cell %s: what it proves cannot be kept", now.cell.id)


def _reusable(jobs: Sequence[JobRecord], *, at: datetime) -> dict[str, datetime]:
    """Return jobs that passed, with the time of their evidence."""
    return {
        job.id: min(job.at, at)
        for job in jobs
        if job.outcome is Outcome.PASSED
        and job.at is not None
        and not (job.degraded or job.reused_from)
    }


def _differs(probed: Mapping[str, object], made: ReuseInputs) -> bool:
    """Whether the jobs' packages differ from the resolved packages."""
    told = probed.get("packages")
    found = told if isinstance(told, Mapping) else {}
    installed = {canonical_name(str(name)): str(version) for name, version in found.items()}
    return any(
        installed.get(canonical_name(name), version) != version
        for name, version in made.packages.items()
    )


def _subject(subject: Subject, digest: str | None) -> str:
    """Return the identity of the subject; empty if it is unknown."""
    if subject.package:
        return subject.package
    if subject.source == "payload":
        return f"{subject.name} {subject.version}"
    return f"{subject.name} {subject.version} {digest}" if digest else ""


def _machine(probe: Mapping[str, object]) -> str:
    """Return the identity of the machine.

    An own host has no image, so its reported properties are its identity.
    """
    said = [str(probe.get(key) or "") for key in ("hostname", "os", "kernel", "cpu_model")]
    return ", ".join(said) if all(said[:3]) else ""


def _named(devices: tuple[Device, ...]) -> str:
    names = sorted(f"{d.vendor} {d.name} {d.compute_capability}".rstrip() for d in devices)
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or NOTHING


def _driver(devices: tuple[Device, ...]) -> str:
    """Return the drivers of the devices; empty if one is unknown."""
    drivers = {device.driver for device in devices}
    return "" if "" in drivers else ", ".join(sorted(drivers)) or NOTHING


logger = logging.getLogger(__name__)

LOOKED_AT = 5
"""Maximum earlier results of a job to check, newest first."""
Expect = Callable[[ReusableResult], ReuseInputs]
"""Returns the reuse inputs that a machine like the earlier one would have. Raises UnknownError."""


class UnknownError(Exception):
    """The environment of a future machine is unknown."""


def reuse_before_renting(deps: FlowDeps, now: CellStatus) -> bool:
    """Decide, before a machine is rented, which jobs reuse earlier evidence.

    Return True if no job must run. Return False, without a decision, for machines that are not
    rented or a run without reuse.
    """
    name = now.plan.platform.provider
    if now.spec.reuse_max_age_s is None or not deps.traits(name).rented:
        return False
    return _decide(deps, now, partial(_expected, deps, now, deps.provider(name)))


def reuse_on_machine(deps: FlowDeps, now: AttemptState, prepared: Prepared | None) -> bool:
    """Decide on reuse for a machine that costs nothing; return whether no job must run.

    Return False, without a decision, for a rented machine, an unprepared one, or a run without
    reuse.
    """
    rented = deps.traits(now.plan.platform.provider).rented
    if now.spec.reuse_max_age_s is None or prepared is None or rented:
        return False
    return _decide(deps, now, lambda result: prepared.ingredients)


def reused_jobs(deps: FlowDeps, now: AttemptState) -> set[str]:
    """Return jobs of the cell with reused evidence."""
    if now.spec.reuse_max_age_s is None:
        return set()
    decided = deps.stores.reusable_results.decided(now.cell.id)
    return {job for job, one in decided.items() if one.is_reused}


def _requested_inputs(now: CellStatus | AttemptState) -> ReuseInputs:
    return reuse_inputs_of(now.run, now.spec, now.plan)


def _decide(deps: FlowDeps, now: CellStatus | AttemptState, expect: Expect) -> bool:
    """Store the decision unless one is stored; return whether no job must run."""
    results, cell = deps.stores.reusable_results, now.cell.id
    if not results.decided(cell):
        jobs = [job for job in now.spec.manifest.job if job.id in now.plan.jobs]
        once = _Remembered(expect)
        reuses = [_reuse(deps, now, job, once) for job in jobs]
        results.decide(cell, reuses, at=deps.clock.now())
    decided = results.decided(cell)
    return bool(decided) and all(one.is_reused for one in decided.values())


def _reuse(deps: FlowDeps, now: CellStatus | AttemptState, job: Job, expect: Expect) -> Reuse:
    try:
        return _weighed(deps, now, job, expect)
    except StoreError:
        raise
    except Exception as error:
        logger.exception("cell %s: whether %s is proven cannot be told", now.cell.id, job.id)
        return Reuse(job=job.id, why=f"it cannot be told whether it is proven: {error}")


def _weighed(deps: FlowDeps, now: CellStatus | AttemptState, job: Job, expect: Expect) -> Reuse:
    why = refusal_of(job, paired=now.spec.matrix.baseline is not None)
    if why:
        return Reuse(job=job.id, why=why)
    found = deps.stores.reusable_results.find(_requested_inputs(now).asked, job.id, limit=LOOKED_AT)
    reasons = []
    for result in found:
        why = _why_not(deps, now, result, expect)
        if not why:
            return _reuse_of(deps, result)
        reasons.append(why)
    return Reuse(job=job.id, why=reasons[0] if reasons else _no_proof(deps, now, job))


def _reuse_of(deps: FlowDeps, result: ReusableResult) -> Reuse:
    ago = age(deps.clock.now() - result.at)
    why = f"proven by run {result.run} {ago} ago: nothing it depends on has changed"
    return Reuse(job=result.job, why=why, run=result.run, cell=result.cell, at=result.at)


def _why_not(
    deps: FlowDeps, now: CellStatus | AttemptState, result: ReusableResult, expect: Expect
) -> str:
    """Return why an earlier result cannot be reused; empty if it can."""
    max_age_s = now.spec.reuse_max_age_s or 0.0
    old = too_old(result.at, now=deps.clock.now(), max_age_s=max_age_s)
    if old:
        return old
    before = result.prepared.ingredients
    if before.unknown:
        return f"{', '.join(before.unknown)} unknown of run {result.run}"
    try:
        after = expect(result)
    except UnknownError as error:
        return str(error)
    if after.unknown:
        return f"{', '.join(after.unknown)} unknown"
    return in_words(changes(before, after)) or ("" if before.key == after.key else "it changed")


def _no_proof(deps: FlowDeps, now: CellStatus | AttemptState, job: Job) -> str:
    """Return why there is no reusable result: the changes since the newest one."""
    asked = _requested_inputs(now)
    where = (asked.platform["id"], asked.environment)
    newest = deps.stores.reusable_results.newest(asked.product, *where, job.id)
    if newest is None:
        return "it has not passed here before"
    before = newest.prepared.ingredients
    words = {name: getattr(asked, name) for name in ("payload", "subject", "platform", "tool")}
    return in_words(changes(before, replace(before, **words))) or "it has not passed here before"


class _Remembered:
    """Caches expected reuse inputs, because most jobs of a cell have the same source."""

    def __init__(self, expect: Expect) -> None:
        self._expect = expect
        self._known: dict[str, ReuseInputs | UnknownError] = {}

    def __call__(self, result: ReusableResult) -> ReuseInputs:
        """Return the present reuse inputs of the source cell. Raises UnknownError."""
        if result.cell not in self._known:
            try:
                self._known[result.cell] = self._expect(result)
            except UnknownError as error:
                self._known[result.cell] = error
        known = self._known[result.cell]
        if isinstance(known, UnknownError):
            raise known
        return known


def _expected(
    deps: FlowDeps, now: CellStatus | AttemptState, provider: Provider, result: ReusableResult
) -> ReuseInputs:
    """Return the inputs that a machine like the earlier one would have. Raises UnknownError."""
    before = result.prepared.ingredients
    place, image = _image_like(now, provider, result)
    if image.id != before.image:
        return replace(before, image=image.id)
    wheels, packages = _packages(deps, now, result)
    return replace(
        _requested_inputs(now),
        instance_type=place.instance_type or NOTHING,
        image=image.id,
        devices=before.devices,
        driver=before.driver,
        python=before.python,
        records=before.records,
        wheels=wheels,
        packages=packages,
        simulated=image.simulated,
    )


def _image_like(
    now: CellStatus | AttemptState, provider: Provider, result: ReusableResult
) -> tuple[Place, BootImage]:
    """Return a place like the earlier machine's, with the image that would boot there."""
    if not isinstance(provider, Images):
        name = now.plan.platform.provider
        raise UnknownError(f"image unknown: {name} cannot say which one it would boot")
    platform = now.plan.platform
    try:
        places = _alike(places_of(provider, platform), result)
        if not places:
            kind = result.prepared.ingredients.instance_type
            raise UnknownError(f"{result.prepared.place} no longer offers {kind}")
        asked = [(place, provider.image(platform, place)) for place in places]
    except ProviderError as error:
        raise UnknownError(f"image unknown: {error}") from error
    same = (one for one in asked if one[1].id == result.prepared.ingredients.image)
    return next(same, asked[0])


def _alike(places: tuple[Place, ...], result: ReusableResult) -> list[Place]:
    """Return the places of the result's instance type, one per region, its own place first."""
    kind, name = result.prepared.ingredients.instance_type, result.prepared.place
    fitting = [place for place in places if (place.instance_type or NOTHING) == kind]
    by_region: dict[str, Place] = {}
    for place in sorted(fitting, key=lambda place: place.name != name):
        by_region.setdefault(place.region, place)
    return list(by_region.values())


def _packages(
    deps: FlowDeps, now: CellStatus | AttemptState, result: ReusableResult
) -> tuple[str, Mapping[str, str]]:
    try:
        found = resolved_for(deps, now.spec, now.plan.environment, result.prepared.interpreter)
    except WheelsError as error:
        raise UnknownError(f"packages unknown: {error}") from error
    return found.installs, found.packages
