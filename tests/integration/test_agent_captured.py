"""Captured output that cannot be moved into named files: the tests run all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.home import ROOT

ON_PATH = ROOT / "runners/agent/on_path"
MOVE = """
import sys, types
sys.path.insert(0, sys.argv[1])
import seatrial_captured
capture = types.SimpleNamespace(out=types.SimpleNamespace(targetfd_save=1), err=None)
ours = types.SimpleNamespace(_global_capturing=capture)
managers = {"of another pytest": object(), "no folder": ours, "not at all": None}
plugins = types.SimpleNamespace(getplugin=lambda name: managers[sys.argv[2]])
seatrial_captured.move(types.SimpleNamespace(pluginmanager=plugins), "")
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("of another pytest", "would be lost: 'object' object has no attribute"),
        ("no folder", "would be lost: [Errno 2] No such file or directory"),
        ("not at all", ""),
    ],
)
def test_what_would_be_lost_is_said(tmp_path: Path, how: str, said: str) -> None:
    done = subprocess.run(
        (sys.executable, "-c", MOVE, str(ON_PATH), how),
        env={**os.environ, "SEATRIAL_CAPTURED": str(tmp_path / "gone")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stderr
    assert bool(said) is bool(done.stderr)
