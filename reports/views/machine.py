"""The machine of a cell, as the agent probed it; anything may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from orchestrator.domain import accelerators
from orchestrator.domain.cell import CellState, RunState
from orchestrator.domain.charges import STATED
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import (
    CellRecord,
    JobRecord,
    RunRecord,
    ended_mark,
    flaky_mark,
    note_of_run,
)
from reports.model.blocks import Hardware, ProbedDevice
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


def short_name(cell: CellRecord) -> str:
    """Return a provider's short name: ``AWS``."""
    return _names(cell)[0]


def long_name(cell: CellRecord) -> str:
    """Return a provider's long name: ``AWS EC2``."""
    said = _names(cell)[1]
    simulated = cell.simulated and cell.platform.provider != "fake"
    return f"{said}, simulated" if simulated else said


def _names(cell: CellRecord) -> tuple[str, str]:
    """Return the short and the long name of a cell's provider, also of one that is not ours."""
    name = cell.platform.provider
    plain = name[:1].upper() + name[1:]
    return PROVIDERS.get(name, (plain, plain))


def place_of(cell: CellRecord) -> str | Absent:
    """Return the place of the last machine; without one, why it is missing."""
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
    """Return the instance type; for an own host its address, for this computer its system."""
    platform = cell.platform
    held = [x.instance_type for x in cell.leases if x.machine_id or x.state == STATED]
    if held and held[-1]:
        return held[-1]
    if platform.provider == "local" and not isinstance(hardware.os, Absent):
        return hardware.os
    if cell.ingested is not None:
        return Absent("not in the ingested files")
    if platform.accelerator_type:
        return platform.accelerator_type
    if isinstance(platform.instance_type, str):
        return platform.instance_type
    if platform.instance_type:
        return f"one of {', '.join(platform.instance_type)}"
    address = next((lease.address for lease in reversed(cell.leases) if lease.address), "")
    return address or Absent("the platform names no instance type")


def accelerator_of(cell: CellRecord, hardware: Hardware) -> str:
    """Return the probed accelerator; without a probe the promised one, marked as such."""
    said = _accelerator_title(cell, hardware)
    return f"{said}, SIMULATED" if cell.simulated else said


def _accelerator_title(cell: CellRecord, hardware: Hardware) -> str:
    if not isinstance(hardware.accelerator, Absent):
        return hardware.accelerator
    promised, is_probed = cell.platform.accelerator, _is_probed(cell)
    if not is_probed and cell.attestation is not None:
        named = ", ".join(device.name or device.vendor for device in cell.attestation.devices)
        return named or "none that the machine's tools show"
    if not is_probed and promised is not None:
        return f"{promised.name} (promised, not probed)"
    if not is_probed and cell.platform.accelerator_type:
        return f"{cell.platform.accelerator_type} (promised, not probed)"
    return "none (CPU)" if is_probed else "unknown (not probed)"


def _is_probed(cell: CellRecord) -> bool:
    """Whether the machine was asked for its devices; ingested files may tell of Python alone."""
    return bool(cell.probed) and (cell.ingested is None or "machine" in cell.probed)


def heading_of(cell: CellRecord, hardware: Hardware) -> str:
    """``AWS NVIDIA A10G``, ``Local CPU``."""
    promised, is_probed = cell.platform.accelerator, _is_probed(cell)
    named = hardware.accelerator
    if isinstance(named, Absent):
        named = "CPU" if is_probed or promised is None else promised.name
        if not is_probed and promised is None:
            named = cell.platform.accelerator_type or "Machine"
    return f"{short_name(cell)} {named}"


def run_status(record: RunRecord) -> Status:
    """Return the run's outcome; its state while it is unfinished."""
    run = record.run
    if run.state is RunState.FINISHED and run.outcome is not None:
        note = note_of_run(run, record.counts)
        ended_by = "" if note == record.counts.nothing_passed else note
        ended = _ended(run.outcome, record.counts)
        return replace(ended, ended_by=ended_by, flaky=flaky_mark(record))
    return Status("running")


