"""Suites of other projects, run by the real pytest, which writes every document of the run at once.

A project's package is copied out of the environment, so that no run writes into it. Its tests
run in that copy, with nothing of this repository's settings and no network but the loopback.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.adapters.result_parsers.registry import FileDialects
from orchestrator.application.ports.result_parsers import HEAD_BYTES, TAIL_BYTES, Artifact
from orchestrator.domain.assembly.results_pass import ForeignArtifact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import (
    ParsedItem,
    ParsedProblem,
    ParsedTally,
    ParsedTest,
    ParsedUnnamedTests,
)

INSTALLED = Path(sysconfig.get_path("purelib"))
DIALECTS = {
    "log.txt": "pytest-text",
    "log.jsonl": "reportlog",
    "junit.xml": "junit-xml",
    "report.json": "pytest-json-report",
    "ctrf.json": "ctrf",
}
"""The documents of a run, and who reads each."""
_WORDS = {"errors": "error", "subtests passed": "", "subtest passed": ""}
_ASIDE = {"warning", "warnings", "deselected", "rerun", ""}


@dataclass(frozen=True, slots=True)
class Project:
    """A suite, and how it is run."""

    name: str
    arguments: tuple[str, ...]
    copied: tuple[str, ...] = ()
    """Folders of the environment."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Of a suite that is made on the spot."""

    def put(self, folder: Path) -> Path:
        """Make a copy that can be run."""
        for name in self.copied:
            shutil.copytree(INSTALLED / name, folder / name, dirs_exist_ok=True)
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
        return folder

    @property
    def missing(self) -> list[str]:
        """What the environment lacks."""
        return [name for name in self.copied if not (INSTALLED / name).is_dir()]


@dataclass(slots=True)
class Read:
    """What a dialect says of one document."""

    items: list[ParsedItem]
    tests: dict[str, TestOutcome] = field(default_factory=dict)
    repeated_modules: int = 0
    """How often a module is told of once more."""
    unnamed: Counter[str] = field(default_factory=Counter)
    tallies: dict[str, list[ParsedTally]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        """Tests by outcome."""
        return Counter(outcome.word for outcome in self.tests.values()) + self.unnamed

    @property
    def earlier(self) -> dict[str, int]:
        """Tries before the last one, of tests that have any."""
        tests = (each for each in self.items if isinstance(each, ParsedTest))
        return {test.nodeid: len(test.earlier) for test in tests if test.earlier}


@dataclass(frozen=True, slots=True)
class Documents:
    """What one run left."""

    home: Path
    exit_code: int

    @property
    def text(self) -> str:
        """What it printed."""
        return (self.home / "log.txt").read_text("utf-8")

    @property
    def footer(self) -> Counter[str]:
        """Reports by outcome, as pytest sums them up in its last line."""
        last = self.text.rstrip().splitlines()[-1].strip("= ")
        found: Counter[str] = Counter()
        for number, word in re.findall(r"(\d+) ([a-z ]+?)(?=,| in )", last):
            word = _WORDS.get(word, word)
            if word not in _ASIDE:
                found[word] += int(number)
        return found

    def read(self, name: str) -> Read:
        """Through the dialect that is surest of it."""
        artifact = self._artifact(name)
        best = FileDialects().best(artifact)
        assert best is not None
        assert best[0].name == DIALECTS[name]
        return _sorted_out(list(best[0].read(artifact)))

    def foreign(self, *names: str) -> list[ForeignArtifact]:
        """As assembly takes them in."""
        found = []
        for name in names:
            artifact = self._artifact(name)
            best = FileDialects().best(artifact)
            assert best is not None
            dialect, sure = best
            said = dialect.read(artifact)
            called = f"{dialect.name} {dialect.version}"
            found.append(
                ForeignArtifact(
                    name, "d" * 64, artifact.size_bytes, called, dialect.provenance, sure, said
                )
            )
        return found

    def _artifact(self, name: str) -> Artifact:
        path = self.home / name
        data = path.read_bytes()
        return Artifact(name, path, len(data), data[:HEAD_BYTES], data[-TAIL_BYTES:])


def run(folder: Path, home: Path, *arguments: str, inside: str = ".") -> Documents:
    """Run pytest in `folder`, or in a folder `inside` it; its documents are in `home`."""
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null"]
    command += [f"--rootdir={folder}", "-o", "addopts=", *arguments]
    command += [f"--report-log={home}/log.jsonl", f"--junitxml={home}/junit.xml"]
    command += ["--json-report", f"--json-report-file={home}/report.json"]
    command += [f"--ctrf={home}/ctrf.json"]
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    with (home / "log.txt").open("wb") as log:
        done = subprocess.run(
            command, cwd=folder / inside, env=clean, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, timeout=240, check=False,
        )  # fmt: skip
    return Documents(home, done.returncode)


def differing(
    one: Mapping[str, TestOutcome], other: Mapping[str, TestOutcome]
) -> dict[str, tuple[str, str]]:
    """Tests that are told differently; a dash where a test is not told of."""
    return {
        nodeid: (_word(one.get(nodeid)), _word(other.get(nodeid)))
        for nodeid in sorted({*one, *other})
        if one.get(nodeid) is not other.get(nodeid)
    }


def _word(outcome: TestOutcome | None) -> str:
    return "-" if outcome is None else outcome.word


def _sorted_out(said: list[ParsedItem]) -> Read:
    read = Read(said)
    for each in said:
        if isinstance(each, ParsedTest):
            read.repeated_modules += "::" not in each.nodeid and each.nodeid in read.tests
            known = read.tests.get(each.nodeid, each.outcome)
            read.tests[each.nodeid] = max(known, each.outcome)
        elif isinstance(each, ParsedUnnamedTests):
            read.unnamed.update(each.counts)
        elif isinstance(each, ParsedTally):
            read.tallies.setdefault(each.where, []).append(each)
        elif isinstance(each, ParsedProblem):
            read.problems.append(each.message)
    return read
