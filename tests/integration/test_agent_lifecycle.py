"""The agent's verbs: start once, outlive the connection, be followed, be stopped, leave nothing."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from tests.integration.agent_machine import (
    Evidence,
    Machine,
    command,
    parse,
    processes_of,
)
from tests.waiting import until

SLOW = (
    "import pytest, time\n"
    "@pytest.mark.parametrize('n', range(8))\n"
    "def test_slow(n): time.sleep(0.4 if n < 4 else 600)\n"
)
TWO, FOUR = ({"pytest": ["-k", " or ".join("0123"[:number]), "."]} for number in (2, 4))


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "test_slow.py").write_text(SLOW)
    return folder


def agent_pid(folder: Path) -> int:
    """Its process id, once the agent has written it."""
    path = folder / "agent.pid"
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def alive(pid: int) -> bool:
    """A zombie is dead: it only waits for whoever adopted it to notice."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_start_is_idempotent(machine: Machine, lean: str, slow: Path) -> None:
    folder = machine.prepare(slow, python=lean, jobs=[TWO])
    starters = [
        subprocess.Popen(
            [machine.agent_python, "-E", "-s", "-m", "seatrial_agent", "start",
             "--attempt", str(folder)],
            cwd=machine.home, stdin=subprocess.DEVNULL,
        )
        for _ in range(5)
    ]  # fmt: skip
    assert [starter.wait(timeout=120) for starter in starters] == [0] * 5
    machine.start(folder)
    evidence = machine.wait(folder)
    assert evidence.counts() == {"passed": 2}
    size = (folder / "events.jsonl").stat().st_size
    machine.start(folder)
    assert (folder / "events.jsonl").stat().st_size == size, "an ended attempt is not begun again"


def test_survives_the_end_of_its_session(machine: Machine, lean: str, slow: Path) -> None:
    """What an SSH connection that goes away does: hang-up and kill of the starter's group."""
    folder = machine.prepare(slow, python=lean, jobs=[TWO])
    script = f"{machine.agent_python} -E -s -m seatrial_agent start --attempt {folder}; sleep 60"
    shell = subprocess.Popen(
        ["sh", "-c", script], cwd=machine.home, stdin=subprocess.DEVNULL, start_new_session=True
    )
    pid = agent_pid(folder)
    os.killpg(shell.pid, signal.SIGHUP)
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
    assert os.getsid(pid) != shell.pid
    descriptors = {os.readlink(f"/proc/{pid}/fd/{n}") for n in (0, 1)}
    assert descriptors == {"/dev/null"}
    seen, pulled = b"", 0
    while b'"kind":"end"' not in seen:
        _, events, _ = machine.pull(folder, events=len(seen))
        assert events == b"" or events.endswith(b"\n"), "whole lines while it lives"
        seen, pulled = seen + events, pulled + 1
        time.sleep(0.01)
    assert pulled > 2
    assert machine.wait(folder).counts() == {"passed": 2}


def test_pull_by_offset_in_small_pieces(machine: Machine, lean: str) -> None:
    folder = machine.prepare("failing", python=lean)
    machine.start(folder)
    evidence = machine.wait(folder)
    whole = (folder / "events.jsonl").read_bytes()
    pieces = b""
    while len(pieces) < len(whole):
        said, events, log = machine.pull(folder, events=len(pieces), log=10**9, limit=2_000)
        assert 0 < len(events) <= 2_000
        assert log == b""
        assert said["events_size"] == len(whole)
        pieces += events
    assert pieces == whole
    assert parse(whole) == evidence.events
    said, events, log = machine.pull(folder, events=len(whole), log=5)
    assert (events, log) == (b"", evidence.log[5:])
    assert said["alive"] is False


def test_stop_keeps_what_is_finished(machine: Machine, lean: str, slow: Path) -> None:
    folder = machine.prepare(slow, python=lean, jobs=[{}, command("true")])
    machine.start(folder)
    machine.follow(folder, until='"when":"teardown"')
    machine.verb("stop", "--attempt", folder, "--reason", "its run was cancelled")
    machine.verb("stop", "--attempt", folder, "--reason", "a second one does not count")
    evidence = machine.wait(folder)
    assert evidence.end == {
        "outcome": "stopped",
        "reason": "cancelled",
        "detail": "stopped by request: its run was cancelled",
    }
    assert evidence.finished()["cause"] == "stopped"
    assert 1 <= evidence.counts()["passed"] < 8
    assert evidence.of("phase", "demo") == [], "what was not started is not run"
    assert "suite.txt" in machine.bundle(folder)