def _ended(
    outcome: Outcome, counts: Counts, reason: str = "", degraded: str | None = None
) -> Status:
    return Status(outcome.value, reason, degraded, nothing_passed=counts.nothing_passed)


def cell_status(cell: CellRecord) -> Status:
    """Return the cell's outcome; before its end, its state."""
    if cell.outcome is not None and cell.state is CellState.DONE:
        ended = _ended(cell.outcome, cell.counts, cell.reason)
        return replace(ended, ended_by=ended_mark(cell), flaky=flaky_mark(cell))
    if cell.state is CellState.QUEUED:
        return Status("queued")
    return Status("running", cell.state.value)


def job_status(job: JobRecord, cell: CellRecord) -> Status:
    """Return a job's outcome; while it is unfinished, whether it runs or waits."""
    if job.outcome is not None:
        ended = _ended(job.outcome, job.counts, job.reason, job.degraded)
        return replace(ended, ended_by=ended_mark(job), flaky=flaky_mark(job))
    if cell.state is CellState.DONE:
        return Status(Outcome.NOT_RUN.value, cell.reason)
    return Status("running" if job.started_at else "queued", "", job.degraded)


NOT_PROBED = Absent("the machine was never probed")
NOT_REPORTED = Absent("not reported by the probe")
NO_RUNTIME = Absent("this torch has none")
NO_FILE_SAYS = Absent("not in the ingested files")
_UNSAID = (NOT_PROBED, NOT_REPORTED, NO_RUNTIME)


IMPORTANT = (
    "torch", "torchvision", "torch-xla", "triton", "pytorch-triton-rocm", "numpy", "safetensors",
    "transformer-engine", "flash-attn", "transformers", "onnx", "onnxruntime", "pytest",
)  # fmt: skip
"""Packages that results depend on most, in the order in which they are shown."""


def hardware_of(cell: CellRecord, *, subject: str) -> Hardware:
    """Return the probed facts of a cell's machine, or why there are none."""
    probed = cell.probed
    machine = _mapping(probed.get("machine"))
    devices = _devices(probed)
    evidence, why = _evidence(cell, devices)
    runtime_name, runtime = _runtime(probed)
    packages = _mapping(probed.get("packages"))
    made = Hardware(
        devices=devices,
        accelerator=_accelerator(probed, devices),
        is_accelerator_evidence=evidence,
        why=why,
        cpu=_text(machine, "cpu_model", probed),
        cpus=_whole(machine, "cpus", probed),
        memory_bytes=_whole(machine, "memory_bytes", probed),
        disk_free_bytes=_whole(machine, "disk_free_bytes", probed),
        os=_text(machine, "os", probed),
        kernel=_text(machine, "kernel", probed),
        python=_text(probed, "python", probed),
        torch=_text(probed, "torch", probed),
        runtime_name=runtime_name,
        runtime=runtime,
        separated_user=_separated(probed),
        packages=_important(packages, subject),
        package_count=len(packages) if packages else _missing(probed),
    )
    return made if cell.ingested is None else _as_read(made)


def _as_read(made: Hardware) -> Hardware:
    """Return the hardware with the missing facts marked as absent from the files."""
    devices = tuple(replace(device, **_unsaid(device)) for device in made.devices)
    return replace(made, **(_unsaid(made) | {"devices": devices}))


def _unsaid(part: Hardware | ProbedDevice) -> dict[str, Any]:
    found = {field.name: getattr(part, field.name) for field in fields(part)}
    return {n: NO_FILE_SAYS for n, said in found.items() if said in _UNSAID}


def _missing(probed: Mapping[str, object]) -> Absent:
    return NOT_REPORTED if probed else NOT_PROBED


def _mapping(value: object) -> Mapping[str, object]:
    return {str(k): v for k, v in value.items()} if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Mapping[str, object]]:
    return [_mapping(item) for item in value] if isinstance(value, list | tuple) else []


def _text(source: Mapping[str, object], key: str, probed: Mapping[str, object]) -> str | Absent:
    value = source.get(key)
    return str(value) if value not in (None, "") else _missing(probed)


