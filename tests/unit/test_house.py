"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
import subprocess
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE_LIMIT = 400
FUNCTION_LIMIT = 40
BANNED_NAMES = {"utils", "helpers", "common", "base", "manager"}
EXEMPT = ("migrations/versions/", "orchestrator/api/static/")


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split("\0")
    return [ROOT / name for name in listed if name and not name.startswith(EXEMPT)]


def test_there_is_something_to_check():
    assert len(sources()) > 50


def test_no_file_is_longer_than_400_lines():
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in sources()}
    assert {str(p): n for p, n in lengths.items() if n > FILE_LIMIT} == {}


def test_no_function_is_longer_than_40_lines():
    found = {}
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1 - doc_lines(node)
                if length > FUNCTION_LIMIT:
                    found[f"{path.relative_to(ROOT)}:{node.name}"] = length
    assert found == {}


def doc_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the docstring: explaining is not complexity."""
    if ast.get_docstring(node) is None:
        return 0
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


def test_no_module_has_a_name_that_says_nothing():
    assert [
        str(p) for p in sources() if p.stem in BANNED_NAMES or p.parent.name in BANNED_NAMES
    ] == []


@pytest.mark.parametrize("name", ["orchestrator", "runners", "reports"])
def test_import_name_is_ours_alone(name):
    assert set(packages_distributions().get(name, [])) <= {"seatrial"}
