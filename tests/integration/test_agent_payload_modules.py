"""What a suite has from its payload and not from the installed subject, under whatever name."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_machine import laid_out
from tests.integration.test_agent_origins import (
    PUT_FIRST,
    TEST,
    Said,
    below,
    environment,
    start,
    start_pytest,
)

__all__ = ["environment", "start"]


@pytest.fixture
def start_with(environment: Path, tmp_path: Path) -> Any:
    """Start pytest likewise, with other files in the place of some that the tool installed."""
    (installed,) = environment.parents[1].glob("lib/python3*/site-packages")
    python = tmp_path / "venv" / "bin" / "python"

    def begin(changed: Mapping[str, str], files: Mapping[str, str]) -> Said:
        shutil.copytree(environment.parents[1], tmp_path / "venv", symlinks=True)
        site = tmp_path / "venv" / installed.relative_to(environment.parents[1])
        laid_out(site, changed)
        return start_pytest(python, tmp_path, files)

    return begin


COPY = "answer = 43\ndef late(): return 43\n"
BY_FILE = """
import importlib.util, runpy
spec = importlib.util.spec_from_file_location("part", "src/tool/part.py")
part = importlib.util.module_from_spec(spec)
"""
STARTS = "import subprocess, sys, tool\ndef test(): subprocess.check_call([sys.executable, {}])\n"
RUNS_A_COPY = {
    "by its folder": "import tool\nfrom src.tool.part import answer\ndef test(): pass\n",
    "by its file": f"import tool\n{BY_FILE}spec.loader.exec_module(part)\ndef test(): pass\n",
    "by runpy": f"import tool\n{BY_FILE}def test(): runpy.run_path('src/tool/part.py')\n",
}


@pytest.mark.parametrize("test", RUNS_A_COPY.values(), ids=RUNS_A_COPY)
def test_the_payloads_copy_of_a_file_of_the_subject_is_not_the_subject(
    start: Any, test: str
) -> None:
    said = start({"test_a.py": test, "conftest.py": "", "src/tool/part.py": COPY})
    assert {each["reason"] for each in said.problems} == {"wrong_subject"}, said.output
    [what] = {each["what"] for each in said.problems}
    assert (
        what == "src/tool/part.py of the payload ran, and tool 1.5 installed another tool/part.py"
    )
    assert "import tool.part" in said.problems[0]["fix"]


NO_COPY = {
    "src/tool/part.py": "answer = 42\r\n",
    "src/tool/__init__.py": "# as before\n",
    "src/tool/tests/part.py": COPY,
    "docs/tool/lean.py": "def early(): pass\n",
    "deep/part.py": COPY,
    **dict.fromkeys(
        [f"{folder}/tool/part.py" for folder in ("docs", "examples/src", "old", "tools")], COPY
    ),
}
"""Files of such names that are the same, without code, of other tests, or about something else."""


def test_files_that_only_share_a_name_are_no_copies(start: Any) -> None:
    runs = "import tool.part, runpy\ndef test():\n    for file in {!r}: runpy.run_path(file)\n"
    said = start({"test_a.py": runs.format([*NO_COPY]), **NO_COPY})
    assert (said.code, said.problems) == (0, []), said.output


ASKS_BY_NAME = {
    "a literal in a function": "from importlib import import_module as im\n"
    "def late(): return im('forgotten').answer\n",
    "computed at the top": "import importlib\n"
    "late = lambda: found\nfound = importlib.import_module('for' + 'gotten').answer\n",
    "of a list at the top": "import importlib\nNAMES = ['forgot']\nlate = lambda: 0\n"
    "for name in NAMES:\n    importlib.import_module(\n        f'{name}ten'\n    )\n",
}


@pytest.mark.parametrize("source", ASKS_BY_NAME.values(), ids=ASKS_BY_NAME)
def test_a_module_that_only_the_payload_has_may_be_imported_by_name(
    start_with: Any, source: str
) -> None:
    files = {"forgotten.py": "answer = 42\n", "conftest.py": PUT_FIRST}
    test = "import tool.lean\ndef test(): tool.lean.late()\n"
    said = start_with({"tool/lean.py": source}, {**files, "test_a.py": test})
    assert {each["reason"] for each in said.problems} == {"wrong_subject"}, said.output
    [what] = {each["what"] for each in said.problems}
    assert "tool.lean imports forgotten, which only the payload has (forgotten.py)" in what


def test_a_module_that_the_subject_is_told_to_import_is_the_payloads(start_with: Any) -> None:
    loads = (
        "import importlib, os\nload = lambda name: importlib.import_module(name)\n"
        "PLUGINS = []\nPLUGINS += os.environ['TOOL_PLUGINS'].split()\n"
        "for name in PLUGINS: importlib.import_module(name)\n"
        "try: importlib.import_module('set' + 'up_of_tool')\nexcept Exception: pass\n"
    )
    test = "import tool.lean\ndef test(): assert tool.lean.load('plugged').answer == 1\n"
    first = f"import os\nos.environ['TOOL_PLUGINS'] = 'plugged_in'\n{PUT_FIRST}"
    files = dict.fromkeys(("plugged.py", "plugged_in.py", "setup_of_tool.py"), "answer = 1\n")
    files.update({"conftest.py": first, "test_a.py": test})
    said = start_with({"tool/lean.py": loads}, files)
    assert (said.code, said.problems) == (0, []), said.output


@pytest.mark.parametrize(
    ("points", "problems"), [("[tool.ops]\nf = tool:f\n", 1), ("\n", 0)], ids=["other", "same"]
)
def test_metadata_of_the_subjects_name_in_the_payload(
    start: Any, points: str, problems: int
) -> None:
    info = {"PKG-INFO": "Name: tool\nVersion: 1.5\n", "entry_points.txt": points}
    said = start({"test_a.py": TEST.format(42), **below("tool.egg-info", info)})
    found = {each["what"] for each in said.problems}
    assert len(found) == problems, said.output
    assert all("metadata of tool (tool.egg-info)" in what for what in found)
