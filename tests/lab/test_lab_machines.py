"""The lab's machines are what the clouds' machines are to the product. Run inside the seal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import image, seal
from tests.lab.machine_specs import PRIVATE, PUBLIC, ec2, up
from tests.lab.ssh_access import connect, run, wait_until

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed")]

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_machine_is_signed_in_to_by_each_address_with_the_injected_host_key(machines, keys):
    took = up(machines, ec2(keys))
    for address in (PRIVATE, PUBLIC):
        with connect(address, keys) as client:
            said = run(client, "id -un; sudo -n id -un; hostname; cat /proc/sys/kernel/hostname")
            assert said.split() == ["ubuntu", "root", "ip-10-20-0-4", "ip-10-20-0-4"]
    assert took < 15.0  # about one second where nothing else runs
    assert machines.live() == ("i-0a",)


def test_the_image_has_torch_and_debians_python(machines, keys):
    up(machines, ec2(keys))
    with connect(PUBLIC, keys) as client:
        code = "import numpy, torch; print(torch.__version__, int(torch.ones(3).sum()))"
        assert run(client, f"/opt/pytorch/bin/python -c '{code}'").split() == ["2.13.0+cpu", "3"]
        # Of the process: the image's own file starts it late, as from a cold disk.
        code = 'import os; print(os.readlink("/proc/self/exe"))'
        assert run(client, f"/opt/pytorch/bin/python -c '{code}'").strip() == "/usr/bin/python3.11"
        run(
            client,
            "/usr/bin/python3 -m venv --without-pip /tmp/overlay && /tmp/overlay/bin/python -V",
        )


def test_cloud_init_runs_bootcmd_at_each_boot_and_runcmd_once(machines, keys):
    lines = "bootcmd: ['echo b >> /var/log/b']\nruncmd: ['echo r >> /var/log/r']\n"
    lines += "write_files: [{path: /etc/written, content: yes-it-was}]\n"
    spec = ec2(keys, more=lines)
    up(machines, spec)
    with connect(PUBLIC, keys) as client:
        assert "status: done" in run(client, "cloud-init status --wait")
        assert run(client, "cat /var/log/b /var/log/r /etc/written").split() == [
            "b", "r", "yes-it-was",
        ]  # fmt: skip
        run(client, "echo mine > ~/kept; nohup sleep 1000 >/dev/null 2>&1 &")
    machines.reboot(spec.id)
    assert not machines.is_up(spec.id)
    up(machines, spec)
    with connect(PUBLIC, keys) as client:  # the host key has stayed as well
        run(client, "cloud-init status --wait")
        assert run(client, "cat /var/log/b /var/log/r ~/kept").split() == ["b", "b", "r", "mine"]
        assert run(client, "pgrep -x sleep -a").split() == [
            run(client, "cat /run/lab/init.pid").strip(), "sleep", "infinity",
        ]  # fmt: skip
    assert not machines.has_ended(spec.id)


@pytest.mark.parametrize(
    "how", ["shutdown -h now", "poweroff", "systemctl poweroff", "shutdown -P now"]
)
def test_a_machine_that_shuts_itself_down_has_ended(machines, keys, how):
    spec = ec2(keys)
    up(machines, spec)
    with connect(PUBLIC, keys) as client:
        _ = client.exec_command(f"sudo {how}")  # its exit code may not arrive any more
        wait_until(lambda: machines.has_ended(spec.id), "it ends")
    assert not machines.is_up(spec.id)
    assert machines.live() == ()
    with pytest.raises(TimeoutError):  # swallowed, not refused
        connect(PUBLIC, keys, timeout_s=0.5)


def test_a_shutdown_can_be_timed_and_asks_everybody_first(machines, keys):
    spec = ec2(keys, more="bootcmd: ['( sleep 3; shutdown -h now ) >/dev/null 2>&1 &']\n")
    up(machines, spec)
    with connect(PUBLIC, keys) as client:
        trap = "trap 'echo asked > /proc/1/fd/1; exit' TERM; while :; do sleep 0.1; done"
        run(client, f'sudo shutdown -h +5; sudo setsid sh -c "{trap}" >/dev/null 2>&1 </dev/null &')
        wait_until(lambda: machines.has_ended(spec.id), "the timer ends it")
    assert "asked" in machines.console(spec.id)
    assert "lab: poweroff" in machines.console(spec.id)


def test_only_root_may_shut_down_and_a_planned_end_can_be_taken_back(machines, keys):
    spec = ec2(keys)
    up(machines, spec)
    with connect(PUBLIC, keys) as client:
        assert run(client, "shutdown -h now 2>&1 || echo no").split("\n")[-2] == "no"
        assert "not been booted" in run(client, "systemctl is-active ssh 2>&1 || true")
        run(client, "sudo shutdown -h +1; until pgrep -fx 'sleep 60'; do sleep 0.05; done", 5)
        run(client, "sudo shutdown -c; while pgrep -fx 'sleep 60'; do sleep 0.05; done", 5)
    assert not machines.has_ended(spec.id)


def test_a_reboot_from_within_comes_back_with_the_same_disk(machines, keys):
    spec = ec2(keys)
    up(machines, spec)
    with connect(PUBLIC, keys) as client:
        _ = client.exec_command("echo mine > ~/kept; sudo reboot")
        wait_until(lambda: not machines.is_up(spec.id), "it goes down")
    up(machines, spec)
    with connect(PUBLIC, keys) as client:
        assert run(client, "cat ~/kept").strip() == "mine"


def test_nothing_of_this_computer_is_seen_or_written(machines, keys):
    up(machines, ec2(keys))
    with connect(PUBLIC, keys) as client:
        for path in (REPOSITORY, Path(sys.prefix), keys.user):
            run(client, f"sudo test ! -e {path}")
        assert run(client, "ls /home").split() == ["ubuntu"]
        assert set(run(client, "sudo ls -A /root").split()) <= {".bashrc", ".profile", ".ssh"}
        size_kib = int(run(client, "df --output=size /").split()[-1])
        assert size_kib <= 3 * 1024 * 1024
        run(client, "sudo touch /etc/lab-was-here /usr/bin/lab-was-here")
        assert run(client, "ps -e -o pid= | wc -l").strip() != ""
        assert str(os.getpid()) not in run(client, "ps -e -o args= | grep pytest || true")
    assert not (image.require() / "etc/lab-was-here").exists()
    assert not Path("/usr/bin/lab-was-here").exists()


def test_four_machines_at_once(machines, keys):
    started = time.monotonic()
    specs = [ec2(keys, f"i-{n}", n=n) for n in range(10, 14)]
    for spec in specs:
        machines.boot(spec)
    assert time.monotonic() - started < 1.0  # boot returns at once
    for spec in specs:
        up(machines, spec)
        with connect(spec.addresses[1], keys) as client:
            assert run(client, "hostname").strip() == spec.hostname
    print(f"four machines: {time.monotonic() - started:.1f} s")
    with connect(PUBLIC.replace(".4", ".10"), keys) as client:  # and they see one another
        run(client, "timeout 3 bash -c 'head -c 4 </dev/tcp/10.20.0.11/22'")


def test_the_same_id_twice_is_an_error_and_so_is_an_address_that_is_taken(machines, keys):
    up(machines, ec2(keys))
    with pytest.raises(ValueError, match="i-0a"):
        machines.boot(ec2(keys))
    machines.boot(ec2(keys, "i-0b"))
    wait_until(lambda: machines.has_ended("i-0b"), "the address is taken")
    assert "could not be made" in machines.console("i-0b")


def test_remove_leaves_nothing(machines, keys):
    def state() -> tuple[str, str, list[str], int]:
        mounts = Path("/proc/self/mounts").read_text()
        devices = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True).stdout
        files = sorted(str(path) for path in seal.MACHINES.rglob("*"))
        processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return mounts, devices, files, len(processes)

    open_files = len(os.listdir("/proc/self/fd"))
    before = state()
    up(machines, ec2(keys))
    with connect(PUBLIC, keys) as client:
        run(client, "setsid nohup sleep 1000 >/dev/null 2>&1 </dev/null &")
        assert state() != before
        started = time.monotonic()
        machines.remove("i-0a")
        assert time.monotonic() - started < 3.0
    wait_until(lambda: state() == before, f"as before: {before} {state()}", 3.0)
    wait_until(lambda: len(os.listdir("/proc/self/fd")) == open_files, "files are closed", 3.0)
    machines.remove("i-0a")  # unknown is no error
    machines.remove("i-never")
    assert machines.live() == ()
    assert not machines.is_up("i-0a")
    with pytest.raises(TimeoutError):
        connect(PUBLIC, keys, timeout_s=0.5)
    up(machines, ec2(keys))  # the id and its addresses are free again


def test_a_machine_may_be_removed_while_it_boots(machines, keys):
    for pause_s in (0.0, 0.05, 0.3):
        machines.boot(ec2(keys))
        time.sleep(pause_s)
        machines.remove("i-0a")
        assert machines.live() == ()


def test_machines_reach_nobody_either(machines, keys):
    up(machines, ec2(keys))
    gone = machines.execute("i-0a", "timeout", "1", "bash", "-c", "echo > /dev/tcp/54.214.99.99/22")
    assert gone.returncode == 124
