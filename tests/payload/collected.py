"""What the built-in payload's suites offer, collected once."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAYLOAD = ROOT / "payload"


@cache
def collected(hash_seed: str = "1") -> tuple[str, ...]:
    """Ids of all tests, `test_moe.py::TestRouters::test_hash_router` say, in their order."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"],
        cwd=PAYLOAD,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    lines = (line.removeprefix("suites/") for line in done.stdout.splitlines())
    return tuple(line for line in lines if "::" in line)
