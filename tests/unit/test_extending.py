"""Pages for developers: the files that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "page",
    [ROOT / "docs/explanation/architecture.md", *sorted(ROOT.glob("docs/extending/*.md"))],
    ids=lambda page: page.stem,
)
def test_files_that_a_page_for_developers_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[\w*]+\.\w+|(?:[a-z_]+/){2,})`", page.read_text("utf-8"))
    assert [
        path
        for path in named
        if not any([*(ROOT / root).glob(path)] for root in ("", "orchestrator", "payload"))
    ] == []
