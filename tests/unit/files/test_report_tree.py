"""A run's report is replaced as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from orchestrator.adapters.files.home_folder import TEMPORARY, write_report_tree
from tests.databases import together


def test_a_report_takes_the_place_of_the_old_one(tmp_path):
    write_report_tree(tmp_path, "r", {"SUMMARY.md": [b"old"], "gone.txt": [b"x"]})
    place = write_report_tree(tmp_path, "r", {"SUMMARY.md": [b"n", b"ew"], "a/b.txt": [b"y"]})
    assert place == tmp_path / "runs" / "r" / "report"
    assert sorted(path.name for path in place.rglob("*")) == ["SUMMARY.md", "a", "b.txt"]
    assert (place / "SUMMARY.md").read_bytes() == b"new"
    assert place.stat().st_mode & 0o777 == 0o755


def test_a_report_that_cannot_be_written_leaves_the_old_one_and_nothing_else(tmp_path):
    def torn() -> Iterator[bytes]:
        yield b"a part"
        raise OSError("no room")

    write_report_tree(tmp_path, "r", {"SUMMARY.md": [b"old"]})
    with pytest.raises(OSError, match="no room"):
        write_report_tree(tmp_path, "r", {"SUMMARY.md": [b"new"], "raw.txt": torn()})
    assert [path.name for path in (tmp_path / "runs" / "r").rglob("*")] == ["report", "SUMMARY.md"]
    assert (tmp_path / "runs" / "r" / "report" / "SUMMARY.md").read_bytes() == b"old"
    assert list((tmp_path / TEMPORARY).iterdir()) == []


def others_first(monkeypatch, *others) -> None:
    """Let another publisher do something before each of our renames, as long as there are any."""
    rename, left = Path.rename, list(others)

    def renamed(path, target):
        if left:
            left.pop(0)()
        return rename(path, target)

    def act(other):
        def acting():
            with monkeypatch.context() as alone:
                alone.setattr(Path, "rename", rename)
                other()

        return acting

    left[:] = [act(other) for other in others]
    monkeypatch.setattr(Path, "rename", renamed)


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("others", [1, 2, 5])
def test_a_report_takes_the_place_of_one_that_another_put_there_meanwhile(
    tmp_path, monkeypatch, is_there, others
):
    def other() -> None:
        write_report_tree(tmp_path, "r", {"SUMMARY.md": [b"older"], "gone.txt": [b"x"]})

    if is_there:
        other()
    others_first(monkeypatch, *[other] * others)
    place = write_report_tree(tmp_path, "r", {"SUMMARY.md": [b"new"]})
    assert [path.name for path in (tmp_path / "runs" / "r").rglob("*")] == ["report", "SUMMARY.md"]
    assert (place / "SUMMARY.md").read_bytes() == b"new"
    assert list((tmp_path / TEMPORARY).iterdir()) == []


def test_a_report_that_another_is_just_replacing_need_not_be_taken_away(tmp_path, monkeypatch):
    place = write_report_tree(tmp_path, "r", {"SUMMARY.md": [b"old"]})
    others_first(monkeypatch, lambda: place.rename(tmp_path / "taken"))
    write_report_tree(tmp_path, "r", {"SUMMARY.md": [b"new"]})
    assert (place / "SUMMARY.md").read_bytes() == b"new"


def test_of_reports_that_are_written_at_once_one_is_there_as_a_whole(tmp_path):
    def write(number: int) -> None:
        said = [str(number).encode()]
        for _ in range(20):
            write_report_tree(tmp_path, "r", {"SUMMARY.md": said, "a.txt": said})

    together([partial(write, number) for number in range(4)])
    report = tmp_path / "runs" / "r" / "report"
    texts = {path.name: path.read_text() for path in report.iterdir()}
    assert texts["SUMMARY.md"] == texts["a.txt"]
    assert list(report.parent.iterdir()) == [report]
    assert list((tmp_path / TEMPORARY).iterdir()) == []


def test_a_place_that_cannot_be_taken_is_told(tmp_path):
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "report").write_text("no folder")
    with pytest.raises(NotADirectoryError):
        write_report_tree(tmp_path, "r", {"SUMMARY.md": [b"new"]})
    assert list((tmp_path / TEMPORARY).iterdir()) == []
