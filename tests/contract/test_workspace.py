"""One set of questions to every workspace, and what the agent's verbs have to bear."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from orchestrator.adapters.wakeups import Wakeups
from orchestrator.domain.evidence import EvidenceBatch
from orchestrator.domain.machine import CommandResult, ConnectionLostError, Shell, UnreachableError
from runners.fake import FakeComputer, FakeWorkspace
from runners.shell import agent_session, open_shell
from runners.shell.connection import KeyFile
from runners.shell.ssh import SshShell
from runners.shell.stdin_feeder import OutputLimitError
from runners.workspace import Archive, ShellWorkspace, WorkspaceError, pack
from tests.ssh_hosts import Relay, SshHost
from tests.waiting import until

PLAN = {"v": 1, "attempt": "a-1", "jobs": [{"id": "moe", "kind": "suite"}]}
MIB = 1024 * 1024
AnyWorkspace = ShellWorkspace | FakeWorkspace


def sent(data: bytes, size: int = 65536) -> Callable[[], Iterator[bytes]]:
    return lambda: (data[at : at + size] for at in range(0, len(data), size))


def never() -> Iterator[bytes]:
    raise AssertionError("it was there already and must not be opened")


def pull(
    workspace: AnyWorkspace, attempt: str = "a-1", events: int = 0, log: int = 0
) -> EvidenceBatch:
    found = workspace.pull(attempt, events_offset=events, log_offset=log, limit_bytes=MIB)
    assert found is not None
    return found


@pytest.fixture
def started(workspace: AnyWorkspace) -> Iterator[AnyWorkspace]:
    workspace.start("a-1", PLAN, {"HF_TOKEN": "hidden words"})
    yield workspace
    if isinstance(workspace, ShellWorkspace) or workspace.computer.reachable:
        workspace.close("a-1")


# every workspace


def test_an_archive_is_sent_once(workspace: AnyWorkspace) -> None:
    archive = pack([("a.txt", b"a")])
    assert workspace.put_archive("payloads", archive.digest, sent(archive.data)) is True
    assert workspace.put_archive("payloads", archive.digest, never) is False
    assert workspace.put_archive("wheels", archive.digest, sent(archive.data)) is True


def test_an_archive_with_another_digest_is_refused_and_not_kept(workspace: AnyWorkspace) -> None:
    archive, other = pack([("a.txt", b"a")]), pack([("a.txt", b"b")])
    with pytest.raises(WorkspaceError, match=archive.digest):
        workspace.put_archive("payloads", archive.digest, sent(other.data))
    assert workspace.put_archive("payloads", archive.digest, sent(archive.data)) is True


def test_what_is_no_digest_is_refused(workspace: AnyWorkspace) -> None:
    for digest in ("", "abc", "../" + "a" * 61, "A" * 64):
        with pytest.raises(WorkspaceError, match="no sha256"):
            workspace.put_archive("payloads", digest, never)


def test_putting_the_agent_is_repeatable(workspace: AnyWorkspace) -> None:
    digest = workspace.put_agent()
    assert digest == workspace.put_agent() == workspace.agent_digest()


def test_a_probe_is_an_object_of_version_1(workspace: AnyWorkspace) -> None:
    found = workspace.probe(["python3"])
    assert found["v"] == 1
    assert isinstance(found["interpreters"], list)


def test_a_machine_says_how_ready_it_is(workspace: AnyWorkspace) -> None:
    found = workspace.ready()
    assert found["v"] == 1
    checks = found["checks"]
    assert isinstance(checks, list)
    assert checks
    for check in checks:
        assert check["check"] in {"cloud_init", "apt", "driver"}
        assert check["state"] in {"ok", "waiting", "failed", "absent"}
        assert isinstance(check["detail"], str)


def test_a_missing_attempt_is_a_value(workspace: AnyWorkspace) -> None:
    assert workspace.pull("a-9", events_offset=0, log_offset=0, limit_bytes=1) is None
    assert workspace.bundle("a-9") is None
    workspace.stop("a-9", "cancelled")
    workspace.close("a-9")


def test_a_started_attempt_writes_events_and_a_log(started: AnyWorkspace) -> None:
    found = pull(started)
    assert found.events.count(b"\n") >= 1
    assert found.log
    assert (found.events_size_bytes, found.log_size_bytes) == (len(found.events), len(found.log))
    assert found.now_s > 1_700_000_000
    assert b"hidden words" not in found.events + found.log


def test_pulling_in_small_pieces_gives_the_same_bytes(started: AnyWorkspace) -> None:
    events = log = b""
    for _ in range(200):
        found = started.pull("a-1", events_offset=len(events), log_offset=len(log), limit_bytes=97)
        assert found is not None
        assert max(len(found.events), len(found.log)) <= 97
        events, log = events + found.events, log + found.log
        if found.events_size_bytes == len(events) and found.log_size_bytes == len(log):
            break
    whole = pull(started)
    assert whole.events.startswith(events)
    assert whole.log.startswith(log)
    assert len(events) > 97


def test_pulling_from_the_end_gives_nothing(started: AnyWorkspace) -> None:
    while (found := pull(started)).alive and isinstance(started, FakeWorkspace):
        pass
    end = pull(started, events=found.events_size_bytes, log=found.log_size_bytes)
    assert (end.events, end.log) == (b"", b"")


def test_starting_again_changes_nothing(started: AnyWorkspace) -> None:
    before = pull(started)
    started.start("a-1", {**PLAN, "jobs": []}, {})
    after = pull(started, events=0)
    assert after.events.startswith(before.events)
    assert after.events.count(b'"HF_TOKEN"') == before.events.count(b'"HF_TOKEN"')


def test_a_killed_attempt_is_not_alive_and_keeps_what_it_wrote(started: AnyWorkspace) -> None:
    before = pull(started)
    started.stop("a-1", "cancelled", kill=True)
    started.stop("a-1", "cancelled", kill=True)
    after = pull(started)
    assert not after.alive
    assert after.events.startswith(before.events)


def test_a_bundle_is_a_tar(started: AnyWorkspace) -> None:
    data = started.bundle("a-1")
    assert data is not None
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert all(name.startswith("artifacts") for name in archive.getnames())


def test_closing_removes_the_attempt_and_is_repeatable(started: AnyWorkspace) -> None:
    started.close("a-1")
    started.close("a-1")
    assert started.pull("a-1", events_offset=0, log_offset=0, limit_bytes=1) is None


def test_attempts_do_not_see_one_another(started: AnyWorkspace) -> None:
    started.start("a-2", {**PLAN, "attempt": "a-2"})
    started.close("a-2")
    assert pull(started).events


# the one in memory


def test_a_cut_machine_goes_on_and_a_killed_one_does_not() -> None:
    computer = FakeComputer(lines_per_look=1)
    workspace = FakeWorkspace(computer)
    workspace.start("a-1", PLAN)
    assert pull(workspace).events.count(b"\n") == 1
    computer.cut()
    for _ in range(3):
        with pytest.raises(UnreachableError):
            pull(workspace)
    computer.heal()
    assert pull(workspace).events.count(b"\n") == 5
    computer.kill()
    computer.heal()
    with pytest.raises(UnreachableError):
        pull(workspace)


def test_the_usual_script_runs_every_job_to_its_end() -> None:
    workspace = FakeWorkspace(FakeComputer(lines_per_look=100))
    workspace.start("a-1", PLAN)
    events = [json.loads(line) for line in pull(workspace).events.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["data"]["outcome"] == "completed"
    assert sum(event["data"].get("when") == "call" for event in events) == 1


def test_a_stopped_script_says_why() -> None:
    workspace = FakeWorkspace(FakeComputer(lines_per_look=1))
    workspace.start("a-1", PLAN)
    pull(workspace)
    workspace.stop("a-1", "cancelled")
    last = json.loads(pull(workspace).events.splitlines()[-1])
    assert (last["kind"], last["data"]["reason"]) == ("end", "cancelled")


# real machines


def test_a_machine_without_python_is_named(shell: Shell, base: Path) -> None:
    class Without:
        """The same machine with nothing on its PATH."""

        def run(self, command: str, **options: object) -> object:
            return shell.run(f"PATH=/nowhere; {command}", **options)  # type: ignore[arg-type]

        close = shell.close

    with pytest.raises(WorkspaceError, match=r"no Python 3\.9 or newer.*/none/python, python3"):
        ShellWorkspace(Without(), base=str(base), candidates=["/none/python"]).python()  # type: ignore[arg-type]


def test_the_first_candidate_that_is_new_enough_runs_the_agent(
    shell: Shell, base: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    workspace = ShellWorkspace(
        shell, base=str(base), candidates=[str(old), sys.executable, "python3"]
    )
    assert workspace.python() == sys.executable


def test_a_removed_work_folder_is_made_again(real: ShellWorkspace, base: Path) -> None:
    real.start("a-1", PLAN)
    real.close("a-1")
    shutil.rmtree(base)
    assert real.pull("a-1", events_offset=0, log_offset=0, limit_bytes=1) is None
    assert os.listdir(base / "agents") == [real.agent_digest()]


def test_what_cannot_name_a_folder_is_refused(real: ShellWorkspace) -> None:
    for attempt in ("", ".", "..", "a/b", "-x", "a b", "a\n", "x" * 200):
        with pytest.raises(WorkspaceError, match="cannot name"):
            real.close(attempt)


def test_the_first_plan_stays_and_secrets_are_nowhere_on_disk(
    real: ShellWorkspace, base: Path
) -> None:
    real.start("a-1", PLAN, {"HF_TOKEN": "hidden words"})
    real.start("a-1", {"v": 1, "other": True}, {"HF_TOKEN": "hidden words"})
    folder = base / "attempts" / "a-1"
    assert json.loads((folder / "plan.json").read_text()) == PLAN
    held = [path for path in base.rglob("*") if path.is_file()]
    assert held
    assert not [path for path in held if b"hidden words" in path.read_bytes()]
    assert not [
        path
        for path in folder.iterdir()
        if path.name.startswith("plan.") and path.suffix != ".json"
    ]
    real.close("a-1")


def test_a_reason_is_one_word_whatever_it_holds(real: ShellWorkspace, base: Path) -> None:
    real.start("a-1", PLAN)
    real.stop("a-1", 'it\'s $(touch x); "over"\n')
    assert (base / "attempts/a-1/stop").read_text() == 'it\'s $(touch x); "over"\n'
    real.close("a-1")


def test_the_default_base_is_in_the_machines_home(ssh_host: SshHost, stub: Archive) -> None:
    shell = open_shell(ssh_host.endpoint(), keys_dir=ssh_host.keys_dir)
    workspace = ShellWorkspace(shell, candidates=[sys.executable], agent=stub)
    assert workspace.base() == f"{ssh_host.home}/.seatrial"
    workspace.start("a-7", PLAN)
    assert (ssh_host.home / ".seatrial/attempts/a-7/plan.json").exists()
    workspace.close("a-7")
    workspace.disconnect()


@pytest.mark.needs_sshd
def test_one_session_at_a_time_is_enough(
    new_host: Callable[..., SshHost], base: Path, stub: Archive
) -> None:
    host = new_host(options=("MaxSessions 1",))
    key_path = host.keys_dir / host.endpoint().key_file
    shell = SshShell(host.endpoint(), key=KeyFile(key_path), connect_timeout_s=30.0)
    workspace = ShellWorkspace(shell, base=str(base), candidates=[sys.executable], agent=stub)
    workspace.put_agent()
    archive = pack([("a.txt", b"a")])
    assert workspace.put_archive("payloads", archive.digest, sent(archive.data)) is True
    workspace.start("a-1", PLAN)
    assert pull(workspace).alive
    workspace.close("a-1")
    workspace.disconnect()


def test_an_attempt_outlives_a_cut_and_is_found_again(
    ssh_host: SshHost, base: Path, stub: Archive
) -> None:
    with Relay(ssh_host.port) as relay:
        key_path = ssh_host.keys_dir / ssh_host.endpoint().key_file
        shell = SshShell(
            ssh_host.endpoint(port=relay.port), key=KeyFile(key_path), connect_timeout_s=30.0
        )
        workspace = ShellWorkspace(shell, base=str(base), candidates=[sys.executable], agent=stub)
        workspace.start("a-1", PLAN)
        before = pull(workspace)
        relay.cut()
        with pytest.raises((UnreachableError, ConnectionLostError)):
            pull(workspace)
        relay.heal()
        after = pull(workspace)
        assert (after.alive, after.events) == (True, before.events)
        workspace.close("a-1")
        workspace.disconnect()


def servers(workspace: ShellWorkspace) -> list[int]:
    """The processes that answer for the workspace's agent."""
    folder = f"{workspace.base()}/agents/{workspace.agent_digest()}"
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "cwd") == folder:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                found += [int(entry.name)] if b"serve" in words else []
    return found


