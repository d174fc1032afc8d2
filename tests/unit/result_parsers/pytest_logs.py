"""Logs of pytest as artifacts, and what a dialect says of them in figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.application.ports.result_parsers import HEAD_BYTES, TAIL_BYTES, Artifact, Dialect
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import (
    ParsedDetail,
    ParsedEnd,
    ParsedItem,
    ParsedProblem,
    ParsedTally,
    ParsedTest,
    ParsedUnnamedTests,
)

GOLDEN = Path(__file__).parents[2] / "golden/logs/gcp_l4_v046"
HEADER = "=" * 29 + " test session starts " + "=" * 30 + "\n"


def artifact(path: Path) -> Artifact:
    data = path.read_bytes()
    return Artifact(path.name, path, len(data), data[:HEAD_BYTES], data[-TAIL_BYTES:])


def session(*lines: str, items: int | None = None, footer: str = "") -> str:
    """A log of one session: its heading, these lines, its sum."""
    head = HEADER + (f"collected {items} items\n\n" if items is not None else "")
    return head + "".join(f"{line}\n" for line in lines) + (bar(footer) if footer else "")


def written(folder: Path, text: str | bytes, name: str = "tests.txt") -> Artifact:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return artifact(path)


def bar(title: str, character: str = "=") -> str:
    """A row as pytest makes it, 80 wide."""
    side = max((80 - len(title) - 2) // 2, 1)
    row = f"{character * side} {title} {character * side}"
    return (row + character if len(row) < 80 else row) + "\n"


@dataclass
class Told:
    """What was said, by kind."""

    tests: dict[str, TestOutcome] = field(default_factory=dict)
    first: dict[str, ParsedTest] = field(default_factory=dict)
    unnamed: Counter[str] = field(default_factory=Counter)
    collected: list[int] = field(default_factory=list)
    footers: list[ParsedTally] = field(default_factory=list)
    details: list[ParsedDetail] = field(default_factory=list)
    problems: list[ParsedProblem] = field(default_factory=list)
    end: ParsedEnd | None = None
    said: list[ParsedItem] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        return Counter(outcome.word for outcome in self.tests.values()) + self.unnamed

    @property
    def messages(self) -> list[str]:
        return [problem.message for problem in self.problems]


def told(dialect: Dialect, log: Artifact) -> Told:
    said = list(dialect.read(log))
    result = Told(said=said)
    for one in said:
        if isinstance(one, ParsedTest):
            known = result.tests.get(one.nodeid, one.outcome)
            result.tests[one.nodeid] = max(known, one.outcome)
            result.first.setdefault(one.nodeid, one)
        elif isinstance(one, ParsedUnnamedTests):
            result.unnamed.update(one.counts)
        elif isinstance(one, ParsedEnd):
            result.end = one
    tallies = [one for one in said if isinstance(one, ParsedTally)]
    result.collected = [one.total for one in tallies if one.where == "collected"]
    result.footers = [one for one in tallies if one.where == "footer"]
    result.details = [one for one in said if isinstance(one, ParsedDetail)]
    result.problems = [one for one in said if isinstance(one, ParsedProblem)]
    return result
