"""Small payloads and matrices for single questions to machines of the lab."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.home import Home, eventually
from tests.lab.lab_machines import LabMachines
from tests.lab.site import Site

AWS: Mapping[str, object] = {
    "id": "aws",
    "provider": "aws",
    "instance_type": "g5.xlarge",
    "accelerator": {"vendor": "nvidia", "name": "A10G", "compute_capability": "8.6"},
    "locations": ["us-east-1"],
    "market": ["spot", "on-demand"],
}
GCP: Mapping[str, object] = {
    "id": "gcp",
    "provider": "gcp",
    "instance_type": "g2-standard-4",
    "accelerator": {"vendor": "nvidia", "name": "L4", "compute_capability": "8.9"},
    "locations": ["us-central1"],
    "market": ["spot", "on-demand"],
}
TPU: Mapping[str, object] = {
    "id": "tpu",
    "provider": "tpu",
    "accelerator_type": "v5litepod-1",
    "runtime_version": "v2-alpha-tpuv5-lite",
    "locations": ["us-central1-a", "us-west4-a"],
    "market": ["spot", "on-demand"],
}
# Says that it is there, then waits for a person: for `gate`, called from the test.
WAIT = """
import pathlib, sys, time

def at(gate, limit_s=240.0):
    print(f"at gate {gate}", flush=True)
    pathlib.Path(f"/tmp/at-{gate}").touch()
    end = time.monotonic() + limit_s
    while not pathlib.Path(f"/tmp/go-{gate}").exists():
        if time.monotonic() > end:
            sys.exit(f"nobody opened gate {gate}")
        time.sleep(0.2)
"""
_PYTHON = '[python]\ncandidates = ["/opt/pytorch/bin/python", "python3"]\n'


def a_payload(folder: Path, jobs: str, files: Mapping[str, str], more: str = "") -> Path:
    """Write a payload; `jobs` and `more` are parts of its manifest."""
    folder.mkdir(parents=True)
    head = 'schema = 1\nname = "lab"\nversion = "1"\n'
    (folder / "payload.toml").write_text(head + _PYTHON + more + jobs)
    for name, text in {"gates.py": WAIT, **files}.items():
        (folder / name).write_text(text)
    return folder


def demo(id_: str, script: str, more: str = "") -> str:
    """A job that runs a script of the payload."""
    command = f'["{{python}}", "-u", "{script}"]'
    return f'[[job]]\nid = "{id_}"\nkind = "demo"\ncommand = {command}\n{more}\n'


def suite(id_: str, file: str, more: str = "") -> str:
    """A job that runs pytest, whose tests may print."""
    return f'[[job]]\nid = "{id_}"\nkind = "suite"\npytest = ["-s", "{file}"]\n{more}\n'


def a_matrix(path: Path, payload: Path, *platforms: Mapping[str, object], **more: object) -> Path:
    """Write a matrix, which is YAML, as JSON; `limits` and `jobs` may be given."""
    limits = {"max_usd": "40.00", "max_minutes": 10, "infra_retries": 2}
    document: dict[str, Any] = {
        "apiVersion": "seatrial/v1",
        "kind": "Matrix",
        "metadata": {"name": path.stem},
        "subject": {"name": "lab", "version": "1"},
        "payload": {"path": str(payload)},
        "platforms": list(platforms),
        "jobs": [{"select": "*"}],
        **more,
    }
    document["limits"] = limits | document.get("limits", {})
    path.write_text(json.dumps(document))
    return path


def cell(home: Home, run: str, name: str) -> dict[str, Any]:
    """One cell of the run, as it is now."""
    cells = home.get(f"/runs/{run}")["cells"]
    return next(one for one in cells if one["id"] == name)


def finished(home: Home, run: str, *, within_s: float = 300.0) -> dict[str, Any]:
    """The run, once it is finished."""
    eventually(lambda: home.get(f"/runs/{run}")["state"] == "finished", deadline_s=within_s)
    return dict(home.get(f"/runs/{run}"))


def the_machine(machines: LabMachines, within_s: float = 120.0) -> str:
    """The lab's only machine, once it answers."""
    eventually(lambda: any(map(machines.is_up, machines.live())), deadline_s=within_s)
    (one,) = machines.live()
    return one


def shell(machines: LabMachines, machine: str, command: str) -> str:
    """What a command prints on the machine, as root."""
    done = machines.execute(machine, "sh", "-c", command)
    assert not done.returncode, (command, done.stdout, done.stderr)
    return done.stdout


def gate(machines: LabMachines, machine: str, name: str, *, within_s: float = 120.0) -> None:
    """Wait until a job is at the gate."""

    def there() -> bool:
        return machines.execute(machine, "test", "-e", f"/tmp/at-{name}").returncode == 0

    eventually(there, deadline_s=within_s)


def open_gate(machines: LabMachines, machine: str, name: str) -> None:
    """Let the job go on."""
    shell(machines, machine, f"touch /tmp/go-{name}")


def log_of(home: Home, run: str, name: str) -> str:
    """The whole log of a cell."""
    text, after, done = "", 0, False
    while not done:
        piece = home.get(f"/runs/{run}/cells/{name}/log?after={after}")
        if piece["next"] == after:
            break
        text, after, done = text + piece["text"], piece["next"], piece["done"]
    return text


def nothing_left(site: Site) -> None:
    """No machine, nor anything else that costs."""
    with contextlib.suppress(AssertionError):
        eventually(lambda: not costs(site), deadline_s=40)
    left = costs(site)
    assert not left, left


def costs(site: Site) -> list[tuple[str, str]]:
    """What is there, but the one rule of the project that lets in: free, and swept later."""
    return [one for one in site.left() if one[0] not in ("security-group", "firewall")]
