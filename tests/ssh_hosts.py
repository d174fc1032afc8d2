"""Real OpenSSH hosts of a test's own making, and a relay that can cut the way to them.

Every host has its own host key, authorized user key, home folder and port on 127.0.0.1. As root it
also has a PID namespace of its own, so that it dies as a machine does: with all that runs on it.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import TracebackType

from orchestrator.domain.machine import SshEndpoint

LOOPBACK = "127.0.0.1"
START_S = 15.0
PRIVILEGE_FOLDER = Path("/run/sshd")


def sshd_missing() -> str | None:
    """Why no host can be made here, or None."""
    for program in ("ssh-keygen", "sshd"):
        if _program(program) is None:
            return f"{program} is not installed (Debian: openssh-server)"
    return None


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on, nor is given while this process lives.

    The system gives none of these by itself. A UDP socket holds the number against other tests.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        holder = socket.socket(type=socket.SOCK_DGRAM)
        try:
            holder.bind((LOOPBACK, port))
            socket.create_server((LOOPBACK, port)).close()
        except OSError:
            holder.close()
            continue
        holder.detach()
        return port


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Make an SSH key pair at `path` and `path`.pub."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


def fingerprint(public_key: str) -> str:
    """``SHA256:...`` of a public key, by ssh-keygen itself."""
    command = ["ssh-keygen", "-l", "-f", "-"]
    done = subprocess.run(command, input=public_key, check=True, capture_output=True, text=True)
    return done.stdout.split()[1]


@cache
def can_isolate() -> bool:
    """Whether hosts can have a PID namespace of their own."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run([*_ISOLATED, "true"], capture_output=True).returncode == 0


_ISOLATED = ("unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")


