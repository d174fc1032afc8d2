"""Who produced a cell's results, and why its machine is where it is."""

from __future__ import annotations

from orchestrator.domain.attestation import Attestation, Device
from orchestrator.domain.cell import PlacementResult
from orchestrator.domain.run_record import CellRecord
from reports.model.provenance import Attested, AttestedDevice, DecisionRow, Provenance
from reports.model.values import Absent

DECISIONS_SHOWN = 60
"""Lines of the decision log that a report has."""
SIMULATED = "SIMULATED: no gate accepts this"

_FACTS = (
    ("instance_id", "Instance id"),
    ("instance_type", "Instance type"),
    ("market", "Market"),
    ("zone", "Zone"),
    ("image_id", "Image id"),
    ("image_name", "Image"),
)
_NOT_REPORTED = Absent("its tool did not report it")


def provenance_of(cell: CellRecord) -> Provenance:
    """What is on record of the cell's machines."""
    log = () if _is_plain(cell) else cell.decisions
    shown = log[:DECISIONS_SHOWN]
    return Provenance(
        simulated=cell.simulated,
        attested=_attested(cell.attestation) if cell.attestation else _not_attested(cell),
        decisions=tuple(
            DecisionRow(d.at, d.attempt, d.place, d.verdict.value, d.reason, d.detail)
            for d in shown
        ),
        decisions_hidden=len(log) - len(shown),
    )


def _is_plain(cell: CellRecord) -> bool:
    """On a machine of one's own, which was free at once: nothing is to be explained."""
    own = cell.platform.provider in ("local", "static")
    return own and all(decision.verdict is PlacementResult.CHOSEN for decision in cell.decisions)


def _not_attested(cell: CellRecord) -> Absent:
    had = any(lease.machine_id for lease in cell.leases)
    return Absent("not reported by the machine" if had else "there was no machine")


def _attested(told: Attestation) -> Attested:
    facts = [(title, told.facts[key]) for key, title in _FACTS if told.facts.get(key)]
    return Attested(
        facts=tuple(facts),
        devices=tuple(_device(device) for device in told.devices),
        torch=told.torch or Absent("not probed yet"),
        mismatch=told.mismatch,
    )


def _device(device: Device) -> AttestedDevice:
    return AttestedDevice(
        name=device.name or device.vendor or "unnamed device",
        uuid=device.uuid or _NOT_REPORTED,
        compute_capability=device.compute_capability or _NOT_REPORTED,
        driver=device.driver or _NOT_REPORTED,
    )
