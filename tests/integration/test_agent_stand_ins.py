"""Modules that are not the subject's: stand-ins of optional dependencies, and plug-ins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.agent_machine import laid_out
from tests.integration.test_agent_origins import PUT_FIRST, environment, start

__all__ = ["environment", "start"]


def test_what_stands_for_an_optional_dependency_is_named(start: Any) -> None:
    """The wheel names `more` as a requirement of its extra `all`: it is not the subject's own."""
    files = {"more.py": "answer = 42\n", "conftest.py": PUT_FIRST}
    test = "import tool.whole\ndef test(): assert tool.whole.more.answer == 42\n"
    said = start({**files, "test_a.py": test})
    assert (said.code, said.problems) == (0, []), said.output
    told = [hook for line in said.of("hooks") for hook in line["hooks"]]
    assert ["stands for an optional dependency of the subject", "more.py"] in told


def test_what_the_subject_cannot_do_without_is_no_optional_dependency(start: Any) -> None:
    files = {"more.py": "answer = 42\n", "conftest.py": PUT_FIRST}
    said = start({**files, "test_a.py": "import tool.needs\ndef test(): pass\n"})
    assert {each["file"].rpartition("/")[2] for each in said.problems} == {"more.py"}, said.output


PLUGIN = {"below/tool/plugins/extra.py": "answer = 42\n"}
USES_PLUGIN = """
import os, tool.plugins
tool.plugins.__path__.append(os.path.abspath("below/tool/plugins"))
import tool.plugins.extra
def test(): assert tool.plugins.extra.answer == 42
"""


def test_a_plugin_in_the_payload_is_refused_with_what_to_do(start: Any) -> None:
    """Nobody can tell it from a module that the wheel lacks."""
    said = start({**PLUGIN, "test_a.py": USES_PLUGIN})
    [fix] = {each["fix"] for each in said.problems}
    assert "install it as a distribution of its own" in fix


def test_a_plugin_that_another_distribution_installed_is_no_alarm(
    start: Any, environment: Path
) -> None:
    (site,) = environment.parent.parent.glob("lib/python3*/site-packages")
    laid_out(site, {
        "tool/plugins/other.py": "answer = 42\n",
        "tool_other-1.dist-info/METADATA": "Name: tool-other\nVersion: 1\n",
        "tool_other-1.dist-info/RECORD": (
                "tool/plugins/other.py,,\ntool_other-1.dist-info/RECORD,,\n"
            ),
    })  # fmt: skip
    said = start({"test_a.py": "import tool.plugins.other\ndef test(): pass\n"})
    assert (said.code, said.problems) == (0, []), said.output


WRITES_PLUGIN = """
import sys, tool
from pathlib import Path
home = Path(tool.__file__).parent
(home / "plugins" / "late.py").write_text("answer = 42")
info = home.parent / "tool_late-1.dist-info"
info.mkdir(exist_ok=True)
(info / "RECORD").write_text("tool/plugins/late.py,,\\ntool_late-1.dist-info/RECORD,,")
import tool.plugins.late
def test(): pass
"""


def test_a_plugin_that_the_process_itself_installs_is_refused(start: Any) -> None:
    said = start({"test_a.py": WRITES_PLUGIN})
    assert {each["module"] for each in said.problems} == {"tool.plugins.late"}, said.output