class SshHost:
    """One OpenSSH server with an account to sign in to."""

    def __init__(
        self,
        root: Path,
        *,
        name: str = "host",
        host_key_kinds: tuple[str, ...] = ("ed25519",),
        options: tuple[str, ...] = (),
    ) -> None:
        """Prepare the host's folder below `root`; `start` starts it.

        Args:
            root: A folder for everything that belongs to the host.
            name: The host's folder, and the name of its user key in `keys_dir`.
            host_key_kinds: The types of host key that it has.
            options: More lines for its sshd_config; the first value of an option counts.
        """
        self.name = name
        self.user = getpass.getuser()
        self.folder = root / name
        self.home = self.folder / "home"
        self.keys_dir = root / "keys"
        self.port = free_port()
        self._options = options
        self._kinds = host_key_kinds
        self._process: subprocess.Popen[bytes] | None = None
        self.home.mkdir(parents=True)
        for kind in host_key_kinds:
            make_key(self.folder / f"host_{kind}", kind)
        user_key = make_key(self.keys_dir / f"{name}_key")
        shutil.copy(user_key.with_name(user_key.name + ".pub"), self.folder / "authorized_keys")
        self._write_config()

    def host_key(self, kind: str | None = None) -> str:
        """The public host key as known_hosts has it."""
        path = self.folder / f"host_{kind or self._kinds[0]}.pub"
        return " ".join(path.read_text().split()[:2])

    def endpoint(self, *, port: int | None = None, host_key: str | None = None) -> SshEndpoint:
        """How to reach it; `port` for the way through a relay."""
        return SshEndpoint(
            address=LOOPBACK,
            user=self.user,
            host_key=host_key or self.host_key(),
            key_file=f"{self.name}_key",
            port=port or self.port,
        )

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        path = self.folder / "sshd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> SshHost:
        """Start the server and wait until it accepts connections."""
        program = _program("sshd")
        assert program is not None, sshd_missing()
        if os.geteuid() == 0:
            PRIVILEGE_FOLDER.mkdir(mode=0o755, exist_ok=True)
        config, log = self.folder / "sshd_config", self.folder / "sshd.log"
        command = [program, "-D", "-f", str(config), "-E", str(log)]
        self._process = subprocess.Popen(
            [*(_ISOLATED if can_isolate() else ()), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait_for_banner()
        return self

    def stop(self) -> None:
        """End the server and everything that runs on the host; stopped already is no error."""
        self.kill()

    def kill(self) -> None:
        """The machine dies: server, sessions and detached processes at once.

        Parents first: a server that saw its command die would still report its exit status.
        """
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop all processes of the host: connections stay open, and nobody answers."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let everything go on."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill_sessions(self) -> None:
        """End every open connection; the server and detached processes stay."""
        for pid in self.processes():
            if "sshd: " in _command_line(pid) and "[listener]" not in _command_line(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """Process ids of the host, parents first."""
        process = self._process  # a kill in another thread forgets it
        if process is None or process.poll() is not None:
            return []
        children: dict[int, list[int]] = {}
        for pid, parent in _parents():
            children.setdefault(parent, []).append(pid)
        found = [process.pid]
        for pid in found:
            found.extend(children.get(pid, []))
        return found

    def __enter__(self) -> SshHost:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _write_config(self) -> None:
        lines = [
            *self._options,
            f"ListenAddress {LOOPBACK}:{self.port}",
            *(f"HostKey {self.folder / f'host_{kind}'}" for kind in self._kinds),
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}",
            f'SetEnv "HOME={self.home}"',
            "PidFile none",
            "LogLevel VERBOSE",
            "MaxStartups 500",
            "Subsystem sftp internal-sftp",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "StrictModes no",
            "UsePAM no",
            "UseDNS no",
        ]
        (self.folder / "sshd_config").write_text("\n".join(lines) + "\n")

    def _wait_for_banner(self) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if _greets(self.port):
                return
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"sshd did not start within {START_S} s: {self.log}")


def _greets(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=30.0) as probe:
            return probe.recv(4) == b"SSH-"
    except OSError:
        return False


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                after_name = (entry / "stat").read_text().rpartition(")")[2]
                yield int(entry.name), int(after_name.split()[1])


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def another_key(key: str) -> str:
    """A well-formed host key of the same type that nobody has."""
    kind, blob = key.split()
    raw = bytearray(base64.b64decode(blob))
    raw[-1] ^= 1
    return f"{kind} {base64.b64encode(bytes(raw)).decode()}"


def through(endpoint: SshEndpoint, relay: Relay) -> SshEndpoint:
    """The same machine, reached through a relay."""
    return replace(endpoint, address=LOOPBACK, port=relay.port)


class Relay:
    """Carries TCP connections to one port of 127.0.0.1, and can cut or stall them."""

    def __init__(self, target_port: int) -> None:
        self._target = (LOOPBACK, target_port)
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self.carried_bytes = 0
        """To the target, over all connections."""
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._refuse = False
        self._closed = False
        self._open.set()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="relay", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Break every connection, and accept none until `heal`."""
        with self._lock:
            self._refuse = True
            for one in list(self._peers):
                self._forget(one)

    def stall(self) -> None:
        """Carry nothing, with all connections left open: the peer falls silent."""
        self._open.clear()

    def heal(self) -> None:
        """Carry again."""
        self._refuse = False
        self._open.set()

    def close(self) -> None:
        """End the relay and all its connections."""
        self._closed = True
        self._open.set()
        self._thread.join()
        with self._lock:
            for one in list(self._peers):
                self._forget(one)
        self._listener.close()
        self._selector.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._closed:
            if not self._open.wait(timeout=0.2):
                continue
            for key, _ in self._selector.select(timeout=0.2):
                if not self._open.is_set():
                    break
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket):
                        self._carry(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._refuse:
            client.close()
            return
        try:
            server = socket.create_connection(self._target, timeout=30.0)
        except OSError:
            client.close()
            return
        for one, other in ((client, server), (server, client)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _carry(self, source: socket.socket) -> None:
        target = self._peers.get(source)
        if target is None:
            return  # cut between the look and the lock
        try:
            data = source.recv(65536)
            target.sendall(data)
        except OSError:
            data = b""
        if not data:
            self._forget(source)
        elif source.getsockname()[1] == self.port:
            self.carried_bytes += len(data)

    def _forget(self, one: socket.socket) -> None:
        for end in (one, self._peers.pop(one, one)):
            self._peers.pop(end, None)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
            end.close()
