"""Log lines say what they are about."""

from __future__ import annotations

import logging

import pytest

from orchestrator.adapters.step_log import StepFormatter, step_of


@pytest.mark.parametrize(
    ("key", "about"),
    [
        ("01m8-2-1", " run=01m8 cell=2 attempt=1"),
        ("01m8-2", " run=01m8 cell=2"),
        ("", ""),
    ],
)
def test_a_line_names_run_cell_and_attempt(key: str, about: str) -> None:
    record = logging.LogRecord("flow", logging.INFO, "", 0, "place %s", ("north",), None)
    with step_of(key):
        assert StepFormatter().format(record).endswith(f" INFO flow{about}: place north")
    assert StepFormatter().format(record).endswith(" INFO flow: place north")
