"""The same work on the same OpenSSH hosts by Seatrial and by other tools, in interleaved rounds.

Each tool ships a payload that no host has seen (8 MB), runs one job on every host at the same time,
and brings the job's output back. `loop` is a bare loop over paramiko, a thread for each host.
Reported for each tool: wall time, and the CPU time (user and system) of the controlling side and of
all hosts together; for Seatrial the controller, which is running already, and the command line.

``python -m benchmarks.side_by_side [--hosts 4] [--rounds 3] [--tests 0] [--tools FOLDER]``:
FOLDER is the ``bin`` of an environment with pyinfra, ansible-core and ReFrame-HPC; without it they
are left out, and the table says so.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
import venv
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from benchmarks.other_tools import OTHERS, loop
from tests.e2e.home import Home, a_home, serving
from tests.e2e.test_ssh_hosts import platform
from tests.ssh_hosts import SshHost, sshd_missing

PAYLOAD_BYTES = 8_000_000
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MANIFEST = """schema = 1
name = "side-by-side"
version = "1"
[python]
candidates = ["{python}"]
"""
COMMAND = """[[job]]
id = "job"
kind = "demo"
command = ["{python}", "-c", "print('done')"]
"""
SUITE = """[[job]]
id = "job"
kind = "suite"
pytest = ["test_suite.py"]
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one round of one tool."""

    wall_s: float
    control_s: float
    """CPU seconds of the controlling side."""
    hosts_s: float
    """CPU seconds of all hosts together."""


PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")


def make_interpreter(folder: Path) -> Path:
    """Return an environment with pytest only, which the jobs of all tools run in."""
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python3*/site-packages")
    for name in PYTEST:
        distribution = metadata.distribution(name)
        roots = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
        for root in roots - {"__pycache__"}:
            (packages / root).symlink_to(Path(str(distribution.locate_file(root))).resolve())
    return folder / "bin" / "python"


def make_payload(folder: Path, python: Path, *, tests: int) -> Path:
    """Return a folder with a job, and with bytes that no host has."""
    folder.mkdir()
    job = SUITE if tests else COMMAND
    (folder / "payload.toml").write_text(MANIFEST.replace("{python}", str(python)) + job)
    (folder / "data.bin").write_bytes(os.urandom(PAYLOAD_BYTES))
    if tests:
        test = f"import pytest\n\n@pytest.mark.parametrize('n', range({tests}))\n"
        (folder / "test_suite.py").write_text(f"{test}def test_one(n):\n    assert n >= 0\n")
    return folder


def job_command(python: Path, *, tests: int) -> str:
    """Return the command that tools other than Seatrial run in the payload's folder."""
    if tests:
        return f"{python} -m pytest -q test_suite.py"
    return f"{python} -c \"print('done')\""


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process and of its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_S


def cpu_of_hosts(hosts: list[SshHost]) -> float:
    """Return the CPU seconds of all processes that ran or run on the hosts."""
    return sum(cpu_of(pid) for host in hosts for pid in host.processes())


def cpu_of_children() -> float:
    """Return the CPU seconds of the commands that this process waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


class Bench:
    """The hosts, the running controller, and a way to run each tool."""

    def __init__(
        self, scratch: Path, hosts: list[SshHost], home: Home, controller: int, tests: int
    ) -> None:
        self.scratch = scratch
        self.hosts = hosts
        self.home = home
        self.controller = controller
        self.tests = tests
        self.python = make_interpreter(scratch / "python")
        self._rounds = 0

    def measure(self, name: str, tools: Path) -> Spent:
        """Run one tool once."""
        self._rounds += 1
        folder = self.scratch / f"{name}-{self._rounds}"
        payload = make_payload(folder, self.python, tests=self.tests)
        hosts, children = cpu_of_hosts(self.hosts), cpu_of_children()
        controller = cpu_of(self.controller)
        began = time.perf_counter()
        if name == "seatrial":
            self._by_seatrial(payload)
        else:
            run = loop if name == "loop" else OTHERS[name].run
            run(self.hosts, payload, job_command(self.python, tests=self.tests), tools)
        wall = time.perf_counter() - began
        settle(self.hosts)
        spent = cpu_of_children() - children + cpu_of(self.controller) - controller
        shutil.rmtree(folder)
        return Spent(wall, spent, cpu_of_hosts(self.hosts) - hosts)

    def _by_seatrial(self, payload: Path) -> None:
        """Launch one run over all hosts."""
        file = self.scratch / "matrix.yaml"
        rows = "".join(map(platform, self.hosts))
        file.write_text(
            "apiVersion: seatrial/v1\nkind: Matrix\nmetadata: {name: side-by-side}\n"
            'subject: {name: side-by-side, version: "1"}\n'
            f"payload: {{path: {payload}}}\nplatforms:\n{rows}"
            'jobs:\n  - {select: "*", on: all}\n'
        )
        self.home.seatrial("run", str(file))


def settle(hosts: list[SshHost]) -> None:
    """Wait until only the servers run on the hosts, so that all CPU time is counted."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(len(host.processes()) > 2 for host in hosts):
        time.sleep(0.05)


def table(measured: dict[str, list[Spent]], hosts: int) -> str:
    """Return the medians as a Markdown table; ratios are of wall times to the loop's."""
    lines = [
        "| tool | wall, s | to the loop | CPU of control per host, s | CPU of a host, s |",
        "|---|---|---|---|---|",
    ]
    base = statistics.median(one.wall_s for one in measured["loop"])
    for name, rounds in measured.items():
        wall = statistics.median(one.wall_s for one in rounds)
        control = statistics.median(one.control_s for one in rounds) / hosts
        host = statistics.median(one.hosts_s for one in rounds) / hosts
        lines.append(f"| {name} | {wall:.2f} | {wall / base:.1f} | {control:.2f} | {host:.2f} |")
    return "\n".join(lines)


def main() -> int:
    """Measure and print the table; there is no floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tests", type=int, default=0, help="tests of the suite; 0 for a command")
    parser.add_argument("--tools", type=Path, default=Path("/nonexistent"))
    options = parser.parse_args()
    if sshd_missing():
        print(f"side by side: not measured: {sshd_missing()}", file=sys.stderr)
        return 1
    names = ["loop", "seatrial"]
    names += [
        name for name in OTHERS if options.tools and (options.tools / OTHERS[name].program).exists()
    ]
    measured: dict[str, list[Spent]] = {name: [] for name in names}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home = stack.enter_context(a_home(scratch / "home"))
        controller = stack.enter_context(serving(home))
        hosts = [
            stack.enter_context(SshHost(scratch / "hosts", name=f"host{n}"))
            for n in range(options.hosts)
        ]
        (home.path / "keys").mkdir(exist_ok=True)
        for host in hosts:
            shutil.copy(host.keys_dir / f"{host.name}_key", home.path / "keys")
        bench = Bench(scratch, hosts, home, controller.pid, options.tests)
        for name in names:
            bench.measure(name, options.tools)
        for _ in range(options.rounds):
            for name in names:
                measured[name].append(bench.measure(name, options.tools))
    what = f"a suite of {options.tests} tests" if options.tests else "a job that prints a line"
    load = os.getloadavg()[0]
    print(f"{what}, {options.hosts} hosts, {options.rounds} rounds, load {load:.1f}:\n")
    print(table(measured, options.hosts))
    left_out = [name for name in OTHERS if name not in names]
    if left_out:
        print(f"\nleft out, as --tools has none: {', '.join(left_out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
