"""The commands of docs/seeds/README.md, as they are written there."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.e2e import doc_pages
from tests.e2e.home import ROOT, Home, a_home
from tests.integration.test_seeds_through_stores import GOLDEN, SEEDS, same


def blocks() -> dict[str, list[list[str]]]:
    """The commands of each commented part, without the program's name."""
    [block] = [each for each in doc_pages.blocks("seeds/README.md") if each.language == "sh"]
    parts = {}
    for part in block.text.strip().split("\n\n"):
        title, *lines = part.splitlines()
        parts[title] = [shlex.split(line)[1:] for line in lines]
        assert all(line.startswith("seatrial ") for line in lines)
    return parts


@pytest.fixture
def home(tmp_path: Path):
    with a_home(tmp_path / "home") as opened:
        yield opened


def run_there(home: Home, words: list[str]) -> str:
    done = subprocess.run(
        home.command(*words),
        env=home.environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def rows(text: str) -> list[str]:
    """Without blank lines, and the dates of upload: here they are today's."""
    return [line for line in text.splitlines() if line and "Uploaded on" not in line]


def alone(text: str) -> str:
    """Return a report as it is printed: it links no file that would stand beside a written one."""
    kept = re.sub(r"(?m)^(!\[.*\]\(plots/|- \*\*Report\*\*: \[|The plots of each).*\n", "", text)
    return re.sub(r"(?ms)^---\n\n## Report Directory Structure\n\n```.*?^```\n", "", kept)


@pytest.mark.parametrize("title", blocks())
def test_the_commands_print_the_golden_documents(title: str, home: Home):
    run, printed = "", []
    for words in blocks()[title]:
        out = run_there(home, words)
        if words[0] == "ingest":
            run = out.strip()
            top = Path(words[1]).parent.name
        else:
            printed.append(out)
    assert len(printed) == len(SEEDS[top])
    for out, (golden, _, _) in zip(printed, SEEDS[top], strict=True):
        wanted = (GOLDEN / "reports" / golden).read_text("utf-8")
        assert rows(same(out, run)) == rows(same(alone(wanted), run))
