"""What the lab's machines have of each cloud: metadata, agent, devices. Run inside the seal."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import paramiko
import pytest

from tests.lab.cloud_facts import uplink_mbit_s
from tests.lab.lab_machines import Spoil
from tests.lab.machine_specs import PUBLIC, ask, ec2, gce, up
from tests.lab.netns import BURST_BYTES
from tests.lab.ssh_access import Keys, connect, run, wait_until

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed")]

AT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
REPOSITORY = Path(__file__).resolve().parents[2]


def test_ec2_metadata_needs_a_token_and_tells_of_an_interruption(machines, keys):
    up(machines, ec2(keys))
    data = "/latest/meta-data"
    assert ask(machines, "i-0a", f"{data}/instance-id").endswith("\n401")
    assert ask(machines, "i-0a", "/latest/api/token", put="").endswith("\n400")
    ttl = "X-aws-ec2-metadata-token-ttl-seconds: 60"
    token, code = ask(machines, "i-0a", "/latest/api/token", ttl, put="").split("\n")
    assert code == "200"
    header = f"X-aws-ec2-metadata-token: {token}"
    assert ask(machines, "i-0a", f"{data}/instance-id", header) == "i-0a\n200"
    assert ask(machines, "i-0a", f"{data}/instance-id", header + "x").endswith("401")
    for path in ("spot/instance-action", "events/recommendations/rebalance"):
        assert ask(machines, "i-0a", f"{data}/{path}", header).endswith("404")
    machines.announce_preemption("i-0a", AT)
    text, code = ask(machines, "i-0a", f"{data}/spot/instance-action", header).split("\n")
    assert json.loads(text) == {"action": "terminate", "time": "2030-01-02T03:04:05Z"}
    assert "noticeTime" in ask(machines, "i-0a", f"{data}/events/recommendations/rebalance", header)
    assert "GET /latest/meta-data/instance-id 401" in machines.requests("i-0a")


def test_google_metadata_needs_its_header_and_tells_of_a_preemption(machines, keys):
    up(machines, gce(keys, colour="red"))
    base, header = "/computeMetadata/v1/instance", "Metadata-Flavor: Google"
    assert ask(machines, "4711", f"{base}/id").endswith("403")
    assert ask(machines, "4711", f"{base}/id", header) == "4711\n200"
    assert ask(machines, "4711", f"{base}/name", header) == "gpu-1\n200"
    assert ask(machines, "4711", f"{base}/attributes/colour", header) == "red\n200"
    assert ask(machines, "4711", f"{base}/attributes/none", header).endswith("404")
    assert ask(machines, "4711", f"{base}/preempted", header) == "FALSE\n200"
    machines.announce_preemption("4711", AT)
    assert ask(machines, "4711", f"{base}/preempted", header) == "TRUE\n200"


def opens(host_key, keys):
    with contextlib.suppress(OSError, paramiko.SSHException):
        connect(PUBLIC, keys, host_key=host_key, user="runner").close()
        return True
    return False


def test_google_machines_make_users_publish_host_keys_and_run_the_script_at_each_boot(
    machines, keys
):
    script = "#!/bin/sh\nid -un >> /var/log/script\necho from the script\nsleep 300\n"
    spec = gce(keys, **{"startup-script": script})
    up(machines, spec)
    first = machines.guest_attributes(spec.id)["hostkeys/ssh-ed25519"]
    wait_until(
        lambda: machines.guest_attributes(spec.id)["hostkeys/ssh-ed25519"] != first,
        "the guest agent publishes the key that it made itself",
    )
    published = machines.guest_attributes(spec.id)["hostkeys/ssh-ed25519"]
    host_key = f"ssh-ed25519 {published}"
    # sshd starts again with the new key after that is published.
    wait_until(partial(opens, host_key, keys), "sshd answers with it")
    with connect(PUBLIC, keys, host_key=host_key, user="runner") as client:
        assert run(client, "sudo -n id -un").strip() == "root"
        assert "status: done" in run(client, "cloud-init status --wait")
    machines.reboot(spec.id)
    up(machines, spec)
    with connect(PUBLIC, keys, host_key=host_key, user="runner") as client:
        run(client, "until [ $(wc -l </var/log/script) = 2 ]; do sleep 0.05; done", 10)
        assert run(client, "cat /var/log/script").split() == ["root", "root"]
    wait_until(lambda: machines.console(spec.id).count("from the script") == 2, "both are told")


def test_google_machines_keep_their_host_keys_to_themselves_unless_asked(machines, keys):
    spec = gce(keys, **{"enable-guest-attributes": "FALSE"})
    up(machines, spec)
    assert machines.guest_attributes(spec.id) == {}


def test_google_user_data_goes_to_cloud_init(machines, keys):
    spec = gce(keys, **{"user-data": keys.cloud_config("runcmd: ['touch /run/ran']\n")})
    up(machines, spec)
    with connect(PUBLIC, keys, user="runner") as client:
        run(client, "cloud-init status --wait; test -e /run/ran")


@pytest.mark.parametrize(("asked", "name"), [("A10G", "NVIDIA A10G"), ("L4", "NVIDIA L4")])
def test_the_agents_probe_finds_the_gpu_that_the_machine_plays(machines, keys, asked, name):
    up(machines, ec2(keys, device=asked))
    wait_until(lambda: probed(keys), "the driver answers")
    (gpu,) = probed(keys)
    assert gpu["vendor"] == "nvidia"
    assert gpu["name"] == name
    assert gpu["uuid"].startswith("GPU-")
    assert gpu["compute_capability"] == {"A10G": "8.6", "L4": "8.9"}[asked]
    assert gpu["memory_bytes"] == {"A10G": 23028, "L4": 23034}[asked] * 1024 * 1024
    machines.break_driver("i-0a")
    assert probed(keys) == []
    broken = machines.execute("i-0a", "nvidia-smi")
    assert broken.returncode == 9
    assert broken.stdout.startswith("NVIDIA-SMI has failed because it couldn't communicate with")


def test_a_machine_can_have_another_gpu_than_was_asked_for(machines, keys):
    machines.spoil(lambda spec: Spoil(device="T4"))
    up(machines, ec2(keys, device="A10G"))
    wait_until(lambda: probed(keys), "the driver answers")
    assert [gpu["name"] for gpu in probed(keys)] == ["Tesla T4"]


def test_the_driver_answers_some_time_after_a_boot(machines, keys):
    machines.spoil(lambda spec: Spoil(driver_late_s=3600))
    up(machines, ec2(keys, device="L4"))
    assert probed(keys) == []
    (check,) = [one for one in agent(keys, "ready")["checks"] if one["check"] == "driver"]
    assert check["state"] == "waiting"
    assert "couldn't communicate with the NVIDIA driver" in check["detail"]


def test_what_is_sent_to_a_machine_takes_the_time_of_an_uplink(machines, keys):
    size = 24_000_000
    up(machines, ec2(keys))
    with connect(PUBLIC, keys) as client:
        send, _, _ = client.exec_command("cat >/dev/null")
        began = time.monotonic()
        send.write(bytes(size))
        send.channel.shutdown_write()
        send.channel.recv_exit_status()
        took_s = time.monotonic() - began
    assert took_s > (size - BURST_BYTES) * 8 / (uplink_mbit_s() * 1e6)


def test_the_agents_probe_finds_the_tpu_and_no_device_where_there_is_none(machines, keys):
    up(machines, ec2(keys, device="v5litepod-1"))
    assert [(d["vendor"], d["name"]) for d in probed(keys)] == [("google", "TPU v5e")]
    machines.break_driver("i-0a")
    assert probed(keys) == []
    machines.remove("i-0a")
    up(machines, ec2(keys))
    assert probed(keys) == []
    assert machines.execute("i-0a", "ls", "/sys/bus").stdout == ""


def test_a_gpu_can_be_there_without_its_tools(machines, keys):
    machines.spoil(lambda spec: Spoil(driver_missing=True))
    up(machines, ec2(keys, device="L4"))
    assert probed(keys) == []
    shown = machines.execute("i-0a", "sh", "-c", "cat /sys/bus/pci/devices/*/vendor").stdout
    assert shown == "0x10de\n"


def probed(keys: Keys) -> list[dict]:
    """What the agent's probe says about the machine's devices."""
    return agent(keys, "probe --candidate python3")["devices"]


def agent(keys: Keys, command: str) -> dict:
    """What the agent answers, shipped as the product does it."""
    packed = subprocess.run(
        ["tar", "c", "-C", str(REPOSITORY / "runners"), "--exclude=__pycache__", "agent"],
        check=True, capture_output=True,
    ).stdout  # fmt: skip
    with connect(PUBLIC, keys) as client:
        stdin, stdout, _ = client.exec_command("tar x", timeout=20)
        stdin.write(packed)
        stdin.channel.shutdown_write()
        assert stdout.channel.recv_exit_status() == 0
        return json.loads(run(client, f"python3 -E -s -m agent {command}"))
