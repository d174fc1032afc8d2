"""A run's report is replaced as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.adapters.files.home import TEMPORARY
from orchestrator.adapters.files.report_tree import write_report_tree


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
