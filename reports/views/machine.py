"""Where a cell ran, and how it went, in the words of a report."""

from __future__ import annotations

from orchestrator.domain.cell import CellState
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import CellRecord, JobRecord
from reports.model.blocks import Hardware
from reports.model.values import Absent, Status

PROVIDERS = {
    "local": ("Local", "This computer"),
    "static": ("Static", "A machine of your own"),
    "aws": ("AWS", "AWS EC2"),
    "gcp": ("GCP", "GCP Compute Engine"),
    "tpu": ("GCP", "GCP Cloud TPU"),
    "fake": ("Fake", "Simulated machine"),
}
"""Short and long name by provider."""


STATED = "stated"
"""The state of a machine that somebody only tells of."""


def short_name(cell: CellRecord) -> str:
    """``AWS``."""
    return PROVIDERS.get(cell.platform.provider, (cell.platform.provider, ""))[0]


def long_name(cell: CellRecord) -> str:
    """``AWS EC2``."""
    name = cell.platform.provider
    said = PROVIDERS.get(name, (name, name))[1]
    simulated = cell.simulated and name != "fake"
    return f"{said}, simulated" if simulated else said


def place_of(cell: CellRecord) -> str | Absent:
    """Where the last machine was; without one, why there is none."""
    held = [lease for lease in cell.leases if lease.machine_id and lease.place]
    stated = [lease for lease in cell.leases if lease.state == STATED and lease.place]
    if held or stated:
        return (held or stated)[-1].place
    if cell.ingested is not None:
        return Absent("location not given")
    tried = list(dict.fromkeys(lease.place for lease in cell.leases if lease.place))
    if tried:
        return Absent(f"no machine; tried {', '.join(tried)}")
    return Absent("no machine was asked for")


def instance_of(cell: CellRecord, hardware: Hardware) -> str | Absent:
    """The machine's type; of an own machine its address; of this computer its system."""
    platform = cell.platform
    held = [x.instance_type for x in cell.leases if x.machine_id or x.state == STATED]
    if held and held[-1]:
        return held[-1]
    if platform.accelerator_type:
        return platform.accelerator_type
    if isinstance(platform.instance_type, str):
        return platform.instance_type
    if platform.instance_type:
        return f"one of {', '.join(platform.instance_type)}"
    if platform.provider == "local" and not isinstance(hardware.os, Absent):
        return hardware.os
    address = next((lease.address for lease in reversed(cell.leases) if lease.address), "")
    return address or Absent("the platform names no instance type")


def accelerator_of(cell: CellRecord, hardware: Hardware) -> str:
    """As probed; without a probe what the platform promises, marked as that."""
    said = _accelerator(cell, hardware)
    return f"{said}, SIMULATED" if cell.simulated else said


def _accelerator(cell: CellRecord, hardware: Hardware) -> str:
    if not isinstance(hardware.accelerator, Absent):
        return hardware.accelerator
    promised = cell.platform.accelerator
    if not cell.probed and cell.attestation is not None:
        named = ", ".join(device.name or device.vendor for device in cell.attestation.devices)
        return named or "none that the machine's tools show"
    if not cell.probed and promised is not None:
        return f"{promised.name} (promised, not probed)"
    if not cell.probed and cell.platform.accelerator_type:
        return f"{cell.platform.accelerator_type} (promised, not probed)"
    return "none (CPU)" if cell.probed else "unknown (not probed)"


def heading_of(cell: CellRecord, hardware: Hardware) -> str:
    """``AWS NVIDIA A10G``, ``Local CPU``."""
    promised = cell.platform.accelerator
    named = hardware.accelerator
    if isinstance(named, Absent):
        named = "CPU" if cell.probed or promised is None else promised.name
        if not cell.probed and promised is None:
            named = cell.platform.accelerator_type or "Machine"
    return f"{short_name(cell)} {named}"


def cell_status(cell: CellRecord) -> Status:
    """Its outcome; while it is not over, its state."""
    if cell.outcome is not None and cell.state is CellState.DONE:
        return Status(cell.outcome.value, cell.reason)
    if cell.state is CellState.QUEUED:
        return Status("queued")
    return Status("running", cell.state.value)


def job_status(job: JobRecord, cell: CellRecord) -> Status:
    """A job's outcome; while it is not over, whether it runs or waits."""
    if job.outcome is not None:
        return Status(job.outcome.value, job.reason, job.degraded)
    if cell.state is CellState.DONE:
        return Status(Outcome.NOT_RUN.value, cell.reason)
    return Status("running" if job.started_at else "queued", "", job.degraded)
