"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE_LIMIT = 600
FUNCTION_LIMIT = 40
BANNED_NAMES = {"utils", "helpers", "common", "base", "manager"}
EXEMPT = ("migrations/versions/", "orchestrator/api/static/")


@cache
def sources() -> dict[Path, str]:
    """Every file of ours with its text."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split("\0")
    paths = [ROOT / name for name in listed if name and not name.startswith(EXEMPT)]
    return {path: path.read_text("utf-8") for path in paths}


def test_there_is_something_to_check():
    assert len(sources()) > 50


def test_no_file_is_longer_than_600_lines():
    lengths = {path: len(text.splitlines()) for path, text in sources().items()}
    assert {str(p): n for p, n in lengths.items() if n > FILE_LIMIT} == {}


def test_no_function_is_longer_than_40_lines():
    found = {}
    for path, text in sources().items():
        for node in statements(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1 - doc_lines(node)
                if length > FUNCTION_LIMIT:
                    found[f"{path.relative_to(ROOT)}:{node.name}"] = length
    assert found == {}


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Those in a file, however deep; what stands inside of an expression is no function of ours."""
    blocks = (getattr(tree, name, ()) for name in ("body", "orelse", "finalbody", "handlers"))
    for node in chain(*blocks, getattr(tree, "cases", ())):
        yield node
        yield from statements(node)


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


def public_docs(
    tree: ast.Module | ast.ClassDef, prefix: str = ""
) -> Iterator[tuple[str, str | None]]:
    """Names and docstrings of a module's public classes, functions and methods."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name[0] != "_":
            yield prefix + node.name, ast.get_docstring(node)
            if isinstance(node, ast.ClassDef):
                yield from public_docs(node, f"{prefix}{node.name}.")


def test_a_public_docstring_of_the_payload_library_is_a_sentence():
    found = {
        f"{path.relative_to(ROOT)}: {name}": doc
        for path, text in sources().items()
        if path.is_relative_to(ROOT / "payload/torchbridge")
        for name, doc in public_docs(ast.parse(text))
        if len((doc or "").split()) < 3
    }
    assert found == {}


_NAMED_ERROR = re.compile(r"\bRaises:?\s+(\w+Error)(?:(?:,| or| and) (\w+Error))?")
_KNOWN_ERROR = re.compile(r"(?m)^\s*class (\w+Error)\b|^(?:from|import) .*?\b(\w+Error)\b")


def test_a_docstring_names_errors_that_exist():
    ours = {
        path: text
        for path, text in sources().items()
        if path.relative_to(ROOT).parts[0] in ("orchestrator", "reports", "runners")
    }
    known = {name for text in ours.values() for pair in _KNOWN_ERROR.findall(text) for name in pair}
    known |= set(dir(builtins))
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in ours.items()
        for names in _NAMED_ERROR.findall(text)
        for name in filter(None, names)
        if name not in known
    }
    assert found == set()
