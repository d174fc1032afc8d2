"""The mutants of the product: which edits are made of a source, and how they are planted."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from coverage import CoverageData

from tests.mutants import product
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


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("a.py", "a.py:5: these lines are not there any more"),
        ("b.py", "b.py is not there any more"),
    ],
)
def test_a_mutant_whose_lines_are_gone_is_told(tmp_path, file: str, said: str) -> None:
    (tmp_path / "a.py").write_text("y = 1\n")
    with pytest.raises(LookupError, match=re.escape(said)):
        Mutant(file, 5, "constant", "x = 1\n", "x = 2\n").plant(tmp_path)


def test_the_tests_of_a_line_are_those_of_where_it_was_when_they_were_recorded(tmp_path) -> None:
    source = tmp_path / "sources/a.py"
    source.parent.mkdir()
    source.write_text("def f():\n    return 1\n")
    (tmp_path / "1.json").write_text(json.dumps({"t.py::import": 0.1, "t.py::f": 0.2}))
    measured = CoverageData(str(tmp_path / "1.coverage"))
    for context, line in (("t.py::import", 1), ("t.py::f", 2)):
        measured.set_context(context)
        measured.add_lines({str(source): [line]})
    measured.write()
    covering = product.Covering(tmp_path)
    moved = Mutant("a.py", 1, "returned value", "    return 1\n", "    return None\n")
    assert covering.tests(moved) == ["t.py::f"]
    younger = Mutant("a.py", 2, "returned value", "    return 2\n", "    return None\n")
    assert covering.tests(younger) == ["t.py::import", "t.py::f"]


def test_each_verdict_is_saved_before_the_next_mutant_is_planted(tmp_path, monkeypatch) -> None:
    sample = [product.Verdict(Mutant("a.py", at, "constant", "1\n", "2\n")) for at in (1, 2)]

    def interrupted(verdicts: list[product.Verdict], _jobs: int) -> Iterator[object]:
        yield verdicts[0], replace(verdicts[0], state="killed", by="t.py::f")
        raise KeyboardInterrupt

    monkeypatch.setattr(product, "SAMPLE", tmp_path / "product.jsonl")
    monkeypatch.setattr(product, "RECORDED", tmp_path)
    monkeypatch.setattr(product, "judge_all", interrupted)
    monkeypatch.setattr("sys.argv", ["product"])
    product.save(sample)
    with pytest.raises(KeyboardInterrupt):
        product.main()
    assert [one.state for one in product.load()] == ["killed", "not run"]


def test_what_a_copy_imports_first_is_there() -> None:
    """Without one of them no mutant could be planted."""
    assert [name for name in LIBRARIES if importlib.util.find_spec(name) is None] == []
