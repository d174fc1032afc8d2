"""The disk of one machine: the image below, a limited file system in memory above it."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.lab import devices, seal
from tests.lab.cloud_facts import durations
from tests.lab.image import PYTORCH
from tests.lab.machines import MachineSpec

SIZE_GB = 3
HERE = Path(__file__).parent
_GUEST_FILES = ("init", "guest_agent.py", "silent_port.py", "apt_lock.py")
_POWER_NAMES = ("shutdown", "poweroff", "halt", "reboot")
_REMOVE_S = 60.0
_LATE = durations("machine")


@dataclass(frozen=True, slots=True)
class Spoil:
    """What is wrong with a machine from its first boot on."""

    ssh_hangs: bool = False  # its port 22 accepts and never says a word
    ssh_swallowed: bool = False  # no packet comes through until it is healed
    other_host_key: bool = False  # than the one it was given, or than the one that it published
    driver_broken: bool = False
    driver_late_s: float = _LATE["driver"]  # after each boot
    driver_missing: bool = False  # the device is there, its tools are not
    device: str | None = None  # another accelerator than was asked for
    never_boots: bool = False  # it ends at once, before anything of it ran
    apt_locked_s: float = _LATE["package lock"]  # by an upgrade at the first boot
    cold_s: float = _LATE["cold disk"]  # that the first start of the image's Python takes
    cloud_init_hangs: bool = False  # after ssh opened
    cloud_init_fails: bool = False  # its status is error in the end

    def flags(self) -> dict[str, float]:
        """What the guest's own scripts are told of it."""
        names = ("ssh_hangs", "other_host_key", "apt_locked_s", "cloud_init_hangs")
        return {name: getattr(self, name) + 0 for name in names}


class Disk:
    """`folder` holds the machine's layer, where it is mounted, and what its boots wrote."""

    def __init__(self, folder: Path, spec: MachineSpec, spoil: Spoil) -> None:
        self.folder = folder
        folder.mkdir(parents=True, mode=0o700)
        for name in ("disk", "root"):
            (folder / name).mkdir()
        options = f"mode=0755,size={SIZE_GB}g"
        command = ("mount", "-t", "tmpfs", "-o", options, "machine", str(folder / "disk"))
        subprocess.run(command, check=True, timeout=60)
        self._upper = folder / "disk/upper"
        for name in ("upper", "work"):
            (folder / "disk" / name).mkdir()
        self._write_guest(spec, spoil)
        self._write_seed(spec)
        self._write_device(spec, spoil)
        cold = (HERE / "guest/cold_python.sh").read_text().replace("COLD_S", str(spoil.cold_s))
        self.write(f"{PYTORCH.lstrip('/')}/bin/python3", cold, 0o755)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Put a file onto the disk; only while the machine does not run."""
        target = self._upper / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def wants_reboot(self) -> bool:
        """Whether the machine went down in order to come up again; asked once after each end."""
        flag = self._upper / "usr/lib/lab/reboot"
        wanted = flag.exists()
        flag.unlink(missing_ok=True)
        return wanted

    def remove(self) -> None:
        """Delete it. The machine has ended; its mounts may take a moment more to go."""
        end = time.monotonic() + _REMOVE_S
        command = ("umount", str(self.folder / "disk"))
        while subprocess.run(command, capture_output=True, timeout=60).returncode:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.folder}/disk is still in use after {_REMOVE_S} s")
            time.sleep(0.05)
        shutil.rmtree(self.folder)

    def _write_guest(self, spec: MachineSpec, spoil: Spoil) -> None:
        for name in _GUEST_FILES:
            self.write(f"usr/lib/lab/{name}", (HERE / "guest" / name).read_text())
        facts = {"cloud": spec.cloud, **spoil.flags()}
        lines = "".join(f"{name}={value}\n" for name, value in facts.items())
        self.write("usr/lib/lab/machine", lines)
        if spoil.cloud_init_fails:
            self.write("var/lib/cloud/scripts/per-boot/spoilt", "#!/bin/sh\nexit 1\n", 0o755)
        power = (HERE / "guest/power.sh").read_text()
        for name in _POWER_NAMES:
            self.write(f"usr/sbin/{name}", power, 0o755)
        self.write("usr/bin/systemctl", power, 0o755)
        self.write("etc/hostname", f"{spec.hostname}\n")
        self.write("etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {spec.hostname}\n")
        self.write("etc/resolv.conf", f"nameserver {seal.ADDRESS}\n")
        self.write("etc/machine-id", hashlib.md5(spec.id.encode()).hexdigest() + "\n")

    def _write_seed(self, spec: MachineSpec) -> None:
        config = (HERE / "guest/cloud.cfg").read_text()
        self.write("etc/cloud/cloud.cfg", config.replace("DEFAULT_USER", spec.default_user))
        seed = "var/lib/cloud/seed/nocloud"
        user_data = spec.user_data or spec.attributes.get("user-data", "")
        self.write(f"{seed}/user-data", user_data or "#cloud-config\n{}\n", 0o600)
        about = f"instance-id: {spec.id}\nlocal-hostname: {spec.hostname}\n"
        self.write(f"{seed}/meta-data", about)

    def _write_device(self, spec: MachineSpec, spoil: Spoil) -> None:
        device = spec.device if spoil.device is None else spoil.device
        if device not in devices.GPUS or spoil.driver_missing:
            return
        shim = (HERE / "device_shims/nvidia-smi").read_text()
        self.write("usr/bin/nvidia-smi", shim, 0o755)
        said = devices.answers(
            device, spec.id, broken=spoil.driver_broken, late_s=spoil.driver_late_s
        )
        self.write("usr/lib/lab/device.json", said)


def forget(folder: Path) -> None:
    """Remove the lab's folder of machines where nothing is left in it."""
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()
