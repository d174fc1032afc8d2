"""Who the agent is: root by login or by sudo where it can be; its jobs are somebody else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runners.shell import open_shell
from runners.workspace import ShellWorkspace, WorkspaceError, pack
from tests.integration.agent_machine import JOB, Evidence, command, parse
from tests.login_hosts import LOGIN, NOPASSWD, LoginHost, login_host_missing

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_sshd,
    pytest.mark.skipif(login_host_missing() is not None, reason=str(login_host_missing())),
]
SHARED = "/var/lib/seatrial"
FORBIDDEN = (
    "mkdir -p /home/somebody/.seatrial; touch /home/somebody/.seatrial/no-sudo\n"
    "chown -R somebody /home/somebody\n"
)
AWAITS = f"""
import pathlib, time
while not pathlib.Path("{SHARED}/go").exists(): time.sleep(0.1)
print('the first')
"""
WHO = "import getpass, os; print('I am', getpass.getuser(), os.geteuid())"
PRY = """
import os, subprocess
attempt = os.path.dirname(os.getcwd())
for name in ("events.jsonl", "log", "plan.json", "stop", "artifacts/x", "venv/x", "jobs/x"):
    for mode in ("r", "a"):
        try:
            open(os.path.join(attempt, name), mode).close()
            print("CAN", mode, name)
        except OSError:
            pass
print("sudo", subprocess.run(["sudo", "-n", "id"], capture_output=True).returncode)
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[..., LoginHost]]:
    made: list[LoginHost] = []

    def make(**options: str) -> LoginHost:
        made.append(LoginHost(tmp_path, name=f"host{len(made)}", **options))
        return made[-1].start()

    yield make
    for one in made:
        one.stop()


def workspace_on(host: LoginHost) -> ShellWorkspace:
    return ShellWorkspace(open_shell(host.endpoint(), keys_dir=host.keys_dir))


def begin(workspace: ShellWorkspace, script: str, attempt: str = "a-1", **more: object) -> None:
    """Start an attempt with one command job, through the workspace alone."""
    payload = pack([("say.py", script.encode())])
    workspace.put_archive("payloads", payload.digest, lambda: [payload.data])
    plan = {
        "v": 1,
        "attempt": attempt,
        "payload": payload.digest,
        "wheels": None,
        "python": "/usr/bin/python3",
        "environment": {"name": "image"},
        "subject": None,
        "limits": {"deadline_s": 240, "kill_grace_s": 1},
        "jobs": [{**JOB, **command("{python}", "say.py")}],
        **more,
    }
    workspace.start(attempt, plan, {"HF_TOKEN": "hidden words"})


def follow(workspace: ShellWorkspace, attempt: str = "a-1") -> Evidence:
    """Wait for its end."""
    deadline = time.monotonic() + 240
    while True:
        found = workspace.pull(attempt, events_offset=0, log_offset=0, limit_bytes=2**22)
        assert found is not None
        if not found.alive:
            return Evidence(parse(found.events), found.log)
        assert time.monotonic() < deadline, found.events[-3000:]
        time.sleep(0.1)


def run(workspace: ShellWorkspace, script: str = WHO, **more: object) -> Evidence:
    begin(workspace, script, **more)
    return follow(workspace)


def reason_of(evidence: Evidence) -> tuple[bool, str]:
    (environment,) = evidence.of("environment")
    return environment["separated_user"], environment["separated_user_reason"]


