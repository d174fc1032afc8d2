"""Every command of the tutorials, and everything that they show as printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.doc_pages import DOCS, Terminal, fits
from tests.e2e.home import Home

IN_THE_LAB = {"tutorials/wheel-on-a10g.md"}
"""Followed by `tests/lab/test_tutorial.py`: they rent machines."""
PAGES = sorted(str(path.relative_to(DOCS)) for path in (DOCS / "tutorials").glob("*.md"))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page not in IN_THE_LAB])
def test_a_tutorial_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "you")
    try:
        terminal.follow(page)
    finally:
        Home(terminal.folder / "widget" / "var").stop()


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("passed in 3s\n", "passed  in 4.1s\n", True),
        ("passed\n", "failed\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nb\n", False),
        ("", "anything\n", False),
    ],
)
def test_what_may_differ(shown: str, printed: str, same: bool) -> None:
    assert fits(shown, printed) is same
