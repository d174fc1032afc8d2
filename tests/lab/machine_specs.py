"""Machines as the tests of the lab itself ask for them."""

from __future__ import annotations

import time

from tests.lab.lab_machines import LabMachines
from tests.lab.machines import MachineSpec
from tests.lab.ssh_access import Keys, wait_until

PRIVATE, PUBLIC = "10.20.0.4", "54.214.10.4"


def ec2(
    keys: Keys, id_: str = "i-0a", *, more: str = "", n: int = 4, device: str = ""
) -> MachineSpec:
    addresses = (f"10.20.0.{n}", f"54.214.10.{n}")
    data = keys.cloud_config(more)
    return MachineSpec(id_, "aws", addresses, f"ip-10-20-0-{n}", user_data=data, device=device)


def gce(keys: Keys, **more: str) -> MachineSpec:
    told = {"ssh-keys": f"runner:{keys.user_key} runner", "enable-guest-attributes": "TRUE"}
    return MachineSpec("4711", "gcp", (PRIVATE, PUBLIC), "gpu-1", attributes={**told, **more})


def up(machines: LabMachines, spec: MachineSpec) -> float:
    started = time.monotonic()
    if spec.id not in machines.live():
        machines.boot(spec)
    wait_until(lambda: machines.is_up(spec.id), f"{spec.id} is up: {machines.console(spec.id)}")
    return time.monotonic() - started


def curl(*arguments: str) -> list[str]:
    return ["curl", "-s", "-m", "5", "-w", "\n%{http_code}", *arguments]


def ask(machines: LabMachines, id_: str, path: str, *headers: str, put: str | None = None) -> str:
    """The body, and the status on the last line."""
    more = [word for header in headers for word in ("-H", header)]
    more += [] if put is None else ["-X", "PUT", "-d", put]
    return machines.execute(id_, *curl(*more, f"http://169.254.169.254{path}")).stdout
