"""The seal: a command with a network of its own, from which no packet gets out.

    python -m tests.lab.seal -- COMMAND ...

The command gets its own network, mounts and process ids. There is a loopback and nothing real: the
default route leads into a device that swallows whatever it is given, so that an address that nobody
of the lab has behaves like one on the internet that does not answer. Needs to be root on Linux.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.lab import kernel
from tests.lab.image import LAB_FOLDER

SINK = "labsink"
PREFIX = "lab"  # of every device that the lab makes
ADDRESS = "198.18.0.1"  # the lab's own, in the range that is set aside for measuring networks
MACHINES = LAB_FOLDER / "machines"  # their disks, in memory: gone with the seal
NEEDED = ("unshare", "nsenter", "ip", "tc", "mount", "umount")
# What kernels put into every new network: down, and leading nowhere.
_ALWAYS_THERE = {
    "lo", "tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0",
    "ip6gre0",
}  # fmt: skip


class NotSealedError(RuntimeError):
    """The lab would run where packets could reach a real network."""


def missing() -> str | None:
    """Why nothing can be sealed here, or None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "the lab needs to be root on Linux"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = [name for name in NEEDED if shutil.which(name, path=path) is None]
    return f"not installed: {', '.join(absent)} (Debian: iproute2)" if absent else None


def inside_seal() -> bool:
    """Whether this process runs inside the seal: there is the sink, and no device but the lab's."""
    names = {name for _, name in socket.if_nameindex()}
    return SINK in names and not real_devices()


def real_devices() -> list[str]:
    """The network devices seen from here that the lab did not make."""
    names = {name for _, name in socket.if_nameindex()} - _ALWAYS_THERE
    return sorted(name for name in names if not name.startswith(PREFIX))


def demand() -> None:
    """Refuse to go on outside the seal.

    Raises:
        NotSealedError: It is outside.
    """
    if not inside_seal():
        seen = ", ".join(real_devices()) or "no device of the lab"
        raise NotSealedError(
            f"the lab runs only inside its seal, and there is {seen} here: use `make lab`, or "
            "`python -m tests.lab.seal -- COMMAND`"
        )


def close() -> None:
    """Make the sealed network and the places for the lab's files; done once, from within."""
    _ip(
        "link set lo up",
        f"link add {SINK} type veth peer name {SINK}-end",
        f"link set {SINK} arp off up",
        f"link set {SINK}-end up",
        f"addr add {ADDRESS}/32 dev {SINK}",
        f"route add default dev {SINK} src {ADDRESS}",
    )
    _set("ipv4/ip_forward", "1")  # machines reach one another, and the sink
    for name in (SINK, f"{SINK}-end"):
        _set(f"ipv6/conf/{name}/disable_ipv6", "1")
    MACHINES.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", "mode=0700", "lab", str(MACHINES))
    _no_names()


def _no_names() -> None:
    """Nobody answers for names: asking fails at once instead of waiting for a real server."""
    with tempfile.NamedTemporaryFile("w", dir=MACHINES, delete=False) as file:
        file.write("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    os.chmod(file.name, 0o644)
    real = Path("/etc/resolv.conf").resolve()
    if real.exists():
        _run("mount", "--bind", file.name, str(real))


def _set(name: str, value: str) -> None:
    path = Path("/proc/sys/net") / name
    if path.exists():  # a kernel without IPv6 has none of it
        path.write_text(value)


def _ip(*lines: str) -> None:
    _run("ip", "-batch", "-", text="\n".join(lines) + "\n")


def _run(*command: str, text: str = "") -> None:
    subprocess.run(command, input=text.encode(), check=True, timeout=20)


def run(command: Sequence[str]) -> int:
    """Run `command` inside a new seal and return its exit code, 128 + n after signal n."""
    kernel.unshare(kernel.NEW_NETWORK | kernel.NEW_MOUNTS | kernel.NEW_PIDS)
    first = os.fork()
    if first == 0:
        kernel.die_with_parent()
        os._exit(_inside(command))
    _pass_signals_to(first)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command as well
    return _exit_code(os.waitpid(first, 0)[1])


def _inside(command: Sequence[str]) -> int:
    """Be the first process in there: run the command and collect the children that nobody wants."""
    try:
        _run("mount", "--make-rprivate", "/")
        _run("mount", "-t", "proc", "proc", "/proc")
        close()
        demand()
        child = subprocess.Popen(command)
    except (OSError, subprocess.SubprocessError, NotSealedError) as error:
        print(f"the seal could not be closed round {command[0]}: {error}", file=sys.stderr)
        return 1
    _pass_signals_to(child.pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return _exit_code(status)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _pass_signals_to(pid: int) -> None:
    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, pass_on)


def main(arguments: Sequence[str]) -> int:
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    if reason := missing():
        print(f"nothing can be sealed here: {reason}", file=sys.stderr)
        return 1
    if inside_seal():
        os.execvp(command[0], command)
    try:
        return run(command)
    except OSError as error:
        print(f"nothing can be sealed here: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
