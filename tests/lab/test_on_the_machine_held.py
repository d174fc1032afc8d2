"""A machine that is kept for a person, and how one gets there. Run inside the seal."""

from __future__ import annotations

import subprocess
from decimal import Decimal

import pytest

from tests.e2e.home import Home, eventually
from tests.lab import payloads_of_lab as lab
from tests.lab.lab_machines import LabMachines
from tests.lab.site import a_site, served

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed"), pytest.mark.timeout(600)]

JOBS = lab.demo("bad", "bad.py") + lab.demo("good", "good.py")
FILES = {"bad.py": "raise SystemExit('it does not work')", "good.py": "print('it works')"}


@pytest.fixture
def site(machines):
    with a_site(machines) as site:
        yield site


@pytest.fixture
def home(site, tmp_path):
    with served(site, tmp_path / "home") as home:
        yield home


def held(home: Home, matrix, minutes: str) -> str:
    words = ("run", str(matrix), "-y", "--detach", "--hold-on-failure", minutes)
    run = home.seatrial(*words, status=130).split()[-1]
    eventually(lambda: lab.cell(home, run, "aws")["kept_until"], deadline_s=240)
    return run


def ssh(home: Home, run: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        home.command("ssh", run, "aws", "--", *words),
        env=home.environment, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_failed_cell_is_held_until_it_is_cancelled(home, site, machines: LabMachines, tmp_path):
    payload = lab.a_payload(tmp_path / "payload", JOBS, FILES)
    jobs = [{"id": "bad", "on": ["aws"]}, {"id": "good", "on": ["gcp"]}]
    run = held(home, lab.a_matrix(tmp_path / "m.yaml", payload, lab.AWS, lab.GCP, jobs=jobs), "30")
    eventually(lambda: lab.cell(home, run, "gcp")["state"] == "done", deadline_s=120)
    assert lab.cell(home, run, "gcp")["outcome"] == "passed", "and nobody kept it"
    machine = lab.the_machine(machines)
    name = lab.shell(machines, machine, "cat /etc/hostname").strip()
    said = ssh(home, run, "cat", "/etc/hostname")
    assert (said.returncode, said.stdout.strip()) == (0, name), said.stderr
    assert ssh(home, run, "exit", "7").returncode == 7, "its exit code is ssh's"
    with home.client() as client:
        client.post(f"/runs/{run}/cancel").raise_for_status()
    shown = lab.finished(home, run, within_s=90)
    assert {c["id"]: c["outcome"] for c in shown["cells"]} == {"aws": "failed", "gcp": "passed"}
    lab.nothing_left(site)


def test_the_end_of_the_hold_lets_it_go_and_the_money_was_reserved(
    home, site, machines: LabMachines, tmp_path
):
    payload = lab.a_payload(tmp_path / "payload", JOBS, FILES)
    matrix = lab.a_matrix(tmp_path / "m.yaml", payload, lab.AWS, jobs=[{"id": "bad"}])
    worst = {
        hold: Decimal(home.json("plan", str(matrix), *hold)["worst_usd"])
        for hold in ((), ("--hold-on-failure", "1"))
    }
    run = held(home, matrix, "1")
    machine = lab.the_machine(machines)
    renew = "rm /etc/ssh/ssh_host_ed25519_key*; ssh-keygen -qt ed25519 -N '' -f"
    lab.shell(machines, machine, f"{renew} /etc/ssh/ssh_host_ed25519_key; pkill -HUP -o sshd")
    refused = ssh(home, run, "cat", "/etc/hostname")
    assert (refused.returncode, refused.stdout) == (255, ""), "only the pinned key is accepted"
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.stderr
    shown = lab.finished(home, run, within_s=150)
    (found,) = shown["cells"]
    (lease,) = found["leases"]
    assert found["outcome"] == "failed"
    assert lease["seconds"] > 60, "the hold was on the bill"
    assert worst[()] < worst["--hold-on-failure", "1"]
    assert Decimal(shown["cost_usd"]) < worst["--hold-on-failure", "1"]
    lab.nothing_left(site)
