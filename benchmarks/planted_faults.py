"""Plants faults of each kind, and counts how often the right one is blamed.

Real runs: the controller, the agent, pytest, wheels, and hosts behind OpenSSH on the loopback for
the machine that computes wrong. Exits 1 when anything is blamed for what it did not do, or when
fewer than 95 % of a kind are attributed. Run it as `python -m benchmarks.planted_faults`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.home import Home, a_home, eventually
from tests.integration.wheel_making import wheel_bytes
from tests.ssh_hosts import SshHost, sshd_missing

CHANCES = (0.2, 0.35, 0.5, 0.6)
"""Probability that a flaky test fails."""
FLAKY_MORE = 3
"""Factor of the planted flaky tests: most of them pass at first."""
FLOOR = 0.95
STEPS = 7
"""Maximum number of runs to find a commit among 64."""
MANIFEST = """schema = 1
name = "planted"
version = "1"
{python}
[env.image]
pip = [{packages}]
[[job]]
id = "suite"
kind = "suite"
pytest = ["test_planted.py"]
"""
MATRIX = """apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: planted}}
subject: {{name: widget, version: "{version}", package: "widget=={version}"}}
baseline: {{package: "widget==1.0"}}
payload: {{path: payload}}
limits: {{max_minutes: 30}}
platforms:
{platform}
jobs:
  - {{select: "*"}}
"""
HERE = "  - {id: here, provider: local}"
OURS = """
def test_subject_{n}():
    assert widget.VERSION in ("0.9", "1.0")
"""
DEPENDENCY = """
def test_dependency_{n}():
    import part{n}
    assert part{n}.VERSION == "1.0"
"""
FLAKY = """
def test_flaky_{n}():
    assert MONDAY or random.random() >= {chance}
"""
MACHINE = """
def test_machine_{n}():
    product = {n} * 7 + (1 if "/red/" in __file__ else 0)
    assert product == {n} * 7
"""


@dataclass
class Score:
    """The planted faults, and what each was attributed to."""

    blamed: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, kind: str, answer: str) -> None:
        self.blamed.setdefault(kind, Counter())[answer] += 1

    def count(self, kind: str) -> int:
        return sum(self.blamed.get(kind, Counter()).values())

    def wrong(self) -> int:
        return sum(
            number
            for kind, answers in self.blamed.items()
            for answer, number in answers.items()
            if answer not in (kind, "unknown")
        )

    def tell(self) -> str:
        rows = []
        for kind, answers in sorted(self.blamed.items()):
            said = ", ".join(f"{answer} {number}" for answer, number in answers.most_common())
            rows.append(f"  {kind:11} {answers[kind]} of {self.count(kind)} right ({said})")
        return "\n".join(rows)

    def is_good(self) -> bool:
        shares = [answers[kind] / self.count(kind) for kind, answers in self.blamed.items()]
        return not self.wrong() and min(shares, default=1.0) >= FLOOR


class Site:
    """A payload, wheels and matrices in a folder."""

    def __init__(self, folder: Path, *, platform: str = HERE, python: str = "") -> None:
        self.folder = folder
        self.platform = platform
        self.python = python
        self.index = folder / "index"
        self.index.mkdir(parents=True)
        self.wheel("widget", "1.0")
        self.wheel("widget", "1.1")

    def wheel(self, name: str, version: str) -> None:
        path = self.index / f"{name}-{version}-py3-none-any.whl"
        path.write_bytes(wheel_bytes(name, version))

    def payload(self, tests: str, *packages: str) -> None:
        folder = self.folder / "payload"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        listed = ", ".join(f'"{name}"' for name in packages)
        text = MANIFEST.format(python=self.python, packages=listed)
        (folder / "payload.toml").write_text(text)
        head = "import random\nimport widget\nMONDAY = widget.VERSION == '0.9'\n"
        (folder / "test_planted.py").write_text(head + tests)

    def matrix(self, version: str) -> str:
        path = self.folder / f"{version}.yaml"
        path.write_text(MATRIX.format(version=version, platform=self.platform))
        return str(path)


def run(home: Home, *words: str) -> dict:
    command = home.command("run", *words, "--json")
    done = subprocess.run(
        command, env=home.environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    answer: dict = json.loads(done.stdout)
    return answer


def blamed(home: Home, run_id: str, cell: str) -> Iterator[tuple[str, str]]:
    """Yield the planted kind and the attribution of every failing test."""
    for found in home.get(f"/runs/{run_id}/cells/{cell}/retests")["attributions"]:
        kind = found["nodeid"].rpartition("::test_")[2].rpartition("_")[0]
        yield kind, found["answer"]


def mixed_round(folder: Path, score: Score, *, each: int, number: int) -> None:
    """Plant faults of the subject, of packages and of tests, in a red run after a green one."""
    site = Site(folder)
    site.wheel("widget", "0.9")
    parts = [f"part{n}" for n in range(each)]
    for part in parts:
        site.wheel(part, "1.0")
    chances = [CHANCES[(number + n) % len(CHANCES)] for n in range(each * FLAKY_MORE)]
    tests = "".join(OURS.format(n=n) + DEPENDENCY.format(n=n) for n in range(each))
    tests += "".join(FLAKY.format(n=n, chance=chance) for n, chance in enumerate(chances))
    site.payload(tests, *parts)
    environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(site.index)}
    with a_home(folder / "home", **environment) as home:
        green = run(home, site.matrix("0.9"))
        assert green["outcome"] == "passed", green["outcome"]
        for part in parts:
            site.wheel(part, "2.0")
        for note in (home.path / "wheels").glob("*.json"):
            note.unlink()  # what a day's index said is asked again the next day
        red = run(home, site.matrix("1.1"), "--diagnose")
        for kind, answer in blamed(home, red["id"], "here"):
            score.add(kind, answer)


def machine_round(folder: Path, score: Score, *, each: int) -> None:
    """Plant a host that computes wrong, in a pool of two."""
    with contextlib.ExitStack() as stack:
        hosts = [SshHost(folder / "hosts", name=name) for name in ("red", "blue")]
        rows = []
        for host in hosts:
            stack.enter_context(host)
            endpoint = host.endpoint()
            rows.append(
                f"      - {{address: {endpoint.address}, port: {endpoint.port}, "
                f"user: {endpoint.user}, key_file: {endpoint.key_file}, "
                f"host_key: {endpoint.host_key}}}"
            )
        platform = "\n".join(["  - id: pool\n    provider: static\n    hosts:", *rows])
        python = '[python]\ncandidates = ["python3"]'
        site = Site(folder / "site", platform=platform, python=python)
        site.payload("".join(MACHINE.format(n=n) for n in range(each)), "pytest>=8")
        home = stack.enter_context(a_home(folder / "home", PIP_FIND_LINKS=str(site.index)))
        (home.path / "keys").mkdir(parents=True, mode=0o700)
        for host in hosts:
            shutil.copy(host.keys_dir / f"{host.name}_key", home.path / "keys")
        red = run(home, site.matrix("1.1"), "--diagnose")
        with home.client() as client:
            asked = client.post(f"/runs/{red['id']}/confirmation-run", json={"max_usd": "0"})
            second = asked.raise_for_status().json()["run"]
        eventually(lambda: home.get(f"/runs/{second}")["state"] == "finished", deadline_s=300)
        for kind, answer in blamed(home, red["id"], "pool"):
            score.add(kind, answer)


def repository(folder: Path, *, commits: int, broken: int) -> list[str]:
    """Create a library that commit `broken` breaks; return its commits, the oldest first."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ("git", *who, *words), cwd=folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    (folder / "widget").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "widget"\nversion = "1.0"\n'
    )
    git("init", "-q", "-b", "main")
    made = []
    for number in range(commits + 1):
        sound = number < broken
        text = f"NUMBER = {number}\n\n\ndef add(a, b):\n    return a + b{'' if sound else ' + 1'}\n"
        (folder / "widget" / "__init__.py").write_text(text)
        git("add", ".")
        git("commit", "-q", "-m", f"change {number}")
        made.append(git("rev-parse", "HEAD"))
    return made


