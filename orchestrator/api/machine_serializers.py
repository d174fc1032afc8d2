"""From machines, leases and plans to what is answered: pure functions."""

from __future__ import annotations

from orchestrator.api.machine_responses import (
    AccessResponse,
    AttestationResponse,
    BillResponse,
    DecisionResponse,
    DeviceResponse,
    LeaseResponse,
    MachineResponse,
    SightResponse,
)
from orchestrator.api.plan_responses import (
    HeadroomResponse,
    PlaceResponse,
    PlannedCellResponse,
    PlanResponse,
)
from orchestrator.application.janitor import Sight
from orchestrator.application.plan_run import Plan, PlannedCell
from orchestrator.application.ssh_access import Entrance
from orchestrator.domain.attestation import Attestation
from orchestrator.domain.cell import PlaceChoice
from orchestrator.domain.expected_hardware import in_words
from orchestrator.domain.machine import Place
from orchestrator.domain.money import Bill
from orchestrator.domain.quota import Headroom
from orchestrator.domain.run_record import LeaseRecord


def tell_machine(lease: LeaseRecord) -> MachineResponse:
    """The machine of a lease."""
    return MachineResponse(
        provider=lease.provider,
        place=lease.place,
        id=lease.machine_id,
        address=lease.address,
        state=lease.state,
        price_usd_per_hour=lease.price_usd_per_hour,
        seconds=lease.seconds,
        instance_type=lease.instance_type,
        market=lease.market,
        region=lease.region,
        zone=lease.zone,
        image_id=lease.image_id,
        image_name=lease.image_name,
        simulated=lease.simulated,
    )


def tell_lease(lease: LeaseRecord) -> LeaseResponse:
    """A row of the ledger."""
    return LeaseResponse(
        **dict(tell_machine(lease)),
        attempt=lease.attempt,
        cost_usd=lease.cost_usd,
        bill=tell_bill(lease.bill),
        billed_s=lease.billed_s,
        priced=lease.priced,
        refusal=lease.refusal,
    )


def tell_bill(bill: Bill) -> BillResponse:
    """The parts, and their sum."""
    return BillResponse(
        machine_usd=bill.machine_usd,
        disk_usd=bill.disk_usd,
        address_usd=bill.address_usd,
        total_usd=bill.total_usd,
    )


def tell_decision(decision: PlaceChoice) -> DecisionResponse:
    """One line of the decision log."""
    return DecisionResponse(
        at=decision.at,
        attempt=decision.attempt,
        place=decision.place,
        verdict=decision.verdict,
        reason=decision.reason,
        detail=decision.detail,
    )


def tell_attestation(attestation: Attestation) -> AttestationResponse:
    """Who produced the results."""
    return AttestationResponse(
        facts=dict(attestation.facts),
        devices=[
            DeviceResponse(
                vendor=device.vendor,
                name=device.name,
                uuid=device.uuid,
                compute_capability=device.compute_capability,
                driver=device.driver,
            )
            for device in attestation.devices
        ],
        torch=attestation.torch,
        simulated=attestation.simulated,
        mismatch=attestation.mismatch,
    )


def tell_sight(sight: Sight, *, cell: str = "") -> SightResponse:
    """What a cloud shows. Its tags say whose it is; they are the cloud's words."""
    machine, tags = sight.machine, sight.machine.tags
    return SightResponse(
        provider=sight.provider,
        id=machine.id,
        kind=machine.kind,
        state=machine.state,
        standing=sight.standing,
        run=tags.get("seatrial-run", ""),
        cell=cell or tags.get("seatrial-cell", ""),
        attempt=tags.get("seatrial-attempt", ""),
        token=machine.token,
        controller=tags.get("seatrial-controller", ""),
        expires_at=sight.expires_at,
        first_seen=sight.first_seen,
        ends_after=sight.ends_after,
        detail=machine.detail,
        facts=dict(machine.facts),
        simulated=machine.simulated,
    )


def tell_access(entrance: Entrance) -> AccessResponse:
    """How to sign in."""
    return AccessResponse(
        address=entrance.address,
        port=entrance.port,
        user=entrance.user,
        host_key=entrance.host_key,
        private_key=entrance.private_key,
        key_file=entrance.key_file,
    )


def tell_plan(plan: Plan) -> PlanResponse:
    """What a launch would do."""
    return PlanResponse(
        cells=[_planned(cell) for cell in plan.cells],
        headroom=[_headroom(room) for room in plan.headroom],
        worst_usd=plan.worst_usd,
        max_usd=plan.matrix.limits.max_usd,
        payload=plan.payload_digest,
    )


def _planned(planned: PlannedCell) -> PlannedCellResponse:
    cell = planned.cell
    return PlannedCellResponse(
        id=cell.id,
        platform=cell.platform.id,
        provider=cell.platform.provider,
        environment=cell.environment,
        expect=in_words(cell.platform.expect) if cell.platform.expect else "",
        jobs=list(cell.jobs),
        places=[_place(place) for place in planned.places],
        worst_usd=planned.worst_usd,
        note=planned.note,
    )


def _place(place: Place) -> PlaceResponse:
    return PlaceResponse(
        name=place.name,
        region=place.region,
        zone=place.zone,
        market=place.market,
        instance_type=place.instance_type,
        price_usd_per_hour=place.price_usd_per_hour,
        disk_usd_per_hour=place.disk_usd_per_hour,
        address_usd_per_hour=place.address_usd_per_hour,
        usd_per_hour=place.usd_per_hour,
        priced=place.priced,
    )


def _headroom(found: Headroom) -> HeadroomResponse:
    quota, level = found.quota, found.level
    return HeadroomResponse(
        provider=quota.provider,
        quota=quota.code,
        name=quota.name,
        scope=quota.scope,
        unit=quota.unit,
        needed=found.needed,
        limit=level.limit,
        used=level.used,
        room=found.room,
        sentence=found.sentence,
    )
