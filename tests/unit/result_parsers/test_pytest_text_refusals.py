"""pytest that refuses to run says so, wherever its error stream ended up in the log."""

from __future__ import annotations

from orchestrator.adapters.result_parsers.pytest_text import PytestText
from tests.unit.result_parsers.pytest_logs import session, told, written


def read(folder, text):
    return told(PytestText(), written(folder, text))


def test_a_refusal(tmp_path):
    text = session(items=0, footer="no tests ran in 0.00s") + "ERROR: file not found: x.py\n"
    said = read(tmp_path, text)
    assert said.messages == ["pytest refused: file not found: x.py"]
    assert said.end.exit_code == 4


def test_a_refusal_whose_error_stream_came_first(tmp_path):
    text = "ERROR: file not found: x.py\n\n" + session(items=0, footer="no tests ran in 0.01s")
    said = read(tmp_path, text)
    assert said.end.exit_code == 4
    assert said.messages == ["pytest refused: file not found: x.py"]


def test_what_a_script_said_before_a_run_is_no_refusal_of_it(tmp_path):
    lines = ["tests/test_a.py::test_a PASSED [100%]"]
    text = "ERROR: the cache is cold\n" + session(*lines, items=1, footer="1 passed in 0.01s")
    said = read(tmp_path, text)
    assert said.end.exit_code == 0
    assert not said.messages