def test_one_process_answers_every_verb(real: ShellWorkspace) -> None:
    real.put_agent()
    began = servers(real)
    assert len(began) == 1
    archive = pack([("a.txt", b"a")])
    real.put_archive("payloads", archive.digest, sent(archive.data))
    real.probe(["python3"])
    real.start("a-1", PLAN)
    pull(real)
    real.stop("a-1", "over")
    real.bundle("a-1")
    real.close("a-1")
    real.ready()
    assert servers(real) == began
    real.disconnect()
    until(lambda: servers(real) == [])


def test_attempts_have_sessions_of_their_own(real: ShellWorkspace) -> None:
    """A verb that takes long for one attempt does not delay another's."""
    real.start("a-1", PLAN)
    real.start("a-2", {**PLAN, "attempt": "a-2"})
    assert len(servers(real)) == 2
    real.close("a-1")
    assert pull(real, "a-2").alive
    real.close("a-2")
    until(lambda: len(servers(real)) == 1)


def test_a_server_that_was_killed_is_started_again(real: ShellWorkspace) -> None:
    real.start("a-1", PLAN)
    before = pull(real)
    [server] = servers(real)
    os.kill(server, signal.SIGKILL)
    until(lambda: servers(real) == [])
    after = pull(real)
    assert (after.alive, after.events) == (True, before.events)
    assert servers(real) != [server]
    real.close("a-1")


