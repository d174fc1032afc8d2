"""`make audit` tells apart: nothing known, something known, and nobody to ask."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="the Makefile is for make")
@pytest.mark.parametrize(
    ("script", "said", "is_good"),
    [
        ('echo "{}" > "$out"', "AUDITED: nothing known", True),
        ('echo "{}" > "$out"; exit 1', "VULNERABLE: see build/audit.json", False),
        ("exit 1", "NOT AUDITED: pypi.org could not be asked", False),
    ],
)
def test_an_audit_that_asked_nobody_says_so(
    tmp_path: Path, script: str, said: str, is_good: bool
) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for marker in (".run", ".release"):
        (tmp_path / ".venv" / marker).touch()
    program = programs / "pip-audit"
    program.write_text(f"#!/bin/sh\nfor out; do :; done\n{script}\n")
    program.chmod(0o755)
    of_outer_make = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}  # it would say which folder it enters
    ended = subprocess.run(
        ["make", "--no-print-directory", "audit"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in of_outer_make},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode == 0) is is_good, ended.stderr
    assert ended.stdout.splitlines() == [said]