GIT_MATRIX = """apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: history}}
subject: {{name: widget, version: "1.0", git: {{url: {url}, rev: {rev}}}}}
payload: {{path: payload}}
platforms:
  - {{id: here, provider: local}}
jobs:
  - {{select: "*"}}
"""


def bisect_round(folder: Path, *, commits: int = 64, broken: int = 41) -> dict:
    """Find a planted commit on one machine; return the output of `gate bisect --json`."""
    site = Site(folder)
    made = repository(folder / "source", commits=commits, broken=broken)
    site.payload("def test_add():\n    assert widget.add(2, 2) == 4\ndef test_fine():\n    pass\n")
    text = (folder / "payload" / "test_planted.py").read_text()
    text = text.replace("MONDAY = widget.VERSION == '0.9'\n", "")
    (folder / "payload" / "test_planted.py").write_text(text)
    with a_home(folder / "home") as home:
        for commit in (made[0], made[-1]):
            path = folder / f"{commit[:8]}.yaml"
            path.write_text(GIT_MATRIX.format(url=folder / "source", rev=commit))
            run(home, str(path))
        said = home.seatrial("gate", "bisect", "latest", "-y", "--json", timeout=1200)
        found = json.loads(said)
        shown = home.get(f"/runs/{found['run']}")
        found["machines"] = sum(len(cell["leases"]) for cell in shown["cells"])
        found["right"] = found.get("first_bad") == made[broken] and bool(found.get("exact"))
        return found


def tell_bisect(found: dict) -> bool:
    steps = [step for step in found["steps"] if step["why"] != "confirm"]
    shown = [f"{step['why']} {step['commit'][:8]} {step['answer']}" for step in found["steps"]]
    print(f"bisect of {found['revisions']}: {', '.join(shown)}")
    print(f"  right: {found['right']}; {len(steps)} steps on {found['machines']} machine")
    return bool(found["right"]) and len(steps) <= STEPS and found["machines"] == 1


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of-each", type=int, default=20, help="faults of each kind")
    parser.add_argument("--at-once", type=int, default=4, help="faults of each kind in one run")
    parser.add_argument("--kinds", default="mixed,machine,bisect")
    asked = parser.parse_args(words)
    score, begin = Score(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch:
        root = Path(scratch)
        root.chmod(0o755)
        number = 0
        while "mixed" in asked.kinds and score.count("flaky") < asked.of_each:
            mixed_round(root / f"mixed-{number}", score, each=asked.at_once, number=number)
            number += 1
            print(f"round {number}\n{score.tell()}", flush=True)
        if sshd_missing():
            print(f"left out: the machine that computes wrong: {sshd_missing()}")
        while (
            not sshd_missing()
            and "machine" in asked.kinds
            and (score.count("machine") < asked.of_each)
        ):
            machine_round(root / f"machine-{number}", score, each=asked.at_once)
            number += 1
            print(f"round {number}\n{score.tell()}", flush=True)
        is_found = "bisect" not in asked.kinds or tell_bisect(bisect_round(root / "bisect"))
    total = sum(score.count(kind) for kind in score.blamed)
    took = time.monotonic() - begin
    print(f"{total} planted faults, {score.wrong()} blamed wrongly, in {took:.0f} s")
    return 0 if is_found and score.is_good() else 1


if __name__ == "__main__":
    sys.exit(main())