def test_stopped_before_it_began(machine: Machine, lean: str, slow: Path) -> None:
    folder = machine.prepare(slow, python=lean)
    machine.verb("stop", "--attempt", folder, "--reason", "max_minutes: deadline")
    machine.start(folder)
    evidence = machine.wait(folder)
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("stopped", "deadline")
    assert evidence.of("phase", "suite") == []
    assert machine.bundle(folder) == {}


def test_start_that_comes_to_nothing(machine: Machine, lean: str, slow: Path) -> None:
    folder = machine.prepare(slow, python=lean)
    (folder / "agent.pid").mkdir()
    done = machine.verb("start", "--attempt", folder, code=4)
    assert b"the agent did not come up" in done.stderr


def test_stop_with_kill(machine: Machine, lean: str, slow: Path) -> None:
    folder = machine.prepare(slow, python=lean)
    machine.start(folder)
    machine.follow(folder, until='"when":"teardown"')
    pid = agent_pid(folder)
    machine.verb("stop", "--attempt", folder, "--reason", "now", "--kill")
    assert not alive(pid)
    assert processes_of(folder) == {}
    machine.verb("stop", "--attempt", folder, "--reason", "now", "--kill")
    said, events, _ = machine.pull(folder)
    assert said["alive"] is False
    assert parse(events)[-1]["kind"] != "end"


def test_close_ends_what_runs_without_its_folder(machine: Machine, lean: str, slow: Path) -> None:
    folder = machine.prepare(slow, python=lean)
    machine.start(folder)
    machine.follow(folder, until="manifest")
    agent = agent_pid(folder)
    shutil.rmtree(folder, ignore_errors=True)
    machine.verb("close", "--attempt", folder)
    assert not alive(agent)
    assert processes_of(folder) == {}
    time.sleep(0.5)
    assert not folder.exists()


def test_deadline(machine: Machine, lean: str, slow: Path) -> None:
    evidence = machine.run(slow, python=lean, limits={"deadline_s": 10})
    assert evidence.end["outcome"] == "stopped"
    assert evidence.end["reason"] == "deadline"
    assert evidence.finished()["cause"] == "stopped"
    assert evidence.counts()["passed"] >= 1


def test_sigterm_is_a_stop(machine: Machine, lean: str, slow: Path) -> None:
    folder = machine.prepare(slow, python=lean)
    machine.start(folder)
    machine.follow(folder, until='"when":"teardown"')
    os.kill(agent_pid(folder), signal.SIGTERM)
    evidence = machine.wait(folder)
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("stopped", "cancelled")
    assert "SIGTERM" in evidence.end["detail"]


def test_a_second_agent_goes_on(machine: Machine, lean: str, slow: Path) -> None:
    """kill -9 of the agent mid-suite, a torn last line, started again."""
    jobs = [command("sh", "-c", "echo ran >> $SEATRIAL_ARTIFACTS/../../../ran"), FOUR]
    folder = machine.prepare(slow, python=lean, jobs=jobs)
    machine.start(folder)
    machine.follow(folder, until='test_slow[1]","when":"setup')
    os.kill(agent_pid(folder), signal.SIGKILL)
    before = len(processes_of(folder))
    with (folder / "events.jsonl").open("ab") as stream:
        stream.write(b'{"v":1,"seq":99,"ki')
    machine.start(folder)
    evidence = _ended(machine, folder)
    assert before == 1
    assert [event["seq"] for event in evidence.events] == [
        n + 1 for n in range(len(evidence.events))
    ]
    assert evidence.counts() == {"passed": 4}
    starts = [one["nodeid"] for one in evidence.of("test") if one["record"] == "start"]
    again = [name for name in starts if starts.count(name) > 1]
    assert set(again) == {"test_slow.py::test_slow[1]"}, "only the one that was running"
    assert (folder / "ran").read_text() == "ran\n", "a finished job is not run again"
    assert any("an earlier agent" in text for text in evidence.messages("warning"))
    assert evidence.end["outcome"] == "completed"


