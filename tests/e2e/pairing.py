"""A benchmark paired with its baseline and judged by a gate, the way a person does both."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.home import ROOT, Home

PAYLOAD = ROOT / "tests" / "payloads" / "paired"
MATRIX = """apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: pairs}}
subject: {{name: paired, version: "1"}}
payload: {{path: {candidate}}}
baseline: {{payload: {{path: {baseline}}}, min_pairs: 12, max_pairs: {most}, precision: "1.5%"}}
platforms:
  - {{id: here, provider: local}}
jobs:
  - {{id: loop}}
"""
POLICY = """apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: speed, product: paired, owner: performance}
spec:
  platforms:
    - {id: here}
  performance:
    budgets:
      - {match: "loop/*", max_regression: "4%"}
"""


@dataclass(frozen=True)
class Judged:
    """What one run came to."""

    decision: str
    benchmark: str
    """What the verdict says of the benchmark."""
    pairs: int
    slowdown: float
    seconds: float
    """Of the job."""


class Speed:
    """Two payloads of one benchmark, one of them slower on purpose, and a gate for them."""

    def __init__(self, home: Home, folder: Path, *, max_pairs: int = 60) -> None:
        self._home = home
        self._folder = folder
        self._max_pairs = max_pairs
        (folder / "policy.yaml").write_text(POLICY)

    def judge(self, slower: float) -> Judged:
        """Run the candidate, so much slower, beside its baseline, and ask the gate."""
        matrix = self._matrix(slower)
        run = json.loads(self._home.seatrial("run", str(matrix), "-y", "--json", timeout=600))
        [job] = run["cells"][0]["jobs"]
        assert job["outcome"] == "passed", run["cells"][0]
        [pair] = job["pairs"]
        verdict = self._verdict(run["id"])
        [rule] = [one for one in verdict["rules"] if "loop/loop" in one["id"]]
        return Judged(
            decision=verdict["decision"],
            benchmark=rule["sentence"],
            pairs=len(pair["subject"]),
            slowdown=pair["slowdown"],
            seconds=job["duration_s"],
        )

    def _matrix(self, slower: float) -> Path:
        folder = self._folder / f"slower-{slower}"
        if not folder.exists():
            for name in ("candidate", "baseline"):
                shutil.copytree(PAYLOAD, folder / name)
            if slower:
                (folder / "candidate" / "slower").write_text(str(slower))
            arms = {"candidate": folder / "candidate", "baseline": folder / "baseline"}
            (folder / "m.yaml").write_text(MATRIX.format(**arms, most=self._max_pairs))
        return folder / "m.yaml"

    def _verdict(self, run: str) -> dict[str, Any]:
        """Ask the gate; its exit code says the decision, which is not known here yet."""
        policy = str(self._folder / "policy.yaml")
        words = self._home.command("gate", "check", policy, "--run", run, "--json")
        done = subprocess.run(
            words, env=self._home.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, 1, 5), done.stderr
        verdict: dict[str, Any] = json.loads(done.stdout)
        return verdict
