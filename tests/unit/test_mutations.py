"""The mutants of the product: which edits are made of a source, and how they are planted."""

from __future__ import annotations

import ast
import importlib.util

import pytest

from tests.mutants.forking import LIBRARIES
from tests.mutants.mutations import Mutant, draw, edits


def mutated(source: str) -> set[str]:
    """The source after each edit of it."""
    files = {"a.py": source}
    count = len(list(edits(ast.parse(source))))
    return {source.replace(mutant.old, mutant.new) for mutant in draw(files, count, seed=0)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b\n", {"x = ((a) <= (b))\n"}),
        ("x = a in b\n", {"x = ((a) not in (b))\n"}),
        ("x = a and b or c\n", {"x = ((a and b) and (c))\n", "x = ((a) or (b)) or c\n"}),
        ("x = not a\n", {"x = (a)\n"}),
        ("x = True\n", {"x = False\n"}),
        ("x = 4\n", {"x = 5\n"}),
        ("x = 'é', 1\n", {"x = 'not é', 1\n", "x = 'é', 2\n"}),
        ("x = a - b\n", {"x = (a + b)\n"}),
        ("if a:\n    f(b)\n", {"if a:\n    pass\n"}),
        ("a.b = c\n", {"pass\n"}),
        ("raise A\n", {"pass\n"}),
        ("def f():\n    return a\n", {"def f():\n    return None\n"}),
    ],
)
def test_an_edit_breaks_one_expression_or_statement(source: str, expected: set[str]) -> None:
    assert mutated(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A module."""\n',
        "x: Literal['a'] = b\n",
        "x = Literal['a']\n",
        "x = f'{a + 1}'\n",
        "x = a / f'{b}'\n",
        "if TYPE_CHECKING:\n    f(1)\n",
        "def f():\n    return None\n",
    ],
)
def test_what_has_no_effect_on_a_running_program_is_left_alone(source: str) -> None:
    assert mutated(source) == set()


def test_a_mutant_is_planted_where_its_lines_are_now(tmp_path) -> None:
    mutant = Mutant("a.py", 5, "constant", "x = 1\n", "x = 2\n")
    (tmp_path / "a.py").write_text("x = 1\n\n\nx = 1\n")
    assert mutant.plant(tmp_path) == "x = 1\n\n\nx = 1\n"
    assert (tmp_path / "a.py").read_text() == "x = 1\n\n\nx = 2\n"


def test_a_mutant_whose_lines_are_gone_is_told(tmp_path) -> None:
    (tmp_path / "a.py").write_text("y = 1\n")
    with pytest.raises(LookupError, match=r"a\.py:5: these lines are not there any more"):
        Mutant("a.py", 5, "constant", "x = 1\n", "x = 2\n").plant(tmp_path)


def test_what_a_copy_imports_first_is_there() -> None:
    """Without one of them no mutant could be planted."""
    assert [name for name in LIBRARIES if importlib.util.find_spec(name) is None] == []
