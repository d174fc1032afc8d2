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
    home.launch(lab.a_matrix(tmp_path / "m.yaml", payload, platform))
    machine = lab.the_machine(machines)
    lab.gate(machines, machine, "work")
    home.kill_controller()
    return machine


def deadline_of(machines: LabMachines, machine: str) -> int:
    """When its guest timer will fire, as the timer itself was told."""

    def armed() -> list[str]:
        words = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' || :"
        return re.findall(r"-lt (\d+) \]", lab.shell(machines, machine, words))

    eventually(armed, deadline_s=60)
    (one,) = set(armed())
    return int(one)


def ahead_of(deadline: int, left_s: float = 0.0) -> float:
    """By how much a clock is put forward, so that so many seconds are left."""
    return deadline - left_s - datetime.now(UTC).timestamp()


def ahead(seconds: float) -> Callable[[], datetime]:
    return lambda: datetime.now(UTC) + timedelta(seconds=seconds)


def test_ec2_terminates_what_its_own_timer_shut_down(home, site, machines, tmp_path):
    machine = abandoned(home, machines, tmp_path, lab.AWS)
    deadline = deadline_of(machines, machine)
    (call,) = [call for call in site.aws.calls if call.name == "RunInstances"]
    assert str(deadline) in call.details.values(), "the timer's is the tags' expires-at"
    machines.reboot(machine)
    eventually(lambda: machines.is_up(machine), deadline_s=120)
    assert deadline_of(machines, machine) == deadline, "armed again, for the same moment"
    ahead_s = ahead_of(deadline, left_s=12)
    assert 20 * 60 < ahead_s < 40 * 60
    machines.put_forward(machine, ahead_s)
    eventually(lambda: machine not in machines.live(), deadline_s=120)
    assert datetime.now(UTC).timestamp() + ahead_s >= deadline, "not before it"
    eventually(lambda: site.aws.state(machine) == "terminated", deadline_s=60)
    lab.nothing_left(site)
    assert not [call for call in site.aws.calls if call.name == "TerminateInstances"]


def test_gce_deletes_what_nobody_ended(home, site, machines, tmp_path):
    machine = abandoned(home, machines, tmp_path, lab.GCP)
    # Google's own limit is ten minutes before; it counts from RUNNING, in whole minutes.
    ahead_s = ahead_of(deadline_of(machines, machine), left_s=400)
    machines.put_forward(machine, ahead_s)
    site.compute.clock = ahead(ahead_s)
    eventually(lambda: machine not in machines.live(), deadline_s=150)
    lab.nothing_left(site)
    assert not [call for call in site.compute.calls if call.name == "instances.delete"]


def test_a_gce_machine_has_the_guest_timer_too(home, site, machines, tmp_path):
    machine = abandoned(home, machines, tmp_path, lab.GCP)
    deadline = deadline_of(machines, machine)
    machines.reboot(machine)
    eventually(lambda: machines.is_up(machine), deadline_s=120)
    assert deadline_of(machines, machine) == deadline
    machines.put_forward(machine, ahead_of(deadline))
    eventually(lambda: machine not in machines.live(), deadline_s=120)


def test_a_tpu_ends_its_work_though_not_its_bill(home, site, machines, tmp_path):
    machine = abandoned(home, machines, tmp_path, lab.TPU)
    machines.put_forward(machine, ahead_of(deadline_of(machines, machine)))
    eventually(lambda: machine not in machines.live(), deadline_s=120)
    assert site.tpu.alive(), "the janitor's, not its own"
