"""The guard of the metadata server, in a network namespace that has such a server."""

from __future__ import annotations

import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.agent import job_user, metadata_guard
from runners.agent.layout import AttemptFolder
from tests.e2e.home import ROOT
from tests.integration.test_agent_users import OPEN_PYTHON, needs_open_python

SERVER = """
import json, socket, subprocess, sys
from pathlib import Path
from runners.agent import metadata_guard
for line in ("link set lo up", "addr add 169.254.169.254/32 dev lo",
             "rule add pref 32765 lookup local", "rule delete pref 0"):
    subprocess.run(("ip", *line.split()), check=True)
server = socket.create_server(("169.254.169.254", 80))
names = socket.create_server(("169.254.169.254", 53))
ask = "import socket, sys; socket.create_connection(('169.254.169.254', int(sys.argv[1])), 5)"
def asks(port, **who):
    program = (sys.argv[1], "-c", ask, port)
    return subprocess.run(program, capture_output=True, **who).returncode == 0
jobs = {"user": 65534, "group": 65534, "extra_groups": []}
before = asks("80", **jobs)
metadata_guard.prohibit((65534, 65534, ()), lambda: None)
prohibited = not asks("80", **jobs)
first = metadata_guard.close((65534, 65534, ()), Path(sys.argv[1]), lambda: None)
again = metadata_guard.close((65534, 65534, ()), Path(sys.argv[1]), lambda: None)
print(json.dumps({"before": before and prohibited, "first": first, "again": again,
                  "jobs": asks("80", **jobs), "names": asks("53", **jobs), "root": asks("80")}))
"""


@pytest.mark.needs_root
@needs_open_python
def test_the_jobs_user_alone_is_kept_from_the_server() -> None:
    if not (shutil.which("ip") and shutil.which("unshare")):
        pytest.skip("needs ip and unshare: apt-get install iproute2 util-linux")
    done = subprocess.run(
        ("unshare", "--net", sys.executable, "-c", SERVER, OPEN_PYTHON),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert '"before": true' in done.stdout
    assert '"first": [true, "no connection: ' in done.stdout
    assert '"again": [true, ' in done.stdout
    assert '"jobs": false, "names": true, "root": true' in done.stdout


def test_a_machine_without_the_program_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_guard, "_PLACES", "/nowhere")
    assert metadata_guard.close((1, 1, ()), Path(), lambda: None) == (
        False,
        "this machine has no program `ip`",
    )


def test_the_agents_own_user_is_not_restricted() -> None:
    assert metadata_guard.close(None, Path(), lambda: None) == (
        False,
        "jobs run as the agent's own user",
    )


def test_the_user_is_kept_from_it_before_anything_runs_as_that_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A package may have code that runs whenever Python starts, also for the trial of the user."""
    done: list[str] = []

    def does(name: str, answer: object = None) -> Callable[..., object]:
        return lambda *_: (done.append(name), answer)[1]

    monkeypatch.setattr(job_user.os, "geteuid", lambda: 0)
    monkeypatch.setattr(job_user, "_entry", lambda _: pwd.getpwuid(0))
    monkeypatch.setattr(job_user, "_hand_over", does("hand over"))
    monkeypatch.setattr(metadata_guard, "prohibit", does("prohibit", ""))
    monkeypatch.setattr(job_user, "_problem", does("trial"))
    monkeypatch.setattr(job_user, "_sudo_problem", does("sudo"))
    attempt = AttemptFolder(tmp_path)
    for guarded in (True, False):
        job_user.choose(attempt, wanted=True, guarded=guarded, tick=lambda: None)
    trial = ["trial", "sudo"]
    assert done == ["hand over", "prohibit", *trial, "hand over", *trial]
