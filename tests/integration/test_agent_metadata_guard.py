"""The guard of the metadata server, in a network namespace beside one that has such a server."""

from __future__ import annotations

import json
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runners.agent import job_user, metadata_guard
from runners.agent.layout import AttemptFolder
from tests.e2e.home import ROOT
from tests.integration.test_agent_users import OPEN_PYTHON, needs_open_python

SERVER = """
import socket, subprocess, sys
print(flush=True)
sys.stdin.readline()
for line in ("link set far up", "addr add 10.9.0.1/24 dev far",
             "addr add 169.254.169.254/32 dev far"):
    subprocess.run(("ip", *line.split()), check=True)
servers = [socket.create_server(("169.254.169.254", port)) for port in (80, 53)]
print(flush=True)
sys.stdin.readline()
"""
"""On the other side of the machine's link, as on a cloud's network."""
MACHINE = """
import json, subprocess, sys
from pathlib import Path
from runners.agent import metadata_guard
python, server, ways = sys.argv[1:]
there = subprocess.Popen(("unshare", "--net", sys.executable, "-c", server), text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
there.stdout.readline()
def ip(line):
    subprocess.run(("ip", *line.split()), check=True)
ip("link set lo up")
ip(f"link add near type veth peer name far netns {there.pid}")
ip("link set near up")
ip("addr add 10.9.0.2/24 dev near")
there.stdin.write("\\n")
there.stdin.flush()
there.stdout.readline()
ip("route add default via 10.9.0.1")
ask = '''
import socket, sys
client = socket.socket()
client.settimeout(10)
if sys.argv[2:]:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[2].encode())
client.connect(("169.254.169.254", int(sys.argv[1])))
'''
def asks(*words, **who):
    return subprocess.run((python, "-c", ask, *words), capture_output=True, **who).returncode == 0
jobs = {"user": 65534, "group": 65534, "extra_groups": []}
metadata_guard._WAYS = {name: way for name, way in metadata_guard._WAYS.items() if name in ways}
before = [asks("80", **jobs), asks("80", "near", **jobs)]
problem = metadata_guard.prohibit((65534, 65534, ()), lambda: None)
after = [asks("80", **jobs), asks("80", "near", **jobs)]
closed = [metadata_guard.close((65534, 65534, ()), Path(python), lambda: None) for _ in range(2)]
print(json.dumps({"before": before, "problem": problem, "after": after, "closed": closed,
                  "names": asks("53", **jobs), "root": asks("80")}))
there.communicate("\\n")
"""


def guarded_by(*ways: str) -> Any:
    """What the jobs' user reaches on a machine that has these programs."""
    for program in ("ip", "unshare", *ways):
        if shutil.which(program, path=metadata_guard._PLACES) is None:
            pytest.skip("needs apt-get install iproute2 iptables nftables util-linux")
    done = subprocess.run(
        ("unshare", "--net", sys.executable, "-c", MACHINE, OPEN_PYTHON, SERVER, " ".join(ways)),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.needs_root
@needs_open_python
@pytest.mark.parametrize("way", ["nft", "iptables"])
def test_the_jobs_user_alone_is_kept_from_the_server(way: str) -> None:
    found = guarded_by(way)
    assert found["before"] == [True, True], "through the routes, and bound to the device"
    assert (found["problem"], found["after"]) == ("", [False, False])
    assert [closed for closed, _ in found["closed"]] == [True, True], found["closed"]
    assert found["closed"][0][1].startswith("no connection: ")
    assert (found["names"], found["root"]) == (True, True)


@pytest.mark.needs_root
@needs_open_python
def test_a_routing_rule_alone_is_not_called_closed() -> None:
    """Linux sends what is bound to a device past a prohibiting rule."""
    found = guarded_by("ip")
    assert (found["problem"], found["after"]) == ("", [False, True])
    assert found["closed"] == [[False, "169.254.169.254: it answers through near"]] * 2
    assert (found["names"], found["root"]) == (True, True)


def test_a_machine_without_the_programs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_guard, "_PLACES", "/nowhere")
    assert metadata_guard.close((1, 1, ()), Path(), lambda: None) == (
        False,
        "this machine has none of the programs nft, iptables and ip",
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
