"""Payloads made for a test: they write down what they did, so that it can be counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

SUITE = """
import pathlib, time
import pytest

LEDGER = pathlib.Path({ledger!r})


@pytest.mark.parametrize("n", range({tests}))
def test_step(n):
    with LEDGER.open("a") as file:
        file.write(f"begun {{n}}\\n")
    end = time.monotonic() + 100
    while LEDGER.read_text().splitlines().count(f"begun {{n}}") < {hosts}:
        assert time.monotonic() < end, "no other host begins it"
        time.sleep(0.05)
    time.sleep({seconds})
    if n % 10 == 7:
        pytest.skip("every tenth is skipped")
    assert n % 10 != 3, f"every tenth fails: {{n}}"
    with LEDGER.open("a") as file:
        file.write(f"ended {{n}}\\n")
"""

MANIFEST = """
schema = 1
name = "steps"
version = "1"
[python]
candidates = ["python3"]
[setup]
pip = ["pytest>=8"]
[[job]]
id = "steps"
kind = "suite"
pytest = ["test_steps.py"]
[[job]]
id = "hello"
kind = "demo"
command = ["{python}", "-c", "print('hello')"]
"""


class Steps:
    """A suite of slow steps; of ten, one fails and one is skipped."""

    def __init__(
        self, folder: Path, *, tests: int = 20, seconds: float = 0.2, hosts: int = 1
    ) -> None:
        """Write it; each step waits until so many hosts are at it."""
        self.folder = folder
        self.tests = tests
        self.ledger = folder.parent / f"{folder.name}-ledger.txt"
        folder.mkdir(parents=True)
        self.ledger.touch()
        self.ledger.chmod(0o666)
        suite = SUITE.format(ledger=str(self.ledger), tests=tests, seconds=seconds, hosts=hosts)
        (folder / "test_steps.py").write_text(suite)
        (folder / "payload.toml").write_text(MANIFEST)

    def check(self, run: dict[str, Any]) -> None:
        """Hold a finished run of one cell against what the suite does, whatever came between.

        Args:
            run: As `seatrial show --json` has it.
        """
        [cell] = run["cells"]
        assert (run["outcome"], cell["outcome"], cell["reason"]) == ("failed", "failed", "tests")
        failed, skipped = (sum(n % 10 == last for n in range(self.tests)) for last in (3, 7))
        counts = {outcome: count for outcome, count in cell["counts"].items() if count}
        passed = self.tests - failed - skipped
        assert counts == {"passed": passed, "failed": failed, "skipped": skipped}
        jobs = {job["id"]: (job["outcome"], job["reason"]) for job in cell["jobs"]}
        assert jobs == {"steps": ("failed", "tests"), "hello": ("passed", "")}
        artifacts = {artifact["name"] for artifact in cell["artifacts"]}
        assert artifacts == {"environment.json", "events.jsonl", "hello.txt", "steps.txt"}
        assert len(cell["attempts"]) == 1
        assert self.begun() == {str(n): 1 for n in range(self.tests)}

    def begun(self) -> Counter[str]:
        """How often each step was begun."""
        lines = self.ledger.read_text().splitlines()
        return Counter(line.split()[1] for line in lines if line.startswith("begun"))


def matrix(path: Path, payload: Path, platforms: str = "", limits: str = "{}") -> Path:
    """Write a matrix file for a payload; by default on this computer."""
    rows = platforms or "  - {id: here, provider: local}\n"
    path.write_text(
        "apiVersion: seatrial/v1\n"
        "kind: Matrix\n"
        "metadata: {name: steps}\n"
        'subject: {name: steps, version: "1"}\n'
        f"payload: {{path: {payload}}}\n"
        f"limits: {limits}\n"
        f"platforms:\n{rows}"
        'jobs:\n  - {select: "*"}\n'
    )
    return path