def _ended(machine: Machine, folder: Path) -> Evidence:
    """Wait for the end; the line that was torn is known to be no JSON."""
    until(lambda: not machine.pull(folder)[0]["alive"], within_s=120)
    lines = (folder / "events.jsonl").read_bytes().split(b"\n")
    torn = [line for line in lines if line == b'{"v":1,"seq":99,"ki']
    assert len(torn) == 1
    return Evidence(parse(b"\n".join(line for line in lines if line not in torn)), b"")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"payload": "0000"}, "payload 0000 has not been unpacked on this machine"),
        (None, "plan.json is not JSON"),
    ],
)
def test_a_bad_plan_is_said(
    machine: Machine, lean: str, slow: Path, change: dict[str, object] | None, says: str
) -> None:
    folder = machine.prepare(slow, python=lean)
    plan = json.loads((folder / "plan.json").read_text())
    text = "{" if change is None else json.dumps({**plan, **change})
    (folder / "plan.json").write_text(text)
    machine.start(folder)
    evidence = machine.wait(folder)
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("errored", "agent")
    assert says in evidence.end["detail"]


def test_exit_codes_of_the_verbs(machine: Machine, lean: str, slow: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    pull = ("--events", 0, "--log", 0, "--limit", 10)
    for words in (("start",), ("pull", *pull), ("stop", "--reason", "x"), ("bundle",)):
        done = machine.verb(words[0], "--attempt", nowhere, *words[1:], code=3)
        assert b"there is no attempt at" in done.stderr
    machine.verb("close", "--attempt", nowhere)
    machine.verb("sail", code=2)
    machine.verb("pull", "--attempt", nowhere, code=2)
    folder = machine.prepare(slow, python=lean)
    done = machine.verb("start", "--attempt", folder, stdin=b'{"secrets": {"A": 1}}', code=4)
    assert b"stdin must be" in done.stderr
    said, _, rest = machine.verb("pull", "--attempt", folder, *pull).stdout.partition(b"\n")
    assert (json.loads(said)["alive"], rest) == (False, b"")
    with tarfile.open(
        fileobj=io.BytesIO(machine.verb("bundle", "--attempt", folder).stdout)
    ) as tar:
        assert tar.getnames() == []
    said = json.loads(machine.verb("ready").stdout)
    assert (said["v"], [one["check"] for one in said["checks"]]) == (
        1, ["cloud_init", "apt", "driver"],
    )  # fmt: skip


def test_secrets(machine: Machine, lean: str, payload: Path) -> None:
    """They reach the named job only, and appear nowhere on the disk."""
    secret = 'p@ss"w0rd/with chars'
    (payload / "demo.py").write_text(
        "import json, os, sys, time\n"
        "secret = os.environ.get('TOKEN', 'not given')\n"
        "print('plain', secret); print(json.dumps(secret)); print(repr(secret))\n"
        "sys.stdout.write(secret[:5]); sys.stdout.flush(); time.sleep(0.5); print(secret[5:])\n"
        "out = os.environ['SEATRIAL_ARTIFACTS']\n"
        "open(out + '/kept.txt', 'w').write('kept ' + secret)\n"
        "line = {'check': secret, 'outcome': 'failed', 'reason': 'because ' + secret}\n"
        "open(os.environ['SEATRIAL_EVENTS'], 'w').write(json.dumps(line) + chr(10))\n"
        "os.unlink(out + '/../events.jsonl') if '--wipe' in sys.argv else None\n"
    )
    jobs = [
        command("{python}", "demo.py", id="with", secrets=["TOKEN"]),
        command("sh", "-c", "echo ${TOKEN:-none}", id="without"),
    ]
    folder = machine.prepare(payload, python=lean, jobs=jobs)
    machine.start(folder, secrets={"TOKEN": secret, "PIN": "123"})
    evidence = machine.wait(folder)
    shown = evidence.log.partition(b"===== seatrial: with (demo) =====\n")[2]
    assert shown.startswith(b"plain ***\n\"***\"\n'***'\n***\n")
    assert shown.endswith(b"none\n")
    (check,) = evidence.of("check", "with")
    assert check == {"check": "***", "outcome": "failed", "reason": "because ***"}
    assert machine.bundle(folder)["with.kept.txt"] == b"kept ***"
    assert evidence.messages("warning") == [
        "secret PIN is shorter than 4 characters and is not masked"
    ]
    for name in ("events.jsonl", "log", "agent.err", "plan.json"):
        assert b"p@ss" not in (folder / name).read_bytes()
