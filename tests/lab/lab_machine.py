"""One machine of the lab: its processes, and the thread that looks after them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab import devices, kernel
from tests.lab.image import LAB_FOLDER
from tests.lab.machine_disk import HERE, Disk, Spoil
from tests.lab.machines import MachineSpec
from tests.lab.metadata import PORT, Facts, MetadataService
from tests.lab.netns import METADATA_ADDRESS, Wire

LOOK_S = 0.1
END_S = 60.0
CONSOLE_BYTES = 1024 * 1024
SSH_PORT = 22
HOSTNAME_BYTES = 63
_CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_NAMESPACES = ("--mount", "--uts", "--ipc", "--pid", "--net")


class LabMachine:
    """Boots in a thread of its own; everything else may be asked from any thread."""

    def __init__(self, spec: MachineSpec, spoil: Spoil, *, image: Path, folder: Path) -> None:
        self.spec = spec
        self.facts = Facts(spec)
        self.is_up = False
        self.has_ended = False
        self.failure = ""
        self._spoil = spoil
        self._image = image
        self._folder = folder
        self._wire: Wire | None = None
        self._disk: Disk | None = None
        self._metadata: MetadataService | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._console = bytearray()
        self._removed = False
        self._again = False
        self._made = threading.Event()
        self._turn = threading.Lock()
        self._keeper = threading.Thread(target=self._keep, name=f"lab-{spec.id}", daemon=True)

    def start(self) -> None:
        self._keeper.start()

    @property
    def device(self) -> str:
        """What it plays."""
        return self.spec.device if self._spoil.device is None else self._spoil.device

    @property
    def wire(self) -> Wire:
        """Its network.

        Raises:
            RuntimeError: It could not be made, or has been removed.
        """
        self._made.wait(END_S)
        if self._wire is None:
            raise RuntimeError(f"machine {self.spec.id} has no network {self.failure}")
        return self._wire

    def console(self) -> str:
        """What its boots wrote, and why the lab failed to make it where it did."""
        return bytes(self._console).decode(errors="replace") + self.failure

    def kill(self) -> None:
        """Pull its plug: nobody hears of it, every process ends; ended already is no error."""
        if self._wire is not None:
            self._wire.power(on=False)
        first = self.first_process()
        if first is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
            return
        with self._turn:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()

    def reboot(self) -> None:
        """Kill it and boot it again, also when it has ended."""
        with self._turn:
            self._again, self.is_up = True, False
            if self.has_ended:
                self.has_ended = False
                self._keeper = threading.Thread(
                    target=self._boots, name=f"lab-{self.spec.id}", daemon=True
                )
                self._keeper.start()
                return
        self.kill()

    def remove(self) -> None:
        """End it and take everything of it away."""
        self._removed = True
        end = time.monotonic() + END_S
        while self._keeper.is_alive():
            self.kill()
            self._keeper.join(LOOK_S)
            if time.monotonic() > end:
                raise TimeoutError(f"machine {self.spec.id} did not end within {END_S} s")
        if self._metadata is not None:
            self._metadata.close()
        if self._wire is not None:
            self._wire.remove()
        if self._disk is not None:
            self._disk.remove()
        self._metadata = self._wire = self._disk = None
        self.is_up, self.has_ended = False, True

    def execute(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command on it as root, past its network."""
        first = self.first_process()
        if first is None:
            raise RuntimeError(f"machine {self.spec.id} does not run")
        line = (
            "nsenter",
            f"--target={first}",
            *_NAMESPACES,
            f"--root=/proc/{first}/root",
            "--wd=/",
        )
        return subprocess.run(
            [*line, *command], capture_output=True, text=True, timeout=30, env=_CLEAN,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def rewrite(self, path: str, change: Callable[[str], str]) -> None:
        """Change a file of the running machine."""
        file = Path(f"/proc/{self.first_process()}/root") / path
        file.write_text(change(file.read_text()))

    def first_process(self) -> int | None:
        """The machine's process 1, as the lab numbers it; None while there is none."""
        process = self._process
        if process is None or process.poll() is not None:
            return None
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            return int(children.split()[0]) if children.strip() else None
        return None

    def _keep(self) -> None:
        try:
            self._wire = Wire(self.spec.addresses)
            if self._spoil.ssh_swallowed:
                self._wire.cut()
            listener = self._wire.listen(METADATA_ADDRESS, PORT)
            self._metadata = MetadataService(listener, self.facts)
            self._disk = Disk(self._folder, self.spec, self._spoil)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.failure = f"\nlab: the machine could not be made: {error!r}\n"
            self.has_ended = True
            return
        finally:
            self._made.set()
        self._boots()

    def _boots(self) -> None:
        disk = self._disk
        assert disk is not None
        while not self._removed and not self._spoil.never_boots:
            with self._spawn(disk) as process:
                while process.poll() is None:
                    self._look(process)
                self._read_console(process)
            self.is_up = False
            self.wire.power(on=False)
            self._again = disk.wants_reboot() or self._again
            with self._turn:
                if not self._again:
                    break
        with self._turn:
            self.is_up, self.has_ended = False, True

    def _spawn(self, disk: Disk) -> subprocess.Popen[bytes]:
        self.wire.power(on=True)
        # Seen from there, so that no path of this computer is told to the machine.
        places = [str(path.relative_to(LAB_FOLDER)) for path in (self._image, disk.folder)]
        command = [
            "unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child=SIGKILL",
            "sh", str(HERE / "guest/boot.sh"), *places,
            self.spec.hostname[:HOSTNAME_BYTES], devices.on_pci(self.device),
        ]  # fmt: skip
        process = kernel.in_network(
            self.wire.namespace,
            lambda: subprocess.Popen(
                command, env=_CLEAN, cwd=LAB_FOLDER, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            ),
        )  # fmt: skip
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        with self._turn:
            self._process, self._again = process, False
        return process

    def _read_console(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            while text := os.read(process.stdout.fileno(), 65536):
                self._console += text
                del self._console[:-CONSOLE_BYTES]

    def _look(self, process: subprocess.Popen[bytes]) -> None:
        """Wait a moment, read what it wrote, find out whether it is up."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
        self._read_console(process)
        if not self.is_up and not self._again and self._answers():
            self.is_up = True

    def _answers(self) -> bool:
        if self._spoil.ssh_hangs or self._spoil.ssh_swallowed:
            return "lab: the machine listens" in self.console()
        try:
            with socket.create_connection((self.spec.addresses[0], SSH_PORT), timeout=1.0) as probe:
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False
