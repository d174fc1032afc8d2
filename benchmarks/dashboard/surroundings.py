"""A machine's facts; its software changes with `revision`."""

from __future__ import annotations

import random
from collections.abc import Mapping
from hashlib import sha256

from benchmarks.dashboard.plans import Machine
from orchestrator.domain.attestation import Attestation, Device

_PACKAGES = (
    "numpy", "scipy", "triton", "transformers", "safetensors", "tokenizers", "accelerate",
    "packaging", "filelock", "sympy", "networkx", "jinja2", "fsspec", "pyyaml", "regex", "tqdm",
    "requests", "psutil", "pillow", "einops", "pytest", "hypothesis", "pandas", "pyarrow",
)  # fmt: skip
_TORCHES = ("2.11.0", "2.12.0", "2.12.1", "2.13.0")
_DRIVERS = ("", "-1", "-2")


def torch_of(revision: int, environment: str) -> str:
    """Return the version of torch in a cell."""
    version = _TORCHES[min(revision // 3, len(_TORCHES) - 1)]
    return f"{version}+cu130" if environment == "cu130" else f"{version}+cu128"


def environment(machine: Machine, revision: int, name: str, trap: str) -> dict[str, object]:
    """Return the agent's `environment` event."""
    packages = {
        package: f"{index % 5 + 1}.{(index * 3 + revision // (index % 3 + 1)) % 20}.{index % 7}"
        for index, package in enumerate(_PACKAGES)
    }
    torch = torch_of(revision, name)
    told: dict[str, object] = {
        "python": f"3.12.{min(revision // 4 + 3, 12)}",
        "torch": torch,
        "packages": packages | {"torch": torch},
        "machine": {
            "hostname": f"ip-10-0-{revision % 20}-{len(machine.id)}",
            "os": f"Ubuntu 24.04.{min(revision // 6 + 1, 4)} LTS",
            "cpus": 8,
            "memory_bytes": 34_359_738_368,
            "devices": [
                {
                    "vendor": device.vendor,
                    "name": device.name,
                    "driver": device.driver,
                    "compute_capability": device.compute_capability,
                    "uuid": device.uuid,
                }
                for device in _devices(machine, revision, trap)
            ],
        },
    }
    if machine.vendor == "nvidia":
        told["cuda"] = "13.0" if name == "cu130" else "12.8"
    return told


def facts_of(machine: Machine, zone: str, machine_id: str, trap: str) -> dict[str, str]:
    """Return the provider's facts about a machine."""
    return {
        "instance_id": machine_id,
        "instance_type": machine.instance,
        "zone": zone.rpartition("/")[2],
        "market": machine.market,
        "image_id": f"ami-{sha256(machine.id.encode()).hexdigest()[:12]}",
        "image_name": f"deep-learning-base-ubuntu-24.04{trap}",
    }


def attestation(
    machine: Machine, revision: int, facts: Mapping[str, str], trap: str
) -> Attestation:
    """Return the attestation of a cell's results."""
    devices = _devices(machine, revision, trap)
    return Attestation(facts, devices, torch_of(revision, "image"), simulated=False)


def _devices(machine: Machine, revision: int, trap: str) -> tuple[Device, ...]:
    if not machine.vendor:
        return ()
    chance = random.Random(machine.id)  # a stable identity
    uuid = f"GPU-{chance.getrandbits(64):016x}"
    driver = machine.driver + _DRIVERS[revision // 5 % len(_DRIVERS)] if machine.driver else ""
    name = f"{machine.vendor.upper() if machine.vendor != 'google' else 'Google'} {machine.device}"
    return (Device(machine.vendor, name + trap, uuid, machine.capability, driver),)
