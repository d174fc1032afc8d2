"""The commands and files of documentation pages, and a terminal that follows them.

A page shows a file as a block with a title, and a session as a block of the language `console`:
lines that begin with `$ ` are commands, what follows them is what they printed. `...` stands for
any lines. With `SEATRIAL_WRITE_GOLDENS` set, what commands print now is written into the page.
"""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.home import ROOT

DOCS = ROOT / "docs"
HOME = "/home/you"
"""The reader's home folder, as pages write it."""
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_VARIES = (
    (re.compile(r"\b01[0-9a-hjkmnp-tv-z]{10,24}\b"), "RUN"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "DIGEST"),
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z| UTC)?)?"), "DATE"),
    (re.compile(r"\$\d+\.\d+"), "PRICE"),
    (re.compile(r"\b(\d+[dhm] )?\d+(\.\d+)?(ms|s|m|h)\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? [kM]?B\b"), "SIZE"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b"), "DAY"),
    (re.compile(r"\s+"), " "),
)
_STARTED = "starting a controller in the background"
"""Printed again where the one before has been idle for too long: no page depends on it."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    heading: str
    language: str
    title: str
    text: str
    start: int
    """Of the text, in the page."""


def blocks(page: str) -> list[Block]:
    """All of a page below `docs/`, in its order."""
    text = (DOCS / page).read_text("utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        headings = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)
        found.append(Block(headings[-1], match[1], match[2] or "", match[3], match.start(3)))
    return found


def snippet(page: str, heading: str) -> str:
    """The first block of shell below a heading of a page."""
    below = (b for b in blocks(page) if b.heading == heading and b.language == "bash")
    return next(below).text


def sessions(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console's text, with what it printed."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        last = next(i for i, line in enumerate(lines) if not line.endswith("\\\n"))
        yield "".join(lines[: last + 1]).rstrip("\n"), "".join(lines[last + 1 :])


def varying(text: str) -> list[str]:
    """The lines of an output without what differs from time to time."""
    kept = []
    for line in text.splitlines():
        for pattern, word in _VARIES:
            line = pattern.sub(word, line)
        if line.strip() and not line.startswith(_STARTED):
            kept.append(line.strip())
    return kept


def fits(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed."""
    parts = (re.escape(line + "\n") for line in varying(shown))
    pattern = "".join(r"(?:.*\n)*?" if part == re.escape("...\n") else part for part in parts)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in varying(printed))) is not None


class Terminal:
    """A reader's shell: it keeps its working folder and variables from block to block."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.working = folder
        self.status = 0
        self._state = folder / ".terminal"
        (folder / "bin").mkdir(parents=True)
        program = folder / "bin" / "seatrial"
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m orchestrator "$@"\n'
        )
        program.chmod(0o755)
        self.environment = {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "LOGNAME": "you",
            **(environment or {}),
        }

    def follow(self, page: str) -> None:
        """Write the files and run the commands of a page below `docs/`.

        Raises:
            AssertionError: A command printed something else than the page shows, or failed
                without the page asking for its exit code.
        """
        text, written, end = (DOCS / page).read_text("utf-8"), "", 0
        for block in blocks(page):
            if block.title:
                self._write(block)
            elif block.language == "console":
                written += text[end : block.start] + self._session(block.text)
                end = block.start + len(block.text)
        assert self.status == 0, "the last command failed"
        if os.environ.get("SEATRIAL_WRITE_GOLDENS"):
            (DOCS / page).write_text(written + text[end:], "utf-8")

    def run(self, command: str) -> str:
        """Standard output and error of a command, as a terminal mixes them."""
        if self.status != 0:
            assert command.startswith("echo $?"), "the command before failed"
        script = (
            f"[ -e {self._state} ] && . {self._state}\n(exit {self.status})\n{command}\n"
            f"status=$?; export -p > {self._state}; pwd > {self._state}.pwd; exit $status"
        )
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.working, env=self.environment, text=True, timeout=300,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.status = done.returncode
        self.working = Path(self._state.with_suffix(".pwd").read_text().strip())
        printed = done.stdout.replace(str(self.folder), HOME)
        return printed.replace(f"triggered by {getpass.getuser()}", "triggered by you")

    def _write(self, block: Block) -> None:
        path = self.folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)

    def _session(self, text: str) -> str:
        written = ""
        for command, shown in sessions(text):
            printed = self.run(command)
            if os.environ.get("SEATRIAL_WRITE_GOLDENS") and "...\n" not in shown:
                shown = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
            assert fits(shown, printed), f"$ {command}\n{printed}"
            written += f"$ {command}\n{shown}"
        return written
