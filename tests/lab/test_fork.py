"""A hostile fork, run by `seatrial run --untrusted` on machines of two clouds. Inside the seal."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.home import Home, serving
from tests.integration.wheel_making import wheel_bytes
from tests.lab import payloads_of_lab as lab
from tests.lab.lab_machines import LabMachines
from tests.lab.machine_specs import ec2, up
from tests.lab.seal import ADDRESS
from tests.lab.site import Site, a_site, served
from tests.lab.ssh_access import Keys
from tests.lab.test_on_the_machine_secrets import found_below, on_disk, pages

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed"), pytest.mark.timeout(900)]

CANARIES = {
    "HF_TOKEN": "hf_canaryOfTheEnvironment81",
    "AWS_SECRET_ACCESS_KEY": "canaryOfTheCloud/7Qz",
    "PIP_INDEX_URL": "https://ci:canaryOfTheIndex55@index.invalid/simple",
}
NEIGHBOUR = "i-neighbour"
SETUP = '[setup]\npip = ["pytest>=8"]\n'
JOBS = lab.suite("unit", "test_unit.py") + lab.demo("after", "after.py")
AFTER = """
import os, gates
from tool import hostile
hostile.tell("after", {"daemons": hostile.tried(lambda: hostile.got_or_nothing([
    pid for pid in os.listdir("/proc") if pid.isdigit() and b"loot/daemon" in hostile_line(pid)]))})
gates.at("after")
"""
LINE = """
def hostile_line(pid):
    try:
        return open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError:
        return b""
"""
BACKEND = "import pathlib\npathlib.Path({!r}).touch()\n"
GATE = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {{name: release, product: {}, owner: release-team}}
spec:
  platforms: [{{id: aws}}, {{id: gcp}}]
  jobs: [{{id: unit, on: [aws, gcp]}}]
"""


@dataclass(frozen=True)
class Trees:
    """The base's checkout, and the fork's tree, which differs in every file."""

    base: Path
    fork: Path
    marker: Path
    """Made by code of the fork that runs on this computer."""


@pytest.fixture
def site(machines: LabMachines) -> Iterator[Site]:
    with a_site(machines) as site:
        yield site


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    trees = Trees(tmp_path / "base", tmp_path / "fork", tmp_path / "ran-here")
    subject = {"name": "tool", "version": "1.5", "wheel": "dist/*.whl"}
    files = {"test_unit.py": "def test_of_the_base(): pass\n", "after.py": "print('base')\n"}
    lab.a_payload(trees.base / "pay", JOBS, files, SETUP)
    lab.a_matrix(trees.base / "matrix.yaml", Path("pay"), lab.AWS, lab.GCP, subject=subject)
    (trees.base / "gate.yaml").write_text(GATE.format("lab"))
    shutil.copytree(trees.base, trees.fork)
    return trees


def corrupt(trees: Trees, targets: dict[str, object]) -> None:
    """Let every file of the fork steal, or ask for what it may not have."""
    fork, backend = trees.fork, BACKEND.format(str(trees.marker))
    host = {"address": "10.20.0.4", "user": "ubuntu", "key_file": "k", "host_key": "AAAA"}
    static = {"id": "static", "provider": "static", "hosts": [host]}
    secrets = {"HF_TOKEN": {"from": "env"}}
    lab.a_matrix(fork / "matrix.yaml", Path("pay"), static, secrets=secrets)
    evil = lab.demo("evil", "evil.py", 'secrets = ["HF_TOKEN"]')
    index = f"[env.image]\nindex = true\n{SETUP}"
    lab.a_payload(fork / "evil", JOBS + evil, {}, index)
    shutil.move(fork / "evil" / "payload.toml", fork / "pay" / "payload.toml")
    (fork / "gate.yaml").write_text(GATE.format('"untrusted:lab"'))
    for name in ("setup.py", "pay/setup.py", "backend.py", "sitecustomize.py"):
        (fork / name).write_text(backend)
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (fork / "pyproject.toml").write_text(project)
    steals = "from tool import hostile\n{}\n"
    (fork / "pay" / "conftest.py").write_text(steals.format("hostile.everything('conftest')"))
    test = "def test_of_the_fork():\n    hostile.everything('test')"
    (fork / "pay" / "test_unit.py").write_text(steals.format(test))
    (fork / "pay" / "after.py").write_text(LINE + AFTER)
    info = "tool-1.5.dist-info"
    wheel = wheel_bytes(
        "tool",
        "1.5",
        files={
            "tool/__init__.py": "__version__ = '1.5'\n",
            "tool/hostile.py": Path(__file__).with_name("hostile.py").read_text(),
            "tool/targets.json": json.dumps(targets),
            "tool/plugin.py": steals.format(
                "def pytest_sessionstart():\n    hostile.everything('plugin')"
            ),
            "evil.pth": "import tool.hostile; tool.hostile.first_look()\n",
            f"{info}/entry_points.txt": "[pytest11]\nevil = tool.plugin\n",
        },
    )
    (fork / "dist").mkdir()
    (fork / "dist" / "tool-1.5-py3-none-any.whl").write_bytes(wheel)


