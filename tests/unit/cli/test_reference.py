"""The page about the commands is made from the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import _click

from docs.command_reference import reference
from orchestrator.cli.app import whole
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


def _commands(command: Any) -> Iterator[Any]:
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from _commands(inner)


def test_the_help_names_a_value_for_every_option_but_flags() -> None:
    for command in _commands(whole()):
        context = _click.Context(command, info_name="x")
        for option in command.get_params(context):
            if option.param_type_name == "option":
                shown = option.display_type_rich(context)
                assert bool(shown) is not option.is_flag, (command.name, option.opts, shown)
