"""What a verb of the agent imports: each is a process of its own on a machine that is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

AGENT = Path(__file__).resolve().parents[3] / "runners" / "agent"
HEAVY = {"dataclasses", "inspect", "email", "http.client", "urllib.request", "subprocess"}


@pytest.mark.parametrize(
    "words",
    [
        ["pull", "--attempt", "a", "--events", "0", "--log", "0", "--limit", "100"],
        ["stop", "--attempt", "a", "--reason", "cancelled"],
        ["bundle", "--attempt", "a"],
        ["close", "--attempt", "a"],
    ],
    ids=lambda words: words[0],
)
def test_a_verb_imports_what_it_needs(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "seatrial_agent").symlink_to(AGENT)
    (tmp_path / "a" / "artifacts").mkdir(parents=True)
    code = (
        "import sys; from seatrial_agent.__main__ import main\n"
        f"status = main({words!r}); print(*sys.modules, file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-E", "-s", "-S", "-B", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        text=True,
    )
    assert set(done.stderr.split()) & HEAVY == set()
