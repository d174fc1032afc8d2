"""What jobs did to the payload's tests is undone before the next job; data stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from runners.agent.payload_copy import PayloadCopy

TEST = "def test_a(): assert False\n"


@pytest.fixture
def pristine(tmp_path: Path) -> Path:
    folder = tmp_path / "pristine"
    (folder / "t" / "deep").mkdir(parents=True)
    (folder / "t" / "deep" / "test_a.py").write_text(TEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "helpers.py").write_text("def same(a, b): assert a == b\n")
    (folder / "data.txt").write_text("1")
    (folder / "again.py").symlink_to("t/deep/test_a.py")
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
        (swapped_for_a_link, ["t/deep/test_a.py"]),
        (lambda copy: (copy / "conftest.py").write_text("x"), ["conftest.py"]),
        (lambda copy: (copy / "t" / "conftest.py").symlink_to("/none"), ["t/conftest.py"]),
        (lambda copy: (copy / "pytest.ini").write_text("[pytest]\naddopts=-k x"), ["pytest.ini"]),
        (lambda copy: (copy / "again.py").unlink(), ["again.py"]),
        (package_beside_its_module, ["helpers/__init__.py"]),
        (lambda copy: (copy / "helpers").symlink_to("t"), ["helpers"]),
        (lambda copy: (copy / "helpers.abi3.so").write_text("x"), ["helpers.abi3.so"]),
        (lambda copy: (copy / "t" / "deep" / "__init__.py").write_text("x"),
         ["t/deep/__init__.py"]),
        (lambda copy: (copy / "data.txt").write_text("2"), ["data.txt"]),
        (lambda copy: (copy / "data.txt").touch(), []),
    ],
)  # fmt: skip
def test_tests_and_settings_are_as_shipped_again(pristine: Path, copy: Path, change, names) -> None:
    before, watched = told(pristine), PayloadCopy(pristine, copy)
    change(copy)
    assert watched.restore() == names
    assert told(copy) == before
    assert (copy / "again.py").is_symlink()
    assert watched.restore() == []


def test_what_lies_elsewhere_is_not_touched_through_a_link(pristine: Path, copy: Path) -> None:
    watched = PayloadCopy(pristine, copy)
    swapped_for_a_link(copy)
    watched.restore()
    assert (copy.parent / "elsewhere" / "deep" / "test_a.py").read_text() == "weak"


def test_new_files_stay_and_byte_code_goes(pristine: Path, copy: Path) -> None:
    watched = PayloadCopy(pristine, copy)
    (copy / "made.txt").write_text("2")
    (copy / "t" / ".hidden").write_text("")
    (copy / "made.py").write_text("x = 1\n")
    (copy / "generated").mkdir()
    (copy / "generated" / "__init__.py").write_text("")
    cache = copy / "t" / "deep" / "__pycache__"
    cache.mkdir()
    (cache / "test_a.cpython-311-pytest-8.0.0.pyc").write_bytes(b"forged")
    assert watched.restore() == []
    assert (copy / "made.txt").read_text() == "2"
    assert (copy / "made.py").exists()
    assert (copy / "generated" / "__init__.py").exists()
    assert not list(copy.rglob("*.pyc"))


def test_byte_code_that_was_shipped_goes_too(pristine: Path, tmp_path: Path) -> None:
    """It may say something else than the source beside it, which people read."""
    cache = pristine / "t" / "__pycache__"
    cache.mkdir()
    (cache / "test_a.cpython-311.pyc").write_bytes(b"forged")
    (pristine / "alone.pyc").write_bytes(b"a module without a source")
    copy = Path(shutil.copytree(pristine, tmp_path / "copy", symlinks=True))
    assert PayloadCopy(pristine, copy).restore() == []
    assert [path.name for path in copy.rglob("*.pyc")] == ["alone.pyc"]
