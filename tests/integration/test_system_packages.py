"""What the tests need beside Python is fetched again where a mirror is away for a moment."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "system-packages.sh"
APT = """#!/bin/sh
echo "$*" >>{folder}/asked
case "$*" in *{fails}*) [ $(grep -c -- '{fails}' {folder}/asked) -gt {times} ];; esac
"""


def run(folder: Path, *, fails: str, times: int) -> tuple[int, list[str]]:
    """Run it where nothing is installed, as an apt-get fails so often; what that was asked for."""
    programs = folder / "bin"
    programs.mkdir()
    for name, text in {
        "apt-get": APT.format(folder=folder, fails=fails, times=times),
        "sleep": f"#!/bin/sh\necho sleep >>{folder}/asked\n",
        "id": "#!/bin/sh\necho 0\n",
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for name in ("grep", "chmod", "rm", "sh"):
        (programs / name).symlink_to(str(shutil.which(name)))
    done = subprocess.run([str(shutil.which("bash")), SCRIPT], env={"PATH": str(programs)})
    kinds = ("update", "install", "sleep")
    lines = (folder / "asked").read_text().splitlines()
    return done.returncode, [next(kind for kind in kinds if kind in line) for line in lines]


@pytest.mark.skipif(os.geteuid() != 0, reason="the script installs as root alone")
@pytest.mark.parametrize(
    ("fails", "times", "status", "asked"),
    [
        ("update", 1, 0, ["update", "sleep", "update", "install"]),
        ("install", 2, 0, ["update", "install", "sleep"] * 2 + ["update", "install"]),
        ("install", 9, 1, ["update", "install", "sleep"] * 2 + ["update", "install"]),
    ],
)
def test_a_mirror_that_is_away_is_asked_again_and_not_for_ever(
    tmp_path: Path, fails: str, times: int, status: int, asked: list[str]
) -> None:
    assert run(tmp_path, fails=fails, times=times) == (status, asked)
