"""The page about the commands is made from the commands."""

from __future__ import annotations

from pathlib import Path

from orchestrator.cli.command_reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == reference(), (
        "run: python -m orchestrator.cli.command_reference > docs/reference/cli.md"
    )


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
