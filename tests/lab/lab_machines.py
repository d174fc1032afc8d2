"""Real Linux machines behind the emulated clouds' addresses, inside the seal."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from tests.lab import devices, image, machine_disk, seal
from tests.lab.lab_machine import LabMachine
from tests.lab.machine_disk import Spoil
from tests.lab.machines import Machines, MachineSpec

__all__ = ["LabMachines", "Spoil"]

# In one step, as nothing on the machine may find it without `date`.
_PUT_FORWARD = r"""
[ -e /usr/bin/date.real ] || cp -p /usr/bin/date /usr/bin/date.real
printf '#!/bin/sh\nexec /usr/bin/date.real -d "+%d seconds" "$@"\n' "$1" >/usr/bin/date.new
chmod 755 /usr/bin/date.new
mv /usr/bin/date.new /usr/bin/date
"""


class LabMachines(Machines):
    """Implements `Machines`; leaving it removes every machine."""

    def __init__(self) -> None:
        """Prepare for machines.

        Raises:
            NotSealedError: A packet could leave.
            ImageMissingError: The image was not built.
        """
        seal.demand()
        self._image = image.require()
        self._folder = Path(tempfile.mkdtemp(dir=seal.MACHINES))
        self._machines: dict[str, LabMachine] = {}
        self._lock = threading.Lock()
        self._spoilers: list[Callable[[MachineSpec], Spoil | None]] = []

    # What `Machines` says.

    def boot(self, spec: MachineSpec) -> None:
        spoil = self._spoil_of(spec)
        devices.on_pci(spec.device if spoil.device is None else spoil.device)
        with self._lock:
            if spec.id in self._machines:
                raise ValueError(f"machine {spec.id} was booted already")
            folder = spec.id.replace("/", "_")
            machine = LabMachine(spec, spoil, image=self._image, folder=self._folder / folder)
            self._machines[spec.id] = machine
        machine.start()

    def is_up(self, machine_id: str) -> bool:
        machine = self._known(machine_id)
        return machine is not None and machine.is_up

    def has_ended(self, machine_id: str) -> bool:
        machine = self._known(machine_id)
        return machine is not None and machine.has_ended

    def reboot(self, machine_id: str) -> None:
        self._machine(machine_id).reboot()

    def remove(self, machine_id: str) -> None:
        machine = self._known(machine_id)
        if machine is None:
            return
        machine.remove()
        with self._lock:
            self._machines.pop(machine_id, None)

    def guest_attributes(self, machine_id: str) -> dict[str, str]:
        return dict(self._machine(machine_id).facts.guest_attributes)

    def console(self, machine_id: str) -> str:
        return self._machine(machine_id).console()

    def announce_preemption(self, machine_id: str, at: datetime) -> None:
        self._machine(machine_id).facts.announce(at, datetime.now(UTC))

    def live(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(id_ for id_, m in self._machines.items() if not m.has_ended))

    # What tests do to machines.

    def spoil(self, spoiler: Callable[[MachineSpec], Spoil | None]) -> None:
        """Ask `spoiler` for each machine before its first boot what shall be wrong with it."""
        self._spoilers.append(spoiler)

    def cut(self, machine_id: str) -> None:
        """Let every packet to and from the machine vanish; its metadata address stays."""
        self._machine(machine_id).wire.cut()

    def heal(self, machine_id: str) -> None:
        """Carry its packets again."""
        self._machine(machine_id).wire.heal()

    def hang_ssh(self, machine_id: str) -> None:
        """Stop its SSH server and sessions where they are: connections open, nobody answers."""
        self._signal_sshd(machine_id, signal.SIGSTOP)

    def unhang_ssh(self, machine_id: str) -> None:
        """Let them go on."""
        self._signal_sshd(machine_id, signal.SIGCONT)

    def kill(self, machine_id: str) -> None:
        """Pull its plug: every process is gone at once, the disk stays."""
        self._machine(machine_id).kill()

    def put_forward(self, machine_id: str, seconds: float) -> None:
        """Let `date` on it be so much ahead, also after a reboot; its kernel's clock is not."""
        # Its exit code is that of a machine that may have ended at the new time already.
        self.execute(machine_id, "sh", "-c", _PUT_FORWARD, "sh", str(int(seconds)))

    def break_driver(self, machine_id: str) -> None:
        """Let its nvidia-smi fail as it does without a driver; a TPU's node goes away."""
        machine = self._machine(machine_id)
        if machine.device in devices.TPUS:
            machine.execute(("rm", "/dev/accel0"))
        else:
            machine.rewrite("usr/lib/lab/device.json", _broken)

    def execute(self, machine_id: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command on it as root, past its network: for looking at it from a test."""
        return self._machine(machine_id).execute(command)

    def requests(self, machine_id: str) -> Sequence[str]:
        """What it asked its metadata address, as `GET /path 200`."""
        return tuple(self._machine(machine_id).facts.requests)

    def close(self) -> None:
        """Remove every machine."""
        for machine_id in list(self._machines):
            self.remove(machine_id)
        machine_disk.forget(self._folder)

    def __enter__(self) -> LabMachines:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _known(self, machine_id: str) -> LabMachine | None:
        with self._lock:
            return self._machines.get(machine_id)

    def _machine(self, machine_id: str) -> LabMachine:
        machine = self._known(machine_id)
        if machine is None:
            raise KeyError(f"the lab has no machine {machine_id}")
        return machine

    def _spoil_of(self, spec: MachineSpec) -> Spoil:
        for spoiler in self._spoilers:
            if spoil := spoiler(spec):
                return spoil
        return Spoil()

    def _signal_sshd(self, machine_id: str, number: signal.Signals) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.execute(machine_id, "pkill", f"-{number.name}", "-x", "sshd")


def _broken(text: str) -> str:
    return json.dumps({**json.loads(text), "broken": True})
