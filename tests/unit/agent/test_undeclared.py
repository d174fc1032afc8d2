"""What an installed distribution needs and its metadata does not require is read from its files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runners.agent.layout import on_path


@pytest.fixture
def undeclared(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module under test, which is imported by its plain name."""
    monkeypatch.syspath_prepend(str(on_path()))
    import seatrial_undeclared

    return seatrial_undeclared


Told = Callable[..., "list[tuple[str, str, str]]"]
_OTHERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "numpy": ("numpy/__init__.py", ()),
    "torch": ("torch/__init__.py", ("numpy", 'sympy; extra == "more"')),
    "sympy": ("sympy.py", ()),
    "space-a": ("space/a/__init__.py", ()),
    "space-b": ("space/b/__init__.py", ()),
    "old": ("old.py", ()),
}


def _lay(site: Path, name: str, files: Mapping[str, str], needs: tuple[str, ...]) -> None:
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    info = site / f"{name.replace('-', '_')}-1.dist-info"
    info.mkdir()
    lines = "".join(f"Requires-Dist: {one}\n" for one in needs)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{lines}\n")
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))


@pytest.fixture
def told(undeclared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Return a function that installs a subject beside the others, and reads it."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    def tell(*needs: str, name: str = "mine", **files: str) -> list[tuple[str, str, str]]:
        _lay(tmp_path, name, files, needs)
        for other, (file, requires) in _OTHERS.items():
            _lay(tmp_path, other, {file: ""}, requires)
        rows = undeclared.undeclared(name)
        return [(row["module"], row["file"], row["distribution"]) for row in rows]

    return tell


@pytest.mark.parametrize(
    "source",
    [
        "import numpy",
        "import numpy.linalg as la",
        "from numpy import linalg",
        "import os, numpy",
        "class A:\n    import numpy",
        "try:\n    import numpy\nfinally:\n    pass",
        "import importlib\nnp = importlib.import_module('numpy')",
        "from importlib import import_module as load\narray = load('numpy').array",
        "np: object = __import__('numpy')",
        "__import__('numpy')",
    ],
)
def test_an_import_that_nothing_guards(told: Told, source: str) -> None:
    rows = told(**{"mine/__init__.py": "from .a import b", "mine/a.py": source})
    assert rows == [("numpy", "mine/a.py", "numpy")]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import numpy",
        "async def f():\n    import numpy",
        "f = lambda: __import__('numpy')",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy",
        "import sys\nif sys.platform == 'win32':\n    import numpy\nelse:\n    import torch",
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None",
        "try:\n    import nothing\nexcept ModuleNotFoundError:\n    import numpy",
        "try:\n    import numpy\nexcept Exception:\n    pass",
        "try:\n    from . import fast\nexcept (OSError, ImportError):\n    pass",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import numpy",
        "class A:\n    def f(self):\n        import numpy",
        "import nothing_that_is_installed",
        "import os.path, json, xml.dom",
        "not python",
        "",
    ],
)
def test_an_import_that_is_guarded_or_needs_nothing(told: Told, source: str) -> None:
    files = {"mine/__init__.py": "from . import a", "mine/a.py": source}
    assert told(**files, **{"mine/fast.py": "import numpy"}) == []


def test_only_what_the_import_reaches_is_read(told: Told) -> None:
    files = {
        "mine/__init__.py": "from mine.deep.er import x\nimport mine.abs",
        "mine/deep/__init__.py": "",
        "mine/deep/er.py": "from .. import side\nfrom ..side import y",
        "mine/side/__init__.py": "import numpy",
        "mine/abs.py": "import torch",
        "mine/plugin.py": "import sympy",
        "_mine_plugin.py": "import old",
        "helper.py": "import old",
    }
    assert [row[:2] for row in told(**files)] == [
        ("numpy", "mine/side/__init__.py"),
        ("torch", "mine/abs.py"),
    ]


def test_another_name_than_the_distributions(told: Told) -> None:
    files = {"_c.py": "import old", "yams/__init__.py": "import numpy"}
    assert told(name="PyYams", **files) == [("numpy", "yams/__init__.py", "numpy")]


@pytest.mark.parametrize(
    ("needs", "left"),
    [
        ((), ["numpy", "sympy", "torch"]),
        (("numpy", "torch>=2"), ["sympy"]),
        (("torch",), ["sympy"]),
        (("torch[more]>=2",), []),
        (('torch ; extra == "gpu"', 'SymPy>1; python_version < "3"'), ["numpy", "sympy", "torch"]),
        (('torch[more]; python_version >= "3.0" and os_name == "posix"',), []),
        (('torch[more]; (extra == "x" or sys_platform != "win32")',), []),
        (('torch[more]; python_full_version ~= "3.9"',), []),
        (("torch[more]; platform_system in 'Windows, Java'",), ["numpy", "sympy", "torch"]),
        (("torch[more]; '2.7' >= python_version",), ["numpy", "sympy", "torch"]),
        (("torch[more]; no_such_variable == '1'",), []),
        (("torch @ https://example.org/torch.whl ", "sympy"), []),
        (('mine[gpu]; extra == "all"', 'torch[more]; extra == "gpu"'), ["numpy", "sympy", "torch"]),
        (("mine[gpu]", 'torch[more]; extra == "gpu"'), []),
    ],
    ids=str,
)
def test_requirements_count_that_an_installation_without_extras_brings_here(
    told: Told, needs: tuple[str, ...], left: list[str]
) -> None:
    rows = told(*needs, **{"mine/__init__.py": "import numpy, torch, sympy"})
    assert [module for module, _, _ in rows] == left


@pytest.mark.parametrize(
    ("source", "needs", "left"),
    [
        ("from space import a, b", ("space-a",), ["space.b"]),
        ("import space.a.c", ("space-a",), []),
        ("import space", ("space-a",), []),
        ("from space.b import c", ("space-a",), ["space.b"]),
        ("from space import mine\nimport space.mine.sub", (), []),
    ],
)
def test_parts_of_a_namespace(
    told: Told, source: str, needs: tuple[str, ...], left: list[str]
) -> None:
    files = {"space/mine/__init__.py": source, "space/mine/sub.py": ""}
    assert [row[0] for row in told(*needs, name="space-mine", **files)] == left


def test_a_copy_that_the_subject_brings_and_puts_on_the_path(told: Told) -> None:
    files = {
        "mine/__init__.py": "import sys\nsys.path.insert(0, 'mine/_vendor')\nimport old, numpy",
        "mine/_vendor/old.py": "",
    }
    assert [module for module, _, _ in told(**files)] == ["numpy"]


def test_a_distribution_without_record_and_one_with_older_metadata(
    told: Told, tmp_path: Path
) -> None:
    """As Debian installs them: the import names are in a file of their own."""
    info = tmp_path / "Older.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Name: older\nVersion: 1\n")
    (info / "top_level.txt").write_text("oldest\n_older\n")
    (info / "requires.txt").write_text("torch>=2\n\n[more]\nsympy\n")
    files = {"mine/__init__.py": "import oldest, torch, sympy, numpy"}
    assert told("older", **files) == []


def test_more_than_is_read_is_said(
    undeclared: Any, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(**{"mine/__init__.py": "from . import a, b", "mine/a.py": "", "mine/b.py": ""})
    for name, most in (("MOST_FILES", 2), ("MOST_BYTES", 5)):
        with monkeypatch.context() as context:
            context.setattr(undeclared, name, most)
            assert undeclared.undeclared("mine") is None
    assert undeclared.undeclared("mine") == []