def _whole(source: Mapping[str, object], key: str, probed: Mapping[str, object]) -> int | Absent:
    value = source.get(key)
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63
    return value if good and isinstance(value, int) else _missing(probed)


def _devices(probed: Mapping[str, object]) -> tuple[ProbedDevice, ...]:
    """Return the devices that torch sees, else those of the machine's own tools."""
    listed = _mappings(_mapping(probed.get("machine")).get("devices"))
    seen = _mappings(probed.get("torch_devices"))
    drivers = {str(device.get("uuid")): device.get("driver") for device in listed}
    only = {device.get("driver") for device in listed}
    shared = only.pop() if len(only) == 1 else None
    made = []
    for device in seen or listed:
        driver = device.get("driver") or drivers.get(str(device.get("uuid"))) or shared
        made.append(_device({**device, "driver": driver}, probed))
    return tuple(made)


def _device(raw: Mapping[str, object], probed: Mapping[str, object]) -> ProbedDevice:
    name = _text(raw, "name", probed)
    capability = _text(raw, "compute_capability", probed)
    return ProbedDevice(
        name="unnamed device" if isinstance(name, Absent) else name,
        uuid=_text(raw, "uuid", probed),
        memory_bytes=_whole(raw, "memory_bytes", probed),
        compute_capability=capability,
        architecture=architecture(capability),
        driver=_text(raw, "driver", probed),
    )


def architecture(capability: str | Absent) -> str | Absent:
    """Return the architecture of a compute capability."""
    if isinstance(capability, Absent):
        return capability
    return accelerators.architecture(capability) or Absent("unknown architecture")


def accelerator_words(devices: tuple[ProbedDevice, ...]) -> str:
    """``NVIDIA L4``, ``8 × NVIDIA H100``; different ones are all named."""
    names = [device.name for device in devices]
    counted = {name: names.count(name) for name in names}
    return ", ".join(name if n == 1 else f"{n} × {name}" for name, n in counted.items())


def _accelerator(probed: Mapping[str, object], devices: tuple[ProbedDevice, ...]) -> str | Absent:
    if not probed:
        return NOT_PROBED
    return accelerator_words(devices) or Absent("none was found on the machine")


def _evidence(cell: CellRecord, devices: tuple[ProbedDevice, ...]) -> tuple[bool, str]:
    probed = cell.probed
    if cell.ingested is not None:
        return _stated(devices)
    if not probed:
        return False, "not accelerator evidence: no machine was probed"
    if cell.simulated:
        return False, "not accelerator evidence: the machine is simulated"
    if not devices:
        return False, "not accelerator evidence: ran on the CPU"
    if not _mappings(probed.get("torch_devices")) and probed.get("xla") is None:
        return False, "not accelerator evidence: the device is there, but torch does not see it"
    return True, "accelerator evidence: probed on the machine"


def _stated(devices: tuple[ProbedDevice, ...]) -> tuple[bool, str]:
    """Return whether a machine that only files describe is accelerator evidence, and why."""
    if not devices:
        return False, "not accelerator evidence: no ingested file names an accelerator"
    return True, "accelerator evidence by what ingested files say; not attested"


def _runtime(probed: Mapping[str, object]) -> tuple[str, str | Absent]:
    for key, name in (("cuda", "CUDA"), ("hip", "ROCm"), ("xla", "XLA")):
        if probed.get(key):
            return name, str(probed[key])
    return "CUDA", NO_RUNTIME if probed.get("torch") else _missing(probed)


def _separated(probed: Mapping[str, object]) -> str | Absent:
    said = probed.get("separated_user")
    if not isinstance(said, bool):
        return _missing(probed)
    reason = str(probed.get("separated_user_reason") or "")
    return f"{'yes' if said else 'no'}{f': {reason}' if reason else ''}"


def _important(packages: Mapping[str, object], subject: str) -> tuple[tuple[str, str], ...]:
    by_name = {_normal(name): str(version) for name, version in packages.items()}
    wanted = dict.fromkeys([_normal(subject), *IMPORTANT])
    return tuple((name, by_name[name]) for name in wanted if name in by_name)


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