def test_an_answer_that_is_too_long_leaves_no_half_of_it(real: ShellWorkspace) -> None:
    real.start("a-1", PLAN)
    with pytest.raises(OutputLimitError):
        real.bundle("a-1", limit_bytes=100)
    assert real.bundle("a-1") is not None
    assert pull(real).alive
    real.close("a-1")


class WakeupRecorder:
    """Records which attempts are armed, and how often they were woken."""

    def __init__(self) -> None:
        self.armed: set[str] = set()
        self.woken: Counter[str] = Counter()

    def arm(self, attempt: str) -> None:
        self.armed.add(attempt)

    def disarm(self, attempt: str) -> None:
        self.armed.discard(attempt)

    def wake(self, attempt: str) -> None:
        self.woken[attempt] += 1


@pytest.fixture
def recorded(
    shell: Shell, base: Path, stub: Archive
) -> Iterator[tuple[ShellWorkspace, WakeupRecorder]]:
    recorder = WakeupRecorder()
    workspace = ShellWorkspace(
        shell, base=str(base), candidates=[sys.executable], agent=stub, wakeups=recorder
    )
    workspace.start("a-1", PLAN)
    found = pull(workspace)
    pull(workspace, events=len(found.events), log=len(found.log))
    assert (recorder.armed, recorder.woken) == ({"a-1"}, Counter())
    yield workspace, recorder
    workspace.close("a-1")
    workspace.disconnect()


