import os
from pathlib import Path

HERE = Path(os.environ["SEATRIAL_ARTIFACTS"])


def test_leaves_files(record_property):
    record_property("speed", 12.5)
    record_property("odd", float("nan"))
    (HERE / "result.json").write_text('{"answer": 42}')
    (HERE / "deep" / "er").mkdir(parents=True)
    (HERE / "deep" / "er" / "trace 1.txt").write_text("traced")
    (HERE / "link").symlink_to("/etc/passwd")
    (HERE / "folder").symlink_to("/etc")
    os.mkfifo(HERE / "pipe")
