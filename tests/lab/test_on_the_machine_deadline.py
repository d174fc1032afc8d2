"""A machine that nobody is left to end: it ends by itself, also after a reboot. In the seal."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.home import Home, eventually
from tests.lab import payloads_of_lab as lab
from tests.lab.lab_machines import LabMachines
from tests.lab.site import a_site, served

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed"), pytest.mark.timeout(600)]

JOB = "import gates\ngates.at('work', 1000)\n"
# Its clock is put forward: nobody can wait for half an hour here.
CLOCK = r"""
mv /usr/bin/date /usr/bin/date.real
printf '#!/bin/sh\nexec /usr/bin/date.real -d "+$(cat /etc/ahead_s) seconds" "$@"\n' >/usr/bin/date
chmod 755 /usr/bin/date
"""


@pytest.fixture
def site(machines):
    with a_site(machines) as site:
        yield site


@pytest.fixture
def home(site, tmp_path):
    with served(site, tmp_path / "home") as home:
        yield home


def abandoned(home: Home, machines: LabMachines, tmp_path, platform) -> str:
    """A machine at work whose controller was killed and does not come back."""
    payload = lab.a_payload(tmp_path / "payload", lab.demo("work", "work.py"), {"work.py": JOB})
    limits = {"max_minutes": 0.5}
    home.launch(lab.a_matrix(tmp_path / "m.yaml", payload, platform, limits=limits))
    machine = lab.the_machine(machines)
    lab.gate(machines, machine, "work")
    home.kill_controller()
    return machine


def deadline_of(machines: LabMachines, machine: str) -> int:
    """When its guest timer will fire, as the timer itself was told."""

    def armed() -> list[str]:
        words = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' || :"
        return re.findall(r"-lt (\d+) \]", lab.shell(machines, machine, words))

    eventually(armed, deadline_s=30)
    (one,) = set(armed())
    return int(one)


def put_forward(machines: LabMachines, machine: str, ahead_s: float) -> None:
    lab.shell(machines, machine, f"echo {ahead_s:.0f} >/etc/ahead_s")


def ahead(seconds: float) -> Callable[[], datetime]:
    return lambda: datetime.now(UTC) + timedelta(seconds=seconds)


def test_ec2_terminates_what_its_own_timer_shut_down(home, site, machines, tmp_path):
    machine = abandoned(home, machines, tmp_path, lab.AWS)
    deadline = deadline_of(machines, machine)
    (call,) = [call for call in site.aws.calls if call.name == "RunInstances"]
    assert str(deadline) in call.details.values(), "the timer's is the tags' expires-at"
    lab.shell(machines, machine, f"echo 0 >/etc/ahead_s{CLOCK}")
    eventually(lambda: lab.shell(machines, machine, "pgrep -f [w]ork.py || :") == "", deadline_s=60)
    machines.reboot(machine)
    eventually(lambda: machines.is_up(machine), deadline_s=60)
    assert deadline_of(machines, machine) == deadline, "armed again, for the same moment"
    ahead_s = deadline - datetime.now(UTC).timestamp() - 12
    assert 20 * 60 < ahead_s < 30 * 60
    put_forward(machines, machine, ahead_s)
    eventually(lambda: machine not in machines.live(), deadline_s=60)
    late_s = datetime.now(UTC).timestamp() + ahead_s - deadline
    assert 0 <= late_s < 15, late_s
    eventually(lambda: site.aws.state(machine) == "terminated", deadline_s=30)
    lab.nothing_left(site)
    assert not [call for call in site.aws.calls if call.name == "TerminateInstances"]


def test_gce_deletes_what_nobody_ended(home, site, machines, tmp_path):
    machine = abandoned(home, machines, tmp_path, lab.GCP)
    deadline = deadline_of(machines, machine)
    # Google's own limit is ten minutes before; it counts from RUNNING, in whole minutes.
    ahead_s = deadline - 400 - datetime.now(UTC).timestamp()
    lab.shell(machines, machine, f"echo {ahead_s:.0f} >/etc/ahead_s{CLOCK}")
    site.compute.clock = ahead(ahead_s)
    eventually(lambda: machine not in machines.live(), deadline_s=150)
    lab.nothing_left(site)
    assert not [call for call in site.compute.calls if call.name == "instances.delete"]


def test_a_gce_machine_has_the_guest_timer_too(home, site, machines, tmp_path):
    machine = abandoned(home, machines, tmp_path, lab.GCP)
    deadline = deadline_of(machines, machine)
    lab.shell(machines, machine, f"echo 0 >/etc/ahead_s{CLOCK}")
    machines.reboot(machine)
    eventually(lambda: machines.is_up(machine), deadline_s=60)
    assert deadline_of(machines, machine) == deadline
    put_forward(machines, machine, deadline - datetime.now(UTC).timestamp() - 6)
    eventually(lambda: machine not in machines.live(), deadline_s=60)


def test_a_tpu_ends_its_work_though_not_its_bill(home, site, machines, tmp_path):
    machine = abandoned(home, machines, tmp_path, lab.TPU)
    deadline = deadline_of(machines, machine)
    ahead_s = deadline - datetime.now(UTC).timestamp() - 6
    lab.shell(machines, machine, f"echo {ahead_s:.0f} >/etc/ahead_s{CLOCK}")
    eventually(lambda: machine not in machines.live(), deadline_s=60)
    assert site.tpu.alive(), "the janitor's, not its own"
