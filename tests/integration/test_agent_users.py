"""Jobs as a user of their own: they cannot touch the evidence; if that cannot be, it is said."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.integration.agent_machine import (
    Machine,
    command,
    lean_packages,
    lean_python,
    machine_at,
)
from tests.integration.wheel_making import wheel_bytes

OPEN_PYTHON = "/usr/bin/python3"
needs_open_python = pytest.mark.skipif(
    not Path(OPEN_PYTHON).exists(), reason=f"needs {OPEN_PYTHON}, which every user can run"
)

TRIES = """
import os, pwd, sys
print("user", pwd.getpwuid(os.geteuid()).pw_name, "home", os.environ["HOME"])
attempt = os.path.dirname(os.getcwd())
for name in ("events.jsonl", "log", "plan.json", "stop", "artifacts/x", "venv/x", "jobs/x"):
    path = os.path.join(attempt, name)
    for mode in ("r", "a"):
        try:
            open(path, mode).close()
            print("CAN", mode, name)
        except OSError:
            pass
for folder in (os.getcwd(), os.environ["TMPDIR"], os.environ["SEATRIAL_ARTIFACTS"],
               os.environ["HOME"]):
    open(os.path.join(folder, "mine"), "w").write("ok")
print("done")
"""


@pytest.fixture
def machine():
    """A machine in a folder that every user can pass through (a test's own folder is private)."""
    base = Path(tempfile.mkdtemp(prefix="seatrial-users-"))
    base.chmod(0o755)
    with machine_at(base / "base") as machine:
        yield machine
    shutil.rmtree(base)


@pytest.fixture
def tries(payload: Path) -> Path:
    (payload / "tries.py").write_text(TRIES)
    return payload


@pytest.mark.needs_root
@needs_open_python
def test_jobs_run_as_another_user(machine: Machine, tries: Path) -> None:
    evidence = machine.run(
        tries, python=OPEN_PYTHON, payload_user=True, jobs=[command("{python}", "tries.py")]
    )
    (environment,) = evidence.of("environment")
    assert environment["separated_user_reason"] == "jobs run as seatrial-payload"
    assert environment["separated_user"] is True
    said = evidence.log.split(b"(demo) =====\n")[-1].decode()
    home = machine.attempts[0] / "home"
    assert said.splitlines() == [f"user seatrial-payload home {home}", "done"]
    assert evidence.finished("demo")["exit_code"] == 0
    assert machine.bundle(machine.attempts[0])["demo.mine"] == b"ok"


@pytest.mark.needs_root
@needs_open_python
def test_untrusted_code_does_not_run_beside_the_metadata(machine: Machine, tries: Path) -> None:
    """A user of its own is not enough: the cloud's metadata has the machine's keys."""
    jobs = [command("{python}", "tries.py")]
    evidence = machine.run(tries, python=OPEN_PYTHON, payload_user=True, untrusted=True, jobs=jobs)
    assert evidence.end["reason"] == "environment"
    assert "metadata_closed is false" in evidence.end["detail"]
    assert b"(demo) =====" not in evidence.log


@pytest.mark.needs_root
@needs_open_python
def test_what_an_installed_package_runs_at_pythons_start_runs_as_the_jobs_user(
    machine: Machine, payload: Path
) -> None:
    ran = machine.base / "ran"
    ran.touch()
    ran.chmod(0o666)
    code = f"import os\nopen({str(ran)!r}, 'a').write(f'{{os.geteuid()}}\\n')\n"
    wheels = machine.base / "wheels" / "w1"
    wheels.mkdir(parents=True)
    made = wheel_bytes("helper", "1.0", files={"helper.py": code, "helper.pth": "import helper\n"})
    (wheels / "helper-1.0-py3-none-any.whl").write_bytes(made)
    evidence = machine.run(
        payload, python=OPEN_PYTHON, payload_user=True, wheels="w1",
        environment={"requirements": ["helper"]}, jobs=[command("{python}", "-c", "0")],
    )  # fmt: skip
    assert evidence.finished("demo")["exit_code"] == 0, evidence.log.decode()
    assert evidence.of("environment")[0]["separated_user"] is True
    users = set(ran.read_text().split())
    assert users == {str(pwd.getpwnam("seatrial-payload").pw_uid)}, users


@pytest.mark.needs_root
@needs_open_python
def test_a_suite_as_another_user(machine: Machine) -> None:
    """Records, crash, restart: all of it works across the two users."""
    packages = machine.base / "packages"
    packages.mkdir(parents=True)
    for source in lean_packages():
        (shutil.copytree if source.is_dir() else shutil.copy)(source, packages / source.name)
    evidence = machine.run(
        "sigkill",
        python=OPEN_PYTHON,
        payload_user=True,
        jobs=[{"env": {"PYTHONPATH": str(packages)}}],
    )
    assert evidence.of("environment")[0]["separated_user"] is True
    assert evidence.counts() == {"passed": 7, "crashed": 1}, evidence.log.decode()
    (crash,) = [one for one in evidence.reports() if "cause" in one]
    assert crash["sections"] == [["Captured stdout", "about to go\n"]]
    assert b"\nabout to go\n" in evidence.log
    owner = (machine.attempts[0] / "jobs" / "suite" / "artifacts").stat().st_uid
    assert pwd.getpwuid(owner).pw_name == "seatrial-payload"
    assert not (machine.attempts[0] / "given" / "suite" / "records").exists()


@pytest.mark.needs_root
def test_why_not_is_said(machine: Machine, payload: Path, tmp_path: Path) -> None:
    """An interpreter that the other user cannot reach."""
    hidden = tmp_path / "hidden"
    python = lean_python(hidden / "venv")
    hidden.chmod(0o700)
    job = command("{python}", "-c", "import os; print('uid', os.geteuid())")
    evidence = machine.run(payload, python=python, payload_user=True, jobs=[job])
    (environment,) = evidence.of("environment")
    assert environment["separated_user"] is False
    assert "user seatrial-payload cannot do the work" in environment["separated_user_reason"]
    assert b"uid 0\n" in evidence.log
    assert machine.attempts[0].stat().st_mode & 0o777 == 0o700


def test_the_plan_can_ask_for_one_user(machine: Machine, lean: str, payload: Path) -> None:
    job = command("{python}", "-c", "import os; print('uid', os.geteuid())")
    evidence = machine.run(payload, python=lean, payload_user=False, jobs=[job])
    (environment,) = evidence.of("environment")
    assert environment["separated_user"] is False
    assert environment["separated_user_reason"] == "the plan asks for the agent's own user"
    assert f"uid {os.geteuid()}\n".encode() in evidence.log


@pytest.mark.needs_root
@needs_open_python
def test_an_agent_that_is_not_root(machine: Machine, payload: Path) -> None:
    """The whole agent as an ordinary user, as on most rented machines."""
    shutil.chown(machine.base, "nobody")
    folder = machine.prepare(payload, python=OPEN_PYTHON, payload_user=True, jobs=[
        command("sh", "-c", "sleep 604 & id -un")])  # fmt: skip
    for path in (machine.base / "attempts", folder, folder / "plan.json"):
        shutil.chown(path, "nobody")
    machine.agent_python = OPEN_PYTHON
    machine.start(folder, user="nobody")
    evidence = machine.wait(folder)
    (environment,) = evidence.of("environment")
    assert environment["separated_user_reason"] == "agent is not root"
    assert b"nobody\n" in evidence.log
    assert any("demo left 1 process behind" in text for text in evidence.messages("warning"))
