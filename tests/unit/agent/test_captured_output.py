"""What pytest had captured when its process ended, as the agent reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runners.agent.events import EventWriter
from runners.agent.evidence_text import Masker
from runners.agent.job_output import CapturedOutput, JobOutput, Sink

SECRET = "s3cr3t-word"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def output(tmp_path: Path, log: Path) -> JobOutput:
    masker = Masker([SECRET])
    events = EventWriter(
        tmp_path / "events", reserve=tmp_path / "reserve", masker=masker, text_bytes=4_096
    )
    return JobOutput("suite", log=None, own=Sink(log, events), limit_bytes=100_000, masker=masker)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "captured"


@pytest.fixture
def captured(folder: Path) -> CapturedOutput:
    made = CapturedOutput(folder, None)
    made.begin_process()
    return made


def test_the_streams_of_each_process_in_order_masked(
    captured: CapturedOutput, folder: Path, output: JobOutput, log: Path
) -> None:
    (folder / "main.stderr").write_text("wrong\n")
    (folder / "main.stdout").write_text(f"the word is {SECRET}")
    (folder / "gw1.stdout").write_text("beside\n")
    (folder / "gw2.stdout").touch()
    assert captured.drain(output, 4_096) == [
        ("Captured stdout of gw1", "beside\n"),
        ("Captured stdout", "the word is ***"),
        ("Captured stderr", "wrong\n"),
    ]
    lines = log.read_text().splitlines()
    assert lines[1::2] == ["beside", "the word is ***", "wrong"]
    assert not folder.exists()


def test_a_long_text_has_its_end_in_the_report_and_all_of_it_in_the_log(
    captured: CapturedOutput, folder: Path, output: JobOutput, log: Path
) -> None:
    text = "".join(f"line {number}\n" for number in range(5_000))
    (folder / "main.stdout").write_text(text)
    ((_, end),) = captured.drain(output, 100)
    assert len(end) <= 100
    assert text.endswith(end)
    assert end.startswith("line ")
    assert log.read_text().endswith(text)


def test_nothing_but_plain_files_of_the_jobs_user_is_read(
    captured: CapturedOutput, folder: Path, output: JobOutput, log: Path, tmp_path: Path
) -> None:
    (tmp_path / "private").write_text("not the job's")
    (folder / "main.stdout").symlink_to(tmp_path / "private")
    os.mkfifo(folder / "main.stderr")
    (folder / "gw0.stdout").mkdir()
    assert captured.drain(output, 4_096) == []
    (folder.parent / "others").mkdir()
    foreign = CapturedOutput(folder.parent / "others", (os.geteuid() + 1, 0, ()))
    os.link(tmp_path / "private", folder.parent / "others" / "main.stdout")
    assert foreign.drain(output, 4_096) == []
    assert log.read_text() == ""
