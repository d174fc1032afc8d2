"""The page about the commands is made from the commands."""

from __future__ import annotations

import re
from pathlib import Path

from docs.command_reference import reference
from orchestrator.cli.errors import DETACHED, NO_VERDICT, USAGE, WAITED_TOO_LONG
from orchestrator.domain.outcome import EXIT_CODES

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == reference(), "run: python -m docs.generate_reference"


def test_the_exit_code_of_every_outcome_is_in_the_table() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", reference(), re.MULTILINE)
    told = {int(code): words for code, words in rows}
    for outcome, code in EXIT_CODES.items():
        assert outcome.value.replace("_", " ") in told[code]
    assert "only skips" in told[NO_VERDICT]
    assert "detached" in told[DETACHED]
    assert "`--timeout`" in told[WAITED_TOO_LONG]
    assert "usage" in told[USAGE]


def test_every_command_has_its_section() -> None:
    page = reference()
    for command in (
        "init",
        "run MATRIX",
        "rerun RUN",
        "logs [RUN]",
        "token create NAME",
        "db check",
    ):
        assert f"## `seatrial {command}" in page
    assert "seatrial controller" not in page
