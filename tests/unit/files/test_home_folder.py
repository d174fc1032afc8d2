from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.files.home_folder import (
    LOCK,
    PID,
    HomeHeldError,
    HomeLock,
    HomeUnusableError,
    holder,
    prepare_home,
    temporary_folder,
)

ROOT = Path(__file__).parents[3]
HOLD = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from orchestrator.adapters.clock import SystemClock
    from orchestrator.adapters.files.home_folder import HomeLock
    clock = SystemClock()
    HomeLock(Path(sys.argv[1]), clock=clock, sleep=clock.sleep).acquire("other")
    print("held", flush=True)
    sys.stdin.read()
    """
)


def lock(home: Path, naps: list[float] | None = None) -> HomeLock:
    return HomeLock(home, clock=SystemClock(), sleep=(naps if naps is not None else []).append)


@pytest.fixture
def other(tmp_path: Path):  # type: ignore[no-untyped-def]
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "home")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_the_home_says_who_holds_it(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    with lock(home).acquire("serve"):
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert (home / PID).read_text() == f"{os.getpid()}\n"
        signed = json.loads((home / LOCK).read_text())
        assert (signed["pid"], signed["role"]) == (os.getpid(), "serve")
        found = holder(home)
        assert found is not None
        assert (found.pid, found.role) == (os.getpid(), "serve")
    assert holder(home) is None
    assert not (home / PID).exists()
    assert sorted(path.name for path in home.iterdir()) == [LOCK]


def test_a_home_that_is_a_file_is_a_sentence(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.touch()
    said = f"SEATRIAL_HOME {home} cannot be used: File exists; set it to a folder"
    with pytest.raises(HomeUnusableError, match=re.escape(said)):
        prepare_home(home)


def test_a_home_that_others_can_enter_is_closed(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder in (home, home / "keys", elsewhere):
        folder.mkdir()
        folder.chmod(0o755)
    for name in ("app.db", "app.db-wal", "engine.db", "controller.log", "token", "mine.txt"):
        (home / name).touch(mode=0o644)
        (home / name).chmod(0o644)
    (home / "blobs").symlink_to(elsewhere)
    prepare_home(home)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    assert stat.S_IMODE(home.stat().st_mode) == modes.pop("keys") == 0o700
    assert (modes.pop("mine.txt"), modes.pop("blobs")) == (0o644, 0o755)  # not ours; elsewhere
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize(
    ("mode", "of_others", "refused"),
    [(0o755, True, "belongs to user"), (0o1777, False, "for everybody"), (0o700, True, "")],
)
def test_a_home_that_cannot_be_closed_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, of_others: bool, refused: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    if of_others:
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    if not refused:
        prepare_home(home)
        return
    with pytest.raises(HomeUnusableError, match=f"mode {mode:o}.*{refused}.*folder of your own"):
        prepare_home(home)
    assert stat.S_IMODE(home.stat().st_mode) == mode


def test_nobody_holds_a_home_that_is_not_there(tmp_path: Path) -> None:
    assert holder(tmp_path / "home") is None


def test_only_one_holds_it(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    naps: list[float] = []
    with pytest.raises(HomeHeldError) as caught:
        lock(tmp_path / "home", naps).acquire("serve")
    assert f"is held by process {other.pid} (other): stop it" in str(caught.value)
    assert sum(naps) == pytest.approx(1.0)
    assert caught.value.holder == holder(tmp_path / "home")


def test_a_home_whose_holder_was_killed_is_free(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert holder(tmp_path / "home") is None
    with lock(tmp_path / "home").acquire("serve"):
        found = holder(tmp_path / "home")
        assert found is not None
        assert found.pid == os.getpid()


def test_a_dead_holder_that_nobody_waited_for_holds_nothing(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    os.kill(other.pid, signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert holder(tmp_path / "home") is None


def test_the_starter_wins_against_one_who_is_just_leaving(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = lock(home).acquire("serve")
    second = HomeLock(home, clock=SystemClock(), sleep=lambda _: first.release())
    second.acquire("starter").release()


def test_a_later_process_of_the_same_number_is_not_the_holder(tmp_path: Path) -> None:
    with lock(tmp_path / "home").acquire("serve"):
        path = tmp_path / "home" / LOCK
        path.write_text(json.dumps({**json.loads(path.read_text()), "start": "1"}))
        assert holder(tmp_path / "home") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "role": "", "started_at": ""}'])
def test_a_torn_lock_file_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / LOCK).write_text(text)
    assert holder(tmp_path) is None


def test_what_a_dead_holder_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    folder = temporary_folder(home)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "seatrial-upload-x" / "deep").mkdir(parents=True)
    (folder / "seatrial-upload-x" / "deep" / "body").write_bytes(b"x")
    (folder / "file").touch()
    (folder / "link").symlink_to(elsewhere)
    with lock(home).acquire("serve"):
        assert list(folder.iterdir()) == []
        assert (elsewhere / "kept").exists()


def test_what_a_living_holder_has_there_stays(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    kept = temporary_folder(tmp_path / "home") / "seatrial-ingest-x"
    kept.mkdir()
    with pytest.raises(HomeHeldError):
        lock(tmp_path / "home").acquire("serve")
    assert kept.is_dir()