def said(home: Home, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command answers that is started in a folder."""
    return subprocess.run(
        home.command(*words), env=home.environment, cwd=folder, capture_output=True, text=True,
        timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_fork_gets_nothing_of_what_it_reaches_for(
    site: Site, machines: LabMachines, keys: Keys, trees: Trees, tmp_path: Path
) -> None:
    neighbour = ec2(keys, NEIGHBOUR)
    up(machines, neighbour)
    budget = {"SEATRIAL_BUDGET_UNTRUSTED_USD": "20"}
    with (
        served(site, tmp_path / "home", **CANARIES, **budget) as home,
        serving(home, "--host", ADDRESS),
    ):
        corrupt(trees, targets(site, home, neighbour.addresses[0]))
        words = ("run", "matrix.yaml", "--untrusted", str(trees.fork), "-y", "--detach")
        launched = said(home, trees.base, *words)
        assert launched.returncode == 130, launched
        run = launched.stdout.split()[-1]
        rented = of_cells(home, machines, run)
        loot = {name: looked_at(machines, machine) for name, machine in rented.items()}
        for machine in rented.values():
            lab.open_gate(machines, machine, "after")
        shown = lab.finished(home, run)
        for name in rented:
            check_loot(name, loot[name], shown)
        check_documents(shown, trees)
        check_gates(home, trees, run)
        # Emulated machines cost nothing, so no budget is charged here: test_untrusted.py does.
        seen = [*pages_of(home, run), home.log()]
        assert not [canary for canary in secret_parts() if any(canary in page for page in seen)]
        machines.remove(NEIGHBOUR)
        lab.nothing_left(site)
        assert not machines.live()
        assert NEIGHBOUR not in str(shown)
    home.stop()
    assert found_below(home.path, "test_of_the_fork"), "the search looks into what is stored"
    for canary in secret_parts():
        assert found_below(home.path, canary) == []


def targets(site: Site, home: Home, neighbour: str) -> dict[str, object]:
    """What the fork knows, as an insider may: names, addresses and ports."""
    return {
        "secrets": [*CANARIES, "canary"],
        "database": str(home.path / "app.db"),
        "lab": ADDRESS,
        "controller": f"http://{ADDRESS}:{urlsplit(home.url).port}",
        "cloud": site.aws.endpoint_url,
        "cloud_port": urlsplit(site.aws.endpoint_url).port,
        "neighbour": neighbour,
    }


def secret_parts() -> tuple[str, ...]:
    return ("hf_canaryOfThe", "canaryOfTheCloud", "canaryOfTheIndex")


def of_cells(home: Home, machines: LabMachines, run: str) -> dict[str, str]:
    """The machine of each cell, once its second job waits there."""
    found: dict[str, str] = {}

    def there() -> bool:
        for machine in set(machines.live()) - {NEIGHBOUR, *found.values()}:
            if not machines.is_up(machine):
                continue
            if not machines.execute(machine, "test", "-e", "/tmp/at-after").returncode:
                found["aws" if machine.startswith("i-") else "gcp"] = machine
        states = {cell["id"]: cell["outcome"] for cell in home.get(f"/runs/{run}")["cells"]}
        assert not any(states.values()), home.get(f"/runs/{run}")
        return len(found) == 2

    lab.eventually(there)
    return found


def looked_at(machines: LabMachines, machine: str) -> dict[str, Any]:
    """What the fork's code wrote on the machine; the machine itself is looked at as root."""
    names = lab.shell(machines, machine, "ls /tmp/loot").split()
    loot = {
        name: json.loads(lab.shell(machines, machine, f"cat /tmp/loot/{name}"))
        for name in names
        if name.endswith(".json")
    }
    for canary in secret_parts():
        hidden = f"[{canary[0]}]{canary[1:]}"
        assert on_disk(machines, machine, hidden) == [], machine
    uid = int(lab.shell(machines, machine, "id -u seatrial-payload"))
    assert {one["uid"] for one in loot.values()} == {uid}, "the fork's code ran as another user"
    assert not {"cron", "at"} & {*names}
    return loot


def check_loot(name: str, loot: dict[str, Any], shown: dict[str, Any]) -> None:
    """Every attempt failed by its own record; what may be reached was."""
    by_place = {key.rpartition("-")[0]: one["found"] for key, one in loot.items()}
    assert {"plugin", "conftest", "test", "after"} <= {*by_place}, by_place.keys()
    assert any(key.startswith("start-") for key in by_place)
    for place, found in by_place.items():
        got = {
            what: one["got"]
            for what, one in found.items()
            if "got" in one and not what.startswith("CONTROL")
        }
        assert got == {}, (name, place, got)
    for place in ("plugin", "conftest", "test"):
        assert "connected" in by_place[place]["CONTROL neighbour"]["got"]
        assert by_place[place]["CONTROL controller"]["got"].startswith("200 ")
        assert len(by_place[place]) > 60
        refused = by_place[place]["controller runs"]["failed"]
        assert "401" in refused, refused
        assert "Permission denied" in by_place[place]["ubuntu of another machine"]["failed"]


def check_documents(shown: dict[str, Any], trees: Trees) -> None:
    """The base's matrix and payload.toml were used, and none of the fork's code ran here."""
    assert not trees.marker.exists()
    assert shown["untrusted"] is True
    assert {cell["id"] for cell in shown["cells"]} == {"aws", "gcp"}
    for cell in shown["cells"]:
        jobs = {job["id"]: job["outcome"] for job in cell["jobs"]}
        assert jobs == {"unit": "passed", "after": "passed"}, cell
        assert cell["probed"]["metadata_closed"] is True
        assert cell["probed"]["separated_user_reason"] == "jobs run as seatrial-payload"
        assert cell["leases"][-1]["state"] == "gone"


def check_gates(home: Home, trees: Trees, run: str) -> None:
    """The base's gate is satisfied by none of it, and the fork's gate is refused."""
    named = said(home, trees.base, "gate", "check", "gate.yaml", "--run", run)
    assert named.returncode not in (0, 1), named
    assert "its results satisfy no gate" in named.stdout + named.stderr
    own = said(home, trees.fork, "gate", "check", "gate.yaml")
    assert own.returncode not in (0, 1), own
    assert "results of untrusted code satisfy no gate" in own.stdout + own.stderr
    newest = said(home, trees.base, "gate", "check", "gate.yaml")
    assert newest.returncode != 0, newest
    assert run not in newest.stdout + newest.stderr


def pages_of(home: Home, run: str) -> Iterator[str]:
    """Everything that a person is shown of either cell."""
    yield from pages(home, run)
    with home.client() as client:
        yield client.get(f"/runs/{run}/cells/gcp/log").text
        yield client.get(f"/runs/{run}/cells/gcp/tests").text
