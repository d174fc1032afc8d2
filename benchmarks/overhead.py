"""What Seatrial costs beside a bare paramiko loop, on the same OpenSSH hosts, in one run.

Both arms ship the same payload of 8 MB, never seen before, to every host at once, run one job there
and bring its output back; rounds take turns. The loop connects with a pinned host key, sends a tar
by SFTP, unpacks it, runs the job and removes the folder. Seatrial, whose controller runs already,
also probes the machine, builds an overlay environment, numbers and stores the evidence, judges and
reports. Wall seconds, and CPU seconds of whoever drives and of all hosts, which are what counts on
a machine that others use too. The second run of the same payload must ship nothing.
"""

from __future__ import annotations

import argparse
import base64
import os
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import paramiko

from tests.e2e.home import Home, a_home
from tests.e2e.payloads import matrix
from tests.e2e.test_ssh_hosts import platform
from tests.ssh_hosts import LOOPBACK, SshHost, can_isolate, sshd_missing

PAYLOAD_BYTES = 8 * 1024 * 1024
TESTS = 62
SERVER = 2 if can_isolate() else 1
"""Processes of a host that nobody is signed in to."""
QUIET_S = 5.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MANIFEST = """schema = 1
name = "overhead"
version = "1"
[python]
candidates = ["{python}"]
[[job]]
{job}
"""
JOBS = {
    "noop": 'id = "line"\nkind = "demo"\ncommand = ["{python}", "job.py"]',
    "suite": 'id = "suite"\nkind = "suite"\npytest = ["test_suite.py"]',
}
BY_LOOP = {"noop": "job.py", "suite": "-m pytest -q test_suite.py"}
LENT = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments")
"""All that the hosts' interpreter can import beside the standard library."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one round: seconds of wall clock, and of CPU."""

    wall_s: float
    driver_s: float
    """The loop's process, or the controller's and the command's."""
    command_s: float
    """Of that, the command's."""
    hosts_s: float


def make_python(folder: Path) -> Path:
    """An interpreter for the hosts, with pytest and without torch."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", ask], capture_output=True, check=True, text=True)
    for name in LENT:
        (Path(done.stdout.strip()) / name).symlink_to(Path(sysconfig.get_path("purelib")) / name)
    return python


def make_payload(folder: Path, kind: str, python: Path) -> Path:
    """A payload that nobody has seen before."""
    folder.mkdir(parents=True)
    manifest = MANIFEST.format(python=python, job=JOBS[kind])
    (folder / "payload.toml").write_text(manifest)
    (folder / "job.py").write_text("print('a line')\n")
    tests = "@pytest.mark.parametrize('n', range({0}))\ndef test_one(n):\n    assert n < {0}\n"
    (folder / "test_suite.py").write_text("import pytest\n\n\n" + tests.format(TESTS))
    (folder / "data.bin").write_bytes(os.urandom(PAYLOAD_BYTES))
    return folder


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children that are gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_S


def hosts_cpu_s(hosts: Sequence[SshHost]) -> float:
    """CPU seconds of all that ever ran on the hosts, once their last session is over."""
    end = time.monotonic() + QUIET_S
    while time.monotonic() < end and any(len(host.processes()) > SERVER for host in hosts):
        time.sleep(0.02)
    return sum(cpu_s(pid) for host in hosts for pid in host.processes()[:SERVER])


def own_cpu_s(who: int) -> float:
    """CPU seconds of this process, or of its children that are gone."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def on_host(host: SshHost, archive: Path, command: str) -> bytes:
    """What the loop does on one host: ship, run, fetch, remove."""
    client = paramiko.SSHClient()
    kind, key = host.host_key().split()
    known = paramiko.Ed25519Key(data=base64.b64decode(key))
    client.get_host_keys().add(f"[{LOOPBACK}]:{host.port}", kind, known)
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    user_key = str(host.keys_dir / f"{host.name}_key")
    client.connect(
        *(LOOPBACK, host.port, host.user),
        key_filename=user_key,
        allow_agent=False,
        look_for_keys=False,
    )
    with client:
        with client.open_sftp() as sftp:
            sftp.put(str(archive), f"{host.home}/loop.tar")
        script = (
            f"mkdir {host.home}/loop && cd {host.home}/loop && tar xf ../loop.tar && "
            f"{command} > out.txt; "
            "status=$?; cat out.txt; cd .. && rm -rf loop loop.tar; exit $status"
        )
        _, stdout, _ = client.exec_command(script)
        said: bytes = stdout.read()
        if stdout.channel.recv_exit_status() != 0:
            raise RuntimeError(f"the loop's job failed: {said.decode()}")
    return said