def test_a_rented_machines_login_becomes_root_and_its_jobs_do_not(host) -> None:
    machine = host(setup=NOPASSWD)
    workspace = workspace_on(machine)
    evidence = run(workspace, WHO + PRY)
    assert workspace.base() == SHARED
    assert evidence.end["outcome"] == "completed"
    assert reason_of(evidence) == (True, "jobs run as seatrial-payload")
    said = evidence.log.decode().split("(demo) =====\n")[-1].splitlines()
    assert said[0].startswith("I am seatrial-payload ")
    assert said[1:] == ["sudo 1"]
    owners = f"cd {SHARED}/attempts/a-1 && stat -c '%n %U %a' . events.jsonl log plan.json"
    assert machine.inside(owners).splitlines() == [
        ". root 711", "events.jsonl root 600", "log root 600", "plan.json root 600",
    ]  # fmt: skip
    assert "I am seatrial-payload" in (workspace.bundle("a-1") or b"").decode(errors="replace")
    workspace.close("a-1")
    assert (
        machine.inside(f"ls {SHARED}/attempts; ls -A /home/{LOGIN}")
        == ".bash_logout\n.bashrc\n.profile\n"
    )


def test_root_whose_home_is_closed_works_in_the_shared_folder(host) -> None:
    workspace = workspace_on(host(user="root"))
    evidence = run(workspace)
    assert workspace.base() == SHARED
    assert reason_of(evidence) == (True, "jobs run as seatrial-payload")
    workspace.close("a-1")


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ("", "sudo: a password is required"),
        ("mount --bind /bin/false /usr/bin/sudo\n", "exit code 1 and no output"),
        (NOPASSWD + "echo 'Defaults requiretty' >>/etc/sudoers\n", "must have a tty to run sudo"),
        (NOPASSWD + FORBIDDEN, "/home/somebody/.seatrial/no-sudo forbids sudo"),
    ],
)  # fmt: skip
def test_a_login_without_sudo_stays_who_it_is(host, setup: str, says: str) -> None:
    workspace = workspace_on(host(setup=setup))
    evidence = run(workspace)
    assert workspace.base() == f"/home/{LOGIN}/.seatrial"
    separated, reason = reason_of(evidence)
    assert not separated
    assert reason.startswith("agent is not root: ")
    assert says in reason
    assert f"I am {LOGIN} ".encode() in evidence.log
    workspace.close("a-1")


def test_sudo_that_stops_working_hides_nothing(host) -> None:
    machine = host(setup=NOPASSWD)
    workspace = workspace_on(machine)
    run(workspace)
    workspace.disconnect()
    machine.inside("mv /etc/sudoers.d/90-somebody /tmp/90-somebody.aside")
    with pytest.raises(WorkspaceError, match=r"sudo does not work any more .*by-sudo/\d+"):
        workspace.pull("a-1", events_offset=0, log_offset=0, limit_bytes=10)
    machine.inside("mv /tmp/90-somebody.aside /etc/sudoers.d/90-somebody")
    assert workspace.pull("a-1", events_offset=0, log_offset=0, limit_bytes=10) is not None
    workspace.close("a-1")


def test_sudo_that_begins_to_work_hides_nothing(host) -> None:
    """What was begun in the home folder is found there; the next attempt is root's."""
    machine = host()
    workspace = workspace_on(machine)
    run(workspace)
    workspace.disconnect()
    machine.inside(NOPASSWD)
    assert workspace.pull("a-1", events_offset=0, log_offset=0, limit_bytes=10) is not None
    workspace.close("a-1")
    workspace.disconnect()
    assert workspace.base() == SHARED


@pytest.mark.parametrize("more", ["", "echo 'Defaults use_pty' >>/etc/sudoers\n"])
def test_what_jobs_inherit_passes_sudo_and_bytes_do_too(host, tmp_path: Path, more: str) -> None:
    variables = (
        "SetEnv LD_LIBRARY_PATH=/opt/lib CUDA_HOME=/opt/cuda PATH=/opt/a:/usr/bin:/bin SECRET=x"
    )
    workspace = workspace_on(host(setup=NOPASSWD + more, options=(variables,)))
    names = "'LD_LIBRARY_PATH', 'CUDA_HOME', 'PATH', 'SECRET'"
    script = f"import os\nfor name in ({names}): print(name, os.environ.get(name))"
    evidence = run(workspace, script)
    said = evidence.log.decode().split("(demo) =====\n")[-1].splitlines()
    assert said[0] == "LD_LIBRARY_PATH /opt/lib"
    assert said[1] == "CUDA_HOME /opt/cuda"
    assert said[2].endswith("/bin:/opt/a:/usr/bin:/bin")
    assert said[3] == "SECRET None"
    archive = pack([("big", bytes(range(256)) * 40_000)])
    pieces = [archive.data[at : at + 65_536] for at in range(0, len(archive.data), 65_536)]
    assert workspace.put_archive("payloads", archive.digest, lambda: pieces) is True
    assert workspace.put_archive("payloads", archive.digest, list) is False
    workspace.close("a-1")