def test_more_output_wakes_once(
    recorded: tuple[ShellWorkspace, WakeupRecorder], base: Path
) -> None:
    workspace, recorder = recorded
    log = base / "attempts" / "a-1" / "log"
    for expected in (1, 2):
        with log.open("ab") as file:
            file.write(b"more")
        until(lambda expected=expected: recorder.woken["a-1"] == expected)
        found = pull(workspace, events=10_000)
        pull(workspace, events=found.events_size_bytes, log=found.log_size_bytes)


def test_the_agents_end_wakes(recorded: tuple[ShellWorkspace, WakeupRecorder]) -> None:
    workspace, recorder = recorded
    (Path(workspace.base()) / "attempts" / "a-1" / "stop").touch()
    until(lambda: recorder.woken["a-1"] == 1)
    assert not pull(workspace).alive
    assert not recorder.armed, "no wakeup follows"


def test_a_lost_session_wakes(recorded: tuple[ShellWorkspace, WakeupRecorder]) -> None:
    workspace, recorder = recorded
    for server in servers(workspace):
        os.kill(server, signal.SIGKILL)
    until(lambda: recorder.woken["a-1"] == 1)
    assert pull(workspace).alive


def test_a_closed_connection_wakes(recorded: tuple[ShellWorkspace, WakeupRecorder]) -> None:
    workspace, recorder = recorded
    workspace.disconnect()
    assert recorder.woken["a-1"] == 1