def by_loop(hosts: Sequence[SshHost], payload: Path, command: str) -> None:
    """One thread a host."""
    archive = payload.parent / "loop.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(payload, ".")
    with ThreadPoolExecutor(len(hosts)) as pool:
        list(pool.map(lambda host: on_host(host, archive, command), hosts))


def measured(
    hosts: Sequence[SshHost], act: Callable[[], object], driver: Callable[[], float]
) -> Cost:
    """What the act costs."""
    before = driver(), own_cpu_s(resource.RUSAGE_CHILDREN), hosts_cpu_s(hosts)
    began = time.perf_counter()
    act()
    wall_s = time.perf_counter() - began
    command_s = own_cpu_s(resource.RUSAGE_CHILDREN) - before[1]
    driver_s = driver() - before[0] + command_s
    return Cost(wall_s, driver_s, command_s, hosts_cpu_s(hosts) - before[2])


def phases(home: Home) -> dict[str, float]:
    """Seconds that the cells of the newest run spent in each state, the median cell's."""
    found: dict[str, list[float]] = {}
    for cell in home.json("show", "latest")["cells"]:
        steps = cell["transitions"]
        times = [datetime.fromisoformat(step["at"]) for step in steps]
        for step, begin, end in zip(steps, times, times[1:], strict=False):
            found.setdefault(step["to"], []).append((end - begin).total_seconds())
    return {state: statistics.median(spent) for state, spent in found.items()}


@contextmanager
def some_hosts(scratch: Path, home: Home, many: int) -> Iterator[list[SshHost]]:
    """So many hosts, whose keys the home has."""
    (home.path / "keys").mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        hosts = [
            stack.enter_context(SshHost(scratch / "hosts", name=f"h{number}"))
            for number in range(many)
        ]
        for host in hosts:
            shutil.copy(host.keys_dir / f"{host.name}_key", home.path / "keys")
        yield hosts


def compare(scratch: Path, kind: str, many: int, rounds: int) -> None:
    """Print both arms and their ratios."""
    with a_home(scratch / "home") as home, some_hosts(scratch, home, many) as hosts:
        rows = "".join(map(platform, hosts))
        limits = f"{{max_parallel: {many}}}"
        loops: list[Cost] = []
        ours: list[Cost] = []
        again: list[Cost] = []
        spent: list[dict[str, float]] = []
        python = make_python(scratch / "python")
        command = f"{python} {BY_LOOP[kind]}"
        for number in range(rounds + 1):
            payload = make_payload(scratch / f"round-{number}" / "payload", kind, python)
            file = matrix(payload.parent / "m.yaml", payload, rows, limits)
            looped = partial(by_loop, hosts, payload, command)
            loop = measured(hosts, looped, partial(own_cpu_s, resource.RUSAGE_SELF))
            if number == 0:  # the controller starts, and hosts meet the agent
                home.seatrial("run", str(file))
                continue
            controller = home.controller_pid()
            run = partial(home.seatrial, "run", str(file))
            runs = [measured(hosts, run, partial(cpu_s, controller)) for _ in range(2)]
            loops.append(loop)
            ours.append(runs[0])
            again.append(runs[1])
            spent.append(phases(home))
        tell(kind, many, loops, ours, again)
        told = (f"{s} {statistics.median(p[s] for p in spent):.2f}" for s in spent[0])
        print("  a cell's states, s:", ", ".join(told))


def tell(kind: str, many: int, loops: list[Cost], ours: list[Cost], again: list[Cost]) -> None:
    """A line for each arm, and the ratios of the medians."""

    def middle(costs: list[Cost], name: str) -> float:
        return statistics.median(getattr(cost, name) for cost in costs)

    print(f"{kind}, {many} hosts, median of {len(loops)}:")
    for arm, costs in (("loop", loops), ("seatrial", ours), ("seatrial again", again)):
        wall, driver, command, there = (
            middle(costs, name) for name in ("wall_s", "driver_s", "command_s", "hosts_s")
        )
        print(
            f"  {arm:<15} {wall:6.2f} s wall, {wall / middle(loops, 'wall_s'):5.2f}x; CPU a cell: "
            f"driver {(driver - command) / many:.3f} s, host {there / many:.3f} s; "
            f"command {command:.2f} s"
        )


def main() -> int:
    """Print both arms and their ratios; there is no floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("noop", "suite"), action="append")
    parser.add_argument("--hosts", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if sshd_missing():
        print(f"overhead: not measured: {sshd_missing()}", file=sys.stderr)
        return 1
    for kind in asked.kind or ("noop", "suite"):
        for many in asked.hosts or (4, 16):
            with tempfile.TemporaryDirectory() as folder:
                compare(Path(folder), kind, many, asked.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