def test_two_controllers_on_one_host(host) -> None:
    machine = host(setup=NOPASSWD)
    one, two = workspace_on(machine), workspace_on(machine)
    begin(one, AWAITS)
    begin(two, "print('the second')", "a-2")
    assert b"the second" in follow(two, "a-2").log
    two.close("a-2")
    seen = two.pull("a-1", events_offset=0, log_offset=0, limit_bytes=10)
    assert seen is not None
    assert seen.alive
    machine.inside(f"touch {SHARED}/go")
    assert b"the first" in follow(one).log
    one.close("a-1")


def test_a_home_folder_is_the_logins_also_under_sudo(host) -> None:
    setup = NOPASSWD + "ln -s /usr/bin/python3 /home/somebody/mine\n"
    found = workspace_on(host(setup=setup)).probe(["~/mine", "python3"])
    (mine, _) = found["interpreters"]
    assert (mine["candidate"], mine["error"]) == ("~/mine", None), json.dumps(mine)


def test_where_no_user_can_be_made_nobody_takes_the_jobs(host) -> None:
    gone = (
        "sed -i /seatrial-payload/d /etc/passwd /etc/shadow\n"
        "mount --bind /bin/false /usr/sbin/useradd\n"
    )
    workspace = workspace_on(host(setup=NOPASSWD + gone))
    evidence = run(workspace)
    assert reason_of(evidence) == (True, "jobs run as nobody")
    assert b"I am nobody " in evidence.log
    workspace.close("a-1")


def test_the_jobs_user_is_made_where_there_is_none(host) -> None:
    gone = "sed -i /seatrial-payload/d /etc/passwd /etc/shadow /etc/group /etc/gshadow\n"
    machine = host(setup=NOPASSWD + gone)
    workspace = workspace_on(machine)
    assert reason_of(run(workspace)) == (True, "jobs run as seatrial-payload")
    assert machine.inside("getent passwd seatrial-payload").endswith(
        ":/nonexistent:/usr/sbin/nologin\n"
    )
    workspace.close("a-1")


def test_a_user_who_could_be_root_is_no_separation(host) -> None:
    setup = NOPASSWD + "echo 'ALL ALL=(ALL) NOPASSWD:ALL' >>/etc/sudoers\n"
    workspace = workspace_on(host(setup=setup))
    evidence = run(workspace)
    assert reason_of(evidence) == (
        False,
        "user seatrial-payload cannot do the work: sudo lets it become root without a password",
    )
    assert b"I am root 0" in evidence.log
    workspace.close("a-1")


def test_packages_that_the_other_user_cannot_read(host) -> None:
    """As after `sudo pip install` with a narrow umask: torch would be missing for the jobs."""
    setup = NOPASSWD + (
        "/usr/bin/python3 -m venv --without-pip /home/somebody/conda\n"
        "site=$(echo /home/somebody/conda/lib/python3*/site-packages)\n"
        "mkdir -m 700 $site/torch\nchmod 755 /home/somebody\n"
    )
    workspace = workspace_on(host(setup=setup))
    evidence = run(workspace, python="/home/somebody/conda/bin/python")
    separated, reason = reason_of(evidence)
    assert not separated
    assert reason.startswith("user seatrial-payload cannot do the work: ")
    assert reason.endswith("site-packages/torch cannot be read")
    workspace.close("a-1")
