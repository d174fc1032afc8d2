"""`holds`: whether a folder was shipped already, and that it is used."""

from __future__ import annotations

import os
from pathlib import Path

from runners.agent.__main__ import main


def test_a_folder_that_is_used_again_is_young_again(tmp_path: Path) -> None:
    folder = tmp_path / "payload"
    assert main(["holds", "--folder", str(folder)]) != 0
    assert not folder.exists()
    folder.mkdir()
    os.utime(folder, (1_000_000, 1_000_000))
    assert main(["holds", "--folder", str(folder)]) == 0
    assert folder.stat().st_mtime > 1_000_000
    (tmp_path / "file").touch()
    assert main(["holds", "--folder", str(tmp_path / "file")]) != 0
