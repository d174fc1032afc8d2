"""What can be wrong with the lab's machines, and be made wrong. Run inside the seal."""

from __future__ import annotations

import socket
import time

import paramiko
import pytest

from tests.lab.image import PYTORCH
from tests.lab.lab_machines import Spoil
from tests.lab.machine_specs import PUBLIC, ask, ec2, up
from tests.lab.ssh_access import connect, make_keys, run, wait_until

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed")]


def test_a_wrong_host_key_is_noticed(machines, keys, tmp_path):
    up(machines, ec2(keys))
    other = make_keys(tmp_path / "other").host_key
    with pytest.raises(paramiko.BadHostKeyException):
        connect(PUBLIC, keys, host_key=other)


def test_a_spoilt_machine_has_another_host_key_than_it_was_given(machines, keys):
    machines.spoil(lambda spec: Spoil(other_host_key=True))
    up(machines, ec2(keys))
    with pytest.raises(paramiko.BadHostKeyException):
        connect(PUBLIC, keys)


def test_a_machine_that_never_boots_has_ended(machines, keys):
    machines.spoil(lambda spec: Spoil(never_boots=True) if spec.id == "i-0a" else None)
    machines.boot(ec2(keys))
    wait_until(lambda: machines.has_ended("i-0a"), "it ends")
    up(machines, ec2(keys, "i-0b", n=5))


def test_a_cut_swallows_packets_and_a_heal_lets_the_connection_go_on(machines, keys):
    up(machines, ec2(keys))
    with connect(PUBLIC, keys) as client:
        machines.cut("i-0a")
        with pytest.raises(TimeoutError):
            connect(PUBLIC, keys, timeout_s=0.5)
        assert ask(machines, "i-0a", "/latest/meta-data/instance-id").endswith("401")
        machines.heal("i-0a")
        assert run(client, "echo on").strip() == "on"


def test_hung_ssh_lets_connect_and_says_nothing(machines, keys):
    up(machines, ec2(keys))
    machines.hang_ssh("i-0a")
    with socket.create_connection((PUBLIC, 22), timeout=2.0) as peer:
        peer.settimeout(0.5)
        with pytest.raises(TimeoutError):
            peer.recv(4)
    machines.unhang_ssh("i-0a")
    connect(PUBLIC, keys).close()


def test_swallowed_ssh_is_on_a_machine_that_is_up(machines, keys):
    machines.spoil(lambda spec: Spoil(ssh_swallowed=True))
    up(machines, ec2(keys))
    with pytest.raises(TimeoutError):
        connect(PUBLIC, keys, timeout_s=0.5)
    machines.heal("i-0a")
    connect(PUBLIC, keys).close()


def test_ssh_that_never_opens_is_on_a_machine_that_is_up(machines, keys):
    machines.spoil(lambda spec: Spoil(ssh_hangs=True))
    up(machines, ec2(keys))
    with pytest.raises(paramiko.SSHException):
        connect(PUBLIC, keys, timeout_s=0.5)


def test_what_else_can_be_wrong_with_a_machine(machines, keys):
    wrong = {
        "i-1": Spoil(apt_locked_s=3600),
        "i-2": Spoil(cloud_init_hangs=True),
        "i-3": Spoil(cloud_init_fails=True),
    }
    machines.spoil(lambda spec: wrong.get(spec.id))
    for n, id_ in enumerate((*wrong, "i-4"), start=1):
        up(machines, ec2(keys, id_, n=n))

    def code(id_: str, command: str) -> int:
        return machines.execute(id_, "sh", "-c", command).returncode

    assert code("i-3", "cloud-init status --wait") == 1
    assert code("i-2", "timeout 2 cloud-init status --wait") == 124
    assert code("i-1", "cloud-init status --wait; apt-get -qq remove tini -s") == 0
    assert code("i-1", "fuser -s /var/lib/dpkg/lock-frontend") == 0
    assert code("i-1", "apt-get -qq -y install rsync") == 100
    assert code("i-4", "cloud-init status --wait") == 0
    lock = "fuser -s /var/lib/dpkg/lock-frontend"
    wait_until(lambda: code("i-4", lock) == 1, "the upgrade of the first boot ends")
    assert code("i-4", "apt-get -qq -y install rsync") == 0
    machines.reboot("i-4")
    wait_until(lambda: machines.is_up("i-4"), "it is up again")
    assert code("i-4", lock) == 1


def test_the_first_start_of_the_images_python_reads_a_cold_disk(machines, keys):
    machines.spoil(lambda spec: Spoil(cold_s=2.0))
    up(machines, ec2(keys))
    took = []
    for _ in range(2):
        begun = time.monotonic()
        told = machines.execute(
            "i-0a", f"{PYTORCH}/bin/python", "-c", "import sys; print(sys.prefix)"
        )
        took.append(time.monotonic() - begun)
        assert told.stdout.strip() == PYTORCH
    assert took[0] > 2.0 > took[1]


def test_a_pulled_plug_is_silent(machines, keys):
    up(machines, ec2(keys))
    with connect(PUBLIC, keys) as client:
        _, output, _ = client.exec_command("sleep 1000")
        output.channel.settimeout(1.0)
        machines.kill("i-0a")
        wait_until(lambda: machines.has_ended("i-0a"), "it ends")
        with pytest.raises(TimeoutError):
            output.channel.recv(1)
        client.get_transport().sock.close()
