"""The seam between the emulated clouds and the machines behind their addresses."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

ENABLE_GUEST_ATTRIBUTES = "enable-guest-attributes"
# A host key that belongs to no machine: what `NoMachines` publishes.
NO_MACHINE_HOST_KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIOL0W/ZfBfnvZyGcbPqzepSzL0sd1tyDsCHuMMyZxFmp"


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """What a cloud asks for: one machine, its addresses and what it is told at boot."""

    id: str
    cloud: Literal["aws", "gcp", "tpu"]
    addresses: tuple[str, ...]  # IPv4, the private one first; it answers on each of them
    hostname: str
    default_user: str = "ubuntu"
    user_data: str = ""  # cloud-config, decoded
    attributes: Mapping[str, str] = field(default_factory=dict)  # GCE and TPU metadata
    device: str = ""  # what the machine's device tools report; "" is no device at all
    max_run_s: float | None = None  # for the record: the cloud enforces it, not the machine


class Machines(Protocol):
    """Whatever stands behind the addresses that an emulated cloud hands out."""

    def boot(self, spec: MachineSpec) -> None:
        """Start one in the background; an id that is known already is a ValueError."""
        ...

    def is_up(self, machine_id: str) -> bool:
        """Whether it booted far enough that sshd answers."""
        ...

    def has_ended(self, machine_id: str) -> bool:
        """Whether it was booted and its process tree is gone."""
        ...

    def reboot(self, machine_id: str) -> None:
        """Kill the process tree and boot the same disk again."""
        ...

    def remove(self, machine_id: str) -> None:
        """Power off and delete the disk; returns when all is gone; unknown is no error."""
        ...

    def guest_attributes(self, machine_id: str) -> dict[str, str]:
        """What the guest published, as `hostkeys/ssh-ed25519`; empty until it did."""
        ...

    def console(self, machine_id: str) -> str:
        """What its boots wrote."""
        ...

    def announce_preemption(self, machine_id: str, at: datetime) -> None:
        """Let the machine's metadata address say that it is taken away at that time."""
        ...

    def live(self) -> tuple[str, ...]:
        """The ids of the machines that were booted and have neither ended nor been removed."""
        ...


@dataclass(slots=True)
class _Imagined:
    spec: MachineSpec
    up_at: float
    ended: bool = False
    preempted_at: datetime | None = None


class NoMachines(Machines):
    """Machines that are only remembered: up after `boot_delay_s`, no process anywhere."""

    def __init__(self, *, boot_delay_s: float = 0.0) -> None:
        self.boot_delay_s = boot_delay_s
        self.booted: list[MachineSpec] = []
        self._machines: dict[str, _Imagined] = {}
        self._lock = threading.RLock()

    def boot(self, spec: MachineSpec) -> None:
        with self._lock:
            if spec.id in self._machines:
                raise ValueError(f"machine {spec.id} was booted already")
            self._machines[spec.id] = _Imagined(spec, time.monotonic() + self.boot_delay_s)
            self.booted.append(spec)

    def is_up(self, machine_id: str) -> bool:
        with self._lock:
            machine = self._machines.get(machine_id)
            return machine is not None and not machine.ended and time.monotonic() >= machine.up_at

    def has_ended(self, machine_id: str) -> bool:
        with self._lock:
            machine = self._machines.get(machine_id)
            return machine is not None and machine.ended

    def end(self, machine_id: str) -> None:
        """Power it off from within, as `shutdown -h now` would."""
        with self._lock:
            self._machines[machine_id].ended = True

    def reboot(self, machine_id: str) -> None:
        with self._lock:
            machine = self._machines[machine_id]
            machine.ended = False
            machine.up_at = time.monotonic() + self.boot_delay_s

    def remove(self, machine_id: str) -> None:
        with self._lock:
            self._machines.pop(machine_id, None)

    def guest_attributes(self, machine_id: str) -> dict[str, str]:
        with self._lock:
            if not self.is_up(machine_id):
                return {}
            asked = self._machines[machine_id].spec.attributes.get(ENABLE_GUEST_ATTRIBUTES, "")
            return {"hostkeys/ssh-ed25519": NO_MACHINE_HOST_KEY} if asked.upper() == "TRUE" else {}

    def console(self, machine_id: str) -> str:
        return f"{machine_id}: no machine is behind this address\n"

    def announce_preemption(self, machine_id: str, at: datetime) -> None:
        with self._lock:
            self._machines[machine_id].preempted_at = at

    def preempted_at(self, machine_id: str) -> datetime | None:
        """When it was announced to be taken away, None where it was not."""
        with self._lock:
            return self._machines[machine_id].preempted_at

    def live(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(id_ for id_, m in self._machines.items() if not m.ended))