class Answering:
    """A shell whose every verb of the agent answers with the same bytes."""

    def __init__(self, stdout: bytes) -> None:
        self.answer = b"out %d\n" % len(stdout) + stdout + b"exit 0\n"

    def run(self, command: str, **options: object) -> object:
        return CommandResult(0, sys.executable.encode(), b"")

    def open(self, command: str, **options: object) -> object:
        return Saying(self.answer)

    def close(self) -> None:
        pass


class Saying:
    """A conversation that says one thing and ends, whatever it is asked."""

    def __init__(self, words: bytes) -> None:
        self.words = words

    def send(self, data: bytes, **options: object) -> None:
        pass

    def receive(self, **options: object) -> bytes:
        words, self.words = self.words, b""
        return words

    def status(self) -> int | None:
        return None

    def complaint(self) -> str:
        return ""

    def fileno(self) -> int:
        return 0

    def close(self) -> None:
        pass


def header(**changes: object) -> bytes:
    usual = {"v": 1, "alive": True, "events_bytes": 2, "log_bytes": 1, "now": 1.0}
    sizes = {"events_size": 9, "log_size": 9}
    return json.dumps({**usual, **sizes, **changes}).encode() + b"\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"not json\nabc",
        b"[]\nabc",
        header() + b"ab",
        header() + b"abcd",
        header(events_bytes=-1, log_bytes=4) + b"abc",
        header(events_bytes="2") + b"abc",
        header(events_bytes=True) + b"ab",
        header(events_size=None) + b"abc",
        header(events_bytes=20, log_bytes=0) + b"x" * 20,
    ],
)
def test_a_pull_that_contradicts_itself_is_refused(answer: bytes, stub: Archive) -> None:
    workspace = ShellWorkspace(Answering(answer), base="/x", agent=stub)  # type: ignore[arg-type]
    with pytest.raises(WorkspaceError):
        workspace.pull("a-1", events_offset=0, log_offset=0, limit_bytes=10)


def test_a_wakeup_right_after_the_answer_ends_the_wait(
    stub: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine may have more before the answer is read."""

    def call_now(descriptor: int, call: Callable[[], None]) -> None:
        call()

    monkeypatch.setattr(agent_session.READINESS, "add", call_now)
    wakeups = Wakeups(calm_s=3600.0)
    shell = cast(Shell, Answering(header() + b"abc"))
    workspace = ShellWorkspace(shell, base="/x", agent=stub, wakeups=wakeups)
    workspace.pull("a-1", events_offset=0, log_offset=0, limit_bytes=10)
    asyncio.run(asyncio.wait_for(wakeups.wait("a-1", 3600.0), timeout=60.0))


@pytest.mark.parametrize("answer", [header(alive=False) + b"abc", header() + b"ab", b""])
def test_a_pull_that_no_wakeup_follows_leaves_none_expected(
    answer: bytes, stub: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next poll is two seconds later instead of half a second."""
    monkeypatch.setattr(agent_session.READINESS, "add", lambda descriptor, call: None)
    wakeups = Wakeups(calm_s=3600.0)
    workspace = ShellWorkspace(
        cast(Shell, Answering(answer)), base="/x", agent=stub, wakeups=wakeups
    )
    with contextlib.suppress(WorkspaceError):
        workspace.pull("a-1", events_offset=0, log_offset=0, limit_bytes=10)
    asyncio.run(asyncio.wait_for(wakeups.wait("a-1", 0.01), timeout=60.0))
