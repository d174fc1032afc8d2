"""The agent finds distributions where importlib.metadata finds them."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from runners.agent.on_path import seatrial_distributions as ours


def test_the_same_is_found_in_this_environment() -> None:
    expected: dict[str, str] = {}
    for each in metadata.distributions():
        key = each.metadata["Name"].lower().replace("_", "-").replace(".", "-")
        expected.setdefault(key, each.version)
    assert len(expected) > 20
    assert ours.packages() == dict(sorted(expected.items()))
    for name in expected:
        there, found = metadata.distribution(name), ours.distribution(name)
        assert Path(found.home) == Path(str(there.locate_file("")))
        assert found.text("RECORD") == (there.read_text("RECORD") or "")


_HEADERS = "Metadata-Version: 2.1\nName: A.Tool\nVersion: 2.0\n\nVersion: 9\n"


def _laid(folder: Path, how: str) -> str:
    """Lay out a distribution in one of the ways of installers; return the entry of the path."""
    if how == "egg":
        (folder / "A_Tool-2.0-py3.egg" / "EGG-INFO").mkdir(parents=True)
        (folder / "A_Tool-2.0-py3.egg" / "EGG-INFO" / "PKG-INFO").write_text(_HEADERS)
        return str(folder / "A_Tool-2.0-py3.egg")
    if how == "file":
        (folder / "A.Tool-2.0.egg-info").write_text(_HEADERS)
        return str(folder)
    info = folder / ("a_tool-2.0.dist-info" if how == "wheel" else "A.Tool.egg-info")
    info.mkdir()
    (info / ("METADATA" if how == "wheel" else "PKG-INFO")).write_text(_HEADERS)
    return str(folder)


@pytest.mark.parametrize("how", ["wheel", "develop", "file", "egg"])
@pytest.mark.parametrize("name", ["a-tool", "A_Tool", "a.tool"])
def test_each_layout_and_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, name: str
) -> None:
    monkeypatch.setattr(sys, "path", ["/nowhere", _laid(tmp_path, how)])
    assert (ours.distribution(name).name, ours.distribution(name).version) == ("A.Tool", "2.0")
    assert ours.packages() == {"a-tool": metadata.version("a-tool")} == {"a-tool": "2.0"}
    with pytest.raises(ours.NotInstalledError):
        ours.distribution("tool")


def test_a_license_of_several_lines_ends_no_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As setuptools folds it: its empty lines are indented, and a form feed is no line's end."""
    info = tmp_path / "a_tool-2.0.dist-info"
    info.mkdir()
    text = "Name: a-tool\nLicense: MIT\n        \n        \f\n        More\nRequires-Dist: b[c]>1\n"
    (info / "METADATA").write_text(f"{text}\nRequires-Dist: d\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = ours.distribution("a-tool").requirements(None)
    assert list(found) == [("b", frozenset({"c"}))]


def test_the_first_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1", "2"):
        info = tmp_path / version / f"tool-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: tool\nVersion: {version}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "2"), str(tmp_path / "1")])
    assert ours.packages() == {"tool": "2"}
    assert ours.distribution("tool").home == str(tmp_path / "2")


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        ("os.name == 'posix'", True),
        ("sys.platform == 'linux'", True),
        ("platform.python_implementation == 'CPython'", True),
        ("os_name == 'nt'", False),
        ("python_version < 3", True),
    ],
)
def test_a_requirement_whose_marker_cannot_be_read_is_taken_to_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str, holds: bool
) -> None:
    """As those with a dot, which older metadata has."""
    info = tmp_path / "a_tool-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: a-tool\nRequires-Dist: b; {marker}\n\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = ours.distribution("a-tool").requirements(frozenset())
    assert list(found) == ([("b", frozenset())] if holds else [])
