"""Where a lie is told: a subject with a defect, a payload, its runs and verdicts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.adversary.stage import Stage
from tests.e2e.home import ROOT
from tests.integration.wheel_making import wheel_bytes

PLATFORM = "here"
GOOD = "NAME = 'mylib'\ndef double(x): return x + x\ndef triple(x): return 3 * x\n"
DEFECT = GOOD.replace("return x + x", "return x + x + 1")
"""The subject of every lie: a release that must not go out."""
HONEST = {
    "t/test_double.py": "import mylib\n\ndef test_double():\n    assert mylib.double(2) == 4\n",
    "t/test_rest.py": (
        "import mylib\n\ndef test_triple():\n    assert mylib.triple(2) == 6\n\n"
        "def test_name():\n    assert mylib.NAME == 'mylib'\n"
    ),
}
"""Tests that find the defect, one of three."""
SUITE = '[[job]]\nid = "suite"\nkind = "suite"\npytest = ["t"]\n'
DEMO = '[[job]]\nid = "demo"\nkind = "demo"\ncommand = ["{python}", "demo.py"]\n'
EVERY_JOB = "  - {select: '*', on: all}"
POLICY: dict[str, Any] = {"platforms": [{"id": PLATFORM}]}
"""What a policy cannot do without: everything else is the default."""


@dataclass(frozen=True)
class Verdict:
    """What one gate decided, and why."""

    decision: str
    rules: Mapping[str, str]
    """What each rule that is not ok says, by its id."""
    text: str
    """All that the verdict says, for whoever looks for a name in it."""

    @property
    def passed(self) -> bool:
        return self.decision.startswith("PASS")


class RefusedError(Exception):
    """The product did not take part: what it said."""


class Scene:
    """One lie's own folder and product in a home that others use, too."""

    def __init__(self, stage: Stage, folder: Path, product: str) -> None:
        """Begin with the subject that has a defect, and honest tests."""
        self.stage = stage
        self.folder = folder
        self.product = product
        self.payload_path = "payload"  # or an archive's
        folder.mkdir(parents=True)
        self.subject(DEFECT)
        self.payload(HONEST)

    def subject(
        self,
        code: str,
        *,
        version: str = "1.0",
        files: Mapping[str, str] | None = None,
        requires: Sequence[str] = (),
    ) -> None:
        """Make the wheel of mylib that is under test: one module, or these files."""
        made = files or {"mylib/__init__.py": code}
        wheel = wheel_bytes("mylib", version, *requires, files=made)
        path = self.folder / f"mylib-{version}-py3-none-any.whl"
        path.write_bytes(wheel)
        self.wheel(path, "mylib")
        self.version = version

    def wheel(self, path: Path, name: str) -> None:
        """Take another wheel as the subject."""
        self.name = name
        self.source = str(path.relative_to(self.folder))

    def payload(
        self,
        files: Mapping[str, str],
        *,
        jobs: str = SUITE,
        manifest: str = "",
        pip: Sequence[str] = (),
    ) -> None:
        """Write the payload anew; `manifest` is more of payload.toml, at its top."""
        folder = self.folder / "payload"
        shutil.rmtree(folder, ignore_errors=True)
        needs = ["pytest>=8", *pip]
        about = (
            f'schema = 1\nname = "{self.product}"\nversion = "1"\n{manifest}[python]\n'
            f'candidates = ["{self.stage.python}"]\n[setup]\npip = {json.dumps(needs)}\n'
        )
        for name, text in {"payload.toml": about + jobs, **files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def run(self, *words: str, rows: str = "", jobs: str = "", more: str = "") -> str:
        """Launch it and wait; returns the run's id. Raises RefusedError where there is none."""
        matrix = self.folder / "matrix.yaml"
        wheel = f', wheel: "{self.source}"' if self.source else ""
        matrix.write_text(
            "apiVersion: seatrial/v1\nkind: Matrix\n"
            f"metadata: {{name: {self.product}}}\n"
            f'subject: {{name: {self.name}, version: "{self.version}"{wheel}}}\n'
            f"payload: {{path: {self.payload_path}}}\nplatforms:\n{rows or self.stage.row}"
            f"jobs:\n{jobs or EVERY_JOB}\n{more}"
        )
        return self._launched("run", str(matrix), "-y", "--json", *words)

    def rerun(self, run: str) -> str:
        """Run what failed again."""
        return self._launched("rerun", run, "--only", "failed", "--json")

    def _launched(self, *words: str) -> str:
        said = self.seatrial(*words)
        found = re.search(r"^run (\w{26})$", said.stderr, re.MULTILINE)
        if found is None:
            raise RefusedError(said.stderr.strip().splitlines()[-1])
        return found.group(1)

    def seatrial(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, as a user has it, whatever it ends with."""
        return subprocess.run(
            self.stage.home.command(*words),
            env=self.stage.home.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=3600,  # one honest project has tens of thousands of tests
            stdin=subprocess.DEVNULL,
        )

    def check(self, *runs: str, spec: Mapping[str, Any] = POLICY) -> Verdict:
        """Ask a gate that says no more than `spec`. Raises RefusedError where it does not."""
        policy = self.folder / "gate.json"
        about = {"name": self.product, "product": self.product, "owner": "release-team"}
        document = {"apiVersion": "seatrial/v1", "kind": "ReleaseGate", "metadata": about}
        text = json.dumps({**document, "spec": spec})
        policy.write_text(text.replace("{today}", self.day(0)).replace("{soon}", self.day(5)))
        named = [word for run in runs for word in ("--run", run)]
        said = self.seatrial("gate", "check", str(policy), *named, "--json")
        if not said.stdout.startswith("{"):
            raise RefusedError(" ".join(said.stderr.split()))
        found = json.loads(said.stdout)
        wrong = {rule["id"]: rule["sentence"] for rule in found["rules"] if rule["outcome"] != "ok"}
        return Verdict(found["decision"], wrong, said.stdout)

    def day(self, number: int) -> str:
        """So many days from now, as policies write it."""
        return f"{datetime.now(UTC) + timedelta(days=number):%Y-%m-%d}"

    def green(self) -> str:
        """A sound release 0.9 passes the gate, and is what the next one is compared with."""
        self.subject(GOOD, version="0.9")
        run = self.run()
        verdict = self.check(run)
        assert verdict.passed, verdict
        self.subject(DEFECT)
        return run


def release_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The shipped gates/release.yaml, for the platforms and jobs of another policy.

    Without its demand that the payload was reviewed: that alone would refuse every lie.
    """
    shipped = YAML(typ="safe").load(ROOT / "gates" / "release.yaml")["spec"]
    evidence = {**shipped["evidence"], "payload_level": "untrusted"}
    return {**shipped, "evidence": evidence, "jobs": [{"id": "*"}], **spec}
