"""What the lab's machines say about accelerators that they do not have."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

DRIVER = "580.95.05"
_SPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a model of NVIDIA's answers."""

    name: str
    memory_mib: int
    capability: str
    sm_mhz: int
    memory_mhz: int
    power_w: int
    pci: str


GPUS = {
    "A10G": Gpu("NVIDIA A10G", 23028, "8.6", 1710, 6251, 300, "0x2237"),
    "L4": Gpu("NVIDIA L4", 23034, "8.9", 2040, 6251, 72, "0x27b8"),
    "T4": Gpu("Tesla T4", 15360, "7.5", 1590, 5001, 70, "0x1eb8"),
    "H100": Gpu("NVIDIA H100 80GB HBM3", 81559, "9.0", 1980, 2619, 700, "0x2330"),
}
TPUS = {"v5litepod-1": "0x0063", "v6e-1": "0x006f"}


def on_pci(device: str) -> str:
    """The function on the PCI bus as vendor:device:class:node, or nothing."""
    if device and device not in GPUS and device not in TPUS:
        raise ValueError(f"the lab plays no {device}; it plays {', '.join((*GPUS, *TPUS))}")
    if device in GPUS:
        return f"0x10de:{GPUS[device].pci}:0x030200:"
    return f"0x1ae0:{TPUS[device]}:0x120000:accel0" if device in TPUS else ""


def answers(device: str, machine_id: str, *, broken: bool = False, late_s: float = 0) -> str:
    """The file that the machine's nvidia-smi reads its answers from; `late_s` is after a boot."""
    gpu = GPUS[device]
    values = {
        "index": "0", "count": "1", "name": gpu.name, "gpu_name": gpu.name,
        "uuid": f"GPU-{uuid.uuid5(_SPACE, machine_id)}", "gpu_uuid": "", "serial": "[N/A]",
        "driver_version": DRIVER, "memory.total": str(gpu.memory_mib), "memory.used": "0",
        "memory.free": str(gpu.memory_mib), "compute_cap": gpu.capability,
        "clocks.max.sm": str(gpu.sm_mhz), "clocks.max.memory": str(gpu.memory_mhz),
        "clocks.sm": str(gpu.sm_mhz), "clocks.mem": str(gpu.memory_mhz),
        "power.draw": "12.00", "power.limit": f"{gpu.power_w}.00", "temperature.gpu": "30",
        "utilization.gpu": "0", "utilization.memory": "0", "pci.bus_id": "00000000:00:1E.0",
        "persistence_mode": "Enabled", "mig.mode.current": "[N/A]", "pstate": "P0",
        "ecc.mode.current": "Enabled", "ecc.errors.uncorrected.volatile.total": "0",
        "clocks_throttle_reasons.active": "0x0000000000000000",
        "clocks_event_reasons.active": "0x0000000000000000",
    }  # fmt: skip
    values["gpu_uuid"] = values["uuid"]
    return json.dumps({"broken": broken, "late_s": late_s, "values": values})
