"""What jobs did to the payload's tests is undone before the next job; data stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.agent.payload_copy import PayloadCopy

TEST = "def test_a(): assert False\n"
INSTALLED = ("plistlib", "toolz", "namespace")
STAYS = ("t/deep/pkg/inner.py",)
"""What is nothing that Python takes, once the package that it was left with is gone."""


@pytest.fixture
def pristine(tmp_path: Path) -> Path:
    folder = tmp_path / "pristine"
    (folder / "t" / "deep").mkdir(parents=True)
    (folder / "t" / "deep" / "test_a.py").write_text(TEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "helpers.py").write_text("def same(a, b): assert a == b\n")
    (folder / "data.txt").write_text("1")
    (folder / "again.py").symlink_to("t/deep/test_a.py")
    (folder / "linked").symlink_to("t/deep")
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "inner.py").write_text("")
    return folder


@pytest.fixture
def copy(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "copy", symlinks=True))


def told(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def swapped_for_a_link(copy: Path) -> None:
    elsewhere = copy.parent / "elsewhere"
    shutil.copytree(copy / "t", elsewhere)
    (elsewhere / "deep" / "test_a.py").write_text("weak")
    shutil.rmtree(copy / "t")
    (copy / "t").symlink_to(elsewhere)


def package_beside_its_module(copy: Path) -> None:
    (copy / "helpers").mkdir()
    (copy / "helpers" / "__init__.py").write_text("def same(a, b): pass\n")


def left(*names: str) -> Callable[[Path], None]:
    """Leave files of these names."""

    def leave(copy: Path) -> None:
        for name in names:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_text("def same(a, b): pass\n")

    return leave


def same_size_and_time(copy: Path) -> None:
    file = copy / "t" / "deep" / "test_a.py"
    when = file.stat().st_mtime_ns
    file.write_text(TEST.replace("False", "True "))
    os.utime(file, ns=(when, when))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda copy: None, []),
        (same_size_and_time, ["t/deep/test_a.py"]),
        (lambda copy: (copy / "t/deep/test_a.py").unlink(), ["t/deep/test_a.py"]),
        (lambda copy: shutil.rmtree(copy / "t"), ["t/deep/test_a.py"]),
        (swapped_for_a_link, ["t/deep/test_a.py", "t"]),
        (lambda copy: (copy / "conftest.py").write_text("x"), ["conftest.py"]),
        (lambda copy: (copy / "t" / "conftest.py").symlink_to("/none"), ["t/conftest.py"]),
        (lambda copy: (copy / "pytest.ini").write_text("[pytest]\naddopts=-k x"), ["pytest.ini"]),
        (lambda copy: (copy / "again.py").unlink(), ["again.py"]),
        (package_beside_its_module, ["helpers/__init__.py"]),
        (lambda copy: (copy / "helpers").symlink_to("t"), ["helpers"]),
        (lambda copy: (copy / "helpers.abi3.so").write_text("x"), ["helpers.abi3.so"]),
        (lambda copy: (copy / "t" / "deep" / "__init__.py").write_text("x"),
         ["t/deep/__init__.py"]),
        (left("t/plistlib.py"), ["t/plistlib.py"]),
        (left("t/toolz/__init__.py"), ["t/toolz/__init__.py"]),
        (left("namespace.py"), ["namespace.py"]),
        (left("sitecustomize.so"), ["sitecustomize.so"]),
        (left("usercustomize/__init__.py"), ["usercustomize/__init__.py"]),
        (left("x-1.dist-info/entry_points.txt"), ["x-1.dist-info/entry_points.txt"]),
        (left("t.py"), ["t.py"]),
        (left("t.so"), ["t.so"]),
        (left("t.pyc"), ["t.pyc"]),
        (left("t/deep.cpython-311-x86_64-linux-gnu.so"),
         ["t/deep.cpython-311-x86_64-linux-gnu.so"]),
        (left("linked.py"), ["linked.py"]),
        (left("t/__init__.py"), ["t/__init__.py"]),
        (left("__init__.py"), ["__init__.py"]),
        (left("t/deep/__init__.pyc"), ["t/deep/__init__.pyc"]),
        (left("t/deep/__pycache__/conftest.py"), ["t/deep/__pycache__/conftest.py"]),
        (left("t/deep/helpers.py"), ["t/deep/helpers.py"]),
        (left("new/helpers/__init__.py"), ["new/helpers/__init__.py"]),
        (left("new/t.py"), ["new/t.py"]),
        (left("new/t/__init__.pyd"), ["new/t/__init__.pyd"]),
        (left("new/t/deep/test_a.py"), ["new/t/deep/test_a.py"]),
        (left("t/deep/pkg/__init__.py", "t/deep/pkg/inner.py"), ["t/deep/pkg/__init__.py"]),
        (lambda copy: (copy / "t" / "pkg").symlink_to("deep"), ["t/pkg"]),
        (lambda copy: (copy / "data.txt").write_text("2"), ["data.txt"]),
        (lambda copy: (copy / "data.txt").touch(), []),
    ],
)  # fmt: skip
def test_tests_and_settings_are_as_shipped_again(pristine: Path, copy: Path, change, names) -> None:
    before, watched = told(pristine), PayloadCopy(pristine, copy, INSTALLED)
    change(copy)
    assert watched.restore() == names
    assert {name: text for name, text in told(copy).items() if name not in STAYS} == before
    assert (copy / "again.py").is_symlink()
    assert watched.restore() == []


def test_a_shipped_file_is_found_by_its_content(pristine: Path, copy: Path, tmp_path: Path) -> None:
    watched = PayloadCopy(pristine, copy, INSTALLED)
    (tmp_path / "same").write_bytes((pristine / "data.txt").read_bytes())
    (tmp_path / "other").write_bytes((pristine / "data.txt").read_bytes()[:-1] + b"?")
    (tmp_path / "empty").write_text("")
    (tmp_path / "linked").symlink_to("same")
    found = [watched.shipped_as(tmp_path / name) for name in ("same", "linked")]
    assert found == ["data.txt", "data.txt"]
    (tmp_path / "lost").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    strange = ("other", "empty", "lost", "loop", "same/below")
    assert not any(watched.shipped_as(tmp_path / name) for name in strange)


def test_only_shipped_files_of_an_added_files_size_are_looked_at(
    pristine: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, asked = PayloadCopy(pristine, copy, INSTALLED), []
    (tmp_path / "added").write_bytes(b"x" * 12_345)
    monkeypatch.setattr(Path, "lstat", asked.append)
    assert (watched.shipped_as(tmp_path / "added"), asked) == ("", [])


def test_what_lies_elsewhere_is_not_touched_through_a_link(pristine: Path, copy: Path) -> None:
    watched = PayloadCopy(pristine, copy, INSTALLED)
    swapped_for_a_link(copy)
    watched.restore()
    assert (copy.parent / "elsewhere" / "deep" / "test_a.py").read_text() == "weak"


def test_new_files_stay_and_byte_code_goes(pristine: Path, copy: Path) -> None:
    watched = PayloadCopy(pristine, copy, INSTALLED)
    (copy / "made.txt").write_text("2")
    (copy / "t" / ".hidden").write_text("")
    (copy / "made.py").write_text("x = 1\n")
    (copy / "t" / "inner.py").write_text("of no shipped module that is imported by this name\n")
    (copy / "t" / "helpers").write_text("data")
    (copy / "t" / "helpers.json").write_text("{}")
    (copy / "generated").mkdir()
    (copy / "generated" / "__init__.py").write_text("")
    cache = copy / "t" / "deep" / "__pycache__"
    cache.mkdir()
    (cache / "test_a.cpython-311-pytest-8.0.0.pyc").write_bytes(b"forged")
    assert watched.restore() == []
    assert (copy / "made.txt").read_text() == "2"
    assert (copy / "made.py").exists()
    assert (copy / "t" / "inner.py").exists()
    assert (copy / "t" / "helpers").exists()
    assert (copy / "t" / "helpers.json").exists()
    assert (copy / "generated" / "__init__.py").exists()
    assert not list(copy.rglob("*.pyc"))


def test_byte_code_that_was_shipped_goes_too(pristine: Path, tmp_path: Path) -> None:
    """It may say something else than the source beside it, which people read."""
    cache = pristine / "t" / "__pycache__"
    cache.mkdir()
    (cache / "test_a.cpython-311.pyc").write_bytes(b"forged")
    (pristine / "alone.pyc").write_bytes(b"a module without a source")
    copy = Path(shutil.copytree(pristine, tmp_path / "copy", symlinks=True))
    assert PayloadCopy(pristine, copy, INSTALLED).restore() == []
    assert [path.name for path in copy.rglob("*.pyc")] == ["alone.pyc"]


@pytest.mark.parametrize(
    "planted",
    ["tests.py", "tests/__init__.py", "first/tests.py", "first/tests/__init__.py",
     "first/tests/helpers.py", "first/other.py"],
)  # fmt: skip
def test_python_takes_what_was_shipped(tmp_path: Path, planted: str) -> None:
    """A folder without `__init__.py` comes after every module of its name on the path."""
    pristine = tmp_path / "pristine"
    (pristine / "tests").mkdir(parents=True)
    (pristine / "tests" / "helpers.py").write_text("x = 'shipped'\n")
    (pristine / "other.py").write_text("x = 'shipped'\n")
    copy = Path(shutil.copytree(pristine, tmp_path / "copy"))
    watched = PayloadCopy(pristine, copy, INSTALLED)
    (copy / planted).parent.mkdir(parents=True, exist_ok=True)
    (copy / planted).write_text(
        "import sys, types\nx = 'planted'\n"
        "sys.modules['tests.helpers'] = types.SimpleNamespace(x=x)\n"
    )
    assert "planted" in imported(copy)
    assert watched.restore() == [planted]
    assert imported(copy) == ["shipped", "shipped"]


def imported(copy: Path) -> list[str]:
    code = "import tests.helpers as a, other as b; print(a.x, b.x)"
    path = f"{copy / 'first'}{os.pathsep}{copy}"
    said = subprocess.run(
        [sys.executable, "-B", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        cwd=copy.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.split()
