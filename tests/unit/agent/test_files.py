"""Files that cannot be trusted, and the event stream, which must be trusted."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from runners.agent import event_lines, suite, tail_json_lines
from runners.agent.events import EventWriter
from runners.agent.evidence_text import Masker
from runners.agent.pack_artifacts import bundle, flat_name
from runners.agent.pytest_records import report
from runners.agent.tail_json_lines import JsonLinesTail


def writer(folder: Path, after_seq: int = 0) -> EventWriter:
    return EventWriter(
        folder / "events.jsonl",
        reserve=folder / "reserve",
        masker=Masker(["hidden-value"]),
        text_bytes=1_000,
        after_seq=after_seq,
    )


def test_events_are_whole_lines_numbered_from_one(tmp_path: Path) -> None:
    events = writer(tmp_path)
    events.emit("log", None, {"message": "a hidden-value\nand \ud800 \0" + "x" * 5_000})
    events.emit("phase", "moe", {"name": "started"})
    assert (tmp_path / "reserve").stat().st_size > 100_000
    events.close()
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    first, second = map(json.loads, lines)
    assert (first["seq"], second["seq"]) == (1, 2)
    assert set(first) == {"v", "seq", "ts", "kind", "job", "data"}
    assert first["data"]["message"].startswith("a ***\nand ? \ufffd")
    assert len(first["data"]["message"].encode()) <= 1_000
    assert (tmp_path / "events.jsonl").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "reserve").exists()


def test_a_torn_line_is_ended_and_history_skips_it(tmp_path: Path) -> None:
    events = writer(tmp_path)
    events.emit("phase", "a", {"name": "finished"})
    data = {"record": "report", "nodeid": "t::one", "when": "teardown"}
    events.emit("test", "b", data)
    events.emit("test", "b", {**data, "nodeid": "t::two", "when": "call"})
    events.close()
    with (tmp_path / "events.jsonl").open("ab") as stream:
        stream.write(b'{"v":1,"seq":4')
    past = event_lines.read(tmp_path / "events.jsonl")
    assert (past.last_seq, past.ended, past.finished) == (3, False, {"a"})
    assert past.done == {"b": {"t::one"}}
    again = writer(tmp_path, after_seq=past.last_seq)
    again.emit("end", None, {"outcome": "completed"})
    again.close()
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert lines[3] == b'{"v":1,"seq":4'
    assert json.loads(lines[4])["seq"] == 4
    assert event_lines.read(tmp_path / "events.jsonl").ended
    assert event_lines.read(tmp_path / "absent").last_seq == 0


def test_tail_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "records"
    tail = JsonLinesTail(path)
    assert tail.poll() == []
    with path.open("ab", buffering=0) as stream:
        stream.write(b'\n{"a": 1}\n{"b"')
        assert tail.poll() == [(2, {"a": 1}, "")]
        assert tail.poll() == []
        stream.write(b": 2}\n[3]\n{torn")
        assert [line[:2] for line in tail.poll()] == [(3, {"b": 2}), (4, None)]
    assert tail.drain() == [(5, None, "the line is torn")]
    assert tail.drain() == []
    tail.close()


def test_a_line_that_does_not_end_is_not_kept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tail_json_lines, "_LONGEST_LINE", 5_000_000)
    path = tmp_path / "records"
    with path.open("wb", buffering=0) as stream:
        for _ in range(10):
            stream.write(b"x" * 4 * 1024 * 1024)
        stream.write(b"\n[]\n{}\n")
    tail = JsonLinesTail(path)
    tracemalloc.start()
    lines = [line for _ in range(11) for line in tail.poll()]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 25_000_000
    assert lines == [
        (1, None, "the line is longer than 64 MiB"), (2, None, "not an object"), (3, {}, "")
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_tail_takes_plain_files_only(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "records"
    if kind == "link":
        (tmp_path / "real").write_text('{"a": 1}\n')
        path.symlink_to(tmp_path / "real")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert JsonLinesTail(path).poll() == []


def test_bundle_holds_plain_files_only(tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    folder.mkdir()
    (folder / "b.txt").write_bytes(b"two")
    (folder / "a.txt").write_bytes(b"x" * 100_000)
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    out = io.BytesIO()
    bundle(folder, out)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        assert [(one.name, one.size, one.isreg()) for one in tar] == [
            ("a.txt", 100_000, True),
            ("b.txt", 3, True),
        ]
    empty = io.BytesIO()
    bundle(tmp_path / "absent", empty)
    with tarfile.open(fileobj=io.BytesIO(empty.getvalue())) as tar:
        assert tar.getnames() == []


def test_flat_names_are_harmless() -> None:
    assert flat_name("moe", Path("deep/er/trace 1.json")) == "moe.deep-er-trace_1.json"
    assert "/" not in flat_name("moe", Path("a/../../b\n🚢"))
    long = flat_name("moe", Path("x" * 200 + "one.json")), flat_name("moe", Path("x" * 201 + ".js"))
    assert all(len(name) <= 100 for name in long)
    assert long[0] != long[1]
    assert long[0].endswith("one.json")


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("pytest.ini", "", True),
        ("pytest.toml", "", True),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", True),
        ("pyproject.toml", " [ tool . pytest ]\n", True),
        ("pyproject.toml", "[tool.pytest-other]\n", False),
        ("tox.ini", "[pytest]\n", True),
        ("tox.ini", "[testenv]\n", False),
        ("setup.cfg", "[tool:pytest]\n", True),
        ("setup.cfg", "[pytest]\n", False),
    ],
)
def test_pytest_configuration(tmp_path: Path, name: str, text: str, found: bool) -> None:
    (tmp_path / name).write_text(text)
    assert suite.config_file(tmp_path) == (tmp_path / name if found else None)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], "tox.ini"),
        (["tests"], "tests/pytest.ini"),
        (["tests/unit", "-k", "more"], "tests/pytest.ini"),
        (["tests/unit/test_a.py::test_b[x]"], "tests/pytest.ini"),
        (["tests", "more"], "tox.ini"),
        (["more"], "tox.ini"),
        (["tests/absent"], "tox.ini"),
        (["../beside"], None),
    ],
)
def test_the_configuration_is_the_one_that_pytest_finds(
    tmp_path: Path, arguments: list[str], found: str | None
) -> None:
    root = tmp_path / "payload"
    for folder in ("tests/unit", "more", "../beside"):
        (root / folder).mkdir(parents=True)
    (root / "tests" / "unit" / "test_a.py").touch()
    (root / "tests" / "pytest.ini").touch()
    (root / "tox.ini").write_text("[pytest]\n")
    assert suite.config_file(root, arguments) == (root / found if found else None)


GOOD = {"nodeid": "t::x", "when": "call", "outcome": "passed", "duration": 0.5}


def test_report_keeps_what_it_knows() -> None:
    line = {**GOOD, "strange": 1, "sections": [["a", "b"]], "longrepr": ["f.py", 3, "Skipped: x"]}
    found = report(line)
    assert "strange" not in found
    assert found["longrepr"] == ["f.py", 3, "Skipped: x"]
    assert found["sections"] == [["a", "b"]]
    assert found["strict_xpass"] is False


@pytest.mark.parametrize(
    "change",
    [
        {"nodeid": ""}, {"nodeid": 3}, {"when": "later"}, {"outcome": "great"},
        {"duration": "fast"}, {"longrepr": {"a": 1}}, {"sections": [["only one"]]}, {"wasxfail": 1},
    ],
)  # fmt: skip
def test_report_refuses_what_it_does_not_know(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be|cannot be|is needed"):
        report({**GOOD, **change})
