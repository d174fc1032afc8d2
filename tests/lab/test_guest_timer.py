"""What the product tells its machines at boot works on real ones. Run inside the seal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.domain.machine import Login
from runners import first_boot
from tests.lab.lab_machines import LabMachines
from tests.lab.machine_specs import PRIVATE, PUBLIC, gce, up
from tests.lab.machines import MachineSpec
from tests.lab.ssh_access import connect, run, wait_until

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed")]

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"


def soon(after_s: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=after_s)


def told(keys, user: str, expires_at: datetime) -> MachineSpec:
    login = Login(
        public_key=keys.user_key,
        private_key=keys.user.read_text(),
        host_public_key=keys.host_key,
        host_private_key=keys.host.read_text(),
    )
    text = first_boot.cloud_config(login, user=user, expires_at=expires_at, templates=TEMPLATES)
    return MachineSpec("i-0a", "aws", (PRIVATE, PUBLIC), "ip-10-20-0-4", user_data=text)


@pytest.mark.parametrize("user", ["ubuntu", "runner"])
def test_the_user_data_lets_the_user_in_with_the_injected_host_key(machines, keys, user):
    spec = told(keys, user, soon(600))
    up(machines, spec)
    with connect(PUBLIC, keys, user=user) as client:
        assert run(client, "id -un; sudo -n id -un").split() == [user, "root"]
        assert "status: done" in run(client, "cloud-init status --wait")
        run(client, "pgrep -f seatrial-deadline")
    machines.reboot(spec.id)
    up(machines, spec)
    with connect(PUBLIC, keys, user=user) as client:  # armed again
        run(client, "pgrep -f seatrial-deadline")
    assert machines.live() == (spec.id,)


def test_googles_guest_agent_leaves_the_injected_host_key_alone(machines, keys):
    spec = gce(keys, **{"user-data": told(keys, "ubuntu", soon(600)).user_data})
    up(machines, spec)
    asked = "pgrep -f '[g]uest_agent.py host_keys' || echo ended"
    wait_until(lambda: "ended" in machines.execute(spec.id, "sh", "-c", asked).stdout, "it ends")
    with connect(PUBLIC, keys) as client:
        assert "status: done" in run(client, "cloud-init status --wait")
    published = machines.guest_attributes(spec.id)["hostkeys/ssh-ed25519"]
    assert keys.host_key == f"ssh-ed25519 {published}"


@pytest.mark.slow
def test_the_deadline_ends_the_machine_also_after_a_reboot(machines, keys):
    deadline = soon(1800)
    spec = told(keys, "ubuntu", deadline)
    up(machines, spec)
    machines.reboot(spec.id)
    up(machines, spec)
    is_over(machines, spec, deadline)


@pytest.mark.slow
def test_the_startup_script_has_the_same_deadline(machines, keys):
    deadline = soon(1800)
    script = first_boot.startup_script(expires_at=deadline, templates=TEMPLATES)
    spec = gce(keys, **{"startup-script": script})
    up(machines, spec)
    wait_until(lambda: "exit status 0" in machines.console(spec.id), "the script has ended")
    is_over(machines, spec, deadline)


def is_over(machines: LabMachines, spec: MachineSpec, deadline: datetime) -> None:
    """Put its clock to 15 s before the deadline, and wait for its end; not before it."""
    ahead = deadline - datetime.now(UTC) - timedelta(seconds=15)
    machines.put_forward(spec.id, ahead.total_seconds())
    wait_until(lambda: machines.has_ended(spec.id), "the deadline ends it")
    assert datetime.now(UTC) + ahead >= deadline
