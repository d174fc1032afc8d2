"""Nothing of a contained command remains, whichever of its processes is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import contained

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="supervisors need Linux")
# A daemon of its own session that holds the pipe open: its end is seen as the pipe's.
COMMAND = """
import os, subprocess, sys, tempfile, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                 start_new_session=True, close_fds=False)
open(os.path.join(tempfile.gettempdir(), "left"), "w").close()
os.symlink(os.path.join(tempfile.gettempdir(), "job"), f"/tmp/st-{os.getpid()}-left")
print(tempfile.gettempdir(), os.getppid(), os.getpid(), flush=True)
time.sleep(600 if sys.argv[1] == "wait" else 0)
sys.exit(3)
"""


def start(how: str) -> tuple[subprocess.Popen[str], Path, dict[str, int]]:
    program = [sys.executable, contained.__file__, sys.executable, "-c", COMMAND, how]
    outer = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert outer.stdout is not None
    folder, inner, command = outer.stdout.readline().split()
    return outer, Path(folder), {"outer": outer.pid, "inner": int(inner), "command": int(command)}


@pytest.mark.parametrize(
    ("who", "number", "status"),
    [
        ("outer", signal.SIGTERM, 128 + signal.SIGTERM),
        ("outer", signal.SIGKILL, -signal.SIGKILL),
        ("inner", signal.SIGKILL, 128 + signal.SIGKILL),
        ("command", signal.SIGKILL, 128 + signal.SIGKILL),
    ],
)
def test_daemons_and_files_end_with_it(who: str, number: int, status: int) -> None:
    outer, folder, processes = start("wait")
    os.kill(processes[who], number)
    assert outer.communicate()[0] == ""  # the daemon's end of the pipe is closed
    assert outer.returncode == status
    assert not (folder / "left").exists()
    assert not Path(f"/tmp/st-{processes['command']}-left").is_symlink()


def test_its_exit_status_is_the_commands() -> None:
    outer, folder, _ = start("end")
    assert outer.communicate()[0] == ""
    assert (outer.returncode, folder.exists()) == (3, False)


def test_what_a_power_cut_left_goes_at_the_next_start(tmp_path: Path) -> None:
    left, held = tmp_path / "seatest-left", tmp_path / "seatest-held"
    for folder in (left, held):
        folder.mkdir()
        os.close(contained.hold(folder))
    lock = contained.hold(held)
    environment = {"TMPDIR": str(tmp_path), "PATH": os.environ["PATH"]}
    program = [sys.executable, contained.__file__, sys.executable, "-c", "pass"]
    subprocess.run(program, check=True, env=environment)
    assert [path.name for path in tmp_path.iterdir()] == ["seatest-held"]
    os.close(lock)
