"""What a job can do to the evidence about itself: nothing. Run inside the seal."""

from __future__ import annotations

import pytest

from tests.lab import payloads_of_lab as lab
from tests.lab.lab_machines import LabMachines
from tests.lab.site import a_site, served

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed"), pytest.mark.timeout(600)]

TRIES = """
import glob, os, pathlib, pwd, signal, subprocess, urllib.request
import pytest

ATTEMPT = pathlib.Path(os.environ["SEATRIAL_ATTEMPT_DIR"])
BASE = ATTEMPT.parent.parent
LOOKS = {"fd": os.listdir, "cwd": os.readlink}

def agents():
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read().split(b"\\0")
        except OSError:
            continue
        if b"seatrial_agent" in words:
            found.append(int(path.split("/")[2]))
    return found

def test_who_i_am():
    assert pwd.getpwuid(os.getuid()).pw_name == "seatrial-payload"
    assert 0 not in (os.getgid(), os.getegid(), *os.getgroups())

def test_the_agent_is_root_by_sudo():
    assert ATTEMPT.is_relative_to("/var/lib/seatrial")
    assert {os.stat(f"/proc/{pid}").st_uid for pid in agents()} == {0}

@pytest.mark.parametrize("name", ["events.jsonl", "plan.json", "lock", "agent.pid", "log",
                                  "agent.err", "artifacts/first.txt", "stop", "reserve"])
def test_evidence_is_not_mine_to_write(name):
    with pytest.raises(PermissionError):
        open(ATTEMPT / name, "ab")

@pytest.mark.parametrize("name", ["events.jsonl", "plan.json", "log", "agent.err", "lock"])
def test_evidence_is_not_mine_to_replace(name):
    with pytest.raises(PermissionError):
        os.rename(ATTEMPT / name, ATTEMPT / "aside")
    with pytest.raises(PermissionError):
        os.unlink(ATTEMPT / name)

@pytest.mark.parametrize("name", ["events.jsonl", "plan.json"])
def test_the_plan_and_the_events_are_not_mine_to_read(name):
    with pytest.raises(PermissionError):
        open(ATTEMPT / name, "rb")

@pytest.mark.parametrize("where", ["agents", "payloads", "wheels", "attempts"])
def test_what_others_will_use_is_not_mine_to_write(where):
    with pytest.raises(PermissionError):
        (BASE / where / "mine").write_text("x")
    for folder in (BASE / where).glob("*") if os.access(BASE / where, os.R_OK) else ():
        assert not os.access(folder, os.W_OK), folder

@pytest.mark.parametrize("name", ["events.jsonl", "artifacts/forged.txt"])
def test_another_jobs_records_are_not_mine_to_write(name):
    with pytest.raises(PermissionError):
        open(ATTEMPT / "jobs" / "first" / name, "ab")

def test_sudo_is_not_for_me():
    done = subprocess.run(["sudo", "-n", "true"], capture_output=True, text=True)
    assert done.returncode and "password" in done.stderr, done

@pytest.mark.parametrize("name", ["mem", "environ", "maps", "fd", "cwd"])
def test_the_agents_memory_is_not_mine_to_read(name):
    assert agents()
    for pid in agents():
        with pytest.raises(PermissionError):
            LOOKS.get(name, lambda path: open(path, "rb").read(1))(f"/proc/{pid}/{name}")

@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_the_agent_is_not_mine_to_end(number):
    for pid in agents():
        with pytest.raises(PermissionError):
            os.kill(pid, number)

@pytest.mark.parametrize("name", ["/etc/ssh/ssh_host_ed25519_key", "/etc/shadow",
                                  "/var/lib/cloud/instance/user-data.txt",
                                  "/home/ubuntu/.ssh/authorized_keys"])
def test_the_machines_keys_are_not_mine_to_read(name):
    with pytest.raises(PermissionError):
        open(name, "rb")

def test_the_metadata_server_is_not_mine_to_ask():
    ask = urllib.request.Request("http://169.254.169.254/latest/api/token", method="PUT",
                                 headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(ask, timeout=5)
"""
FIRST = """
import os, pathlib
print("first")
pathlib.Path(os.environ["SEATRIAL_ARTIFACTS"], "mine.txt").write_text("mine")
"""
JOBS = lab.demo("first", "first.py") + lab.suite("tries", "test_tries.py")


@pytest.fixture
def site(machines):
    with a_site(machines) as site:
        yield site


def test_a_job_cannot_touch_what_is_said_about_it(site, machines: LabMachines, tmp_path):
    files = {"first.py": FIRST, "test_tries.py": TRIES}
    setup = '[setup]\npip = ["pytest>=8"]\n'
    payload = lab.a_payload(tmp_path / "payload", JOBS, files, setup)
    with served(site, tmp_path / "home") as home:
        run = home.launch(lab.a_matrix(tmp_path / "m.yaml", payload, lab.AWS))
        shown = lab.finished(home, run)
        (cell,) = shown["cells"]
        tests = home.get(f"/runs/{run}/cells/aws/tests?job=tries&limit=100")["items"]
        said = {one["nodeid"].partition("::")[2]: (one["outcome"], one["message"]) for one in tests}
        wrong = {name: found for name, found in said.items() if found[0] != "passed"}
    assert cell["probed"]["metadata_closed"] is True, cell["probed"]["metadata_closed_reason"]
    assert not wrong, repr(wrong)
    assert len(said) == 38
    assert cell["outcome"] == "passed"
    assert cell["probed"]["separated_user"] is True
    assert cell["probed"]["separated_user_reason"] == "jobs run as seatrial-payload"
    assert {one["name"] for one in cell["artifacts"]} >= {"first.txt", "first.mine.txt"}
    lab.nothing_left(site)
